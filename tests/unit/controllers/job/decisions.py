"""Plans of the job controller, and the objects after their writes."""

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
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    apply_patch,
    condition,
    instant,
    settings_with,
)

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

ADMISSION_OF_NINE_PODS = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 9, "flavors": {}}],
}

EVICTED = condition("Evicted", True, "ClusterQueueStopped", "The ClusterQueue is stopped", since=5)


def lookups(**known: Any) -> Lookups:
    """Return lookups over mappings by name, of flavors, priority classes and Workloads."""

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
        now=instant(now),
        job=job_,
        workloads=workloads,
        lookups=lookups(**known),
        **parts,
    )


def plan_for(job_: dict[str, Any] | None, *workloads: dict[str, Any], **parts: Any) -> ActionPlan:
    return decide_job(case_of(job_, *workloads, **parts))


def actions_of(plan: ActionPlan) -> list[str]:
    """Return the writes of a plan, each as verb and kind."""
    verbs: dict[type, str] = {Create: "create", Delete: "delete", RemoveFinalizer: "free", Patch: "patch"}
    return [
        f"{verbs[type(action)]} {action.resource.kind}"
        for action in plan.actions
        if isinstance(action, Create | Delete | RemoveFinalizer | Patch)
    ]


def events_of(plan: ActionPlan) -> list[tuple[str, str]]:
    """Return the events of a plan, each as reason and note."""
    return [(report.reason, report.note) for report in reports_of(plan) if isinstance(report, RecordEvent)]


def reports_of(plan: ActionPlan) -> list[RecordEvent | RecordMetric]:
    """Return the events and metrics of a plan in order, with its patches or after them."""
    groups = ((action.reports if isinstance(action, Patch) else (action,)) for action in plan.actions)
    return [report for group in groups for report in group if isinstance(report, RecordEvent | RecordMetric)]


def apply_plan(obj: dict[str, Any], plan: ActionPlan) -> dict[str, Any]:
    """Return the object after the patches of a plan."""
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch) and action.obj["metadata"]["name"] == obj["metadata"]["name"]:
            for step in action.steps:
                result = apply_patch(result, step.patch)
    return result


def created_workload(plan: ActionPlan) -> Any:
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    return create.obj


COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
