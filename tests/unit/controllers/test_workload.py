"""What becomes of a Workload, decision by decision."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.controllers.plan import Delete, Patch, Plan, RemoveFinalizer, Tell
from admitq.controllers.workload.steps import decide_workload
from admitq.core.applicable_checks import MOST_CHECKS
from admitq.explain import Explanation, unwritten
from admitq.transitions import Transition
from admitq_api.conditions import SECOND, ConditionType
from admitq_api.kinds.workload import WorkloadStatus
from admitq_api.schema import schema_of
from tests.unit.controllers.builders import (
    ADMISSION,
    ADMITTED,
    FINISHED,
    KINDS,
    NAMES,
    POLICY,
    QUEUED,
    Object,
    admitted,
    after,
    at,
    cluster_queue,
    condition,
    condition_of,
    local_queue,
    reserved,
    settings_with,
    time,
    workload,
)
from tests.unit.controllers.whatever import SURROUNDINGS, some_workload

AWAITED = condition("PodsReady", False, "WaitForStart", "Not all pods are ready or succeeded")
NOT_ADMITTED = condition("Admitted", False, "NoReservation", "The workload has no reservation")


def decided(obj: Object, now: float = 0, **world: Any) -> Plan:
    settings = world.pop("settings", {})
    return decide_workload(obj, replace(QUEUED, settings=settings_with(**settings), **world), at(now))


def written(obj: Object, plan: Plan) -> Object:
    """The Workload as the plan's patches leave it."""
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch):
            for step in action.steps:
                patch = {key: value for key, value in step.patch.items() if key != "metadata"}
                result = after(result, patch)
    return result


def told(plan: Plan) -> list[tuple[str, str, str]]:
    return [(one.type, one.reason, one.note) for one in plan.actions if isinstance(one, Tell)]


def settled(obj: Object, now: float = 0, **world: Any) -> Object:
    """The Workload when nothing more is decided."""
    for _ in range(10):
        plan = decided(obj, now, **world)
        if not plan.actions:
            return obj
        obj = written(obj, plan)
    raise AssertionError("the decisions do not come to an end")


# --- nothing to do --------------------------------------------------------------------------------


def test_a_new_workload_in_a_working_queue_costs_no_write() -> None:
    assert decided(workload()) == Plan(again=2.0)
    assert decided(workload(), now=2) == Plan()


def test_who_is_passed_over_for_an_equal_one_learns_why_from_the_first_look_on() -> None:
    bypassed = Explanation("WaitingForQuota", "like another")
    obj = settled(workload(), now=2, bypassed=bypassed)
    assert condition_of(obj, "QuotaReserved") == ("False", "WaitingForQuota", "like another")


@pytest.mark.parametrize(
    "obj",
    [
        workload(condition("QuotaReserved", False, "WaitingForQuota", "m"), NOT_ADMITTED),
        workload(condition("QuotaReserved", False, *unwritten("cq", "e", 0)), NOT_ADMITTED),
        admitted(condition("PodsReady", True, "Started")),
        reserved(
            condition(
                "Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
            ),
            AWAITED,
            admissionChecks=[{"name": "c", "state": "Pending", "lastTransitionTime": time(0)}],
        ),
        workload(FINISHED),
    ],
)
def test_a_settled_workload_costs_no_write(obj: Object) -> None:
    assert decided(obj, cluster_queue=cluster_queue(checks=_checks_of(obj))).actions == ()


def _checks_of(obj: Object) -> list[Object]:
    return [{"name": check["name"]} for check in obj["status"].get("admissionChecks", [])]


def test_a_patch_is_guarded_by_the_version_it_was_made_from() -> None:
    [action] = decided(workload(), local_queue=None).actions
    assert isinstance(action, Patch)
    assert action.steps[0].subresource == "status"
    assert action.steps[0].patch["metadata"] == {"resourceVersion": "7"}


# --- why it waits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "world", "reason", "message"),
    [
        (workload(), {"local_queue": None}, "Misconfigured", "LocalQueue lq doesn't exist"),
        (
            workload(),
            {"local_queue": local_queue(deletionTimestamp=time(0))},
            "Misconfigured",
            "LocalQueue lq is terminating or missing",
        ),
        (workload(), {"local_queue": local_queue("Hold")}, "Suspended", "LocalQueue lq is inactive"),
        (workload(), {"cluster_queue": None}, "Misconfigured", "ClusterQueue cq doesn't exist"),
        (workload(), {"cluster_queue_active": False}, "Suspended", "ClusterQueue cq is inactive"),
        (
            workload(),
            {"inadmissible": Explanation("Misconfigured", "because")},
            "Misconfigured",
            "because",
        ),
        (
            workload(condition("QuotaReserved", False, "PendingEvaluation")),
            {"bypassed": Explanation("WaitingForQuota", "like another")},
            "WaitingForQuota",
            "like another",
        ),
        (
            workload(condition("QuotaReserved", False, "Misconfigured", "LocalQueue lq doesn't exist")),
            {},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(condition("QuotaReserved", False, "Suspended", "ClusterQueue cq is inactive")),
            {},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(),
            {"settings": {"explicit_pending": True}},
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
        ),
        (
            workload(),
            {"local_queue": None, "settings": {"detailed_reasons": False}},
            "Inadmissible",
            "LocalQueue lq doesn't exist",
        ),
    ],
)
def test_a_waiting_workload_says_why(obj: Object, world: Any, reason: str, message: str) -> None:
    told_to = written(obj, decided(obj, **world))
    assert condition_of(told_to, "QuotaReserved") == ("False", reason, message)
    assert condition_of(told_to, "Admitted") == (
        "False",
        "NoReservation",
        "The workload has no reservation",
    )


@pytest.mark.parametrize(
    "reason", ["WaitingForQuota", "NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForPreemptedWorkloads"]
)
def test_the_result_of_an_evaluation_stays(reason: str) -> None:
    obj = workload(condition("QuotaReserved", False, reason, "m"), NOT_ADMITTED)
    assert decided(obj).actions == ()


def test_a_misconfiguration_found_by_an_evaluation_stays() -> None:
    message = "resources didn't satisfy LimitRange constraints: too much"
    obj = workload(condition("QuotaReserved", False, "Misconfigured", message), NOT_ADMITTED)
    assert decided(obj).actions == ()


MISMATCH = Explanation("Misconfigured", "workload namespace doesn't match ClusterQueue selector")


def test_a4_namespace_mismatch_is_cleared_as_soon_as_the_namespace_matches() -> None:
    mismatched = settled(workload(), inadmissible=MISMATCH)
    assert condition_of(mismatched, "QuotaReserved") == ("False", *MISMATCH)
    assert settled(mismatched, inadmissible=MISMATCH) == mismatched
    matched = settled(mismatched)
    message = "Workload is pending evaluation in the scheduling queue"
    assert condition_of(matched, "QuotaReserved") == ("False", "PendingEvaluation", message)


RETURNED = (
    condition("Evicted", True, "Preempted", "Preempted to accommodate another workload"),
    condition("QuotaReserved", False, "PendingEvaluation", "Preempted to accommodate another workload"),
    NOT_ADMITTED,
)


def test_a4_message_of_an_eviction_stays_until_a_cycle_has_looked() -> None:
    assert decided(workload(*RETURNED, condition("Requeued", True, "Preempted"))).actions == ()


def test_a4_message_of_an_eviction_yields_to_a_problem_of_the_queues_and_to_a_refusal_of_an_equal_one() -> (
    None
):
    stopped = settled(workload(*RETURNED), local_queue=local_queue("Hold"))
    assert condition_of(stopped, "QuotaReserved") == ("False", "Suspended", "LocalQueue lq is inactive")
    bypassed = Explanation("WaitingForQuota", "like another")
    assert condition_of(settled(workload(*RETURNED), bypassed=bypassed), "QuotaReserved") == (
        "False",
        *bypassed,
    )


def test_a4_message_of_a_former_eviction_is_replaced() -> None:
    former = condition("Evicted", False, "QuotaReserved", "Previously: " + RETURNED[0]["message"])
    obj = settled(workload(former, *RETURNED[1:]))
    message = "Workload is pending evaluation in the scheduling queue"
    assert condition_of(obj, "QuotaReserved") == ("False", "PendingEvaluation", message)


def test_of_a_cluster_queue_that_the_core_has_not_taken_in_nothing_is_said() -> None:
    assert decided(workload(), cluster_queue_active=None).actions == ()


def test_on_hold_is_kept() -> None:
    obj = workload(condition("QuotaReserved", False, "OnHold", "Job is on hold"), NOT_ADMITTED)
    assert decided(obj, local_queue=None).actions == ()


def test_without_detailed_reasons_a_deactivation_is_not_told_there() -> None:
    obj = settled(workload(spec={"active": False}), settings={"detailed_reasons": False})
    assert condition_of(obj, "QuotaReserved") is None


# --- admission gates ------------------------------------------------------------------------------

GATED: Object = {"annotations": {NAMES.admission_gated_by: "a.example/x,b.example/y"}}
IS_GATED = condition("QuotaReserved", False, "AdmissionGated", "Admission is gated by: a.example/x")


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("said", [[], [condition("PodsReady", False, "WaitForStart", "m")]])
@pytest.mark.parametrize(
    ("metadata", "world"),
    [({}, {"local_queue": None}), (GATED, {})],
    ids=["without a queue", "gated"],
)
def test_the_first_word_of_quota_tells_of_pods_too_if_nothing_has(
    metadata: Object, world: Any, said: list[Object], tracked: bool
) -> None:
    obj = workload(*said, metadata=metadata)
    settings = {} if tracked else {"pods_ready": None}
    after_it = written(obj, decided(obj, settings=settings, **world))
    assert condition_of(after_it, "QuotaReserved") is not None
    awaited = ("False", "WaitForStart", "Not all pods are ready or succeeded")
    expected = ("False", "WaitForStart", "m") if said else awaited if tracked else None
    assert condition_of(after_it, "PodsReady") == expected


def test_a_gated_workload_names_its_gates() -> None:
    plan = decided(workload(metadata=GATED))
    gated = written(workload(metadata=GATED), plan)
    message = "Admission is gated by: a.example/x,b.example/y"
    assert condition_of(gated, "QuotaReserved") == ("False", "AdmissionGated", message)
    assert told(plan) == [("Normal", "AdmissionGated", f"Workload admission is gated by: {message[23:]}")]
    assert settled(gated) == gated


@pytest.mark.parametrize(
    ("spec", "world", "reason"),
    [
        ({}, {"local_queue": None}, "Misconfigured"),
        ({}, {"local_queue": local_queue("Hold")}, "Suspended"),
        ({}, {"cluster_queue": None, "cluster_queue_active": False}, "Misconfigured"),
        ({}, {"cluster_queue_active": False}, "Suspended"),
        ({}, {"inadmissible": Explanation("Misconfigured", "because")}, "Misconfigured"),
        ({"active": False}, {}, "Deactivated"),
    ],
)
def test_what_else_a_gated_workload_waits_for_is_told_first_and_once(
    spec: Any, world: Any, reason: str
) -> None:
    waits = settled(workload(metadata=GATED, spec=spec), **world)
    assert condition_of(waits, "QuotaReserved")[1] == reason
    gated = settled(workload(IS_GATED, metadata=GATED, spec=spec))
    assert condition_of(settled(gated, **world), "QuotaReserved")[1] == reason


@pytest.mark.parametrize(
    ("annotations", "settings"),
    [({}, {}), ({NAMES.admission_gated_by: ""}, {}), (GATED["annotations"], {"admission_gates": False})],
    ids=["without-annotation", "with-none-left", "where-nothing-is-gated"],
)
def test_a_workload_whose_gates_are_gone_waits_for_quota(annotations: Any, settings: Any) -> None:
    obj = workload(IS_GATED, metadata={"annotations": annotations})
    plan = decided(obj, settings=settings)
    assert condition_of(written(obj, plan), "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "AdmissionGatedBy cleared, waiting for quota reservation",
    )
    assert told(plan) == [
        ("Normal", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
    ]


def test_one_gate_less_is_told_in_the_condition() -> None:
    obj = workload(IS_GATED, metadata=GATED)
    assert condition_of(settled(obj), "QuotaReserved")[2].endswith("a.example/x,b.example/y")


def test_what_is_told_of_a_preemption_gate_is_no_matter_of_admission_gates() -> None:
    message = "Workload requires preemption, but it's gated"
    obj = workload(condition("QuotaReserved", False, "AdmissionGated", message), NOT_ADMITTED)
    assert decided(obj).actions == ()


# --- activity -------------------------------------------------------------------------------------


def test_a_deactivated_workload_is_evicted_and_then_waits_deactivated() -> None:
    obj = workload(spec={"active": False}, requeueState={"count": 3})
    plan = decided(obj)
    assert told(plan) == [("Normal", "EvictedDueToDeactivated", "The workload is deactivated")]
    final = settled(obj)
    assert condition_of(final, "Evicted") == ("True", "Deactivated", "The workload is deactivated")
    assert condition_of(final, "QuotaReserved")[1] == "Deactivated"
    assert "requeueState" not in final["status"]


def test_a_target_of_deactivation_loses_its_activity_and_is_evicted_for_its_cause() -> None:
    target = condition("DeactivationTarget", True, "RequeuingLimitExceeded", "too often")
    obj = admitted(target)
    inactive = written(obj, decided(obj))
    assert inactive["spec"]["active"] is False
    plan = decided(inactive)
    assert told(plan) == [
        (
            "Normal",
            "EvictedDueToDeactivatedDueToRequeuingLimitExceeded",
            "The workload is deactivated due to too often",
        )
    ]
    evicted = written(inactive, plan)
    assert condition_of(evicted, "Evicted")[1] == "DeactivatedDueToRequeuingLimitExceeded"
    assert condition_of(evicted, "DeactivationTarget") is None
    assert condition_of(evicted, "Admitted")[0] == "True"
    assert evicted["status"]["admission"] == ADMISSION


def test_an_evicted_workload_that_is_deactivated_can_be_reactivated_for_good() -> None:
    """What is left of the deactivation must not deactivate it again."""
    left = condition("DeactivationTarget", True, "AdmissionCheck", "m")
    obj = workload(
        condition("Evicted", True, "Preempted"),
        condition("QuotaReserved", False, "Deactivated", "The workload is deactivated"),
        NOT_ADMITTED,
        left,
        spec={"active": False},
    )
    quiet = settled(obj)
    assert condition_of(quiet, "DeactivationTarget") is None
    assert settled(after(quiet, {"spec": {"active": True}}))["spec"]["active"] is True


@pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToMaximumExecutionTimeExceeded"])
def test_a_reactivated_workload_is_queued_again_whatever_the_cause_was(reason: str) -> None:
    obj = workload(condition("Requeued", False, reason, "m"))
    reactivated = written(obj, decided(obj))
    assert condition_of(reactivated, "Requeued") == (
        "True",
        "Reactivated",
        "The workload was reactivated",
    )


# --- coming back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_a_backoff_is_waited_for_and_then_over(reason: str) -> None:
    obj = workload(
        condition("Requeued", False, reason, "m"), requeueState={"count": 1, "requeueAt": time(60)}
    )
    assert decided(obj, now=20) == Plan(again=40.0)
    back = written(obj, decided(obj, now=60))
    assert condition_of(back, "Requeued") == (
        "True",
        "BackoffFinished",
        "The workload backoff was finished",
    )
    assert back["status"]["requeueState"] == {"count": 1}


def test_a_retry_without_a_time_comes_back_at_once() -> None:
    obj = workload(condition("Requeued", False, "AdmissionCheck", "m"))
    assert condition_of(written(obj, decided(obj)), "Requeued")[1] == "BackoffFinished"


BACK = ("True", "BackoffFinished", "The workload backoff was finished")


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
@pytest.mark.parametrize("former", [[], [condition("Requeued", True, "BackoffFinished", BACK[2])]])
def test_a5_backoff_ends_at_its_time_while_quota_is_held(reason: str, former: list[Object]) -> None:
    state = {"count": 1, "requeueAt": time(60)}
    obj = admitted(AWAITED, condition("Evicted", True, reason, "m", since=5), *former, requeueState=state)
    assert decided(obj, now=20) == Plan(again=40.0)
    back = settled(obj, now=60)
    assert condition_of(back, "Requeued") == BACK
    assert back["status"]["conditions"][-1]["lastTransitionTime"] == time(60)
    assert back["status"]["requeueState"] == {"count": 1}
    assert back["status"]["admission"] == ADMISSION, "its job has not stopped"


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_a5_backoff_that_is_over_stays_over_when_the_job_stops(reason: str) -> None:
    evicted = condition("Evicted", True, reason, "m", since=5)
    obj = settled(admitted(AWAITED, evicted, requeueState={"count": 1, "requeueAt": time(60)}), now=60)
    transition = Transition(obj, at(90))
    transition.requeue("PendingEvaluation")
    stopped = after(obj, {"status": transition.status | {"admission": None}})
    assert condition_of(stopped, "Requeued") == BACK
    assert condition_of(stopped, "QuotaReserved") == ("False", "PendingEvaluation", "m")
    assert settled(stopped, now=90) == stopped


@pytest.mark.parametrize(
    ("requeued", "state"),
    [
        ([], {"requeueAt": time(60)}),
        ([condition("Requeued", True, "BackoffFinished", BACK[2], since=1)], {"count": 1}),
        ([condition("Requeued", True, "BackoffFinished", BACK[2], since=9)], {"requeueAt": time(60)}),
    ],
    ids=["none-ended", "one-of-a-former-eviction", "another-time-is-waited-for"],
)
def test_a5_workload_whose_backoff_is_not_over_is_parked_when_the_job_stops(
    requeued: list[Object], state: Object
) -> None:
    evicted = condition("Evicted", True, "PodsReadyTimeout", "m", since=5)
    transition = Transition(admitted(evicted, *requeued, requeueState=state), at(10))
    transition.requeue("PendingEvaluation")
    parked = transition.find(ConditionType.REQUEUED) or {}
    assert (parked["status"], parked["reason"]) == ("False", "PodsReadyTimeout")


def test_a5_time_that_passes_during_another_eviction_is_cleared_alone() -> None:
    obj = admitted(AWAITED, condition("Evicted", True, "Preempted"), requeueState={"requeueAt": time(0)})
    back = settled(obj, now=60)
    assert "requeueState" not in back["status"]
    assert condition_of(back, "Requeued") is None


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
def test_a_drained_workload_comes_back_when_its_queue_does(
    reason: str, stopped: Any, restarted: str, message: str
) -> None:
    obj = settled(workload(condition("Requeued", False, reason, "m")), **stopped)
    assert condition_of(obj, "Requeued") == ("False", reason, "m")
    assert condition_of(settled(obj), "Requeued") == ("True", restarted, message)


# --- admission checks -----------------------------------------------------------------------------

RULES = [
    {"name": "z-all"},
    {"name": "a-spot", "onFlavors": ["spot"]},
    {"name": "b-other", "onFlavors": ["o"]},
]
CHECKED = cluster_queue(checks=RULES, flavors=["spot", "o"])


def check(name: str, state: str, **fields: Any) -> Object:
    return {"name": name, "state": state, "lastTransitionTime": time(0), "message": "", **fields}


def on(flavor: str) -> Object:
    return {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": flavor}}],
    }


def test_before_the_flavors_are_known_only_checks_of_all_flavors_are_listed() -> None:
    obj = written(workload(), decided(workload(), cluster_queue=CHECKED))
    assert obj["status"]["admissionChecks"] == [check("z-all", "Pending")]


def test_a_check_that_names_every_flavor_is_one_of_all() -> None:
    both = cluster_queue(checks=[{"name": "c", "onFlavors": ["o", "spot"]}], flavors=["spot", "o"])
    obj = written(workload(), decided(workload(), cluster_queue=both))
    assert [one["name"] for one in obj["status"]["admissionChecks"]] == ["c"]


def test_after_the_reservation_those_of_the_assigned_flavors_are_listed_sorted() -> None:
    obj = reserved(admission=on("spot"), admissionChecks=[check("z-all", "Ready"), check("gone", "Ready")])
    listed = written(obj, decided(obj, cluster_queue=CHECKED))["status"]["admissionChecks"]
    assert listed == [check("a-spot", "Pending"), check("z-all", "Ready")]


def test_a_check_of_a_flavor_that_is_retried_keeps_its_count_until_another_flavor_is_assigned() -> None:
    kept = check("a-spot", "Pending", retryCount=2)
    dropped = [check("b-other", "Pending"), check("gone", "Pending", retryCount=1)]
    obj = workload(admissionChecks=[kept, *dropped])
    waiting = settled(obj, cluster_queue=CHECKED)
    assert waiting["status"]["admissionChecks"] == [kept, check("z-all", "Pending")]
    for flavor, listed in (("spot", [kept]), ("o", [check("b-other", "Pending")])):
        got = reserved(admission=on(flavor), admissionChecks=waiting["status"]["admissionChecks"])
        checks = settled(got, cluster_queue=CHECKED)["status"]["admissionChecks"]
        assert checks == [*listed, check("z-all", "Pending")]


NINE = [{"name": f"c{number}"} for number in range(9)]


def too_many(which: str) -> tuple[str, str, str]:
    message = (
        f"9 AdmissionChecks of ClusterQueue cq apply to {which}, and a Workload can have at most 8: "
        "remove some from spec.admissionChecksStrategy.admissionChecks, "
        "or limit them to other flavors by onFlavors"
    )
    return "False", "Misconfigured", message


def test_the_most_checks_are_those_that_the_status_of_a_workload_can_list() -> None:
    assert schema_of(WorkloadStatus)["properties"]["admissionChecks"]["maxItems"] == MOST_CHECKS


def test_waiting_workload_keeps_its_list_while_more_checks_apply_than_it_can_list() -> None:
    obj = settled(workload(), cluster_queue=cluster_queue(checks=NINE[:8]))
    assert [one["name"] for one in obj["status"]["admissionChecks"]] == [one["name"] for one in NINE[:8]]
    assert decided(obj, cluster_queue=cluster_queue(checks=NINE)).actions == ()


@pytest.mark.parametrize(
    ("queue", "which"),
    [
        (cluster_queue(checks=NINE), "every flavor"),
        (
            cluster_queue(checks=[{**one, "onFlavors": ["f"]} for one in NINE], flavors=["f", "g"]),
            "flavors f",
        ),
    ],
    ids=["every flavor", "its flavor"],
)
def test_reserved_workload_is_released_when_more_checks_apply_than_it_can_list(
    queue: Object, which: str
) -> None:
    obj = settled(reserved(AWAITED), cluster_queue=queue)
    assert condition_of(obj, "QuotaReserved") == too_many(which)
    assert condition_of(obj, "Admitted") == (
        "False",
        "NoReservation",
        "The workload has no reservation",
    )
    assert "admission" not in obj["status"]


@pytest.mark.parametrize(
    "obj",
    [
        admitted(AWAITED, admissionChecks=[check("c0", "Ready")]),
        reserved(AWAITED, condition("Evicted", True, "Preempted")),
    ],
    ids=["admitted", "evicted"],
)
def test_workload_whose_job_runs_or_stops_is_left_alone_when_more_checks_apply_than_it_can_list(
    obj: Object,
) -> None:
    assert decided(obj, cluster_queue=cluster_queue(checks=NINE)).actions == ()


def test_retried_checks_of_flavors_are_listed_as_far_as_there_is_room() -> None:
    retried = [check(name, "Pending", retryCount=1) for name in ("c7", "c8")]
    queue = cluster_queue(
        checks=[*NINE[:7], *({**one, "onFlavors": ["f"]} for one in NINE[7:])], flavors=["f", "g"]
    )
    obj = settled(workload(admissionChecks=retried), cluster_queue=queue)
    listed = obj["status"]["admissionChecks"]
    assert [one["name"] for one in listed] == [f"c{number}" for number in range(8)]
    assert listed[7]["retryCount"] == 1


def test_checks_are_listed_before_anything_is_admitted() -> None:
    obj = reserved(admission=on("spot"))
    assert condition_of(written(obj, decided(obj, cluster_queue=CHECKED)), "Admitted") is None


def test_what_has_pending_checks_is_not_admitted() -> None:
    obj = reserved(admissionChecks=[check("z-all", "Pending")])
    assert condition_of(settled(obj, cluster_queue=cluster_queue(checks=RULES[:1])), "Admitted") == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


def test_when_all_checks_are_ready_it_is_admitted() -> None:
    obj = reserved(admissionChecks=[check("z-all", "Ready")], resourceRequests=[{"name": "main"}])
    plan = decided(obj, now=30, cluster_queue=cluster_queue(checks=RULES[:1]))
    done = written(obj, plan)
    assert condition_of(done, "Admitted") == ("True", "Admitted", "The workload is admitted")
    assert "resourceRequests" not in done["status"]
    assert told(plan) == [
        ("Normal", "Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 30s")
    ]


@pytest.mark.parametrize(
    "obj",
    [
        reserved(condition("Evicted", True, "AdmissionCheck")),
        reserved(condition("Evicted", True, "Deactivated"), spec={"active": False}),
    ],
)
def test_what_is_being_evicted_is_not_admitted(obj: Object) -> None:
    assert condition_of(settled(obj), "Admitted") is None


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
    assert condition_of(settled(obj, **world), "Admitted") == (
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
    assert condition_of(written(obj, decided(obj, **world)), "Admitted")[0] == "True"
    if policy == "Hold":
        assert decided(admitted(AWAITED), **world).actions == (), "only what is not admitted loses its quota"


@pytest.mark.parametrize("queue", [None, ""])
def test_a1_reserved_workload_that_names_no_local_queue_becomes_admitted(queue: str | None) -> None:
    spec: Any = {} if queue is None else {"queueName": queue}
    obj = settled(reserved(AWAITED, spec=spec), local_queue=None, cluster_queue=None)
    assert condition_of(obj, "Admitted")[0] == "True"


def test_a1_condition_without_an_admission_admits_nothing() -> None:
    assert condition_of(settled(reserved(AWAITED, admission=None)), "Admitted") is None


@pytest.mark.parametrize("world", GONE)
def test_a1_admitted_workload_keeps_its_admission_without_its_queues(world: Any) -> None:
    assert decided(admitted(AWAITED), **world).actions == ()


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
        obj = written(obj, decided(obj, **world))
    assert condition_of(obj, "QuotaReserved")[2] == message
    assert condition_of(obj, "Admitted")[1] == "NoReservation"
    assert "admission" not in obj["status"]


@pytest.mark.parametrize("by", [reserved, admitted])
def test_a3_pods_are_stated_as_not_ready_where_another_program_reserved_quota(by: Any) -> None:
    expected = ("False", "WaitForStart", "Not all pods are ready or succeeded")
    assert condition_of(settled(by()), "PodsReady") == expected
    assert condition_of(settled(by(), settings={"pods_ready": None}), "PodsReady") is None
    assert condition_of(settled(by(), cluster_queue=None), "PodsReady") == expected


def test_a3_execution_is_added_up_where_another_program_released_quota_alone() -> None:
    obj = admitted(AWAITED, since=10, accumulatedPastExecutionTimeSeconds=5)
    released = after(
        obj, {"status": {"conditions": [condition("QuotaReserved", False, "Pending", "m"), ADMITTED]}}
    )
    done = settled(released, now=40)
    assert condition_of(done, "Admitted")[1] == "NoReservation"
    assert done["status"]["accumulatedPastExecutionTimeSeconds"] == 45


def test_a3_execution_is_added_up_where_another_program_ended_the_admission() -> None:
    waits = workload(condition("QuotaReserved", False, "WaitingForQuota", "m"), NOT_ADMITTED)
    added = settled(waits, unrecorded_execution=0)
    assert "accumulatedPastExecutionTimeSeconds" not in added["status"]
    plan = decided(waits, unrecorded_execution=30 * SECOND)
    assert written(waits, plan)["status"]["accumulatedPastExecutionTimeSeconds"] == 30


def test_an_undecided_topology_holds_the_admission_back() -> None:
    admission = on("spot")
    admission["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    assert condition_of(settled(reserved(admission=admission)), "Admitted") == (
        "False",
        "PendingDelayedTopologyRequests",
        "There are pending delayed topology requests",
    )


def test_a_rejected_check_deactivates_and_is_named() -> None:
    checks = [check("a", "Retry"), check("b", "Rejected", message="no nodes"), check("c", "Rejected")]
    queue = cluster_queue(checks=[{"name": name} for name in "abc"])
    obj = reserved(
        condition("Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"),
        admissionChecks=checks,
    )
    plan = decided(obj, cluster_queue=queue)
    message = 'AdmissionChecks in Rejected state: "b" (no nodes); "c"'
    assert condition_of(written(obj, plan), "DeactivationTarget") == ("True", "AdmissionCheck", message)
    assert told(plan) == [("Warning", "AdmissionCheckRejected", f"Deactivated due to {message}")]


def test_a_rejection_ends_in_a_deactivation_with_the_checks_reset() -> None:
    queue = cluster_queue(checks=[{"name": "b"}])
    final = settled(reserved(admissionChecks=[check("b", "Rejected", message="no")]), cluster_queue=queue)
    assert condition_of(final, "Evicted")[1] == "DeactivatedDueToAdmissionCheck"
    assert final["status"]["admissionChecks"] == [
        check("b", "Pending", message="Reset to Pending after eviction. Previously: Rejected")
    ]


def test_a_check_to_be_retried_evicts_and_is_waited_for() -> None:
    queue = cluster_queue(checks=[{"name": "a"}])
    asked = check("a", "Retry", message="later", requeueAfterSeconds=90, retryCount=1, podSetUpdates=[{}])
    obj = admitted(admissionChecks=[asked])
    final = settled(obj, now=30, cluster_queue=queue)
    assert condition_of(final, "Evicted") == (
        "True",
        "AdmissionCheck",
        'Evicted due to AdmissionCheck in Retry state: "a" (later)',
    )
    assert final["status"]["requeueState"] == {"requeueAt": time(90)}
    assert final["status"]["admissionChecks"] == [
        {
            **check("a", "Pending", message="Reset to Pending after eviction. Previously: Retry"),
            "lastTransitionTime": time(30),
            "requeueAfterSeconds": 90,
            "retryCount": 2,
        }
    ]
    assert final["status"]["schedulingStats"]["evictions"] == [
        {"reason": "AdmissionCheck", "underlyingCause": "", "count": 1}
    ]


@pytest.mark.parametrize(
    ("asked", "requeue_at"),
    [
        ([{"requeueAfterSeconds": 90}, {"requeueAfterSeconds": 200}], time(200)),
        ([{"requeueAfterSeconds": 90}, {}], time(90)),
        ([{"requeueAfterSeconds": 0}, {}], None),
        ([{"requeueAfterSeconds": 30}, {}], None),
    ],
    ids=["the-latest", "one-that-says-nothing", "at-once", "over"],
)
def test_the_wait_is_that_of_the_check_which_asks_for_the_longest(asked: Any, requeue_at: Any) -> None:
    queue = cluster_queue(checks=[{"name": "a"}, {"name": "b"}])
    checks = [check(name, "Retry", **fields) for name, fields in zip("ab", asked, strict=True)]
    obj = settled(reserved(admissionChecks=checks), now=30, cluster_queue=queue)
    assert obj["status"].get("requeueState") == (requeue_at and {"requeueAt": requeue_at})
    assert [one["retryCount"] for one in obj["status"]["admissionChecks"]] == [1, 1]


def test_an_earlier_wait_that_is_longer_stays() -> None:
    obj = reserved(
        admissionChecks=[check("a", "Retry", requeueAfterSeconds=90)],
        requeueState={"count": 2, "requeueAt": time(500)},
    )
    final = settled(obj, now=30, cluster_queue=cluster_queue(checks=[{"name": "a"}]))
    assert final["status"]["requeueState"] == {"count": 2, "requeueAt": time(500)}


def test_a_check_that_asks_for_a_retry_of_who_is_deactivated_is_not_waited_for() -> None:
    """Its controller may not have seen yet that the Workload is inactive."""
    obj = workload(
        condition("Evicted", True, "Deactivated", "The workload is deactivated"),
        condition("QuotaReserved", False, "Deactivated", "The workload is deactivated"),
        NOT_ADMITTED,
        spec={"active": False},
        admissionChecks=[check("a", "Retry", requeueAfterSeconds=90)],
    )
    assert decided(obj, now=30, cluster_queue=cluster_queue(checks=[{"name": "a"}])).actions == ()


# --- queues that stop -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "reason", "message"),
    [
        ({"local_queue": None}, "Misconfigured", "LocalQueue lq is terminating or missing"),
        (
            {"local_queue": local_queue(deletionTimestamp=time(0))},
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
            {"cluster_queue": cluster_queue(deletionTimestamp=time(0))},
            "Misconfigured",
            "ClusterQueue cq is terminating or missing",
        ),
        ({"cluster_queue": cluster_queue("HoldAndDrain")}, "Suspended", "ClusterQueue cq is stopped"),
    ],
)
def test_a_mere_reservation_is_given_back(world: Any, reason: str, message: str) -> None:
    waiting = condition(
        "Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
    )
    obj = reserved(waiting, admissionChecks=[check("a", "Pending")])
    queue = world.get("cluster_queue", cluster_queue())
    if queue is not None:
        queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "a"}]}
        world = {**world, "cluster_queue": queue}
    released = written(obj, decided(obj, **world))
    assert condition_of(released, "QuotaReserved") == ("False", reason, message)
    assert condition_of(released, "Admitted")[1] == "NoReservation"
    assert "admission" not in released["status"]
    types = {one["type"] for one in released["status"]["conditions"]}
    assert not types & {"Requeued", "Evicted"}, "nobody was evicted"


@pytest.mark.parametrize(
    ("lq", "stop", "message"),
    [
        (None, "None", "LocalQueue lq doesn't exist"),
        (local_queue(), "Hold", "ClusterQueue cq is inactive"),
    ],
)
def test_without_detailed_reasons_it_is_given_back_as_inadmissible(lq: Any, stop: str, message: str) -> None:
    final = settled(
        reserved(admissionChecks=[check("a", "Pending")]),
        local_queue=lq,
        cluster_queue=cluster_queue(stop, checks=[{"name": "a"}]),
        cluster_queue_active=stop == "None",
        settings={"detailed_reasons": False},
    )
    assert condition_of(final, "QuotaReserved") == ("False", "Inadmissible", message)
    assert "admission" not in final["status"]


@pytest.mark.parametrize(
    ("world", "runs_on"),
    [
        ({"local_queue": local_queue("Hold")}, True),
        ({"cluster_queue": cluster_queue("Hold")}, True),
        ({"local_queue": None}, True),
        ({"cluster_queue": None}, True),
        ({"cluster_queue": cluster_queue(deletionTimestamp=time(0))}, True),
        ({"local_queue": local_queue("HoldAndDrain")}, False),
        ({"cluster_queue": cluster_queue("HoldAndDrain")}, False),
    ],
)
def test_what_is_admitted_runs_on_unless_the_queue_drains(world: Any, runs_on: bool) -> None:
    assert (not decided(admitted(condition("PodsReady", True, "Started")), **world).actions) is runs_on


@pytest.mark.parametrize(
    "world",
    [
        {"local_queue": None},
        {"local_queue": local_queue("HoldAndDrain")},
        {"cluster_queue": None, "cluster_queue_active": False},
        {"cluster_queue": cluster_queue("HoldAndDrain"), "cluster_queue_active": False},
        {"cluster_queue": cluster_queue(deletionTimestamp=time(0)), "cluster_queue_active": False},
        {"cluster_queue": cluster_queue(flavors=["another"])},
    ],
)
def test_an_eviction_goes_on_whatever_becomes_of_the_queue(world: Any) -> None:
    leaving = admitted(condition("Evicted", True, "Preempted", "m"), condition("PodsReady", True, "Started"))
    assert decided(leaving, **world).actions == ()


@pytest.mark.parametrize("stop", ["", "None"])
def test_e_queues_with_an_empty_stop_policy_are_not_stopped(stop: str) -> None:
    world: Any = {"local_queue": local_queue(stop), "cluster_queue": cluster_queue(stop, [{"name": "a"}])}
    pending = {"name": "a", "state": "Pending", "lastTransitionTime": time(0), "message": ""}
    obj = settled(reserved(AWAITED, admissionChecks=[pending]), **world)
    assert condition_of(obj, "QuotaReserved")[0] == "True"


def test_e_admitted_condition_without_any_reservation_is_ended() -> None:
    obj = settled(workload(ADMITTED))
    assert condition_of(obj, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    assert condition_of(obj, "QuotaReserved") is None


def test_a_draining_queue_evicts() -> None:
    obj = admitted()
    plan = decided(obj, cluster_queue=cluster_queue("HoldAndDrain"))
    evicted = written(obj, plan)
    assert condition_of(evicted, "Evicted") == (
        "True",
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
    )
    assert told(plan) == [("Normal", "EvictedDueToClusterQueueStopped", "The ClusterQueue is stopped")]
    assert settled(evicted, cluster_queue=cluster_queue("HoldAndDrain")) == evicted


# --- limits of time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "again"),
    [
        ([condition("PodsReady", False, "WaitForStart")], 290.0),
        ([condition("PodsReady", False, "WaitForRecovery", since=5)], 95.0),
        ([condition("PodsReady", True, "Started")], None),
    ],
)
def test_pods_have_their_time_to_become_ready(ready: list[Object], again: float | None) -> None:
    assert decided(admitted(*ready), now=10) == Plan(again=again)


def test_nobody_waits_for_pods_where_that_is_switched_off() -> None:
    assert decided(admitted(), now=10_000, settings={"pods_ready": None}) == Plan()


@pytest.mark.parametrize(
    ("ready", "cause"),
    [
        (condition("PodsReady", False, "WaitForStart"), "WaitForStart"),
        (condition("PodsReady", False, "WaitForRecovery"), "WaitForRecovery"),
    ],
)
def test_pods_that_are_not_ready_in_time_cost_the_admission(ready: Object, cause: str) -> None:
    obj = admitted(ready, requeueState={"count": 1})
    plan = decided(obj, now=300)
    evicted = written(obj, plan)
    message = "Exceeded the PodsReady timeout ns/job-j-1"
    assert condition_of(evicted, "Evicted") == ("True", "PodsReadyTimeout", message)
    assert told(plan) == [("Normal", f"EvictedDueToPodsReadyTimeoutDueTo{cause}", message)]
    assert evicted["status"]["requeueState"] == {"count": 2, "requeueAt": time(300 + 120)}
    assert evicted["status"]["schedulingStats"]["evictions"] == [
        {"reason": "PodsReadyTimeout", "underlyingCause": cause, "count": 1}
    ]


def test_pods_that_got_ready_while_nobody_was_there_have_time_to_be_told_of() -> None:
    obj = admitted(condition("PodsReady", False, "WaitForStart"))
    assert decided(obj, now=1010, acting_since=at(1000)) == Plan(again=20.0)
    late = written(obj, decided(obj, now=1030, acting_since=at(1000)))
    assert (condition_of(late, "Evicted") or ("",))[:2] == ("True", "PodsReadyTimeout")
    quick = {"pods_ready": replace(POLICY, timeout=2 * SECOND)}
    assert decided(obj, now=1000, acting_since=at(1000), settings=quick) == Plan(again=2.0)


def test_too_many_returns_end_in_a_deactivation() -> None:
    final = settled(admitted(requeueState={"count": 2}), now=300)
    assert final["spec"]["active"] is False
    assert condition_of(final, "Evicted") == (
        "True",
        "DeactivatedDueToRequeuingLimitExceeded",
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    )
    assert "requeueState" not in final["status"]


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, 60), (2, 120), (3, 240), (4, 480), (5, 960), (6, 1920), (7, 3600), (8, 3600), (10**6, 3600)],
)
def test_the_backoff_doubles_up_to_its_limit(count: int, seconds: int) -> None:
    assert POLICY.backoff_seconds(count) == seconds


def test_an_execution_has_its_time_counting_what_was_used_before() -> None:
    ready = condition("PodsReady", True, "Started")
    spec = {"maximumExecutionTimeSeconds": 100}
    obj = admitted(ready, spec=spec, accumulatedPastExecutionTimeSeconds=40)
    assert decided(obj, now=10) == Plan(again=50.0)
    plan = decided(obj, now=60)
    over = written(obj, plan)
    assert condition_of(over, "DeactivationTarget") == (
        "True",
        "MaximumExecutionTimeExceeded",
        "exceeding the maximum execution time",
    )
    assert told(plan) == [
        ("Warning", "MaximumExecutionTimeExceeded", "The maximum execution time (100s) exceeded")
    ]
    final = settled(over, now=61)
    assert condition_of(final, "Evicted")[1] == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "accumulatedPastExecutionTimeSeconds" not in final["status"]


@pytest.mark.parametrize(
    ("limit", "count", "reason"),
    [
        (None, 1000, "PodsReadyTimeout"),
        (0, None, "DeactivatedDueToRequeuingLimitExceeded"),
        (2, 1, "PodsReadyTimeout"),
        (2, 2, "DeactivatedDueToRequeuingLimitExceeded"),
    ],
)
def test_returns_are_limited_where_a_limit_is_set(limit: int | None, count: int | None, reason: str) -> None:
    obj = admitted(requeueState={} if count is None else {"count": count})
    settings = {"pods_ready": replace(POLICY, backoff_limit=limit)}
    assert condition_of(settled(obj, now=300, settings=settings), "Evicted")[1] == reason


def test_e_largest_number_of_returns_stays_when_another_follows() -> None:
    settings = {"pods_ready": replace(POLICY, backoff_limit=None)}
    evicted = settled(admitted(AWAITED, requeueState={"count": 2**31 - 1}), now=300, settings=settings)
    assert condition_of(evicted, "Evicted")[1] == "PodsReadyTimeout"
    assert evicted["status"]["requeueState"]["count"] == 2**31 - 1


def test_without_time_and_without_a_wait_it_is_evicted_and_back_at_once() -> None:
    policy = replace(POLICY, timeout=0, backoff_base_seconds=0)
    evicted = settled(admitted(AWAITED), settings={"pods_ready": policy})
    assert condition_of(evicted, "Evicted")[1] == "PodsReadyTimeout"
    assert condition_of(evicted, "Requeued") == BACK
    assert evicted["status"]["requeueState"] == {"count": 1}


# --- two causes at once ---------------------------------------------------------------------------

SHORT = {"maximumExecutionTimeSeconds": 100}


@pytest.mark.parametrize(
    ("states", "draining", "spec", "type_", "reason"),
    [
        (["Rejected", "Retry"], 2, SHORT, "DeactivationTarget", "AdmissionCheck"),
        (["Retry"], 2, SHORT, "Evicted", "AdmissionCheck"),
        (["Ready"], 2, SHORT, "Evicted", "LocalQueueStopped"),
        (["Ready"], 1, SHORT, "Evicted", "ClusterQueueStopped"),
        (["Ready"], 0, SHORT, "Evicted", "PodsReadyTimeout"),
        (["Rejected"], 2, {**SHORT, "active": False}, "Evicted", "Deactivated"),
    ],
)
def test_of_several_causes_the_first_in_order_is_told_alone(
    states: list[str], draining: int, spec: Any, type_: str, reason: str
) -> None:
    """Pods have not got ready in time, the time of execution is over, and that is not all."""
    checks = [check(name, state) for name, state in zip("ab", states, strict=False)]
    rules = [{"name": one["name"]} for one in checks]
    world = {
        "cluster_queue": cluster_queue("HoldAndDrain" if draining else "None", rules),
        "local_queue": local_queue("HoldAndDrain" if draining > 1 else "None"),
    }
    obj = admitted(admissionChecks=checks, spec=spec)
    told_to = written(obj, decided(obj, now=300, **world))
    assert condition_of(told_to, type_)[1] == reason
    assert len(told_to["status"]["conditions"]) == len(obj["status"]["conditions"]) + 1
    if type_ == "Evicted":
        assert settled(told_to, now=300, **world) == told_to, "the others wait for the eviction to end"


@pytest.mark.parametrize("reason", ["AdmissionCheck", "Preempted"])
@pytest.mark.parametrize("targets", [[], [condition("DeactivationTarget", True, "AdmissionCheck", "no")]])
def test_who_is_deactivated_while_it_is_evicted_is_not_evicted_again(targets: Any, reason: str) -> None:
    former = condition("Evicted", True, reason, "m")
    obj = admitted(former, *targets, spec={"active": False}, requeueState={"count": 1, "requeueAt": time(60)})
    final = settled(obj)
    assert condition_of(final, "Evicted") == ("True", reason, "m")
    assert {"requeueState", "schedulingStats"}.isdisjoint(final["status"])
    assert final["status"]["admission"] == ADMISSION, "it is its job that gives it back"
    assert condition_of(final, "DeactivationTarget") is None, "or nobody could reactivate it"


# --- the end --------------------------------------------------------------------------------------

GOING = {"deletionTimestamp": time(0)}
LABELLED = {"labels": {NAMES.job_uid: "uid-j"}}


def test_a_workload_whose_owner_is_gone_is_finished_and_freed() -> None:
    obj = workload(owner=None, metadata=LABELLED)
    finished = written(obj, decided(obj))
    assert condition_of(finished, "Finished") == (
        "True",
        "OwnerNotFound",
        "The workload's owner no longer exists",
    )
    assert decided(finished).actions == (RemoveFinalizer(KINDS.workloads, finished),)


def test_a_workload_that_never_had_an_owner_lives_on() -> None:
    assert decided(workload(owner=None)).actions == ()


def test_a_deleted_workload_without_owner_is_freed() -> None:
    obj = workload(FINISHED, owner=None, metadata=GOING)
    assert decided(obj).actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_without_the_gate_it_is_freed_without_being_finished() -> None:
    obj = workload(owner=None, metadata={**GOING, **LABELLED})
    plan = decided(obj, settings={"finish_orphaned": False})
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_a_deleted_workload_with_an_owner_is_its_owners_matter() -> None:
    assert decided(workload(FINISHED, metadata=GOING)).actions == ()


def test_one_whose_owners_are_gone_with_their_kind_is_finished_and_freed() -> None:
    write = decided(reserved(metadata=GOING), owners_gone=True).actions[0]
    assert isinstance(write, Patch)
    assert write.steps[0].patch["status"]["conditions"][-1]["reason"] == "OwnerNotFound"
    obj = workload(FINISHED, metadata=GOING)
    assert decided(obj, owners_gone=True).actions == (RemoveFinalizer(KINDS.workloads, obj),)


def test_a_finished_workload_is_kept_for_its_retention_and_then_deleted() -> None:
    retention = {"settings": {"after_finished": 3600 * SECOND}}
    obj = workload(FINISHED)
    assert decided(obj, now=600, **retention) == Plan(again=3000.0)
    removed, deleted, tell = decided(obj, now=3600, **retention).actions
    assert (removed, deleted) == (RemoveFinalizer(KINDS.workloads, obj), Delete(KINDS.workloads, obj))
    assert isinstance(tell, Tell)
    assert tell.note == "Deleted finished workload due to elapsed retention"


def test_an_orphan_has_its_retention_too() -> None:
    obj = workload(FINISHED, owner=None, metadata={**LABELLED, "finalizers": []})
    assert decided(obj, now=0, settings={"after_finished": 60 * SECOND}) == Plan(again=60.0)
    plan = decided(obj, now=0, settings={"after_finished": 0})
    assert Delete(KINDS.workloads, obj) in plan.actions


def test_a_finished_workload_is_kept_without_a_retention() -> None:
    assert decided(workload(FINISHED), now=10**6) == Plan()


@pytest.mark.parametrize("obj", [workload(FINISHED, spec={"active": False}), workload(FINISHED)])
def test_nothing_happens_to_a_finished_workload(obj: Object) -> None:
    assert decided(obj, local_queue=None).actions == ()


# --- slices of elastic jobs -----------------------------------------------------------------------


@pytest.mark.parametrize("by", [reserved, admitted])
def test_a_slice_that_got_its_quota_ends_the_one_that_it_replaces(by: Callable[..., Object]) -> None:
    original, larger = admitted(name="original"), by(metadata={"labels": {NAMES.job_uid: "job-uid"}})
    plan = decided(larger, original=original)
    message = (
        f"Replaced to accommodate a workload (UID: {larger['metadata']['uid']}, JobUID: job-uid) "
        "due to workload slice aggregation"
    )
    assert told(plan) == [("Normal", "WorkloadSliceReplaced", message)]
    [patch] = [one for one in plan.actions if isinstance(one, Patch)]
    assert patch.obj == original
    assert condition_of(written(original, plan), "Finished") == ("True", "WorkloadSliceReplaced", message)


def test_slice_that_ended_another_goes_on_with_its_own_steps_at_once() -> None:
    larger, original = reserved(), admitted(name="original")
    assert decided(larger, original=original).again == 0
    over = written(original, decided(larger, original=original))
    assert condition_of(written(larger, decided(larger, original=over)), "Admitted")[:2] == (
        "True",
        "Admitted",
    )


@pytest.mark.parametrize(
    ("larger", "original"),
    [
        (workload(), admitted()),
        (admitted(), admitted(condition("Finished", True, "Succeeded"))),
        (admitted(), None),
    ],
)
def test_until_then_and_thereafter_nothing_is_replaced(larger: Object, original: Object | None) -> None:
    assert told(decided(larger, original=original)) == []


# --- all of it together -----------------------------------------------------------------------------


@given(st.data())
def test_decisions_about_whatever_there_may_be_come_to_an_end(data: st.DataObject) -> None:
    """No two steps may undo each other's writes."""
    obj = some_workload(data)
    settings = {"detailed_reasons": data.draw(st.booleans()), "explicit_pending": data.draw(st.booleans())}
    settled(obj, now=310, settings=settings, **data.draw(st.sampled_from(SURROUNDINGS)))
