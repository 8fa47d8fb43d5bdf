"""The state of the check follows the ProvisioningRequest."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Delete, Patch
from admitq.controllers.provisioning.controller import report_check_activity
from admitq.controllers.provisioning.requests import request_name
from admitq.controllers.provisioning.steps import decide_provisioning
from tests.unit.controllers.builders import KINDS, NAMES, admitted, instant, reserved, timestamp, workload
from tests.unit.controllers.provisioning.cases import (
    DELETED,
    EVICTED,
    NAME,
    actions_of,
    case,
    check,
    check_after,
    config,
    request,
    request_condition,
)

RETRY_60 = {"requeueAfterSeconds": 60}


@pytest.mark.parametrize(
    ("obj", "request_", "expected"),
    [
        pytest.param(
            reserved(admissionChecks=[check()]),
            request(request_condition("Failed"), request_condition("Provisioned")),
            check("Retry", message="Retrying after failure: m", **RETRY_60),
            id="failed",
        ),
        pytest.param(
            reserved(admissionChecks=[check(lastTransitionTime=timestamp(60))]),
            request(request_condition("Failed")),
            check(
                "Retry",
                message="Retrying after failure: m",
                lastTransitionTime=timestamp(60),
                **RETRY_60,
            ),
            id="failed-by-a-clock-that-is-behind",
        ),
        pytest.param(
            reserved(admissionChecks=[check(lastTransitionTime=timestamp(99))]),
            request({**request_condition("Failed"), "lastTransitionTime": "soon"}),
            check(
                "Retry",
                message="Retrying after failure: m",
                lastTransitionTime=timestamp(99),
                **RETRY_60,
            ),
            id="failed-at-an-invalid-time",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=1)]),
            request(request_condition("Failed"), attempt=2),
            check("Retry", message="Retrying after failure: m", retryCount=1, requeueAfterSeconds=120),
            id="failed-again",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=3)]),
            request(request_condition("Failed"), attempt=4),
            check("Rejected", message="m", retryCount=3),
            id="failed-too-often",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready")]),
            request(request_condition("Failed")),
            check("Retry", message="Retrying after failure: m", **RETRY_60),
            id="failed-after-ready",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")]),
            request(request_condition("CapacityRevoked"), request_condition("Provisioned")),
            check("Rejected", message="m"),
            id="revoked-while-it-runs",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")], spec={"active": False}),
            request(request_condition("CapacityRevoked"), request_condition("Provisioned")),
            check("Ready"),
            id="revoked-while-deactivated",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Rejected", message="m")], spec={"active": False}),
            request(request_condition("CapacityRevoked"), request_condition("Provisioned")),
            check("Rejected", message="m"),
            id="revoked-and-therefore-deactivated",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready")]),
            request(request_condition("BookingExpired"), request_condition("Provisioned")),
            check("Retry", message="Retrying after booking expired: m", **RETRY_60),
            id="expired-before-admission",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=3)]),
            request(request_condition("BookingExpired"), attempt=4),
            check("Rejected", message="m", retryCount=3),
            id="expired-too-often",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")]),
            request(request_condition("BookingExpired"), request_condition("Provisioned")),
            check("Ready"),
            id="expired-while-it-runs",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready", message="kept")]),
            request(request_condition("Provisioned", message="another")),
            check("Ready", message="kept"),
            id="provisioned-and-already-ready",
        ),
        pytest.param(
            reserved(admissionChecks=[check()]),
            request(request_condition("Accepted"), request_condition("Provisioned", False, "in 5 minutes")),
            check(message="in 5 minutes"),
            id="accepted",
        ),
        pytest.param(
            reserved(admissionChecks=[check(message="Reset to Pending after eviction.")]),
            request(request_condition("Accepted")),
            check(),
            id="accepted-without-provisioned-condition",
        ),
        pytest.param(
            reserved(admissionChecks=[check(message="old")]), request(), check(), id="no-conditions"
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready", message="kept")]),
            request(),
            check("Ready", message="kept"),
            id="no-conditions-but-ready",
        ),
    ],
)
def test_check_state_follows_conditions_of_its_request(
    obj: dict[str, Any], request_: dict[str, Any], expected: dict[str, Any]
) -> None:
    state, notes = check_after(case(obj, request_))
    assert state == expected
    before = obj["status"]["admissionChecks"][0]["state"]
    message = f" with message: {expected['message']}" if expected["message"] else ""
    change = f"Admission check c updated state from {before} to {expected['state']}{message}"
    assert notes == ([change] if before != expected["state"] else [])


def test_check_becomes_ready_with_podset_updates_when_nodes_are_provisioned() -> None:
    config_ = config(
        podSetUpdates={
            "nodeSelector": [
                {"key": "pool", "valueFromProvisioningClassDetail": "Pool"},
                {"key": "zone", "valueFromProvisioningClassDetail": "Missing"},
            ]
        }
    )
    provisioned = request(
        request_condition("Provisioned", message="there"), provisioningClassDetails={"Pool": "p-1"}
    )
    obj = reserved(admissionChecks=[check(retryCount=1)])
    state, notes = check_after(case(obj, provisioned, config=config_))
    assert state == check(
        "Ready",
        message="there",
        retryCount=1,
        podSetUpdates=[
            {
                "name": "main",
                "annotations": {
                    "autoscaling.x-k8s.io/consume-provisioning-request": NAME,
                    "autoscaling.x-k8s.io/provisioning-class-name": "class",
                },
                "nodeSelector": {"pool": "p-1"},
            }
        ],
    )
    assert notes == ["Admission check c updated state from Pending to Ready with message: there"]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("zone", "projects/p/zones/z", "a valid label must"),
        ("zone", "z" * 64, "must be no more than 63 characters"),
        (f"{'k' * 64}", "z", "name part must be no more than 63 characters"),
    ],
)
def test_check_stays_pending_when_provisioning_detail_is_no_valid_node_selector(
    key: str, value: str, error: str
) -> None:
    rule = {"key": key, "valueFromProvisioningClassDetail": "Zone"}
    config_ = config(podSetUpdates={"nodeSelector": [rule]})
    provisioned = request(
        request_condition("Provisioned", message="there"), provisioningClassDetails={"Zone": value}
    )
    obj = reserved(admissionChecks=[check()])
    state, notes = check_after(case(obj, provisioned, config=config_))
    assert (state["state"], notes) == ("Pending", [])
    assert state["message"].startswith(f"provisioningClassDetails[Zone] cannot be the node selector {key}: ")
    assert error in state["message"]
    assert "podSetUpdates" not in state
    reported = reserved(admissionChecks=[state])
    assert decide_provisioning(case(reported, provisioned, config=config_)).actions == ()
    corrected, _ = check_after(case(reported, provisioned, config=config()))
    assert corrected["state"] == "Ready"


@pytest.mark.parametrize("state", ["Pending", "Ready", "Retry", "Rejected"])
def test_c17_check_without_its_config_deletes_its_requests(state: str) -> None:
    obj = reserved(admissionChecks=[check(state)])
    plan = decide_provisioning(case(obj, request(), request(attempt=2), config=None))
    assert [deletion.obj["metadata"]["name"] for deletion in actions_of(plan, Delete)] == [
        request_name("job-j-1", "c", attempt) for attempt in (1, 2)
    ]
    assert decide_provisioning(case(obj, request(metadata=DELETED), config=None)) == decide_provisioning(
        case(obj, config=None)
    )


def test_c17_check_without_its_config_is_pending_with_a_message_once_its_requests_are_gone() -> None:
    obj = reserved(admissionChecks=[check()])
    assert check_after(case(obj, config=None))[0] == check(message="the check is not active")


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_retried_or_rejected_check_becomes_pending_without_its_config(state: str) -> None:
    result, notes = check_after(case(reserved(admissionChecks=[check(state)]), config=None))
    assert (result["state"], notes) == (
        "Pending",
        [f"Admission check c updated state from {state} to Pending with message: the check is not active"],
    )


@pytest.mark.parametrize(
    "obj",
    [
        reserved(admissionChecks=[check("Ready", message="kept")]),
        workload(admissionChecks=[check()]),
        reserved(admissionChecks=[check("Retry")]),
        reserved(admissionChecks=[check("Rejected")]),
        reserved(EVICTED, admissionChecks=[check()]),
    ],
    ids=["ready", "without-quota", "to-be-retried", "rejected", "evicted"],
)
def test_no_request_is_created_unless_workload_has_quota_and_pending_check(obj: dict[str, Any]) -> None:
    assert decide_provisioning(case(obj)) == ActionPlan()


PARAMETERS = {"apiGroup": NAMES.group, "kind": "ProvisioningRequestConfig", "name": "p"}


@pytest.mark.parametrize(
    ("parameters", "config_", "expected"),
    [
        (PARAMETERS, config(), ("True", "Active", "The admission check is active")),
        (
            PARAMETERS,
            None,
            ("False", "BadParametersRef", f'provisioningrequestconfigs.{NAMES.group} "p" not found'),
        ),
        (
            None,
            None,
            (
                "False",
                "BadParametersRef",
                f"spec.parameters: name a ProvisioningRequestConfig of the API group {NAMES.group}",
            ),
        ),
        (
            {**PARAMETERS, "kind": "Other"},
            None,
            (
                "False",
                "BadParametersRef",
                f"spec.parameters: name a ProvisioningRequestConfig of the API group {NAMES.group}",
            ),
        ),
    ],
)
def test_active_condition_of_check_reports_whether_parameters_are_valid(
    parameters: Any, config_: dict[str, Any] | None, expected: tuple[str, str, str]
) -> None:
    obj: Mapping[str, Any] = {
        "metadata": {"name": "c", "resourceVersion": "1", "generation": 1},
        "spec": {"parameters": parameters},
    }
    [patch] = report_check_activity(obj, config_, NAMES, KINDS, instant(0)).actions
    assert isinstance(patch, Patch)
    [active] = patch.steps[0].patch["status"]["conditions"]
    assert (active["status"], active["reason"], active["message"]) == expected
    settled = {**obj, "status": {"conditions": [active]}}
    assert report_check_activity(settled, config_, NAMES, KINDS, instant(9)) == ActionPlan()
