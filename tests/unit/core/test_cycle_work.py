"""How the work of one cycle grows with its tree: calls of functions are counted, not time.

Half of the ClusterQueues of a tree preempt workloads of the other half. What one head costs must not depend
on how many others there are, except for the logarithm of that number.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

import admitq.core
from admitq.core.events import (
    CohortChanged,
    ClusterQueueChanged,
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
    Cohort,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
    Workload,
)
from admitq.core.requests import asking
from admitq.core.settings import FairSharing, Settings
from admitq.core.state import AdmissionState
from tests.unit.core.play import group, key, queue

CORE = str(Path(admitq.core.__file__).parent)
RUNNING_PER_QUEUE = 10
FEW, MANY = 40, 160


@dataclass(frozen=True)
class Crowd:
    """Pairs of ClusterQueues: the first runs workloads of 2 CPUs each, in the second one workload waits."""

    settings: Settings = Settings()
    policy: PreemptionPolicy = PreemptionPolicy(reclaim_within_cohort="Any")
    nested: bool = False
    """Whether each pair has a cohort of its own below the root."""
    requested: int = 5
    priority: int = 0
    waiting_since: int = 100
    unused: int = 0
    """Quota of the root that is not in use."""

    def state(self, queues: int) -> AdmissionState:
        """The state in which all heads wait for one cycle."""
        state = AdmissionState(self.settings)
        state.handle(NamespaceChanged("n", ()), now=0)
        state.handle(ResourceFlavorChanged(ResourceFlavor("default")), now=0)
        state.handle(CohortChanged(Cohort("root", None, group(("default", self.unused)))), now=0)
        for number in range(queues):
            cohort = "root"
            if self.nested:
                cohort = f"cohort-{number // 2}"
                state.handle(CohortChanged(Cohort(cohort, "root")), now=0)
            name = f"q{number:04}"
            spec = queue(name, RUNNING_PER_QUEUE, cohort, preemption=self.policy)
            state.handle(ClusterQueueChanged(spec), now=0)
            state.handle(LocalQueueChanged(LocalQueue(key(name), name)), now=0)
        for number in range(0, queues, 2):
            for index in range(RUNNING_PER_QUEUE):
                running = self._running(f"running-{number:04}-{index:02}", f"q{number:04}", index)
                state.handle(WorkloadChanged(running), now=SECOND)
        for number in range(1, queues, 2):
            name = f"waiting-{number:04}"
            pods = (PodSet("main", 1, asking({"cpu": self.requested})),)
            waiting = Workload(
                key(name), name, f"q{number:04}", self.waiting_since + number, pods, self.priority
            )
            state.handle(WorkloadChanged(waiting), now=2 * SECOND)
        return state

    def _running(self, name: str, cluster_queue: str, queued_at: int) -> Workload:
        part = PodSetAssignment("main", (("cpu", "default"),), (("cpu", 2),), 1)
        return Workload(
            key(name),
            name,
            cluster_queue,
            queued_at,
            (PodSet("main", 1, asking({"cpu": 2})),),
            admission=Admission(cluster_queue, (part,)),
            admitted=True,
            reserved_at=SECOND,
        )


def count_calls(call: Callable[[], object]) -> int:
    """How many functions code of the core calls meanwhile, built-in ones included."""
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


FAIR = Settings(fair_sharing=FairSharing())
NEWER = PreemptionPolicy(reclaim_within_cohort="LowerOrNewerEqualPriority")
BORROWER = PreemptionPolicy(
    reclaim_within_cohort="Any", borrow_within_cohort=BorrowWithinCohort("LowerPriority")
)


@pytest.mark.parametrize(
    ("crowd", "preempted", "admitted"),
    [
        pytest.param(Crowd(), 3, 0, id="classical"),
        pytest.param(Crowd(FAIR), 3, 0, id="fair"),
        pytest.param(Crowd(nested=True), 3, 0, id="classical, nested"),
        pytest.param(Crowd(FAIR, nested=True), 3, 0, id="fair, nested"),
        pytest.param(Crowd(policy=BORROWER, requested=12, priority=1), 6, 0, id="classical, borrowing"),
        pytest.param(Crowd(policy=NEWER, waiting_since=0), 0, 0, id="classical, none newer"),
        pytest.param(Crowd(FAIR, NEWER), 0, 0, id="fair, none newer"),
        pytest.param(Crowd(FAIR, requested=12), 0, 0, id="fair, greater share"),
    ],
)
def test_cycle_many_queues_preempt_work_of_one_head_is_bounded(
    crowd: Crowd, preempted: float, admitted: float
) -> None:
    calls: list[float] = []
    for queues in (FEW, MANY):
        state = crowd.state(queues)
        decided: list[Instruction] = []

        def run(state: AdmissionState = state, decided: list[Instruction] = decided) -> None:
            decided.extend(state.handle(CyclesRequested(limit=1), now=3 * SECOND))

        heads = queues // 2
        calls.append(count_calls(run) / heads)
        print(queues, calls, sum(isinstance(each, Preempt) for each in decided) / heads)
    assert calls[1] < 1.2 * calls[0]
