"""The priority with which calls of controllers wait for the rate limit."""

from typing import Any

import pytest

from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.plan import ActionPlan, Delete, Patch, plan_of
from admitq.controllers.pods.elastic_pods import STARTED_PODS
from admitq.controllers.pods.remaining_pods import ORPHANED_PODS
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.base import PatchStep
from admitq.integrations.kinds.job import JOB
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.resources import JOBS
from admitq.runtime.store import Key
from admitq.workloads.transitions import CHECKS_OUTSTANDING
from tests.unit.controllers.builders import (
    KINDS,
    admitted,
    cluster_queue,
    condition,
    job,
    local_queue,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING
from tests.unit.controllers.job.elastic_jobs import slice_
from tests.unit.controllers.pods.test_elastic_pods import CHAIN, elastic_pods_part, pod, world
from tests.unit.controllers.pods.test_excess_pods import GROWING
from tests.unit.controllers.world import World, cluster_scoped

__all__ = ["world"]

AHEAD, WATCH, RESERVATION, EVICTION, LIFECYCLE, READ, STATUS, QUEUE_STATUS, EVENT = CallPriority
KEY = Key("ns", "j")
EVICTED = condition("Evicted", True, "Preempted", "for another")
TARGET = condition("DeactivationTarget", True, "AdmissionCheck", "rejected")
UNADMITTED = condition("Admitted", False, "UnsatisfiedAdmissionChecks", CHECKS_OUTSTANDING)
CHECK = {"name": "c", "state": "Pending", "lastTransitionTime": timestamp(0), "message": ""}


def with_identity(queue: dict[str, Any]) -> dict[str, Any]:
    return {**queue, "metadata": {**queue["metadata"], "uid": "uid", "resourceVersion": "1"}}


def world_with_job(*objects: dict[str, Any], obj: dict[str, Any] | None = None) -> World:
    """Return a world with a Job, by default suspended, and its Workloads."""
    world = World()
    world.put(KINDS.resource_flavors, cluster_scoped("f", spec={"nodeLabels": {"pool": "spot"}}))
    world.put(JOBS, obj or job())
    world.put(KINDS.workloads, *objects)
    return world


def controller_of(world: World) -> JobController:
    return JobController(world.ctx, JOB, OwnerLookup(world.ctx))


@pytest.mark.parametrize(
    ("obj", "workloads", "calls"),
    [
        pytest.param(job(), [admitted()], [("patch jobs/j", RESERVATION)], id="start"),
        pytest.param(job(RUNNING), [admitted(EVICTED)], [("patch jobs/j", EVICTION)], id="stop"),
        pytest.param(
            job(), [reserved(EVICTED)], [("apply workloads/job-j-1/status", EVICTION)], id="release"
        ),
        pytest.param(
            job({"suspend": False}),
            [],
            [("list workloads", AHEAD), ("patch jobs/j", AHEAD)],
            id="stop of a job that runs beyond its grant",
        ),
        pytest.param(
            job(RUNNING, {"ready": 3, "active": 3}),
            [admitted()],
            [("patch workloads/job-j-1/status", LIFECYCLE)],
            id="readiness of pods",
        ),
    ],
)
async def test_calls_for_job_have_priority_of_their_purpose(
    obj: dict[str, Any], workloads: list[dict[str, Any]], calls: list[tuple[str, CallPriority]]
) -> None:
    world = world_with_job(*workloads, obj=obj)
    await controller_of(world).reconcile(KEY)
    calls_with_priority = list(zip(world.calls, world.client.priorities, strict=True))
    assert calls_with_priority[: len(calls)] == calls


async def test_creation_of_a_workload_comes_before_reports() -> None:
    world = world_with_job()
    await controller_of(world).reconcile(KEY)
    assert world.client.priorities == [LIFECYCLE]


async def test_all_calls_of_a_start_after_an_admission_have_the_priority_of_reservations() -> None:
    world = world_with_job(workload())
    world.stores.of(JOBS).remove(job(resourceVersion="9"))
    await controller_of(world).start(workload())
    assert world.calls[0] == "get jobs/j"
    assert set(world.client.priorities) == {RESERVATION}


@pytest.mark.parametrize(
    ("obj", "queue", "priority"),
    [
        pytest.param(admitted(), cluster_queue("HoldAndDrain"), EVICTION, id="eviction"),
        pytest.param(admitted(TARGET), cluster_queue(), EVICTION, id="deactivation"),
        pytest.param(
            admitted(spec={"active": False}),
            cluster_queue(),
            EVICTION,
            id="eviction of a deactivated Workload",
        ),
        pytest.param(
            reserved(UNADMITTED, admissionChecks=[CHECK]), None, EVICTION, id="release of a reservation"
        ),
        pytest.param(
            reserved(UNADMITTED, admissionChecks=[{**CHECK, "state": "Rejected"}]),
            None,
            EVICTION,
            id="reason for a deactivation",
        ),
        pytest.param(reserved(UNADMITTED), cluster_queue(), RESERVATION, id="admission"),
        pytest.param(workload(), None, STATUS, id="reason of a pending Workload"),
    ],
)
async def test_call_for_workload_has_priority_of_its_purpose(
    obj: dict[str, Any], queue: dict[str, Any] | None, priority: CallPriority
) -> None:
    world = World()
    world.put(KINDS.local_queues, with_identity(local_queue()))
    world.put(KINDS.workloads, obj)
    if queue is not None:
        world.put(KINDS.cluster_queues, with_identity(queue))
    await WorkloadController(world.ctx, world.core).reconcile(Key("ns", "job-j-1"))
    assert world.client.priorities == [priority]


async def test_release_of_a_gated_pod_has_the_priority_of_reservations(world: World) -> None:
    world.put(KINDS.workloads, slice_("first", 1))
    world.put(STARTED_PODS, pod("a"))
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert world.client.priorities == [RESERVATION]


async def test_deletion_of_an_excess_pod_has_the_priority_of_evictions(world: World) -> None:
    world.put(KINDS.workloads, *GROWING)
    world.put(STARTED_PODS, pod("a", gated=False, at=1), pod("b", gated=False, at=2))
    await elastic_pods_part(world).spec.reconcile(CHAIN)
    assert list(zip(world.calls, world.client.priorities, strict=True)) == [
        ("list workloads", READ),
        ("delete pods/b", EVICTION),
    ]


STATUS_PATCH = Patch(KINDS.workloads, workload(), (PatchStep({}, "status"),), "c")
DELETED_POD = Delete(ORPHANED_PODS, pod("a"))


@pytest.mark.parametrize(
    ("decided", "priority"),
    [
        pytest.param(plan_of(), STATUS, id="nothing"),
        pytest.param(plan_of(STATUS_PATCH), LIFECYCLE, id="status"),
        pytest.param(plan_of(Delete(KINDS.workloads, workload())), LIFECYCLE, id="deletion of a Workload"),
        pytest.param(plan_of(STATUS_PATCH, DELETED_POD), EVICTION, id="stop after a status"),
        pytest.param(
            plan_of(DELETED_POD, STATUS_PATCH, started_workload=admitted()), RESERVATION, id="start"
        ),
    ],
)
def test_plan_has_the_priority_of_its_most_urgent_action(decided: ActionPlan, priority: CallPriority) -> None:
    assert decided.priority is priority
