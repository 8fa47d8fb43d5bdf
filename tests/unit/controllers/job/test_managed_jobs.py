"""Which jobs are managed."""

from typing import Any

import pytest

from admitq.controllers.job.case import Ancestor
from admitq.controllers.plan import ActionPlan, Create, Patch, RecordEvent
from tests.unit.controllers.builders import admitted, job, workload
from tests.unit.controllers.job.decisions import COMPLETE, EVICTED, RUNNING, decided, kinds, told


@pytest.mark.parametrize(
    "parts",
    [
        {"namespace_matches": False},
        {"ancestor": Ancestor(job(), admitted=True)},
        {"job_": job(labels={})},
    ],
)
def test_jobs_that_are_not_ours_are_left_alone(parts: Any) -> None:
    parts = {"job_": job({"suspend": False}), **parts}
    assert decided(parts.pop("job_"), **parts) == ActionPlan()


def test_what_has_quota_in_a_namespace_that_is_no_longer_selected_still_ends() -> None:
    ended = job(RUNNING, COMPLETE)
    assert kinds(decided(ended, admitted(), namespace_matches=False)) == ["patch Workload"]
    assert kinds(decided(job(RUNNING), admitted(EVICTED), namespace_matches=False)) == ["patch Job"]
    assert decided(job(RUNNING), workload(), namespace_matches=False) == ActionPlan()


def test_a_job_without_queue_waits_where_all_jobs_are_managed() -> None:
    plan = decided(job(labels={}), settings={"without_queue_name": True})
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    assert "queueName" not in create.obj["spec"]


def test_a_running_job_inside_one_that_is_not_admitted_is_stopped() -> None:
    ancestor = Ancestor(job(), admitted=False)
    plan = decided(job({"suspend": False}, labels={}), ancestor=ancestor)
    assert kinds(plan) == ["patch Job"]
    assert told(plan) == [("Suspended", "admitq managed child job suspended")]
    [stop] = plan.actions
    assert isinstance(stop, Patch)
    assert isinstance(stop.reports[0], RecordEvent), "a conflict of a later step must not lose the event"
    assert decided(job(labels={}), ancestor=ancestor) == ActionPlan()


def test_a_job_that_ended_inside_one_that_is_not_admitted_any_more_is_left_as_it_is() -> None:
    ended = job({"suspend": False}, labels={}, status=COMPLETE)
    assert decided(ended, ancestor=Ancestor(job(), admitted=False)) == ActionPlan()


@pytest.mark.parametrize("admitted_above", [True, False])
@pytest.mark.parametrize("obj", [workload(), admitted()])
def test_what_was_queued_before_it_came_to_be_inside_a_queued_job_holds_no_quota(
    obj: dict[str, Any], admitted_above: bool
) -> None:
    plan = decided(job(), obj, ancestor=Ancestor(job(), admitted=admitted_above))
    assert set(kinds(plan)) == {"free Workload", "delete Workload"}


def test_a_waiting_workload_of_a_job_that_left_its_queue_goes() -> None:
    plan = decided(job(labels={}), workload())
    assert kinds(plan) == ["delete Workload", "free Workload"]


def test_a_running_job_cannot_shake_off_its_workload_by_leaving_its_queue() -> None:
    running = job(RUNNING, {"ready": 3, "active": 3}, labels={})
    assert kinds(decided(running, admitted(EVICTED))) == ["patch Job"]
