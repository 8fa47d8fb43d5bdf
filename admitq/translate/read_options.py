"""How the configuration and the feature gates change the reading of Workloads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admitq_api.feature_gates import FeatureGates, Gate

if TYPE_CHECKING:
    # Imported for types only: its models take long to import, and some processes need no configuration.
    from admitq_api.configuration import Configuration


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for the reading of Workloads."""

    timeout_moves_to_back: bool = True
    """A PodsReady timeout moves a Workload to the back: requeuingStrategy.timestamp is Eviction."""
    reclaim_moves_to_back: bool = False
    """A preemption by a borrower moves a Workload to the back: gate PrioritySortingWithinCohort is off."""
    allows_priority_boost: bool = False
    """An annotation may add to the priority: gate PriorityBoost is on."""
    allows_admission_gates: bool = True
    """An annotation may gate the admission: gate AdmissionGatedBy is on."""
    allows_replacement: bool = False
    """An annotation may name a Workload to replace: gate ElasticJobsViaWorkloadSlices is on."""


def configured_read_options(configuration: "Configuration", gates: FeatureGates) -> ReadOptions:
    """Return the options for a configuration and its feature gates."""
    wait = configuration.wait_for_pods_ready
    return ReadOptions(
        timeout_moves_to_back=wait is None or wait.requeuing_strategy.timestamp == "Eviction",
        reclaim_moves_to_back=not gates[Gate.PRIORITY_SORTING_WITHIN_COHORT],
        allows_priority_boost=gates[Gate.PRIORITY_BOOST],
        allows_admission_gates=gates[Gate.ADMISSION_GATED_BY],
        allows_replacement=gates[Gate.ELASTIC_JOBS],
    )
