"""Decisions about Workloads, and what they write, for the tests of the steps."""

from dataclasses import replace
from typing import Any

from admitq.controllers.plan import ActionPlan, Patch, RecordEvent
from admitq.controllers.workload.steps import decide_workload
from tests.unit.controllers.builders import QUEUED, after, at, cluster_queue, condition, settings_with, time

AWAITED = condition("PodsReady", False, "WaitForStart", "Not all pods are ready or succeeded")

NOT_ADMITTED = condition("Admitted", False, "NoReservation", "The workload has no reservation")


def decided(obj: dict[str, Any], now: float = 0, **world: Any) -> ActionPlan:
    settings = world.pop("settings", {})
    return decide_workload(obj, replace(QUEUED, settings=settings_with(**settings), **world), at(now))


def written(obj: dict[str, Any], plan: ActionPlan) -> dict[str, Any]:
    """The Workload as the plan's patches leave it."""
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch):
            for step in action.steps:
                patch = {key: value for key, value in step.patch.items() if key != "metadata"}
                result = after(result, patch)
    return result


def told(plan: ActionPlan) -> list[tuple[str, str, str]]:
    return [(one.type, one.reason, one.note) for one in plan.actions if isinstance(one, RecordEvent)]


def settled(obj: dict[str, Any], now: float = 0, **world: Any) -> dict[str, Any]:
    """The Workload when nothing more is decided."""
    for _ in range(10):
        plan = decided(obj, now, **world)
        if not plan.actions:
            return obj
        obj = written(obj, plan)
    raise AssertionError("the decisions do not come to an end")


BACK = ("True", "BackoffFinished", "The workload backoff was finished")

RULES = [
    {"name": "z-all"},
    {"name": "a-spot", "onFlavors": ["spot"]},
    {"name": "b-other", "onFlavors": ["o"]},
]

CHECKED = cluster_queue(checks=RULES, flavors=["spot", "o"])


def check(name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "lastTransitionTime": time(0), "message": "", **fields}


def on(flavor: str) -> dict[str, Any]:
    return {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": flavor}}],
    }
