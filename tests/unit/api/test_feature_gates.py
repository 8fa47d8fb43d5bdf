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


def test_defaults() -> None:
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
def test_the_flag(text: str, expected: Any) -> None:
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
def test_a_wrong_flag_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(FeatureGateError, match=message):
        FeatureGates.parse(text)


@pytest.mark.parametrize(
    ("gate", "need"), sorted((gate, need) for gate in REQUIRES for need in REQUIRES[gate])
)
def test_no_gate_is_on_without_each_that_it_needs(gate: Gate, need: Gate) -> None:
    with pytest.raises(FeatureGateError, match=rf"{gate}: needs .*{need}.*; switch that on, too"):
        FeatureGates.parse(f"{gate}=true,{need}=false")


def test_what_a_gate_needs_takes_it_along_when_switched_off() -> None:
    gates = FeatureGates.from_mapping({"TopologyAwareScheduling": False})
    assert not gates[Gate.TAS_FAILED_NODE_REPLACEMENT]
    assert not gates[Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST]
    assert gates[Gate.PARTIAL_ADMISSION]


@pytest.mark.parametrize("gate", sorted(REQUIRES))
def test_every_gate_can_be_switched_on_with_its_needs(gate: Gate) -> None:
    assert FeatureGates({gate: True})[gate] or any(need in OFF_BY_DEFAULT for need in REQUIRES[gate])


@pytest.mark.parametrize("gate", sorted(LOCKED))
def test_a_permanent_gate_may_be_named_as_it_is(gate: Gate) -> None:
    assert FeatureGates({gate: True})[gate]


def test_gates_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(FeatureGates(), "switched", {})  # noqa: B010 the type checker refuses the plain assignment


def test_the_reference_says_of_each_gate_whether_anything_looks_at_it() -> None:
    packages = (admitq, admitq_webhooks)
    sources = [path for package in packages for path in Path(str(package.__file__)).parent.rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"Gate\.([A-Z_]+)", path.read_text())}
    assert {gate.name for gate in IN_EFFECT} == named


def test_switched_gate_without_full_effect_is_reported() -> None:
    gates = FeatureGates.from_mapping(
        {
            "PartialAdmission": False,
            "TLSOptions": True,
            "VisibilityOnDemand": True,
            "MultiKueue": False,
            "VectorizedResourceRequests": False,
        }
    )
    assert gates.list_notes() == (
        "MultiKueue: only affects the validation of objects: its feature is not implemented yet",
        "VectorizedResourceRequests: has no effect: there is only one implementation",
        "VisibilityOnDemand: has no effect: its feature is not implemented yet",
    )
    assert not FeatureGates().list_notes()


def test_what_is_done_whatever_a_gate_says_looks_at_no_gate() -> None:
    assert not WITHOUT_ALTERNATIVE & (IN_EFFECT | LOCKED)
