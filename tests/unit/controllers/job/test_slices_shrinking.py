"""Shrinking elastic jobs and their reclaimable pods."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.job.steps import decide_job
from admitq.controllers.plan import ActionPlan, Create, Patch
from admitq.integrations.kinds.job import JOB
from admitq.runtime.store import Key
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.topology_assignments import encode
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    OWNER,
    admitted,
    condition,
    condition_of,
    job,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING, apply_plan, case_of, plan_for
from tests.unit.controllers.job.elastic_jobs import ELASTIC, running_job, slice_, watch_started_pods
from tests.unit.controllers.world import World


def test_pending_slice_is_finished_when_job_shrinks_to_its_admitted_size() -> None:
    second = slice_("second", 5, workload, replaces="first")
    plan = plan_for(running_job(3), slice_("first", 3), second)
    assert condition_of(apply_plan(second, plan), "Finished")[:2] == ("True", "WorkloadSliceReplaced")


def test_shrinking_job_releases_quota_at_once_when_its_pods_have_ended() -> None:
    first = slice_("first", 3)
    shrunk = apply_plan(first, plan_for(running_job(2), first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 2
    released = apply_plan(shrunk, plan_for(running_job(2), shrunk))
    [assignment] = value_at(released, ("status", "admission", "podSetAssignments"))
    assert (assignment["count"], assignment["resourceUsage"]) == (2, {"cpu": "2"})


ON_HOSTS = encode(("kubernetes.io/hostname",), ((("a",), 2), (("b",), 1)))
UNREADABLE = {"levels": ["kubernetes.io/hostname"], "slices": []}


@pytest.mark.parametrize(
    ("size", "topology", "expected"),
    [
        (2, ON_HOSTS, encode(("kubernetes.io/hostname",), ((("a",), 2),))),
        (1, ON_HOSTS, encode(("kubernetes.io/hostname",), ((("a",), 1),))),
        (0, ON_HOSTS, None),
        (2, UNREADABLE, UNREADABLE),
    ],
)
def test_shrinking_job_leaves_its_last_domains(size: int, topology: JsonObject, expected: object) -> None:
    first = slice_("first", 3)
    value_at(first, ("status", "admission", "podSetAssignments"))[0]["topologyAssignment"] = topology
    shrunk = apply_plan(first, plan_for(running_job(size), first))
    released = apply_plan(shrunk, plan_for(running_job(size), shrunk))
    [assignment] = value_at(released, ("status", "admission", "podSetAssignments"))
    assert (assignment["count"], assignment.get("topologyAssignment")) == (size, expected)


def plan_with_pods(of_job: dict[str, Any], pods: int | None, *slices: dict[str, Any]) -> ActionPlan:
    """Return the plan for a job with so many running pods; None: the number is unknown."""
    case = case_of(of_job, *slices)
    counts = None if pods is None else {"main": pods}
    return decide_job(replace(case, lookups=replace(case.lookups, running_pods=lambda _: counts)))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [(0, 2), (2, 2), (3, 3), (4, 4), (5, 5), (9, 5), (None, 5)],
    ids=["none", "as requested", "one too many", "two too many", "all", "more than granted", "unknown"],
)
def test_slice_of_shrinking_job_keeps_quota_of_pods_that_have_not_ended(
    pods: int | None, expected: int
) -> None:
    first = slice_("first", 5)
    shrunk = apply_plan(first, plan_with_pods(running_job(2), pods, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == expected
    released = apply_plan(shrunk, plan_with_pods(running_job(2), pods, shrunk))
    [assignment] = value_at(released, ("status", "admission", "podSetAssignments"))
    assert assignment["count"] == expected


def test_job_that_grows_again_while_it_shrinks_keeps_its_slice() -> None:
    first = slice_("first", 5)
    assert plan_with_pods(running_job(4), 5, first).actions == ()
    assert isinstance(plan_with_pods(running_job(6), 5, first).actions[0], Create)


def test_reclaimable_pods_hold_no_quota_of_shrinking_slice() -> None:
    reclaimable = [{"name": "main", "count": 1}]
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=reclaimable)
    # One of three indexes is complete. Three pods run, one of which leaves.
    shrunk = apply_plan(first, plan_with_pods(indexed(3, completedIndexes="0"), 3, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 4
    assert shrunk["status"]["reclaimablePods"] == reclaimable


async def test_pods_of_shrinking_job_are_counted_until_they_have_ended() -> None:
    world = World()
    world.put(KINDS.workloads, slice_("first", 3))
    world.put(resource_of(JOB), running_job(2, status={"ready": 2, "active": 2}))
    controller = JobController(world.ctx, JOB, OwnerLookup(world.ctx))

    def size() -> int:
        return value_at(world.get(KINDS.workloads, "first"), ("spec", "podSets"))[0]["count"]

    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3, "the number of pods is unknown before they are watched"
    store = watch_started_pods(world)
    metadata = {"namespace": "ns", "labels": {NAMES.podset: "main"}, "ownerReferences": [OWNER]}
    annotations = {"annotations": {NAMES.workload_slice_name: "first"}}
    for number in range(3):
        identity = {"name": f"p{number}", "uid": f"uid-p{number}", "resourceVersion": "1"}
        deletion = {"deletionTimestamp": timestamp(9)} if number else {}
        pod = {**metadata, **annotations, **identity, **deletion}
        store.upsert({"metadata": pod, "status": {"phase": "Running"}})
    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3, "the number of pods is unknown before the first list"
    store.record_progress("1")
    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3
    store.remove({"metadata": {**metadata, "name": "p2", "uid": "uid-p2", "resourceVersion": "2"}})
    await controller.reconcile(Key("ns", "j"))
    assert size() == 2
    await controller.reconcile(Key("ns", "j"))
    assert await controller.reconcile(Key("ns", "j")) is None


STARTED = condition("PodsReady", True, "Started")


def indexed(pods: int, **status: Any) -> dict[str, Any]:
    spec = {**RUNNING, "parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return job(spec, {"ready": pods, **status}, annotations=ELASTIC)


@pytest.mark.parametrize(
    ("of_job", "before", "expected"),
    [
        pytest.param(indexed(3, completedIndexes="1,3-4"), 3, 1, id="scaled-down"),
        pytest.param(indexed(3, completedIndexes="3-4"), 2, 0, id="none-left"),
        pytest.param(indexed(1, completedIndexes="1-3"), 3, 0, id="one-pod-left"),
        pytest.param(indexed(3, completedIndexes="0-1"), 1, 2, id="more-completed"),
    ],
)
def test_c15_reclaimable_pods_of_an_elastic_job_are_derived_from_the_job(
    of_job: dict[str, Any], before: int, expected: int
) -> None:
    pods = of_job["spec"]["parallelism"]
    first = slice_("first", pods, admitted, STARTED, reclaimablePods=[{"name": "main", "count": before}])
    refreshed = apply_plan(first, plan_for(of_job, first))
    assert refreshed["status"]["reclaimablePods"] == [{"name": "main", "count": expected}]


def test_c15_reclaimable_pods_shrink_before_the_slice_does() -> None:
    of_job = indexed(3, completedIndexes="1,3-4")
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 3}])
    lowered = apply_plan(first, plan_for(of_job, first))
    assert lowered["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert lowered["spec"] == first["spec"]
    shrunk = apply_plan(lowered, plan_for(of_job, lowered))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 3
    assert shrunk["status"] == lowered["status"]


def test_c15_reclaimable_pods_do_not_grow_before_the_slice_has_shrunk() -> None:
    of_job = indexed(3, completedIndexes="0-1")
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 1}])
    shrunk = apply_plan(first, plan_for(of_job, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 3
    assert shrunk["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


def test_c15_reclaimable_pods_of_a_slice_do_not_shrink_while_the_job_grows() -> None:
    reclaimable = [{"name": "main", "count": 3}]
    first = slice_("first", 4, admitted, STARTED, reclaimablePods=reclaimable)
    second = slice_("second", 8, workload, replaces="first", at=1)
    plan = plan_for(indexed(8, completedIndexes="0"), first, second)
    assert apply_plan(first, plan)["status"]["reclaimablePods"] == reclaimable


def test_c15_reclaimable_pods_do_not_change_without_feature_gate() -> None:
    first = slice_("first", 3, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 3}])
    plan = plan_for(indexed(3, completedIndexes="1"), first, settings={"reclaimable_pods": False})
    assert apply_plan(first, plan)["status"]["reclaimablePods"] == [{"name": "main", "count": 3}]


def test_a2_admission_of_shrinking_slice_is_written_with_field_manager_of_admission() -> None:
    first = slice_("first", 3)
    shrunk = apply_plan(first, plan_for(running_job(2), first))
    [write] = plan_for(running_job(2), shrunk).actions
    assert isinstance(write, Patch)
    assert write.concern == "admission"


def test_a2_slice_with_reservation_but_without_admission_releases_nothing() -> None:
    first = slice_("first", 3)
    shrunk = apply_plan(first, plan_for(running_job(2), first))
    del shrunk["status"]["admission"]
    assert plan_for(running_job(2), shrunk).actions == ()
