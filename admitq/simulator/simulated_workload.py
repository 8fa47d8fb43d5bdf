"""A submitted workload: its pods, its remaining work, and the work that an interruption loses."""

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey, Workload
from admitq.simulator.plan import WorkloadSource
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.templates import Parallelism, Template


class PodBatch(NamedTuple):
    """Pods that start together and have the same run time. Times are on the virtual clock."""

    end: Nanoseconds
    start: Nanoseconds
    run_time: Nanoseconds
    pods: int


@dataclass(slots=True, eq=False)
class RemainingWork:
    """The pods of a workload: waiting, running and ended."""

    waiting: list[tuple[Nanoseconds, int]]
    """Run times of pods that have not started, with the number of pods; the next is last."""
    running: list[PodBatch] = field(default_factory=list[PodBatch])
    """A heap: the batch with the earliest end is first."""
    ended: int = 0
    done: int = 0
    """Work of ended pods: pods times nanoseconds."""
    longest: Nanoseconds = 0
    """The longest run time of the ended pods."""

    def start(self, how: Parallelism, now: Nanoseconds) -> None:
        """Start as many pods as can run in parallel."""
        self._fill(how.parallel, how.completions - self.ended, now)

    def _fill(self, free: int, parallel: int, now: Nanoseconds) -> None:
        waiting = self.waiting
        if not waiting:
            return
        parallel -= sum(piece.pods for piece in self.running)
        while free > 0 and parallel > 0 and waiting:
            run_time, pods = waiting[-1]
            started = min(pods, free, parallel)
            if started == pods:
                waiting.pop()
            else:
                waiting[-1] = (run_time, pods - started)
            heapq.heappush(self.running, PodBatch(now + run_time, now, run_time, started))
            free -= started
            parallel -= started

    @property
    def next_end(self) -> Nanoseconds | None:
        """The end of the next pods; None if no pod runs."""
        return self.running[0].end if self.running else None

    def end_due(self, how: Parallelism, now: Nanoseconds) -> None:
        """End the pods after their run time, and start other pods instead."""
        free = 0
        while self.running and self.running[0].end <= now:
            piece = heapq.heappop(self.running)
            free += piece.pods
            self.done += piece.pods * piece.run_time
            self.longest = max(self.longest, piece.run_time)
        self.ended += free
        self._fill(free, how.completions - self.ended, now)

    def interrupt(self, checkpoints: Nanoseconds | None, now: Nanoseconds) -> int:
        """Stop all running pods.

        Args:
            checkpoints: which work is kept, as in ``WorkloadSource``.
            now: the current time.

        Returns:
            The lost work: pods times nanoseconds.
        """
        lost = 0
        while self.running:
            piece = heapq.heappop(self.running)
            ran = now - piece.start
            saved = 0 if checkpoints is None else ran - ran % checkpoints if checkpoints else ran
            lost += (ran - saved) * piece.pods
            self.done += saved * piece.pods
            self.waiting.append((piece.run_time - saved, piece.pods))
        return lost


@dataclass(slots=True, eq=False)
class SimulatedWorkload:
    """A submitted workload that has not ended."""

    source: WorkloadSource
    template: Template
    workload: Workload
    """The workload as the core last observed it."""
    submitted: Nanoseconds
    work: RemainingWork
    epoch: int = 0
    """Increases when scheduled actions of the workload become void."""
    admitted_at: Nanoseconds | None = None
    """The time of the first admission."""
    holds: Usage = ()
    holds_in: str = ""
    count: int = 0
    """The number of pods in its admission."""
    waits_in: str = ""
    """The ClusterQueue in which it is counted as waiting."""
    runs: bool = False
    """Whether its pods run."""

    @property
    def local_queue(self) -> ObjectKey:
        """Its LocalQueue."""
        return ObjectKey(self.workload.key.namespace, self.workload.queue_name)

    @property
    def running(self) -> Parallelism:
        """Its pods to complete and its parallel pods, for the admitted number of pods."""
        return self.template.running(self.count)

    def unit(self) -> list[tuple[str, float]]:
        """Return what one pod holds by resource; the whole workload if it has several podsets."""
        admission = self.workload.admission
        if admission is None:
            return []
        total: dict[str, float] = {}
        for assignment in admission.pod_set_assignments:
            for resource, amount in assignment.resource_usage:
                per = assignment.count if self.template.has_pods and assignment.count else 1
                total[resource] = total.get(resource, 0.0) + amount / per
        return list(total.items())
