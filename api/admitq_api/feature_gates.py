"""Feature gates: switches for behavior that is new, optional or deprecated.

They are read once, at start. A gate of a feature that does not exist yet is accepted and logged, and has no
effect. The reference of the configuration lists the gates that have an effect.
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
"""Gates that are disabled by default. All other gates are enabled by default."""

LOCKED = frozenset({Gate.MANAGED_JOBS_NAMESPACE_SELECTOR_ALWAYS_RESPECTED, Gate.TLS_OPTIONS})
"""Gates of features that have become permanent. They can no longer be changed."""

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
"""Gates that require other gates."""

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
        Gate.ELASTIC_JOBS_WITH_TAS,
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
        Gate.TAS_ASSIGNMENTS_ENCODING_BY_HOSTNAME_PREFIX,
        Gate.TAS_BALANCED_PLACEMENT,
        Gate.TAS_FAILED_NODE_REPLACEMENT,
        Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST,
        Gate.TAS_HANDLE_OVERLAPPING_FLAVORS,
        Gate.TAS_MULTI_LAYER_TOPOLOGY,
        Gate.TAS_PROFILE_MIXED,
        Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_CYCLE,
        Gate.TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME,
        Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS,
        Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION,
        Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED,
        Gate.TAS_VALIDATE_WORKLOAD_SLICE_SIZE,
        Gate.TOPOLOGY_AWARE_SCHEDULING,
        Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS,
        Gate.UNADMITTED_WORKLOADS_OBSERVABILITY,
        Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES,
        Gate.VISIBILITY_ON_DEMAND,
        Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS,
        Gate.WORKLOAD_PRIORITY_CLASS_DEFAULTING,
        Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH,
        Gate.WORKLOAD_VALIDATE_RESOURCES_NON_NEGATIVE,
        Gate.WORKLOAD_VALIDATION_FOR_POD_SET_METADATA,
    }
)
"""Gates that the code reads. The reference of the configuration marks them."""


VALIDATION_ONLY = frozenset(
    {
        Gate.CONCURRENT_ADMISSION,
        Gate.MULTIKUEUE,
    }
)
"""Gates of features that do not exist yet. They affect only the validation and defaulting of objects."""

WITHOUT_ALTERNATIVE = frozenset(
    {
        # The representation of amounts in memory, and caches, affect no result.
        Gate.TAS_CACHE_NODE_MATCH_RESULTS,
        Gate.TAS_CACHE_TOPOLOGY_TREE,
        Gate.TAS_CACHING_REMAINING_RESOURCES,
        Gate.VECTORIZED_RESOURCE_REQUESTS,
    }
)
"""Gates that choose between two implementations. admitq has only one of them."""


class FeatureGateError(ValueError):
    """A gate is unknown, locked, or enabled without a gate that it requires; or the text is invalid."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The enabled and disabled gates. Without arguments, all gates have their defaults.

    Raises:
        FeatureGateError: a locked gate is changed, or a gate is enabled without a gate that it requires.
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
        """Whether a gate is enabled. By default, a gate is disabled if a gate that it requires is."""
        if gate in self.switched:
            return self.switched[gate]
        return gate not in OFF_BY_DEFAULT and all(self.is_enabled(need) for need in REQUIRES.get(gate, ()))

    def __getitem__(self, gate: Gate) -> bool:
        return self.is_enabled(gate)

    def list_notes(self) -> tuple[str, ...]:
        """Return a note for each changed gate that has no effect, or not the full one."""
        return tuple(
            f"{gate}: {note}" for gate in sorted(self.switched) if (note := get_note(gate)) is not None
        )

    def as_dict(self) -> dict[str, bool]:
        """Return the state of every gate, by name."""
        return {str(gate): self.is_enabled(gate) for gate in Gate}

    @classmethod
    def from_mapping(cls, gates: Mapping[str, bool]) -> Self:
        """Return the gates of a mapping from names, as in the configuration file.

        Raises:
            FeatureGateError: as for the class, or a name is unknown.
        """
        return cls({parse_gate(name): on for name, on in gates.items()})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the gates of the flag `--feature-gates A=true,B=false`.

        Raises:
            FeatureGateError: as for `from_mapping`, or the text is not such a list.
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
    """Return a note if the gate has no effect, or not the full one; otherwise None."""
    if gate in LOCKED:
        return None
    if gate in WITHOUT_ALTERNATIVE:
        return "has no effect: there is only one implementation"
    if gate in VALIDATION_ONLY:
        return "only affects the validation of objects: its feature is not implemented yet"
    return None if gate in IN_EFFECT else "has no effect: its feature is not implemented yet"


def parse_gate(name: str) -> Gate:
    """Return the gate of a name.

    Raises:
        FeatureGateError: the gate does not exist. The error suggests a similar name.
    """
    try:
        return Gate(name)
    except ValueError:
        alike = get_close_matches(name, list(Gate), n=1)
        hint = f"; did you mean {alike[0]}?" if alike else ""
        raise FeatureGateError(f"{name}: unknown feature gate{hint}") from None
