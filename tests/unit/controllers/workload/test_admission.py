"""The admission of Workloads with reserved quota."""

from typing import Any

import pytest

from tests.unit.controllers.builders import (
    admitted,
    cluster_queue,
    condition,
    condition_of,
    local_queue,
    reserved,
)
from tests.unit.controllers.workload.decisions import (
    AWAITED,
    CHECKED,
    RULES,
    admission_with,
    apply_plan,
    check,
    events_of,
    plan_for,
    settle,
)


def test_workload_is_not_admitted_before_its_checks_are_listed() -> None:
    obj = reserved(admission=admission_with("spot"))
    assert condition_of(apply_plan(obj, plan_for(obj, cluster_queue=CHECKED)), "Admitted") is None


def test_workload_with_pending_check_is_not_admitted() -> None:
    obj = reserved(admissionChecks=[check("z-all", "Pending")])
    assert condition_of(settle(obj, cluster_queue=cluster_queue(checks=RULES[:1])), "Admitted") == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


def test_workload_is_admitted_when_all_checks_are_ready() -> None:
    obj = reserved(admissionChecks=[check("z-all", "Ready")], resourceRequests=[{"name": "main"}])
    plan = plan_for(obj, now=30, cluster_queue=cluster_queue(checks=RULES[:1]))
    admitted_workload = apply_plan(obj, plan)
    assert condition_of(admitted_workload, "Admitted") == ("True", "Admitted", "The workload is admitted")
    assert "resourceRequests" not in admitted_workload["status"]
    assert events_of(plan) == [
        ("Normal", "Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 30s")
    ]


@pytest.mark.parametrize(
    "obj",
    [
        reserved(condition("Evicted", True, "AdmissionCheck")),
        reserved(condition("Evicted", True, "Deactivated"), spec={"active": False}),
    ],
)
def test_evicted_workload_is_not_admitted(obj: dict[str, Any]) -> None:
    assert condition_of(settle(obj), "Admitted") is None


MISSING_QUEUES: list[Any] = [
    {"local_queue": None},
    {"cluster_queue": None, "cluster_queue_active": None},
    {"cluster_queue_active": None},
    {
        "local_queue": None,
        "cluster_queue": None,
        "cluster_queue_name": "",
        "cluster_queue_active": None,
    },
]
"""Queues that are missing, or that the core does not know yet."""


@pytest.mark.parametrize("inputs", MISSING_QUEUES)
@pytest.mark.parametrize("checks", [{}, {"admissionChecks": []}, {"admissionChecks": [check("a", "Ready")]}])
def test_a1_reserved_workload_without_unready_check_becomes_admitted_without_its_queues(
    checks: Any, inputs: Any
) -> None:
    if checks.get("admissionChecks") and "cluster_queue" not in inputs:
        inputs = {**inputs, "cluster_queue": cluster_queue(checks=[{"name": "a"}])}
    obj = reserved(AWAITED, **checks)
    assert condition_of(settle(obj, **inputs), "Admitted") == (
        "True",
        "Admitted",
        "The workload is admitted",
    )


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
@pytest.mark.parametrize("of", ["local_queue", "cluster_queue"])
def test_a1_reserved_workload_without_unready_check_becomes_admitted_while_a_queue_is_stopped(
    of: str, policy: str
) -> None:
    inputs: Any = {of: {"local_queue": local_queue, "cluster_queue": cluster_queue}[of](policy)}
    obj = reserved(AWAITED)
    assert condition_of(apply_plan(obj, plan_for(obj, **inputs)), "Admitted")[0] == "True"
    if policy == "Hold":
        assert plan_for(admitted(AWAITED), **inputs).actions == (), (
            "only Workloads that are not admitted lose their quota"
        )


@pytest.mark.parametrize("queue", [None, ""])
def test_a1_reserved_workload_that_names_no_local_queue_becomes_admitted(queue: str | None) -> None:
    spec: Any = {} if queue is None else {"queueName": queue}
    obj = settle(reserved(AWAITED, spec=spec), local_queue=None, cluster_queue=None)
    assert condition_of(obj, "Admitted")[0] == "True"


@pytest.mark.parametrize("inputs", MISSING_QUEUES)
def test_a1_admitted_workload_keeps_its_admission_without_its_queues(inputs: Any) -> None:
    assert plan_for(admitted(AWAITED), **inputs).actions == ()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"local_queue": None}, "LocalQueue lq is terminating or missing"),
        ({"cluster_queue": None}, "ClusterQueue cq is terminating or missing"),
        ({"local_queue": local_queue("Hold")}, "LocalQueue lq is stopped"),
        ({"cluster_queue": cluster_queue("Hold", [{"name": "a"}])}, "ClusterQueue cq is stopped"),
    ],
)
def test_a1_reserved_workload_with_an_unready_check_loses_its_quota_with_its_queue(
    inputs: Any, message: str
) -> None:
    inputs = {"cluster_queue": cluster_queue(checks=[{"name": "a"}]), **inputs}
    obj = reserved(AWAITED, admissionChecks=[check("a", "Pending")])
    for _ in range(2):
        obj = apply_plan(obj, plan_for(obj, **inputs))
    assert condition_of(obj, "QuotaReserved")[2] == message
    assert condition_of(obj, "Admitted")[1] == "NoReservation"
    assert "admission" not in obj["status"]


def test_workload_with_pending_topology_request_is_not_admitted() -> None:
    admission = admission_with("spot")
    admission["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    assert condition_of(settle(reserved(admission=admission)), "Admitted") == (
        "False",
        "PendingDelayedTopologyRequests",
        "There are pending delayed topology requests",
    )
