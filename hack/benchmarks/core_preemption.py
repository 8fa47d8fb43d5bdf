"""Measure searches for targets among many workloads of one cohort, by classical preemption.

Half of the ClusterQueues use half of their quota. The others use all of their quota and the rest of the first
half. Each search is for one workload that does not fit. The figure is the time of its whole cycle:
assignment, search, and the decision to preempt. No preemption is executed, so each search finds the same
targets.
"""

import random
import time
from typing import Final

from admitq.core.events import CyclesRequested, PreemptionFailed, WorkloadChanged, WorkloadDeleted
from admitq.core.instructions import Preempt
from admitq.core.model import SECOND, BorrowWithinCohort, ClusterQueuePreemption, PreemptionPolicy
from admitq.core.state import AdmissionState
from benchmarks.core_worlds import MeasurementFailed, Setting, new_state, pod_sets, running, workload

ADMITTED: Final = 10_000
_NOMINAL: Final = 100
_SETTING: Final = Setting(
    cohorts=1,
    queues_per_cohort=100,
    classes=(),
    nominal=_NOMINAL,
    borrowing_limit=_NOMINAL,
    preemption=ClusterQueuePreemption(
        reclaim_within_cohort=PreemptionPolicy.ANY,
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
        borrow_within_cohort=BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY),
    ),
)
_SIZES: Final = (1, 5, 20, 50, 100)
_PRIORITIES: Final = (0, 50, 100, 200)
_LIMIT_ONE: Final = CyclesRequested(limit=1)


def _fill(state: AdmissionState, choice: random.Random) -> None:
    """Admit 10,000 workloads of one CPU: 50 and 150 in turns, in queues of 100."""
    number = 0
    for queue in range(_SETTING.queues):
        for _ in range(_NOMINAL // 2 if queue % 2 else 3 * _NOMINAL // 2):
            running_workload = workload(
                f"running-{number:05}", queue, pod_sets(1), choice.choice((0, 50, 100)), number
            )
            reserved_at = (1 + choice.randrange(100_000)) * SECOND
            state.handle(WorkloadChanged(running(running_workload, queue, 1, reserved_at)), now=SECOND)
            number += 1
    if number != ADMITTED:
        raise MeasurementFailed(f"{number} workloads were admitted")


def searches(count: int) -> tuple[list[float], int]:
    """Return the seconds of each search, and how many searches found targets."""
    choice = random.Random(1)  # noqa: S311 the same searches in every run
    state = new_state(_SETTING)
    _fill(state, choice)
    now = 200_000 * SECOND
    seconds: list[float] = []
    successes = 0
    for number in range(count):
        now += SECOND
        size, priority = choice.choice(_SIZES), choice.choice(_PRIORITIES)
        preemptor = workload(
            f"waiting-{number:05}", choice.randrange(_SETTING.queues), pod_sets(size), priority, number
        )
        state.handle(WorkloadChanged(preemptor), now=now)
        started = time.perf_counter()
        decided = state.handle(_LIMIT_ONE, now=now)
        seconds.append(time.perf_counter() - started)
        victims = [instruction for instruction in decided if isinstance(instruction, Preempt)]
        successes += bool(victims)
        for victim in victims:
            state.handle(PreemptionFailed(victim.key, victim.uid), now=now)
        state.handle(WorkloadDeleted(preemptor.key, preemptor.uid), now=now)
        state.handle(CyclesRequested(), now=now)
    return seconds, successes
