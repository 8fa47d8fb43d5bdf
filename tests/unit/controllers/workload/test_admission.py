"""The admission of Workloads with quota."""

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
    apply_plan,
    check,
    events_of,
    on,
    plan_for,
    settle,
)


def test_workload_is_not_admitted_before_its_checks_are_listed() -> None:
    obj = reserved(admission=on("spot"))
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
    done = apply_plan(obj, plan)
    assert condition_of(done, "Admitted") == ("True", "Admitted", "The workload is admitted")
    assert "resourceRequests" not in done["status"]
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


GONE: list[Any] = [
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


@pytest.mark.parametrize("world", GONE)
@pytest.mark.parametrize("checks", [{}, {"admissionChecks": []}, {"admissionChecks": [check("a", "Ready")]}])
def test_a1_reserved_workload_without_unready_check_becomes_admitted_without_its_queues(
    checks: Any, world: Any
) -> None:
    if checks.get("admissionChecks") and "cluster_queue" not in world:
        world = {**world, "cluster_queue": cluster_queue(checks=[{"name": "a"}])}
    obj = reserved(AWAITED, **checks)
    assert condition_of(settle(obj, **world), "Admitted") == (
        "True",
        "Admitted",
        "The workload is admitted",
    )


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
@pytest.mark.parametrize("of", ["local_queue", "cluster_queue"])
def test_a1_reserved_workload_without_unready_check_becomes_admitted_while_a_queue_is_stopped(
    of: str, policy: str
) -> None:
    world: Any = {of: {"local_queue": local_queue, "cluster_queue": cluster_queue}[of](policy)}
    obj = reserved(AWAITED)
    assert condition_of(apply_plan(obj, plan_for(obj, **world)), "Admitted")[0] == "True"
    if policy == "Hold":
        assert plan_for(admitted(AWAITED), **world).actions == (), "only what is not admitted loses its quota"


@pytest.mark.parametrize("queue", [None, ""])
def test_a1_reserved_workload_that_names_no_local_queue_becomes_admitted(queue: str | None) -> None:
    spec: Any = {} if queue is None else {"queueName": queue}
    obj = settle(reserved(AWAITED, spec=spec), local_queue=None, cluster_queue=None)
    assert condition_of(obj, "Admitted")[0] == "True"


def test_a1_reservation_without_admission_is_not_admitted() -> None:
    assert condition_of(settle(reserved(AWAITED, admission=None)), "Admitted") is None


@pytest.mark.parametrize("world", GONE)
def test_a1_admitted_workload_keeps_its_admission_without_its_queues(world: Any) -> None:
    assert plan_for(admitted(AWAITED), **world).actions == ()


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ({"local_queue": None}, "LocalQueue lq is terminating or missing"),
        ({"cluster_queue": None}, "ClusterQueue cq is terminating or missing"),
        ({"local_queue": local_queue("Hold")}, "LocalQueue lq is stopped"),
        ({"cluster_queue": cluster_queue("Hold", [{"name": "a"}])}, "ClusterQueue cq is stopped"),
    ],
)
def test_a1_reserved_workload_with_an_unready_check_loses_its_quota_with_its_queue(
    world: Any, message: str
) -> None:
    world = {"cluster_queue": cluster_queue(checks=[{"name": "a"}]), **world}
    obj = reserved(AWAITED, admissionChecks=[check("a", "Pending")])
    for _ in range(2):
        obj = apply_plan(obj, plan_for(obj, **world))
    assert condition_of(obj, "QuotaReserved")[2] == message
    assert condition_of(obj, "Admitted")[1] == "NoReservation"
    assert "admission" not in obj["status"]


def test_workload_with_pending_topology_request_is_not_admitted() -> None:
    admission = on("spot")
    admission["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    assert condition_of(settle(reserved(admission=admission)), "Admitted") == (
        "False",
        "PendingDelayedTopologyRequests",
        "There are pending delayed topology requests",
    )
