"""Writes of Workload statuses that are not lost, and that only change the version that was decided on.

The process sends at most one write of a Workload at a time. Each write carries the resourceVersion of the
Workload that it was made from.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
from admitq.runtime.write_scheduler import WriteScheduler
from admitq.workloads import admission_status

log = logger(__name__)

Patch = dict[str, Any]

OVERDUE_SECONDS: Final = 5.0
"""A decision is overdue after this time without success. It is then reported, and withdrawn if possible."""


def backoff_seconds(attempt: int) -> float:
    """Return the seconds to wait after an attempt; the first attempt is 1."""
    return retry_delay(attempt) / SECOND


class DecisionKind(StrEnum):
    """The kind of a decision about a Workload; values of the metrics label ``decision``."""

    RESERVATION = "reservation"
    TOPOLOGY_ASSIGNMENT = "topology_assignment"
    PREEMPTION = "preemption"
    NODE_FAILURE = "node_failure"


CONCURRENT_REQUESTS: Final = {
    DecisionKind.RESERVATION: 64,
    DecisionKind.TOPOLOGY_ASSIGNMENT: 8,
    DecisionKind.PREEMPTION: 8,
    DecisionKind.NODE_FAILURE: 8,
}
"""The maximum number of concurrent requests for decisions of one kind that are not overdue."""
CONCURRENT_OVERDUE_REQUESTS: Final = 8
"""The maximum number of concurrent requests for overdue decisions of one kind. A request of an overdue
decision may hang until its deadline. Overdue decisions have their own slots, so that other decisions do not
wait for them."""


@dataclass(frozen=True, slots=True)
class WorkloadDecision:
    """A decision about a Workload, and how it is written.

    Args:
        kind: what was decided.
        key: the Workload.
        uid: the UID of the Workload. Another Workload may get the same name later.
        patch_of: returns the patch of a version of the Workload; None if the decision does not apply any
            more.
        is_written_in: whether a version of the Workload contains the decision.
        withdrawal_patch_of: returns the patch to write instead, to the same version, if an error prevented
            the write of the decision; None for no write. It is called after each attempt of an overdue
            decision, and after a rejected write.
        is_overdue: whether the decision is overdue from the start, because the last decision about the
            Workload could not be written. Other decisions become overdue after ``OVERDUE_SECONDS``.
    """

    kind: DecisionKind
    key: ObjectKey
    uid: str
    patch_of: Callable[[dict[str, Any]], Patch | None]
    is_written_in: Callable[[dict[str, Any]], bool]
    withdrawal_patch_of: Callable[[dict[str, Any], ApiError], Patch | None] = lambda *_: None
    is_overdue: bool = False


class _RequestSlots(NamedTuple):
    """Limits of the concurrent requests for decisions of one kind."""

    usual: asyncio.Semaphore
    overdue: asyncio.Semaphore


def _create_slots() -> dict[DecisionKind, _RequestSlots]:
    return {
        kind: _RequestSlots(asyncio.Semaphore(at_once), asyncio.Semaphore(CONCURRENT_OVERDUE_REQUESTS))
        for kind, at_once in CONCURRENT_REQUESTS.items()
    }


@dataclass
class GuardedWrites:
    """Writes decisions of the core to the statuses of Workloads.

    Args:
        client: sends the writes.
        resource: the resource of Workloads.
        workloads: the store of Workloads.
        store_answer: puts the object that a write returned into the stores.
        is_same_to_core: whether two versions of a Workload are the same to the core.
        metrics: counts overdue decisions.
        field_manager: the field manager of the writes.
        merge_patches: whether merge patches write the admission instead of server-side apply (gate
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
    """The locks of Workloads. A lock exists while a task holds it or waits for it."""
    _slots: dict[DecisionKind, _RequestSlots] = field(default_factory=_create_slots)
    _overdue_decisions: dict[DecisionKind, int] = field(default_factory=dict[DecisionKind, int])

    @property
    def scheduler(self) -> WriteScheduler:
        """When the API server has time for a write."""
        return self.client.scheduler

    def latest_version(self, key: ObjectKey, uid: str) -> dict[str, Any] | None:
        """Return the latest version of the Workload in the store; None if none has this name and UID."""
        obj = self.workloads.get(key.namespace, key.name)
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    def exclusive_writer(self, key: ObjectKey) -> asyncio.Lock:
        """Return the lock of a Workload, so that this process sends one write of the Workload at a time.

        The lock only avoids conflicts; the versions in the writes make them safe. It is not held between the
        attempts of a decision.
        """
        lock = self._locks.get(key)
        if lock is None:
            self._locks[key] = lock = asyncio.Lock()
        return lock

    async def write_patch(self, obj: dict[str, Any], patch: Patch) -> dict[str, Any]:
        """Write a patch of the admission status.

        Args:
            obj: the Workload that the patch was made from.
            patch: the change of its status.

        Raises:
            ApiError: the API server rejected the write or did not answer.
        """
        written = await admission_status.write_admission_status(
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
        """Write a decision about a Workload, until it is certain whether the decision has taken effect.

        A write without an answer may take effect later. Therefore the same write, with the same version of
        the Workload, is sent again until an answer is final: at most one of these writes can succeed. While
        the Workload has that version, a write may still succeed, even if a later attempt was rejected. Once
        the Workload has another version, none of these writes can succeed any more, whichever program wrote
        it. Then the Workload is read, which shows whether one of them succeeded. If none did, the decision
        is written to the newer version, unless that version differs for the core.

        Other writes of this process to the Workload may come between two attempts. They create a new version
        and so end the uncertainty. That is why neither the lock of the Workload nor a slot is held between
        attempts. After each attempt of an overdue decision, the withdrawal is written to the same version.
        If this write succeeds, the decision can never take effect. If it fails too, both are retried.

        Returns:
            The stored Workload; None if it is certain that the decision has no effect.
        """
        with self._count_while_overdue(decision) as attempts:
            while isinstance(outcome := await self._attempt(decision, attempts), _Undecided):
                if attempts.may_still_take_effect:
                    await attempts.pause()
            return outcome

    async def _attempt(
        self, decision: WorkloadDecision, attempts: "_Attempts"
    ) -> "dict[str, Any] | _Undecided | None":
        """Write a decision once, and find out whether it has taken effect."""
        slot = self._request_slot(decision.kind, is_overdue=attempts.is_overdue)
        async with self.exclusive_writer(decision.key), slot:
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
        """Read the Workload after a rejected or conflicting write; return whether it has the decision."""
        observed = await self._read(decision.key)
        if observed is None or observed["metadata"]["uid"] != decision.uid:
            return None
        if decision.is_written_in(observed):
            # An earlier attempt may have succeeded and caused the conflict of the last one.
            return observed
        is_superseded = _version(observed) != _version(obj)
        if is_superseded and refusal.is_conflict and self.is_same_to_core(obj, observed):
            attempts.base_version, attempts.may_still_take_effect = observed, False
            return _UNDECIDED
        if attempts.may_still_take_effect and not is_superseded:
            return _UNDECIDED
        log.info(
            "decision discarded, workload is evaluated again", workload=str(decision.key), error=str(refusal)
        )
        if not refusal.is_conflict:
            # The decision has no effect in any case; the withdrawal states why.
            await self._withdraw(decision, observed, refusal)
        return None

    def _request_slot(self, kind: DecisionKind, *, is_overdue: bool) -> asyncio.Semaphore:
        """Return the slots for requests of a kind. Take the lock first, so that no waiter holds a slot."""
        slots = self._slots[kind]
        return slots.overdue if is_overdue else slots.usual

    async def _try_patch(self, obj: dict[str, Any], patch: Patch) -> dict[str, Any] | ApiError:
        try:
            return await self.write_patch(obj, patch)
        except ApiError as error:
            return error

    @contextmanager
    def _count_while_overdue(self, decision: WorkloadDecision) -> Generator["_Attempts"]:
        """Count a decision in the metric while it is overdue and its outcome is not certain."""
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
        """Write the withdrawal of a decision.

        Returns:
            None if the decision cannot take effect any more; otherwise the error that prevented the
            withdrawal.
        """
        patch = decision.withdrawal_patch_of(obj, error)
        if patch is None:
            return error
        slot = self._request_slot(decision.kind, is_overdue=True)
        async with self.exclusive_writer(decision.key), slot:
            answer = await self._try_patch(obj, patch)
        if isinstance(answer, ApiError):
            return answer
        # A write that changes nothing creates no new version, so a write of the decision could still succeed.
        return error if _version(answer) == _version(obj) else None

    async def _read(self, key: ObjectKey) -> dict[str, Any] | None:
        """Read a Workload, with retries until the API server answers; None if it does not exist."""
        attempt = 0
        while True:
            try:
                obj = await self.client.get(self.resource, key.name, namespace=key.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                # Only an answer makes the outcome certain, so all other errors are retried.
                attempt += 1
                await asyncio.sleep(backoff_seconds(attempt))
                continue
            self.store_answer(self.resource, obj)
            return obj


class _Undecided:
    """The outcome of a decision that may or may not have taken effect."""


_UNDECIDED: Final = _Undecided()


class _Attempts:
    """The attempts to write one decision.

    Args:
        decision: what is written.
        count: counts overdue decisions by kind.
    """

    def __init__(self, decision: WorkloadDecision, count: Callable[[DecisionKind, int], None]) -> None:
        self.base_version: dict[str, Any] | None = None
        """The version of the Workload to which the decision is written."""
        self.may_still_take_effect = False
        """Whether an earlier write to this version may still take effect."""
        self.is_overdue = decision.is_overdue
        self.is_counted = False
        self._decision = decision
        self._count = count
        self._began: float | None = None
        self._failures = 0

    def record_request(self) -> None:
        """Record that a request is sent."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()

    def record_failure(self, error: ApiError) -> None:
        """Record a failed request with an uncertain outcome; report the decision if it is overdue."""
        now = asyncio.get_running_loop().time()
        began = now if self._began is None else self._began
        self.is_overdue = self.is_overdue or now - began >= OVERDUE_SECONDS
        if self.is_overdue and not self.is_counted:
            self.is_counted = True
            self._count(self._decision.kind, 1)
            log.warning(
                "decision write failed, retrying the write",
                decision=self._decision.kind,
                workload=str(self._decision.key),
                error=str(error),
            )

    async def pause(self) -> None:
        """Wait before the next attempt, longer after each failure."""
        self._failures += 1
        await asyncio.sleep(backoff_seconds(self._failures))


def _version(obj: dict[str, Any]) -> str:
    return obj["metadata"]["resourceVersion"]
