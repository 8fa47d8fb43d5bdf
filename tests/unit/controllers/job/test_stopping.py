"""The stop of jobs without an admission, and the release of quota."""

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
    time,
    workload,
)
from tests.unit.controllers.job.decisions import (
    EVICTED,
    FOR_NINE,
    NINE_PODS,
    RUNNING,
    RUNNING_TEMPLATE,
    decided,
    kinds,
    told,
    written,
)


def test_an_eviction_stops_and_restores() -> None:
    running = job(RUNNING, {"startTime": time(1)})
    plan = decided(running, admitted(EVICTED))
    assert told(plan) == [("Stopped", "The ClusterQueue is stopped")]
    stopped = written(running, plan)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"] == TEMPLATE["spec"]
    assert stopped["spec"]["template"]["metadata"] == {"labels": {"app": "x", "controller-uid": "uid-j"}}
    assert "startTime" not in stopped["status"]
    assert NAMES.stopping not in stopped["metadata"]["annotations"]


def test_a_stop_keeps_the_name_that_a_workload_made_before_its_job_lacks() -> None:
    metadata = RUNNING_TEMPLATE["metadata"]
    labels = {**metadata["labels"], "batch.kubernetes.io/job-name": "j"}
    running = job({**RUNNING, "template": {**RUNNING_TEMPLATE, "metadata": {**metadata, "labels": labels}}})
    bare = {"podSets": [{"name": "main", "count": 3, "template": {"spec": TEMPLATE["spec"]}}]}
    stopped = written(running, decided(running, admitted(EVICTED, spec=bare)))
    kept = {"batch.kubernetes.io/job-name": "j", "controller-uid": "uid-j"}
    assert stopped["spec"]["template"]["metadata"]["labels"] == kept


def test_stop_in_two_writes_is_reported_once() -> None:
    running = job(RUNNING, {"active": 3})
    first = decided(running, admitted(EVICTED))
    assert told(first) == [("Stopped", "The ClusterQueue is stopped")]
    half = written(running, first)
    assert decided(half, admitted(EVICTED)) == ActionPlan()
    half["status"] = {}
    second = decided(half, admitted(EVICTED))
    assert (kinds(second), told(second)) == (["patch Job"], [])


def test_quota_is_released_when_nothing_runs_any_more() -> None:
    obj = admitted(condition("PodsReady", True, "Started"), EVICTED, since=2)
    assert decided(job(status={"active": 1}), obj) == ActionPlan()
    released = written(obj, decided(job(), obj, now=12))
    message = "The ClusterQueue is stopped"
    assert condition_of(released, "Requeued") == ("False", "ClusterQueueStopped", message)
    assert condition_of(released, "QuotaReserved") == ("False", "PendingEvaluation", message)
    assert condition_of(released, "Admitted")[1] == "NoReservation"
    assert condition_of(released, "PodsReady")[:2] == ("False", "WaitForStart")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]
    assert released["status"]["accumulatedPastExecutionTimeSeconds"] == 10


def test_e_eviction_goes_on_when_another_program_reserves_and_leaves_evicted_true() -> None:
    later = {"lastTransitionTime": time(8)}
    obj = workload({**RESERVED, **later}, {**ADMITTED, **later}, EVICTED, admission=ADMISSION)
    plan = decided(job(), obj)
    assert kinds(plan) == ["patch Workload"]
    released = written(obj, plan)
    assert condition_of(released, "QuotaReserved")[:2] == ("False", "PendingEvaluation")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]


def test_evicted_workload_is_pending_without_detailed_reasons() -> None:
    obj = admitted(EVICTED)
    released = written(obj, decided(job(), obj, settings={"detailed_reasons": False}))
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
def test_immediate_requeue_by_reason(reason: str, requeued: str) -> None:
    obj = admitted(condition("Evicted", True, reason, "m"))
    assert condition_of(written(obj, decided(job(), obj)), "Requeued") == (requeued, reason, "m")


def test_a_suspended_job_that_still_carries_an_admission_is_restored() -> None:
    without = {key: value for key, value in RUNNING_TEMPLATE["spec"].items() if key != "tolerations"}
    suspended = job({"suspend": True, "template": {**RUNNING_TEMPLATE, "spec": without}})
    obj = workload(condition("QuotaReserved", False, "WaitingForQuota"))
    assert written(suspended, decided(suspended, obj))["spec"]["template"]["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize(
    "obj",
    [workload(condition("QuotaReserved", False, "Pending")), admitted(spec=NINE_PODS, admission=FOR_NINE)],
    ids=["released", "admitted for other pods"],
)
def test_e_suspended_job_with_marks_of_an_admission_is_restored_before_its_workload_follows_it(
    obj: dict[str, Any],
) -> None:
    suspended = job({"suspend": True, "template": RUNNING_TEMPLATE})
    plan = decided(suspended, obj)
    assert (kinds(plan), told(plan)) == (["patch Job"], [])
    restored = written(suspended, plan)["spec"]
    assert (restored["suspend"], restored["template"]["spec"]) == (True, TEMPLATE["spec"])


def test_a_job_made_from_the_copy_of_a_running_one_is_left_as_it_is() -> None:
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
    assert decided(copied, obj) == ActionPlan()


def test_what_is_not_admitted_does_not_run() -> None:
    plan = decided(job({"suspend": False}), workload(condition("QuotaReserved", False, "Pending")))
    assert told(plan) == [("Stopped", "Not admitted by cluster queue")]


def test_a_stop_that_was_begun_is_ended_even_if_the_job_was_admitted_meanwhile() -> None:
    half = job({**RUNNING, "suspend": True}, annotations={NAMES.stopping: "true"})
    stopped = written(half, decided(half, admitted()))
    assert NAMES.stopping not in stopped["metadata"]["annotations"]
    assert stopped["spec"]["suspend"] is True
