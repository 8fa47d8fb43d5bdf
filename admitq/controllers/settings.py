"""Settings of the controllers, created from the configuration and the feature gates at the start."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from admitq.core.model import LabelSelector
from admitq.integrations.base import Integration
from admitq.integrations.references import OwnerKind
from admitq.integrations.workload_names import MAX_LABEL_LENGTH, MAX_NAME_LENGTH
from admitq.metrics.custom_labels import MetadataKey, metadata_copied_to_workloads
from admitq.translate.selectors import select_managed_namespaces
from admitq.translate.settings import configured_pods_ready
from admitq.workloads.host_failures import NodeFailureSettings, configured_node_failures
from admitq.workloads.template_injection import InjectedMarks
from admitq.workloads.topology_annotations import (
    DEFAULT_TOPOLOGY_RULES,
    TopologyRules,
    configured_topology_rules,
)
from admitq_api.conditions import Reason
from admitq_api.configuration import Configuration, sections
from admitq_api.feature_gates import FeatureGates, Gate

Nanoseconds = int


@dataclass(frozen=True, slots=True)
class PodsReadyPolicy:
    """What happens when the pods of an admitted workload are not ready in time; times in nanoseconds."""

    timeout: Nanoseconds
    recovery_timeout: Nanoseconds
    backoff_limit: int | None
    backoff_base_seconds: int
    backoff_most_seconds: int

    def backoff_seconds(self, count: int) -> int:
        """Return how long a Workload waits before its requeue number ``count``, from 1."""
        # With 2^40, every base exceeds the longest wait. The bound keeps the power small.
        return min(self.backoff_base_seconds * 2 ** min(count - 1, 40), self.backoff_most_seconds)


@dataclass(frozen=True, slots=True)
class WorkloadConventions:
    """What the Workloads of jobs contain."""

    label_keys_to_copy: tuple[str, ...] = ()
    metric_values_to_copy: tuple[MetadataKey, ...] = ()
    """Labels and annotations of jobs that metrics read from their Workloads."""
    longest_workload_name: int = MAX_NAME_LENGTH
    """The maximum length of a name."""
    partial_admission: bool = True
    """Podsets state a minimum count, if their job does."""
    topology_rules: TopologyRules | None = DEFAULT_TOPOLOGY_RULES
    """The rules of topology annotations; None if podsets request no topology."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How jobs are started, followed and stopped."""

    marks: InjectedMarks = field(default_factory=InjectedMarks)
    """What a start writes into the pod templates besides the placement."""
    creation_latency: bool = True
    """The time from the creation of a job to that of its Workload is measured."""
    defer_cleanup: bool = True
    """A deleted job keeps its quota while it cleans up, if its kind does that."""
    reclaimable_pods: bool = True
    """Quota of pods that have ended is released while the job runs on."""


@dataclass(frozen=True, slots=True)
class PodSettings:
    """How pods and groups of pods are queued that are jobs of their own."""

    fast_quota_release: bool = False
    """Pods of a group hold no quota from the moment of their deletion."""
    skip_reassignment: bool = True
    """The Workload of a single pod is not requeued after an eviction, because a pod cannot run twice."""
    validate_group_owner: bool = True
    """A group uses a Workload of its name only if the Workload was created for it."""


_COARSE_REASONS: Final[Mapping[str, str]] = {
    Reason.PENDING_EVALUATION: Reason.PENDING,
    Reason.MISCONFIGURED: Reason.INADMISSIBLE,
    Reason.SUSPENDED: Reason.INADMISSIBLE,
    Reason.DEACTIVATED: Reason.INADMISSIBLE,
}
"""Reason by detailed reason, for clusters with detailed reasons disabled by feature gates."""


@dataclass(frozen=True, slots=True)
class PendingSettings:
    """How the reasons of waiting Workloads are reported."""

    admission_gates: bool = True
    """An annotation may gate the admission of a Workload."""
    detailed_reasons: bool = True
    """Reasons are reported in detail; otherwise by three coarse ones."""
    explicit_pending: bool = False
    """A new Workload states that it waits, before its first evaluation."""

    def reported_reason(self, reason: str) -> str:
        """Return the reason to report in QuotaReserved=False instead of a detailed one."""
        return str(reason if self.detailed_reasons else _COARSE_REASONS.get(reason, reason))


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long Workloads are kept; None keeps them without limit."""

    after_finished: Nanoseconds | None = None
    after_deactivated: Nanoseconds | None = None
    """Applies to Workloads that this manager deactivated."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How objects are written."""

    merge_patches: bool = False
    """Admissions are written by merge patches instead of server-side apply."""
    strict_finalizers: bool = True
    """A finalizer is removed only from the version of an object that the decision was about."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings of the controllers, which do not change while the process runs."""

    integrations: tuple[Integration, ...]
    external_frameworks: tuple[OwnerKind, ...] = ()
    """Kinds that a third party manages; they count as ancestors only."""
    namespace_selector: LabelSelector | None = None
    """The namespaces of managed jobs; None selects none."""
    without_queue_name: bool = False
    """Jobs without a queue name are managed too: they wait until they get one."""
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    """Workers by ``Kind.group``; by ``Kind`` for kinds of the core group."""
    elastic_jobs: bool = True
    """Jobs with the annotation for it may grow and shrink while they run."""
    finish_orphaned: bool = True
    """A Workload without an existing owner is finished."""
    names_by_annotation: bool = True
    """Pods and jobs name their Workload and their group in annotations rather than in labels."""
    force_delete_after: Nanoseconds | None = None
    """How long pods may hang on unreachable nodes; None leaves them there."""
    node_failures: NodeFailureSettings | None = field(default_factory=NodeFailureSettings)
    """None where the pods of failed hosts are not placed elsewhere."""
    clean_up_provisioning_requests: bool = True
    """The ProvisioningRequests of an evicted Workload are deleted."""
    pods_ready: PodsReadyPolicy | None = None
    """None where the readiness of pods is not tracked."""
    conventions: WorkloadConventions = field(default_factory=WorkloadConventions)
    jobs: JobSettings = field(default_factory=JobSettings)
    pods: PodSettings = field(default_factory=PodSettings)
    pending: PendingSettings = field(default_factory=PendingSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    writes: WriteSettings = field(default_factory=WriteSettings)

    def workers(self, kind: str, group: str, otherwise: int) -> int:
        """Return how many objects of a kind are reconciled at a time."""
        return self.concurrency.get(f"{kind}.{group}" if group else kind, otherwise)


def settings_of(
    configuration: Configuration, gates: FeatureGates, integrations: Iterable[Integration]
) -> ControllerSettings:
    """Create the settings of the controllers.

    Args:
        configuration: the configuration of the manager.
        gates: its feature gates.
        integrations: those of the configured frameworks.
    """
    retention = configuration.object_retention_policies.workloads
    return ControllerSettings(
        integrations=tuple(integrations),
        external_frameworks=tuple(map(OwnerKind.parse, configuration.integrations.external_frameworks)),
        namespace_selector=select_managed_namespaces(configuration),
        without_queue_name=configuration.manage_jobs_without_queue_name,
        concurrency=configuration.controller.group_kind_concurrency,
        elastic_jobs=gates[Gate.ELASTIC_JOBS],
        finish_orphaned=gates[Gate.FINISH_ORPHANED_WORKLOADS],
        names_by_annotation=gates[Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS],
        force_delete_after=_nanoseconds(configuration.failure_recovery.force_delete_after)
        if gates[Gate.FAILURE_RECOVERY_POLICY]
        else None,
        node_failures=configured_node_failures(gates),
        clean_up_provisioning_requests=gates[Gate.CLEANUP_PROVISIONING_REQUESTS_ON_EVICTION],
        pods_ready=_pods_ready(configured_pods_ready(configuration, gates)),
        conventions=_conventions(configuration, gates),
        jobs=JobSettings(
            marks=InjectedMarks(
                queue_labels=gates[Gate.ASSIGN_QUEUE_LABELS_FOR_PODS],
                workload_annotation=gates[Gate.TOPOLOGY_AWARE_SCHEDULING],
                topology=gates[Gate.TOPOLOGY_AWARE_SCHEDULING],
            ),
            creation_latency=gates[Gate.METRIC_FOR_WORKLOAD_CREATION_LATENCY],
            defer_cleanup=gates[Gate.DEFER_RAY_SERVICE_FINALIZATION],
            reclaimable_pods=gates[Gate.RECLAIMABLE_PODS],
        ),
        pods=PodSettings(
            fast_quota_release=gates[Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION],
            skip_reassignment=gates[Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS],
            validate_group_owner=gates[Gate.POD_INTEGRATION_VALIDATE_GROUP_OWNER],
        ),
        pending=PendingSettings(
            admission_gates=gates[Gate.ADMISSION_GATED_BY],
            detailed_reasons=gates[Gate.UNADMITTED_WORKLOADS_OBSERVABILITY],
            explicit_pending=gates[Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS],
        ),
        retention=RetentionSettings(
            after_finished=_optional(retention.after_finished),
            after_deactivated=_optional(retention.after_deactivated_by_kueue),
        ),
        writes=WriteSettings(
            merge_patches=gates[Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH],
            strict_finalizers=gates[Gate.REMOVE_FINALIZERS_WITH_STRICT_PATCH],
        ),
    )


def _conventions(configuration: Configuration, gates: FeatureGates) -> WorkloadConventions:
    return WorkloadConventions(
        label_keys_to_copy=configuration.integrations.label_keys_to_copy,
        metric_values_to_copy=metadata_copied_to_workloads(configuration.metrics.custom_labels)
        if gates[Gate.CUSTOM_METRIC_LABELS]
        else (),
        longest_workload_name=MAX_LABEL_LENGTH if gates[Gate.SHORT_WORKLOAD_NAMES] else MAX_NAME_LENGTH,
        partial_admission=gates[Gate.PARTIAL_ADMISSION],
        topology_rules=configured_topology_rules(gates),
    )


def _pods_ready(wait: sections.WaitForPodsReady | None) -> PodsReadyPolicy | None:
    if wait is None:
        return None
    requeuing = wait.requeuing_strategy
    return PodsReadyPolicy(
        timeout=_nanoseconds(wait.timeout),
        recovery_timeout=_nanoseconds(wait.effective_recovery_timeout),
        backoff_limit=requeuing.backoff_limit_count,
        backoff_base_seconds=requeuing.backoff_base_seconds,
        backoff_most_seconds=requeuing.backoff_max_seconds,
    )


def _nanoseconds(duration: timedelta) -> Nanoseconds:
    return duration // timedelta(microseconds=1) * 1000


def _optional(duration: timedelta | None) -> Nanoseconds | None:
    return None if duration is None else _nanoseconds(duration)
