import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import admitq
import admitq_webhooks
from admitq_api.feature_gates import (
    IN_EFFECT,
    LOCKED,
    OFF_BY_DEFAULT,
    REQUIRES,
    WITHOUT_ALTERNATIVE,
    FeatureGateError,
    FeatureGates,
    Gate,
)


def test_only_gates_off_by_default_are_disabled_without_configuration() -> None:
    gates = FeatureGates()
    assert {gate for gate in Gate if not gates[gate]} == OFF_BY_DEFAULT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("PriorityBoost=true", {"PriorityBoost": True}),
        (" PriorityBoost = TRUE , MultiKueue=0,", {"PriorityBoost": True, "MultiKueue": False}),
        ("PriorityBoost=true,PriorityBoost=false", {"PriorityBoost": False}),
    ],
)
def test_gate_flag_overrides_defaults(text: str, expected: Any) -> None:
    gates = FeatureGates.parse(text).as_dict()
    assert gates == FeatureGates().as_dict() | expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PriorityBoost", "PriorityBoost: write PriorityBoost=true or PriorityBoost=false"),
        ("PriorityBoost=yes", "PriorityBoost=yes: write"),
        ("PriorityBost=true", r"PriorityBost: unknown feature gate; did you mean PriorityBoost\?"),
        ("Frobnicate=true", "Frobnicate: unknown feature gate$"),
        ("TLSOptions=false", "TLSOptions: this feature has become permanent"),
        (
            "TASBalancedPlacement=true,TopologyAwareScheduling=false",
            "TASBalancedPlacement: needs TopologyAwareScheduling",
        ),
        (
            "UnadmittedWorkloadsExplicitStatus=true,UnadmittedWorkloadsObservability=false",
            "UnadmittedWorkloadsExplicitStatus: needs UnadmittedWorkloadsObservability",
        ),
    ],
)
def test_malformed_gate_flag_is_rejected_with_remedy(text: str, message: str) -> None:
    with pytest.raises(FeatureGateError, match=message):
        FeatureGates.parse(text)


@pytest.mark.parametrize(
    ("gate", "required"), sorted((gate, required) for gate in REQUIRES for required in REQUIRES[gate])
)
def test_gate_cannot_be_enabled_without_required_gate(gate: Gate, required: Gate) -> None:
    with pytest.raises(FeatureGateError, match=rf"{gate}: needs .*{required}.*; switch that on, too"):
        FeatureGates.parse(f"{gate}=true,{required}=false")


def test_disabling_required_gate_disables_dependent_gates() -> None:
    gates = FeatureGates.from_mapping({"TopologyAwareScheduling": False})
    assert not gates[Gate.TAS_FAILED_NODE_REPLACEMENT]
    assert not gates[Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST]
    assert gates[Gate.PARTIAL_ADMISSION]


@pytest.mark.parametrize("gate", sorted(REQUIRES))
def test_gate_with_required_gates_can_be_enabled(gate: Gate) -> None:
    assert FeatureGates({gate: True})[gate] or any(required in OFF_BY_DEFAULT for required in REQUIRES[gate])


@pytest.mark.parametrize("gate", sorted(LOCKED))
def test_locked_gate_can_be_set_to_its_fixed_value(gate: Gate) -> None:
    assert FeatureGates({gate: True})[gate]


def test_feature_gates_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(FeatureGates(), "switched", {})  # noqa: B010 the type checker rejects the plain assignment


def test_gates_in_effect_are_those_that_the_code_reads() -> None:
    packages = (admitq, admitq_webhooks)
    sources = [path for package in packages for path in Path(str(package.__file__)).parent.rglob("*.py")]
    read_gates = {name for path in sources for name in re.findall(r"Gate\.([A-Z_]+)", path.read_text())}
    assert {gate.name for gate in IN_EFFECT} == read_gates


def test_switched_gate_without_full_effect_is_reported() -> None:
    gates = FeatureGates.from_mapping(
        {
            "PartialAdmission": False,
            "TLSOptions": True,
            "MultiKueue": False,
            "VectorizedResourceRequests": False,
        }
    )
    assert gates.list_notes() == (
        "MultiKueue: only affects the validation of objects: its feature is not implemented yet",
        "VectorizedResourceRequests: has no effect: there is only one implementation",
    )
    assert not FeatureGates().list_notes()


def test_gates_without_alternative_are_neither_in_effect_nor_locked() -> None:
    assert not WITHOUT_ALTERNATIVE & (IN_EFFECT | LOCKED)
