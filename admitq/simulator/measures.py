"""The measurements of a run.

Measurements may use floats, because no decision depends on them. Their input, such as usage, comes from
functions of the core, so that the figures equal those in the status of a cluster.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admitq.core import events as happened
from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.events import Event
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.model import ClusterQueue, Cohort, ObjectKey, ResourceGroup
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.series import Grid, Level
from admitq.simulator.simulated_workload import SimulatedWorkload


@dataclass(slots=True, eq=False)
class WorkloadCounts:
    """Counts and waits of the workloads of a class or LocalQueue. Times are in nanoseconds."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    waits: "array[int]" = field(default_factory=lambda: array("q"))
    """The times from submission to the first admission, of all admitted workloads."""


@dataclass(slots=True, eq=False)
class QueueMeter:
    """The use, quota, borrowing and waiting workloads of a ClusterQueue."""

    grid: Grid
    spec: ClusterQueue
    waiting: Level
    uses: dict[FlavorResource, Level] = field(default_factory=dict[FlavorResource, Level])
    borrows: dict[FlavorResource, Level] = field(default_factory=dict[FlavorResource, Level])
    quotas: dict[FlavorResource, Level] = field(default_factory=dict[FlavorResource, Level])
    """Nominal quota."""
    preempted: int = 0
    preempting: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    """Work of its workloads that preemptions lost: amount times nanoseconds, by resource."""

    def use(self, pair: FlavorResource, change: int, now: Nanoseconds) -> None:
        """Add a change of the use of a workload."""
        level = self.uses.get(pair)
        if level is None:
            level = self.uses[pair] = Level(self.grid, now)
        level.change(change, now)
        self._settle_borrowing(pair, now)

    def _settle_borrowing(self, pair: FlavorResource, now: Nanoseconds) -> None:
        """Update the borrowed amount: the use above nominal quota, in a cohort."""
        use = self.uses.get(pair)
        if use is None or self.spec.cohort is None:
            return
        quota = self.quotas.get(pair)
        beyond = max(0, use.value - (0 if quota is None else quota.value))
        borrowed = self.borrows.get(pair)
        if borrowed is None:
            if not beyond:
                return
            borrowed = self.borrows[pair] = Level(self.grid, now)
        if beyond != borrowed.value:
            borrowed.change(beyond - borrowed.value, now)

    def change(self, spec: ClusterQueue, now: Nanoseconds) -> None:
        """Change the specification of the ClusterQueue."""
        self.spec = spec
        _set_levels(self.quotas, nominal(spec.resource_groups), self.grid, now)
        for pair in self.uses:
            self._settle_borrowing(pair, now)


def nominal(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, int]:
    """Return the nominal quotas, without unlimited ones."""
    return {
        FlavorResource(flavor.name, resource): quota.nominal
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources
        if quota.nominal < UNLIMITED
    }


def _set_levels(
    levels: dict[FlavorResource, Level], to: Mapping[FlavorResource, int], grid: Grid, now: Nanoseconds
) -> None:
    for pair in {**levels, **to}:
        level = levels.get(pair)
        if level is None:
            level = levels[pair] = Level(grid, now)
        level.change(to.get(pair, 0) - level.value, now)


@dataclass(slots=True, eq=False)
class MakespanBound:
    """A lower bound of the makespan: of all instants, the maximum of the later work divided by the quota."""

    submitted: "array[int]" = field(default_factory=lambda: array("q"))
    work: "dict[str, array[float]]" = field(default_factory=dict[str, "array[float]"])
    earliest_end: Nanoseconds = 0
    """The end of the last workload if every workload started at its submission."""

    def add(self, simulated: SimulatedWorkload, unit: Iterable[tuple[str, float]]) -> None:
        """Add a workload that ended."""
        work = simulated.work
        count = len(self.submitted)
        self.submitted.append(simulated.submitted)
        shortest = max(work.longest, work.done // max(1, simulated.running.parallel))
        self.earliest_end = max(self.earliest_end, simulated.submitted + shortest)
        for resource, amount in unit:
            column = self.work.get(resource)
            if column is None:
                column = self.work[resource] = array("d")
            column.extend([0.0] * (count - len(column)))
            column.append(amount * work.done)

    def bound(self, capacity: Mapping[str, float]) -> float:
        """Return the bound in nanoseconds.

        Args:
            capacity: the largest total quota of each resource during the run.
        """
        order = sorted(range(len(self.submitted)), key=self.submitted.__getitem__, reverse=True)
        longest = float(self.earliest_end)
        for resource, column in self.work.items():
            there = capacity.get(resource, 0.0)
            if not there:
                continue
            column.extend([0.0] * (len(self.submitted) - len(column)))
            total = 0.0
            for index in order:
                total += column[index]
                longest = max(longest, self.submitted[index] + total / there)
        return longest


@dataclass(slots=True, eq=False)
class HostFailureCounts:
    """What failures of nodes did to workloads."""

    pods: int = 0
    """The number of pods that stopped with their host."""
    replaced: int = 0
    """How often the pods of a failed host got other hosts."""
    evicted: int = 0
    """How often a workload was evicted."""
    lost: Counter[str] = field(default_factory=Counter[str])
    """The lost work: amount times nanoseconds, by resource."""


@dataclass(slots=True, eq=False)
class Measures:
    """All measurements of a run."""

    grid: Grid = field(default_factory=Grid)
    all: WorkloadCounts = field(default_factory=WorkloadCounts)
    by_class: dict[str, WorkloadCounts] = field(default_factory=dict[str, WorkloadCounts])
    by_queue: dict[ObjectKey, WorkloadCounts] = field(default_factory=dict[ObjectKey, WorkloadCounts])
    queues: dict[str, QueueMeter] = field(default_factory=dict[str, QueueMeter])
    routes: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])
    """The current ClusterQueue of each LocalQueue."""
    uses: dict[FlavorResource, Level] = field(default_factory=dict[FlavorResource, Level])
    """The total use of all ClusterQueues."""
    quotas: dict[FlavorResource, Level] = field(default_factory=dict[FlavorResource, Level])
    """The total nominal quota of all ClusterQueues and cohorts."""
    cohorts: dict[str, Cohort] = field(default_factory=dict[str, Cohort])
    capacity: dict[str, float] = field(default_factory=dict[str, float])
    """The largest total quota of each resource during the run."""
    preemptions: Counter[PreemptionReason] = field(default_factory=Counter[PreemptionReason])
    killed: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    """Work that failures lost: amount times nanoseconds, by resource."""
    host_failures: HostFailureCounts = field(default_factory=HostFailureCounts)
    useful: Counter[str] = field(default_factory=Counter[str])
    """Work of finished workloads."""
    lower: MakespanBound = field(default_factory=MakespanBound)
    first_submission: Nanoseconds | None = None
    last_end: Nanoseconds = 0

    # --- the world --------------------------------------------------------------------------------

    def observe(self, events: Iterable[Event], now: Nanoseconds) -> None:
        """Record changes of quota, and of the ClusterQueues of LocalQueues."""
        edited = False
        for event in events:
            match event:
                case happened.ClusterQueueChanged(cluster_queue=spec):
                    meter = self.queues.get(spec.name)
                    if meter is None:
                        meter = QueueMeter(self.grid, spec, Level(self.grid, now))
                        self.queues[spec.name] = meter
                    meter.change(spec, now)
                    edited = True
                case happened.ClusterQueueDeleted(name=name) if name in self.queues:
                    meter = self.queues[name]
                    _set_levels(meter.quotas, {}, self.grid, now)
                    edited = True
                case happened.CohortChanged(cohort=cohort):
                    self.cohorts[cohort.name] = cohort
                    edited = True
                case happened.CohortDeleted(name=name):
                    self.cohorts.pop(name, None)
                    edited = True
                case happened.LocalQueueChanged(local_queue=queue):
                    self.routes[queue.key] = queue.cluster_queue
                case _:
                    pass
        if edited:
            self._count_quota(now)

    def _count_quota(self, now: Nanoseconds) -> None:
        total: Counter[FlavorResource] = Counter()
        for meter in self.queues.values():
            total.update({pair: level.value for pair, level in meter.quotas.items()})
        for cohort in self.cohorts.values():
            total.update(nominal(cohort.resource_groups))
        _set_levels(self.quotas, total, self.grid, now)
        by_resource: Counter[str] = Counter()
        for pair, amount in total.items():
            by_resource[pair.resource] += amount
        for resource, amount in by_resource.items():
            self.capacity[resource] = max(self.capacity.get(resource, 0.0), amount)

    # --- workloads --------------------------------------------------------------------------------

    def counts_of(
        self, simulated: SimulatedWorkload
    ) -> tuple[WorkloadCounts, WorkloadCounts, WorkloadCounts]:
        """Return the counts that include the workload."""
        by_class = self.by_class.get(simulated.source.name)
        if by_class is None:
            by_class = self.by_class[simulated.source.name] = WorkloadCounts()
        key = simulated.local_queue
        by_queue = self.by_queue.get(key)
        if by_queue is None:
            by_queue = self.by_queue[key] = WorkloadCounts()
        return self.all, by_class, by_queue

    def submitted(self, simulated: SimulatedWorkload, now: Nanoseconds) -> None:
        """Count a submitted workload."""
        if self.first_submission is None:
            self.first_submission = now
        for counts in self.counts_of(simulated):
            counts.submitted += 1
        self.waits(simulated, now)

    def waits(self, simulated: SimulatedWorkload, now: Nanoseconds) -> None:
        """Count a workload as waiting."""
        simulated.waits_in = self.routes.get(simulated.local_queue, "")
        meter = self.queues.get(simulated.waits_in)
        if meter is not None:
            meter.waiting.change(1, now)

    def stopped_waiting(self, simulated: SimulatedWorkload, now: Nanoseconds) -> None:
        """Stop counting a workload as waiting."""
        meter = self.queues.get(simulated.waits_in)
        if meter is not None:
            meter.waiting.change(-1, now)
        simulated.waits_in = ""

    def admitted(self, simulated: SimulatedWorkload, now: Nanoseconds) -> None:
        """Record the wait of a workload at its first admission."""
        simulated.admitted_at = now
        for counts in self.counts_of(simulated):
            counts.waits.append(now - simulated.submitted)

    def usage_changed(self, simulated: SimulatedWorkload, usage: Usage, now: Nanoseconds) -> None:
        """Replace the usage of a workload."""
        if usage == simulated.holds:
            return
        admission = simulated.workload.admission
        held_in = simulated.holds_in
        if usage and admission is not None:
            simulated.holds_in = admission.cluster_queue
        changes = {pair: -amount for pair, amount in simulated.holds}
        if simulated.holds_in != held_in:
            self._use(held_in, changes, now)
            changes = {}
        for pair, amount in usage:
            changes[pair] = changes.get(pair, 0) + amount
        self._use(simulated.holds_in, changes, now)
        simulated.holds = usage

    def _use(self, queue: str, changes: Mapping[FlavorResource, int], now: Nanoseconds) -> None:
        meter = self.queues.get(queue)
        if meter is None:
            return
        for pair, change in changes.items():
            meter.use(pair, change, now)
            level = self.uses.get(pair)
            if level is None:
                level = self.uses[pair] = Level(self.grid, now)
            level.change(change, now)

    def preempted(
        self,
        simulated: SimulatedWorkload,
        reason: PreemptionReason,
        by: str,
        lost: int,
    ) -> None:
        """Count a preemption and its lost work (pods times nanoseconds)."""
        self.preemptions[reason] += 1
        if by in self.queues:
            self.queues[by].preempting += 1
        meter = self.queues.get(simulated.holds_in)
        if meter is not None:
            meter.preempted += 1
            for resource, amount in simulated.unit():
                meter.lost[resource] += round(amount * lost)

    def workload_killed(self, simulated: SimulatedWorkload, lost: int) -> None:
        """Count a failed workload and its lost work."""
        self.killed += 1
        for resource, amount in simulated.unit():
            self.lost[resource] += round(amount * lost)

    def pods_stopped(self, simulated: SimulatedWorkload, pods: int, lost: int) -> None:
        """Count pods that stopped with their host, and their lost work (pods times nanoseconds).

        A workload that runs as a whole counts as one pod.
        """
        self.host_failures.pods += pods
        self._lose(simulated, lost)

    def evicted_for_node_failures(self, simulated: SimulatedWorkload, lost: int) -> None:
        """Count an eviction for failed nodes, and its lost work (pods times nanoseconds)."""
        self.host_failures.evicted += 1
        self._lose(simulated, lost)

    def _lose(self, simulated: SimulatedWorkload, lost: int) -> None:
        for resource, amount in simulated.unit():
            self.host_failures.lost[resource] += round(amount * lost)

    def ended(self, simulated: SimulatedWorkload, now: Nanoseconds, *, success: bool) -> None:
        """Count a workload that ended."""
        self.last_end = now
        for counts in self.counts_of(simulated):
            if success:
                counts.finished += 1
            else:
                counts.failed += 1
        if success:
            unit = simulated.unit()
            self.lower.add(simulated, unit)
            for resource, amount in unit:
                self.useful[resource] += round(amount * simulated.work.done)
