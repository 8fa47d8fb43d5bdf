"""Writes decisions about Workloads, and reports those that could not be written to the core."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from admitq.core import events as happened
from admitq.core.instructions import AssignTopology, EvictForNodeFailures, Preempt, ReserveQuota
from admitq.core.model import ObjectKey
from admitq.manager.admission_writer import AdmissionWriter
from admitq.manager.background_writes import BackgroundWrites
from admitq.manager.guarded_writes import backoff_seconds
from admitq.manager.node_failure_writer import NodeFailureWriter
from admitq.manager.preemption_writer import PreemptionWriter
from admitq.manager.topology_writer import TopologyWriter
from admitq.process.logs import logger
from admitq.runtime.errors import ApiError
from admitq.runtime.store import Store

log = logger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Write:
    """A decision with an unfinished write, which the core counts already."""

    instruction: ReserveQuota | AssignTopology
    task: "asyncio.Future[None]"


class DecisionWrites:
    """Writes the decisions of the core.

    Args:
        admissions: writes reservations.
        topologies: writes topology assignments of workloads with reserved quota.
        preemptions: writes preemptions.
        node_failures: writes evictions of workloads on failed nodes.
        background: where writes run.
        workloads: the store of Workloads.
        start: starts the job of an admitted Workload by the code of the job controller.
        put: reports an event about a Workload to the core.
    """

    def __init__(
        self,
        admissions: AdmissionWriter,
        topologies: TopologyWriter,
        preemptions: PreemptionWriter,
        node_failures: NodeFailureWriter,
        background: BackgroundWrites,
        workloads: Store,
        start: Callable[[dict[str, Any]], Awaitable[None]],
        put: Callable[[happened.Event, ObjectKey], None],
    ) -> None:
        self._admissions = admissions
        self._topologies = topologies
        self._preemptions = preemptions
        self._node_failures = node_failures
        self._background = background
        self._workloads = workloads
        self._start = start
        self._put = put
        self._failed_preemptions: dict[ObjectKey, int] = {}
        """Consecutive failures since the last reservation, by Workload."""
        self._writing: dict[ObjectKey, _Write] = {}

    def unfinished(self) -> list[ReserveQuota | AssignTopology]:
        """Return the decisions with unfinished writes that the core counts already."""
        return [write.instruction for write in self._writing.values()]

    def reserve(self, instruction: ReserveQuota) -> None:
        """Write a reservation in the background."""
        self._start_write(instruction, self._reserve(instruction))

    def assign_topology(self, instruction: AssignTopology) -> None:
        """Write topology assignments in the background."""
        self._start_write(instruction, self._assign_topology(instruction))

    def evict(self, instruction: EvictForNodeFailures) -> None:
        """Write the eviction of a workload on failed nodes in the background."""
        self._background.start(self._evict(instruction))

    def preempt(self, instruction: Preempt) -> None:
        """Write a preemption in the background."""
        self._background.start(self._preempt(instruction))

    def _start_write(
        self, instruction: ReserveQuota | AssignTopology, write: Coroutine[Any, Any, None]
    ) -> None:
        key, task = instruction.key, self._background.start(write)
        self._writing[key] = _Write(instruction, task)
        task.add_done_callback(lambda done: self._forget_finished(key, done))

    async def _reserve(self, instruction: ReserveQuota) -> None:
        """Write a reservation, then start the job."""
        written = await self._try(
            self._admissions.reserve(instruction), "reservation not written", instruction.key
        )
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

    async def _try(self, write: Awaitable[_Result], failure: str, key: ObjectKey) -> _Result | None:
        """Return the result of a write; None after an unexpected exception, which is reported.

        The core must learn in any case that a decision was not written.
        """
        try:
            return await write
        except Exception as error:  # noqa: BLE001 the core must learn that the decision was not written
            self._background.report_failure(failure, key, error)
            return None

    def _forget_finished(self, key: ObjectKey, done: "asyncio.Future[None]") -> None:
        if (write := self._writing.get(key)) is not None and write.task is done:
            del self._writing[key]

    async def _assign_topology(self, instruction: AssignTopology) -> None:
        is_written = await self._try(
            self._topologies.assign(instruction), "topology assignment not written", instruction.key
        )
        if not is_written:
            self._put(happened.TopologyAssignmentFailed(instruction.key, instruction.uid), instruction.key)

    async def _evict(self, instruction: EvictForNodeFailures) -> None:
        await self._try(self._node_failures.evict(instruction), "eviction not written", instruction.key)

    async def _preempt(self, instruction: Preempt) -> None:
        """Write a preemption, after an unfinished write of the reservation that the preemption ends."""
        if (write := self._writing.get(instruction.key)) is not None:
            await asyncio.wait([write.task])
        is_written = await self._try(
            self._preemptions.preempt(instruction), "preemption not written", instruction.key
        )
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
