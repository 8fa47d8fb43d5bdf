"""Groups of pods: composed, queued, started, stopped."""

from typing import Any

import pytest

from admitq.metrics.custom_labels import MetadataKey
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import KINDS, NAMES, TEMPLATE, admitted, condition, workload
from tests.unit.controllers.job.pod_groups import (
    EVICTED,
    GATES,
    GROUP,
    PodWorld,
    gates,
    of_group,
    owner,
    pair,
    pod,
)


async def test_a_group_gets_the_workload_of_its_name_owned_by_all() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *pair("held", "held", labels={"team": "x"}))
    await world.settle()
    made = world.get(KINDS.workloads, "g")
    assert made["metadata"]["annotations"] == {NAMES.is_group_workload: "true"}
    assert made["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert made["metadata"]["labels"] == {"team": "x"}
    assert [(one["name"], one["count"]) for one in made["spec"]["podSets"]] == [("r", 2)]


@pytest.mark.parametrize("bearer", ["a", "b"])
async def test_b10_label_to_copy_comes_from_whichever_pod_has_it(bearer: str) -> None:
    world = PodWorld(label_keys_to_copy=("team", "tier"))
    labels: Any = {"a": {"tier": "t"}, "b": {}}
    labels[bearer]["team"] = "x"
    world.put(PODS, *(pod(name, group="g", labels=labels[name]) for name in "ab"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == {"team": "x", "tier": "t"}


async def test_b10_two_values_of_a_label_to_copy_are_a_dispute() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *(pod(name, group="g", labels={"team": name}) for name in "ab"))
    await world.settle()
    note = "pods of group 'g' have different values of team"
    assert world.told.events[-1] == ("a", "ErrWorkloadCompose", note)


def asking(found: dict[str, Any], cpu: int) -> dict[str, Any]:
    """The pod with another request."""
    container = {**TEMPLATE["spec"]["containers"][0], "resources": {"requests": {"cpu": str(cpu)}}}
    return {**found, "spec": {**found["spec"], "containers": [container]}}


async def test_group_is_not_queued_when_pods_of_one_role_ask_for_different_amounts() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), asking(pod("b", group="g"), 30))
    await world.settle()
    note = "pods 'a' and 'b' name the same role 'r', and 'b' asks for more cpu: give them different roles"
    assert world.told.events == [("a", "RoleMismatch", note)]
    assert world.stores.of(KINDS.workloads).get("ns", "g") is None


async def test_group_is_queued_when_a_pod_that_asks_for_more_has_failed() -> None:
    world = PodWorld()
    failed = asking(pod("b", group="g", state="failed"), 30)
    world.put(PODS, pod("a", group="g"), failed, pod("c", group="g"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["spec"]["podSets"][0]["count"] == 2


async def test_pod_that_asks_for_more_than_its_role_was_admitted_with_stays_at_its_gate() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), asking(pod("b", group="g"), 30))
    world.put(KINDS.workloads, of_group(admitted))
    await world.pods.reconcile(GROUP)
    assert gates(world.get(PODS, "a")) == []
    assert gates(world.get(PODS, "b")) == [gate["name"] for gate in GATES]
    note = (
        "Not started: the pod asks for more cpu than role 'r' of Workload 'g' was admitted with; delete it, "
        "and create one that asks for no more"
    )
    assert ("b", "RoleMismatch", note) in world.told.events


async def test_pod_that_asks_for_no_more_than_was_charged_is_started() -> None:
    """Defaults of a LimitRange are part of the charge, and not of the template."""
    world = PodWorld()
    world.put(PODS, *(asking(pod(name, group="g"), 5) for name in "ab"))
    found = of_group(admitted)
    found["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "10"}
    world.put(KINDS.workloads, found)
    await world.settle()
    assert [gates(world.get(PODS, name)) for name in "ab"] == [[], []]


METRIC_VALUES = (MetadataKey("labels", "size"), MetadataKey("annotations", "a.example/cost"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("large", "large", {"size": "large"}),
        ("large", None, {"size": "large"}),
        (None, "large", {"size": "large"}),
        ("large", "small", {}),
        (None, None, {}),
    ],
)
async def test_b10_workload_of_a_group_gets_the_metric_label_unless_its_pods_disagree(
    first: str | None, second: str | None, expected: dict[str, str]
) -> None:
    world = PodWorld(metric_values_to_copy=METRIC_VALUES)
    members = [
        {**one, "metadata": {**one["metadata"], "labels": {**one["metadata"]["labels"], **labelled(value)}}}
        for one, value in zip(pair("held", "held"), (first, second), strict=True)
    ]
    world.put(PODS, *members)
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == expected


def labelled(size: str | None) -> dict[str, str]:
    return {} if size is None else {"size": size}


async def test_b10_workload_of_a_pod_alone_gets_the_metric_annotation() -> None:
    world = PodWorld(metric_values_to_copy=METRIC_VALUES)
    world.put(PODS, pod(annotations={"a.example/cost": "c7"}))
    await world.settle(Key("ns", "p"))
    (made,) = world.stores.of(KINDS.workloads).list()
    assert made["metadata"]["annotations"] == {"a.example/cost": "c7"}


async def test_incomplete_group_is_reported_and_failed_pods_are_released() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "failed"))
    await world.settle()
    assert world.calls == ["json_patch pods/b"]
    assert world.told.events[-1] == (
        "a",
        "ErrWorkloadCompose",
        "'g' group has fewer runnable pods than expected",
    )


@pytest.mark.parametrize("known", [True, False])
async def test_pods_that_run_are_not_ended_before_their_admission_is_heard_of(known: bool) -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running"))
    if known:
        world.put(KINDS.workloads, of_group(workload))
    newer = of_group(admitted, metadata={"resourceVersion": "8"})
    world.client.api["workloads", "g"] = newer
    assert await world.pods.reconcile(GROUP) == 1.0
    assert world.get(KINDS.workloads, "g") == newer
    await world.settle()
    assert world.calls == ["get workloads/g"]


async def test_pods_without_admission_are_deleted() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "running"))
    await world.pods.reconcile(GROUP)
    assert world.calls == [
        "get workloads/g",
        "patch pods/a/status",
        "delete pods/a",
        "patch pods/b/status",
        "delete pods/b",
    ]


async def test_members_that_were_ended_for_good_are_let_go_when_their_time_is_over() -> None:
    world = PodWorld(after_deactivated=0)
    why = condition("Evicted", True, "DeactivatedDueToMaximumExecutionTimeExceeded", since=5)
    world.put(PODS, *pair("going", "held"))
    over = of_group(workload, why)
    world.put(KINDS.workloads, {**over, "spec": {**over["spec"], "active": False}})
    await world.settle()
    assert world.calls.count("delete pods/b") == 1
    assert all("deletionTimestamp" in one["metadata"] for one in world.stores.of(PODS).list())
    assert all(one["metadata"]["finalizers"] == [] for one in world.stores.of(PODS).list())
    assert ("a", "Deleted", "Deleted job: deactivation retention period expired") in world.told.events


async def test_members_become_owners_of_their_groups_workload() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "held"))
    world.put(KINDS.workloads, of_group(workload, owners="a"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert ("g", "OwnerReferencesAdded", "Added 1 owner reference(s)") in world.told.events


async def test_a_pod_is_started_beside_those_that_run_as_far_as_there_is_room() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "failed", "held"))
    world.put(KINDS.workloads, of_group(admitted, owners="abc"))
    await world.settle()
    assert gates(world.get(PODS, "c")) == []
    assert world.get(PODS, "b")["metadata"]["finalizers"] == []


async def test_pods_keep_waiting_for_their_place_where_a_topology_is_assigned() -> None:
    world = PodWorld()
    world.put(PODS, *pair("held", "held"))
    placed = of_group(admitted)
    placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": []}
    world.put(KINDS.workloads, placed)
    await world.settle()
    assert gates(world.get(PODS, "a")) == [NAMES.topology_gate]
    assert world.told.gates == [(NAMES.admission_gate, "cq", 10, True)] * 2


@pytest.mark.parametrize(
    ("held", "states", "labels", "counted"),
    [
        (of_group(workload), ("running", "held"), {}, [("g", "Pod", 1)]),
        (of_group(workload, EVICTED), ("running", "running"), {NAMES.podset: "r"}, []),
        (of_group(admitted, EVICTED), ("running", "running"), {}, []),
        (of_group(admitted), ("running", "running"), {}, []),
    ],
    ids=["never admitted", "evicted by another program", "evicted", "admitted"],
)
async def test_pods_of_a_group_that_run_without_a_grant_are_counted(
    held: dict[str, Any], states: tuple[str, ...], labels: dict[str, str], counted: list[Any]
) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, held)
    world.client.api["workloads", "g"] = held
    world.put(PODS, *pair(*states, labels=labels))
    await world.settle()
    assert world.told.excess == counted
