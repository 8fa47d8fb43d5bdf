"""How the work of one cycle grows with its tree: calls of functions are counted, not time.

Half of the ClusterQueues of a tree preempt workloads of the other half. What one head costs must not depend
on how many others there are, except for the logarithm of that number.
"""

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import FrameType

import pytest

import admitq.core
from admitq.core.events import (
    ClusterQueueChanged,
    CohortChanged,
    CyclesRequested,
    LocalQueueChanged,
    NamespaceChanged,
    ResourceFlavorChanged,
    WorkloadChanged,
)
from admitq.core.instructions import Instruction, Preempt, ReserveQuota
from admitq.core.model import (
    SECOND,
    Admission,
    BorrowWithinCohort,
    ClusterQueuePreemption,
    Cohort,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, FairSharing, PreemptionStrategy
from admitq.core.state import AdmissionState
from tests.unit.core.small_cluster import group, key, queue

CORE = str(Path(admitq.core.__file__).parent)
RUNNING_PER_QUEUE = 10
FEW, MANY = 20, 80
GROWTH = 1.1
"""How many times the work of a head may be, in a tree that is four times as large."""

CLASSICAL = CoreSettings()
FAIR = CoreSettings(fair_sharing=FairSharing())
BY_FINAL_SHARE = CoreSettings(
    fair_sharing=FairSharing((PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,))
)
ANY = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.ANY)
NEWER = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
LOWER = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
BORROWER = ClusterQueuePreemption(
    reclaim_within_cohort=PreemptionPolicy.ANY,
    borrow_within_cohort=BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY),
)


@dataclass(frozen=True)
class Crowd:
    """Pairs of ClusterQueues: the first runs 10 workloads of 2 CPUs, one workload waits in the second."""

    settings: CoreSettings = CLASSICAL
    policy: ClusterQueuePreemption = ANY
    nominal: tuple[int, int] = (10, 10)
    """The quota of a pair in CPUs."""
    nested: bool = False
    """Whether each pair has a cohort of its own below the root."""
    apart: bool = False
    """Whether each ClusterQueue has a cohort of its own below the root."""
    together: bool = False
    """Whether the first of all pairs are in one cohort; the last of them runs 20 workloads of 1 CPU.

    By its weight, the share of the cohort without one of these is that of a ClusterQueue that borrows 2 CPUs.
    Without any other workload, it is less.
    """
    requested: tuple[int, int] = (5, 5)
    """CPUs that waiting workloads request, alternating."""
    priority: int = 0
    queued_at: int = 100
    unused: int = 0
    """CPUs of the root that are not in use."""
    preempts: bool = True
    """Whether workloads are preempted in the cycle."""
    admits: bool = False
    """Whether workloads are admitted in the cycle."""

    def state(self, queues: int) -> AdmissionState:
        """The state in which all heads wait for one cycle."""
        state = AdmissionState(self.settings)
        state.handle(NamespaceChanged("n", ()), now=0)
        state.handle(ResourceFlavorChanged(ResourceFlavor("default")), now=0)
        state.handle(CohortChanged(Cohort("root", None, group(("default", self.unused)))), now=0)
        if self.together:
            weight = Fraction(queues - 1, 2)
            state.handle(CohortChanged(Cohort("running", "root", fair_weight=weight)), now=0)
        for number in range(queues):
            cohort = "running" if self.together and number % 2 == 0 else "root"
            if self.nested or self.apart:
                cohort = f"cohort-{number if self.apart else number // 2}"
                state.handle(CohortChanged(Cohort(cohort, "root")), now=0)
            name = f"q{number:04}"
            spec = queue(name, self.nominal[number % 2], cohort, preemption=self.policy)
            state.handle(ClusterQueueChanged(spec), now=0)
            state.handle(LocalQueueChanged(LocalQueue(key(name), name)), now=0)
        for number in range(0, queues, 2):
            small = self.together and number == queues - 2
            for index in range(RUNNING_PER_QUEUE * (2 if small else 1)):
                name = f"running-{number:04}-{index:02}"
                running = self._running(name, f"q{number:04}", index, 1 if small else 2)
                state.handle(WorkloadChanged(running), now=SECOND)
        for number in range(1, queues, 2):
            name = f"waiting-{number:04}"
            pods = (PodSet("main", 1, template_requesting({"cpu": self.requested[number // 2 % 2]})),)
            waiting = Workload(key(name), name, f"q{number:04}", self.queued_at + number, pods, self.priority)
            state.handle(WorkloadChanged(waiting), now=2 * SECOND)
        return state

    def _running(self, name: str, cluster_queue: str, queued_at: int, cpus: int) -> Workload:
        part = PodSetAssignment("main", (("cpu", "default"),), (("cpu", cpus),), 1)
        return Workload(
            key(name),
            name,
            cluster_queue,
            queued_at,
            (PodSet("main", 1, template_requesting({"cpu": cpus})),),
            admission=Admission(cluster_queue, (part,)),
            admitted=True,
            reserved_at=SECOND,
        )


def count_calls(call: Callable[[], object]) -> int:
    """Count the functions that code of the core calls during a call, built-in ones included."""
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(CORE):
            calls += 1

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(former)
    return calls


CROWDS = {
    "classical": Crowd(),
    "classical_nested": Crowd(nested=True),
    "classical_borrowing": Crowd(policy=BORROWER, requested=(12, 12), priority=1),
    "classical_no_lower_priority": Crowd(policy=LOWER, preempts=False),
    "classical_none_newer": Crowd(policy=NEWER, preempts=False),
    "classical_some_admitted": Crowd(requested=(5, 1), unused=4, admits=True),
    "classical_some_reserve_capacity": Crowd(
        policy=LOWER, requested=(1, 5), unused=4, preempts=False, admits=True
    ),
    "fair": Crowd(FAIR),
    "fair_nested": Crowd(FAIR, nested=True),
    "fair_borrowing": Crowd(FAIR, requested=(11, 1)),
    "fair_no_lower_priority": Crowd(FAIR, LOWER, preempts=False),
    "fair_none_newer": Crowd(FAIR, NEWER, preempts=False),
    "fair_greater_share": Crowd(FAIR, requested=(21, 21), preempts=False),
    "fair_some_admitted": Crowd(FAIR, requested=(5, 1), unused=4, admits=True),
    "fair_nearly_equal": Crowd(FAIR, nominal=(18, 2), requested=(3, 3)),
    "fair_nearly_equal_by_final_share": Crowd(
        BY_FINAL_SHARE, nominal=(18, 2), requested=(3, 3), preempts=False
    ),
    "fair_nearly_equal_apart": Crowd(FAIR, nominal=(18, 2), apart=True, requested=(3, 3)),
    "fair_nearly_equal_together": Crowd(
        FAIR, nominal=(18, 2), together=True, requested=(4, 4), preempts=False
    ),
    "fair_equal": Crowd(FAIR, nominal=(18, 2), requested=(4, 4), preempts=False),
    "fair_equal_apart": Crowd(FAIR, nominal=(18, 2), apart=True, requested=(4, 4), preempts=False),
}


@pytest.mark.parametrize("name", CROWDS)
def test_work_for_each_head_does_not_grow_with_number_of_preemptors(name: str) -> None:
    crowd = CROWDS[name]
    calls: list[float] = []
    for queues in (FEW, MANY):
        state = crowd.state(queues)
        decided: list[Instruction] = []

        def run(state: AdmissionState = state, decided: list[Instruction] = decided) -> None:
            decided.extend(state.handle(CyclesRequested(limit=1), now=3 * SECOND))

        calls.append(count_calls(run) / (queues // 2))
        assert any(isinstance(each, Preempt) for each in decided) == crowd.preempts
        assert any(isinstance(each, ReserveQuota) for each in decided) == crowd.admits
    assert calls[1] <= GROWTH * calls[0]


@pytest.mark.parametrize("name", CROWDS)
def test_cycle_creates_no_garbage_that_only_the_collector_frees(name: str) -> None:
    gc.disable()
    # The collector would also search all other objects of the test process, which takes most of a second.
    gc.freeze()
    try:
        state = CROWDS[name].state(FEW)
        gc.collect()
        state.handle(CyclesRequested(limit=1), now=3 * SECOND)
        assert gc.collect() == 0
    finally:
        gc.unfreeze()
        gc.enable()
