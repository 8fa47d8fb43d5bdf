"""A submitted workload: its pods, its remaining work, and the work that an interruption loses."""

import heapq
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey, Workload
from admitq.core.refusals import Refusal
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME
from admitq.simulator.plan import WorkloadSource
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.templates import Parallelism, Template


class PodBatch(NamedTuple):
    """Pods that start together and have the same run time. Times are on the virtual clock.

    ``hosts`` has their number on each host; it is empty if the hosts are not known.
    """

    end: Nanoseconds
    start: Nanoseconds
    run_time: Nanoseconds
    pods: int
    hosts: tuple[tuple[str, int], ...] = ()


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
    slots: dict[str, int] = field(default_factory=dict[str, int])
    """The number of parallel pods on each host; empty if the hosts are not known."""
    stranded: dict[str, list[tuple[Nanoseconds, int]]] = field(
        default_factory=dict[str, list[tuple[Nanoseconds, int]]]
    )
    """As ``waiting``, the pods that stopped on each failed host, and that were not deleted yet."""
    closed: frozenset[str] = frozenset()
    """The hosts on which no pod can start."""
    _free: dict[str, int] = field(default_factory=dict[str, int])
    """The number of slots of each host in which no pod runs."""

    def place(self, slots: dict[str, int], closed: frozenset[str] = frozenset()) -> None:
        """Set the hosts of the pods that start from now on, and those on which none can start."""
        self.slots = slots
        self.closed = closed
        occupied = Counter[str]()
        for piece in self.running:
            occupied.update(dict(piece.hosts))
        self._free = {host: count - occupied[host] for host, count in slots.items()}

    def start(self, how: Parallelism, now: Nanoseconds) -> None:
        """Start as many pods as can run in parallel."""
        waiting = self.waiting
        if not waiting:
            return
        free = min(how.parallel, how.completions - self.ended) - self.running_pods
        if self.slots:
            is_open = not (how.runs_as_a_whole and self.closed)
            room = sum(count for host, count in self._free.items() if host not in self.closed and count > 0)
            free = min(free, room) if is_open else 0
        while free > 0 and waiting:
            run_time, pods = waiting[-1]
            started = min(pods, free)
            if started == pods:
                waiting.pop()
            else:
                waiting[-1] = (run_time, pods - started)
            hosts = () if how.runs_as_a_whole else self._take_slots(started)
            heapq.heappush(self.running, PodBatch(now + run_time, now, run_time, started, hosts))
            free -= started

    def _take_slots(self, pods: int) -> tuple[tuple[str, int], ...]:
        taken: list[tuple[str, int]] = []
        for host, count in self._free.items():
            if not pods:
                break
            if count > 0 and host not in self.closed:
                taken.append((host, min(count, pods)))
                pods -= taken[-1][1]
        for host, count in taken:
            self._free[host] -= count
        return tuple(taken)

    def _return_slots(self, piece: PodBatch) -> None:
        for host, count in piece.hosts:
            if host in self._free:
                self._free[host] += count

    @property
    def next_end(self) -> Nanoseconds | None:
        """The end of the next pods; None if no pod runs."""
        return self.running[0].end if self.running else None

    @property
    def running_pods(self) -> int:
        """The number of pods that run."""
        return sum(piece.pods for piece in self.running)

    def is_done(self, how: Parallelism) -> bool:
        """Whether all pods have ended."""
        remain = self.running or self.waiting or self.stranded
        return not remain or (not self.running and self.ended >= how.completions)

    def end_due(self, how: Parallelism, now: Nanoseconds) -> None:
        """End the pods after their run time, and start other pods instead."""
        while self.running and self.running[0].end <= now:
            piece = heapq.heappop(self.running)
            self.ended += piece.pods
            self.done += piece.pods * piece.run_time
            self.longest = max(self.longest, piece.run_time)
            self._return_slots(piece)
        self.start(how, now)

    def runs_on(self, host: str) -> bool:
        """Whether pods run on a host of the workload. Without hosts of each pod, all pods run on each."""
        return any(not piece.hosts or any(name == host for name, _ in piece.hosts) for piece in self.running)

    def interrupt(self, checkpoints: Nanoseconds | None, now: Nanoseconds, host: str | None = None) -> int:
        """Stop running pods.

        Args:
            checkpoints: which work is kept, as in ``WorkloadSource``.
            now: the current time.
            host: the host of the pods that stop, and are stranded there; None stops all pods. Pods that run
                as a whole all stop.

        Returns:
            The lost work: pods times nanoseconds.
        """
        lost = 0
        continuing: list[PodBatch] = []
        stopped: list[tuple[Nanoseconds, int]] = []
        for piece in sorted(self.running):
            pods = piece.pods
            if host is not None and piece.hosts:
                pods = dict(piece.hosts).get(host, 0)
                others = tuple(pair for pair in piece.hosts if pair[0] != host)
                if others:
                    continuing.append(piece._replace(pods=piece.pods - pods, hosts=others))
                piece = piece._replace(pods=pods, hosts=((host, pods),))  # noqa: PLW2901
            if not pods:
                continue
            self._return_slots(piece)
            ran = now - piece.start
            saved = 0 if checkpoints is None else ran - ran % checkpoints if checkpoints else ran
            lost += (ran - saved) * pods
            self.done += saved * pods
            stopped.append((piece.run_time - saved, pods))
        self.running = continuing
        if host is None:
            self.waiting += stopped
            self.release()
        else:
            self.stranded[host] = stopped
        return lost

    def release(self, kept: AbstractSet[str] = frozenset()) -> bool:
        """Let stranded pods wait for another start, except on some hosts. Return whether there are any."""
        released = [host for host in self.stranded if host not in kept]
        for host in released:
            self.waiting += self.stranded.pop(host)
        return bool(released)


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
    ends_epoch: int = 0
    """Increases when the scheduled end of its next pods becomes void."""
    stopped: dict[str, int] = field(default_factory=dict[str, int])
    """The number of its pods that stopped on each failed host."""
    resumes_at: Nanoseconds | None = None
    """When pods that stopped with their host are ready elsewhere."""
    second_pass_refusal: Refusal | None = None
    """Why its last second pass gave it no place."""

    def void_actions(self) -> None:
        """Make all of its scheduled actions void."""
        self.epoch += 1
        self.ends_epoch += 1

    @property
    def is_admitted(self) -> bool:
        """Whether its pods may run."""
        workload = self.workload
        return workload.admission is not None and workload.admitted and not self.has_to_stop

    @property
    def has_to_stop(self) -> bool:
        """Whether it was evicted, or has ended."""
        return self.workload.evicted or self.workload.finished

    @property
    def local_queue(self) -> ObjectKey:
        """Its LocalQueue."""
        return ObjectKey(self.workload.key.namespace, self.workload.queue_name)

    @property
    def running(self) -> Parallelism:
        """Its pods to complete and its parallel pods, for the admitted number of pods."""
        return self.template.running(self.count)

    @property
    def assignments(self) -> dict[str, TopologyAssignment]:
        """Its topology assignments, by podset."""
        admission = self.workload.admission
        parts = () if admission is None else admission.pod_set_assignments
        return {part.name: part.topology for part in parts if part.topology is not None}

    @property
    def slots(self) -> dict[str, int]:
        """The number of its pods on each host; empty if its assignments do not name the hosts of all pods."""
        assignments = self.assignments
        if len(assignments) != 1 and self.template.has_pods:
            return {}
        slots = Counter[str]()
        for assignment in assignments.values():
            if assignment.levels[-1] == HOST_NAME:
                for values, count in assignment.domains:
                    slots[values[-1]] += count
        return dict(slots)

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
