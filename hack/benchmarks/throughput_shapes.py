"""The load shapes of `hack/bench throughput`, as data.

Others published the shapes, so that figures of different queue managers can be compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

RACK: Final = "example.com/rack"
"""The label of nodes with their rack."""

_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Equal nodes in the racks of one block.

    Attributes:
        racks: number of racks.
        hosts_of_rack: number of nodes in each rack.
        cpu: the CPUs of each node.
    """

    racks: int
    hosts_of_rack: int
    cpu: int

    @property
    def hosts(self) -> int:
        """The number of nodes."""
        return self.racks * self.hosts_of_rack


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Equal workloads that each queue creates at equal intervals.

    Attributes:
        name: the class in names of workloads and in the result.
        cpu: the CPUs that a workload requests, in all of its pods.
        run_ms: the time from its admission to its end.
        priority: its priority.
        per_queue: the number of its workloads in each queue.
        interval_ms: the time between two creations in one queue.
        pods: the number of its pods, which request equal amounts.
        topology_request: what its podset requests of a topology, as in the API.
    """

    name: str
    cpu: int
    run_ms: int
    priority: int
    per_queue: int
    interval_ms: int
    pods: int = 1
    topology_request: Mapping[str, Any] | None = None

    @property
    def cpu_of_pod(self) -> int:
        """The CPUs that each pod requests."""
        return self.cpu // self.pods

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
        nodes: the nodes, if the flavor has a topology. Without them, there is only quota.
    """

    cohorts: int
    queues_per_cohort: int
    classes: tuple[WorkloadClass, ...]
    nominal_cpu: int = 20
    borrowing_limit_cpu: int = 100
    reclaim_within_cohort: str = "Any"
    within_cluster_queue: str = "LowerPriority"
    nodes: NodeLayout | None = None

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


def _by_request(
    size: WorkloadClass, required: int, preferred: int, unconstrained: int
) -> tuple[WorkloadClass, ...]:
    """Return one class for each request of a topology, with so many workloads of each queue.

    They are created as often as workloads of the given class, in turn.
    """
    requests: tuple[tuple[str, Any, int], ...] = (
        ("required", RACK, required),
        ("preferred", RACK, preferred),
        ("unconstrained", True, unconstrained),
    )
    return tuple(
        replace(
            size,
            name=f"{size.name}-{name}",
            per_queue=per_queue,
            interval_ms=size.interval_ms * len(requests),
            topology_request={name: value},
        )
        for name, value, per_queue in requests
    )


BASELINE: Final = "baseline"
TOPOLOGY: Final = "topology"

SHAPES: Final = {
    BASELINE: LoadShape(
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
    # As many workloads as in the baseline, at the same times. The shares of the quota are about the same.
    TOPOLOGY: LoadShape(
        cohorts=5,
        queues_per_cohort=6,
        classes=(
            *_by_request(
                WorkloadClass(
                    "small", cpu=96, run_ms=200, priority=50, per_queue=350, interval_ms=100, pods=4
                ),
                *(117, 117, 116),
            ),
            *_by_request(
                WorkloadClass(
                    "medium", cpu=512, run_ms=500, priority=100, per_queue=100, interval_ms=500, pods=16
                ),
                *(34, 33, 33),
            ),
            *_by_request(
                WorkloadClass(
                    "large", cpu=2048, run_ms=1000, priority=200, per_queue=50, interval_ms=1200, pods=64
                ),
                *(17, 17, 16),
            ),
        ),
        nominal_cpu=2048,
        borrowing_limit_cpu=10_240,
        nodes=NodeLayout(racks=10, hosts_of_rack=64, cpu=96),
    ),
}
"""The shapes by name."""
