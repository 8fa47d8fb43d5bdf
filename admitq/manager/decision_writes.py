"""Writes reservations and preemptions, and reports those that could not be written to the core."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from admitq.core import events as happened
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import ObjectKey
from admitq.manager.admission_writer import AdmissionWriter
from admitq.manager.background_writes import BackgroundWrites
from admitq.manager.guarded_writes import backoff_seconds
from admitq.manager.preemption_writer import PreemptionWriter
from admitq.process.logs import logger
from admitq.runtime.errors import ApiError
from admitq.runtime.store import Store

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class _ReservationWrite:
    """A reservation with an unfinished write."""

    instruction: ReserveQuota
    task: "asyncio.Future[None]"


class DecisionWrites:
    """Writes the decisions of the core.

    Args:
        admissions: writes reservations.
        preemptions: writes preemptions.
        background: where writes run.
        workloads: the store of Workloads.
        start: starts the job of an admitted Workload by the code of the job controller.
        put: reports an event about a Workload to the core.
    """

    def __init__(
        self,
        admissions: AdmissionWriter,
        preemptions: PreemptionWriter,
        background: BackgroundWrites,
        workloads: Store,
        start: Callable[[dict[str, Any]], Awaitable[None]],
        put: Callable[[happened.Event, ObjectKey], None],
    ) -> None:
        self._admissions = admissions
        self._preemptions = preemptions
        self._background = background
        self._workloads = workloads
        self._start = start
        self._put = put
        self._failed_preemptions: dict[ObjectKey, int] = {}
        """Consecutive failures since the last reservation, by Workload."""
        self._reserving: dict[ObjectKey, _ReservationWrite] = {}

    def unfinished_reservations(self) -> list[ReserveQuota]:
        """Return the reservations with unfinished writes."""
        return [reservation.instruction for reservation in self._reserving.values()]

    def reserve(self, instruction: ReserveQuota) -> None:
        """Write a reservation in the background."""
        key = instruction.key
        task = self._background.start(self._reserve(instruction))
        self._reserving[key] = _ReservationWrite(instruction, task)
        task.add_done_callback(lambda done: self._forget_finished(key, done))

    def preempt(self, instruction: Preempt) -> None:
        """Write a preemption in the background."""
        self._background.start(self._preempt(instruction))

    async def _reserve(self, instruction: ReserveQuota) -> None:
        """Write a reservation, then start the job."""
        try:
            written = await self._admissions.reserve(instruction)
        except Exception as error:  # noqa: BLE001 the core must learn that the reservation was not written
            self._background.report_failure("reservation not written", instruction.key, error)
            written = None
        if written is None:
            self._put(happened.ReservationFailed(instruction.key, instruction.uid), instruction.key)
            return
        self._failed_preemptions.pop(instruction.key, None)
        if instruction.admit:
            try:
                await self._start(written)
            except ApiError as error:
                # The job controller starts the job: it sees an admitted Workload with a suspended job.
                log.info(
                    "job not started yet, controller retries", workload=str(instruction.key), error=str(error)
                )

    def _forget_finished(self, key: ObjectKey, done: "asyncio.Future[None]") -> None:
        if (reserving := self._reserving.get(key)) is not None and reserving.task is done:
            del self._reserving[key]

    async def _preempt(self, instruction: Preempt) -> None:
        """Write a preemption, after the write of the reservation that the preemption ends."""
        if (reserving := self._reserving.get(instruction.key)) is not None:
            await asyncio.wait([reserving.task])
        try:
            is_written = await self._preemptions.preempt(instruction)
        except Exception as error:  # noqa: BLE001 the core must learn that the preemption was not written
            self._background.report_failure("preemption not written", instruction.key, error)
            is_written = False
        if is_written:
            self._failed_preemptions.pop(instruction.key, None)
        else:
            await self._undo_preemption(instruction)

    async def _undo_preemption(self, instruction: Preempt) -> None:
        """Report a failed preemption to the core, after a delay that grows with each failure of the Workload.

        The core retries a preemption at once, so the delay is here. For reservations, the core itself has a
        delay.
        """
        key = instruction.key
        attempt = self._failed_preemptions[key] = self._failed_preemptions.get(key, 0) + 1
        await asyncio.sleep(backoff_seconds(attempt))
        if self._workloads.get(*key) is None:
            self._failed_preemptions.pop(key, None)
        self._put(happened.PreemptionFailed(key, instruction.uid), key)
