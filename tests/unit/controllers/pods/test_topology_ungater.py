"""The controller that gives pods their topology domain: its patches, its retries and its watches."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.controller_specs import WhenServed
from admitq.controllers.json_patches import gate_removal
from admitq.controllers.pods.topology_pods import (
    PLACED_PODS,
    find_placed_workload,
    select_members,
    trim_placed_pod,
)
from admitq.controllers.pods.topology_slots import read_pod_state
from admitq.controllers.pods.topology_ungater import (
    TopologyUngater,
    UngatingDecision,
    find_pods_to_ungate,
)
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.workloads.template_injection import InjectedMarks
from admitq_api.json_objects import value_at, with_value, without_value
from tests.unit.controllers.builders import FINISHED, KINDS, NAMES, settings_with, timestamp
from tests.unit.controllers.job.elastic_jobs import EVICTED
from tests.unit.controllers.pods.placed_pods import HOST, OF_GROUP, placed_workload, pod
from tests.unit.controllers.world import World

WORKLOAD = Key("ns", "job-j-1")
UNAVAILABLE = ApiError(503, "ServiceUnavailable", "down")


@pytest.fixture
def world() -> World:
    result = World()
    served = TopologyUngater(result.ctx).when_served()
    result.stores.stores[PLACED_PODS] = Store(PLACED_PODS, transform=served.transform, indexes=served.indexes)
    return result


def ungater_part(world: World) -> WhenServed:
    table = registry.build_controllers(world.ctx, world.core)
    [part] = [part for part in table.when_served if part.resource == PLACED_PODS]
    return part


def host_of(world: World, name: str) -> str | None:
    """Return the host that a pod was ungated into; None if it is gated."""
    stored = world.get(PLACED_PODS, name)
    gated = stored["spec"].get("schedulingGates")
    return None if gated else value_at(stored, ("spec", "nodeSelector", HOST))


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        ([], None),
        ([placed_workload()], "job-j-1"),
        ([with_value(placed_workload(), ("status", "conditions"), [])], None),
        ([placed_workload(conditions=[*placed_workload()["status"]["conditions"], EVICTED])], None),
        ([placed_workload(conditions=[*placed_workload()["status"]["conditions"], FINISHED])], None),
        ([with_value(placed_workload(), ("metadata", "deletionTimestamp"), timestamp(1))], None),
        ([placed_workload(metadata={"labels": {NAMES.concurrent_admission_parent: "p"}})], None),
        (
            [
                placed_workload(name="first"),
                placed_workload(
                    name="second",
                    metadata={"annotations": {NAMES.workload_slice_replacement_for: "ns/first"}},
                ),
            ],
            "second",
        ),
    ],
)
def test_only_admitted_workload_places_pods(workloads: list[dict[str, Any]], expected: str | None) -> None:
    found = find_placed_workload(workloads, NAMES)
    assert (found and found["metadata"]["name"]) == expected


def owned_by_pod(uid: str) -> dict[str, Any]:
    """Return the Workload of a group with one pod."""
    return with_value(placed_workload(**OF_GROUP), ("metadata", "ownerReferences"), [{"uid": uid}])


@pytest.mark.parametrize(
    ("workload", "owners", "belongs"),
    [
        (placed_workload(), None, True),
        (placed_workload(), [], False),
        (
            with_value(placed_workload(**OF_GROUP), ("metadata", "ownerReferences"), [{"uid": "uid-p"}]),
            [],
            True,
        ),
        (with_value(placed_workload(**OF_GROUP), ("metadata", "ownerReferences"), [{"uid": "x"}]), [], False),
        (placed_workload(owner={"kind": "Pod", "uid": "uid-p", "controller": True}), [], True),
        (placed_workload(owner={"kind": "Pod", "uid": "x", "controller": True}), None, False),
    ],
)
def test_pod_must_belong_to_job_of_its_workload(
    workload: dict[str, Any], owners: list[Any] | None, belongs: bool
) -> None:
    named = pod("p") if owners is None else with_value(pod("p"), ("metadata", "ownerReferences"), owners)
    assert select_members(workload, NAMES)(named) == belongs


def decide(workload: dict[str, Any], *pods: dict[str, Any]) -> UngatingDecision:
    states = [state for pod in pods if (state := read_pod_state(pod, NAMES)) is not None]
    return find_pods_to_ungate(workload, states, NAMES)


def test_other_pods_are_ungated_although_one_excludes_its_domain() -> None:
    elsewhere = with_value(pod("p", 0), ("spec", "nodeSelector"), {HOST: "b"})
    decision = decide(placed_workload("a:1 b:1"), elsewhere, pod("q", 1))
    assert [placed.state.pod["metadata"]["name"] for placed in decision.placed] == ["q"]
    assert decision.problem == "pod p: its node selector excludes its topology domain"


def test_other_podsets_are_ungated_although_one_has_an_invalid_offset() -> None:
    workload = placed_workload("a:1")
    for path in (("status", "admission", "podSetAssignments"), ("spec", "podSets")):
        [item] = value_at(workload, path)
        workload = with_value(workload, path, [item, {**item, "name": "other"}])
    invalid = pod("p", 0, annotations={NAMES.pod_index_offset: "one"})
    decision = decide(workload, invalid, pod("q", 0, podset="other"))
    assert [placed.state.pod["metadata"]["name"] for placed in decision.placed] == ["q"]
    assert decision.problem == "pod p: its annotation pod-index-offset is not an integer"


def test_malformed_assignment_is_a_problem_only_for_gated_pods() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "topologyAssignment", "slices")
    workload = with_value(placed_workload(), path, [])
    assert decide(workload, pod("p")).problem.startswith("status.admission.podSetAssignments[0].topology")
    assert decide(workload, pod("p", on="a")).problem == ""


# --- patches --------------------------------------------------------------------------------------


def test_patch_adds_domain_and_removes_gate_of_pod_as_it_was_read() -> None:
    gated = pod("p", gates=["other"])
    assert gate_removal(gated, NAMES.topology_gate, {HOST: "a"}) == (
        {"op": "test", "path": "/metadata/uid", "value": "uid-p"},
        {"op": "test", "path": "/spec/schedulingGates/1", "value": {"name": NAMES.topology_gate}},
        {"op": "test", "path": "/spec/nodeSelector", "value": {"pool": "spot"}},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"pool": "spot", HOST: "a"}},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    )
    bare = without_value(gated, ("spec", "nodeSelector"))
    assert gate_removal(bare, NAMES.topology_gate, {HOST: "a"})[2:4] == (
        {"op": "test", "path": "/spec/nodeSelector", "value": None},
        {"op": "add", "path": "/spec/nodeSelector", "value": {HOST: "a"}},
    )


async def test_pods_of_workload_are_ungated_into_their_domains(world: World) -> None:
    world.put(KINDS.workloads, placed_workload("a:2 b:1"))
    world.put(PLACED_PODS, *(pod(f"p{index}", index, at=index) for index in (2, 0)))
    world.put(PLACED_PODS, pod("x", 1, workload="other"))
    await ungater_part(world).spec.reconcile(WORKLOAD)
    assert (host_of(world, "p0"), host_of(world, "p2"), host_of(world, "x")) == ("a", "b", None)
    gate = NAMES.topology_gate
    assert world.recorder.gates == [(gate, "cq", 10, False), (gate, "cq", 8, False)]
    await ungater_part(world).spec.reconcile(WORKLOAD)
    assert len(world.calls) == 2


async def test_pods_of_unadmitted_workload_stay_gated(world: World) -> None:
    world.put(KINDS.workloads, with_value(placed_workload(), ("status", "conditions"), []))
    world.put(PLACED_PODS, pod("p", 0))
    assert await ungater_part(world).spec.reconcile(WORKLOAD) is None
    assert world.calls == []


async def test_problem_is_reported_after_other_pods_are_ungated(world: World) -> None:
    world.put(KINDS.workloads, placed_workload("a:1 b:1"))
    world.put(PLACED_PODS, with_value(pod("p", 0), ("spec", "nodeSelector"), {HOST: "b"}), pod("q", 1))
    with pytest.raises(PermanentRejection, match="pod p"):
        await ungater_part(world).spec.reconcile(WORKLOAD)
    assert host_of(world, "q") == "b"


# --- unknown results ------------------------------------------------------------------------------


async def test_domain_of_pod_with_unknown_result_is_not_given_to_another_pod(world: World) -> None:
    """The patch of p took effect, but its answer was lost. Its replacement q is older than p by its time."""
    world.put(KINDS.workloads, placed_workload("a:1 b:1", {}))
    world.put(PLACED_PODS, pod("p", at=5))
    reconcile = ungater_part(world).spec.reconcile
    world.client.fails["json_patch"] = UNAVAILABLE
    with pytest.raises(ApiError):
        await reconcile(WORKLOAD)
    world.client.fails.clear()
    world.client.api["pods", "p"] = with_value(pod("p", at=5, on="a"), ("metadata", "resourceVersion"), "50")
    world.put(PLACED_PODS, pod("q", at=1))
    await reconcile(WORKLOAD)
    assert world.calls == ["json_patch pods/p", "get pods/p", "json_patch pods/q"]
    assert host_of(world, "q") == "b"
    await reconcile(WORKLOAD)
    assert len(world.calls) == 3


async def test_no_pod_is_patched_while_result_cannot_be_read(world: World) -> None:
    world.put(KINDS.workloads, placed_workload("a:1 b:1", {}))
    world.put(PLACED_PODS, pod("p"))
    reconcile = ungater_part(world).spec.reconcile
    world.client.fails.update({"json_patch": UNAVAILABLE, "get": UNAVAILABLE})
    for _ in range(3):
        with pytest.raises(ApiError):
            await reconcile(WORKLOAD)
    assert world.calls == ["json_patch pods/p", "get pods/p", "get pods/p"]


async def test_interrupted_patch_counts_as_unknown(world: World) -> None:
    world.put(KINDS.workloads, placed_workload("a:1", {}))
    world.put(PLACED_PODS, pod("p"))
    reconcile = ungater_part(world).spec.reconcile
    world.client.fails["json_patch"] = UNAVAILABLE
    interrupted = asyncio.create_task(_cancel_in_patch(world, reconcile))
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    world.client.fails.clear()
    await reconcile(WORKLOAD)
    assert "get pods/p" in world.calls


async def _cancel_in_patch(world: World, reconcile: Callable[[Key], Any]) -> None:
    async def hang(*_: Any, **__: Any) -> None:
        task.cancel()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(reconcile(WORKLOAD))
    patch, world.client.json_patch = world.client.json_patch, hang  # type: ignore[method-assign,assignment]
    try:
        await task
    finally:
        world.client.json_patch = patch  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ApiError(404, "NotFound", "gone"), None),
        (ApiError(422, "Invalid", "the test failed"), "Conflict"),
    ],
)
async def test_failed_patch_is_retried_unless_pod_is_gone(
    world: World, error: ApiError, raised: str | None
) -> None:
    world.put(KINDS.workloads, placed_workload("a:1"))
    world.put(PLACED_PODS, pod("p", 0))
    world.client.fails["json_patch"] = error
    reconcile = ungater_part(world).spec.reconcile(WORKLOAD)
    if raised is None:
        await reconcile
    else:
        with pytest.raises(ApiError) as caught:
            await reconcile
        assert caught.value.reason == raised


# --- watching -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "kind", "keys"),
    [
        (None, pod("p"), "added", [WORKLOAD]),
        (None, pod("p", workload="unplaced"), "added", []),
        (None, pod("p", on="a"), "added", []),
        (pod("p", on="a"), pod("p", on="a", phase="Running"), "modified", []),
        (pod("p", on="a"), pod("p", on="a", deleted=True), "modified", [WORKLOAD]),
        (pod("p", on="a"), None, "deleted", [WORKLOAD]),
    ],
)
def test_pod_enqueues_its_workload_if_it_waits_or_leaves(
    world: World, old: Any, new: Any, kind: Any, keys: list[Key]
) -> None:
    world.put(KINDS.workloads, placed_workload())
    change = ObjectChange(kind, Key("ns", "p"), new, None if old is None else orjson.dumps(old))
    [watch_of_pods, _] = ungater_part(world).spec.watches
    assert list(watch_of_pods.keys(change)) == keys
    assert watch_of_pods.refreshes(change)


@pytest.mark.parametrize(
    ("changed", "keys"),
    [
        (placed_workload(), [WORKLOAD]),
        (
            placed_workload(metadata={"annotations": {NAMES.workload_slice_name: "first"}}),
            [Key("ns", "first")],
        ),
        (with_value(placed_workload(), ("status", "admission", "podSetAssignments"), []), []),
        (without_value(placed_workload(), ("status", "admission")), []),
    ],
)
def test_only_workload_with_topology_enqueues_its_chain(
    world: World, changed: dict[str, Any], keys: list[Key]
) -> None:
    change = ObjectChange("modified", Key("ns", "any"), changed, None)
    [_, watch_of_workloads] = ungater_part(world).spec.watches
    assert list(watch_of_workloads.keys(change)) == keys


def test_pods_are_watched_once_a_workload_has_a_topology(world: World) -> None:
    part = ungater_part(world)
    assert part.start_condition is not None
    world.put(KINDS.workloads, without_value(placed_workload(), ("status", "admission")))
    assert not part.start_condition.is_met()
    assert list(part.known()) == []
    world.put(KINDS.workloads, placed_workload(metadata={"resourceVersion": "8"}))
    assert part.start_condition.is_met()
    assert list(part.known()) == [WORKLOAD]


@pytest.mark.parametrize(("marks", "runs"), [(InjectedMarks(), True), (InjectedMarks(topology=False), False)])
def test_ungater_runs_only_with_its_feature_gate(marks: InjectedMarks, runs: bool) -> None:
    world = World(settings_with(marks=marks))
    table = registry.build_controllers(world.ctx, world.core)
    assert any(part.resource == PLACED_PODS for part in table.when_served) == runs


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (pod("p"), {"apiVersion", "kind", "metadata", "spec", "status"}),
        (pod("p", on="a"), {"apiVersion", "kind", "metadata", "spec", "status"}),
        (with_value(pod("p", on="a"), ("spec", "nodeSelector"), {}), {"metadata"}),
    ],
)
def test_store_keeps_only_identity_of_pods_without_topology(
    stored: Mapping[str, Any], kept: set[str]
) -> None:
    trimmed = trim_placed_pod(with_value(stored, ("spec", "containers"), [{"name": "c"}]), NAMES)
    assert trimmed.keys() == kept
    assert "containers" not in trimmed.get("spec", {})
