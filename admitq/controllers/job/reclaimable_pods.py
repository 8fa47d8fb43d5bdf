"""Reclaimable pods: pods that have ended and need no replacement.

Their quota is released while the job runs on.
"""

from collections.abc import Mapping
from typing import Final

from admitq.controllers.job.case import JobCase
from admitq.controllers.plan import ActionPlan
from admitq.integrations.base import return_none
from admitq_api.json_objects import JsonObject, value_at

CONCERN: Final = "reclaimable-pods"


def is_reported(case: JobCase) -> bool:
    """Whether reclaimable pods of the job are reported at all."""
    return (
        case.settings.jobs.reclaimable_pods
        and case.integration.scaling.count_reclaimable_pods is not return_none
    )


def reported_counts(workload: JsonObject) -> dict[str, int]:
    """Return the reclaimable pods in the Workload's status, by podset."""
    return {item["name"]: item["count"] for item in value_at(workload, ("status", "reclaimablePods"), [])}


def report_counts(case: JobCase, workload: JsonObject, counts: Mapping[str, int]) -> ActionPlan | None:
    """Write the reclaimable pods; None if the status already has these counts."""
    before = reported_counts(workload)
    transition = case.begin_transition(workload)
    listed = [{"name": name, "count": count} for name, count in counts.items() if count or name in before]
    transition.status["reclaimablePods"] = listed or None
    return case.plan_transition(workload, transition, concern=CONCERN)


def lower_counts(case: JobCase, workload: JsonObject, sizes: Mapping[str, int]) -> ActionPlan | None:
    """Lower the reclaimable pods to the new sizes of the podsets; None if no count is too high.

    A scale-down writes this before it lowers the pod counts. In the reverse order the Workload would use
    too little quota between the two writes, and another workload could be admitted in its place.
    """
    before = reported_counts(workload)
    if not (before and is_reported(case)):
        return None
    of_job = case.integration.scaling.count_reclaimable_pods(case.job or {}) or {}
    counts = {name: min(count, of_job.get(name, 0), sizes.get(name, 0)) for name, count in before.items()}
    return None if counts == before else report_counts(case, workload, counts)
