"""Remaining pods: pods that outlive their job and keep the quota of its Workload reserved.

Pods run on if their job is deleted with its pods orphaned, or if a finalizer of another program holds
them. The module ``remaining_pods_finder`` finds such pods. This module holds the rules, as pure
functions. The condition PodsOutliveJob reports remaining pods.

Shortly before its deletion a job may have started more pods than were admitted, or pods without any
admission. No other controller stops those pods. They are deleted, newest first, down to the admitted
number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from admitq.controllers.plan import Action, Delete, RecordEvent
from admitq.controllers.pods.excess_pods import (
    EXCESS_POD_DELETED,
    EXCESS_POD_NOTE,
    find_last_slice,
    job_kind_label,
    record_excess_pods,
)
from admitq.controllers.settings import ControllerSettings
from admitq.core.model import Instant
from admitq.integrations.families import pods as pods_of
from admitq.runtime.resources import PODS
from admitq.workloads.pod_counts import covered_pod_counts, requested_pod_counts
from admitq.workloads.transitions import StatusTransition, condition_since, is_admitted, is_condition_true
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

ORPHANED_PODS: Final = replace(PODS, view="of jobs that are gone")
"""The resource of remaining pods in writes. They are not watched, so no store gets the answers."""

SHORTEST_CHECK_SECONDS: Final = 1.0
LONGEST_CHECK_SECONDS: Final = 15.0
"""Bounds of the time between two checks whether pods remain."""

SHORTEST_LIST_DELAY_SECONDS: Final = 15.0
LONGEST_LIST_DELAY_SECONDS: Final = 120.0
"""Bounds of the time between two lists, while reads show that a pod of the last list may still run."""

_NAMED: Final = 3
"""Maximum number of pods that a message names."""


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """Pods of a Workload that may run. There is at least one.

    Args:
        listed: all of them, if a list found them. Empty if a single read confirmed one pod of an earlier
            list: the quota stays reserved, nothing new is reported, and no pod counts as excess.
    """

    listed: tuple[JsonObject, ...] = ()


STILL_REMAINING: Final = RemainingPods()
"""The value if a pod of an earlier list may still run."""


def may_have_pods(workload: JsonObject) -> bool:
    """Whether pods of the Workload may run: it is admitted and not finished."""
    return is_admitted(workload) and not is_condition_true(workload, ConditionType.FINISHED)


def _find_charged_workload(
    workload: JsonObject, slices: Sequence[JsonObject], names: Names
) -> JsonObject | None:
    """Return the Workload with the admission that counts for the shared pods of a job's slices.

    If an elastic job no longer exists, one of its slices is charged for all pods: the last admitted
    slice, or the last unfinished one if none is admitted.

    Args:
        workload: a Workload of the job.
        slices: Workloads of the namespace, among them the other slices of the job.
        names: annotations.
    """
    place = ("metadata", "annotations", names.workload_slice_name)
    chain = value_at(workload, place)
    if chain is None:
        return workload
    chain_slices = [candidate for candidate in (*slices, workload) if value_at(candidate, place) == chain]
    admitted = [chain_slice for chain_slice in chain_slices if may_have_pods(chain_slice)]
    unfinished = [
        chain_slice
        for chain_slice in chain_slices
        if not is_condition_true(chain_slice, ConditionType.FINISHED)
    ]
    return find_last_slice(admitted or unfinished, names)


def find_excess_remaining_pods(
    workload: JsonObject, pods: Sequence[JsonObject], names: Names, slices: Sequence[JsonObject] = ()
) -> list[JsonObject]:
    """Return the pods of a Workload without job that run beyond its admission, newest first.

    Args:
        workload: the Workload. Of several slices, only the charged one has excess pods.
        pods: pods of the Workload that may run. A pod without podset label counts for the only podset. If
            there are several podsets, such pods share the room that all podsets together have left.
        names: labels and annotations.
        slices: further Workloads of an elastic job.
    """
    charged = _find_charged_workload(workload, slices, names)
    if charged is None or charged["metadata"]["uid"] != workload["metadata"]["uid"]:
        return []
    counts = requested_pod_counts(workload)
    allowed = covered_pod_counts(workload) if may_have_pods(workload) else {}
    only_one = next(iter(counts)) if len(counts) == 1 else ""
    by_podset: dict[str, list[JsonObject]] = {}
    for pod in sorted(pods, key=pods_of.get_age_key):
        if not pods_of.is_being_deleted(pod):
            by_podset.setdefault(pods_of.get_label(pod, names.podset) or only_one, []).append(pod)
    unnamed = by_podset.pop("", [])
    allowance = sum(max(0, count - len(by_podset.get(name, ()))) for name, count in allowed.items())
    beyond = [
        pod
        for name, listed in by_podset.items()
        if name in counts or not allowed
        for pod in listed[allowed.get(name, 0) :]
    ]
    return sorted((*beyond, *unnamed[allowance:]), key=pods_of.get_age_key, reverse=True)


def may_delete_pods(settings: ControllerSettings) -> bool:
    """Whether the manager's role allows it to delete pods, which it needs for other kinds of jobs."""
    elastic = settings.elastic_jobs and any(
        integration.scaling.can_be_elastic for integration in settings.integrations
    )
    return elastic or any(
        (integration.group, integration.kind) == ("", "Pod") for integration in settings.integrations
    )


def delete_excess_remaining_pods(
    workload: JsonObject,
    pods: Sequence[JsonObject],
    names: Names,
    settings: ControllerSettings,
    slices: Sequence[JsonObject] = (),
) -> list[Action]:
    """Return the actions that delete, report and count the excess pods of a Workload without job.

    The arguments are those of ``find_excess_remaining_pods``.
    """
    kind, actions = job_kind_label(workload), list[Action]()
    for pod in find_excess_remaining_pods(workload, pods, names, slices) if may_delete_pods(settings) else ():
        actions += (
            Delete(ORPHANED_PODS, pod),
            RecordEvent(pod, "Warning", EXCESS_POD_DELETED, EXCESS_POD_NOTE),
            record_excess_pods(workload, kind, 1),
        )
    return actions


def set_pods_outlive_job(transition: StatusTransition, remaining: RemainingPods) -> None:
    """Set the condition PodsOutliveJob, which names the pods, if they were listed."""
    pods = remaining.listed
    if not pods:
        return
    names = sorted(pod["metadata"]["name"] for pod in pods)
    named = ", ".join(names[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
    count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    transition.set_condition(
        ConditionType.PODS_OUTLIVE_JOB,
        True,
        Reason.PODS_RUNNING,
        f"{count} can still run after the end of the job: {named}. Delete them to release the quota",
    )


def drop_pods_outlive_job(transition: StatusTransition) -> None:
    """Remove the condition PodsOutliveJob."""
    if transition.find_condition(ConditionType.PODS_OUTLIVE_JOB) is not None:
        transition.remove_condition(ConditionType.PODS_OUTLIVE_JOB)


def next_check_seconds(workload: JsonObject, now: Instant) -> float:
    """Return the seconds until the next check for pods: half of the time reported so far, bounded."""
    return _half_of_reported_time(workload, now, SHORTEST_CHECK_SECONDS, LONGEST_CHECK_SECONDS)


def next_list_seconds(workload: JsonObject, now: Instant) -> float:
    """Return the seconds until the pods must be listed again, so that their reported number stays current."""
    return _half_of_reported_time(workload, now, SHORTEST_LIST_DELAY_SECONDS, LONGEST_LIST_DELAY_SECONDS)


def seconds_reported(workload: JsonObject, now: Instant) -> float:
    """Return for how many seconds PodsOutliveJob has been true; 0 if it is not."""
    return max(0, now - (condition_since(workload, ConditionType.PODS_OUTLIVE_JOB) or now)) / SECOND


def _half_of_reported_time(workload: JsonObject, now: Instant, shortest: float, longest: float) -> float:
    return min(longest, max(shortest, seconds_reported(workload, now) / 2))
