"""The sections of the configuration file about queueing: kinds of jobs, order, resources, retention.

Their docstrings are the reference of the file.
"""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, field_validator, model_validator

from admitq_api.configuration.custom_kinds import CustomKind
from admitq_api.configuration.fields import (
    Count,
    LabelKey,
    LabelValue,
    NonNegativeDuration,
    PositiveDuration,
    QuantityText,
    Section,
    Subdomain,
    check_kind_version_group,
    reject_duplicates,
)
from admitq_api.entry_points import list_installed_kinds
from admitq_api.labels import names_for

FRAMEWORKS = (
    "batch/job",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/jaxjob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
"""The job kinds that `integrations.frameworks` may name, beside those of installed packages."""

FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"

INITIAL_SHARE: Final = "LessThanInitialShare"

PREEMPTION_STRATEGIES: Final = (FINAL_SHARE, INITIAL_SHARE)
"""The rules by which preemption is fair, in the order in which they are tried."""


class RequeuingStrategy(Section):
    """When a workload whose pods did not become ready comes back."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Its place in the queue: by when it was evicted, or by when it was created."""

    backoff_limit_count: Count | None = None
    """How often it comes back before it is deactivated; absent: without end."""

    backoff_base_seconds: Count = 60
    """How long it waits the first time; each further time twice as long."""

    backoff_max_seconds: Count = 3600
    """The longest that it waits."""


class WaitForPodsReady(Section):
    """What happens to admitted workloads whose pods do not become ready."""

    timeout: NonNegativeDuration = timedelta(minutes=30)
    """How long pods may take to become ready after admission; then the workload is evicted."""

    recovery_timeout: NonNegativeDuration | None = None
    """How long pods may take to be ready again after one failed; absent: `timeout`."""

    block_admission: bool = False
    """Whether nothing is admitted while an admitted workload's pods are not ready."""

    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()
    """When an evicted workload comes back."""

    @property
    def effective_recovery_timeout(self) -> timedelta:
        """The recovery timeout that applies."""
        return self.timeout if self.recovery_timeout is None else self.recovery_timeout


class Integrations(Section):
    """Which kinds of jobs are queued."""

    frameworks: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ("batch/job",)
    """The kinds, by framework name; one that is not installed is managed from when it is."""

    external_frameworks: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """Kinds that another controller queues here, as `Kind.version.group`."""

    label_keys_to_copy: Annotated[tuple[LabelKey, ...], AfterValidator(reject_duplicates)] = ()
    """Labels that are copied from jobs to their Workloads."""

    custom: tuple[CustomKind, ...] = ()
    """Kinds that this file alone tells of. They are switched on by being listed."""

    @field_validator("frameworks")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = (*FRAMEWORKS, *(entry.name for entry in list_installed_kinds()))
        for name in value:
            if name not in known:
                raise ValueError(f"{name!r} is not supported: use one of {', '.join(known)}")
        return value

    @field_validator("external_frameworks")
    @classmethod
    def _kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            check_kind_version_group(name)
        return value


class IncrementalDispatcher(Section):
    """The dispatcher that offers a workload to a few more clusters each round."""

    step_size: Annotated[int, Field(ge=1)] = 3
    """How many clusters are added each round."""


class ExternalFramework(Section):
    """A kind of job of another controller."""

    name: str
    """The kind, as `Kind.version.group`."""

    @field_validator("name")
    @classmethod
    def _kind(cls, value: str) -> str:
        return check_kind_version_group(value)


class AccessProvider(Section):
    """A way to get credentials for a cluster profile."""

    name: Annotated[str, Field(min_length=1)]
    """The name by which cluster profiles ask for it."""

    exec_config: dict[str, Any] | None = None
    """The exec plugin, as in a kubeconfig."""


class ClusterProfiles(Section):
    """Worker clusters described by cluster profiles."""

    access_providers: Annotated[
        tuple[AccessProvider, ...],
        Field(validation_alias=AliasChoices("accessProviders", "credentialsProviders")),
    ] = ()
    """How to get credentials. `credentialsProviders` is another name for it."""


class MultiKueue(Section):
    """Dispatching workloads to other clusters."""

    gc_interval: NonNegativeDuration = timedelta(minutes=1)
    """How often left-over remote objects are looked for; 0: never."""

    origin: LabelValue = "multikueue"
    """How this cluster marks the objects that it makes elsewhere."""

    worker_lost_timeout: NonNegativeDuration = timedelta(minutes=15)
    """How long a workload waits for a worker cluster that cannot be reached."""

    dispatcher_name: str = names_for().dispatcher_all_at_once
    """Which dispatcher nominates clusters."""

    incremental_dispatcher_config: IncrementalDispatcher | None = None
    """Settings of the incremental dispatcher."""

    external_frameworks: tuple[ExternalFramework, ...] = ()
    """Kinds of jobs that are dispatched without an adapter of their own."""

    cluster_profile: ClusterProfiles = ClusterProfiles()
    """Worker clusters described by cluster profiles."""

    @field_validator("external_frameworks")
    @classmethod
    def _once(cls, value: tuple[ExternalFramework, ...]) -> tuple[ExternalFramework, ...]:
        reject_duplicates(tuple(framework.name for framework in value))
        return value


class FairSharingSection(Section):
    """Order and preemption by how much of a cohort each queue borrows."""

    preemption_strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...]
    """Which preemptions are fair, tried in order."""

    @field_validator("preemption_strategies")
    @classmethod
    def _in_order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in ((FINAL_SHARE,), (INITIAL_SHARE,), PREEMPTION_STRATEGIES):
            raise ValueError(
                f"use [{FINAL_SHARE}], [{INITIAL_SHARE}] or [{', '.join(PREEMPTION_STRATEGIES)}]"
            )
        return value


class AdmissionFairSharingSection(Section):
    """Order by how much each LocalQueue used in the past."""

    usage_half_life_time: NonNegativeDuration | None = None
    """After how long a use counts half; 0: use does not count; absent: 24h, and the log says so at start."""

    usage_sampling_interval: PositiveDuration = timedelta(minutes=5)
    """How often use is sampled."""

    resource_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """How much each resource counts; one that is not listed counts 1."""


class TransformationSection(Section):
    """A rule that counts one resource as others."""

    input: LabelKey
    """The resource that pods ask for."""

    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether the input itself still counts."""

    multiply_by: LabelKey | None = None
    """A resource whose quantity in the same pod set multiplies the result."""

    outputs: dict[LabelKey, QuantityText] = Field(default_factory=dict)
    """What one unit of the input counts as."""


class DeviceSelector(Section):
    """Which devices are meant."""

    cel: dict[str, str]
    """An expression over a device: {expression: …}."""


class DeviceCounter(Section):
    """A counter that devices draw from."""

    name: Annotated[str, Field(min_length=1)]
    """The name of the counter."""

    driver: Subdomain
    """The driver of the devices."""

    device_selector: DeviceSelector | None = None
    """Which devices are meant; absent: all."""


class DeviceSource(Section):
    """What of a device counts: exactly one of a counter and a capacity."""

    counter: DeviceCounter | None = None
    """A counter that devices draw from."""

    capacity: DeviceCounter | None = None
    """A capacity of devices."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.counter is None) == (self.capacity is None):
            raise ValueError("set exactly one of counter and capacity")
        return self


class DeviceClassMapping(Section):
    """Device classes that count as one resource."""

    name: LabelKey
    """The resource."""

    device_class_names: Annotated[
        tuple[Subdomain, ...], Field(min_length=1, max_length=8), AfterValidator(reject_duplicates)
    ]
    """The device classes."""

    sources: Annotated[tuple[DeviceSource, ...], Field(max_length=8)] = ()
    """What of the devices counts; empty: their number."""


class ResourcesSection(Section):
    """How the requests of pods become the amounts that quota is checked for."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether a resource that the ClusterQueue does not cover blocks a workload, or is not counted."""

    exclude_resource_prefixes: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(reject_duplicates)
    ] = ()
    """Resources whose name starts so are not counted."""

    transformations: tuple[TransformationSection, ...] = ()
    """Rules that count one resource as others."""

    device_class_mappings: Annotated[tuple[DeviceClassMapping, ...], Field(max_length=16)] = ()
    """Device classes that count as resources."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.exclude_resource_prefixes and self.quota_check_strategy == "IgnoreUndeclared":
            raise ValueError(
                "excludeResourcePrefixes has no use with quotaCheckStrategy IgnoreUndeclared: remove one"
            )
        for field, values in (
            ("transformations", tuple(rule.input for rule in self.transformations)),
            ("deviceClassMappings", tuple(mapping.name for mapping in self.device_class_mappings)),
            (
                "deviceClassMappings",
                tuple(n for m in self.device_class_mappings for n in m.device_class_names),
            ),
        ):
            try:
                reject_duplicates(values)
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from None
        return self


class WorkloadRetention(Section):
    """When Workloads that are done are deleted."""

    after_finished: NonNegativeDuration | None = None
    """How long after a Workload finished it is deleted; absent: never."""

    after_deactivated_by_kueue: NonNegativeDuration | None = None
    """How long after a Workload was deactivated its job is deleted; absent: never. What serves, a StatefulSet
    or a LeaderWorkerSet, is never deleted."""


class RetentionPolicies(Section):
    """When objects that are done are deleted."""

    workloads: WorkloadRetention = WorkloadRetention()
    """Workloads and their jobs."""


class FailureRecovery(Section):
    """What becomes of pods that cannot end because their node cannot be reached."""

    force_delete_after: NonNegativeDuration = timedelta(seconds=60)
    """How long after its grace period such a pod, if it says that it may, is deleted without its node."""
