"""Measure one call of the core when many queues preempt at once, or when many workloads wait.

The figure is the CPU time of single calls, because a call blocks everything else in the process. The cost of
a call must not be proportional to the number of pending workloads.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from admitq.core.events import CyclesRequested, WorkloadChanged
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import SECOND, ClusterQueuePreemption, PodSet, PreemptionPolicy
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, FairSharing
from admitq.core.state import AdmissionState
from benchmarks.core_worlds import CPU, MeasurementFailed, Setting, new_state, pod_sets, running, workload

FAIR = CoreSettings(fair_sharing=FairSharing())
"""Settings with which shares decide over preemption."""

_RECLAIM = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY)
_RUNNING_PER_QUEUE = 20
_LIMIT_ONE = CyclesRequested(limit=1)


def _milliseconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1000


def reclaim(queues: int, settings: CoreSettings | None = None) -> tuple[float, float]:
    """Measure a cycle in which half of the ClusterQueues of a cohort reclaim their quota from the other half.

    Each ClusterQueue of the other half runs 20 workloads of 2 CPUs, twice its quota.

    Args:
        queues: number of ClusterQueues.
        settings: settings of the core, such as fair sharing.

    Returns:
        Milliseconds of that cycle and of the next one. An unrelated new workload causes the next cycle
        while the preempted workloads have not left.
    """
    state = new_state(Setting(1, queues, (), nominal=_RUNNING_PER_QUEUE, preemption=_RECLAIM), settings)
    for queue in range(0, queues, 2):
        for number in range(_RUNNING_PER_QUEUE):
            victim = workload(f"running-{queue:04}-{number:02}", queue, pod_sets(2), 0, number)
            state.handle(WorkloadChanged(running(victim, queue, 2, SECOND)), now=SECOND)
    for queue in range(1, queues, 2):
        preemptor = workload(f"waiting-{queue:04}", queue, pod_sets(10), 0, 100)
        state.handle(WorkloadChanged(preemptor), now=2 * SECOND)
    instructions: list[object] = []
    first = _milliseconds(lambda: instructions.extend(state.handle(_LIMIT_ONE, now=3 * SECOND)))
    if not any(isinstance(instruction, Preempt) for instruction in instructions):
        raise MeasurementFailed("no quota was reclaimed")
    state.handle(CyclesRequested(), now=4 * SECOND)
    state.handle(WorkloadChanged(workload("newcomer", 0, pod_sets(1), 0, 200)), now=5 * SECOND)
    return first, _milliseconds(lambda: state.handle(_LIMIT_ONE, now=6 * SECOND))


def release(waiting: int) -> float:
    """Return the milliseconds to observe that quota is free again and to admit the workload that fits.

    All other workloads wait in the same ClusterQueue, and no two request the same amount.
    """
    state = new_state(Setting(1, 1, (), nominal=1, borrowing_limit=0))
    first = workload("first", 0, pod_sets(1), 0, 0)
    state.handle(WorkloadChanged(running(first, 0, 1, SECOND)), now=SECOND)
    for number in range(waiting):
        pods = (PodSet("main", 1, template_requesting({"cpu": CPU + number})),)
        state.handle(WorkloadChanged(workload(f"w-{number:05}", 0, pods, 0, number)), now=SECOND)
    state.handle(CyclesRequested(), now=2 * SECOND)
    decided: list[object] = []

    def released(state: AdmissionState = state) -> None:
        state.observe(WorkloadChanged(replace(running(first, 0, 1, SECOND), finished=True)), now=3 * SECOND)
        decided.extend(state.handle(CyclesRequested(), now=3 * SECOND))

    took = _milliseconds(released)
    if sum(isinstance(instruction, ReserveQuota) for instruction in decided) != 1:
        raise MeasurementFailed("the quota that was released was not used")
    return took
