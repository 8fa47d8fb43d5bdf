"""Settings of the core that follow from the configuration and the feature gates."""

from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest
import yaml

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
from admitq.translate.settings import (
    CORE_GATES,
    configured_core_settings,
    configured_pods_ready,
    unset_default_notices,
)
from admitq_api.configuration import Configuration, load_configuration
from admitq_api.feature_gates import IN_EFFECT, FeatureGates, parse_gate
from admitq_api.labels import COMPAT_GROUP, names_for

MINUTE = 60 * 10**9
NAMES = names_for()
CONTROLLERS: dict[str, Any] = {
    "multikueue_controller": NAMES.multikueue_controller,
    "provisioning_controller": NAMES.provisioning_controller,
}


def configured(text: str) -> Configuration:
    fields: dict[str, Any] = yaml.safe_load(text) or {}
    whole = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", **fields}
    return load_configuration(yaml.safe_dump(whole))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
            {"fair_sharing": FairSharing((PreemptionStrategy.LESS_THAN_INITIAL_SHARE,))},
        ),
        (
            "admissionFairSharing: {usageHalfLifeTime: 0s}",
            {"admission_fair_sharing": AdmissionFairSharing(0, 5 * MINUTE)},
        ),
        (
            (
                "admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 1m, "
                "resourceWeights: {memory: 0.1, cpu: 2}}"
            ),
            {
                "admission_fair_sharing": AdmissionFairSharing(
                    10 * MINUTE, MINUTE, (("cpu", Fraction(2)), ("memory", Fraction(1, 10)))
                )
            },
        ),
        (
            "admissionFairSharing: {}",
            {"admission_fair_sharing": AdmissionFairSharing(DEFAULT_HALF_LIFE, 5 * MINUTE)},
        ),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared}",
            {"resources": Resources(ignore_undeclared=True)},
        ),
        (
            "resources: {excludeResourcePrefixes: [a.io/, b.io/]}",
            {"resources": Resources(excluded_prefixes=("a.io/", "b.io/"))},
        ),
        (
            (
                "resources: {transformations: [{input: a/gpu, strategy: Replace, multiplyBy: a/n, "
                "outputs: {memory: 1Gi, cpu: 1500m}}, {input: a/other}]}"
            ),
            {
                "resources": Resources(
                    transformations=(
                        Transformation(
                            "a/gpu",
                            (
                                TransformationOutput("cpu", Fraction(3, 2)),
                                TransformationOutput("memory", Fraction(2**30)),
                            ),
                            retain=False,
                            multiply_by="a/n",
                        ),
                        Transformation("a/other"),
                    )
                )
            },
        ),
        ("waitForPodsReady: {blockAdmission: true}", {"block_admission": True}),
    ],
)
def test_core_settings_follow_configuration(text: str, expected: dict[str, Any]) -> None:
    assert configured_core_settings(configured(text), FeatureGates()) == CoreSettings(
        **CONTROLLERS, placement=Placement(), **expected
    )


def test_admission_is_not_blocked_if_pods_ready_is_disabled() -> None:
    gates = FeatureGates.from_mapping({"DisableWaitForPodsReady": True})
    assert not configured_core_settings(
        configured("waitForPodsReady: {blockAdmission: true}"), gates
    ).block_admission


@pytest.mark.parametrize(
    ("gate", "placement"),
    [
        ("TopologyAwareScheduling", None),
        ("TASHandleOverlappingFlavors", Placement(shares_hosts=False)),
        (
            "TASFailedNodeReplacement",
            Placement(replaces_hosts=False, evicts_unplaced=False),
        ),
        ("TASFailedNodeReplacementFailFast", Placement(evicts_unplaced=False)),
        ("SkipReassignmentForPodOwnedWorkloads", Placement(leaves_single_pods=False)),
        ("TASProfileMixed", Placement(rules=PlacementRules(small_gaps_first=False))),
        ("TASRecomputeAssignmentWithinSchedulingCycle", Placement(places_again=False)),
        ("ElasticJobsViaWorkloadSlicesWithTAS", Placement(keeps_pods=True)),
        ("TASBalancedPlacement", Placement(rules=PlacementRules(balanced=True))),
        ("TASRespectNodeAffinityPreferred", Placement(rules=PlacementRules(prefers_nodes=True))),
    ],
)
def test_pods_are_placed_as_the_gates_say(gate: str, placement: Placement | None) -> None:
    is_on = FeatureGates.from_mapping({})[parse_gate(gate)]
    gates = FeatureGates.from_mapping({gate: not is_on})
    assert configured_core_settings(configured(""), gates).placement == placement


@pytest.mark.parametrize("name", [field.name for field in fields(Gates)])
def test_gate_of_core_is_switched_by_its_feature_gate(name: str) -> None:
    gate, default = CORE_GATES[name], getattr(Gates(), name)
    assert gate in IN_EFFECT
    assert FeatureGates()[gate] is default
    switched = FeatureGates.from_mapping({str(gate): not default})
    assert configured_core_settings(configured(""), switched).gates == Gates(
        **{field.name: switched[CORE_GATES[field.name]] for field in fields(Gates)}
    )
    assert getattr(configured_core_settings(configured(""), switched).gates, name) is not default


@pytest.mark.parametrize(
    ("text", "is_reported"),
    [
        ("", False),
        ("admissionFairSharing: {}", True),
        ("admissionFairSharing: {usageHalfLifeTime: 0s}", False),
    ],
)
def test_default_half_life_is_reported_if_not_configured(text: str, is_reported: bool) -> None:
    notices = unset_default_notices(configured(text))
    assert len(notices) == int(is_reported)
    assert all("usageHalfLifeTime is not set" in notice and "24h0m0s" in notice for notice in notices)


@pytest.mark.parametrize(
    ("version", "sections", "is_tracked"),
    [
        ("v1beta2", {}, True),
        ("v1beta2", {"featureGates": {"DisableWaitForPodsReady": True}}, False),
        ("v1beta1", {}, False),
        ("v1beta1", {"waitForPodsReady": {"enable": True}}, True),
        (
            "v1beta1",
            {"waitForPodsReady": {"enable": True}, "featureGates": {"DisableWaitForPodsReady": True}},
            False,
        ),
    ],
)
def test_pods_ready_is_tracked_according_to_section_and_gate(
    version: str, sections: dict[str, Any], is_tracked: bool
) -> None:
    head = {"apiVersion": f"config.{COMPAT_GROUP}/{version}", "kind": "Configuration"}
    configuration = load_configuration(yaml.safe_dump({**head, **sections}))
    gates = configuration.create_feature_gates()
    assert (configured_pods_ready(configuration, gates) is not None) is is_tracked
    # In v1beta1, waitForPodsReady blocks admission by default.
    assert configured_core_settings(configuration, gates).block_admission is (
        is_tracked and version == "v1beta1"
    )
