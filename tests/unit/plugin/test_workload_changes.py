"""What ``hold``, ``release`` and ``move`` refuse, and what they write."""

from typing import Any

import pytest

from admitq.plugin.remedies import CommandError
from admitq.plugin.workload_changes import (
    check_gates,
    gate_patch,
    gates_of,
    hold_patch,
    is_inactive,
    refuse_move,
)
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)


def workload(*true: str, gates: str = "", owners: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "w",
            "annotations": {NAMES.admission_gated_by: gates} if gates else {},
            "ownerReferences": [{"kind": "Pod", "name": f"p{number}"} for number in range(owners)],
        },
        "spec": spec,
        "status": {
            "conditions": [{"type": type_, "status": "True"} for type_ in true],
            "admission": {"clusterQueue": "cq"},
        },
    }


@pytest.mark.parametrize(
    ("one", "patch"),
    [
        (workload(), {"spec": {"active": False}}),
        (workload(active=True), {"spec": {"active": False}}),
        (workload(active=False), {}),
    ],
)
def test_hold_deactivates_what_is_active(one: dict[str, Any], patch: dict[str, Any]) -> None:
    assert hold_patch(one) == patch


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (workload("QuotaReserved"), "has quota of ClusterQueue cq\nkubectl admitq stop workload w stops"),
        (workload("QuotaReserved", "Admitted"), "has quota of ClusterQueue cq"),
        (workload("QuotaReserved", "Finished"), "workload w has finished"),
    ],
)
def test_hold_refuses_what_does_not_wait(one: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        hold_patch(one)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (workload("QuotaReserved"), "its queue cannot change\nStop it first: kubectl admitq stop workload w"),
        (workload("Finished"), "workload w has finished"),
        (workload(owners=2), "belongs to 2 objects"),
    ],
)
def test_move_refuses_what_would_not_follow(one: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        refuse_move(one)


def test_move_accepts_what_waits() -> None:
    refuse_move(workload(owners=1))


@pytest.mark.parametrize(
    ("status", "inactive"),
    [
        ({"conditions": [{"type": "Active", "status": "False"}]}, True),
        ({"conditions": [{"type": "Active", "status": "True"}]}, False),
        ({}, False),
    ],
)
def test_queue_is_inactive_only_if_its_status_says_so(status: dict[str, Any], inactive: bool) -> None:
    assert is_inactive({"status": status}) is inactive


@pytest.mark.parametrize(
    ("gates", "removed", "remaining"),
    [
        ("a.com/x", ["a.com/x"], None),
        ("a.com/x,a.com/y", ["a.com/x"], "a.com/y"),
        ("a.com/x, a.com/y", ["a.com/y", "a.com/x"], None),
        ("a.com/x", [], "a.com/x"),
    ],
)
def test_patch_of_gates_keeps_the_others(gates: str, removed: list[str], remaining: str | None) -> None:
    patch = gate_patch(workload(gates=gates), removed, NAMES)
    assert patch == {"metadata": {"annotations": {NAMES.admission_gated_by: remaining}}}


def test_gates_are_those_of_the_annotation() -> None:
    assert gates_of(workload(gates="a.com/x, a.com/y,"), NAMES) == ["a.com/x", "a.com/y"]
    assert gates_of(workload(), NAMES) == []


@pytest.mark.parametrize(
    ("gates", "message"), [("a.com/x", "It has a.com/x."), ("", "It has none: leave out --gate")]
)
def test_gate_that_does_not_exist_is_refused_with_those_that_do(gates: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        check_gates(workload(gates=gates), ["a.com/z"], NAMES)
    check_gates(workload(gates="a.com/z"), ["a.com/z"], NAMES)
