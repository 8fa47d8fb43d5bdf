"""Measure the decisions of the shape `large` of `hack/bench throughput`, without a cluster.

On a cluster, the API server limits this shape: it answers a few hundred writes a second. So quota returns in
small amounts, while many ClusterQueues of each cohort have workloads that wait for it. This module plays the
same load on a virtual clock, with an API server that answers one write after another. The core observes the
result of each write. After a number of writes, it runs a cycle if one is due: the manager rests after cycles.

Everything is deterministic: two versions of the core with the same decisions get the same events.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from admitq.core.events import CyclesRequested, WorkloadChanged
from admitq.core.instructions import Instruction, Preempt, ReserveQuota
from admitq.core.model import SECOND, ClusterQueuePreemption, ObjectKey, PodSet, PreemptionPolicy, Workload
from admitq.core.state import AdmissionState
from benchmarks.core_worlds import MILLISECOND, MeasurementFailed, Setting, new_state, pod_sets, workload
from benchmarks.throughput_shapes import SHAPES, LoadShape, PlannedWorkload

_WRITES_A_SECOND: Final = 25
"""How many writes the simulated API server answers in a second for each cohort, whatever they are."""

_LIMIT_ONE: Final = CyclesRequested(limit=1)

_TURNS: Final = ("create", "create", "create", "decision", "create", "create", "create", "decision", "job")
"""The writers take turns in these proportions, which were measured while the shape creates its workloads."""


@dataclass(slots=True)
class RationedRun:
    """The result of a run.

    Attributes:
        cycles: how many cycles ran.
        cycle_cpu_s: the CPU time of cycles, in seconds.
        admissions: how many reservations were decided.
        preemptions: how many preemptions were decided.
        finished: how many workloads have finished.
        virtual_s: the time on the virtual clock.
    """

    cycles: int = 0
    cycle_cpu_s: float = 0.0
    admissions: int = 0
    preemptions: int = 0
    finished: int = 0
    virtual_s: float = 0.0


def setting_of(shape: LoadShape) -> Setting:
    """Return the ClusterQueues of a shape."""
    return Setting(
        shape.cohorts,
        shape.queues_per_cohort,
        (),
        shape.nominal_cpu,
        shape.borrowing_limit_cpu,
        ClusterQueuePreemption(
            within_cluster_queue=PreemptionPolicy(shape.within_cluster_queue),
            reclaim_within_cohort=PreemptionPolicy(shape.reclaim_within_cohort),
        ),
    )


class RationedApiServer:
    """Plays a load shape against a state: creations, writes of decisions, and writes of jobs.

    Args:
        shape: the load.
        writes_per_cycle: after how many writes a cycle may run. The manager rests after each cycle.
        on_instructions: receives the instructions of each cycle, for comparisons of two runs.
    """

    def __init__(
        self,
        shape: LoadShape,
        writes_per_cycle: int = 1,
        on_instructions: Callable[[list[Instruction]], None] | None = None,
    ) -> None:
        self.state: AdmissionState = new_state(setting_of(shape))
        self.result = RationedRun()
        self._shape = shape
        self._write_time = SECOND // (_WRITES_A_SECOND * shape.cohorts)
        self._writes_per_cycle = writes_per_cycle
        self._writes = 0
        self._on_instructions = on_instructions
        self._now = SECOND
        self._pods: dict[int, tuple[PodSet, ...]] = {kind.cpu: pod_sets(kind.cpu) for kind in shape.classes}
        self._planned = iter(shape.planned())
        self._next_planned: PlannedWorkload | None = next(self._planned, None)
        self._run_time: dict[ObjectKey, int] = {}
        self._stored: dict[ObjectKey, Workload] = {}
        self._decisions: deque[ReserveQuota | Preempt] = deque()
        self._job_writes: deque[tuple[ObjectKey, bool]] = deque()
        """Writes of jobs that are due: the workload, and whether its job has ended (else it is released)."""
        self._ends: list[tuple[int, int, ObjectKey]] = []
        """A heap of the ends of jobs: the instant, the number of the run, the workload."""
        self._running: dict[ObjectKey, int] = {}
        """The number of the run of each job that runs."""
        self._serial = count()

    def run(self) -> RationedRun:
        """Play the load until each workload has finished."""
        turn = 0
        while self.result.finished < self._shape.workloads:
            self._collect_ends()
            changed = self._write(_TURNS[turn % len(_TURNS)])
            turn += 1
            if changed is not None:
                self._now += self._write_time
                self.state.observe(WorkloadChanged(changed), now=self._now)
                self._writes += 1
                if self._writes % self._writes_per_cycle == 0:
                    self._run_cycle()
            elif not self._has_write():
                self._run_cycle()
                if not self._has_write():
                    self._wait()
        self.result.virtual_s = (self._now - SECOND) / SECOND
        return self.result

    # --- the API server ---------------------------------------------------------------------------

    def _has_write(self) -> bool:
        return bool(self._decisions or self._job_writes or self._is_creation_due())

    def _is_creation_due(self) -> bool:
        planned = self._next_planned
        return planned is not None and SECOND + int(planned.due_s * SECOND) <= self._now

    def _wait(self) -> None:
        """Advance the clock to the next end of a job or the next creation."""
        instants = [self._ends[0][0]] if self._ends else []
        if self._next_planned is not None:
            instants.append(SECOND + int(self._next_planned.due_s * SECOND))
        if not instants:
            raise MeasurementFailed("no workload can be admitted, and none runs")
        self._now = max(self._now, min(instants))

    def _write(self, writer: str) -> Workload | None:
        """Return the changed workload, or None if the writer has nothing to write."""
        if writer == "create":
            return self._create() if self._is_creation_due() else None
        if writer == "decision":
            return self._write_decision(self._decisions.popleft()) if self._decisions else None
        while self._job_writes:
            changed = self._write_of_job(*self._job_writes.popleft())
            if changed is not None:
                return changed
        return None

    def _create(self) -> Workload:
        planned = self._next_planned
        assert planned is not None, "a creation is due"  # noqa: S101 narrows the type
        self._next_planned = next(self._planned, None)
        kind = planned.kind
        # Like creationTimestamp, queue-order timestamps have whole seconds.
        queued_at = self._now // SECOND * SECOND
        created = workload(planned.name, planned.queue, self._pods[kind.cpu], kind.priority, queued_at)
        self._stored[created.key] = created
        self._run_time[created.key] = kind.run_ms * MILLISECOND
        return created

    def _write_decision(self, decision: ReserveQuota | Preempt) -> Workload:
        former = self._stored[decision.key]
        if isinstance(decision, Preempt):
            changed = replace(former, evicted=True, evicted_at=self._now // SECOND * SECOND)
            self._running.pop(decision.key, None)
            self._job_writes.append((decision.key, False))
        else:
            changed = replace(
                former,
                admission=decision.admission,
                admitted=decision.admit,
                reserved_at=self._now // SECOND * SECOND,
                evicted=False,
                evicted_at=0,
            )
            end = self._now + self._run_time[decision.key]
            number = self._running[decision.key] = next(self._serial)
            heapq.heappush(self._ends, (end, number, decision.key))
        self._stored[decision.key] = changed
        return changed

    def _collect_ends(self) -> None:
        """Have the jobs that have ended write this. An eviction has stopped a job before its end."""
        while self._ends and self._ends[0][0] <= self._now:
            _, number, key = heapq.heappop(self._ends)
            if self._running.get(key) == number:
                self._job_writes.append((key, True))

    def _write_of_job(self, key: ObjectKey, has_ended: bool) -> Workload | None:
        former = self._stored[key]
        if former.finished:
            return None
        if has_ended:
            self._stored[key] = changed = replace(former, finished=True)
            self.result.finished += 1
            return changed
        self._stored[key] = changed = replace(former, admission=None, admitted=False, reserved_at=0)
        return changed

    # --- the core ---------------------------------------------------------------------------------

    def _run_cycle(self) -> None:
        """Run a cycle if one is due."""
        began = time.process_time()
        due = self.state.next_wakeup(self._now)
        if due is None or due > self._now:
            return
        instructions = self.state.handle(_LIMIT_ONE, now=self._now)
        self.result.cycle_cpu_s += time.process_time() - began
        self.result.cycles += 1
        if self._on_instructions is not None:
            self._on_instructions(instructions)
        for instruction in instructions:
            if isinstance(instruction, ReserveQuota):
                self.result.admissions += 1
                self._decisions.append(instruction)
            elif isinstance(instruction, Preempt):
                self.result.preemptions += 1
                self._decisions.append(instruction)


def one_cohort(scale: float) -> LoadShape:
    """Return one cohort of the shape `large`, with a share of the workloads of each class."""
    return replace(SHAPES["large"], cohorts=1).scaled(scale)
