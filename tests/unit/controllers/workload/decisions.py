"""Plans of the Workload controller, and the Workloads after their writes."""

from dataclasses import replace
from typing import Any

from admitq.controllers.plan import ActionPlan, Patch, RecordEvent
from admitq.controllers.workload.steps import decide_workload
from tests.unit.controllers.builders import (
    QUEUED,
    apply_patch,
    cluster_queue,
    condition,
    instant,
    settings_with,
    timestamp,
)

AWAITED = condition("PodsReady", False, "WaitForStart", "Not all pods are ready or succeeded")

NOT_ADMITTED = condition("Admitted", False, "NoReservation", "The workload has no reservation")


def plan_for(obj: dict[str, Any], now: float = 0, **inputs: Any) -> ActionPlan:
    settings = inputs.pop("settings", {})
    return decide_workload(obj, replace(QUEUED, settings=settings_with(**settings), **inputs), instant(now))


def apply_plan(obj: dict[str, Any], plan: ActionPlan) -> dict[str, Any]:
    """Return the Workload after the patches of a plan."""
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch):
            for step in action.steps:
                patch = {key: value for key, value in step.patch.items() if key != "metadata"}
                result = apply_patch(result, patch)
    return result


def events_of(plan: ActionPlan) -> list[tuple[str, str, str]]:
    return [
        (action.type, action.reason, action.note)
        for action in plan.actions
        if isinstance(action, RecordEvent)
    ]


def settle(obj: dict[str, Any], now: float = 0, **inputs: Any) -> dict[str, Any]:
    """Return the Workload once the controller decides nothing more."""
    for _ in range(10):
        plan = plan_for(obj, now, **inputs)
        if not plan.actions:
            return obj
        obj = apply_plan(obj, plan)
    raise AssertionError("the decisions do not settle")


BACKOFF_FINISHED = ("True", "BackoffFinished", "The workload backoff was finished")

RULES = [
    {"name": "z-all"},
    {"name": "a-spot", "onFlavors": ["spot"]},
    {"name": "b-other", "onFlavors": ["o"]},
]

CHECKED = cluster_queue(checks=RULES, flavors=["spot", "o"])


def check(name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "lastTransitionTime": timestamp(0), "message": "", **fields}


def admission_with(flavor: str) -> dict[str, Any]:
    return {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": flavor}}],
    }
