"""What controllers take from the configuration and the feature gates: read once, at the start."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from admitq.core.model import LabelSelector
from admitq.core_settings import pods_ready
from admitq.custom_labels import Location, copied_to_workloads
from admitq.integrations.base import Integration, OwnerKind
from admitq.integrations.names import LONGEST, LONGEST_LABEL
from admitq.podsets import Marks
from admitq.translate.selectors import select_managed_namespaces
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
        """How long the workload waits before its ``count``-th return, which is at least the first."""
        # Beyond 2^40 every base has passed the longest wait; the exponent itself must not grow for ever.
        return min(self.backoff_base_seconds * 2 ** min(count - 1, 40), self.backoff_most_seconds)


@dataclass(frozen=True, slots=True)
class Settings:
    """The frozen choices of the controllers."""

    integrations: tuple[Integration, ...]
    external_frameworks: tuple[OwnerKind, ...] = ()
    """Kinds that a third party manages: they count as ancestors only."""
    namespace_selector: LabelSelector | None = None
    """The namespaces whose jobs are managed; None selects none."""
    without_queue_name: bool = False
    """Jobs without a queue name are managed too: they wait until they get one."""
    label_keys_to_copy: tuple[str, ...] = ()
    metric_values_to_copy: tuple[Location, ...] = ()
    """Labels and annotations of jobs that metrics take from their Workloads."""
    longest_workload_name: int = LONGEST
    marks: Marks = field(default_factory=Marks)
    pods_ready: PodsReadyPolicy | None = None
    """Absent where readiness of pods is not looked at."""
    retention_of_finished: Nanoseconds | None = None
    retention_of_deactivated: Nanoseconds | None = None
    force_delete_after: Nanoseconds | None = None
    """How long pods may hang on nodes that cannot be reached; absent where they are left there."""
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    """Workers by ``Kind.group``; by ``Kind`` for those of the core group."""

    admission_gated_by: bool = True
    cleans_up_provisioning_requests: bool = True
    """What was asked of an autoscaler for an evicted workload is deleted."""
    creation_latency: bool = True
    defer_cleanup: bool = True
    """A job that is deleted keeps its quota while it cleans up, where its kind does."""
    fast_quota_release: bool = False
    """Pods of a group that are being deleted hold no quota any more."""
    elastic_jobs: bool = True
    """Jobs that say so may grow and shrink while they run."""
    explicit_pending: bool = False
    """Workloads state that they wait from the first moment on."""
    finish_orphaned: bool = True
    merge_patches: bool = False
    """The admission is written by merge patches instead of server-side apply."""
    names_by_annotation: bool = True
    """Which Workload and which group something is of is told by annotations rather than by labels."""
    partial_admission: bool = True
    reclaimable_pods: bool = True
    skips_reassignment_of_pods: bool = True
    """The Workload of a pod alone is not queued again after an eviction: a pod cannot run twice."""
    strict_finalizers: bool = True
    """A finalizer is taken only off the version of an object that was looked at."""
    validate_group_owner: bool = True
    """A Workload that has a group's name must have been made for it."""
    topology_requests: bool = True
    """Podsets of Workloads say how their pods are numbered."""
    tell_reasons: bool = True
    """Why a workload waits is told by reasons of its own; otherwise by the three old ones."""

    def workers(self, kind: str, group: str, otherwise: int) -> int:
        """How many objects of a kind are worked on at a time."""
        return self.concurrency.get(f"{kind}.{group}" if group else kind, otherwise)


def settings_of(
    configuration: Configuration, gates: FeatureGates, integrations: Iterable[Integration]
) -> Settings:
    """Take from configuration and gates what the controllers need.

    ``integrations`` are those of the configured frameworks.
    """
    retention = configuration.object_retention_policies.workloads
    return Settings(
        integrations=tuple(integrations),
        external_frameworks=tuple(map(OwnerKind.named, configuration.integrations.external_frameworks)),
        namespace_selector=select_managed_namespaces(configuration),
        without_queue_name=configuration.manage_jobs_without_queue_name,
        label_keys_to_copy=configuration.integrations.label_keys_to_copy,
        metric_values_to_copy=copied_to_workloads(configuration.metrics.custom_labels)
        if gates[Gate.CUSTOM_METRIC_LABELS]
        else (),
        longest_workload_name=LONGEST_LABEL if gates[Gate.SHORT_WORKLOAD_NAMES] else LONGEST,
        marks=Marks(
            queue_labels=gates[Gate.ASSIGN_QUEUE_LABELS_FOR_PODS],
            workload_annotation=gates[Gate.TOPOLOGY_AWARE_SCHEDULING],
        ),
        pods_ready=_pods_ready(pods_ready(configuration, gates)),
        retention_of_finished=_optional(retention.after_finished),
        retention_of_deactivated=_optional(retention.after_deactivated_by_kueue),
        force_delete_after=_nanoseconds(configuration.failure_recovery.force_delete_after)
        if gates[Gate.FAILURE_RECOVERY_POLICY]
        else None,
        concurrency=configuration.controller.group_kind_concurrency,
        admission_gated_by=gates[Gate.ADMISSION_GATED_BY],
        cleans_up_provisioning_requests=gates[Gate.CLEANUP_PROVISIONING_REQUESTS_ON_EVICTION],
        creation_latency=gates[Gate.METRIC_FOR_WORKLOAD_CREATION_LATENCY],
        defer_cleanup=gates[Gate.DEFER_RAY_SERVICE_FINALIZATION],
        elastic_jobs=gates[Gate.ELASTIC_JOBS],
        explicit_pending=gates[Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS],
        fast_quota_release=gates[Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION],
        finish_orphaned=gates[Gate.FINISH_ORPHANED_WORKLOADS],
        merge_patches=gates[Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH],
        names_by_annotation=gates[Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS],
        partial_admission=gates[Gate.PARTIAL_ADMISSION],
        reclaimable_pods=gates[Gate.RECLAIMABLE_PODS],
        skips_reassignment_of_pods=gates[Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS],
        strict_finalizers=gates[Gate.REMOVE_FINALIZERS_WITH_STRICT_PATCH],
        validate_group_owner=gates[Gate.POD_INTEGRATION_VALIDATE_GROUP_OWNER],
        topology_requests=gates[Gate.TOPOLOGY_AWARE_SCHEDULING],
        tell_reasons=gates[Gate.UNADMITTED_WORKLOADS_OBSERVABILITY],
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
