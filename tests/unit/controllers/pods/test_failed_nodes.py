"""Failed hosts of topology assignments: when a host has failed, and what follows for its Workload."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Patch, RecordEvent
from admitq.controllers.pods.failed_nodes import NodeFailureCase, handle_failed_nodes
from admitq.controllers.pods.topology_slots import read_slots
from admitq.core.model import Toleration
from admitq.workloads.host_failures import (
    FailedHost,
    Failure,
    NodeFailureSettings,
    TolerationsOfPodSets,
    find_failed_hosts,
    list_hosts,
    read_node_health,
)
from admitq_api.json_objects import value_at, with_value
from tests.unit.controllers.builders import KINDS, NAMES, condition, instant
from tests.unit.controllers.pods.placed_pods import node, placed_workload, pod

TOLERATED = Toleration(key="maintenance", operator="Exists")
TOLERATED_FOR_A_TIME = Toleration(key="maintenance", operator="Exists", toleration_seconds=60)
TAINT = {"key": "maintenance", "effect": "NoExecute"}
READY = NodeFailureSettings()
BY_TIME = NodeFailureSettings(on_pod_termination=False)
ALSO_BY_TIME = NodeFailureSettings(after_fixed_time=True)
WITHOUT_TAINTS = NodeFailureSettings(on_taints=False)


# --- hosts ----------------------------------------------------------------------------------------


def hosts_of(workload: dict[str, Any]) -> dict[str, frozenset[str]]:
    return list_hosts((each.name, each.levels, each.domains) for each in read_slots(workload, NAMES))


def find_failed(
    hosts: Mapping[str, AbstractSet[str]],
    nodes: Mapping[str, Sequence[Mapping[str, Any]]],
    tolerations: TolerationsOfPodSets,
) -> dict[str, FailedHost]:
    return find_failed_hosts(hosts, lambda host: map(read_node_health, nodes.get(host, ())), tolerations)


@pytest.mark.parametrize(
    ("nodes", "tolerations", "failure"),
    [
        ([node("a")], (), None),
        ([], (), Failure.GONE),
        ([with_value(node("a"), ("status", "conditions"), [])], (), Failure.GONE),
        ([node("a", ready="False")], (), Failure.NOT_READY),
        ([node("a", ready="Unknown")], (), Failure.NOT_READY),
        ([node("a", TAINT)], (), Failure.TAINTED),
        ([node("a", TAINT)], (TOLERATED,), None),
        ([node("a", TAINT)], (TOLERATED_FOR_A_TIME,), Failure.TAINTED_FOR_A_TIME),
        ([node("a", TAINT)], (TOLERATED_FOR_A_TIME, TOLERATED), None),
        ([node("a", {**TAINT, "effect": "PreferNoSchedule"})], (), None),
        ([node("a", TAINT, ready="False")], (), Failure.NOT_READY),
        # The new node of a host, while the old one is still stored.
        ([node("a", ready="False"), node("a", name="a-2")], (), None),
        # A node that is not readable.
        ([with_value(node("a"), ("spec", "taints"), "x")], (), None),
    ],
)
def test_host_fails_without_a_ready_node_that_its_pods_tolerate(
    nodes: list[dict[str, Any]], tolerations: tuple[Toleration, ...], failure: Failure | None
) -> None:
    failed = find_failed({"main": {"a"}}, {"a": nodes}, {"main": tolerations})
    assert {host: item.failure for host, item in failed.items()} == (
        {} if failure is None else {"a": failure}
    )


def test_taint_counts_only_for_podsets_on_the_host() -> None:
    nodes = {"a": [node("a", TAINT)], "b": [node("b")]}
    hosts = {"tolerant": {"a", "b"}, "other": {"b"}}
    assert find_failed(hosts, nodes, {"tolerant": (TOLERATED,)}) == {}
    assert find_failed({**hosts, "other": {"a"}}, nodes, {"tolerant": (TOLERATED,)})


def test_only_assignments_down_to_hosts_have_hosts() -> None:
    assert hosts_of(placed_workload("a:2 b:1")) == {"main": {"a", "b"}}
    path = ("status", "admission", "podSetAssignments", 0, "topologyAssignment", "levels")
    assert hosts_of(with_value(placed_workload("a:2 b:1"), path, ["rack"])) == {}


# --- verdicts -------------------------------------------------------------------------------------


def plan(
    nodes: Mapping[str, Mapping[str, Any]],
    *pods: dict[str, Any],
    settings: NodeFailureSettings = READY,
    listed: Sequence[str] = (),
    at: float = 20,
    tolerations: tuple[Toleration, ...] = (),
) -> ActionPlan:
    """Return the plan for a Workload with two pods on host a and one on b, given the nodes of these hosts."""
    workload = placed_workload("a:2 b:1", unhealthyNodes=[{"name": name} for name in listed])
    hosts = hosts_of(workload)
    there = {host: [found] if found else [] for host, found in {"b": node("b"), **nodes}.items()}
    failed = find_failed(hosts, there, {"main": tolerations})
    return handle_failed_nodes(
        NodeFailureCase(workload, KINDS.workloads, hosts, failed, pods, NAMES, settings, instant(at))
    )


def unhealthy_after(made: ActionPlan) -> list[str] | None:
    """Return the unhealthy nodes that a plan writes; None if it leaves them as they are."""
    for action in made.actions:
        if isinstance(action, Patch) and action.resource == KINDS.workloads:
            nodes = value_at(action.steps[0].patch, ("status", "unhealthyNodes"))
            return [item["name"] for item in nodes or ()]
    return None


def ended(made: ActionPlan) -> list[str]:
    """Return the pods that a plan ends."""
    return [
        action.obj["metadata"]["name"]
        for action in made.actions
        if isinstance(action, Patch) and action.resource != KINDS.workloads
    ]


GONE: dict[str, Any] = {"a": {}}
NOT_READY = {"a": node("a", ready="False", since=0)}
TAINTED = {"a": node("a", TAINT)}
RUNS = pod("r", 0, on="a", node="node-a", phase="Running")
ENDING = pod("r", 0, on="a", node="node-a", phase="Running", deleted=True)
WAITS = pod("w", 1, on="a")


@pytest.mark.parametrize(
    ("nodes", "pods", "options", "unhealthy", "ends", "again"),
    [
        ({"a": node("a")}, (RUNS,), {}, None, [], None),
        ({"a": node("a")}, (RUNS,), {"listed": ["a"]}, [], [], None),
        ({"a": node("a")}, (), {"listed": ["left"]}, [], [], None),
        (GONE, (RUNS,), {}, ["a"], [], None),
        (GONE, (RUNS,), {"listed": ["a"]}, None, [], None),
        # By default the end of the pods decides.
        (NOT_READY, (RUNS,), {"at": 1000}, None, [], None),
        (NOT_READY, (RUNS, WAITS), {}, None, ["w"], None),
        (NOT_READY, (ENDING,), {}, ["a"], [], None),
        (NOT_READY, (ENDING, WAITS), {}, ["a"], ["w"], None),
        (NOT_READY, (), {"listed": ["a"]}, None, [], None),
        # The time decides, too.
        (NOT_READY, (RUNS,), {"settings": ALSO_BY_TIME}, None, [], 10.0),
        (NOT_READY, (RUNS,), {"settings": ALSO_BY_TIME, "at": 30}, ["a"], [], None),
        (NOT_READY, (), {"settings": ALSO_BY_TIME}, ["a"], [], None),
        # Only the time decides.
        (NOT_READY, (), {"settings": BY_TIME}, None, [], 10.0),
        (NOT_READY, (RUNS, WAITS), {"settings": BY_TIME, "at": 30}, ["a"], [], None),
        # Taints.
        (TAINTED, (RUNS, WAITS), {}, None, ["w"], None),
        (TAINTED, (), {}, ["a"], [], None),
        (TAINTED, (RUNS,), {"settings": BY_TIME}, ["a"], [], None),
        (TAINTED, (), {"settings": WITHOUT_TAINTS}, None, [], None),
        (TAINTED, (), {"tolerations": (TOLERATED,)}, None, [], None),
        (TAINTED, (RUNS,), {"tolerations": (TOLERATED_FOR_A_TIME,), "settings": BY_TIME}, None, [], None),
        (TAINTED, (), {"tolerations": (TOLERATED_FOR_A_TIME,), "settings": BY_TIME}, ["a"], [], None),
        # Pods for hosts that their podset no longer has, healthy or not.
        ({"a": node("a")}, (pod("w", 0, on="c"), WAITS), {}, None, ["w"], None),
        ({"a": node("a")}, (pod("g", 0), pod("r", 0, on="c", node="node-c")), {}, None, [], None),
        ({"a": node("a")}, (pod("o", 0, on="c", podset="not-placed"),), {}, None, [], None),
    ],
)
def test_unhealthy_nodes_and_waiting_pods(
    nodes: dict[str, Any],
    pods: tuple[dict[str, Any], ...],
    options: dict[str, Any],
    unhealthy: list[str] | None,
    ends: list[str],
    again: float | None,
) -> None:
    made = plan(nodes, *pods, **options)
    assert (unhealthy_after(made), ended(made), made.requeue_after) == (unhealthy, ends, again)


@pytest.mark.parametrize(
    ("listed", "named"), [((), "a, b"), (("b",), "b, a"), (("b", "a"), "b, a"), (("x", "b"), "b, a")]
)
def test_second_failure_evicts(listed: Sequence[str], named: str) -> None:
    made = plan({"a": {}, "b": {}}, WAITS, listed=listed)
    message = f"Workload eviction triggered due to multiple TAS assigned node failures, including: {named}"
    [write, event] = made.actions
    assert isinstance(write, Patch)
    status = write.steps[0].patch["status"]
    [evicted] = [item for item in status["conditions"] if item["type"] == "Evicted"]
    assert (evicted["reason"], evicted["message"]) == ("NodeFailures", message)
    assert status.get("unhealthyNodes") is None
    assert isinstance(event, RecordEvent)
    assert (event.reason, event.note) == ("EvictedDueToNodeFailures", message)


def test_waiting_pod_fails_with_its_cause_and_keeps_its_conditions() -> None:
    scheduled = condition("PodScheduled", False, "Unschedulable")
    waits = with_value(WAITS, ("status", "conditions"), [scheduled])
    write, event = plan(NOT_READY, RUNS, waits).actions
    assert isinstance(write, Patch)
    [step] = write.steps
    assert step.subresource == "status"
    assert step.patch["status"]["phase"] == "Failed"
    kept, added = step.patch["status"]["conditions"]
    assert kept == scheduled
    note = "Pod terminated by Admitq NodeController due to node taint"
    assert (added["type"], added["status"], added["reason"], added["message"]) == (
        "TerminatedByAdmitq",
        "True",
        "UnschedulableOnAssignedNode",
        note,
    )
    assert isinstance(event, RecordEvent)
    assert (event.type, event.reason, event.note) == ("Warning", "PodTerminatedByAdmitq", note)
