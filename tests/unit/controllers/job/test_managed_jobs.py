"""Which jobs are managed."""

from typing import Any

import pytest

from admitq.controllers.job.case import Ancestor
from admitq.controllers.plan import ActionPlan, Create, Patch, RecordEvent
from tests.unit.controllers.builders import admitted, job, workload
from tests.unit.controllers.job.decisions import COMPLETE, EVICTED, RUNNING, actions_of, events_of, plan_for


@pytest.mark.parametrize(
    "parts",
    [
        {"namespace_matches": False},
        {"ancestor": Ancestor(job(), admitted=True)},
        {"job_": job(labels={})},
    ],
)
def test_unmanaged_job_gets_no_actions(parts: Any) -> None:
    parts = {"job_": job({"suspend": False}), **parts}
    assert plan_for(parts.pop("job_"), **parts) == ActionPlan()


@pytest.mark.parametrize(
    ("job_", "obj", "actions"),
    [
        (job(RUNNING, COMPLETE), admitted(), ["patch Workload"]),
        (job(RUNNING), admitted(EVICTED), ["patch Job"]),
    ],
    ids=["finished", "evicted"],
)
def test_job_with_quota_in_unselected_namespace_is_still_finished_and_stopped(
    job_: dict[str, Any], obj: dict[str, Any], actions: list[str]
) -> None:
    assert actions_of(plan_for(job_, obj, namespace_matches=False)) == actions


def test_running_job_without_quota_in_unselected_namespace_gets_no_actions() -> None:
    assert plan_for(job(RUNNING), workload(), namespace_matches=False) == ActionPlan()


def test_job_without_queue_gets_workload_where_all_jobs_are_managed() -> None:
    plan = plan_for(job(labels={}), settings={"without_queue_name": True})
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    assert "queueName" not in create.obj["spec"]


def test_running_child_of_unadmitted_job_is_suspended_and_reported() -> None:
    ancestor = Ancestor(job(), admitted=False)
    plan = plan_for(job({"suspend": False}, labels={}), ancestor=ancestor)
    assert actions_of(plan) == ["patch Job"]
    assert events_of(plan) == [("Suspended", "admitq managed child job suspended")]
    [stop] = plan.actions
    assert isinstance(stop, Patch)
    assert isinstance(stop.reports[0], RecordEvent), "a conflict of a later step must not lose the event"
    assert plan_for(job(labels={}), ancestor=ancestor) == ActionPlan()


@pytest.mark.parametrize(
    ("ancestor", "actions", "requeue_after"),
    [
        ({"keeps_children": True}, ["delete Job"], None),
        ({"keeps_children": True, "is_suspended": True}, [], 1.0),
        ({}, [], None),
    ],
    ids=["resumed", "not yet resumed", "another kind"],
)
def test_suspended_child_that_its_resumed_owner_does_not_start_is_deleted(
    ancestor: Any, actions: list[str], requeue_after: float | None
) -> None:
    plan = plan_for(job(labels={}), ancestor=Ancestor(job(), admitted=True, **ancestor))
    assert actions_of(plan) == actions
    assert plan.requeue_after == requeue_after
    running = job({"suspend": False}, labels={})
    assert plan_for(running, ancestor=Ancestor(job(), admitted=True, **ancestor)) == ActionPlan()


def test_finished_child_of_unadmitted_job_is_not_changed() -> None:
    ended = job({"suspend": False}, labels={}, status=COMPLETE)
    assert plan_for(ended, ancestor=Ancestor(job(), admitted=False)) == ActionPlan()


@pytest.mark.parametrize("admitted_above", [True, False])
@pytest.mark.parametrize("obj", [workload(), admitted()])
def test_queued_job_that_becomes_child_of_queued_job_loses_its_workload(
    obj: dict[str, Any], admitted_above: bool
) -> None:
    plan = plan_for(job(), obj, ancestor=Ancestor(job(), admitted=admitted_above))
    assert set(actions_of(plan)) == {"free Workload", "delete Workload"}


def test_pending_workload_is_deleted_when_its_job_leaves_its_queue() -> None:
    plan = plan_for(job(labels={}), workload())
    assert actions_of(plan) == ["delete Workload", "free Workload"]


def test_running_job_that_left_its_queue_is_stopped_when_evicted() -> None:
    running = job(RUNNING, {"ready": 3, "active": 3}, labels={})
    assert actions_of(plan_for(running, admitted(EVICTED))) == ["patch Job"]
