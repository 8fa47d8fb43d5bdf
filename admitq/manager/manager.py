"""The manager: runs the core on a cluster.

All work runs in one event loop. The ``AdmissionState`` observes each change at once, so that it is never
older than the stores. While the process leads, one task runs the cycles, and writers carry out the
instructions. No decision waits for a write: the core assumes that its reservations succeed. An event reports
to the core that a reservation could not be written.

A long cycle gives control back to the event loop every few milliseconds (``event_loop_blocking``). The core
observes changes that arrive during a cycle, in their order, after the cycle. Code that reads the state waits
for the end of the cycle, too (``deferred_work``). After a cycle, the manager rests for a multiple of its CPU
time (``cycle_rest``), so that the next cycle decides on several changes.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from admitq.core import events as happened
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Instruction,
    Preempt,
    Recomputation,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
    TargetsRecomputed,
)
from admitq.core.lifecycle import Phase
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager import cycle_rest
from admitq.manager.admission_writer import AdmissionWriter
from admitq.manager.background_writes import BackgroundWrites
from admitq.manager.change_observer import ChangeObserver
from admitq.manager.decision_writes import DecisionWrites
from admitq.manager.deferred_work import DeferredWork
from admitq.manager.event_loop_blocking import BlockingTimer
from admitq.manager.guarded_writes import GuardedWrites
from admitq.manager.node_failure_writer import NodeFailureWriter
from admitq.manager.preemption_writer import PreemptionWriter
from admitq.manager.quarantine import Quarantine, QuarantineReporter
from admitq.manager.recovery import CYCLE, Recovery
from admitq.manager.topology_writer import TopologyWriter
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import Client
from admitq.runtime.events import EventRecorder
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.translate.messages import EffectivePriority
from admitq.translate.observations import READ_ERRORS, observations
from admitq.translate.priorities import read_priority_leniently
from admitq.translate.read_options import ReadOptions
from admitq.workloads.admission_status import ADMISSION_MANAGER_SUFFIX
from admitq_api.labels import Names

LONGEST_REFRESH_DELAY: Final = SECOND
"""The longest time for which refreshes of statuses wait for the end of due cycles, in nanoseconds.

A cycle that is due evaluates workloads, and most of them wait again afterwards. Their queues would be
refreshed twice with each cycle, although no number has changed in the end."""


class Refresh(Protocol):
    """Refreshes statuses of queues and cohorts; the controllers of these kinds implement it."""

    def cluster_queue(self, name: str) -> None:
        """Refresh the status of a ClusterQueue."""
        ...

    def local_queue(self, key: ObjectKey) -> None:
        """Refresh the status of a LocalQueue."""
        ...

    def cohort(self, name: str) -> None:
        """Refresh the status of a cohort."""
        ...


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """The tasks of a manager. Other processes may have the others.

    Args:
        tracks_pods_ready: whether Workloads have the condition PodsReady.
        has_detailed_reasons: whether each cause of waiting has its own reason.
        reports_quarantined: whether this process writes events and statuses of quarantined objects.
        reports_transitions: whether this process counts the transitions of Workloads in its metrics, and
            records events on their jobs. Of several processes that act at the same time, only one does.
        merge_patches: whether the admission is written by merge patches instead of server-side apply.
        by_hostname_prefix: whether topology assignments may have a slice for each prefix of host names.
    """

    tracks_pods_ready: bool = True
    has_detailed_reasons: bool = True
    reports_quarantined: bool = True
    reports_transitions: bool = True
    merge_patches: bool = False
    by_hostname_prefix: bool = True


class Manager:
    """Runs one ``AdmissionState`` on a cluster.

    Args:
        state: the core.
        client: sends the writes of reservations and refusals.
        workload_resource: the resource of Workloads.
        workloads: the store of Workloads.
        names: the names of the API group.
        recorder: records Kubernetes events.
        metrics: counts cycles.
        measures: the metrics of queues and workloads.
        clock: wall time in nanoseconds.
        observed: puts the object that a write returned into the stores.
        start: starts the job of an admitted Workload by the code of the job controller.
        refresh: refreshes the statuses that contain numbers of the core.
        leading: whether this process may decide now.
        reading: options for the reading of Workloads.
        count_quarantined_in_store: how many objects of a resource are quarantined in its store.
        objects: returns all objects of the stores on which decisions depend.
        options: what this process does.
    """

    def __init__(
        self,
        *,
        state: AdmissionState,
        client: Client,
        workload_resource: Resource,
        workloads: Store,
        names: Names,
        recorder: EventRecorder,
        metrics: Metrics,
        measures: ManagerMeasures,
        clock: Callable[[], Instant],
        store_answer: Callable[[Resource, dict[str, Any]], None],
        start: Callable[[dict[str, Any]], Awaitable[None]],
        refresh: Refresh,
        leading: Callable[[], bool],
        reading: ReadOptions | None = None,
        count_quarantined_in_store: Callable[[Resource], int] = lambda _: 0,
        objects: Callable[[], Iterable[tuple[Resource, dict[str, Any]]]] = tuple,
        options: ManagerOptions | None = None,
    ) -> None:
        reading, options = reading or ReadOptions(), options or ManagerOptions()
        self.state = state
        self.metrics = metrics
        self.measures = measures
        self._workload_resource = workload_resource
        self._workloads = workloads
        self._clock = clock
        self._refresh = refresh
        self._leading = leading
        self._wake = asyncio.Event()
        self._refreshed_at: Instant = 0
        self._rest_seconds = 0.0
        self._blocking = BlockingTimer(metrics)
        self._deferred = DeferredWork(self._blocking, metrics.errors)
        self._observations = observations(names, reading)
        self._background_writes = BackgroundWrites(metrics.errors)
        writes = GuardedWrites(
            client=client,
            resource=workload_resource,
            workloads=workloads,
            store_answer=store_answer,
            is_same_to_core=self._is_same_to_core,
            metrics=metrics,
            field_manager=names.field_manager(ADMISSION_MANAGER_SUFFIX),
            merge_patches=options.merge_patches,
        )
        self._writer = AdmissionWriter(
            writes=writes,
            names=names,
            recorder=recorder,
            clock=clock,
            is_pending=lambda key: state.queries.workload_phase(key) is Phase.PENDING,
            retry_delay=state.queries.retry_delay,
            tracks_pods_ready=options.tracks_pods_ready,
            has_detailed_reasons=options.has_detailed_reasons,
            by_hostname_prefix=options.by_hostname_prefix,
            errors=metrics.errors,
        )
        preemptions = PreemptionWriter(
            writes=writes,
            names=names,
            recorder=recorder,
            measures=measures.workloads,
            clock=clock,
            priority_of=lambda obj: EffectivePriority(*read_priority_leniently(obj, names, reading)),
            errors=metrics.errors,
        )
        self._decisions = DecisionWrites(
            self._writer,
            TopologyWriter(writes, by_hostname_prefix=options.by_hostname_prefix),
            preemptions,
            NodeFailureWriter(writes, recorder, clock),
            self._background_writes,
            workloads,
            start,
            self._put_workload_event,
        )
        reports = QuarantineReporter(
            self._writer,
            clock,
            lambda: options.reports_quarantined and leading(),
            self._background_writes.start,
        )
        self._quarantine = Quarantine(metrics, count_quarantined_in_store, reports.report)
        self._recovery = Recovery(
            state=state,
            observations=self._observations,
            objects=objects,
            add_unwritten_decisions=self._count_unfinished_decisions,
            quarantine=self._quarantine,
            metrics=metrics,
            clock=clock,
            cluster_queues=kinds_of(names).cluster_queues,
        )
        self._observer = ChangeObserver(
            workload_resource=workload_resource,
            recovery=self._recovery,
            measures=measures,
            errors=metrics.errors,
            clock=clock,
            run_between_cycles=self.run_between_cycles,
            put=self._put,
            forget_report=self._writer.forget,
            state=state,
            reports_transitions=lambda: options.reports_transitions and leading(),
            recorder=recorder,
        )

    # --- events -----------------------------------------------------------------------------------

    def observe(self, resource: Resource, change: ObjectChange) -> None:
        """Observe a change in a store, from a watch or from the answer to a write. Never raises."""
        self._observer.observe(resource, change)

    def update_quarantine_metric(self, resource: Resource) -> None:
        """Set the number of quarantined objects of a resource, after the number in the store has changed."""
        self._quarantine.update_metric(resource)

    def _is_same_to_core(self, decided: dict[str, Any], current: dict[str, Any]) -> bool:
        changed = self._observations[self._workload_resource.plural].changed
        with suppress(*READ_ERRORS):
            return changed(decided) == changed(current)
        return False

    def _put(self, event: happened.Event, of: tuple[Resource, dict[str, Any]] | None) -> None:
        """Report an event to the core; ``of`` is the object of the event if it exists."""
        with self._recovery.contain_failures(type(event).__name__, of):
            self._recovery.observing_state.observe(event, now=self._clock())
        self._wake.set()

    def run_between_cycles(self, work: Callable[[], None]) -> None:
        """Run work that needs the state: at once, or after the running cycle and earlier work."""
        self._deferred.run_between_cycles(work)

    async def wait_for_cycle_end(self) -> None:
        """Wait until no cycle runs and the core has observed all earlier changes.

        The state does not change until the caller's next await.
        """
        await self._deferred.wait_for_cycle_end()

    def _count_unfinished_decisions(self, state: AdmissionState) -> None:
        """Add reservations and places with unfinished writes to a new state. The stores may not have them."""
        # A failure here quarantines no workload, because its reservation must be counted.
        with self._recovery.contain_failures("ReserveQuota", None):
            for instruction in self._decisions.unfinished():
                state.assume(instruction, now=self._clock())

    def _put_workload_event(self, event: happened.Event, key: ObjectKey) -> None:
        self._deferred.run_between_cycles(lambda: self._put(event, self._workload(key)))

    def _workload(self, key: ObjectKey | None) -> tuple[Resource, dict[str, Any]] | None:
        obj = None if key is None else self._workloads.get(*key)
        return None if obj is None else (self._workload_resource, obj)

    # --- the loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run cycles while this process leads, until cancelled.

        After an exception of the core, no cycle runs before a new state is built from the stores. A failed
        report or metric does not change a decision.
        """
        self._background_writes.start(self._writer.run())
        self._blocking.start()
        try:
            while True:
                self._wake.clear()
                await self._deferred.run_deferred()
                if self._recovery.is_rebuild_due:
                    self._blocking.stop()
                    await self._recovery.rebuild_state()
                    self._blocking.start()
                if self._rest_seconds:
                    await self._rest()
                    continue
                idle = await self._run_step()
                if idle == 0:
                    # Watches, writes and lease renewals run between two cycles.
                    await self._blocking.yield_to_loop()
                else:
                    self._blocking.stop()
                    await self._wait_for_change(idle)
                    self._blocking.start()
        finally:
            self._background_writes.cancel()

    async def _run_step(self) -> float | None:
        """Carry out instructions, and run a cycle if one is due; return the seconds until the next cycle."""
        try:
            now = self._clock()
            if not self._is_cycle_due(now) or now - self._refreshed_at >= LONGEST_REFRESH_DELAY:
                # These are the instructions of all events since the last step.
                self._refreshed_at = now
                await self._carry_out(self.state.instructions())
                if self._recovery.is_rebuild_due:
                    return 0.0
                now = self._clock()
            due = self.state.next_wakeup(now) if self._leading() else None
            if due is not None and due <= now:
                return await self._run_cycle(now)
            idle = None if due is None else (due - now) / SECOND
            search = self._recovery.continue_search() if self._leading() else None
            return min((seconds for seconds in (idle, search) if seconds is not None), default=None)
        except Exception as error:  # noqa: BLE001 - a defect in a cycle must not end the other tasks
            self._recovery.record_failure(CYCLE, self._workload(self.state.deciding), error)
            return 0.0

    def _is_cycle_due(self, now: Instant) -> bool:
        due = self.state.next_wakeup(now) if self._leading() else None
        return due is not None and due <= now

    def lead(self) -> None:
        """Begin to lead: report the objects that this process quarantined while it did not lead."""
        self._quarantine.report_all()
        self._wake.set()

    async def _rest(self) -> None:
        """Rest after a cycle. The core observes changes meanwhile, and the next cycle decides on all."""
        seconds, self._rest_seconds = self._rest_seconds, 0.0
        self._blocking.stop()
        await asyncio.sleep(seconds)
        self._blocking.start()

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _run_cycle(self, now: Instant) -> float:
        """Run a cycle, or other work of the core that is due; return the seconds until the next step."""
        started, before = time.perf_counter(), self.state.queries.cycles_run
        # The CPU time of this thread, without the time of other tasks.
        worked, resumed, has_yielded = 0.0, time.thread_time(), False
        with self._deferred.defer_all():
            for _ in self.state.cycle_steps(happened.CyclesRequested(limit=1), now=now):
                if self._blocking.should_yield:
                    worked += time.thread_time() - resumed
                    await self._blocking.yield_to_loop()
                    resumed, has_yielded = time.thread_time(), True
        worked += time.thread_time() - resumed
        instructions = self.state.instructions(refreshes=False)
        if self.state.queries.cycles_run == before:
            # The call only advanced the time, or refreshed refusals; no workload was evaluated.
            await self._carry_out(instructions)
            # Changes that came while the steps yielded are deferred, and must not wait.
            return 0.0 if has_yielded else cycle_rest.rest_after_refresh(worked)
        self._rest_seconds = cycle_rest.rest_after_cycle(worked)
        self._recovery.record_cycle()
        admits = any(isinstance(item, ReserveQuota) for item in instructions)
        result = "success" if admits else "inadmissible"
        took = time.perf_counter() - started
        with self.metrics.errors.contain(ErrorPart.METRICS, "cycle"):
            self.metrics.increment("admission_attempts_total", result=result)
            self.metrics.observe("admission_attempt_duration_seconds", took, result=result)
            self.measures.workloads.preemptions_skipped(
                Counter(
                    item.cluster_queue
                    for item in instructions
                    if isinstance(item, TargetsRecomputed) and item.result is Recomputation.SKIPPED
                )
            )
        await self._carry_out(instructions)
        return 0.0

    async def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if self._blocking.should_yield:
                await self._blocking.yield_to_loop()
            match instruction:
                case ReserveQuota():
                    self._decisions.reserve(instruction)
                case AssignTopology():
                    self._decisions.assign_topology(instruction)
                case Preempt():
                    self._decisions.preempt(instruction)
                case EvictForNodeFailures():
                    self._decisions.evict(instruction)
                case _:
                    with self.metrics.errors.contain(ErrorPart.REPORT, type(instruction).__name__):
                        self._report(instruction)

    def _report(self, instruction: Instruction) -> None:
        """Carry out an instruction that updates a status or a metric."""
        match instruction:
            case ReserveQuota() | AssignTopology() | Preempt() | EvictForNodeFailures():
                raise TypeError(f"{type(instruction).__name__} is a decision, not a report")
            case TargetsRecomputed(cluster_queue, result):
                self.measures.workloads.targets_recomputed(cluster_queue, result)
            case ReportPending():
                self._writer.schedule_report(instruction)
            case ReportSecondPass():
                self._writer.record_second_pass_failure(instruction)
            case RefreshClusterQueue(name):
                self._refresh.cluster_queue(name)
            case RefreshLocalQueue(key):
                self._refresh.local_queue(key)
            case RefreshCohort(name):
                self._refresh.cohort(name)
