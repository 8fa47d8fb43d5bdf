"""Measure how long decisions block the event loop when many queues preempt and many workloads wait.

The benchmark drives the state as the manager does, and uses the manager's own measurement. Times are CPU
times.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from admitq.core.events import ClusterQueueChanged, CyclesRequested, Event, WorkloadChanged
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import SECOND, ClusterQueuePreemption, PodSet, PreemptionPolicy, Workload
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.manager.deferred_work import DeferredWork
from admitq.manager.event_loop_blocking import BlockingTimer
from admitq.metrics.registry import Metrics
from admitq.process.garbage_collection import exclude_current_objects, reduce_collections
from benchmarks.core_worlds import (
    CPU,
    MeasurementFailed,
    Setting,
    cluster_queues,
    new_state,
    pod_sets,
    running,
    workload,
)

_RECLAIM = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY)
_RUNNING_PER_QUEUE = 20
_TOO_LARGE = 200 * CPU
_LIMIT_ONE = CyclesRequested(limit=1)


class _Driver:
    """Run cycles in steps and observe events, as the manager does."""

    def __init__(self, state: AdmissionState) -> None:
        self.state = state
        self.now = 10 * SECOND
        self.reserved = self.preempted = 0
        # As the manager does at its start. reduce_collections handles objects that are created later.
        exclude_current_objects()
        self.measure()

    def measure(self) -> None:
        """Start the measurement."""
        metrics = Metrics()
        self.stretches = BlockingTimer(metrics, time.process_time)
        self._deferred = DeferredWork(self.stretches, metrics.errors)

    def observe(self, event: Event) -> None:
        """Observe an event."""
        self._deferred.run_between_cycles(lambda: self.state.observe(event, now=self.now))

    async def decide(self, cycles: int) -> None:
        """Run cycles until nothing is due, at most this many."""
        self.now += SECOND
        self._carry_out()
        for _ in range(cycles):
            due = self.state.next_wakeup(self.now)
            if due is None or due > self.now:
                return
            self.stretches.start()
            for _ in self.state.cycle_steps(_LIMIT_ONE, now=self.now):
                if self.stretches.should_yield:
                    await self.stretches.yield_to_loop()
            self._carry_out()
            self.stretches.stop()

    def _carry_out(self) -> None:
        for instruction in self.state.instructions():
            self.reserved += isinstance(instruction, ReserveQuota)
            self.preempted += isinstance(instruction, Preempt)


def _waiting(queues: int, count: int) -> Iterator[Workload]:
    """Return pending workloads in all ClusterQueues that can never fit, no two of the same size."""
    for number in range(count):
        queue, size = number % queues, number // queues
        pods = (PodSet("main", 1, template_requesting({"cpu": _TOO_LARGE + size})),)
        yield workload(f"w-{number:06}", queue, pods, -1, 1000 + number)


async def _crowd(queues: int, pending: int, settings: CoreSettings) -> float:
    setting = Setting(1, queues, (), nominal=_RUNNING_PER_QUEUE, preemption=_RECLAIM)
    driver = _Driver(new_state(setting, settings))
    running_workloads: list[tuple[Workload, int]] = []
    for queue in range(0, queues, 2):
        for number in range(_RUNNING_PER_QUEUE):
            running_workload = workload(f"running-{queue:04}-{number:02}", queue, pod_sets(2), 0, number)
            running_workloads.append((running(running_workload, queue, 2, SECOND), queue))
            driver.observe(WorkloadChanged(running_workloads[-1][0]))
    for pending_workload in _waiting(queues, pending):
        driver.observe(WorkloadChanged(pending_workload))
    await driver.decide(pending)
    driver.measure()
    for queue in range(1, queues, 2):
        driver.observe(WorkloadChanged(workload(f"reclaims-{queue:04}", queue, pod_sets(10), 0, 100)))
    await driver.decide(10)
    if not driver.preempted:
        raise MeasurementFailed("nothing was preempted")
    driver.observe(WorkloadChanged(workload("newcomer", 0, pod_sets(1), 0, 200)))
    await driver.decide(10)
    for ended, _ in running_workloads[::3]:
        driver.observe(WorkloadChanged(replace(ended, finished=True)))
    await driver.decide(10)
    if not driver.reserved:
        raise MeasurementFailed("the quota that was released was not used")
    edited = cluster_queues(replace(setting, nominal=_RUNNING_PER_QUEUE + 1))
    driver.observe(ClusterQueueChanged(next(edited)))
    await driver.decide(3)
    return driver.stretches.longest_seconds


async def _release(waiting: int) -> float:
    """Return quota for one workload, while others wait in one queue with different requests."""
    driver = _Driver(new_state(Setting(1, 1, (), nominal=1, borrowing_limit=0)))
    first = running(workload("first", 0, pod_sets(1), 0, 0), 0, 1, SECOND)
    driver.observe(WorkloadChanged(first))
    for number in range(waiting):
        pods = (PodSet("main", 1, template_requesting({"cpu": CPU + number})),)
        driver.observe(WorkloadChanged(workload(f"w-{number:05}", 0, pods, 0, number)))
    await driver.decide(2 * waiting)
    driver.measure()
    driver.observe(WorkloadChanged(replace(first, finished=True)))
    await driver.decide(waiting)
    if driver.reserved != 1:
        raise MeasurementFailed("the quota that was released was not used")
    return driver.stretches.longest_seconds


def longest_stretch(queues: int, pending: int, settings: CoreSettings) -> float:
    """Return the longest stretch, in milliseconds, when queues reclaim quota and workloads wait.

    Half of the ClusterQueues reclaim their quota from the other half, which runs 20 workloads of 2 CPUs,
    twice its quota. Then a new workload arrives, a third of the workloads end, and the quota of a
    ClusterQueue changes.

    Args:
        queues: number of ClusterQueues.
        pending: number of additional pending workloads that can never fit.
        settings: settings of the core, such as fair sharing.
    """
    reduce_collections()
    return asyncio.run(_crowd(queues, pending, settings)) * 1000


def longest_stretch_of_release(waiting: int) -> float:
    """Return the longest stretch, in milliseconds, when quota returns to a queue with many keys."""
    reduce_collections()
    return asyncio.run(_release(waiting)) * 1000
