"""Finds the pods that outlive their job, by lists of the namespace and by reads of single pods.

No watch covers all pods of the cluster. When an admitted job is deleted, the pods of its namespace are listed
without a label selector, because users with the right to edit pods may remove labels. Only a list that began
after the call proves that no pods remain. While pods are known to remain, one of them is read instead of a
list.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from admitq.controllers.context import Context
from admitq.controllers.pods.excess_pods import job_kind_label
from admitq.controllers.pods.pod_index import PodIndex, job_uids, may_run
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
from admitq.integrations.families.pods import NOT_ENDED, get_age_key
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from admitq.workloads.transitions import ConditionType, is_condition_true
from admitq_api.json_objects import JsonObject, value_at

_PAGE_SIZE: Final = 250
"""Pods of one page of a list. Parsing and indexing a page takes 20 to 40 ms, in which no other task runs."""

_REMEMBERED: Final = 4
"""Maximum number of pods of one Workload that are remembered from a list."""

_READ: Final = 2
"""Maximum number of pods of one Workload that are read before the namespace is listed."""

_SETTLED_SECONDS: Final = 2.0
"""How long pods must have been reported before single reads replace lists.

A job may start pods until shortly after its deletion.
"""

_MAX_WORKLOADS_WITH_READS: Final = 4
"""Maximum number of Workloads for which single pods are read. For more Workloads, one list takes fewer
requests."""


def _has_labelled_pods(workload: JsonObject, job: JsonObject | None) -> bool:
    """Whether Kubernetes is known to write the UID of the job into a label of its pods.

    It does so for a batch Job unless the Job sets ``manualSelector``.
    """
    return job_kind_label(workload) == "Job.batch" and value_at(job, ("spec", "manualSelector")) is not True


def _may_be_started_by_hand(workload: JsonObject) -> bool:
    """Whether pods of the Workload may run without admission, because no gate of admitq holds them."""
    is_waiting = not may_have_pods(workload) and not is_condition_true(workload, ConditionType.FINISHED)
    return is_waiting and job_kind_label(workload) != "Pod"


def _uid(workload: JsonObject) -> str:
    return workload["metadata"]["uid"]


def _expected_end(pod: JsonObject) -> tuple[bool, str, tuple[str, str]]:
    """Return a sort key that orders pods by the probable time of their end.

    A pod without deletion timestamp has no known end. The deletion timestamp includes the grace period.
    Of equal pods the newest probably ends last.
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
    """Pods of one Workload that a list found. Until a point in time, single reads of them replace a list."""

    until: float
    pods: tuple[_PodId, ...]


class RemainingPodsFinder:
    """Finds running pods of Workloads with jobs that do not exist or are being deleted.

    Jobs of one namespace that are deleted together share lists. That no pods remain is proved only by a
    list that began after the call. That pods remain is also shown by a list of the last second, or by a
    read of one pod of the last list. As long as that pod may run, the quota stays reserved. If some
    listed pods were excess, the next check lists again, to see whether they were deleted.

    Args:
        ctx: client and names.
        clock: monotonic seconds.
    """

    def __init__(self, ctx: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx = ctx
        self._clock = clock
        self._listed: dict[str, _Listed] = {}
        self._known: dict[str, _Known] = {}
        """By UID of the Workload. Each list drops outdated entries, so that deleted Workloads leave none."""

    async def find(self, workloads: Sequence[JsonObject]) -> Mapping[str, RemainingPods]:
        """Return the pods that may run, by UID of their Workload. Workloads without such pods are left out.

        Args:
            workloads: Workloads of one namespace. Only pods of those that may have pods are searched.

        Raises:
            ApiError: pods cannot be read or listed. The caller must keep the quota reserved.
        """
        candidates = [workload for workload in workloads if may_have_pods(workload)]
        if not candidates:
            return {}
        namespace = candidates[0]["metadata"]["namespace"]
        remaining = self._found_recently(namespace, candidates)
        others = [workload for workload in candidates if _uid(workload) not in remaining]
        if await self._remain(others):
            remaining |= {_uid(workload): STILL_REMAINING for workload in others}
        else:
            remaining = self._found(await self._pods_in(namespace), candidates)
        return remaining

    async def find_without_job(
        self, workloads: Sequence[JsonObject], job: JsonObject | None = None
    ) -> Mapping[str, RemainingPods]:
        """Return the pods of Workloads, admitted or not, whose job does not exist or is being deleted.

        A job that a user started by hand may have pods although its Workload is pending. Their pods are
        found by the UID of the job, in a label or in an owner reference. Only pods of a batch Job can be
        listed by label.

        Args:
            workloads: Workloads of one namespace.
            job: the job, if it still exists.

        Raises:
            ApiError: pods cannot be read or listed.
        """
        remaining = dict(await self.find(workloads))
        candidates = [
            (workload, uids)
            for workload in filter(_may_be_started_by_hand, workloads)
            if (uids := job_uids(workload, self._ctx.names))
        ]
        if unlabelled := [workload for workload, _ in candidates if not _has_labelled_pods(workload, job)]:
            # One list serves all of them: an elastic job may have several Workloads.
            remaining |= self._found(await self._pods_in(unlabelled[0]["metadata"]["namespace"]), unlabelled)
        for workload, uids in candidates:
            if not _has_labelled_pods(workload, job):
                continue
            listed = await self._list(
                workload["metadata"]["namespace"], f"{CONTROLLER_UID_LABEL}={min(uids)}"
            )
            if listed.pods:
                remaining[_uid(workload)] = RemainingPods(listed.pods)
        return remaining

    # --- lists --------------------------------------------------------------------------------------

    def _is_recent(self, listed: _Listed) -> bool:
        return self._clock() - listed.begun < SHORTEST_CHECK_SECONDS

    def _found(self, listed: _Listed, workloads: Sequence[JsonObject]) -> dict[str, RemainingPods]:
        """Return the Workloads that have pods in a list, and remember some of these pods."""
        pods = PodIndex(self._ctx.names) if listed.pods is None else listed.pods
        remaining = {
            _uid(workload): RemainingPods(own) for workload in workloads if (own := pods.of(workload))
        }
        for workload in workloads:
            self._remember(
                workload, remaining.get(_uid(workload), RemainingPods()).listed, listed.begun, workloads
            )
        return remaining

    def _found_recently(self, namespace: str, workloads: Sequence[JsonObject]) -> dict[str, RemainingPods]:
        """Return what a list of the last second found, without Workloads that had excess pods."""
        recent = self._listed.get(namespace, _Listed())
        if not self._is_recent(recent):
            return {}
        remaining = self._found(recent, workloads)
        return {
            uid: remaining[uid]
            for workload in workloads
            if (uid := _uid(workload)) in remaining
            and not self._are_some_excess(workload, remaining[uid].listed, workloads)
        }

    def _are_some_excess(
        self, workload: JsonObject, pods: Sequence[JsonObject], workloads: Sequence[JsonObject]
    ) -> bool:
        ctx = self._ctx
        return may_delete_pods(ctx.settings) and bool(
            find_excess_remaining_pods(workload, pods, ctx.names, workloads)
        )

    async def _pods_in(self, namespace: str) -> _Listed:
        """Return the pods that may run, from a list that begins after the call."""
        self._listed = {
            key: listing
            for key, listing in self._listed.items()
            if listing.lock.locked() or self._is_recent(listing)
        }
        listed = self._listed.setdefault(namespace, _Listed())
        asked_at = self._clock()
        self._known = {uid: record for uid, record in self._known.items() if record.until > asked_at}
        async with listed.lock:
            if listed.begun <= asked_at:
                begun = self._clock()
                listed.pods = await self._list(namespace)
                listed.begun = begun
            return listed

    async def _list(self, namespace: str, label_selector: str | None = None) -> PodIndex:
        """List the pods that may run, page by page.

        A namespace may have ten thousand pods, which take a second or two to parse and index. Other tasks
        must run meanwhile, for example to stop a job that exceeds its admission. So each page is indexed
        before the next is read.
        """
        index = PodIndex(self._ctx.names)
        async for page in self._ctx.client.pages(
            PODS, namespace, label_selector, NOT_ENDED, page_size=_PAGE_SIZE
        ):
            if page.first:
                index = PodIndex(self._ctx.names)
            index.add(page.items)
        return index

    # --- reads of single pods -----------------------------------------------------------------------

    def _is_settled(self, workload: JsonObject) -> bool:
        """Whether pods of the Workload have been reported long enough for single reads."""
        return seconds_reported(workload, self._ctx.clock()) >= _SETTLED_SECONDS

    def _remember(
        self, workload: JsonObject, pods: Sequence[JsonObject], begun: float, workloads: Sequence[JsonObject]
    ) -> None:
        """Remember some of the pods that a list found, unless the next check must list again."""
        ctx = self._ctx
        self._known.pop(_uid(workload), None)
        if not pods or not self._is_settled(workload):
            return
        # If the deletion of an excess pod fails, only another list finds the pod again.
        if self._are_some_excess(workload, pods, workloads):
            return
        last = nlargest(_REMEMBERED, pods, key=_expected_end)
        ids = tuple(_PodId(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in last)
        self._known[_uid(workload)] = _Known(begun + next_list_seconds(workload, ctx.clock()), ids)

    async def _remain(self, workloads: Sequence[JsonObject]) -> bool:
        """Whether single reads show that pods of each Workload remain. False proves nothing."""
        if len(workloads) > _MAX_WORKLOADS_WITH_READS:
            return False
        now = self._clock()
        for workload in workloads:
            known = self._known.get(_uid(workload))
            if known is None or known.until <= now or not self._is_settled(workload):
                return False
        for workload in workloads:
            if not await self._has_known_pod(workload):
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
            stored = await self._ctx.client.get(PODS, pod.name, namespace=namespace)
        except ApiError as error:
            # Without the permission to read pods, more lists are necessary, and no quota is released too
            # early.
            if error.is_not_found or error.is_forbidden:
                return False
            raise
        return stored["metadata"].get("uid") == pod.uid and may_run(stored, self._ctx.names)
