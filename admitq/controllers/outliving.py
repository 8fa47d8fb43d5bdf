"""Pods that outlive their job, and keep the quota of its Workload reserved.

A job that is deleted with its pods orphaned, or that a finalizer of another program holds, leaves pods that
run on. No watch covers all pods of the cluster. When an admitted job goes, the pods of its namespace are
listed once, and again now and then while some of its pods remain. The list is not limited to a label: users
who may edit pods may remove labels.

A job may have started more pods than were admitted in the moment before it went, or pods although nothing was
admitted. No controller stops those. They are deleted, newest first, down to what was admitted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.excess_pods import EXCESS_NOTE, EXCESS_POD_DELETED, counted, job_kind, last_slice
from admitq.controllers.plan import Action, Delete, Tell
from admitq.controllers.pod_index import NOT_ENDED, PodIndex, uids_of_job
from admitq.controllers.settings import Settings
from admitq.core.model import Instant
from admitq.integrations import pods as pods_of
from admitq.integrations.job_pods import CONTROLLER_UID
from admitq.integrations.paths import Object, value_at
from admitq.pod_counts import covered_counts, pod_counts
from admitq.runtime.resources import PODS
from admitq.transitions import Transition, holds, is_admitted, since
from admitq_api.conditions import SECOND, ConditionType, Reason
from admitq_api.labels import Names

ORPHANED_PODS: Final = replace(PODS, view="of jobs that are gone")
"""Pods that are written and not watched: no store takes the answers in."""

SHORTEST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 15.0

_NAMED: Final = 3
"""Most pods that a message names."""

_PAGE_SIZE: Final = 250
"""Pods of one page of a list. To parse and index so many takes 20 to 40 ms, in which no other task runs."""


def may_have_pods(workload: Object) -> bool:
    """Whether pods of the Workload may run: it is admitted, or its job has not stopped since."""
    return is_admitted(workload) and not holds(workload, ConditionType.FINISHED)


def _has_labelled_pods(workload: Object, job: Object | None) -> bool:
    """Whether Kubernetes writes the UID of the job into a label of its pods, as far as is known.

    It does for a Job that does not choose the selector of its pods itself.
    """
    return job_kind(workload) == "Job.batch" and value_at(job, ("spec", "manualSelector")) is not True


def _may_be_started_by_hand(workload: Object) -> bool:
    """Whether pods of the Workload may run although it is not admitted: no gate of ours holds them."""
    is_waiting = not may_have_pods(workload) and not holds(workload, ConditionType.FINISHED)
    return is_waiting and job_kind(workload) != "Pod"


def _charged_of(workload: Object, slices: Sequence[Object], names: Names) -> Object | None:
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
    return last_slice(admitted or unfinished, names)


def excess_of(
    workload: Object, pods: Sequence[Object], names: Names, slices: Sequence[Object] = ()
) -> list[Object]:
    """The pods of a Workload whose job is gone that run beyond what was admitted, newest first.

    Args:
        workload: what was admitted, or not. Of several slices one has excess pods: the one that is charged.
        pods: those that belong to the Workload and may run. A pod that does not name its podset counts as one
            of the only podset. Of several podsets, such pods share the room that all together have left.
        names: of labels and annotations.
        slices: further Workloads of an elastic job.
    """
    charged = _charged_of(workload, slices, names)
    if charged is None or charged["metadata"]["uid"] != workload["metadata"]["uid"]:
        return []
    counts = pod_counts(workload)
    allowed = covered_counts(workload) if may_have_pods(workload) else {}
    only_one = next(iter(counts)) if len(counts) == 1 else ""
    by_podset: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=pods_of.age):
        if not pods_of.is_deleting(pod):
            by_podset.setdefault(pods_of.label(pod, names.podset) or only_one, []).append(pod)
    unnamed = by_podset.pop("", [])
    left = sum(max(0, count - len(by_podset.get(name, ()))) for name, count in allowed.items())
    beyond = [
        one
        for name, found in by_podset.items()
        if name in counts or not allowed
        for one in found[allowed.get(name, 0) :]
    ]
    return sorted((*beyond, *unnamed[left:]), key=pods_of.age, reverse=True)


def may_delete_pods(settings: Settings) -> bool:
    """Whether the manager has the right to delete pods, which it has for other reasons."""
    elastic = settings.elastic_jobs and any(one.can_be_elastic for one in settings.integrations)
    return elastic or any((one.group, one.kind) == ("", "Pod") for one in settings.integrations)


def stop_excess(
    workload: Object,
    pods: Sequence[Object],
    names: Names,
    settings: Settings,
    slices: Sequence[Object] = (),
) -> list[Action]:
    """Delete the pods of a Workload without a job that run beyond what was admitted; report each of them.

    The arguments are those of ``excess_of``.
    """
    kind, actions = job_kind(workload), list[Action]()
    for one in excess_of(workload, pods, names, slices) if may_delete_pods(settings) else ():
        actions += (
            Delete(ORPHANED_PODS, one),
            Tell(one, "Warning", EXCESS_POD_DELETED, EXCESS_NOTE),
            counted(workload, kind, 1),
        )
    return actions


@dataclass(slots=True)
class _Listed:
    """The pods of a namespace that may run, as of the last list."""

    begun: float = float("-inf")
    pods: PodIndex | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OutlivingPods:
    """Finds pods of Workloads whose jobs are gone, or going.

    Jobs of one namespace that go together share lists. That no pods remain, only a list says that began after
    the question; that pods remain, a list of the last second says as well.

    Args:
        ctx: client and names.
        clock: seconds that only grow.
    """

    def __init__(self, ctx: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx = ctx
        self._clock = clock
        self._listed: dict[str, _Listed] = {}

    async def of(self, workloads: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
        """The pods that may run, by UID of their Workload; a Workload without such pods is left out.

        Args:
            workloads: of one namespace. Only those that may have pods are looked for.

        Raises:
            ApiError: pods cannot be listed. What is not known to have ended keeps its quota.
        """
        asked = [one for one in workloads if may_have_pods(one)]
        if not asked:
            return {}
        namespace = asked[0]["metadata"]["namespace"]
        found = self._found_recently(namespace, asked)
        if len(found) == len(asked):
            return found
        return self._found(await self._pods_in(namespace), asked)

    async def of_gone(
        self, workloads: Sequence[Object], job: Object | None = None
    ) -> Mapping[str, tuple[Object, ...]]:
        """The same for Workloads whose job is gone or going, with the pods of those that are not admitted.

        A job that was started by hand may have pods although its Workload waits. They are found by the UID of
        the job, in a label or as that of their owner. Only those of a Job can be listed without the others of
        the namespace.

        Args:
            workloads: of one namespace.
            job: the job, if it is going.

        Raises:
            ApiError: pods cannot be listed.
        """
        found = dict(await self.of(workloads))
        asked = [
            (one, uids)
            for one in filter(_may_be_started_by_hand, workloads)
            if (uids := uids_of_job(one, self._ctx.names))
        ]
        if unlabelled := [one for one, _ in asked if not _has_labelled_pods(one, job)]:
            # One list for all of them: an elastic job may have several Workloads.
            pods = await self._pods_in(unlabelled[0]["metadata"]["namespace"])
            found |= self._found(pods, unlabelled)
        for one, uids in asked:
            if not _has_labelled_pods(one, job):
                continue
            listed = await self._list(one["metadata"]["namespace"], f"{CONTROLLER_UID}={min(uids)}")
            if listed.pods:
                found[one["metadata"]["uid"]] = listed.pods
        return found

    def _is_recent(self, listed: _Listed) -> bool:
        return self._clock() - listed.begun < SHORTEST_DELAY_SECONDS

    def _found(self, pods: PodIndex, workloads: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
        return {one["metadata"]["uid"]: own for one in workloads if (own := pods.of(one))}

    def _found_recently(
        self, namespace: str, workloads: Sequence[Object]
    ) -> Mapping[str, tuple[Object, ...]]:
        """What a list of the last second found, without pods of which some may have been deleted since."""
        recent = self._listed.get(namespace, _Listed())
        if recent.pods is None or not self._is_recent(recent):
            return {}
        found = self._found(recent.pods, workloads)
        return {
            uid: found[uid]
            for one in workloads
            if (uid := one["metadata"]["uid"]) in found
            and not self._are_some_excess(one, found[uid], workloads)
        }

    def _are_some_excess(self, workload: Object, pods: Sequence[Object], workloads: Sequence[Object]) -> bool:
        ctx = self._ctx
        return may_delete_pods(ctx.settings) and bool(excess_of(workload, pods, ctx.names, workloads))

    async def _pods_in(self, namespace: str) -> PodIndex:
        """The pods that may run, by a list that begins after the call."""
        self._listed = {
            key: one for key, one in self._listed.items() if one.lock.locked() or self._is_recent(one)
        }
        listed = self._listed.setdefault(namespace, _Listed())
        asked_at = self._clock()
        async with listed.lock:
            if listed.pods is None or listed.begun <= asked_at:
                begun = self._clock()
                listed.pods = await self._list(namespace)
                listed.begun = begun
            return listed.pods

    async def _list(self, namespace: str, label_selector: str | None = None) -> PodIndex:
        """The pods that may run, page by page.

        A namespace may have ten thousand pods, and parsing and indexing them takes a second or two. Jobs that
        run beyond their grant must be stopped meanwhile, so each page is done with before the next is read.
        """
        found = PodIndex(self._ctx.names)
        async for page in self._ctx.client.pages(
            PODS, namespace, label_selector, NOT_ENDED, page_size=_PAGE_SIZE
        ):
            if page.first:
                found = PodIndex(self._ctx.names)
            found.add(page.items)
        return found


def report(transition: Transition, pods: Sequence[Object]) -> None:
    """State in the Workload's status which pods keep its quota reserved."""
    names = sorted(one["metadata"]["name"] for one in pods)
    named = ", ".join(names[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
    count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    transition.set(
        ConditionType.PODS_OUTLIVE_JOB,
        True,
        Reason.PODS_RUNNING,
        f"{count} can still run after the end of the job: {named}. Delete them to release the quota",
    )


def withdraw(transition: Transition) -> None:
    """Stop stating that pods keep the quota reserved."""
    if transition.find(ConditionType.PODS_OUTLIVE_JOB) is not None:
        transition.drop(ConditionType.PODS_OUTLIVE_JOB)


def next_look(workload: Object, now: Instant) -> float:
    """Seconds until the pods are listed again: half of the time that they have remained, within bounds."""
    remained = max(0, now - (since(workload, ConditionType.PODS_OUTLIVE_JOB) or now)) / SECOND
    return min(LONGEST_DELAY_SECONDS, max(SHORTEST_DELAY_SECONDS, remained / 2))
