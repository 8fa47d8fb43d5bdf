"""Pods of an elastic job beyond the reserved quota, and the order in which they are deleted.

A pod counts as running if no gate of elastic jobs holds it and it has not ended, on a node or not. Pure
functions on raw pods and Workloads.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from admitq.controllers.plan import RecordMetric
from admitq.core.model import Instant
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_controller
from admitq.translate.workloads import read_replaced_key
from admitq.workloads.pod_counts import covered_pod_counts, requested_pod_counts
from admitq.workloads.transitions import is_condition_true, is_finished_or_deleting, is_reserved
from admitq_api.conditions import SECOND, ConditionType, parse_time
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

EXCESS_POD_DELETED: Final = "ExcessPodDeleted"
EXCESS_POD_NOTE: Final = "Excess pod deleted"
"""Note of the event about a pod that is deleted because no quota is reserved for it."""

_DEFAULT_GRACE_SECONDS: Final = 30


def find_last_slice(slices: Iterable[JsonObject], names: Names) -> JsonObject | None:
    """Return the last of these slices of a chain; a slice that another of them replaces does not count."""
    by_name = {workload["metadata"]["name"]: workload for workload in slices}
    taken_over = {
        at.name for workload in by_name.values() if (at := read_replaced_key(workload, names)) is not None
    }
    last = [workload for name, workload in by_name.items() if name not in taken_over]
    return max(last, key=lambda workload: workload["metadata"].get("creationTimestamp", ""), default=None)


def find_charged_slice(slices: Iterable[JsonObject], names: Names) -> JsonObject | None:
    """Return the slice of a chain that holds the quota of its pods.

    Return None if no slice has quota, or if the whole job is being stopped because a slice was evicted or
    deleted.
    """
    known = [workload for workload in slices if not is_condition_true(workload, ConditionType.FINISHED)]
    if any(
        is_finished_or_deleting(workload)
        or (is_condition_true(workload, ConditionType.EVICTED) and is_reserved(workload))
        for workload in known
    ):
        return None
    return find_last_slice((workload for workload in known if is_reserved(workload)), names)


def requested_counts(slices: Iterable[JsonObject]) -> dict[str, int]:
    """Return the pods that the job requests, by podset: the largest counts of its unfinished slices."""
    counts: dict[str, int] = {}
    for workload in slices:
        if not is_finished_or_deleting(workload):
            for name, count in requested_pod_counts(workload).items():
                counts[name] = max(count, counts.get(name, 0))
    return counts


def find_excess_pods(
    slices: Iterable[JsonObject], members: Iterable[JsonObject], names: Names, now: Instant
) -> list[JsonObject]:
    """Return the running pods of a chain for which no quota is reserved, newest first.

    Pods that the job itself no longer requests are not included. The job's own controller deletes them,
    and only that controller knows which pods it can spare.
    """
    known = list(slices)
    charged = find_charged_slice(known, names)
    if charged is None:
        return []
    reserved, requested = covered_pod_counts(charged), requested_counts(known)
    by_podset: dict[str, list[JsonObject]] = {}
    for pod in members:
        if not pods.has_gate(pod, names.elastic_gate) and not pods.has_ended(pod):
            by_podset.setdefault(pods.get_label(pod, names.podset), []).append(pod)
    excess: list[JsonObject] = []
    for name, running in by_podset.items():
        staying = sum(not pods.is_being_deleted(pod) for pod in running)
        surplus = max(0, staying - requested[name]) if name in requested else 0
        beyond = _find_pods_beyond(running, reserved.get(name, 0), now)
        excess += beyond[: max(0, len(beyond) - surplus)]
    return sorted(excess, key=pods.get_age_key, reverse=True)


def _find_pods_beyond(running: Iterable[JsonObject], count: int, now: Instant) -> list[JsonObject]:
    """Return the pods of one podset beyond the ``count`` oldest, newest first.

    A deleted pod counts until its grace period ends, but only against pods that were created after its
    deletion. If a job shrinks, the pods that stay are as old as those that are deleted.
    """
    by_age = sorted(running, key=pods.get_age_key)
    deleted_at = sorted(
        at
        for pod in by_age
        if (at := _deleted_at(pod)) is not None and (pods.get_grace_period_end(pod) or 0) > now
    )
    remaining, beyond = 0, list[JsonObject]()
    for pod in by_age:
        if pods.is_being_deleted(pod):
            continue
        if remaining + bisect_right(deleted_at, _created_at(pod)) < count:
            remaining += 1
        else:
            beyond.append(pod)
    return beyond[::-1]


def _created_at(pod: JsonObject) -> Instant:
    try:
        return parse_time(pods.get_text(pod, "metadata", "creationTimestamp"))
    except ValueError:
        return 0


def _deleted_at(pod: JsonObject) -> Instant | None:
    """Return when the deletion of a pod was requested; None for other pods.

    The API server adds the grace period.
    """
    if (ends := pods.get_grace_period_end(pod)) is None:
        return None
    grace = value_at(pod, ("metadata", "deletionGracePeriodSeconds"))
    return ends - (grace if isinstance(grace, int) else _DEFAULT_GRACE_SECONDS) * SECOND


def job_kind_label(workload: JsonObject) -> str:
    """Return the kind of the job that controls a Workload, as a metric label."""
    controller = get_controller(workload) or {}
    group, _, _ = str(controller.get("apiVersion", "")).rpartition("/")
    return kind_label(group, str(controller.get("kind", "")))


def kind_label(group: str, kind: str) -> str:
    """Return a job kind as a metric label: ``Job.batch``, and ``Pod`` for the core group."""
    return f"{kind}.{group}" if group else kind


def record_excess_pods(workload: JsonObject, kind: str, number: int) -> RecordMetric:
    """Return the action that counts pods beyond the reserved quota of a Workload, by the kind of its job."""
    return RecordMetric(lambda metrics, _: metrics.excess_pods(workload, kind, number))
