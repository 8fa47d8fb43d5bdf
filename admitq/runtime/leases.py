"""Leader election by a Lease, in a thread with its own connection.

The thread renews the Lease while the main event loop is busy, and gives it up when that loop is blocked for
long. `LeaseClaim` explains why two processes never lead at once.
"""

import asyncio
import os
import random
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NoReturn

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.lease_claim import JITTER, Clocks, LeaseClaim, LeaseTiming, steady_seconds

log = logger(__name__)


class Milestone(StrEnum):
    """A step of leader election, as the elector reports it to its observer in the elector's thread."""

    ACQUIRED = "acquired"
    RENEWED = "renewed"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"


def exit_process(reason: str) -> NoReturn:
    """End the process at once, before it writes while another process leads."""
    log.critical("leadership lost, exiting", reason=reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def unique_identity() -> str:
    """Return a holder identity that is new for each process, also after a restart in the same pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """Takes part in leader election. `is_leader` says at any instant whether this process may write.

    ``on_lost`` is called in the elector's thread when leadership ends for another reason than ``stop``. By
    default it ends the process. If it returns, the elector ends. ``errors`` handles unexpected exceptions of
    requests and of ``observe``, in the elector's thread. Any other exception ends leadership.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        namespace: str,
        name: str,
        identity: str,
        user_agent: str,
        timing: LeaseTiming | None = None,
        on_lost: Callable[[str], object] = exit_process,
        observe: Callable[[Milestone], None] | None = None,
        clock: Callable[[], float] = steady_seconds,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.identity = identity
        self._credentials = credentials
        self._user_agent = user_agent
        self._timing = timing or LeaseTiming()
        self._on_lost = on_lost
        self._observe = observe
        self._clock = clock
        self._errors = errors
        # Only the elector's thread writes these, and any thread reads them. Each is one reference, so no lock
        # is needed.
        self._claim = LeaseClaim(namespace, name, identity, self._timing, Clocks(clock, wall))
        self._resigned = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()  # for the elector's loop
        self._leading = asyncio.Event()  # for the main loop
        self._unanswered_since: float | None = None
        """When this asked the main loop to answer. The main loop resets it, which is the answer."""

    # For any thread

    def is_leader(self) -> bool:
        """Whether this process may act now."""
        return not self._resigned and self._claim.is_valid

    def assert_leading(self) -> None:
        """Raise an error unless this process leads. Clients call this before each write.

        Raises:
            NotLeadingError: This process may no longer hold the Lease.
        """
        if not self.is_leader():
            raise NotLeadingError(f"{self.identity} does not hold lease {self._claim}")

    @property
    def leader(self) -> str:
        """The holder of the Lease that was last read; empty if it has none."""
        return self._claim.holder or ""

    def start(self) -> None:
        """Start the election; call it in the main event loop."""
        self._main = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="elector", daemon=True)
        self._thread.start()

    async def wait_until_leading(self) -> None:
        """Wait until this process leads."""
        await self._leading.wait()

    async def stop(self) -> None:
        """Give leadership up at once, then release the Lease. Before this call, end all tasks that write."""
        if self._thread is None or self._loop is None:
            return
        self._resigned = True
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                log.debug("stop ignored, leader election already ended")
        await asyncio.to_thread(self._thread.join, 2 * self._timing.call)

    # The elector's thread

    def _run(self) -> None:
        if self._loop is None:
            raise RuntimeError("not started")
        try:
            self._loop.run_until_complete(self._run_election())
        except Exception as error:
            log.exception("leader election failed")
            self._end_leadership(f"the elector failed: {error}")
        finally:
            self._loop.close()

    async def _run_election(self) -> None:
        async with Client(
            self._credentials,
            user_agent=self._user_agent,
            qps=-1,
            timeout=self._timing.call,
            connections=2,
        ) as client:
            while not self._stopping.is_set():
                if await self._take_or_renew(client):
                    reason = None if self._stopping.is_set() else await self._lead(client)
                    if reason is not None:
                        self._end_leadership(reason)
                    else:
                        await self._release(client)
                    return
                await self._pause(self._timing.retry * random.uniform(1.0, JITTER))  # noqa: S311 - spreads

    async def _lead(self, client: Client) -> str | None:
        """Renew the Lease until ``stop`` is called. Return the reason if leadership ends before that."""
        deadline = self._claim.valid_until
        self._report(Milestone.ACQUIRED)
        log.info("lease acquired", identity=self.identity)
        if not self._call_in_main_loop(self._leading.set):
            return "the main event loop has ended"
        while True:
            await self._pause(min(self._timing.retry, max(0.0, deadline - self._clock())))
            if self._stopping.is_set():
                return None
            if self._clock() >= deadline:
                return f"not renewed for {self._timing.renew_deadline:g} s"
            blocked_for = self._main_loop_blocked_for()
            if blocked_for > self._timing.stall_timeout:
                return f"the main event loop has been blocked for {blocked_for:.1f} s"
            if self._unanswered_since is None:
                self._unanswered_since = self._clock()
                if not self._call_in_main_loop(self._record_answer):
                    return "the main event loop has ended"
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    renewed = await self._take_or_renew(client)
            except TimeoutError:
                continue  # The check of the deadline above ends leadership.
            if renewed:
                deadline = self._claim.valid_until
            elif self._claim.holder is not None and self._claim.holder != self.identity:
                return f"{self._claim.holder or 'no process'} holds the lease"

    async def _take_or_renew(self, client: Client) -> bool:
        """Take the Lease, or renew it. Return whether this process holds it for another period."""
        try:
            is_held = await self._claim.take(client)
        except ApiError as error:
            log.warning("lease request failed", lease=str(self._claim), error=str(error))
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed while the claim is valid
            self._errors.report(ErrorPart.LEASE, error, str(self._claim))
        else:
            if is_held:
                self._report(Milestone.RENEWED)
            return is_held
        self._report(Milestone.FAILED)
        return False

    async def _release(self, client: Client) -> None:
        try:
            is_released = await self._claim.release(client)
        except ApiError as error:
            log.warning("lease release failed", lease=str(self._claim), error=str(error))
            return
        if is_released:
            log.info("lease released", identity=self.identity)
            self._report(Milestone.RELEASED)

    def _end_leadership(self, reason: str) -> None:
        self._resigned = True
        self._report(Milestone.LOST)
        self._on_lost(reason)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _record_answer(self) -> None:
        self._unanswered_since = None

    def _main_loop_blocked_for(self) -> float:
        """Return for how many seconds the main event loop has not answered. Renewals take no part in it."""
        asked_at = self._unanswered_since
        return 0.0 if asked_at is None else self._clock() - asked_at

    def _call_in_main_loop(self, callback: Callable[[], object]) -> bool:
        """Schedule a callback in the main event loop. Return False if that loop has ended."""
        if self._main is None or self._main.is_closed():
            return False
        try:
            self._main.call_soon_threadsafe(callback)
        except RuntimeError:  # It was closed after the check.
            return False
        return True

    def _report(self, milestone: Milestone) -> None:
        if self._observe is None:
            return
        with self._errors.contain(ErrorPart.LEASE, milestone):
            self._observe(milestone)
