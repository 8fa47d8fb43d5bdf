"""Computes after how many seconds a job is reconciled again if nothing changes before."""

from typing import Final

from admitq.controllers.job.case import JobCase
from admitq.controllers.job.workload_slices import is_shrinking
from admitq.controllers.pods.remaining_pods import next_check_seconds
from admitq.core.model import SECOND
from admitq.integrations.base import list_members
from admitq_api.json_objects import value_at

SHRINKING_RETRY_SECONDS: Final = 1.0
"""Interval at which the pods of a shrinking elastic job are counted, in memory, until they have ended."""


def next_reconcile_seconds(case: JobCase, requeue_after: float | None) -> float | None:
    """Return the seconds until the next retry, check of remaining pods, or end of a grace period."""
    delays = (
        requeue_after,
        SHRINKING_RETRY_SECONDS if is_shrinking(case) else None,
        *(
            next_check_seconds(workload, case.now)
            for workload in case.workloads_without_job
            if case.has_remaining_pods(workload)
        ),
        _until_grace_ends(case),
    )
    return min((delay for delay in delays if delay is not None), default=None)


def _until_grace_ends(case: JobCase) -> float | None:
    """Return the seconds until a deleted member counts as gone, if the watch reports nothing before."""
    changes = value_at(case.job, ("changes",))
    if changes is None or not list_members(case.job or {}):
        return None
    return max(0.0, (changes - case.now) / SECOND) + 0.1
