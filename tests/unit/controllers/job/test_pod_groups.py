"""Pod groups: composed, queued, started and stopped."""

from typing import Any

import pytest

from admitq.metrics.custom_labels import MetadataKey
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key
from admitq.workloads.template_injection import InjectedMarks
from tests.unit.controllers.builders import KINDS, NAMES, TEMPLATE, admitted, condition, workload
from tests.unit.controllers.job.pod_groups import (
    EVICTED,
    GATES,
    GROUP,
    PodWorld,
    gate_names,
    group_workload,
    owner,
    pod,
    pods_of_group,
)


async def test_pod_group_gets_workload_with_its_name_owned_by_all_pods() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *pods_of_group("held", "held", labels={"team": "x"}))
    await world.settle()
    created = world.get(KINDS.workloads, "g")
    assert created["metadata"]["annotations"] == {NAMES.is_group_workload: "true"}
    assert created["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert created["metadata"]["labels"] == {"team": "x"}
    assert [(pod_set["name"], pod_set["count"]) for pod_set in created["spec"]["podSets"]] == [("r", 2)]


@pytest.mark.parametrize("pod_name", ["a", "b"])
async def test_b10_label_to_copy_comes_from_whichever_pod_has_it(pod_name: str) -> None:
    world = PodWorld(label_keys_to_copy=("team", "tier"))
    labels: Any = {"a": {"tier": "t"}, "b": {}}
    labels[pod_name]["team"] = "x"
    world.put(PODS, *(pod(name, group="g", labels=labels[name]) for name in "ab"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == {"team": "x", "tier": "t"}


async def test_b10_pods_with_different_values_of_label_to_copy_are_reported() -> None:
    world = PodWorld(label_keys_to_copy=("team",))
    world.put(PODS, *(pod(name, group="g", labels={"team": name}) for name in "ab"))
    await world.settle()
    note = "pods of group 'g' have different values of team"
    assert world.recorder.events[-1] == ("a", "ErrWorkloadCompose", note)


def with_cpu(obj: dict[str, Any], cpu: int) -> dict[str, Any]:
    """Return the pod with another CPU request."""
    container = {**TEMPLATE["spec"]["containers"][0], "resources": {"requests": {"cpu": str(cpu)}}}
    return {**obj, "spec": {**obj["spec"], "containers": [container]}}


async def test_group_is_not_queued_when_pods_of_one_role_request_different_amounts() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), with_cpu(pod("b", group="g"), 30))
    await world.settle()
    note = "pods 'a' and 'b' name the same role 'r', and 'b' requests more cpu: give them different roles"
    assert world.recorder.events == [("a", "RoleMismatch", note)]
    assert world.stores.of(KINDS.workloads).get("ns", "g") is None


async def test_group_is_queued_when_pod_that_requests_more_has_failed() -> None:
    world = PodWorld()
    failed = with_cpu(pod("b", group="g", state="failed"), 30)
    world.put(PODS, pod("a", group="g"), failed, pod("c", group="g"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["spec"]["podSets"][0]["count"] == 2


async def test_pod_that_requests_more_than_its_role_was_admitted_with_stays_gated() -> None:
    world = PodWorld()
    world.put(PODS, pod("a", group="g"), with_cpu(pod("b", group="g"), 30))
    world.put(KINDS.workloads, group_workload(admitted))
    await world.pods.reconcile(GROUP)
    assert gate_names(world.get(PODS, "a")) == []
    assert gate_names(world.get(PODS, "b")) == [gate["name"] for gate in GATES]
    note = (
        "Not started: the pod requests more cpu than role 'r' of Workload 'g' was admitted with; delete it, "
        "and create one that requests no more"
    )
    assert ("b", "RoleMismatch", note) in world.recorder.events


async def test_pod_that_requests_no_more_than_its_role_was_charged_is_started() -> None:
    """The charge includes defaults of a LimitRange; the template does not."""
    world = PodWorld()
    world.put(PODS, *(with_cpu(pod(name, group="g"), 5) for name in "ab"))
    admitted_group = group_workload(admitted)
    admitted_group["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "10"}
    world.put(KINDS.workloads, admitted_group)
    await world.settle()
    assert [gate_names(world.get(PODS, name)) for name in "ab"] == [[], []]


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
        {
            **pod_,
            "metadata": {**pod_["metadata"], "labels": {**pod_["metadata"]["labels"], **size_label(value)}},
        }
        for pod_, value in zip(pods_of_group("held", "held"), (first, second), strict=True)
    ]
    world.put(PODS, *members)
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["labels"] == expected


def size_label(size: str | None) -> dict[str, str]:
    return {} if size is None else {"size": size}


async def test_b10_workload_of_single_pod_gets_metric_annotation() -> None:
    world = PodWorld(metric_values_to_copy=METRIC_VALUES)
    world.put(PODS, pod(annotations={"a.example/cost": "c7"}))
    await world.settle(Key("ns", "p"))
    (created,) = world.stores.of(KINDS.workloads).list()
    assert created["metadata"]["annotations"] == {"a.example/cost": "c7"}


async def test_incomplete_group_is_reported_and_failed_pods_are_released() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("held", "failed"))
    await world.settle()
    assert world.calls == ["json_patch pods/b"]
    assert world.recorder.events[-1] == (
        "a",
        "ErrWorkloadCompose",
        "'g' group has fewer runnable pods than expected",
    )


@pytest.mark.parametrize("known", [True, False])
async def test_running_pods_are_not_deleted_when_api_server_has_their_admission(known: bool) -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "running"))
    if known:
        world.put(KINDS.workloads, group_workload(workload))
    newer = group_workload(admitted, metadata={"resourceVersion": "8"})
    world.client.api["workloads", "g"] = newer
    assert await world.pods.reconcile(GROUP) == 1.0
    assert world.get(KINDS.workloads, "g") == newer
    await world.settle()
    assert world.calls == ["get workloads/g"]


async def test_running_pods_without_admission_are_deleted() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "running"))
    await world.pods.reconcile(GROUP)
    assert world.calls == [
        "get workloads/g",
        "patch pods/a/status",
        "delete pods/a",
        "patch pods/b/status",
        "delete pods/b",
    ]


async def test_pods_of_deactivated_group_are_deleted_and_released_after_retention() -> None:
    world = PodWorld(after_deactivated=0)
    evicted = condition("Evicted", True, "DeactivatedDueToMaximumExecutionTimeExceeded", since=5)
    world.put(PODS, *pods_of_group("deleted", "held"))
    deactivated = group_workload(workload, evicted)
    world.put(KINDS.workloads, {**deactivated, "spec": {**deactivated["spec"], "active": False}})
    await world.settle()
    assert world.calls.count("delete pods/b") == 1
    assert all("deletionTimestamp" in obj["metadata"] for obj in world.stores.of(PODS).list())
    assert all(obj["metadata"]["finalizers"] == [] for obj in world.stores.of(PODS).list())
    assert ("a", "Deleted", "Deleted job: deactivation retention period expired") in world.recorder.events


async def test_pods_become_owners_of_workload_of_their_group() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("held", "held"))
    world.put(KINDS.workloads, group_workload(workload, owners="a"))
    await world.settle()
    assert world.get(KINDS.workloads, "g")["metadata"]["ownerReferences"] == [owner("a"), owner("b")]
    assert ("g", "OwnerReferencesAdded", "Added 1 owner reference(s)") in world.recorder.events


async def test_pending_pod_of_group_is_started_in_place_of_failed_pod() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "failed", "held"))
    world.put(KINDS.workloads, group_workload(admitted, owners="abc"))
    await world.settle()
    assert gate_names(world.get(PODS, "c")) == []
    assert world.get(PODS, "b")["metadata"]["finalizers"] == []


@pytest.mark.parametrize(
    ("assigned", "marks", "gates"),
    [
        ({"topologyAssignment": {"levels": ["host"]}}, InjectedMarks(), [NAMES.topology_gate]),
        ({"delayedTopologyRequest": "Pending"}, InjectedMarks(), [NAMES.topology_gate]),
        ({}, InjectedMarks(), []),
        # Nothing would remove the gate.
        ({"topologyAssignment": {"levels": ["host"]}}, InjectedMarks(topology=False), []),
    ],
)
async def test_started_pods_keep_topology_gate_only_with_topology_assignment(
    assigned: dict[str, Any], marks: InjectedMarks, gates: list[str]
) -> None:
    world = PodWorld(marks=marks)
    world.put(PODS, *pods_of_group("held", "held"))
    placed = group_workload(admitted)
    placed["status"]["admission"]["podSetAssignments"][0] |= assigned
    world.put(KINDS.workloads, placed)
    await world.settle()
    assert gate_names(world.get(PODS, "a")) == gates
    removed = [gate for gate in (NAMES.admission_gate, NAMES.topology_gate) if gate not in gates]
    assert world.recorder.gates == [(gate, "cq", 10, True) for gate in removed] * 2


@pytest.mark.parametrize(
    ("held", "states", "labels", "counted"),
    [
        (group_workload(workload), ("running", "held"), {}, [("g", "Pod", 1)]),
        (group_workload(workload, EVICTED), ("running", "running"), {NAMES.podset: "r"}, []),
        (group_workload(admitted, EVICTED), ("running", "running"), {}, []),
        (group_workload(admitted), ("running", "running"), {}, []),
    ],
    ids=["never admitted", "evicted by another program", "evicted", "admitted"],
)
async def test_running_pods_of_group_without_grant_are_counted_as_excess(
    held: dict[str, Any], states: tuple[str, ...], labels: dict[str, str], counted: list[Any]
) -> None:
    world = PodWorld()
    world.put(KINDS.workloads, held)
    world.client.api["workloads", "g"] = held
    world.put(PODS, *pods_of_group(*states, labels=labels))
    await world.settle()
    assert world.recorder.excess == counted
