"""Settings of the core, which the configuration defines at the start."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admitq.core.model import SECOND
from admitq.core.topology.rules import USUAL_RULES, PlacementRules

DEFAULT_SAMPLING_INTERVAL = 300 * SECOND
"""Default number of nanoseconds between two samples of the usage of LocalQueues."""

DEFAULT_HALF_LIFE = 24 * 3600 * SECOND
"""Default number of nanoseconds in which past usage decays by half.

It is not 0: with a half-life of 0, past usage never changes, so that no LocalQueue is charged.
"""


class PreemptionStrategy(StrEnum):
    """When fair sharing may preempt in another ClusterQueue (semantics, Preemption, Fair sharing)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Settings of fair sharing between ClusterQueues. The strategies are tried in this order."""

    preemption_strategies: tuple[PreemptionStrategy, ...] = tuple(PreemptionStrategy)


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Settings of past usage. Durations are in nanoseconds. A resource without weight has weight 1."""

    half_life: int = DEFAULT_HALF_LIFE
    sampling_interval: int = DEFAULT_SAMPLING_INTERVAL
    resource_weights: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True, slots=True)
class TransformationOutput:
    """A resource that a transformation yields, and its amount for one unit of the input."""

    resource: str
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Transformation:
    """How requests of one resource count as others (semantics, Resource arithmetic)."""

    input: str
    outputs: tuple[TransformationOutput, ...] = ()
    retain: bool = True
    """Whether the input stays beside its outputs (Retain) or not (Replace)."""
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """How requests are counted against quota."""

    ignore_undeclared: bool = False
    """Whether resources that a ClusterQueue does not cover are ignored (quotaCheckStrategy)."""
    excluded_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates on which decisions depend, with their defaults."""

    partial_admission: bool = True
    flavor_fungibility: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    priority_sorting_within_cohort: bool = True
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    admission_fair_sharing: bool = True
    reclaimable_pods: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = True
    prioritize_preemptor_workloads: bool = False
    quota_check_strategy: bool = True
    scheduling_equivalence_hashing: bool = True


@dataclass(frozen=True, slots=True)
class Placement:
    """How pods are assigned to the domains of topologies.

    Attributes:
        shares_hosts: whether the usage of a host counts in all flavors with topologies that end with hosts
            (gate TASHandleOverlappingFlavors).
        rules: how domains are chosen.
        places_again: whether a workload that lost its place to another one in a cycle gets another place in
            the same cycle (gate TASRecomputeAssignmentWithinSchedulingCycle).
        replaces_hosts: whether pods of a failed host get another place (gate TASFailedNodeReplacement).
        evicts_unplaced: whether a workload is evicted if its pods of a failed host have no other place (gate
            TASFailedNodeReplacementFailFast). Otherwise, the search is repeated.
        keeps_pods: whether an elastic job that grows keeps the places of its pods (gate
            ElasticJobsViaWorkloadSlicesWithTAS). Otherwise, all pods are placed in addition to these.
        leaves_single_pods: whether the workload of a single pod, which cannot run twice, keeps its place
            (gate SkipReassignmentForPodOwnedWorkloads).
    """

    shares_hosts: bool = True
    rules: PlacementRules = USUAL_RULES
    places_again: bool = True
    replaces_hosts: bool = True
    evicts_unplaced: bool = True
    keeps_pods: bool = False
    leaves_single_pods: bool = True


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Settings of the core.

    The controller names identify AdmissionChecks of MultiKueue and of ProvisioningRequests. Rules restrict
    how a ClusterQueue may combine such checks. An empty name identifies no check. Without ``fair_sharing``,
    preemption and the order of cycles are classical. With ``block_admission``, admission waits while an
    admitted workload has pods that are not ready (waitForPodsReady.blockAdmission). ``requeue_batch_period``
    is the number of nanoseconds for which changes are collected before the waiting workloads of a cohort tree
    are retried. Without ``placement``, pods are not assigned to the domains of topologies.
    """

    multikueue_controller: str = ""
    provisioning_controller: str = ""
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources = Resources()
    block_admission: bool = False
    requeue_batch_period: int = 0
    placement: Placement | None = None
    gates: Gates = Gates()
