"""Runs one reconcile function over keys, with retries, and sets aside keys that keep failing.

A reconcile function is given a key and nothing else: not what happened, nor how often. It may return how
many seconds later it wants to look again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.errors import ApiError, NotLeadingError, PermanentRejection
from admitq.runtime.workqueue import WorkQueue

log = logger(__name__)

KeyT = TypeVar("KeyT", bound=Hashable)

QUARANTINE_AFTER = 5
LONGEST_TRANSIENT_RETRY_S = 30.0
"""When the API server comes back, nobody waits longer than this."""
REFUSED_RETRY_S = 300.0
"""When the API server is asked again to take what it refused so often that the key is in quarantine."""


class ReconcileResult(StrEnum):
    """How one reconcile ended."""

    SUCCESS = "success"
    CONFLICT = "conflict"
    TRANSIENT = "transient"
    ERROR = "error"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """One reconcile, for metrics: the seconds the key waited for a worker, and those the work took."""

    controller: str
    result: ReconcileResult
    waited: float
    took: float


class Controller(Generic[KeyT]):
    """Works on keys with a number of workers, each key by one at a time.

    - 409: retried soon, for the watch brings the newer object.
    - Transient errors: retried with backoff, not before the server's Retry-After.
    - :class:`PermanentlyRefused`: not retried. The key is in quarantine at once, until :meth:`add`.
    - Anything else: logged and retried with backoff. After five failures in a row the key is in
      quarantine: it is left alone until :meth:`add` tells that what it is made of has changed. If it was
      the API server that refused it, its reasons may be elsewhere (rights, a quota, a policy), where no watch
      tells of a change: it is asked again every ``refused_retry`` seconds.

    Besides ``workers``, ``urgent_workers`` work on urgent keys alone: these do not wait while all others are
    in the middle of a call. ``deadline`` (seconds) ends a reconcile that hangs; that counts as a failure.
    ``on_quarantine`` is told the controller and a key whenever that key comes into quarantine or out of it.
    ``errors`` takes exceptions of ``observe`` and ``on_quarantine``; those of reconciles are results.
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
        refused_retry: float = REFUSED_RETRY_S,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[KeyT] = WorkQueue()
        self.quarantined: dict[KeyT, str] = {}
        """What is left alone until it changes, and why."""
        self._reconcile = reconcile
        self._workers = workers
        self._urgent_workers = urgent_workers
        self._deadline = deadline
        self._observe = observe
        self._on_quarantine = on_quarantine
        self._quarantine_after = quarantine_after
        self._refused_retry = refused_retry
        self._errors = errors
        self._refused: set[KeyT] = set()
        """Keys in quarantine for what the API server said."""
        self._failures: dict[KeyT, int] = {}

    def add(self, key: KeyT, *, urgent: bool = False) -> None:
        """Tell that something a key is made of has changed; this ends its quarantine."""
        self.end_quarantine(key)
        self.queue.add(key, urgent=urgent)

    def add_after(self, key: KeyT, seconds: float) -> None:
        """Have a key looked at after that long."""
        self.queue.add_after(key, seconds)

    async def run(self) -> None:
        """Work until cancelled; what is being worked on then is cancelled too."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
                for number in range(self._urgent_workers):
                    work = self._work(urgent_only=True)
                    group.create_task(work, name=f"{self.name}-urgent-{number}")
        finally:
            self.queue.close()

    async def _work(self, *, urgent_only: bool = False) -> None:
        while True:
            key, waited = await self.queue.get_timed(urgent_only=urgent_only)
            began = time.monotonic()
            try:
                result = await self._once(key)
            finally:
                self.queue.done(key)
            if self._observe is not None:
                with self._errors.contain(ErrorPart.METRICS, self.name):
                    self._observe(ReconcileReport(self.name, result, waited, time.monotonic() - began))

    async def _once(self, key: KeyT) -> ReconcileResult:
        if key in self.quarantined and key not in self._refused:  # a retry that was on its way
            return ReconcileResult.QUARANTINED
        try:
            async with asyncio.timeout(self._deadline):
                again = await self._reconcile(key)
        except ApiError as error:
            if error.is_conflict:
                log.debug("reconcile conflict", controller=self.name, key=str(key), error=str(error))
                self.queue.retry(key, at_most=1.0)
                return ReconcileResult.CONFLICT
            if error.is_transient:
                log.info("reconcile failed, retrying", controller=self.name, key=str(key), error=str(error))
                self.queue.retry(key, at_least=error.retry_after or 0.0, at_most=LONGEST_TRANSIENT_RETRY_S)
                return ReconcileResult.TRANSIENT
            return self._failed(key, error)
        except NotLeadingError as error:
            log.info("reconcile without leadership", controller=self.name, key=str(key), error=str(error))
            self.queue.retry(key, at_least=1.0, at_most=LONGEST_TRANSIENT_RETRY_S)
            return ReconcileResult.TRANSIENT
        except PermanentRejection as refusal:
            return self._quarantine(key, refusal)
        except Exception as error:  # noqa: BLE001 - one key's failure is no other key's business
            return self._failed(key, error)
        self.end_quarantine(key)
        self._forget(key)
        if again is not None:
            self.queue.add_after(key, again)
        return ReconcileResult.SUCCESS

    def _failed(self, key: KeyT, error: Exception) -> ReconcileResult:
        if key in self.quarantined:
            self._ask_again_later(key, error)
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
        if self.queue.is_waiting(key):  # it changed while the old state failed
            return ReconcileResult.ERROR
        self.quarantined[key] = f"{type(error).__name__}: {error}"
        log.error(
            "reconcile failed repeatedly, key quarantined",
            controller=self.name,
            key=str(key),
            failures=failures,
            exc_info=error,
        )
        self._tell_quarantine(key)
        self._ask_again_later(key, error)
        return ReconcileResult.QUARANTINED

    def _quarantine(self, key: KeyT, refusal: PermanentRejection) -> ReconcileResult:
        """Leave a key alone that no retry can bring forward."""
        self._forget(key)
        self._refused.discard(key)
        if self.queue.is_waiting(key):  # it changed while the old state was refused
            return ReconcileResult.ERROR
        self.quarantined[key] = str(refusal)
        log.warning(
            "key quarantined until it changes", controller=self.name, key=str(key), reason=str(refusal)
        )
        self._tell_quarantine(key)
        return ReconcileResult.QUARANTINED

    def _ask_again_later(self, key: KeyT, error: Exception) -> None:
        if isinstance(error, ApiError):
            self._refused.add(key)
            self.queue.add_after(key, self._refused_retry)
        else:
            self._refused.discard(key)

    def end_quarantine(self, key: KeyT) -> None:
        """Forget that a key failed, if it is in quarantine; it is looked at when it is added again."""
        if self.quarantined.pop(key, None) is not None:
            self._refused.discard(key)
            self._forget(key)
            self._tell_quarantine(key)

    def _tell_quarantine(self, key: KeyT) -> None:
        if self._on_quarantine is not None:
            with self._errors.contain(ErrorPart.REPORT, key):
                self._on_quarantine(self, key)

    def _forget(self, key: KeyT) -> None:
        self._failures.pop(key, None)
        self.queue.forget(key)
