"""Writes of a Workload's status that must not get lost, nor take effect on what is not what was decided on.

At most one request of ours that writes a Workload is on its way at a time, and each write carries the version
that it was made from.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from admitq.core.model import SECOND, ObjectKey
from admitq.core.write_retries import retry_delay
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.runtime.store import Store
from admitq.workloads import admission_status

log = logger(__name__)

Patch = dict[str, Any]

OVERDUE_SECONDS: Final = 5.0
"""How long writes of a decision may fail before that is reported, and the decision withdrawn if possible."""


def backoff_seconds(attempt: int) -> float:
    """Seconds to wait before another attempt, the first being 1."""
    return retry_delay(attempt) / SECOND


class DecisionKind(StrEnum):
    """What was decided about a Workload; values of the metrics label ``decision``."""

    RESERVATION = "reservation"
    PREEMPTION = "preemption"


CONCURRENT_REQUESTS: Final = {DecisionKind.RESERVATION: 64, DecisionKind.PREEMPTION: 8}
"""How many requests for decisions of one kind may be on their way at the same time."""
CONCURRENT_OVERDUE_REQUESTS: Final = 8
"""How many more may be so for overdue decisions of the kind. These have slots of their own because a request
may hang until its deadline: however many decisions are overdue, others do not wait for their retries."""


@dataclass(frozen=True, slots=True)
class WorkloadDecision:
    """A decision about a Workload, and how it is written.

    Args:
        kind: what was decided.
        key: the Workload.
        uid: its identity, for another may come to have its name.
        patch_of: what to write upon a version of it; None if that makes no sense any more.
        is_written_in: whether a version says already what was to be written.
        withdrawal_patch_of: what to write instead, upon the same version, if an error prevented the write of
            the decision; None for nothing. It is called after each attempt of an overdue decision, and after
            a refusal.
        is_overdue: whether the decision is overdue from the start, since the last one about the Workload
            could not be written. Others are once their writes have failed for OVERDUE_SECONDS.
    """

    kind: DecisionKind
    key: ObjectKey
    uid: str
    patch_of: Callable[[dict[str, Any]], Patch | None]
    is_written_in: Callable[[dict[str, Any]], bool]
    withdrawal_patch_of: Callable[[dict[str, Any], ApiError], Patch | None] = lambda *_: None
    is_overdue: bool = False


class _RequestSlots(NamedTuple):
    """The requests for decisions of one kind that may be on their way at the same time."""

    usual: asyncio.Semaphore
    overdue: asyncio.Semaphore


def _create_slots() -> dict[DecisionKind, _RequestSlots]:
    return {
        kind: _RequestSlots(asyncio.Semaphore(at_once), asyncio.Semaphore(CONCURRENT_OVERDUE_REQUESTS))
        for kind, at_once in CONCURRENT_REQUESTS.items()
    }


@dataclass
class GuardedWrites:
    """Writes statuses of Workloads for what the core decided.

    Args:
        client: for the writes.
        resource: Workloads.
        workloads: the store of Workloads.
        store_answer: takes the answer to one of our own writes into the stores.
        is_same_to_core: whether two versions of a Workload are the same to the core.
        metrics: where decisions that cannot be written are counted.
        field_manager: in whose name is written.
        merge_patches: whether the admission is written by merge patches, too (gate
            WorkloadRequestUseMergePatch).
    """

    client: Client
    resource: Resource
    workloads: Store
    store_answer: Callable[[Resource, dict[str, Any]], None]
    is_same_to_core: Callable[[dict[str, Any], dict[str, Any]], bool]
    metrics: Metrics
    field_manager: str
    merge_patches: bool = False

    _locks: WeakValueDictionary[ObjectKey, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[ObjectKey, asyncio.Lock]
    )
    """The locks of Workloads, each kept by the tasks that hold it or wait for it."""
    _slots: dict[DecisionKind, _RequestSlots] = field(default_factory=_create_slots)
    _overdue_decisions: dict[DecisionKind, int] = field(default_factory=dict[DecisionKind, int])

    def latest_version(self, key: ObjectKey, uid: str) -> dict[str, Any] | None:
        """The Workload as it was last seen; None if it is gone, though another may have its name."""
        obj = self.workloads.get(key.namespace, key.name)
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    @asynccontextmanager
    async def exclusive_writer(self, key: ObjectKey) -> AsyncGenerator[None]:
        """Keep two requests of ours about one Workload from meeting, for the later would be refused.

        It is not held between the attempts of a decision. It only spares conflicts: what is certain follows
        from the versions that writes carry.
        """
        lock = self._locks.get(key)
        if lock is None:
            self._locks[key] = lock = asyncio.Lock()
        async with lock:
            yield

    async def write_patch(self, obj: dict[str, Any], patch: Patch) -> dict[str, Any]:
        """Write a patch of the admission status.

        Args:
            obj: the Workload that the patch was made from.
            patch: the change of its status.

        Raises:
            ApiError: the write was refused or got no answer.
        """
        written = await admission_status.write(
            self.client,
            self.resource,
            obj,
            patch,
            field_manager=self.field_manager,
            merge_patches=self.merge_patches,
        )
        self.store_answer(self.resource, written)
        return written

    async def write_decision(self, decision: WorkloadDecision) -> dict[str, Any] | None:
        """Write a decision about a Workload until it is certain whether it stands.

        A write without an answer may still take effect, however late. So the very same write, upon the same
        version of the object, is sent again until one answer is final: at most one of them can land. While
        the Workload has that version nothing else is certain, whatever a later attempt is answered. Once it
        has another version, none of them can land any more, whichever program wrote it. The Workload is then
        read, and shows whether one of them landed. If none did, the decision is written upon the newer
        version, provided that nothing has changed in it that the decision was made from.

        Therefore other writes of ours about the Workload may take their turn between two attempts. They end
        the uncertainty and cannot add to it, so neither the lock of the Workload nor a slot is held while
        nothing is on its way. An overdue decision makes use of this: after each further attempt it is
        withdrawn by a write upon the same version. If that write succeeds, the decision does not stand and
        never will. If it fails too, the uncertainty lasts, and both are retried.

        Returns:
            The Workload as it now is, or None if it is certain that the decision does not stand.
        """
        with self._count_while_overdue(decision) as attempts:
            while isinstance(outcome := await self._attempt(decision, attempts), _Undecided):
                if attempts.may_still_take_effect:
                    await attempts.pause()
            return outcome

    async def _attempt(
        self, decision: WorkloadDecision, attempts: "_Attempts"
    ) -> "dict[str, Any] | _Undecided | None":
        """Write a decision once, and find out what became of it."""
        async with self._request_slot(decision, is_overdue=attempts.is_overdue):
            if attempts.base_version is None:
                attempts.base_version = self.latest_version(decision.key, decision.uid)
                if attempts.base_version is not None and decision.is_written_in(attempts.base_version):
                    return attempts.base_version
            obj = attempts.base_version
            patch = None if obj is None else decision.patch_of(obj)
            if obj is None or patch is None:
                return None
            attempts.record_request()
            answer = await self._try_patch(obj, patch)
        if not isinstance(answer, ApiError):
            return answer
        if answer.is_transient:
            attempts.may_still_take_effect = True
        if attempts.may_still_take_effect and not answer.is_conflict:
            attempts.record_failure(answer)
            if attempts.is_overdue:
                withdrawn = await self._withdraw(decision, obj, answer)
                if withdrawn is None:
                    return None
                answer = withdrawn if withdrawn.is_conflict else answer
        return (
            _UNDECIDED if answer.is_transient else await self._read_outcome(decision, attempts, obj, answer)
        )

    async def _read_outcome(
        self, decision: WorkloadDecision, attempts: "_Attempts", obj: dict[str, Any], refusal: ApiError
    ) -> "dict[str, Any] | _Undecided | None":
        """Read what became of a decision that was refused, or met a newer version of the Workload."""
        seen = await self._read(decision.key)
        if seen is None or seen["metadata"]["uid"] != decision.uid:
            return None
        if decision.is_written_in(seen):
            # An earlier attempt of ours may be what the last one conflicted with.
            return seen
        is_superseded = _version(seen) != _version(obj)
        if is_superseded and refusal.is_conflict and self.is_same_to_core(obj, seen):
            attempts.base_version, attempts.may_still_take_effect = seen, False
            return _UNDECIDED
        if attempts.may_still_take_effect and not is_superseded:
            return _UNDECIDED
        log.info("a decision was refused", workload=str(decision.key), error=str(refusal))
        if not refusal.is_conflict:
            # It does not stand in any case; what is written in its place states why.
            await self._withdraw(decision, seen, refusal)
        return None

    @asynccontextmanager
    async def _request_slot(self, decision: WorkloadDecision, *, is_overdue: bool) -> AsyncGenerator[None]:
        """Hold what one request for a decision needs. The lock comes first: no slot is held by what waits."""
        slots = self._slots[decision.kind]
        async with self.exclusive_writer(decision.key), slots.overdue if is_overdue else slots.usual:
            yield

    async def _try_patch(self, obj: dict[str, Any], patch: Patch) -> dict[str, Any] | ApiError:
        try:
            return await self.write_patch(obj, patch)
        except ApiError as error:
            return error

    @contextmanager
    def _count_while_overdue(self, decision: WorkloadDecision) -> Generator["_Attempts"]:
        """Count a decision from when it is known to be overdue until it is certain whether it stands."""
        attempts = _Attempts(decision, self._add_overdue)
        try:
            yield attempts
        finally:
            if attempts.is_counted:
                self._add_overdue(decision.kind, -1)

    def _add_overdue(self, kind: DecisionKind, by: int) -> None:
        count = self._overdue_decisions[kind] = self._overdue_decisions.get(kind, 0) + by
        self.metrics.set("unwritten_decisions", count, decision=kind)

    async def _withdraw(
        self, decision: WorkloadDecision, obj: dict[str, Any], error: ApiError
    ) -> ApiError | None:
        """Write the withdrawal of a decision in its place.

        Returns:
            None if the decision cannot take effect any more, otherwise what prevented that.
        """
        patch = decision.withdrawal_patch_of(obj, error)
        if patch is None:
            return error
        async with self._request_slot(decision, is_overdue=True):
            answer = await self._try_patch(obj, patch)
        if isinstance(answer, ApiError):
            return answer
        # A write that changes nothing makes no new version, so the decision could still be written upon it.
        return error if _version(answer) == _version(obj) else None

    async def _read(self, key: ObjectKey) -> dict[str, Any] | None:
        """Read a Workload, however long it takes; None if it does not exist."""
        attempt = 0
        while True:
            try:
                obj = await self.client.get(self.resource, key.name, namespace=key.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                # Without an answer nothing is certain, whatever the reason is.
                attempt += 1
                await asyncio.sleep(backoff_seconds(attempt))
                continue
            self.store_answer(self.resource, obj)
            return obj


class _Undecided:
    """It is not certain yet whether a decision stands."""


_UNDECIDED: Final = _Undecided()


class _Attempts:
    """The attempts to write one decision.

    Args:
        decision: what is written.
        count: counts overdue decisions by kind.
    """

    def __init__(self, decision: WorkloadDecision, count: Callable[[DecisionKind, int], None]) -> None:
        self.base_version: dict[str, Any] | None = None
        """The version of the Workload that it is written upon."""
        self.may_still_take_effect = False
        """Whether a write upon this version may still take effect."""
        self.is_overdue = decision.is_overdue
        self.is_counted = False
        self._decision = decision
        self._count = count
        self._began: float | None = None
        self._failures = 0

    def record_request(self) -> None:
        """A request is sent."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()

    def record_failure(self, error: ApiError) -> None:
        """The request failed, and it is not certain what becomes of it; an overdue decision is reported."""
        now = asyncio.get_running_loop().time()
        began = now if self._began is None else self._began
        self.is_overdue = self.is_overdue or now - began >= OVERDUE_SECONDS
        if self.is_overdue and not self.is_counted:
            self.is_counted = True
            self._count(self._decision.kind, 1)
            log.warning(
                "decision cannot be written",
                decision=self._decision.kind,
                workload=str(self._decision.key),
                error=str(error),
            )

    async def pause(self) -> None:
        """Wait for the next attempt, longer after each."""
        self._failures += 1
        await asyncio.sleep(backoff_seconds(self._failures))


def _version(obj: dict[str, Any]) -> str:
    return obj["metadata"]["resourceVersion"]
