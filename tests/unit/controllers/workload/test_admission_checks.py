"""Admission checks: which checks a Workload lists, and the consequences of their states."""

from typing import Any

import pytest

from admitq.core.applicable_checks import MOST_CHECKS
from admitq_api.kinds.workload import WorkloadStatus
from admitq_api.schema import create_schema
from tests.unit.controllers.builders import (
    admitted,
    cluster_queue,
    condition,
    condition_of,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import (
    AWAITED,
    CHECKED,
    NOT_ADMITTED,
    admission_with,
    apply_plan,
    check,
    events_of,
    plan_for,
    settle,
)


def test_pending_workload_lists_only_checks_of_all_flavors() -> None:
    obj = apply_plan(workload(), plan_for(workload(), cluster_queue=CHECKED))
    assert obj["status"]["admissionChecks"] == [check("z-all", "Pending")]


def test_check_that_names_every_flavor_is_listed_for_pending_workload() -> None:
    queue = cluster_queue(checks=[{"name": "c", "onFlavors": ["o", "spot"]}], flavors=["spot", "o"])
    obj = apply_plan(workload(), plan_for(workload(), cluster_queue=queue))
    assert [item["name"] for item in obj["status"]["admissionChecks"]] == ["c"]


def test_reserved_workload_lists_checks_of_its_flavors_sorted_by_name() -> None:
    obj = reserved(
        admission=admission_with("spot"), admissionChecks=[check("z-all", "Ready"), check("gone", "Ready")]
    )
    listed = apply_plan(obj, plan_for(obj, cluster_queue=CHECKED))["status"]["admissionChecks"]
    assert listed == [check("a-spot", "Pending"), check("z-all", "Ready")]


def test_retry_count_of_flavor_check_is_kept_until_another_flavor_is_assigned() -> None:
    kept = check("a-spot", "Pending", retryCount=2)
    dropped = [check("b-other", "Pending"), check("gone", "Pending", retryCount=1)]
    obj = workload(admissionChecks=[kept, *dropped])
    waiting = settle(obj, cluster_queue=CHECKED)
    assert waiting["status"]["admissionChecks"] == [kept, check("z-all", "Pending")]
    for flavor, listed in (("spot", [kept]), ("o", [check("b-other", "Pending")])):
        reserved_workload = reserved(
            admission=admission_with(flavor), admissionChecks=waiting["status"]["admissionChecks"]
        )
        checks = settle(reserved_workload, cluster_queue=CHECKED)["status"]["admissionChecks"]
        assert checks == [*listed, check("z-all", "Pending")]


NINE = [{"name": f"c{number}"} for number in range(9)]


def too_many_checks(flavors: str) -> tuple[str, str, str]:
    message = (
        f"9 AdmissionChecks of ClusterQueue cq apply to {flavors}, and a Workload can have at most 8: "
        "remove some from spec.admissionChecksStrategy.admissionChecks, "
        "or limit them to other flavors by onFlavors"
    )
    return "False", "Misconfigured", message


def test_maximum_number_of_checks_equals_limit_of_workload_status() -> None:
    assert create_schema(WorkloadStatus)["properties"]["admissionChecks"]["maxItems"] == MOST_CHECKS


def test_pending_workload_keeps_its_checks_while_too_many_checks_apply() -> None:
    obj = settle(workload(), cluster_queue=cluster_queue(checks=NINE[:8]))
    assert [item["name"] for item in obj["status"]["admissionChecks"]] == [item["name"] for item in NINE[:8]]
    assert plan_for(obj, cluster_queue=cluster_queue(checks=NINE)).actions == ()


@pytest.mark.parametrize(
    ("queue", "flavors"),
    [
        (cluster_queue(checks=NINE), "every flavor"),
        (
            cluster_queue(checks=[{**item, "onFlavors": ["f"]} for item in NINE], flavors=["f", "g"]),
            "flavors f",
        ),
    ],
    ids=["every flavor", "its flavor"],
)
def test_reserved_workload_is_released_when_too_many_checks_apply(
    queue: dict[str, Any], flavors: str
) -> None:
    obj = settle(reserved(AWAITED), cluster_queue=queue)
    assert condition_of(obj, "QuotaReserved") == too_many_checks(flavors)
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
def test_workload_with_too_many_checks_is_unchanged_while_its_job_runs_or_stops(
    obj: dict[str, Any],
) -> None:
    assert plan_for(obj, cluster_queue=cluster_queue(checks=NINE)).actions == ()


def test_retried_checks_of_flavors_are_listed_up_to_maximum() -> None:
    retried = [check(name, "Pending", retryCount=1) for name in ("c7", "c8")]
    queue = cluster_queue(
        checks=[*NINE[:7], *({**item, "onFlavors": ["f"]} for item in NINE[7:])], flavors=["f", "g"]
    )
    obj = settle(workload(admissionChecks=retried), cluster_queue=queue)
    listed = obj["status"]["admissionChecks"]
    assert [one["name"] for one in listed] == [f"c{number}" for number in range(8)]
    assert listed[7]["retryCount"] == 1


def test_rejected_check_deactivates_workload_and_is_named_in_message() -> None:
    checks = [check("a", "Retry"), check("b", "Rejected", message="no nodes"), check("c", "Rejected")]
    queue = cluster_queue(checks=[{"name": name} for name in "abc"])
    obj = reserved(
        condition("Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"),
        admissionChecks=checks,
    )
    plan = plan_for(obj, cluster_queue=queue)
    message = 'AdmissionChecks in Rejected state: "b" (no nodes); "c"'
    assert condition_of(apply_plan(obj, plan), "DeactivationTarget") == ("True", "AdmissionCheck", message)
    assert events_of(plan) == [("Warning", "AdmissionCheckRejected", f"Deactivated due to {message}")]


def test_rejected_check_is_reset_after_deactivation() -> None:
    queue = cluster_queue(checks=[{"name": "b"}])
    final = settle(reserved(admissionChecks=[check("b", "Rejected", message="no")]), cluster_queue=queue)
    assert condition_of(final, "Evicted")[1] == "DeactivatedDueToAdmissionCheck"
    assert final["status"]["admissionChecks"] == [
        check("b", "Pending", message="Reset to Pending after eviction. Previously: Rejected")
    ]


def test_retried_check_evicts_workload_and_sets_backoff() -> None:
    queue = cluster_queue(checks=[{"name": "a"}])
    retried_check = check(
        "a", "Retry", message="later", requeueAfterSeconds=90, retryCount=1, podSetUpdates=[{}]
    )
    obj = admitted(admissionChecks=[retried_check])
    final = settle(obj, now=30, cluster_queue=queue)
    assert condition_of(final, "Evicted") == (
        "True",
        "AdmissionCheck",
        'Evicted due to AdmissionCheck in Retry state: "a" (later)',
    )
    assert final["status"]["requeueState"] == {"requeueAt": timestamp(90)}
    assert final["status"]["admissionChecks"] == [
        {
            **check("a", "Pending", message="Reset to Pending after eviction. Previously: Retry"),
            "lastTransitionTime": timestamp(30),
            "requeueAfterSeconds": 90,
            "retryCount": 2,
        }
    ]
    assert final["status"]["schedulingStats"]["evictions"] == [
        {"reason": "AdmissionCheck", "underlyingCause": "", "count": 1}
    ]


@pytest.mark.parametrize(
    ("fields_of_checks", "requeue_at"),
    [
        ([{"requeueAfterSeconds": 90}, {"requeueAfterSeconds": 200}], timestamp(200)),
        ([{"requeueAfterSeconds": 90}, {}], timestamp(90)),
        ([{"requeueAfterSeconds": 0}, {}], None),
        ([{"requeueAfterSeconds": 30}, {}], None),
    ],
    ids=["two delays", "one check without delay", "zero delay", "delay has passed"],
)
def test_backoff_is_longest_delay_of_retried_checks(fields_of_checks: Any, requeue_at: Any) -> None:
    queue = cluster_queue(checks=[{"name": "a"}, {"name": "b"}])
    checks = [check(name, "Retry", **fields) for name, fields in zip("ab", fields_of_checks, strict=True)]
    obj = settle(reserved(admissionChecks=checks), now=30, cluster_queue=queue)
    assert obj["status"].get("requeueState") == (requeue_at and {"requeueAt": requeue_at})
    assert [item["retryCount"] for item in obj["status"]["admissionChecks"]] == [1, 1]


def test_longer_backoff_of_earlier_eviction_is_kept() -> None:
    obj = reserved(
        admissionChecks=[check("a", "Retry", requeueAfterSeconds=90)],
        requeueState={"count": 2, "requeueAt": timestamp(500)},
    )
    final = settle(obj, now=30, cluster_queue=cluster_queue(checks=[{"name": "a"}]))
    assert final["status"]["requeueState"] == {"count": 2, "requeueAt": timestamp(500)}


def test_retried_check_of_deactivated_workload_is_ignored() -> None:
    """The controller of the check may not have observed yet that the Workload is inactive."""
    obj = workload(
        condition("Evicted", True, "Deactivated", "The workload is deactivated"),
        condition("QuotaReserved", False, "Deactivated", "The workload is deactivated"),
        NOT_ADMITTED,
        spec={"active": False},
        admissionChecks=[check("a", "Retry", requeueAfterSeconds=90)],
    )
    assert plan_for(obj, now=30, cluster_queue=cluster_queue(checks=[{"name": "a"}])).actions == ()
