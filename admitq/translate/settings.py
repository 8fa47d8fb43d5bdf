"""The settings of the core, from the configuration file and the feature gates."""

from dataclasses import fields
from datetime import timedelta
from fractions import Fraction
from typing import Final

from admitq.core.settings import (
    DEFAULT_HALF_LIFE,
    AdmissionFairSharing,
    CoreSettings,
    FairSharing,
    Gates,
    Placement,
    PreemptionStrategy,
    Resources,
    Transformation,
    TransformationOutput,
)
from admitq.core.topology.rules import PlacementRules
from admitq_api.configuration import Configuration, sections
from admitq_api.durations import format_duration
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.quantity import parse_quantity

CORE_GATES: Final = {
    "partial_admission": Gate.PARTIAL_ADMISSION,
    "flavor_fungibility": Gate.FLAVOR_FUNGIBILITY,
    "flavor_fungibility_preserve_scan_progress": Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS,
    "priority_sorting_within_cohort": Gate.PRIORITY_SORTING_WITHIN_COHORT,
    "fair_sharing_preempt_within_nominal": Gate.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL,
    "fair_sharing_prioritize_non_borrowing": Gate.FAIR_SHARING_PRIORITIZE_NON_BORROWING,
    "admission_fair_sharing": Gate.ADMISSION_FAIR_SHARING,
    "reclaimable_pods": Gate.RECLAIMABLE_PODS,
    "recompute_assignment_upon_preemption_targets_overlap": Gate.RECOMPUTE_ASSIGNMENT_UPON_TARGETS_OVERLAP,
    "prioritize_preemptor_workloads": Gate.PRIORITIZE_PREEMPTOR_WORKLOADS,
    "quota_check_strategy": Gate.QUOTA_CHECK_STRATEGY,
    "scheduling_equivalence_hashing": Gate.SCHEDULING_EQUIVALENCE_HASHING,
}
"""The feature gates on which decisions depend, by their names in the core."""


def configured_core_settings(configuration: Configuration, gates: FeatureGates) -> CoreSettings:
    """Return the settings of the core."""
    names = configuration.names
    wait = configured_pods_ready(configuration, gates)
    return CoreSettings(
        multikueue_controller=names.multikueue_controller,
        provisioning_controller=names.provisioning_controller,
        fair_sharing=_fair_sharing(configuration.fair_sharing),
        admission_fair_sharing=_admission_fair_sharing(configuration.admission_fair_sharing),
        resources=_resources(configuration.resources),
        requeue_batch_period=_nanoseconds(configuration.controller.requeue_batch_period),
        block_admission=wait is not None and wait.block_admission,
        placement=_placement(gates),
        gates=Gates(**{gate.name: gates[CORE_GATES[gate.name]] for gate in fields(Gates)}),
    )


def _placement(gates: FeatureGates) -> Placement | None:
    if not gates[Gate.TOPOLOGY_AWARE_SCHEDULING]:
        return None
    return Placement(
        shares_hosts=gates[Gate.TAS_HANDLE_OVERLAPPING_FLAVORS],
        rules=PlacementRules(
            small_gaps_first=gates[Gate.TAS_PROFILE_MIXED],
            balanced=gates[Gate.TAS_BALANCED_PLACEMENT],
            prefers_nodes=gates[Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED],
        ),
        places_again=gates[Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_CYCLE],
        replaces_hosts=gates[Gate.TAS_FAILED_NODE_REPLACEMENT],
        evicts_unplaced=gates[Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST],
        keeps_pods=gates[Gate.ELASTIC_JOBS_WITH_TAS],
        leaves_single_pods=gates[Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS],
    )


def configured_pods_ready(
    configuration: Configuration, gates: FeatureGates
) -> sections.WaitForPodsReady | None:
    """Return the configuration for workloads with pods that do not become ready; None if disabled."""
    return None if gates[Gate.DISABLE_WAIT_FOR_PODS_READY] else configuration.wait_for_pods_ready


def unset_default_notices(configuration: Configuration) -> tuple[str, ...]:
    """Return notices about unset fields with important defaults."""
    shares = configuration.admission_fair_sharing
    if shares is None or shares.usage_half_life_time is not None:
        return ()
    half_life = format_duration(timedelta(microseconds=DEFAULT_HALF_LIFE // 1000))
    return (
        (
            "admissionFairSharing.usageHalfLifeTime is not set: "
            f"past usage loses half its weight in {half_life}; "
            "set it to another duration, or to 0s to ignore past usage"
        ),
    )


def _nanoseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1) * 1000


def _fair_sharing(section: sections.FairSharingSection | None) -> FairSharing | None:
    if section is None:
        return None
    return FairSharing(tuple(map(PreemptionStrategy, section.preemption_strategies)))


def _admission_fair_sharing(
    section: sections.AdmissionFairSharingSection | None,
) -> AdmissionFairSharing | None:
    if section is None:
        return None
    half_life = section.usage_half_life_time
    return AdmissionFairSharing(
        half_life=DEFAULT_HALF_LIFE if half_life is None else _nanoseconds(half_life),
        sampling_interval=_nanoseconds(section.usage_sampling_interval),
        # The decimal text of a weight is exact, but its float is not.
        resource_weights=tuple(
            sorted((name, Fraction(str(weight))) for name, weight in section.resource_weights.items())
        ),
    )


def _resources(section: sections.ResourcesSection) -> Resources:
    return Resources(
        ignore_undeclared=section.quota_check_strategy == "IgnoreUndeclared",
        excluded_prefixes=section.exclude_resource_prefixes,
        transformations=tuple(map(_transformation, section.transformations)),
    )


def _transformation(rule: sections.TransformationSection) -> Transformation:
    outputs = sorted(rule.outputs.items())
    return Transformation(
        input=rule.input,
        outputs=tuple(TransformationOutput(name, parse_quantity(factor)) for name, factor in outputs),
        retain=rule.strategy == "Retain",
        multiply_by=rule.multiply_by,
    )
