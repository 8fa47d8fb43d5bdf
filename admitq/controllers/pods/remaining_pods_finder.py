"""Finds the pods that outlive their job, by lists of their namespace and reads of single pods.

No watch covers all pods of the cluster. When an admitted job goes, the pods of its namespace are listed. The
list is not limited to a label: users who may edit pods may remove labels. That no pods remain, only such a
list says, which began after the question. While pods are known to remain, one of them is read instead.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from admitq.controllers.context import Context
from admitq.controllers.pods.excess_pods import job_kind_label
from admitq.controllers.pods.pod_index import NOT_ENDED, PodIndex, job_uids, may_run
from admitq.controllers.pods.remaining_pods import (
    SHORTEST_CHECK_SECONDS,
    STILL_REMAINING,
    RemainingPods,
    find_excess_remaining_pods,
    may_delete_pods,
    may_have_pods,
    next_list_seconds,
    seconds_reported,
)
from admitq.integrations.families.batch_jobs import CONTROLLER_UID_LABEL
from admitq.integrations.families.pods import get_age_key
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from admitq.workloads.transitions import ConditionType, is_condition_true
from admitq_api.json_objects import JsonObject, value_at

_PAGE_SIZE: Final = 250
"""Pods of one page of a list. To parse and index so many takes 20 to 40 ms, in which no other task runs."""

_REMEMBERED: Final = 4
"""Most pods of one Workload that are remembered from a list."""

_READ: Final = 2
"""Most pods of one Workload that are read before the namespace is listed."""

_SETTLED_SECONDS: Final = 2.0
"""Pods that have been reported for less are listed: a job may start pods until shortly after its deletion."""

_MOST_ASKED_SINGLY: Final = 4
"""Of more Workloads at once, all pods are listed: that takes fewer requests."""


def _has_labelled_pods(workload: JsonObject, job: JsonObject | None) -> bool:
    """Whether Kubernetes writes the UID of the job into a label of its pods, as far as is known.

    It does for a Job that does not choose the selector of its pods itself.
    """
    return job_kind_label(workload) == "Job.batch" and value_at(job, ("spec", "manualSelector")) is not True


def _may_be_started_by_hand(workload: JsonObject) -> bool:
    """Whether pods of the Workload may run although it is not admitted: no gate of ours holds them."""
    is_waiting = not may_have_pods(workload) and not holds(workload, ConditionType.FINISHED)
    return is_waiting and job_kind_label(workload) != "Pod"


def _uid(workload: JsonObject) -> str:
    return workload["metadata"]["uid"]


def _expected_end(pod: JsonObject) -> tuple[bool, str, tuple[str, str]]:
    """What sorts pods from the one that probably ends first to the one that ends last.

    A pod that nobody has deleted runs for as long as it likes. The time in the mark of a deleted pod includes
    its grace period. Of pods that differ in neither, the newest has most of its work before it.
    """
    deleted = value_at(pod, ("metadata", "deletionTimestamp"))
    return deleted is None, deleted or "", get_age_key(pod)


@dataclass(slots=True)
class _Listed:
    """The pods of a namespace that may run, as of the last list."""

    begun: float = float("-inf")
    pods: PodIndex | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _PodId(NamedTuple):
    name: str
    uid: str


class _Known(NamedTuple):
    """Pods of one Workload that a list found; each can be read in place of a list until some time."""

    until: float
    pods: tuple[_PodId, ...]


class RemainingPodsFinder:
    """Finds pods of Workloads whose jobs are gone, or going.

    Jobs of one namespace that go together share lists. That no pods remain, only a list says that began after
    the question. That pods remain, a list of the last second says as well. So does the read of one pod that
    the last list found: while it may run, the quota has to stay, whatever became of the others and of its
    marks. Pods of which some were excess are listed at the next look, whether these have been deleted.

    Args:
        ctx: client and names.
        clock: seconds that only grow.
    """

    def __init__(self, ctx: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx = ctx
        self._clock = clock
        self._listed: dict[str, _Listed] = {}
        self._known: dict[str, _Known] = {}
        """By UID of the Workload. Each list drops those that are too old: none of a past Workload stay."""

    async def find(self, workloads: Sequence[JsonObject]) -> Mapping[str, RemainingPods]:
        """The pods that may run, by UID of their Workload; a Workload without such pods is left out.

        Args:
            workloads: of one namespace. Only those that may have pods are looked for.

        Raises:
            ApiError: pods cannot be read or listed. What is not known to have ended keeps its quota.
        """
        asked = [one for one in workloads if may_have_pods(one)]
        if not asked:
            return {}
        namespace = asked[0]["metadata"]["namespace"]
        found = self._found_recently(namespace, asked)
        others = [one for one in asked if _uid(one) not in found]
        if await self._remain(others):
            found |= {_uid(one): STILL_REMAINING for one in others}
        else:
            found = self._found(await self._pods_in(namespace), asked)
        return found

    async def find_without_job(
        self, workloads: Sequence[JsonObject], job: JsonObject | None = None
    ) -> Mapping[str, RemainingPods]:
        """The same for Workloads whose job is gone or going, with the pods of those that are not admitted.

        A job that was started by hand may have pods although its Workload waits. They are found by the UID of
        the job, in a label or as that of their owner. Only those of a Job can be listed without the others of
        the namespace.

        Args:
            workloads: of one namespace.
            job: the job, if it is going.

        Raises:
            ApiError: pods cannot be read or listed.
        """
        found = dict(await self.find(workloads))
        asked = [
            (one, uids)
            for one in filter(_may_be_started_by_hand, workloads)
            if (uids := job_uids(one, self._ctx.names))
        ]
        if unlabelled := [one for one, _ in asked if not _has_labelled_pods(one, job)]:
            # One list for all of them: an elastic job may have several Workloads.
            found |= self._found(await self._pods_in(unlabelled[0]["metadata"]["namespace"]), unlabelled)
        for one, uids in asked:
            if not _has_labelled_pods(one, job):
                continue
            listed = await self._list(one["metadata"]["namespace"], f"{CONTROLLER_UID_LABEL}={min(uids)}")
            if listed.pods:
                found[_uid(one)] = RemainingPods(listed.pods)
        return found

    # --- lists --------------------------------------------------------------------------------------

    def _is_recent(self, listed: _Listed) -> bool:
        return self._clock() - listed.begun < SHORTEST_CHECK_SECONDS

    def _found(self, listed: _Listed, workloads: Sequence[JsonObject]) -> dict[str, RemainingPods]:
        """Those of the Workloads that have pods in a list, of which some are remembered."""
        pods = PodIndex(self._ctx.names) if listed.pods is None else listed.pods
        found = {_uid(one): RemainingPods(own) for one in workloads if (own := pods.of(one))}
        for one in workloads:
            self._remember(one, found.get(_uid(one), RemainingPods()).listed, listed.begun, workloads)
        return found

    def _found_recently(self, namespace: str, workloads: Sequence[JsonObject]) -> dict[str, RemainingPods]:
        """What a list of the last second found, without pods of which some may have been deleted since."""
        recent = self._listed.get(namespace, _Listed())
        if not self._is_recent(recent):
            return {}
        found = self._found(recent, workloads)
        return {
            uid: found[uid]
            for one in workloads
            if (uid := _uid(one)) in found and not self._are_some_excess(one, found[uid].listed, workloads)
        }

    def _are_some_excess(
        self, workload: JsonObject, pods: Sequence[JsonObject], workloads: Sequence[JsonObject]
    ) -> bool:
        ctx = self._ctx
        return may_delete_pods(ctx.settings) and bool(
            find_excess_remaining_pods(workload, pods, ctx.names, workloads)
        )

    async def _pods_in(self, namespace: str) -> _Listed:
        """The pods that may run, by a list that begins after the call."""
        self._listed = {
            key: one for key, one in self._listed.items() if one.lock.locked() or self._is_recent(one)
        }
        listed = self._listed.setdefault(namespace, _Listed())
        asked_at = self._clock()
        self._known = {uid: one for uid, one in self._known.items() if one.until > asked_at}
        async with listed.lock:
            if listed.begun <= asked_at:
                begun = self._clock()
                listed.pods = await self._list(namespace)
                listed.begun = begun
            return listed

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

    # --- reads of single pods -----------------------------------------------------------------------

    def _is_settled(self, workload: JsonObject) -> bool:
        """Whether a list of the last second began after the Workload's pods were first looked for."""
        return seconds_reported(workload, self._ctx.clock()) >= _SETTLED_SECONDS

    def _remember(
        self, workload: JsonObject, pods: Sequence[JsonObject], begun: float, workloads: Sequence[JsonObject]
    ) -> None:
        """Remember some of the pods that a list found, unless the next look has to list them again."""
        ctx = self._ctx
        self._known.pop(_uid(workload), None)
        if not pods or not self._is_settled(workload):
            return
        # Were the deletion of a pod to fail, no read of another pod would have it deleted.
        if self._are_some_excess(workload, pods, workloads):
            return
        last = nlargest(_REMEMBERED, pods, key=_expected_end)
        ids = tuple(_PodId(one["metadata"]["name"], one["metadata"]["uid"]) for one in last)
        self._known[_uid(workload)] = _Known(begun + next_list_seconds(workload, ctx.clock()), ids)

    async def _remain(self, workloads: Sequence[JsonObject]) -> bool:
        """Whether reads of single pods show that pods of each Workload remain; False says nothing."""
        if len(workloads) > _MOST_ASKED_SINGLY:
            return False
        now = self._clock()
        for one in workloads:
            known = self._known.get(_uid(one))
            if known is None or known.until <= now or not self._is_settled(one):
                return False
        for one in workloads:
            if not await self._has_known_pod(one):
                return False
        return True

    async def _has_known_pod(self, workload: JsonObject) -> bool:
        known = self._known.get(_uid(workload))
        if known is None:
            return False
        for number, pod in enumerate(known.pods[:_READ]):
            if await self._may_still_run(workload["metadata"]["namespace"], pod):
                self._known[_uid(workload)] = known._replace(pods=known.pods[number:])
                return True
        self._known.pop(_uid(workload), None)
        return False

    async def _may_still_run(self, namespace: str, pod: _PodId) -> bool:
        try:
            found = await self._ctx.client.get(PODS, pod.name, namespace=namespace)
        except ApiError as error:
            # A role that lets pods be listed and not read one by one costs lists, and no quota.
            if error.is_not_found or error.is_forbidden:
                return False
            raise
        return found["metadata"].get("uid") == pod.uid and may_run(found, self._ctx.names)
