"""The shell around the core on a cluster: observations in, instructions carried out.

Everything happens in one event loop: what is observed goes to the ``AdmissionState`` at once, so that it
is never older than the stores; cycles run in a task of their own while the process leads; instructions go
to writers. No decision waits for a write: the core assumes its reservations, and a reservation that could
not be written comes back as an event.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from admitq import translate
from admitq.admission_status import CONCERN
from admitq.admission_writer import AdmissionWriter
from admitq.core import events as happened
from admitq.core.instructions import (
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
from admitq.explain import EffectivePriority
from admitq.guarded_writes import GuardedWrites, backoff
from admitq.logs import logger
from admitq.malformed import UNREADABLE, Malformed, MalformedReports
from admitq.measures import Measures
from admitq.metrics import Metrics
from admitq.observations import observations
from admitq.preemption_writer import PreemptionWriter
from admitq.recovery import CYCLE, Recovery
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.events import EventRecorder
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import Object, Resource
from admitq.runtime.store import Change, Store
from admitq.transition_metrics import Versions, count_transitions
from admitq.translate import Reading
from admitq.unexpected_errors import ErrorPart
from admitq_api.labels import Names

log = logger(__name__)


class Refresh(Protocol):
    """Where statuses are kept up to date: the controllers of queues and cohorts."""

    def cluster_queue(self, name: str) -> None:
        """Look at a ClusterQueue's status."""
        ...

    def local_queue(self, key: ObjectKey) -> None:
        """Look at a LocalQueue's status."""
        ...

    def cohort(self, name: str) -> None:
        """Look at a cohort's status."""
        ...


@dataclass(frozen=True, slots=True)
class _Reserving:
    """A reservation that is being written, or was not and is about to be given back."""

    instruction: ReserveQuota
    task: "asyncio.Future[None]"


@dataclass
class Manager:
    """Drives one ``AdmissionState`` on a cluster.

    Args:
        state: the core.
        client: for the writes of reservations and refusals.
        workload_resource: Workloads.
        workloads: the store of Workloads.
        names: the names of the API group.
        recorder: where Kubernetes events go.
        metrics: where cycles are counted.
        measures: where it is counted what happened to workloads.
        clock: wall time in nanoseconds.
        observed: takes the answer to one of our own writes into the stores.
        start: starts the job of an admitted Workload; the same code as the job controller's.
        refresh: whose statuses the core's numbers appear in.
        leading: whether this process may decide now.
        reading: how Workloads are read.
        set_aside: how many objects of a resource the stores could not read.
        objects: all objects that decisions depend on, as the stores hold them.
        tracks_pods_ready: whether Workloads tell if their pods are ready.
        tell_reasons: whether each cause of waiting has a reason of its own.
        reports_malformed: whether objects that cannot be read get an event and a status from this process.
        counts_transitions: whether the metrics of this process count the transitions of Workloads. Of
            processes that act at the same time, one does.
        merge_patches: whether the admission is written by merge patches instead of server-side apply.
    """

    state: AdmissionState
    client: Client
    workload_resource: Resource
    workloads: Store
    names: Names
    recorder: EventRecorder
    metrics: Metrics
    measures: Measures
    clock: Callable[[], Instant]
    observed: Callable[[Resource, Object], None]
    start: Callable[[Object], Awaitable[None]]
    refresh: Refresh
    leading: Callable[[], bool]
    reading: Reading = field(default_factory=Reading)
    set_aside: Callable[[Resource], int] = lambda _: 0
    objects: Callable[[], Iterable[tuple[Resource, Object]]] = tuple
    tracks_pods_ready: bool = True
    tell_reasons: bool = True
    reports_malformed: bool = True
    counts_transitions: bool = True
    merge_patches: bool = False

    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: dict[ObjectKey, int] = field(default_factory=dict[ObjectKey, int])
    _reserving: dict[ObjectKey, _Reserving] = field(default_factory=dict[ObjectKey, _Reserving])
    """Reservations that are being written."""
    _tasks: "set[asyncio.Future[None]]" = field(default_factory=set["asyncio.Future[None]"])

    def __post_init__(self) -> None:
        self._observations = observations(self.names, self.reading)
        writes = GuardedWrites(
            client=self.client,
            resource=self.workload_resource,
            workloads=self.workloads,
            observed=self.observed,
            decides_alike=self._decides_alike,
            metrics=self.metrics,
            field_manager=self.names.field_manager(CONCERN),
            merge_patches=self.merge_patches,
        )
        self._writer = AdmissionWriter(
            writes=writes,
            names=self.names,
            recorder=self.recorder,
            clock=self.clock,
            waits=lambda key: self.state.workload_phase(key) is Phase.PENDING,
            tracks_pods_ready=self.tracks_pods_ready,
            tell_reasons=self.tell_reasons,
            errors=self.metrics.errors,
        )
        self._preemptions = PreemptionWriter(
            writes=writes,
            names=self.names,
            recorder=self.recorder,
            measures=self.measures,
            clock=self.clock,
            priority_of=lambda obj: EffectivePriority(
                *translate.readable_priority(obj, self.names, self.reading)
            ),
            errors=self.metrics.errors,
        )
        reports = MalformedReports(
            self._writer, self.clock, lambda: self.reports_malformed and self.leading(), self._spawn
        )
        self._malformed = Malformed(self.metrics, self.set_aside, reports.report)
        self._recovery = Recovery(
            state=self.state,
            observations=self._observations,
            objects=self.objects,
            complete=self._assume_reservations,
            malformed=self._malformed,
            metrics=self.metrics,
            clock=self.clock,
            workloads=self.workload_resource.plural,
            cluster_queues=kinds_of(self.names).cluster_queues,
        )

    # --- observations in --------------------------------------------------------------------------

    def observe(self, resource: Resource, change: Change) -> None:
        """Take in what a watch, or the answer to a write of ours, showed. Never raises."""
        self._take_in(resource, change)
        if resource == self.workload_resource and self.counts_transitions and self.leading():
            with self.metrics.errors.contain(ErrorPart.METRICS, change.key):
                self._count_transitions(change)

    def _count_transitions(self, change: Change) -> None:
        if change.old is None:
            return
        try:
            count_transitions(Versions(change.old, change.new, self.clock()), self.measures)
        except UNREADABLE as error:
            log.warning("transition was not counted", workload=str(change.key), error=str(error))

    def _take_in(self, resource: Resource, change: Change) -> None:
        obj, key = change.object, ObjectKey(*change.key)
        if change.new is None:
            gone = self._recovery.deleted(resource, obj)
            if resource == self.workload_resource:
                self._writer.forget(key)
            self._put(gone, None)
            with self.metrics.errors.contain(ErrorPart.METRICS, key):
                self._forget(gone)
            return
        event, is_whole = self._recovery.changed(resource, obj)
        if event is None:
            return
        if is_whole:
            # A bug in a metric must not keep from the core what it decides by.
            with self.metrics.errors.contain(ErrorPart.METRICS, key):
                self._measure(event, obj)
        self._put(event, (resource, obj))

    def _measure(self, event: happened.Event, obj: Object) -> None:
        """Have metrics show an object as it is now."""
        match event:
            case happened.WorkloadChanged(workload):
                self.measures.workload_observed(workload, obj)
            case happened.ClusterQueueChanged(cluster_queue):
                self.measures.cluster_queue_observed(cluster_queue, obj)
            case happened.LocalQueueChanged(local_queue):
                self.measures.local_queue_observed(local_queue.key, obj)
            case happened.CohortChanged(cohort):
                self.measures.cohort_observed(cohort.name, obj)
                self.measures.cohorts_changed()
            case _:
                pass

    def _forget(self, gone: happened.Event) -> None:
        """Have metrics show an object no more that was deleted, as the core has taken in."""
        match gone:
            case happened.WorkloadDeleted(key):
                self.measures.workload_gone(key)
            case happened.ClusterQueueDeleted(name):
                self.measures.forget_cluster_queue(name)
            case happened.LocalQueueDeleted(key):
                self.measures.forget_local_queue(*key)
            case happened.CohortDeleted(name):
                self.measures.cohorts_changed()
                self.measures.cohort_object_deleted(name, self.state.cohort_status(name))
            case _:
                pass

    def count_malformed(self, resource: Resource) -> None:
        """Tell how many objects of a resource cannot be read: the stores set one aside, or took it back."""
        self._malformed.count(resource)

    def _decides_alike(self, decided: Object, current: Object) -> bool:
        changed = self._observations[self.workload_resource.plural].changed
        with suppress(*UNREADABLE):
            return changed(decided) == changed(current)
        return False

    def _put(self, event: happened.Event, of: tuple[Resource, Object] | None) -> None:
        """Have the core observe an event, which is about an object, if that still exists."""
        with self._recovery.guard(type(event).__name__, of):
            self._recovery.receiver.observe(event, now=self.clock())
        self._wake.set()

    def _workload(self, key: ObjectKey | None) -> tuple[Resource, Object] | None:
        obj = None if key is None else self.workloads.get(*key)
        return None if obj is None else (self.workload_resource, obj)

    # --- the loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run cycles, while this process leads, until cancelled.

        After an exception out of the core, nothing is decided before a new state has been made of what the
        stores hold. A report or a metric may fail and changes nothing of what was decided.
        """
        self._spawn(self._writer.run())
        try:
            while True:
                self._wake.clear()
                if self._recovery.is_due:
                    await self._recovery.make_anew()
                idle = self._turn()
                if idle == 0:
                    # Watches, writes and renewals get their turn between two cycles.
                    await asyncio.sleep(0)
                else:
                    await self._idle(idle)
        finally:
            for task in self._tasks:
                task.cancel()

    def _turn(self) -> float | None:
        """Carry out what was decided, and run a cycle if one is due; returns in how many seconds one is."""
        try:
            # What watches brought since the last turn is told together.
            self._carry_out(self.state.instructions())
            now = self.clock()
            due = self.state.next_wakeup(now) if self.leading() else None
            if due is not None and due <= now:
                self._cycle(now)
                return 0.0
            idle = None if due is None else (due - now) / SECOND
            search = self._recovery.search_on() if self.leading() else None
            return min((each for each in (idle, search) if each is not None), default=None)
        except Exception as error:  # noqa: BLE001 - a defect in a cycle must not end all that goes on beside it
            self._recovery.failed(CYCLE, self._workload(self.state.deciding), error)
            return 0.0

    def lead(self) -> None:
        """Begin to act: this process leads, and what it saw as a follower may now be told."""
        self._malformed.report_all()
        self._wake.set()

    async def _idle(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _cycle(self, now: Instant) -> None:
        started, before = time.perf_counter(), self.state.cycles_run
        instructions = self.state.handle(happened.CyclesRequested(limit=1), now=now)
        if self.state.cycles_run == before:
            # Only time has passed: no workload was tried.
            self._carry_out(instructions)
            return
        self._recovery.cycle_ended()
        admits = any(isinstance(item, ReserveQuota) for item in instructions)
        result = "success" if admits else "inadmissible"
        took = time.perf_counter() - started
        with self.metrics.errors.contain(ErrorPart.METRICS, "cycle"):
            self.metrics.increment("admission_attempts_total", result=result)
            self.metrics.observe("admission_attempt_duration_seconds", took, result=result)
            self.measures.preemptions_skipped(
                Counter(
                    item.cluster_queue
                    for item in instructions
                    if isinstance(item, TargetsRecomputed) and item.result is Recomputation.SKIPPED
                )
            )
        self._carry_out(instructions)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case ReserveQuota(key):
                    task = self._spawn(self._reserve(instruction))
                    self._reserving[key] = _Reserving(instruction, task)
                    task.add_done_callback(lambda done, key=key: self._reserved(key, done))
                case Preempt():
                    self._spawn(self._preempt(instruction))
                case _:
                    with self.metrics.errors.contain(ErrorPart.REPORT, type(instruction).__name__):
                        self._report(instruction)

    def _report(self, instruction: Instruction) -> None:
        """Carry out an instruction by which nothing is decided: it has something shown or written."""
        match instruction:
            case ReserveQuota() | Preempt():
                raise TypeError(f"{type(instruction).__name__} decides")
            case TargetsRecomputed(cluster_queue, result):
                self.measures.targets_recomputed(cluster_queue, result)
            case ReportPending():
                self._writer.schedule_report(instruction)
            case ReportSecondPass():
                self._writer.tell_second_pass(instruction)
            case RefreshClusterQueue(name):
                self.refresh.cluster_queue(name)
            case RefreshLocalQueue(key):
                self.refresh.local_queue(key)
            case RefreshCohort(name):
                self.refresh.cohort(name)

    # --- reservations -----------------------------------------------------------------------------

    def _assume_reservations(self, state: AdmissionState) -> None:
        """Have a new state count the reservations that are being written, which the stores may not show."""
        # No workload is left out for it: what is being written must be counted, or be observed first.
        with self._recovery.guard("ReserveQuota", None):
            for one in self._reserving.values():
                state.assume(one.instruction, now=self.clock())

    async def _reserve(self, instruction: ReserveQuota) -> None:
        """Have a reservation written; then start the job in the next statement."""
        try:
            written = await self._writer.reserve(instruction)
        except Exception as error:  # noqa: BLE001 the core must not count for ever what was not written
            self._not_written("reservation was not written", instruction.key, error)
            written = None
        if written is None:
            await self._give_back(
                instruction.key, happened.ReservationFailed(instruction.key, instruction.uid)
            )
            return
        self._failures.pop(instruction.key, None)
        if instruction.admit:
            try:
                await self.start(written)
            except ApiError as error:
                # The job controller sees an admitted Workload with a suspended job and starts it.
                log.info("job is left to its controller", workload=str(instruction.key), error=str(error))

    def _reserved(self, key: ObjectKey, done: "asyncio.Future[None]") -> None:
        if (reserving := self._reserving.get(key)) is not None and reserving.task is done:
            del self._reserving[key]

    async def _give_back(self, key: ObjectKey, failed: happened.Event) -> None:
        """Let the core forget what could not be written, later each time the same workload fails."""
        attempt = self._failures[key] = self._failures.get(key, 0) + 1
        await asyncio.sleep(backoff(attempt))
        if self.workloads.get(*key) is None:
            self._failures.pop(key, None)
        self._put(failed, self._workload(key))

    # --- preemptions ------------------------------------------------------------------------------

    async def _preempt(self, instruction: Preempt) -> None:
        """Have a preemption written, after the reservation that it ends."""
        if (reserving := self._reserving.get(instruction.key)) is not None:
            await asyncio.wait([reserving.task])
        try:
            stands = await self._preemptions.preempt(instruction)
        except Exception as error:  # noqa: BLE001 the core must not count for ever what was not written
            self._not_written("preemption was not written", instruction.key, error)
            stands = False
        if stands:
            self._failures.pop(instruction.key, None)
        else:
            await self._give_back(
                instruction.key, happened.PreemptionFailed(instruction.key, instruction.uid)
            )

    # --- behind the loop --------------------------------------------------------------------------

    def _spawn(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._not_written("write behind the loop failed", None, error)

    def _not_written(self, event: str, workload: ObjectKey | None, error: BaseException) -> None:
        if isinstance(error, ApiError | NotLeadingError):
            log.warning(event, workload=str(workload or ""), error=str(error))
        else:
            self.metrics.errors.report(ErrorPart.WRITE, error, workload or "")
