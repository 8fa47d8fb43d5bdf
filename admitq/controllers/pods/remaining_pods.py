"""Pods that outlive their job, and keep the quota of its Workload reserved.

A job that is deleted with its pods orphaned, or that a finalizer of another program holds, leaves pods that
run on. ``outliving_pods`` finds them. What follows from them is decided here, by pure functions.

A job may have started more pods than were admitted in the moment before it went, or pods although nothing was
admitted. No controller stops those. They are deleted, newest first, down to what was admitted.
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
from admitq.controllers.settings import Settings
from admitq.core.model import Instant
from admitq.integrations.families import pods as pods_of
from admitq.runtime.resources import PODS
from admitq.workloads.pod_counts import covered_pod_counts, requested_pod_counts
from admitq.workloads.transitions import StatusTransition, condition_since, is_admitted, is_condition_true
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

ORPHANED_PODS: Final = replace(PODS, view="of jobs that are gone")
"""Pods that are written and not watched: no store takes the answers in."""

SHORTEST_CHECK_SECONDS: Final = 1.0
LONGEST_CHECK_SECONDS: Final = 15.0
"""Bounds of the time between two looks whether pods remain."""

SHORTEST_LIST_DELAY_SECONDS: Final = 15.0
LONGEST_LIST_DELAY_SECONDS: Final = 120.0
"""Bounds of the time between two lists, while a look finds that a pod of the last list may still run."""

_NAMED: Final = 3
"""Most pods that a message names."""


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """Pods of a Workload that may run: there is at least one.

    Args:
        listed: all of them, as a list found them. Empty where one pod that an earlier list found was read
            instead: the quota stays reserved, nothing is reported anew, and no pod is excess.
    """

    listed: tuple[JsonObject, ...] = ()


STILL_REMAINING: Final = RemainingPods()
"""A pod that an earlier list found may still run."""


def may_have_pods(workload: JsonObject) -> bool:
    """Whether pods of the Workload may run: it is admitted, or its job has not stopped since."""
    return is_admitted(workload) and not is_condition_true(workload, ConditionType.FINISHED)


def _find_charged_workload(
    workload: JsonObject, slices: Sequence[JsonObject], names: Names
) -> JsonObject | None:
    """The Workload whose admission counts for the pods that a Workload shares with its slices.

    Of the slices of an elastic job that is gone, one is charged for the pods of all: the last that is
    admitted, or the last if none is.

    Args:
        workload: one Workload of the job.
        slices: Workloads of the same namespace, among them the slices of the job.
        names: of annotations.
    """
    place = ("metadata", "annotations", names.workload_slice_name)
    chain = value_at(workload, place)
    if chain is None:
        return workload
    known = [one for one in (*slices, workload) if value_at(one, place) == chain]
    admitted = [one for one in known if may_have_pods(one)]
    unfinished = [one for one in known if not holds(one, ConditionType.FINISHED)]
    return find_last_slice(admitted or unfinished, names)


def find_excess_remaining_pods(
    workload: JsonObject, pods: Sequence[JsonObject], names: Names, slices: Sequence[JsonObject] = ()
) -> list[JsonObject]:
    """The pods of a Workload whose job is gone that run beyond what was admitted, newest first.

    Args:
        workload: what was admitted, or not. Of several slices one has excess pods: the one that is charged.
        pods: those that belong to the Workload and may run. A pod that does not name its podset counts as one
            of the only podset. Of several podsets, such pods share the room that all together have left.
        names: of labels and annotations.
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
    left = sum(max(0, count - len(by_podset.get(name, ()))) for name, count in allowed.items())
    beyond = [
        one
        for name, found in by_podset.items()
        if name in counts or not allowed
        for one in found[allowed.get(name, 0) :]
    ]
    return sorted((*beyond, *unnamed[left:]), key=pods_of.get_age_key, reverse=True)


def may_delete_pods(settings: Settings) -> bool:
    """Whether the manager has the right to delete pods, which it has for other reasons."""
    elastic = settings.elastic_jobs and any(one.scaling.can_be_elastic for one in settings.integrations)
    return elastic or any((one.group, one.kind) == ("", "Pod") for one in settings.integrations)


def delete_excess_remaining_pods(
    workload: JsonObject,
    pods: Sequence[JsonObject],
    names: Names,
    settings: Settings,
    slices: Sequence[JsonObject] = (),
) -> list[Action]:
    """Delete the pods of a Workload without a job that run beyond what was admitted; report each of them.

    The arguments are those of ``excess_of``.
    """
    kind, actions = job_kind_label(workload), list[Action]()
    for one in find_excess_remaining_pods(workload, pods, names, slices) if may_delete_pods(settings) else ():
        actions += (
            Delete(ORPHANED_PODS, one),
            RecordEvent(one, "Warning", EXCESS_POD_DELETED, EXCESS_POD_NOTE),
            record_excess_pods(workload, kind, 1),
        )
    return actions


def set_pods_outlive_job(transition: Transition, remaining: RemainingPods) -> None:
    """State in the Workload's status which pods keep its quota reserved, if they were listed."""
    pods = remaining.listed
    if not pods:
        return
    names = sorted(one["metadata"]["name"] for one in pods)
    named = ", ".join(names[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
    count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    transition.set_condition(
        ConditionType.PODS_OUTLIVE_JOB,
        True,
        Reason.PODS_RUNNING,
        f"{count} can still run after the end of the job: {named}. Delete them to release the quota",
    )


def drop_pods_outlive_job(transition: Transition) -> None:
    """Stop stating that pods keep the quota reserved."""
    if transition.find_condition(ConditionType.PODS_OUTLIVE_JOB) is not None:
        transition.remove_condition(ConditionType.PODS_OUTLIVE_JOB)


def next_check_seconds(workload: JsonObject, now: Instant) -> float:
    """Seconds until the next look whether pods remain: half of the time that they have, within bounds."""
    return _half_of_reported_time(workload, now, SHORTEST_CHECK_SECONDS, LONGEST_CHECK_SECONDS)


def next_list_seconds(workload: JsonObject, now: Instant) -> float:
    """Seconds until the pods are listed again at the latest, so that their reported number follows."""
    return _half_of_reported_time(workload, now, SHORTEST_LIST_DELAY_SECONDS, LONGEST_LIST_DELAY_SECONDS)


def seconds_reported(workload: JsonObject, now: Instant) -> float:
    """Seconds for which the Workload's status has stated that pods keep its quota; 0 if it does not."""
    return max(0, now - (condition_since(workload, ConditionType.PODS_OUTLIVE_JOB) or now)) / SECOND


def _half_of_reported_time(workload: JsonObject, now: Instant, shortest: float, longest: float) -> float:
    return min(longest, max(shortest, seconds_reported(workload, now) / 2))
