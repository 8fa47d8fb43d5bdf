"""Workloads of stopped, deleted and restarted queues."""

from typing import Any

import pytest

from tests.unit.controllers.builders import (
    ADMITTED,
    admitted,
    cluster_queue,
    condition,
    condition_of,
    local_queue,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import AWAITED, apply_plan, check, events_of, plan_for, settle


@pytest.mark.parametrize(
    ("reason", "stopped", "restarted", "message"),
    [
        (
            "LocalQueueStopped",
            {"local_queue": local_queue("HoldAndDrain")},
            "LocalQueueRestarted",
            "The LocalQueue was restarted after being stopped",
        ),
        (
            "ClusterQueueStopped",
            {"cluster_queue": cluster_queue("HoldAndDrain"), "cluster_queue_active": False},
            "ClusterQueueRestarted",
            "The ClusterQueue was restarted after being stopped",
        ),
    ],
)
def test_drained_workload_is_requeued_when_its_queue_is_restarted(
    reason: str, stopped: Any, restarted: str, message: str
) -> None:
    obj = settle(workload(condition("Requeued", False, reason, "m")), **stopped)
    assert condition_of(obj, "Requeued") == ("False", reason, "m")
    assert condition_of(settle(obj), "Requeued") == ("True", restarted, message)


@pytest.mark.parametrize(
    ("inputs", "reason", "message"),
    [
        ({"local_queue": None}, "Misconfigured", "LocalQueue lq is terminating or missing"),
        (
            {"local_queue": local_queue(deletionTimestamp=timestamp(0))},
            "Misconfigured",
            "LocalQueue lq is terminating or missing",
        ),
        ({"local_queue": local_queue("Hold")}, "Suspended", "LocalQueue lq is stopped"),
        (
            {"cluster_queue": None},
            "Misconfigured",
            "ClusterQueue cq is terminating or missing",
        ),
        (
            {"cluster_queue": cluster_queue(deletionTimestamp=timestamp(0))},
            "Misconfigured",
            "ClusterQueue cq is terminating or missing",
        ),
        ({"cluster_queue": cluster_queue("HoldAndDrain")}, "Suspended", "ClusterQueue cq is stopped"),
    ],
)
def test_unadmitted_reservation_is_released_when_queue_is_stopped_or_missing(
    inputs: Any, reason: str, message: str
) -> None:
    waiting = condition(
        "Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
    )
    obj = reserved(waiting, admissionChecks=[check("a", "Pending")])
    queue = inputs.get("cluster_queue", cluster_queue())
    if queue is not None:
        queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "a"}]}
        inputs = {**inputs, "cluster_queue": queue}
    released = apply_plan(obj, plan_for(obj, **inputs))
    assert condition_of(released, "QuotaReserved") == ("False", reason, message)
    assert condition_of(released, "Admitted")[1] == "NoReservation"
    assert "admission" not in released["status"]
    types = {item["type"] for item in released["status"]["conditions"]}
    assert not types & {"Requeued", "Evicted"}, "no workload was evicted"


@pytest.mark.parametrize(
    ("queue", "stop", "message"),
    [
        (None, "None", "LocalQueue lq doesn't exist"),
        (local_queue(), "Hold", "ClusterQueue cq is inactive"),
    ],
)
def test_reservation_is_released_as_inadmissible_without_detailed_reasons(
    queue: Any, stop: str, message: str
) -> None:
    final = settle(
        reserved(admissionChecks=[check("a", "Pending")]),
        local_queue=queue,
        cluster_queue=cluster_queue(stop, checks=[{"name": "a"}]),
        cluster_queue_active=stop == "None",
        settings={"detailed_reasons": False},
    )
    assert condition_of(final, "QuotaReserved") == ("False", "Inadmissible", message)
    assert "admission" not in final["status"]


@pytest.mark.parametrize(
    ("inputs", "runs_on"),
    [
        ({"local_queue": local_queue("Hold")}, True),
        ({"cluster_queue": cluster_queue("Hold")}, True),
        ({"local_queue": None}, True),
        ({"cluster_queue": None}, True),
        ({"cluster_queue": cluster_queue(deletionTimestamp=timestamp(0))}, True),
        ({"local_queue": local_queue("HoldAndDrain")}, False),
        ({"cluster_queue": cluster_queue("HoldAndDrain")}, False),
    ],
)
def test_admitted_workload_runs_on_unless_its_queue_drains(inputs: Any, runs_on: bool) -> None:
    assert (not plan_for(admitted(condition("PodsReady", True, "Started")), **inputs).actions) is runs_on


@pytest.mark.parametrize(
    "inputs",
    [
        {"local_queue": None},
        {"local_queue": local_queue("HoldAndDrain")},
        {"cluster_queue": None, "cluster_queue_active": False},
        {"cluster_queue": cluster_queue("HoldAndDrain"), "cluster_queue_active": False},
        {"cluster_queue": cluster_queue(deletionTimestamp=timestamp(0)), "cluster_queue_active": False},
        {"cluster_queue": cluster_queue(flavors=["another"])},
    ],
)
def test_eviction_continues_when_queue_is_stopped_or_missing(inputs: Any) -> None:
    evicted = admitted(condition("Evicted", True, "Preempted", "m"), condition("PodsReady", True, "Started"))
    assert plan_for(evicted, **inputs).actions == ()


@pytest.mark.parametrize("stop", ["", "None"])
def test_e_queues_with_an_empty_stop_policy_are_not_stopped(stop: str) -> None:
    inputs: Any = {"local_queue": local_queue(stop), "cluster_queue": cluster_queue(stop, [{"name": "a"}])}
    pending = {"name": "a", "state": "Pending", "lastTransitionTime": timestamp(0), "message": ""}
    obj = settle(reserved(AWAITED, admissionChecks=[pending]), **inputs)
    assert condition_of(obj, "QuotaReserved")[0] == "True"


def test_e_admitted_condition_without_reservation_becomes_false() -> None:
    obj = settle(workload(ADMITTED))
    assert condition_of(obj, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    assert condition_of(obj, "QuotaReserved") is None


def test_draining_queue_evicts_admitted_workload() -> None:
    obj = admitted()
    plan = plan_for(obj, cluster_queue=cluster_queue("HoldAndDrain"))
    evicted = apply_plan(obj, plan)
    assert condition_of(evicted, "Evicted") == (
        "True",
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
    )
    assert events_of(plan) == [("Normal", "EvictedDueToClusterQueueStopped", "The ClusterQueue is stopped")]
    assert settle(evicted, cluster_queue=cluster_queue("HoldAndDrain")) == evicted
