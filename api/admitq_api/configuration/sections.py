"""The sections of the configuration file about queueing: job kinds, order, resources, retention.

Their docstrings are the descriptions on the reference page of the file.
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
"""The built-in job kinds that `integrations.frameworks` can name. Installed packages can add others."""

FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"

INITIAL_SHARE: Final = "LessThanInitialShare"

PREEMPTION_STRATEGIES: Final = (FINAL_SHARE, INITIAL_SHARE)
"""The strategies of fair preemption, in the order in which they are tried."""


class RequeuingStrategy(Section):
    """When a workload with pods that did not become ready is requeued."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Which time determines its position in the queue: that of its eviction or that of its creation."""

    backoff_limit_count: Count | None = None
    """How often it is requeued before it is deactivated. By default there is no limit."""

    backoff_base_seconds: Count = 60
    """The first delay before it is requeued, in seconds. The delay doubles each time."""

    backoff_max_seconds: Count = 3600
    """The maximum delay before it is requeued, in seconds."""


class WaitForPodsReady(Section):
    """How admitted workloads with pods that do not become ready are handled."""

    timeout: NonNegativeDuration = timedelta(minutes=30)
    """The time within which pods must become ready after admission. After that the workload is evicted."""

    recovery_timeout: NonNegativeDuration | None = None
    """The time within which pods must be ready again after a pod failed. The default is `timeout`."""

    block_admission: bool = False
    """Whether no workload is admitted while pods of an admitted workload are not ready."""

    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()
    """When an evicted workload is requeued."""

    @property
    def effective_recovery_timeout(self) -> timedelta:
        """The recovery timeout that is in effect."""
        return self.timeout if self.recovery_timeout is None else self.recovery_timeout


class Integrations(Section):
    """The job kinds that are queued."""

    frameworks: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ("batch/job",)
    """The names of the enabled frameworks. If the CRDs of a kind are installed later, its jobs are managed
    from then on."""

    external_frameworks: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """Kinds that another controller queues with admitq, as `Kind.version.group`."""

    label_keys_to_copy: Annotated[tuple[LabelKey, ...], AfterValidator(reject_duplicates)] = ()
    """Labels that are copied from jobs to their Workloads."""

    custom: tuple[CustomKind, ...] = ()
    """Job kinds that are defined in this file. All listed kinds are enabled."""

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
    """The dispatcher that nominates a few more clusters for a workload in each round."""

    step_size: Annotated[int, Field(ge=1)] = 3
    """The number of clusters that are added in each round."""


class ExternalFramework(Section):
    """A job kind of another controller."""

    name: str
    """The kind, as `Kind.version.group`."""

    @field_validator("name")
    @classmethod
    def _kind(cls, value: str) -> str:
        return check_kind_version_group(value)


class AccessProvider(Section):
    """A source of credentials for cluster profiles."""

    name: Annotated[str, Field(min_length=1)]
    """The name that cluster profiles refer to."""

    exec_config: dict[str, Any] | None = None
    """The configuration of the exec plugin, as in a kubeconfig."""


class ClusterProfiles(Section):
    """Worker clusters that are described by cluster profiles."""

    access_providers: Annotated[
        tuple[AccessProvider, ...],
        Field(validation_alias=AliasChoices("accessProviders", "credentialsProviders")),
    ] = ()
    """The sources of credentials. The field can also be written as `credentialsProviders`."""


class MultiKueue(Section):
    """Dispatching workloads to other clusters."""

    gc_interval: NonNegativeDuration = timedelta(minutes=1)
    """The interval of the garbage collection of remote objects. 0 disables it."""

    origin: LabelValue = "multikueue"
    """The value of the label by which this cluster marks the objects that it creates in worker clusters."""

    worker_lost_timeout: NonNegativeDuration = timedelta(minutes=15)
    """How long a workload stays assigned to a worker cluster that cannot be reached."""

    dispatcher_name: str = names_for().dispatcher_all_at_once
    """The dispatcher that nominates worker clusters."""

    incremental_dispatcher_config: IncrementalDispatcher | None = None
    """Settings of the incremental dispatcher."""

    external_frameworks: tuple[ExternalFramework, ...] = ()
    """Job kinds that are dispatched without a specific adapter."""

    cluster_profile: ClusterProfiles = ClusterProfiles()
    """Worker clusters that are described by cluster profiles."""

    @field_validator("external_frameworks")
    @classmethod
    def _reject_duplicates(cls, value: tuple[ExternalFramework, ...]) -> tuple[ExternalFramework, ...]:
        reject_duplicates(tuple(framework.name for framework in value))
        return value


class FairSharingSection(Section):
    """Fair sharing: queues that borrow less of their cohort's quota come first."""

    preemption_strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...]
    """The strategies of fair preemption, in the order in which they are tried."""

    @field_validator("preemption_strategies")
    @classmethod
    def _in_order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in ((FINAL_SHARE,), (INITIAL_SHARE,), PREEMPTION_STRATEGIES):
            raise ValueError(
                f"use [{FINAL_SHARE}], [{INITIAL_SHARE}] or [{', '.join(PREEMPTION_STRATEGIES)}]"
            )
        return value


class AdmissionFairSharingSection(Section):
    """Admission fair sharing: LocalQueues with less past usage come first."""

    usage_half_life_time: NonNegativeDuration | None = None
    """The time after which past usage counts half. With 0, past usage does not count. If absent, 24h is used
    and the log reports it at start."""

    usage_sampling_interval: PositiveDuration = timedelta(minutes=5)
    """The interval at which usage is sampled."""

    resource_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """The weight of each resource. Resources that are not listed have the weight 1."""


class TransformationSection(Section):
    """A rule that converts the requests of one resource to requests of others."""

    input: LabelKey
    """The resource that pods request."""

    strategy: Literal["Retain", "Replace"] = "Retain"
    """Whether the input resource is retained or replaced."""

    multiply_by: LabelKey | None = None
    """A resource of the same pod set. The result is multiplied by its quantity."""

    outputs: dict[LabelKey, QuantityText] = Field(default_factory=dict)
    """The quantities of other resources that one unit of the input is converted to."""


class DeviceSelector(Section):
    """A selection of devices."""

    cel: dict[str, str]
    """A CEL expression about a device: {expression: …}."""


class DeviceCounter(Section):
    """A counter that devices consume."""

    name: Annotated[str, Field(min_length=1)]
    """The name of the counter."""

    driver: Subdomain
    """The driver of the devices."""

    device_selector: DeviceSelector | None = None
    """The devices that count. By default all devices count."""


class DeviceSource(Section):
    """The property of devices that counts: exactly one of a counter and a capacity."""

    counter: DeviceCounter | None = None
    """A counter that devices consume."""

    capacity: DeviceCounter | None = None
    """A capacity of devices."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.counter is None) == (self.capacity is None):
            raise ValueError("set exactly one of counter and capacity")
        return self


class DeviceClassMapping(Section):
    """Device classes that are counted as one resource."""

    name: LabelKey
    """The name of the resource."""

    device_class_names: Annotated[
        tuple[Subdomain, ...], Field(min_length=1, max_length=8), AfterValidator(reject_duplicates)
    ]
    """The names of the device classes."""

    sources: Annotated[tuple[DeviceSource, ...], Field(max_length=8)] = ()
    """The properties of the devices that count. If empty, the number of devices counts."""


class ResourcesSection(Section):
    """How the requests of pods are converted to the amounts that are charged to quota."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether requests of a resource that the ClusterQueue does not cover block a workload or are ignored."""

    exclude_resource_prefixes: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(reject_duplicates)
    ] = ()
    """Prefixes of resource names. Requests of such resources are ignored."""

    transformations: tuple[TransformationSection, ...] = ()
    """Rules that convert the requests of one resource to requests of others."""

    device_class_mappings: Annotated[tuple[DeviceClassMapping, ...], Field(max_length=16)] = ()
    """Device classes that are counted as resources."""

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
    """When Workloads that are finished or deactivated are deleted."""

    after_finished: NonNegativeDuration | None = None
    """The time after which a finished Workload is deleted. By default it is never deleted."""

    after_deactivated_by_kueue: NonNegativeDuration | None = None
    """The time after which the job of a deactivated Workload is deleted. By default it is never deleted.
    StatefulSets and LeaderWorkerSets are never deleted."""


class RetentionPolicies(Section):
    """When objects that are no longer needed are deleted."""

    workloads: WorkloadRetention = WorkloadRetention()
    """Workloads and their jobs."""


class FailureRecovery(Section):
    """How pods are handled that cannot terminate because their node is unreachable."""

    force_delete_after: NonNegativeDuration = timedelta(seconds=60)
    """The time after the grace period at which such a pod is force-deleted, if its annotation allows it."""
