"""One workload on its way: what it still has to do, and what becomes of its work when it is interrupted."""

import heapq
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from admitq.core.ledger import Usage
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.simulator.plan import WorkloadSource
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.templates import Parallelism, Template


class PodBatch(NamedTuple):
    """So many pods that run for the same time. Times are on the run's clock, from 0."""

    end: Nanoseconds
    start: Nanoseconds
    run_time: Nanoseconds
    pods: int


@dataclass(slots=True, eq=False)
class RemainingWork:
    """The pods of a workload: those to come, those that run, and how many have ended."""

    left: list[tuple[Nanoseconds, int]]
    """Run times of pods that have not started, the next one last, and how many there are of each."""
    running: list[PodBatch] = field(default_factory=list[PodBatch])
    """A heap: the first to end is first."""
    ended: int = 0
    done: int = 0
    """Pods that ended, times nanoseconds that they ran."""
    longest: Nanoseconds = 0
    """The longest run time among those that ended."""

    def start(self, how: Parallelism, now: Nanoseconds) -> None:
        """Start as many pods as may run at a time."""
        self._fill(how.parallel, how.completions - self.ended, now)

    def _fill(self, free: int, wanted: int, now: Nanoseconds) -> None:
        left = self.left
        if not left:
            return
        wanted -= sum(piece.pods for piece in self.running)
        while free > 0 and wanted > 0 and left:
            run_time, pods = left[-1]
            taken = min(pods, free, wanted)
            if taken == pods:
                left.pop()
            else:
                left[-1] = (run_time, pods - taken)
            heapq.heappush(self.running, PodBatch(now + run_time, now, run_time, taken))
            free -= taken
            wanted -= taken

    @property
    def next_end(self) -> Nanoseconds | None:
        """When the next pods end; None when nothing runs."""
        return self.running[0].end if self.running else None

    def end_due(self, how: Parallelism, now: Nanoseconds) -> None:
        """Let the pods end whose time has come, and start others in their place."""
        free = 0
        while self.running and self.running[0].end <= now:
            piece = heapq.heappop(self.running)
            free += piece.pods
            self.done += piece.pods * piece.run_time
            self.longest = max(self.longest, piece.run_time)
        self.ended += free
        self._fill(free, how.completions - self.ended, now)

    def interrupt(self, checkpoints: Nanoseconds | None, now: Nanoseconds) -> int:
        """Stop all that runs.

        Args:
            checkpoints: what survives, as in ``Source``.
            now: the present instant.

        Returns:
            The work that is lost: pods times nanoseconds.
        """
        lost = 0
        while self.running:
            piece = heapq.heappop(self.running)
            ran = now - piece.start
            kept = 0 if checkpoints is None else ran - ran % checkpoints if checkpoints else ran
            lost += (ran - kept) * piece.pods
            self.done += kept * piece.pods
            self.left.append((piece.run_time - kept, piece.pods))
        return lost


@dataclass(slots=True, eq=False)
class SimulatedWorkload:
    """A workload that was submitted and has not ended."""

    source: WorkloadSource
    template: Template
    workload: Workload
    """As it was last observed."""
    submitted: Nanoseconds
    work: RemainingWork
    epoch: int = 0
    """Goes up whenever what was planned for it is void."""
    admitted_at: Nanoseconds | None = None
    """When it was first admitted."""
    holds: Usage = ()
    holds_in: str = ""
    count: int = 0
    """Pods that it was given."""
    waits_in: str = ""
    """The ClusterQueue that counts it as waiting."""
    runs: bool = False
    """Whether its pods run."""

    @property
    def local_queue(self) -> ObjectKey:
        """The LocalQueue that it names."""
        return ObjectKey(self.workload.key.namespace, self.workload.queue_name)

    @property
    def running(self) -> Parallelism:
        """How it runs with what it was given."""
        return self.template.running(self.count)

    def unit(self) -> list[tuple[str, float]]:
        """What one pod holds by resource, or the whole workload where it has several podsets."""
        admission = self.workload.admission
        if admission is None:
            return []
        total: dict[str, float] = {}
        for one in admission.pod_set_assignments:
            for resource, amount in one.resource_usage:
                per = one.count if self.template.has_pods and one.count else 1
                total[resource] = total.get(resource, 0.0) + amount / per
        return list(total.items())


_FIELDS: Final = tuple(one.name for one in fields(Workload))
_PLACES: Final = {name: index for index, name in enumerate(_FIELDS)}
_values = attrgetter(*_FIELDS)


def revise_workload(workload: Workload, **changes: Any) -> Workload:
    """The workload with some fields changed, as ``dataclasses.replace`` has it, in a third of the time.

    Every workload is revised several times, and there are many.
    """
    values: list[Any] = [*_values(workload)]
    for name, value in changes.items():
        values[_PLACES[name]] = value
    return Workload(*values)


START: Instant = 946_684_800 * 1_000_000_000
"""The instant at which runs begin, for the core: 2000-01-01T00:00:00Z. A whole second, as times of objects
are."""
