"""The order of the steps of the Workload controller, and that they settle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.controllers.plan import Patch
from admitq.translate.messages import unwritten_reservation
from tests.unit.controllers.builders import (
    ADMISSION,
    FINISHED,
    admitted,
    cluster_queue,
    condition,
    condition_of,
    local_queue,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.workload.decisions import (
    AWAITED,
    NOT_ADMITTED,
    apply_plan,
    check,
    plan_for,
    settle,
)
from tests.unit.controllers.workload_states import QUEUE_INPUTS, draw_workload


@pytest.mark.parametrize(
    "obj",
    [
        workload(condition("QuotaReserved", False, "WaitingForQuota", "m"), NOT_ADMITTED),
        workload(condition("QuotaReserved", False, *unwritten_reservation("cq", "e", 0)), NOT_ADMITTED),
        admitted(condition("PodsReady", True, "Started")),
        reserved(
            condition(
                "Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
            ),
            AWAITED,
            admissionChecks=[{"name": "c", "state": "Pending", "lastTransitionTime": timestamp(0)}],
        ),
        workload(FINISHED),
    ],
)
def test_settled_workload_causes_no_write(obj: dict[str, Any]) -> None:
    assert plan_for(obj, cluster_queue=cluster_queue(checks=_checks_of(obj))).actions == ()


def _checks_of(obj: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": check["name"]} for check in obj["status"].get("admissionChecks", [])]


def test_status_patch_contains_version_of_decided_workload() -> None:
    [action] = plan_for(workload(), local_queue=None).actions
    assert isinstance(action, Patch)
    assert action.steps[0].subresource == "status"
    assert action.steps[0].patch["metadata"] == {"resourceVersion": "7"}


SHORT_LIMIT = {"maximumExecutionTimeSeconds": 100}


@pytest.mark.parametrize(
    ("states", "draining", "spec", "type_", "reason"),
    [
        (["Rejected", "Retry"], 2, SHORT_LIMIT, "DeactivationTarget", "AdmissionCheck"),
        (["Retry"], 2, SHORT_LIMIT, "Evicted", "AdmissionCheck"),
        (["Ready"], 2, SHORT_LIMIT, "Evicted", "LocalQueueStopped"),
        (["Ready"], 1, SHORT_LIMIT, "Evicted", "ClusterQueueStopped"),
        (["Ready"], 0, SHORT_LIMIT, "Evicted", "PodsReadyTimeout"),
        (["Rejected"], 2, {**SHORT_LIMIT, "active": False}, "Evicted", "Deactivated"),
    ],
)
def test_only_first_of_several_eviction_causes_is_reported(
    states: list[str], draining: int, spec: Any, type_: str, reason: str
) -> None:
    """The pods-ready timeout and the execution time are exceeded, too."""
    checks = [check(name, state) for name, state in zip("ab", states, strict=False)]
    rules = [{"name": item["name"]} for item in checks]
    inputs = {
        "cluster_queue": cluster_queue("HoldAndDrain" if draining else "None", rules),
        "local_queue": local_queue("HoldAndDrain" if draining > 1 else "None"),
    }
    obj = admitted(admissionChecks=checks, spec=spec)
    reported = apply_plan(obj, plan_for(obj, now=300, **inputs))
    assert condition_of(reported, type_)[1] == reason
    assert len(reported["status"]["conditions"]) == len(obj["status"]["conditions"]) + 1
    if type_ == "Evicted":
        assert settle(reported, now=300, **inputs) == reported, (
            "other causes wait until the eviction has ended"
        )


@pytest.mark.parametrize("reason", ["AdmissionCheck", "Preempted"])
@pytest.mark.parametrize("targets", [[], [condition("DeactivationTarget", True, "AdmissionCheck", "no")]])
def test_deactivated_workload_during_eviction_is_not_evicted_again(targets: Any, reason: str) -> None:
    former = condition("Evicted", True, reason, "m")
    obj = admitted(
        former, *targets, spec={"active": False}, requeueState={"count": 1, "requeueAt": timestamp(60)}
    )
    final = settle(obj)
    assert condition_of(final, "Evicted") == ("True", reason, "m")
    assert {"requeueState", "schedulingStats"}.isdisjoint(final["status"])
    assert final["status"]["admission"] == ADMISSION, "the controller of its job releases it"
    assert condition_of(final, "DeactivationTarget") is None, (
        "otherwise no user could reactivate the Workload"
    )


@given(st.data())
def test_decisions_settle_from_any_workload_state(data: st.DataObject) -> None:
    """Two steps that undo each other's writes would never settle."""
    obj = draw_workload(data)
    settings = {"detailed_reasons": data.draw(st.booleans()), "explicit_pending": data.draw(st.booleans())}
    settle(obj, now=310, settings=settings, **data.draw(st.sampled_from(QUEUE_INPUTS)))
