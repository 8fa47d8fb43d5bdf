"""Runs a reconcile function for keys, with retries, and quarantines keys that fail repeatedly.

A reconcile function gets only a key, and no events. It may return the seconds after which the key is
reconciled again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.errors import ApiError, NotLeadingError, PermanentRejection
from admitq.runtime.postponed_reports import PostponedReports
from admitq.runtime.refresh_pace import RefreshPace
from admitq.runtime.workqueue import WorkQueue
from admitq.runtime.write_scheduler import NoFreeSlotError, WriteScheduler

log = logger(__name__)

KeyT = TypeVar("KeyT", bound=Hashable)

QUARANTINE_AFTER = 5
LONGEST_TRANSIENT_RETRY_S = 30.0
"""The longest retry delay after a transient error, so that work resumes soon after an outage."""
REJECTED_RETRY_S = 300.0
"""The seconds between retries of a key that was quarantined after rejected requests."""


class ReconcileResult(StrEnum):
    """The result of one reconcile."""

    SUCCESS = "success"
    POSTPONED = "postponed"
    CONFLICT = "conflict"
    TRANSIENT = "transient"
    ERROR = "error"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """One reconcile, for metrics."""

    controller: str
    result: ReconcileResult
    queue_seconds: float
    """How long the key was ready before a worker began."""
    work_seconds: float


class Controller(Generic[KeyT]):
    """Reconciles keys with several workers, each key by one worker at a time.

    - Conflicts (409) are retried soon, since the watch delivers the newer object.
    - Transient errors are retried with backoff, not before the server's Retry-After.
    - :class:`PermanentRejection` is not retried. It quarantines the key at once, until :meth:`add`.
    - Other exceptions are logged and retried with backoff. Five failures in a row quarantine the key: it is
      not reconciled until :meth:`add` reports a change of its objects. If the API server rejected the
      requests, the reason may be one that no watch shows, such as an access rule, a ResourceQuota or a
      policy. Such a key is retried every ``rejected_retry`` seconds.

    A reconcile that only reports raises :class:`NoFreeSlotError` while the API server has no time for
    reports. Its key is reconciled again in the next free slot, so that no worker waits, and the report is
    true then.

    :meth:`refresh` is for keys with reports of numbers, which may change many times a second. It starts at
    most one reconcile in ``refresh_interval`` seconds, and none while the key waits for a slot.

    Besides ``workers`` there are ``urgent_workers``, which reconcile only urgent keys, so that these do not
    wait for calls of the others. A reconcile that takes longer than ``deadline`` seconds is cancelled, and
    counts as failed. ``on_quarantine`` receives the controller and a key when the quarantine of the key
    begins or ends. ``errors`` handles exceptions of ``observe`` and ``on_quarantine``.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[KeyT], Awaitable[float | None]],
        *,
        workers: int = 1,
        urgent_workers: int = 0,
        deadline: float = 60.0,
        observe: Callable[[ReconcileReport], None] | None = None,
        on_quarantine: "Callable[[Controller[KeyT], KeyT], None] | None" = None,
        quarantine_after: int = QUARANTINE_AFTER,
        rejected_retry: float = REJECTED_RETRY_S,
        refresh_interval: float = 0.0,
        errors: UnexpectedErrors = LOG_ONLY,
        scheduler: WriteScheduler | None = None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[KeyT] = WorkQueue()
        self.quarantined: dict[KeyT, str] = {}
        """The quarantined keys, with the reasons."""
        self._reconcile = reconcile
        self._workers = workers
        self._urgent_workers = urgent_workers
        self._deadline = deadline
        self._observe = observe
        self._on_quarantine = on_quarantine
        self._quarantine_after = quarantine_after
        self._rejected_retry = rejected_retry
        self._errors = errors
        self._pace = RefreshPace[KeyT](refresh_interval, time.monotonic)
        self._rejected: set[KeyT] = set()
        """Keys in quarantine because the API server rejected their requests."""
        self._failures: dict[KeyT, int] = {}
        self._reports = None if scheduler is None else PostponedReports[KeyT](scheduler, self.queue.add)

    def add(self, key: KeyT, *, urgent: bool = False) -> None:
        """Reconcile a key, since its objects have changed. This ends its quarantine."""
        self.end_quarantine(key)
        self.queue.add(key, urgent=urgent)

    def refresh(self, key: KeyT) -> None:
        """Reconcile a key soon, since a number that it reports has changed. This ends its quarantine."""
        self.end_quarantine(key)
        if self._reports is None or not self._reports.is_postponed(key):
            self.queue.add_after(key, self._pace.seconds_left(key))

    def add_after(self, key: KeyT, seconds: float) -> None:
        """Reconcile a key after a delay."""
        self.queue.add_after(key, seconds)

    async def run(self) -> None:
        """Reconcile keys until cancelled, which cancels running reconciles too."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
                for number in range(self._urgent_workers):
                    work = self._work(urgent_only=True)
                    group.create_task(work, name=f"{self.name}-urgent-{number}")
                if self._reports is not None:
                    group.create_task(self._reports.run(), name=f"{self.name}-reports")
        finally:
            self.queue.close()

    async def _work(self, *, urgent_only: bool = False) -> None:
        while True:
            key, queue_seconds = await self.queue.get_timed(urgent_only=urgent_only)
            began = time.monotonic()
            self._pace.record(key)
            try:
                with nullcontext() if self._reports is None else self._reports.granted_slot(key):
                    result = await self._reconcile_key(key)
            finally:
                self.queue.done(key)
            if self._observe is not None:
                with self._errors.contain(ErrorPart.METRICS, self.name):
                    work_seconds = time.monotonic() - began
                    self._observe(ReconcileReport(self.name, result, queue_seconds, work_seconds))
            # A reconcile without a call does not suspend. After a start, very many of them are due at once.
            await asyncio.sleep(0)

    async def _reconcile_key(self, key: KeyT) -> ReconcileResult:
        if key in self.quarantined and key not in self._rejected:  # It was queued before the quarantine.
            return ReconcileResult.QUARANTINED
        try:
            async with asyncio.timeout(self._deadline):
                next_in_seconds = await self._reconcile(key)
        except NoFreeSlotError as error:
            if self._reports is None:
                return self._failed(key, error)
            self._reports.postpone(key, error.priority)
            return ReconcileResult.POSTPONED
        except ApiError as error:
            if error.is_conflict:
                log.debug("reconcile conflict", controller=self.name, key=str(key), error=str(error))
                self.queue.retry(key, at_most=1.0)
                return ReconcileResult.CONFLICT
            if error.is_transient:
                log.info(
                    "reconcile hit API error, retrying", controller=self.name, key=str(key), error=str(error)
                )
                self.queue.retry(key, at_least=error.retry_after or 0.0, at_most=LONGEST_TRANSIENT_RETRY_S)
                return ReconcileResult.TRANSIENT
            return self._failed(key, error)
        except NotLeadingError as error:
            log.info("reconcile stopped, not leading", controller=self.name, key=str(key), error=str(error))
            self.queue.retry(key, at_least=1.0, at_most=LONGEST_TRANSIENT_RETRY_S)
            return ReconcileResult.TRANSIENT
        except PermanentRejection as rejection:
            return self._quarantine(key, rejection)
        except Exception as error:  # noqa: BLE001 - a failure of one key must not affect other keys
            return self._failed(key, error)
        self.end_quarantine(key)
        self._forget(key)
        if next_in_seconds is not None:
            self.queue.add_after(key, next_in_seconds)
        return ReconcileResult.SUCCESS

    def _failed(self, key: KeyT, error: Exception) -> ReconcileResult:
        if key in self.quarantined:
            self._schedule_retry_if_rejected(key, error)
            return ReconcileResult.QUARANTINED
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures < self._quarantine_after:
            seconds = self.queue.retry(key)
            log.warning(
                "reconcile failed, retrying",
                controller=self.name,
                key=str(key),
                retry_seconds=round(seconds, 3),
                exc_info=error,
            )
            return ReconcileResult.ERROR
        self._forget(key)
        if self.queue.is_waiting(key):  # Its objects changed during the failed reconcile.
            return ReconcileResult.ERROR
        self.quarantined[key] = f"{type(error).__name__}: {error}"
        log.error(
            "reconcile failed repeatedly, waiting for change",
            controller=self.name,
            key=str(key),
            failures=failures,
            exc_info=error,
        )
        self._report_quarantine(key)
        self._schedule_retry_if_rejected(key, error)
        return ReconcileResult.QUARANTINED

    def _quarantine(self, key: KeyT, rejection: PermanentRejection) -> ReconcileResult:
        """Quarantine a key without retries."""
        self._forget(key)
        self._rejected.discard(key)
        if self.queue.is_waiting(key):  # Its objects changed during the rejected reconcile.
            return ReconcileResult.ERROR
        self.quarantined[key] = str(rejection)
        log.warning(
            "invalid object, waiting for change",
            controller=self.name,
            key=str(key),
            reason=str(rejection),
        )
        self._report_quarantine(key)
        return ReconcileResult.QUARANTINED

    def _schedule_retry_if_rejected(self, key: KeyT, error: Exception) -> None:
        if isinstance(error, ApiError):
            self._rejected.add(key)
            self.queue.add_after(key, self._rejected_retry)
        else:
            self._rejected.discard(key)

    def end_quarantine(self, key: KeyT) -> None:
        """End the quarantine of a key, if any. It is reconciled once it is added again."""
        if self.quarantined.pop(key, None) is not None:
            self._rejected.discard(key)
            self._forget(key)
            self._report_quarantine(key)

    def _report_quarantine(self, key: KeyT) -> None:
        if self._on_quarantine is not None:
            with self._errors.contain(ErrorPart.REPORT, key):
                self._on_quarantine(self, key)

    def _forget(self, key: KeyT) -> None:
        self._failures.pop(key, None)
        self.queue.forget(key)
