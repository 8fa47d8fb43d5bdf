"""Feature gates: switches for behaviour that is new, optional or on its way out.

They are read once, at start, into a frozen value. A gate whose feature is not built yet is
accepted and has no effect, which is told; the reference of the configuration says which ones have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Self


class Gate(StrEnum):
    """The names of all gates."""

    ADMISSION_FAIR_SHARING = "AdmissionFairSharing"
    ADMISSION_GATED_BY = "AdmissionGatedBy"
    ASSIGN_QUEUE_LABELS_FOR_PODS = "AssignQueueLabelsForPods"
    CLEANUP_PROVISIONING_REQUESTS_ON_EVICTION = "CleanupProvisioningRequestsOnEviction"
    CONCURRENT_ADMISSION = "ConcurrentAdmission"
    CUSTOM_METRIC_LABELS = "CustomMetricLabels"
    DEFER_RAY_SERVICE_FINALIZATION = "DeferRayServiceFinalizationForRedisCleanup"
    DISABLE_WAIT_FOR_PODS_READY = "DisableWaitForPodsReady"
    DRA_INTEGRATION = "KueueDRAIntegration"
    DRA_INTEGRATION_CONSUMABLE_CAPACITY = "KueueDRAIntegrationConsumableCapacity"
    DRA_INTEGRATION_EXTENDED_RESOURCE = "KueueDRAIntegrationExtendedResource"
    DRA_INTEGRATION_PARTITIONABLE_DEVICES = "KueueDRAIntegrationPartitionableDevices"
    DRA_REJECT_WORKLOADS_WHEN_DISABLED = "KueueDRARejectWorkloadsWhenDRADisabled"
    ELASTIC_JOBS = "ElasticJobsViaWorkloadSlices"
    ELASTIC_JOBS_WITH_TAS = "ElasticJobsViaWorkloadSlicesWithTAS"
    FAILURE_RECOVERY_POLICY = "FailureRecoveryPolicy"
    FAIR_SHARING_PREEMPT_WITHIN_NOMINAL = "FairSharingPreemptWithinNominal"
    FAIR_SHARING_PRIORITIZE_NON_BORROWING = "FairSharingPrioritizeNonBorrowing"
    FAST_QUOTA_RELEASE_IN_POD_INTEGRATION = "FastQuotaReleaseInPodIntegration"
    FINISH_ORPHANED_WORKLOADS = "FinishOrphanedWorkloads"
    FLAVOR_FUNGIBILITY = "FlavorFungibility"
    FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS = "FlavorFungibilityPreserveScanProgress"
    LOCAL_QUEUE_METRICS = "LocalQueueMetrics"
    LWS_IMMUTABLE_GROUP_SIZE = "LWSImmutableGroupSize"
    MANAGED_JOBS_NAMESPACE_SELECTOR_ALWAYS_RESPECTED = "ManagedJobsNamespaceSelectorAlwaysRespected"
    METRIC_FOR_WORKLOAD_CREATION_LATENCY = "MetricForWorkloadCreationLatency"
    METRICS_FOR_COHORTS = "MetricsForCohorts"
    MULTIKUEUE = "MultiKueue"
    MULTIKUEUE_ADAPTERS_FOR_CUSTOM_JOBS = "MultiKueueAdaptersForCustomJobs"
    MULTIKUEUE_CLUSTER_PROFILE = "MultiKueueClusterProfile"
    MULTIKUEUE_INCREMENTAL_DISPATCHER_CONFIG = "MultiKueueIncrementalDispatcherConfig"
    MULTIKUEUE_INCREMENTAL_DISPATCHER_ORDER = "MultiKueueIncrementalDispatcherRespectConfigOrder"
    MULTIKUEUE_KUBECONFIG_PATH_VALIDATION = "MultiKueueKubeConfigPathValidation"
    MULTIKUEUE_MANAGER_QUOTA_AUTOMATION = "MultiKueueManagerQuotaAutomation"
    MULTIKUEUE_ORCHESTRATED_PREEMPTION = "MultiKueueOrchestratedPreemption"
    MULTIKUEUE_REMOTE_SPEC_SYNC = "MultiKueueRemoteSpecSync"
    PARTIAL_ADMISSION = "PartialAdmission"
    POD_INTEGRATION_VALIDATE_GROUP_OWNER = "PodIntegrationValidateGroupOwner"
    PRIORITIZE_PREEMPTOR_WORKLOADS = "PrioritizePreemptorWorkloads"
    PRIORITY_BOOST = "PriorityBoost"
    PRIORITY_SORTING_WITHIN_COHORT = "PrioritySortingWithinCohort"
    QUOTA_CHECK_STRATEGY = "QuotaCheckStrategy"
    RECLAIMABLE_PODS = "ReclaimablePods"
    RECOMPUTE_ASSIGNMENT_UPON_TARGETS_OVERLAP = "RecomputeAssignmentUponPreemptionTargetsOverlap"
    REJECT_UPDATES_WITH_INVALID_ON_FLAVORS = "RejectUpdatesToCQWithInvalidOnFlavors"
    REMOVE_FINALIZERS_WITH_STRICT_PATCH = "RemoveFinalizersWithStrictPatch"
    SCHEDULER_LIBRARY_INTEGRATION = "SchedulerLibraryIntegration"
    SCHEDULING_EQUIVALENCE_HASHING = "SchedulingEquivalenceHashing"
    SHORT_WORKLOAD_NAMES = "ShortWorkloadNames"
    SKIP_ANCESTOR_CHECK_FOR_DELETED_WORKLOADS = "SkipAncestorCheckForDeletedWorkloads"
    SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS = "SkipReassignmentForPodOwnedWorkloads"
    SPARK_APPLICATION_INTEGRATION = "SparkApplicationIntegration"
    TAS_ASSIGNMENTS_ENCODING_BY_HOSTNAME_PREFIX = "TASAssignmentsEncodingByHostnamePrefix"
    TAS_BALANCED_PLACEMENT = "TASBalancedPlacement"
    TAS_CACHE_NODE_MATCH_RESULTS = "TASCacheNodeMatchResults"
    TAS_CACHE_TOPOLOGY_TREE = "TASCacheTopologyTree"
    TAS_CACHING_REMAINING_RESOURCES = "TASCachingRemainingResources"
    TAS_FAILED_NODE_REPLACEMENT = "TASFailedNodeReplacement"
    TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST = "TASFailedNodeReplacementFailFast"
    TAS_HANDLE_OVERLAPPING_FLAVORS = "TASHandleOverlappingFlavors"
    TAS_MULTI_LAYER_TOPOLOGY = "TASMultiLayerTopology"
    TAS_PROFILE_MIXED = "TASProfileMixed"
    TAS_RECOMPUTE_ASSIGNMENT_WITHIN_CYCLE = "TASRecomputeAssignmentWithinSchedulingCycle"
    TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME = "TASReplaceNodeDueToNotReadyOverFixedTime"
    TAS_REPLACE_NODE_ON_NODE_TAINTS = "TASReplaceNodeOnNodeTaints"
    TAS_REPLACE_NODE_ON_POD_TERMINATION = "TASReplaceNodeOnPodTermination"
    TAS_RESPECT_NODE_AFFINITY_PREFERRED = "TASRespectNodeAffinityPreferred"
    TAS_VALIDATE_WORKLOAD_SLICE_SIZE = "TASValidateWorkloadSliceSize"
    TLS_OPTIONS = "TLSOptions"
    TOPOLOGY_AWARE_SCHEDULING = "TopologyAwareScheduling"
    UNADMITTED_WORKLOADS_EXPLICIT_STATUS = "UnadmittedWorkloadsExplicitStatus"
    UNADMITTED_WORKLOADS_OBSERVABILITY = "UnadmittedWorkloadsObservability"
    VALIDATE_RAY_AND_SPARK_JOB_UPDATES = "ValidateRayAndSparkJobUpdates"
    VECTORIZED_RESOURCE_REQUESTS = "VectorizedResourceRequests"
    VISIBILITY_ON_DEMAND = "VisibilityOnDemand"
    WORKLOAD_IDENTIFIER_ANNOTATIONS = "WorkloadIdentifierAnnotations"
    WORKLOAD_PRIORITY_CLASS_DEFAULTING = "WorkloadPriorityClassDefaulting"
    WORKLOAD_REQUEST_USE_MERGE_PATCH = "WorkloadRequestUseMergePatch"
    WORKLOAD_VALIDATE_RESOURCES_NON_NEGATIVE = "WorkloadValidateResourcesAreNonNegative"
    WORKLOAD_VALIDATION_FOR_POD_SET_METADATA = "WorkloadValidationForPodSetMetadata"


OFF_BY_DEFAULT = frozenset(
    {
        Gate.CONCURRENT_ADMISSION,
        Gate.CUSTOM_METRIC_LABELS,
        Gate.DISABLE_WAIT_FOR_PODS_READY,
        Gate.DRA_INTEGRATION_CONSUMABLE_CAPACITY,
        Gate.ELASTIC_JOBS_WITH_TAS,
        Gate.FAILURE_RECOVERY_POLICY,
        Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION,
        Gate.MULTIKUEUE_CLUSTER_PROFILE,
        Gate.MULTIKUEUE_MANAGER_QUOTA_AUTOMATION,
        Gate.MULTIKUEUE_ORCHESTRATED_PREEMPTION,
        Gate.PRIORITIZE_PREEMPTOR_WORKLOADS,
        Gate.PRIORITY_BOOST,
        Gate.REJECT_UPDATES_WITH_INVALID_ON_FLAVORS,
        Gate.SCHEDULER_LIBRARY_INTEGRATION,
        Gate.SHORT_WORKLOAD_NAMES,
        Gate.SPARK_APPLICATION_INTEGRATION,
        Gate.TAS_BALANCED_PLACEMENT,
        Gate.TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME,
        Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED,
        Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS,
        Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH,
    }
)
"""Gates that are off unless switched on; all others are on unless switched off."""

LOCKED = frozenset({Gate.MANAGED_JOBS_NAMESPACE_SELECTOR_ALWAYS_RESPECTED, Gate.TLS_OPTIONS})
"""Gates of features that have become permanent: they can no longer be switched."""

REQUIRES: Mapping[Gate, tuple[Gate, ...]] = {
    Gate.TAS_FAILED_NODE_REPLACEMENT: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST: (Gate.TAS_FAILED_NODE_REPLACEMENT,),
    Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION: (Gate.TAS_FAILED_NODE_REPLACEMENT,),
    Gate.TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME: (Gate.TAS_FAILED_NODE_REPLACEMENT,),
    Gate.TAS_BALANCED_PLACEMENT: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_MULTI_LAYER_TOPOLOGY: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_HANDLE_OVERLAPPING_FLAVORS: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_PROFILE_MIXED: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_CYCLE: (Gate.TOPOLOGY_AWARE_SCHEDULING,),
    Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS: (Gate.UNADMITTED_WORKLOADS_OBSERVABILITY,),
    Gate.ELASTIC_JOBS_WITH_TAS: (Gate.ELASTIC_JOBS, Gate.TOPOLOGY_AWARE_SCHEDULING),
    Gate.DRA_INTEGRATION_EXTENDED_RESOURCE: (Gate.DRA_INTEGRATION,),
    Gate.DRA_INTEGRATION_PARTITIONABLE_DEVICES: (Gate.DRA_INTEGRATION,),
    Gate.DRA_INTEGRATION_CONSUMABLE_CAPACITY: (Gate.DRA_INTEGRATION,),
    Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS: (Gate.FLAVOR_FUNGIBILITY,),
}
"""Gates that make sense only while others are on."""

IN_EFFECT = frozenset(
    {
        Gate.ADMISSION_FAIR_SHARING,
        Gate.ADMISSION_GATED_BY,
        Gate.ASSIGN_QUEUE_LABELS_FOR_PODS,
        Gate.CLEANUP_PROVISIONING_REQUESTS_ON_EVICTION,
        Gate.CONCURRENT_ADMISSION,
        Gate.CUSTOM_METRIC_LABELS,
        Gate.DEFER_RAY_SERVICE_FINALIZATION,
        Gate.DISABLE_WAIT_FOR_PODS_READY,
        Gate.ELASTIC_JOBS,
        Gate.FAILURE_RECOVERY_POLICY,
        Gate.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL,
        Gate.FAIR_SHARING_PRIORITIZE_NON_BORROWING,
        Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION,
        Gate.FINISH_ORPHANED_WORKLOADS,
        Gate.FLAVOR_FUNGIBILITY,
        Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS,
        Gate.LOCAL_QUEUE_METRICS,
        Gate.LWS_IMMUTABLE_GROUP_SIZE,
        Gate.METRICS_FOR_COHORTS,
        Gate.METRIC_FOR_WORKLOAD_CREATION_LATENCY,
        Gate.MULTIKUEUE,
        Gate.PARTIAL_ADMISSION,
        Gate.POD_INTEGRATION_VALIDATE_GROUP_OWNER,
        Gate.PRIORITIZE_PREEMPTOR_WORKLOADS,
        Gate.PRIORITY_BOOST,
        Gate.PRIORITY_SORTING_WITHIN_COHORT,
        Gate.QUOTA_CHECK_STRATEGY,
        Gate.RECLAIMABLE_PODS,
        Gate.RECOMPUTE_ASSIGNMENT_UPON_TARGETS_OVERLAP,
        Gate.REJECT_UPDATES_WITH_INVALID_ON_FLAVORS,
        Gate.REMOVE_FINALIZERS_WITH_STRICT_PATCH,
        Gate.SCHEDULING_EQUIVALENCE_HASHING,
        Gate.SHORT_WORKLOAD_NAMES,
        Gate.SKIP_ANCESTOR_CHECK_FOR_DELETED_WORKLOADS,
        Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS,
        Gate.SPARK_APPLICATION_INTEGRATION,
        Gate.TAS_MULTI_LAYER_TOPOLOGY,
        Gate.TAS_VALIDATE_WORKLOAD_SLICE_SIZE,
        Gate.TOPOLOGY_AWARE_SCHEDULING,
        Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS,
        Gate.UNADMITTED_WORKLOADS_OBSERVABILITY,
        Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES,
        Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS,
        Gate.WORKLOAD_PRIORITY_CLASS_DEFAULTING,
        Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH,
        Gate.WORKLOAD_VALIDATE_RESOURCES_NON_NEGATIVE,
        Gate.WORKLOAD_VALIDATION_FOR_POD_SET_METADATA,
    }
)
"""Gates that code reads today; the reference of the configuration marks them."""


VALIDATION_ONLY = frozenset(
    {
        Gate.CONCURRENT_ADMISSION,
        Gate.MULTIKUEUE,
        Gate.TAS_MULTI_LAYER_TOPOLOGY,
        Gate.TAS_VALIDATE_WORKLOAD_SLICE_SIZE,
        Gate.TOPOLOGY_AWARE_SCHEDULING,
    }
)
"""Gates in effect of features to come: what objects may say follows them, and what is set for the feature."""

WITHOUT_ALTERNATIVE = frozenset(
    {
        # How amounts are held in memory shows in no answer.
        Gate.VECTORIZED_RESOURCE_REQUESTS,
    }
)
"""Gates between two ways of doing the same, of which one is taken whatever they say."""


class FeatureGateError(ValueError):
    """A gate is unknown, locked, misspelt, or on without what it needs."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Which gates are on. Without arguments: the defaults.

    Raises:
        FeatureGateError: a gate is switched that is locked, or one is on without what it needs.
    """

    switched: Mapping[Gate, bool] = field(default_factory=dict[Gate, bool])

    def __post_init__(self) -> None:
        for gate, on in self.switched.items():
            if gate in LOCKED and on != (gate not in OFF_BY_DEFAULT):
                raise FeatureGateError(f"{gate}: this feature has become permanent; remove the gate")
            missing = [need for need in REQUIRES.get(gate, ()) if on and not self.is_enabled(need)]
            if missing:
                raise FeatureGateError(f"{gate}: needs {' and '.join(missing)}; switch that on, too")

    def is_enabled(self, gate: Gate) -> bool:
        """Whether a gate is on. One that is on by default is off while what it needs is off."""
        if gate in self.switched:
            return self.switched[gate]
        return gate not in OFF_BY_DEFAULT and all(self.is_enabled(need) for need in REQUIRES.get(gate, ()))

    def __getitem__(self, gate: Gate) -> bool:
        return self.is_enabled(gate)

    def list_notes(self) -> tuple[str, ...]:
        """What whoever switched gates should know: which of them do less than they say, or nothing."""
        return tuple(
            f"{gate}: {note}" for gate in sorted(self.switched) if (note := get_note(gate)) is not None
        )

    def as_dict(self) -> dict[str, bool]:
        """Every gate by name."""
        return {str(gate): self.is_enabled(gate) for gate in Gate}

    @classmethod
    def from_mapping(cls, gates: Mapping[str, bool]) -> Self:
        """The gates switched by name, as the configuration file has them.

        Raises:
            FeatureGateError: as for the class, or a name is unknown.
        """
        return cls({parse_gate(name): on for name, on in gates.items()})

    @classmethod
    def parse(cls, text: str) -> Self:
        """The gates of the flag `--feature-gates A=true,B=false`.

        Raises:
            FeatureGateError: as for `of`, or the text is not such a list.
        """
        gates: dict[str, bool] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = (part.strip() for part in entry.partition("="))
            if value.lower() not in _BOOLEANS:
                raise FeatureGateError(f"{entry}: write {name or 'Gate'}=true or {name or 'Gate'}=false")
            gates[name] = _BOOLEANS[value.lower()]
        return cls.from_mapping(gates)


_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def get_note(gate: Gate) -> str | None:
    """What somebody who switches a gate should know: that it does less than it says, or nothing."""
    if gate in LOCKED:
        return None
    if gate in WITHOUT_ALTERNATIVE:
        return "has no effect: there is only one way in which this is done"
    if gate in VALIDATION_ONLY:
        return "only decides what objects may say: the feature itself is still to come"
    return None if gate in IN_EFFECT else "has no effect: its feature is still to come"


def parse_gate(name: str) -> Gate:
    """The gate of a name.

    Raises:
        FeatureGateError: there is none; the error names one that looks alike.
    """
    try:
        return Gate(name)
    except ValueError:
        alike = get_close_matches(name, list(Gate), n=1)
        hint = f"; did you mean {alike[0]}?" if alike else ""
        raise FeatureGateError(f"{name}: unknown feature gate{hint}") from None
