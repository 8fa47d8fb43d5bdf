"""Jobs that run without a grant or request more than their grant."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.job.case import Ancestor
from admitq.controllers.job.matching import find_increases
from admitq.controllers.job.start_stop import started_job
from admitq.controllers.plan import ActionPlan, Create, RecordMetric
from admitq.integrations.base import ChildDifference, Integration
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.job_workloads import workload_pod_sets
from admitq_api.json_objects import apply_merge_patch, with_value
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    condition,
    job,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING, apply_plan, case_of, events_of, plan_for, reports_of
from tests.unit.controllers.world import CONFLICT, World
from tests.unit.integrations.raises import ELASTIC, RAISES, Raise, job_of
from tests.unit.integrations.raises import KINDS as KINDS_OF_JOBS


def raised(pods: int) -> dict[str, Any]:
    """Return a running job with so many pods, of which three were admitted."""
    return job({**RUNNING, "parallelism": pods, "completions": 50})


def test_stop_of_raised_job_reports_excess_over_its_admission() -> None:
    plan = plan_for(raised(5), admitted())
    assert events_of(plan) == [
        ("Stopped", "No matching Workload; restoring pod templates according to existent Workload"),
        ("ExceedsAdmission", "podset main requests 5 pods, 3 admitted"),
    ]


def test_job_that_lowers_its_pod_count_is_stopped_without_excess_event() -> None:
    assert [reason for reason, _ in events_of(plan_for(raised(2), admitted()))] == ["Stopped"]


# --- every kind -----------------------------------------------------------------------------------


def admitted_as(kind: Integration, **annotations: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a running job of the kind and its admitted Workload."""
    pending_job = kind.with_suspend(job_of(kind), True)
    metadata = {**job()["metadata"], "name": pending_job["metadata"]["name"], "annotations": annotations}
    pending_job = {**pending_job, "metadata": metadata}
    case = case_of(pending_job, integration=kind)
    pod_sets = workload_pod_sets(case)
    assignments = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {}} for pod_set in pod_sets
    ]
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    granted_workload = admitted(
        owner=owner,
        spec={"podSets": pod_sets},
        admission={"clusterQueue": "cq", "podSetAssignments": assignments},
    )
    return dict(started_job(case, granted_workload)), granted_workload


@pytest.mark.parametrize("kind", KINDS_OF_JOBS, ids=lambda kind: kind.framework)
def test_running_job_of_every_kind_matches_its_admission(kind: Integration) -> None:
    running, granted_workload = admitted_as(kind)
    plan = plan_for(running, granted_workload, integration=kind)
    assert "Stopped" not in [reason for reason, _ in events_of(plan)]
    assert find_increases(case_of(running, granted_workload, integration=kind), granted_workload) == []


@pytest.mark.parametrize("raised", RAISES, ids=lambda raised: f"{raised.framework} {raised.path}")
def test_running_job_of_every_kind_is_stopped_when_its_requests_are_raised(raised: Raise) -> None:
    kind = raised.kind
    running, granted_workload = admitted_as(kind)
    raised_job = raised.of(running)
    assert [
        str(increase)
        for increase in find_increases(
            case_of(raised_job, granted_workload, integration=kind), granted_workload
        )
    ] == [raised.says]
    plan = plan_for(raised_job, granted_workload, integration=kind)
    assert ("ExceedsAdmission", raised.says) in events_of(plan)
    assert plan.stops_unadmitted
    assert kind.is_suspended(apply_plan(raised_job, plan), NAMES) or kind.lifecycle.is_stop_in_progress(
        apply_plan(raised_job, plan), NAMES
    )


@pytest.mark.parametrize("raised", ELASTIC, ids=lambda raised: raised.framework)
def test_growing_elastic_job_of_every_kind_runs_on_and_gets_larger_slice(raised: Raise) -> None:
    kind = raised.kind
    running, granted_workload = admitted_as(kind, **{NAMES.elastic_job: "true"})
    plan = plan_for(raised.of(running), granted_workload, integration=kind, settings={"elastic_jobs": True})
    [created] = [action for action in plan.actions if isinstance(action, Create)]
    assert (
        created.obj["metadata"]["annotations"][NAMES.workload_slice_replacement_for]
        == f"ns/{granted_workload['metadata']['name']}"
    )
    assert not any(reason in ("Stopped", "ExceedsAdmission") for reason, _ in events_of(plan))
    requested = {pod_set["name"]: pod_set["count"] for pod_set in created.obj["spec"]["podSets"]}
    granted = {pod_set["name"]: pod_set["count"] for pod_set in granted_workload["spec"]["podSets"]}
    assert sum(requested.values()) > sum(granted.values())


# --- counted excess pods --------------------------------------------------------------------------

UNSUSPENDED = {"suspend": False}
UNRESERVED = workload(condition("QuotaReserved", False, "Pending"))
EVICTED = condition("Evicted", True, "Preempted", "preempted")
WITH_PREBUILT = {"labels": {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "mine"}}
ANCESTOR_JOB = job(labels={NAMES.queue_name: "of-ancestor"})
UNADMITTED_ANCESTOR = Ancestor(ANCESTOR_JOB, admitted=False)
RAISED_CHILD = replace(UNADMITTED_ANCESTOR, difference=ChildDifference.PODS, holds_quota=True)
NO_LABELS = {"labels": {}}


def counted_pods(plan: ActionPlan) -> list[tuple[str, str, int]]:
    """Return the excess pods that a plan counts, each as LocalQueue, kind and number."""
    world = World()
    counts: list[tuple[str, str, int]] = []

    def excess_pods(obj: dict[str, Any], kind: str, number: int) -> None:
        counts.append((obj["spec"]["queueName"], kind, number))

    world.recorder.excess_pods = excess_pods  # type: ignore[method-assign]
    for report in reports_of(plan):
        if isinstance(report, RecordMetric):
            report.what(world.ctx.metrics, {})
    return counts


@pytest.mark.parametrize(
    ("obj", "workloads", "parts", "expected"),
    [
        pytest.param(job(UNSUSPENDED), [UNRESERVED], {}, ("lq", 3), id="unsuspended by its user"),
        pytest.param(job(UNSUSPENDED), [], {}, ("lq", 3), id="without Workload"),
        pytest.param(raised(5), [UNRESERVED], {}, ("lq", 5), id="unsuspended and raised"),
        pytest.param(job(UNSUSPENDED, **WITH_PREBUILT), [], {}, ("lq", 3), id="without prebuilt Workload"),
        pytest.param(raised(5), [admitted()], {}, ("lq", 2), id="raised"),
        pytest.param(job(UNSUSPENDED), [workload(EVICTED)], {}, ("lq", 3), id="unsuspended after eviction"),
        pytest.param(job(UNSUSPENDED), [workload(FINISHED)], {}, ("lq", 3), id="unsuspended after the end"),
        pytest.param(
            job(UNSUSPENDED, **NO_LABELS),
            [],
            {"ancestor": UNADMITTED_ANCESTOR},
            ("of-ancestor", 3),
            id="child",
        ),
        pytest.param(
            job(UNSUSPENDED, **NO_LABELS),
            [],
            {"ancestor": RAISED_CHILD},
            ("of-ancestor", 3),
            id="raised child",
        ),
    ],
)
def test_pods_of_running_job_without_grant_are_counted_as_excess(
    obj: dict[str, Any], workloads: list[dict[str, Any]], parts: Any, expected: tuple[str, int]
) -> None:
    queue, number = expected
    assert counted_pods(plan_for(obj, *workloads, **parts)) == [(queue, "Job.batch", number)]


@pytest.mark.parametrize(
    ("obj", "workloads", "parts"),
    [
        pytest.param(job(), [], {}, id="created suspended"),
        pytest.param(job(), [UNRESERVED], {}, id="pending"),
        pytest.param(job({"template": RUNNING["template"]}), [UNRESERVED], {}, id="restored"),
        pytest.param(job(RUNNING), [admitted(EVICTED)], {}, id="evicted"),
        pytest.param(job(RUNNING), [workload(EVICTED)], {}, id="evicted by another program"),
        pytest.param(job(RUNNING), [admitted(FINISHED)], {}, id="Workload finished"),
        pytest.param(job(UNSUSPENDED), [reserved()], {}, id="quota is reserved"),
        pytest.param(
            job(RUNNING, **NO_LABELS),
            [],
            {"ancestor": replace(UNADMITTED_ANCESTOR, holds_quota=True)},
            id="quota of the ancestor is reserved",
        ),
        pytest.param(
            job({**RUNNING, "suspend": True}, annotations={NAMES.stopping: "true"}),
            [UNRESERVED],
            {},
            id="stop was begun",
        ),
    ],
)
def test_pods_of_granted_or_stopped_job_are_not_counted_as_excess(
    obj: dict[str, Any], workloads: list[dict[str, Any]], parts: Any
) -> None:
    assert counted_pods(plan_for(obj, *workloads, **parts)) == []


async def test_excess_is_counted_when_later_step_of_stop_conflicts() -> None:
    world = World()
    started_job = job(UNSUSPENDED, {"startTime": timestamp(5)})
    world.put(JOBS, started_job)
    waiting = with_value(UNRESERVED, ("metadata", "labels", NAMES.job_uid), "uid-j")
    world.put(KINDS.workloads, waiting)
    world.client.api["workloads", "job-j-1"] = waiting
    patch, subresources = world.client.merge_patch, list[Any]()

    async def conflicting_patch(*args: Any, **named: Any) -> dict[str, Any]:
        if args[0] == JOBS and not subresources and named.get("subresource") == "status":
            subresources.append("status")
            world.client.api["jobs", "j"] = world.get(JOBS, "j")
            raise CONFLICT
        return await patch(*args, **named)

    world.client.merge_patch = conflicting_patch  # type: ignore[method-assign]
    await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert subresources
    assert world.recorder.excess == [("job-j-1", "Job.batch", 3)]
    assert [reason for _, reason, _ in world.recorder.events] == ["Stopped"]
    assert NAMES.stopping not in world.get(JOBS, "j")["metadata"].get("annotations", {})


# --- controller -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    result = World()
    result.put(KINDS.workloads, admitted())
    result.put(JOBS, raised(5))
    result.client.api["workloads", "job-j-1"] = admitted()
    return result


def job_controller_spec(world: World) -> Any:
    table = registry.build_controllers(world.ctx, world.core)
    [part] = [part for part in table.when_served if part.resource == JOBS]
    return part.spec


def change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> ObjectChange:
    return ObjectChange("modified", Key("ns", "j"), new, None if old is None else orjson.dumps(old))


GENERATION = ("metadata", "generation")


@pytest.mark.parametrize(
    ("old", "new", "urgent"),
    [
        (raised(3), with_value(raised(5), GENERATION, 2), True),
        (job(), with_value(raised(3), GENERATION, 2), True),
        (raised(3), raised(3), False),
        (raised(3), with_value(job(), GENERATION, 2), False),
        (None, raised(3), False),
        (raised(3), None, False),
    ],
)
def test_changed_spec_of_running_job_is_urgent(
    world: World, old: dict[str, Any] | None, new: dict[str, Any] | None, urgent: bool
) -> None:
    spec = job_controller_spec(world)
    [watch] = [watch for watch in spec.watches if watch.resource == JOBS]
    assert watch.urgent(change(old, new)) is urgent
    assert spec.urgent_workers > 0


async def test_stop_of_a_raised_job_reads_its_workload_and_no_list(world: World) -> None:
    await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert world.calls[:2] == ["get workloads/job-j-1", "patch jobs/j"]
    assert world.recorder.excess == [("job-j-1", "Job.batch", 2)]


async def test_stop_with_conflict_is_retried_at_once(world: World) -> None:
    newer = with_value(raised(5), ("metadata", "resourceVersion"), "9")
    world.client.api["jobs", "j"] = newer
    failures = [CONFLICT, CONFLICT]
    patch = world.client.merge_patch

    async def conflicting_patch(*args: Any, **named: Any) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return await patch(*args, **named)

    world.client.merge_patch = conflicting_patch  # type: ignore[method-assign]
    await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert world.get(JOBS, "j")["spec"]["suspend"] is True
    assert world.recorder.excess == [("job-j-1", "Job.batch", 2)]


async def test_stop_of_running_job_does_not_conflict_with_status_updates(world: World) -> None:
    """While pods start, the Job controller updates their counts several times a second."""
    known, stored = (
        apply_merge_patch(raised(5), {"status": {"active": pods}, "metadata": {"resourceVersion": version}})
        for pods, version in ((1, "8"), (4, "9"))
    )
    world.put(JOBS, known)
    json_patch = world.client.json_patch

    async def json_patch_after_update(*args: Any, **named: Any) -> dict[str, Any]:
        world.put(JOBS, stored)
        return await json_patch(*args, **named)

    world.client.json_patch = json_patch_after_update  # type: ignore[method-assign]
    await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert world.calls[:2] == ["get workloads/job-j-1", "json_patch jobs/j"]
    assert world.get(JOBS, "j")["spec"]["suspend"] is True
    assert world.recorder.excess == [("job-j-1", "Job.batch", 2)]


async def test_stop_with_repeated_conflicts_is_left_to_next_reconcile(world: World) -> None:
    world.client.api["jobs", "j"] = raised(5)
    world.client.fails["patch"] = CONFLICT
    with pytest.raises(ApiError):
        await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert world.calls.count("patch jobs/j") == 4


async def test_raised_job_is_not_stopped_when_api_server_has_newer_workload(world: World) -> None:
    world.client.api["workloads", "job-j-1"] = with_value(admitted(), ("metadata", "resourceVersion"), "99")
    assert await job_controller_spec(world).reconcile(Key("ns", "j")) == 1.0
    assert world.calls == ["get workloads/job-j-1"]


async def test_workloads_are_listed_when_stored_workload_no_longer_exists(world: World) -> None:
    world.client.api.clear()
    await job_controller_spec(world).reconcile(Key("ns", "j"))
    assert world.calls[:3] == ["get workloads/job-j-1", "list workloads", "patch jobs/j"]


def of_generation(pods: int, generation: int) -> dict[str, Any]:
    """Return a running job with so many pods and a generation."""
    obj = raised(pods)
    metadata = {**obj["metadata"], "generation": generation, "resourceVersion": str(generation + 10)}
    return {**obj, "metadata": metadata}


ANOTHER_WORKLOAD = {
    **admitted(),
    "metadata": {**admitted()["metadata"], "uid": "another", "resourceVersion": "99"},
}


@pytest.mark.parametrize(
    ("generation", "workload", "is_read"),
    [
        pytest.param(5, admitted(), False, id="one change since it matched"),
        pytest.param(6, admitted(), True, id="more than one change"),
        pytest.param(5, ANOTHER_WORKLOAD, True, id="another Workload"),
    ],
)
async def test_workload_is_not_read_when_raise_is_only_change_since_job_matched(
    generation: int, workload: dict[str, Any], is_read: bool
) -> None:
    world = World()
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, of_generation(3, 4))
    reconcile = job_controller_spec(world).reconcile
    await reconcile(Key("ns", "j"))
    assert world.calls == []
    world.client.api["workloads", "job-j-1"] = workload
    world.put(KINDS.workloads, workload)
    world.put(JOBS, of_generation(5, generation))
    await reconcile(Key("ns", "j"))
    assert ("get workloads/job-j-1" in world.calls) is is_read
    assert "patch jobs/j" in world.calls
