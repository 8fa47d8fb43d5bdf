"""Decisions about jobs, and what they write, for the tests of the steps."""

from collections.abc import Callable
from typing import Any

from admitq.controllers.job.case import JobCase, Lookups
from admitq.controllers.job.steps import decide_job
from admitq.controllers.plan import (
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordEvent,
    RecordMetric,
    RemoveFinalizer,
)
from admitq.integrations.kinds.job import JOB
from tests.unit.controllers.builders import KINDS, NAMES, TEMPLATE, after, at, condition, settings_with

FLAVOR: dict[str, Any] = {
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
}

RUNNING_TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {
            "app": "x",
            NAMES.podset: "main",
            NAMES.local_queue_name: "lq",
            NAMES.cluster_queue_name: "cq",
            "controller-uid": "uid-j",
        },
        "annotations": {NAMES.workload: "job-j-1"},
    },
    "spec": {
        **TEMPLATE["spec"],
        "nodeSelector": {"pool": "spot"},
        "tolerations": FLAVOR["spec"]["tolerations"],
    },
}

RUNNING = {"suspend": False, "template": RUNNING_TEMPLATE}

NINE_PODS = {"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]}

FOR_NINE = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 9, "flavors": {}}]}

EVICTED = condition("Evicted", True, "ClusterQueueStopped", "The ClusterQueue is stopped", since=5)


def lookups(**known: Any) -> Lookups:
    """What is known besides the job: mappings by name, of flavors, classes and Workloads."""

    def of(kind: str) -> Callable[[str], dict[str, Any] | None]:
        return known.get(kind, {}).get

    return Lookups(
        flavor={"f": FLAVOR, **known.get("flavor", {})}.get,
        workload_priority_class=of("workload_priority_class"),
        priority_class=of("priority_class"),
        priority_classes=lambda: known.get("priority_class", {}).values(),
        workload=of("workload"),
    )


def case_of(
    job_: dict[str, Any] | None, *workloads: dict[str, Any], now: float = 10, **parts: Any
) -> JobCase:
    settings = settings_with(**parts.pop("settings", {}))
    known = parts.pop("known", {})
    return JobCase(
        integration=parts.pop("integration", JOB),
        names=NAMES,
        kinds=KINDS,
        settings=settings,
        now=at(now),
        job=job_,
        workloads=workloads,
        lookups=lookups(**known),
        **parts,
    )


def decided(job_: dict[str, Any] | None, *workloads: dict[str, Any], **parts: Any) -> ActionPlan:
    return decide_job(case_of(job_, *workloads, **parts))


def kinds(plan: ActionPlan) -> list[str]:
    """What a plan does, in words: verbs with what they are done to."""
    words: dict[type, str] = {Create: "create", Delete: "delete", RemoveFinalizer: "free", Patch: "patch"}
    return [
        f"{words[type(action)]} {action.resource.kind}"
        for action in plan.actions
        if isinstance(action, Create | Delete | RemoveFinalizer | Patch)
    ]


def told(plan: ActionPlan) -> list[tuple[str, str]]:
    return [(one.reason, one.note) for one in reports(plan) if isinstance(one, RecordEvent)]


def reports(plan: ActionPlan) -> list[RecordEvent | RecordMetric]:
    """What a plan reports, in order: with its patches, or after them."""
    of_patches = ((one.reports if isinstance(one, Patch) else (one,)) for one in plan.actions)
    return [one for found in of_patches for one in found if isinstance(one, RecordEvent | RecordMetric)]


def written(obj: dict[str, Any], plan: ActionPlan) -> dict[str, Any]:
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch) and action.obj["metadata"]["name"] == obj["metadata"]["name"]:
            for step in action.steps:
                result = after(result, step.patch)
    return result


def made(plan: ActionPlan) -> Any:
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    return create.obj


COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
