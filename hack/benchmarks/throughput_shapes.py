"""The load shapes of `hack/bench throughput`, as data.

Others published the shapes, so that figures of different queue managers can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Equal workloads that each queue creates at equal intervals.

    Attributes:
        name: the class in names of workloads and in the result.
        cpu: the CPUs that a workload requests.
        run_ms: the time from its admission to its end.
        priority: its priority.
        per_queue: the number of its workloads in each queue.
        interval_ms: the time between two creations in one queue.
    """

    name: str
    cpu: int
    run_ms: int
    priority: int
    per_queue: int
    interval_ms: int

    @property
    def last_end_s(self) -> float:
        """The end of its last workload, if each workload ran as soon as it is due."""
        return ((self.per_queue - 1) * self.interval_ms + self.run_ms) / _SECOND_MS


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """One workload of a shape. `due_s` is the planned time of its creation, from the start of the load."""

    due_s: float
    queue: int
    kind: WorkloadClass
    number: int

    @property
    def name(self) -> str:
        """The name of the Workload."""
        return f"{queue_name(self.queue)}-{self.kind.name}-{self.number:05}"


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Equal ClusterQueues in cohorts, and the classes of workloads that each queue creates.

    Attributes:
        cohorts: number of cohorts.
        queues_per_cohort: number of ClusterQueues of a cohort, each with one LocalQueue.
        classes: the classes of workloads.
        nominal_cpu: nominal quota of each ClusterQueue.
        borrowing_limit_cpu: borrowing limit of each ClusterQueue.
        reclaim_within_cohort: preemption policy of each ClusterQueue.
        within_cluster_queue: preemption policy of each ClusterQueue.
    """

    cohorts: int
    queues_per_cohort: int
    classes: tuple[WorkloadClass, ...]
    nominal_cpu: int = 20
    borrowing_limit_cpu: int = 100
    reclaim_within_cohort: str = "Any"
    within_cluster_queue: str = "LowerPriority"

    @property
    def queues(self) -> int:
        """The number of ClusterQueues."""
        return self.cohorts * self.queues_per_cohort

    @property
    def workloads(self) -> int:
        """The number of workloads."""
        return self.queues * sum(kind.per_queue for kind in self.classes)

    @property
    def quota_cpu(self) -> int:
        """The quota of all ClusterQueues."""
        return self.queues * self.nominal_cpu

    @property
    def bound_s(self) -> float:
        """The shortest possible time: with all quota always in use, and not before the last creation is due.

        All queues are equal, so lent quota does not change it.
        """
        work_ms = sum(kind.cpu * kind.run_ms * kind.per_queue for kind in self.classes)
        return max(work_ms / self.nominal_cpu / _SECOND_MS, *(kind.last_end_s for kind in self.classes))

    def scaled(self, share: float) -> "LoadShape":
        """Return the shape with this share of the workloads of each class, at least one."""
        return replace(
            self,
            classes=tuple(
                replace(kind, per_queue=max(1, round(kind.per_queue * share))) for kind in self.classes
            ),
        )

    def planned(self) -> Iterator[PlannedWorkload]:
        """Yield all workloads in the order of their creation. Queues take turns."""
        by_time = sorted(
            (number * kind.interval_ms, position, number)
            for position, kind in enumerate(self.classes)
            for number in range(kind.per_queue)
        )
        for due_ms, position, number in by_time:
            for queue in range(self.queues):
                yield PlannedWorkload(due_ms / _SECOND_MS, queue, self.classes[position], number)


def queue_name(number: int) -> str:
    """Return the name of a ClusterQueue and of its LocalQueue."""
    return f"queue-{number:04}"


def cohort_name(shape: LoadShape, queue: int) -> str:
    """Return the name of the cohort of a ClusterQueue."""
    return f"cohort-{queue // shape.queues_per_cohort:03}"


SHAPES: Final = {
    "baseline": LoadShape(
        cohorts=5,
        queues_per_cohort=6,
        classes=(
            WorkloadClass("small", cpu=1, run_ms=200, priority=50, per_queue=350, interval_ms=100),
            WorkloadClass("medium", cpu=5, run_ms=500, priority=100, per_queue=100, interval_ms=500),
            WorkloadClass("large", cpu=20, run_ms=1000, priority=200, per_queue=50, interval_ms=1200),
        ),
    ),
    "large": LoadShape(
        cohorts=10,
        queues_per_cohort=100,
        classes=(
            WorkloadClass("small", cpu=1, run_ms=150, priority=50, per_queue=35, interval_ms=60),
            WorkloadClass("medium", cpu=5, run_ms=350, priority=100, per_queue=11, interval_ms=300),
            WorkloadClass("large", cpu=20, run_ms=700, priority=200, per_queue=4, interval_ms=700),
        ),
    ),
}
"""The shapes by name."""
