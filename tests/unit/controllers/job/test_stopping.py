"""Stops of jobs without admission, and the release of their quota."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan
from tests.unit.controllers.builders import (
    ADMISSION,
    ADMITTED,
    NAMES,
    RESERVED,
    TEMPLATE,
    admitted,
    condition,
    condition_of,
    job,
    timestamp,
    workload,
)
from tests.unit.controllers.job.decisions import (
    ADMISSION_OF_NINE_PODS,
    EVICTED,
    NINE_PODS,
    RUNNING,
    RUNNING_TEMPLATE,
    actions_of,
    apply_plan,
    events_of,
    plan_for,
)


def test_evicted_job_is_stopped_and_its_template_is_restored() -> None:
    running = job(RUNNING, {"startTime": timestamp(1)})
    plan = plan_for(running, admitted(EVICTED))
    assert events_of(plan) == [("Stopped", "The ClusterQueue is stopped")]
    stopped = apply_plan(running, plan)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"] == TEMPLATE["spec"]
    assert stopped["spec"]["template"]["metadata"] == {"labels": {"app": "x", "controller-uid": "uid-j"}}
    assert "startTime" not in stopped["status"]
    assert NAMES.stopping not in stopped["metadata"]["annotations"]


def test_stopped_job_keeps_platform_labels_that_its_workload_lacks() -> None:
    metadata = RUNNING_TEMPLATE["metadata"]
    labels = {**metadata["labels"], "batch.kubernetes.io/job-name": "j"}
    running = job({**RUNNING, "template": {**RUNNING_TEMPLATE, "metadata": {**metadata, "labels": labels}}})
    bare = {"podSets": [{"name": "main", "count": 3, "template": {"spec": TEMPLATE["spec"]}}]}
    stopped = apply_plan(running, plan_for(running, admitted(EVICTED, spec=bare)))
    kept = {"batch.kubernetes.io/job-name": "j", "controller-uid": "uid-j"}
    assert stopped["spec"]["template"]["metadata"]["labels"] == kept


def test_stop_in_two_writes_is_reported_once() -> None:
    running = job(RUNNING, {"active": 3})
    first = plan_for(running, admitted(EVICTED))
    assert events_of(first) == [("Stopped", "The ClusterQueue is stopped")]
    half_stopped = apply_plan(running, first)
    assert plan_for(half_stopped, admitted(EVICTED)) == ActionPlan()
    half_stopped["status"] = {}
    second = plan_for(half_stopped, admitted(EVICTED))
    assert (actions_of(second), events_of(second)) == (["patch Job"], [])


def test_evicted_workload_releases_quota_when_no_pod_runs() -> None:
    obj = admitted(condition("PodsReady", True, "Started"), EVICTED, since=2)
    assert plan_for(job(status={"active": 1}), obj) == ActionPlan()
    released = apply_plan(obj, plan_for(job(), obj, now=12))
    message = "The ClusterQueue is stopped"
    assert condition_of(released, "Requeued") == ("False", "ClusterQueueStopped", message)
    assert condition_of(released, "QuotaReserved") == ("False", "PendingEvaluation", message)
    assert condition_of(released, "Admitted")[1] == "NoReservation"
    assert condition_of(released, "PodsReady")[:2] == ("False", "WaitForStart")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]
    assert released["status"]["accumulatedPastExecutionTimeSeconds"] == 10


def test_e_eviction_continues_when_another_program_reserves_and_keeps_evicted_true() -> None:
    since_8 = {"lastTransitionTime": timestamp(8)}
    obj = workload({**RESERVED, **since_8}, {**ADMITTED, **since_8}, EVICTED, admission=ADMISSION)
    plan = plan_for(job(), obj)
    assert actions_of(plan) == ["patch Workload"]
    released = apply_plan(obj, plan)
    assert condition_of(released, "QuotaReserved")[:2] == ("False", "PendingEvaluation")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]


def test_evicted_workload_is_pending_without_detailed_reasons() -> None:
    obj = admitted(EVICTED)
    released = apply_plan(obj, plan_for(job(), obj, settings={"detailed_reasons": False}))
    message = "The ClusterQueue is stopped"
    assert condition_of(released, "QuotaReserved") == ("False", "Pending", message)


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", "True"),
        ("NodeFailures", "True"),
        ("PodsReadyTimeout", "False"),
        ("Deactivated", "False"),
    ],
)
def test_evicted_workload_is_requeued_at_once_depending_on_reason(reason: str, requeued: str) -> None:
    obj = admitted(condition("Evicted", True, reason, "m"))
    assert condition_of(apply_plan(obj, plan_for(job(), obj)), "Requeued") == (requeued, reason, "m")


def test_suspended_job_with_marks_of_admission_is_restored() -> None:
    without = {key: value for key, value in RUNNING_TEMPLATE["spec"].items() if key != "tolerations"}
    suspended = job({"suspend": True, "template": {**RUNNING_TEMPLATE, "spec": without}})
    obj = workload(condition("QuotaReserved", False, "WaitingForQuota"))
    assert apply_plan(suspended, plan_for(suspended, obj))["spec"]["template"]["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize(
    "obj",
    [
        workload(condition("QuotaReserved", False, "Pending")),
        admitted(spec=NINE_PODS, admission=ADMISSION_OF_NINE_PODS),
    ],
    ids=["released", "admitted for other pods"],
)
def test_e_suspended_job_with_marks_of_an_admission_is_restored_before_its_workload_follows_it(
    obj: dict[str, Any],
) -> None:
    suspended = job({"suspend": True, "template": RUNNING_TEMPLATE})
    plan = plan_for(suspended, obj)
    assert (actions_of(plan), events_of(plan)) == (["patch Job"], [])
    restored = apply_plan(suspended, plan)["spec"]
    assert (restored["suspend"], restored["template"]["spec"]) == (True, TEMPLATE["spec"])


def test_suspended_copy_of_running_job_is_not_changed() -> None:
    copied = job({"suspend": True, "template": RUNNING_TEMPLATE})
    kept = {
        "metadata": {
            "labels": {
                key: value
                for key, value in RUNNING_TEMPLATE["metadata"]["labels"].items()
                if key != "controller-uid"
            },
            "annotations": RUNNING_TEMPLATE["metadata"]["annotations"],
        },
        "spec": RUNNING_TEMPLATE["spec"],
    }
    obj = workload(spec={"podSets": [{"name": "main", "count": 3, "template": kept}]})
    assert plan_for(copied, obj) == ActionPlan()


def test_unsuspended_job_with_pending_workload_is_stopped() -> None:
    plan = plan_for(job({"suspend": False}), workload(condition("QuotaReserved", False, "Pending")))
    assert events_of(plan) == [("Stopped", "Not admitted by cluster queue")]


def test_unfinished_stop_is_completed_when_job_was_admitted_meanwhile() -> None:
    half_stopped = job({**RUNNING, "suspend": True}, annotations={NAMES.stopping: "true"})
    stopped = apply_plan(half_stopped, plan_for(half_stopped, admitted()))
    assert NAMES.stopping not in stopped["metadata"]["annotations"]
    assert stopped["spec"]["suspend"] is True
