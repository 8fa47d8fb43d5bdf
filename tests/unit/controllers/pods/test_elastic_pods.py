"""Which pods of elastic jobs are ungated and when, and the recorded seconds at their gate."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.controller_specs import WhenServed
from admitq.controllers.json_patches import gate_removal
from admitq.controllers.plan import RecordMetric
from admitq.controllers.pods.elastic_pods import (
    STARTED_PODS,
    ElasticPodsController,
    allowed_counts,
    filter_pods_of_job,
    find_admitted_slice,
    find_pods_to_ungate,
    remove_gates,
    trim_elastic_pod,
)
from admitq.controllers.settings import ControllerSettings
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.runtime.errors import ApiError
from admitq.runtime.store import Key, ObjectChange, Store
from admitq_api.json_objects import with_value, without_value
from tests.unit.controllers.builders import (
    ADMITTED,
    FINISHED,
    KINDS,
    NAMES,
    OWNER,
    admitted,
    instant,
    reserved,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.job.elastic_jobs import EVICTED, slice_
from tests.unit.controllers.world import World

CHAIN = Key("ns", "first")
LEFTOVER = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 3}]}


def pod(name: str, *, gated: bool = True, podset: str = "main", **parts: Any) -> dict[str, Any]:
    gates = [{"name": "other"}, {"name": NAMES.elastic_gate}] if gated else [{"name": "other"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "creationTimestamp": timestamp(parts.pop("at", 0)),
            "labels": {NAMES.podset: podset, "app": "x"},
            "annotations": {NAMES.workload_slice_name: parts.pop("chain", "first")},
            "ownerReferences": [OWNER],
            **parts.pop("metadata", {}),
        },
        "spec": {"schedulingGates": gates, "containers": [{"name": "c"}]},
        "status": {"phase": parts.pop("phase", "Pending")},
    }


@pytest.mark.parametrize(
    ("pods", "room", "expected"),
    [
        ([pod("a"), pod("b"), pod("c")], {"main": 2}, ["a", "b"]),
        ([pod("a", at=2), pod("b", at=1), pod("c")], {"main": 2}, ["c", "b"]),
        ([pod("a", gated=False), pod("b"), pod("c")], {"main": 2}, ["b"]),
        ([pod("a", gated=False), pod("b", gated=False), pod("c")], {"main": 2}, []),
        ([pod("a", gated=False, phase="Failed"), pod("b"), pod("c")], {"main": 1}, ["b"]),
        # A deleted pod runs until it has ended; a pod that was deleted while gated never runs.
        ([pod("a", gated=False, metadata={"deletionTimestamp": timestamp(1)}), pod("b")], {"main": 1}, []),
        ([pod("a", metadata={"deletionTimestamp": timestamp(1)}), pod("b")], {"main": 1}, ["b"]),
        ([pod("a", podset="head"), pod("b", podset="workers")], {"head": 1}, ["a"]),
        ([pod("a")], {}, []),
    ],
)
def test_pods_are_ungated_up_to_admitted_count(
    pods: list[dict[str, Any]], room: Mapping[str, int], expected: list[str]
) -> None:
    assert [pod_["metadata"]["name"] for pod_ in find_pods_to_ungate(pods, room, NAMES)] == expected


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (slice_("first", 3), {"main": 3}),
        (slice_("first", 3, reserved), {}),
        (slice_("first", 3, admitted, EVICTED), {}),
        (slice_("first", 3, admitted, FINISHED), {}),
        # Another program removed the reservation only.
        (slice_("first", 3, workload, ADMITTED, admission=LEFTOVER), {}),
        (with_value(slice_("first", 3), ("metadata", "deletionTimestamp"), timestamp(1)), {}),
    ],
)
def test_only_admitted_slice_allows_ungated_pods(of: dict[str, Any], expected: Mapping[str, int]) -> None:
    assert allowed_counts(of) == expected


@pytest.mark.parametrize(
    ("kind", "owners", "counted"),
    [
        ("Job", [OWNER], True),
        ("Job", [], False),
        ("Job", [{**OWNER, "uid": "other"}], False),
        ("Job", [{**OWNER, "controller": False}], False),
        ("RayJob", [{**OWNER, "apiVersion": "ray.io/v1", "kind": "RayCluster", "uid": "other"}], True),
    ],
)
def test_pod_of_chain_counts_only_when_job_of_chain_owns_it(
    kind: str, owners: list[dict[str, Any]], counted: bool
) -> None:
    of = {**OWNER, "kind": kind, **({"apiVersion": "ray.io/v1"} if kind == "RayJob" else {})}
    slices = [with_value(slice_("first", 3), ("metadata", "ownerReferences"), [of])]
    pod_ = with_value(pod("a"), ("metadata", "ownerReferences"), owners)
    assert filter_pods_of_job(slices, [pod_], (JOB, RAY_JOB)) == ([pod_] if counted else [])


def test_e_assignment_without_count_allows_all_pods_of_its_podset() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    assert allowed_counts(without_value(slice_("first", 3), path)) == {"main": 3}


def test_c14_scaled_down_podset_allows_only_its_lower_count() -> None:
    scaled = with_value(slice_("first", 3), ("spec", "podSets", 0, "count"), 2)
    assert allowed_counts(scaled) == {"main": 2}


SECOND_SLICE = slice_("second", 5, replaces="first", at=1)


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([], None),
        ([slice_("first", 3, workload)], None),
        ([slice_("first", 3)], "first"),
        ([slice_("first", 3), slice_("second", 5, workload, replaces="first", at=1)], "first"),
        ([slice_("first", 3), slice_("second", 5, reserved, replaces="first", at=1)], "first"),
        # The old slice is about to be finished. Both may have been created in one second.
        ([slice_("first", 3), SECOND_SLICE], "second"),
        ([slice_("first", 3), slice_("second", 5, replaces="first")], "second"),
        ([slice_("first", 3, admitted, FINISHED), SECOND_SLICE], "second"),
        # The first slice was evicted and is admitted again.
        ([slice_("first", 3), slice_("third", 4, at=2)], "third"),
    ],
)
def test_latest_admitted_slice_of_chain_is_found(slices: list[dict[str, Any]], expected: str | None) -> None:
    latest = find_admitted_slice(slices, NAMES)
    assert (None if latest is None else latest["metadata"]["name"]) == expected
    assert latest == find_admitted_slice(reversed(slices), NAMES)


def test_gate_removal_patch_tests_uid_and_removes_only_one_gate() -> None:
    assert gate_removal(pod("a"), NAMES.elastic_gate) == (
        {"op": "test", "path": "/metadata/uid", "value": "uid-a"},
        {"op": "test", "path": "/spec/schedulingGates/1", "value": {"name": NAMES.elastic_gate}},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    )


@pytest.mark.parametrize(("created", "seconds"), [(-5, 10), (4, 6), (12, 0)])
def test_gated_seconds_start_at_admission_or_later_creation_of_pod(created: float, seconds: float) -> None:
    records: list[Any] = []

    class Metrics:
        def gate_removed(self, *args: Any, **named: Any) -> None:
            records.append((*args, named))

    plan = remove_gates([slice_("first", 3)], [pod("a", at=created)], NAMES, instant(10))
    for action in plan.actions:
        if isinstance(action, RecordMetric):
            action.what(Metrics(), {})  # type: ignore[arg-type]
    assert records == [(NAMES.elastic_gate, "cq", seconds, {"is_group": False})]


# --- controller -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    result = World()
    served = ElasticPodsController(result.ctx).when_served()
    result.stores.stores[STARTED_PODS] = Store(
        STARTED_PODS, transform=served.transform, indexes=served.indexes
    )
    return result


def elastic_pods_part(world: World) -> WhenServed:
    table = registry.build_controllers(world.ctx, world.core)
    [part] = [part for part in table.when_served if part.resource == STARTED_PODS]
    return part


async def test_pods_of_chain_are_ungated_until_quota_is_used(world: World) -> None:
    world.put(KINDS.workloads, slice_("first", 2))
    world.put(STARTED_PODS, pod("a", at=1), pod("x", chain="other"), pod("b", at=2), pod("c", at=3))
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert world.calls == ["json_patch pods/a", "json_patch pods/b"]
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert len(world.calls) == 2
    assert world.recorder.gates == [
        (NAMES.elastic_gate, "cq", 9, False),
        (NAMES.elastic_gate, "cq", 8, False),
    ]
    ended = pod("a", gated=False, phase="Succeeded", metadata={"resourceVersion": "900"})
    world.put(STARTED_PODS, ended)
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert world.calls[2:] == ["json_patch pods/c"]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ApiError(404, "NotFound", "gone"), None),
        (ApiError(422, "Invalid", "the test failed"), "Conflict"),
        (ApiError(503, "ServiceUnavailable", "down"), "ServiceUnavailable"),
    ],
)
async def test_failed_gate_removal_is_retried_unless_pod_is_gone(
    world: World, error: ApiError, raised: str | None
) -> None:
    world.put(KINDS.workloads, slice_("first", 2))
    world.put(STARTED_PODS, pod("a"))
    world.client.fails["json_patch"] = error
    reconcile = elastic_pods_part(world).spec.reconcile(CHAIN)
    if raised is None:
        await reconcile
    else:
        with pytest.raises(ApiError) as caught:
            await reconcile
        assert caught.value.reason == raised


@pytest.mark.parametrize(
    "changed",
    [
        lambda: (None, pod("a")),
        lambda: (pod("a"), pod("a", phase="Running")),
        lambda: (pod("a"), None),
        lambda: (slice_("first", 2, reserved), slice_("first", 2)),
        lambda: (slice_("first", 2), slice_("first", 1)),
        lambda: (None, slice_("second", 5, replaces="first")),
    ],
)
def test_changed_pod_or_slice_enqueues_its_chain(
    world: World, changed: Callable[[], tuple[Any, Any]]
) -> None:
    old, new = changed()
    change = ObjectChange("modified", Key("ns", "any"), new, None if old is None else orjson.dumps(old))
    for watch in elastic_pods_part(world).spec.watches:
        assert list(watch.keys(change)) == [CHAIN]


def test_pod_or_workload_without_slice_enqueues_nothing(world: World) -> None:
    without_slice = pod("a", metadata={"annotations": {}})
    for watch in elastic_pods_part(world).spec.watches:
        for obj in (without_slice, workload()):
            assert list(watch.keys(ObjectChange("added", Key("ns", "a"), obj, None))) == []


def test_elastic_pod_store_keeps_only_needed_fields() -> None:
    without_slice = pod("a", metadata={"annotations": {}})
    assert set(trim_elastic_pod(without_slice, NAMES)) == {"metadata"}
    assert set(trim_elastic_pod(pod("a"), NAMES)["spec"]) == {"schedulingGates"}


def test_pods_are_watched_once_first_slice_exists(world: World) -> None:
    start_condition = elastic_pods_part(world).start_condition
    assert start_condition is not None
    world.put(KINDS.workloads, workload(name="plain"))
    assert (start_condition.resource, start_condition.is_met()) == (KINDS.workloads, False)
    world.put(KINDS.workloads, slice_("first", 2, workload))
    assert start_condition.is_met()


@pytest.mark.parametrize(
    "settings",
    [settings_with(elastic_jobs=False), settings_with(integrations=())],
    ids=["feature gate is off", "no elastic kind is enabled"],
)
def test_pods_are_not_watched_where_no_job_can_be_elastic(world: World, settings: ControllerSettings) -> None:
    table = registry.build_controllers(replace(world.ctx, settings=settings), world.core)
    assert not any(part.resource == STARTED_PODS for part in table.when_served)
