"""Instructions that were decided, and that the driver has not received yet."""

from dataclasses import dataclass, field

from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Instruction,
    Preempt,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
    TargetsRecomputed,
)
from admitq.core.model import ObjectKey
from admitq.core.refusals import Refusal
from admitq.core.waiting.pending import PendingEntry


@dataclass(slots=True, eq=False)
class Outbox:
    """Instructions in the order of decision, and queues with statuses that may have changed."""

    reservations: list[ReserveQuota] = field(default_factory=list[ReserveQuota])
    topology_assignments: list[AssignTopology] = field(default_factory=list[AssignTopology])
    preemptions: list[Preempt] = field(default_factory=list[Preempt])
    recomputations: list[TargetsRecomputed] = field(default_factory=list[TargetsRecomputed])
    node_failure_evictions: list[EvictForNodeFailures] = field(default_factory=list[EvictForNodeFailures])
    second_pass_reports: list[ReportSecondPass] = field(default_factory=list[ReportSecondPass])
    reports: dict[ObjectKey, ReportPending] = field(default_factory=dict[ObjectKey, ReportPending])
    """The latest refusal of each workload."""
    touched_cluster_queues: set[str] = field(default_factory=set[str])
    touched_local_queues: set[ObjectKey] = field(default_factory=set[ObjectKey])

    def report(self, pending: PendingEntry, refusal: Refusal) -> None:
        """Report why a pending workload was refused, unless this was its last report."""
        if pending.refusal is refusal or pending.refusal == refusal:
            return
        pending.refusal = refusal
        workload = pending.workload
        demands = pending.lane.key.demands if pending.lane is not None else ()
        self.reports[workload.key] = ReportPending(
            workload.key,
            workload.uid,
            refusal,
            tuple((demand.pod_set.name, demand.totals) for demand in demands),
        )

    def take_decisions(self) -> list[Instruction]:
        """Remove and return decisions: first reservations, last reports of second passes."""
        result: list[Instruction] = []
        for decided in (
            self.reservations,
            self.topology_assignments,
            self.preemptions,
            self.recomputations,
            self.node_failure_evictions,
            self.second_pass_reports,
        ):
            if decided:
                result += decided
                decided.clear()
        return result

    def take_reports(self) -> list[Instruction]:
        """Remove and return the reports, at most one for each workload."""
        result: list[Instruction] = list(self.reports.values())
        self.reports.clear()
        return result
