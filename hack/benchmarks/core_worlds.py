"""The worlds of the core's benchmarks: equal ClusterQueues in cohorts, and classes of workloads."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from admitq.core.events import (
    ClusterQueueChanged,
    Event,
    LocalQueueChanged,
    NamespaceChanged,
    ResourceFlavorChanged,
)
from admitq.core.model import (
    Admission,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState


class MeasurementFailed(RuntimeError):
    """The benchmark did not reach the state that it measures."""


CPU = 1000
"""The unit in which CPU is counted: a thousandth."""

MILLISECOND = 1_000_000
_NAMESPACE = "bench"
FLAVOR = "default"
"""The only flavor."""

_NO_PREEMPTION = ClusterQueuePreemption()


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size (CPUs), priority and run time, and their number in each queue."""

    cpus: int
    priority: int
    run_time_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Setting:
    """Cohorts of equal ClusterQueues, each with 20 CPU of quota and a borrowing limit of 100 CPU."""

    cohorts: int
    queues_per_cohort: int
    classes: tuple[Class, ...]
    nominal: int = 20
    borrowing_limit: int = 100
    preemption: ClusterQueuePreemption = _NO_PREEMPTION

    @property
    def queues(self) -> int:
        """The number of ClusterQueues."""
        return self.cohorts * self.queues_per_cohort


def _classes(small: int, medium: int, large: int) -> tuple[Class, ...]:
    return (Class(1, 50, 200, small), Class(5, 100, 500, medium), Class(20, 200, 1000, large))


BASELINE = Setting(5, 6, _classes(350, 100, 50))
LARGE = Setting(10, 100, _classes(35, 11, 4))


def pod_sets(cpus: int) -> tuple[PodSet, ...]:
    """Return one pod of this size."""
    return (PodSet("main", 1, template_requesting({"cpu": cpus * CPU})),)


def queue_name(number: int) -> str:
    """Return the name of a ClusterQueue and of its LocalQueue."""
    return f"queue-{number:04}"


def cluster_queues(setting: Setting) -> Iterator[ClusterQueue]:
    """Return the ClusterQueues of a setting."""
    quota = ResourceQuota(setting.nominal * CPU, borrowing_limit=setting.borrowing_limit * CPU)
    groups = (ResourceGroup(("cpu",), (FlavorQuotas(FLAVOR, (("cpu", quota),)),)),)
    for number in range(setting.queues):
        yield ClusterQueue(
            queue_name(number),
            cohort=f"cohort-{number // setting.queues_per_cohort:03}",
            resource_groups=groups,
            namespace_selector=LabelSelector(),
            preemption=setting.preemption,
        )


def new_state(setting: Setting, settings: CoreSettings | None = None) -> AdmissionState:
    """Return a state that has observed everything except workloads."""
    state = AdmissionState(settings)
    events: list[Event] = [NamespaceChanged(_NAMESPACE, ()), ResourceFlavorChanged(ResourceFlavor(FLAVOR))]
    for spec in cluster_queues(setting):
        events += (
            ClusterQueueChanged(spec),
            LocalQueueChanged(LocalQueue(ObjectKey(_NAMESPACE, spec.name), spec.name)),
        )
    for event in events:
        state.handle(event, now=0)
    return state


def workload(name: str, queue: int, pods: tuple[PodSet, ...], priority: int, queued_at: int) -> Workload:
    """Return a pending workload."""
    return Workload(ObjectKey(_NAMESPACE, name), name, queue_name(queue), queued_at, pods, priority)


def running(pending: Workload, queue: int, cpus: int, reserved_at: int) -> Workload:
    """Return the same workload, admitted: it holds CPUs of a queue since an instant in nanoseconds."""
    assigned = PodSetAssignment("main", (("cpu", FLAVOR),), (("cpu", cpus * CPU),), 1)
    admission = Admission(queue_name(queue), (assigned,))
    return replace(pending, admission=admission, admitted=True, reserved_at=reserved_at)


def workloads(setting: Setting) -> Iterator[tuple[Workload, Class]]:
    """Yield all workloads of all queues, each class in the order of its queues."""
    for kind in setting.classes:
        pods = pod_sets(kind.cpus)
        for number in range(kind.count):
            for queue in range(setting.queues):
                name = f"w-{queue:04}-{kind.cpus:02}-{number:05}"
                yield workload(name, queue, pods, kind.priority, number), kind
