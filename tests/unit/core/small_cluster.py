"""A small cluster for tests: ClusterQueues with CPU in one flavor, and the decisions of cycles."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import Instruction, Preempt, ReportPending, ReserveQuota
from admitq.core.model import (
    SECOND,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.refusals import Refusal
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState

STRICT = QueueingStrategy.STRICT_FIFO

LOWER = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM = ClusterQueuePreemption(
    reclaim_within_cohort=PreemptionPolicy.ANY, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY
)


def key(name: str) -> ObjectKey:
    return ObjectKey("n", name)


def group(*quotas: tuple[str, int], limit: int | None = None) -> tuple[ResourceGroup, ...]:
    flavors = tuple(FlavorQuotas(name, (("cpu", ResourceQuota(cpu, limit)),)) for name, cpu in quotas)
    return (ResourceGroup(("cpu",), flavors),)


def queue(name: str, cpu: int = 0, cohort: str | None = None, **fields: Any) -> ClusterQueue:
    """Return a ClusterQueue with this quota of flavor ``default``, for every namespace."""
    fields.setdefault("resource_groups", group(("default", cpu)))
    fields.setdefault("namespace_selector", LabelSelector())
    return ClusterQueue(name, "", cohort, **fields)


@dataclass
class SmallCluster:
    """Drives the state of the core with events, and validates it after each."""

    settings: CoreSettings = field(default_factory=CoreSettings)
    now: int = 1_000 * SECOND + 5
    workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    """The instructions that the last event led to."""
    queued: int = 0
    """How many workloads were submitted."""
    statuses: bool = True

    def __post_init__(self) -> None:
        self.state = AdmissionState(self.settings, statuses=self.statuses)
        self.send(happened.NamespaceChanged("n", ()))
        self.put_flavors("default")

    def send(self, event: Event) -> list[Instruction]:
        self.instructions = self.state.handle(event, now=self.now)
        self.state.validate()
        return self.instructions

    def put_flavors(self, *names: str) -> None:
        for name in names:
            self.send(happened.ResourceFlavorChanged(ResourceFlavor(name)))

    def put(self, *queues: ClusterQueue) -> None:
        """Create or change ClusterQueues, each with a LocalQueue of its name."""
        for each in queues:
            self.send(happened.ClusterQueueChanged(each))
            self.send(happened.LocalQueueChanged(LocalQueue(key(each.name), each.name)))

    def submit(self, name: str, queue: str, cpu: int = 1, priority: int = 0, **fields: Any) -> None:
        self.queued += 1
        fields.setdefault("queued_at", self.queued)
        fields.setdefault("pod_sets", (PodSet("main", 1, template_requesting({"cpu": cpu})),))
        self.put_workload(Workload(key(name), f"uid-{name}", queue, priority=priority, **fields))

    def put_workload(self, workload: Workload) -> None:
        self.workloads[workload.key.name] = workload
        self.send(happened.WorkloadChanged(workload))

    def change(self, name: str, **fields: Any) -> None:
        self.put_workload(replace(self.workloads[name], **fields))

    def cycles(self, limit: int | None = None) -> list[Instruction]:
        return self.send(happened.CyclesRequested(limit))

    def decide(self, limit: int | None = None) -> list[str]:
        """Run cycles and observe every reservation; return the workloads that got one, in order."""
        instructions = self.cycles(limit)
        for each in instructions:
            if isinstance(each, ReserveQuota):
                self.change(
                    each.key.name,
                    admission=each.admission,
                    admitted=each.admit,
                    reserved_at=self.now // SECOND * SECOND,
                    evicted=False,
                )
        self.instructions = instructions
        return reserved(instructions)

    def run(self, *names: str) -> None:
        """Run cycles, and assert that they reserve quota for exactly these workloads."""
        assert sorted(self.decide()) == sorted(names)

    def evict(self, *names: str) -> None:
        for name in names:
            self.change(name, evicted=True)

    def leave(self, *names: str) -> None:
        """Evict workloads and let them stop."""
        for name in names:
            self.change(name, evicted=True)
            self.change(name, admission=None, admitted=False)

    def finish(self, *names: str) -> None:
        for name in names:
            self.change(name, finished=True)

    def delete(self, name: str) -> None:
        workload = self.workloads.pop(name)
        self.send(happened.WorkloadDeleted(workload.key, workload.uid))

    def fail(self, *names: str) -> list[Instruction]:
        """Report that preemptions of these workloads could not be written."""
        return [
            instruction
            for name in names
            for instruction in self.send(happened.PreemptionFailed(key(name), f"uid-{name}"))
        ]

    def restart(self) -> None:
        """Replace the state by one that is restored from its dump."""
        self.state = AdmissionState.from_dict(self.state.to_dict())
        self.state.validate()

    def refusal(self, name: str) -> Refusal | None:
        return self.state.queries.last_refusal(key(name))

    @property
    def is_quiet(self) -> bool:
        """Whether no cycle is due now."""
        due = self.state.next_wakeup(self.now)
        return due is None or due > self.now


def reserved(instructions: Iterable[Instruction]) -> list[str]:
    return [each.key.name for each in instructions if isinstance(each, ReserveQuota)]


def preempted(instructions: Iterable[Instruction]) -> list[str]:
    return sorted(each.key.name for each in instructions if isinstance(each, Preempt))


def reported(instructions: Iterable[Instruction]) -> dict[str, Refusal]:
    return {each.key.name: each.refusal for each in instructions if isinstance(each, ReportPending)}
