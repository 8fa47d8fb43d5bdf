"""What the configuration decides once, at start, for all decisions."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admitq.core.model import SECOND

DEFAULT_SAMPLING_INTERVAL = 300 * SECOND
"""Nanoseconds between two samples of what LocalQueues use, where the configuration states none."""

DEFAULT_HALF_LIFE = 24 * 3600 * SECOND
"""Nanoseconds in which past use loses half its weight, where the configuration states none.

Without any, every queue would be judged by what it uses at the moment alone, and a queue of short jobs
would never be charged for them.
"""


class PreemptionStrategy(StrEnum):
    """When fair sharing may preempt in another ClusterQueue (semantics, Preemption, Fair sharing)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Shares decide between ClusterQueues; the strategies are tried in this order."""

    preemption_strategies: tuple[PreemptionStrategy, ...] = tuple(PreemptionStrategy)


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """How what LocalQueues used counts. Durations in nanoseconds; resources without a weight count 1."""

    half_life: int = DEFAULT_HALF_LIFE
    sampling_interval: int = DEFAULT_SAMPLING_INTERVAL
    resource_weights: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True, slots=True)
class TransformationOutput:
    """A resource that a transformation yields, and how much of it for one unit of the input."""

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
    """Whether a resource that a ClusterQueue does not name is let pass: quotaCheckStrategy."""
    excluded_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates that decisions depend on; the names are those of the gates, the defaults theirs."""

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
class Settings:
    """Settings of the core.

    The controller names are those that mark an AdmissionCheck as MultiKueue's or as ProvisioningRequest's,
    which restricts how a ClusterQueue may combine them; empty names mark none. ``fair_sharing`` unset is
    classical preemption and order. ``block_admission`` keeps everything waiting while an admitted workload's
    pods are not ready (waitForPodsReady.blockAdmission). ``requeue_batch_period`` is for how many nanoseconds
    changes are collected before the waiting workloads of a cohort tree are retried together.
    """

    multikueue_controller: str = ""
    provisioning_controller: str = ""
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources = Resources()
    block_admission: bool = False
    requeue_batch_period: int = 0
    gates: Gates = Gates()
