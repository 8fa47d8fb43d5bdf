"""How the configuration and the feature gates change the reading of Workloads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admitq_api.feature_gates import FeatureGates, Gate

if TYPE_CHECKING:
    # Its models take long to import, and some processes read objects without a configuration file.
    from admitq_api.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for the reading of Workloads."""

    eviction_moves_to_back: bool = True
    """A PodsReady timeout moves a Workload to the back: requeuingStrategy.timestamp is Eviction."""
    reclaim_moves_to_back: bool = False
    """A preemption by a borrower moves a Workload to the back: gate PrioritySortingWithinCohort is off."""
    boosts: bool = False
    """An annotation may add to the priority: gate PriorityBoost is on."""
    gated: bool = True
    """An annotation may gate the admission: gate AdmissionGatedBy is on."""
    replaces: bool = False
    """An annotation may name a Workload to replace: gate ElasticJobsViaWorkloadSlices is on."""


def configure_reading(configuration: "Configuration", gates: FeatureGates) -> Reading:
    """Return the options for a configuration and its feature gates."""
    wait = configuration.wait_for_pods_ready
    return Reading(
        eviction_moves_to_back=wait is None or wait.requeuing_strategy.timestamp == "Eviction",
        reclaim_moves_to_back=not gates[Gate.PRIORITY_SORTING_WITHIN_COHORT],
        boosts=gates[Gate.PRIORITY_BOOST],
        gated=gates[Gate.ADMISSION_GATED_BY],
        replaces=gates[Gate.ELASTIC_JOBS],
    )
