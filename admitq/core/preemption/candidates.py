"""Candidates for preemption, and their order within one ClusterQueue.

The order (semantics, Preemption):

1. workloads that are leaving already, because preempting them costs nothing;
2. with usage-based admission, workloads of the LocalQueue with more past usage;
3. lower priority, then more recent reservation, then uid.

Only the criteria of 3 compare the candidates of different ClusterQueues. A search skips candidates that an
attempt may not take.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Reservation, Usage
from admitq.core.model import ObjectKey, PreemptionPolicy, Workload
from admitq.core.preemption.policies import ABOVE_ALL, equals_must_be_newer, highest_priority
from admitq.core.quota import Cell
from admitq.core.quota_holders import PreemptionOrder
from admitq.core.topology.topologies import Topologies
from admitq.core.world import World


class Victim(NamedTuple):
    """A workload to preempt, and the reason."""

    entry: WorkloadEntry
    reason: PreemptionReason


class Preemptor(NamedTuple):
    """A workload that does not fit, and the ClusterQueue in which it waits."""

    queue: ClusterQueueEntry
    workload: Workload


class Stage(IntEnum):
    """The two stages of a search: first it takes candidates that are leaving already, then the others."""

    LEAVING = 0
    STAYING = 1


STAGES: Final = (Stage.LEAVING, Stage.STAYING)


class ExcludedWorkloads:
    """Keys of workloads that are not candidates: all keys that several containers have at present."""

    __slots__ = ("_containers",)

    def __init__(self, *containers: Container[ObjectKey]) -> None:
        self._containers = containers

    def __contains__(self, key: ObjectKey) -> bool:
        """Whether the workload is not a candidate."""
        for container in self._containers:  # noqa: SIM110 runs for each candidate: a generator costs more
            if key in container:
                return True
        return False


class Candidate:
    """A workload that a search may remove from the tree, and restore exactly.

    ``reason`` is that for the preemptor's own ClusterQueue. A search sets it for other ClusterQueues.
    """

    __slots__ = ("_places", "_topologies", "entry", "node", "order", "reason", "usage")

    def __init__(
        self,
        order: PreemptionOrder,
        entry: WorkloadEntry,
        held: Reservation,
        node: Node,
        topologies: Topologies,
    ) -> None:
        self.order = order
        self.entry = entry
        self.usage = held.usage
        self.node = node
        self._places = held.places
        self._topologies = topologies
        self.reason = PreemptionReason.IN_CLUSTER_QUEUE

    def remove(self) -> None:
        """Remove the usage of the workload from the tree."""
        cells = self.node.cells
        for pair, amount in self.usage:
            quota.add_usage(cells[pair], -amount)
        if self._places:
            self._topologies.release(self._places)

    def restore(self) -> None:
        """Undo ``remove``."""
        cells = self.node.cells
        for pair, amount in self.usage:
            quota.add_usage(cells[pair], amount)
        if self._places:
            self._topologies.hold(self._places)


class SingleCandidates:
    """Removes and restores ranges of a list of candidates, one candidate after another."""

    def __init__(self, candidates: list[Candidate]) -> None:
        self._candidates = candidates

    def remove(self, start: int, end: int) -> None:
        """Remove the candidates from one index to another."""
        for candidate in self._candidates[start:end]:
            candidate.remove()

    def restore(self, start: int, end: int) -> None:
        """Restore the candidates from one index to another."""
        for candidate in self._candidates[start:end]:
            candidate.restore()


def is_borrowing(cells: Iterable[Cell]) -> bool:
    """Whether a node uses more than its quota in one of these cells."""
    for cell in cells:  # noqa: SIM110 this runs for every candidate: a generator costs more
        if cell.usage > cell.subtree_quota:
            return True
    return False


def contested_cells(node: Node, contested: Iterable[FlavorResource]) -> tuple[Cell, ...]:
    """Return the node's cells of the contested (flavor, resource) pairs."""
    cells = node.cells
    return tuple([cells[pair] for pair in contested if pair in cells])


def uses_any(usage: Usage, pairs: Container[FlavorResource]) -> bool:
    """Whether a usage contains one of these (flavor, resource) pairs."""
    for pair, _ in usage:  # noqa: SIM110 this runs for each workload: a generator costs more
        if pair in pairs:
            return True
    return False


@dataclass(frozen=True, slots=True)
class TargetSearch:
    """The input of a search: the preemptor, its usage, and the contested pairs of this usage.

    ``excluded`` are workloads that are not candidates. Their usage is removed from the tree already, or they
    were admitted in this cycle.
    """

    world: World
    preemptor: Preemptor
    usage: Mapping[FlavorResource, int]
    contested: Collection[FlavorResource]
    excluded: Container[ObjectKey]
    has_room: Callable[[], object] | None = None
    """Returns a false value while the preemptor's pods have no place in a topology. None: they need none."""
    _own: dict[Stage, tuple[Candidate, ...]] = field(
        default_factory=dict[Stage, tuple[Candidate, ...]], init=False
    )
    """The candidates of the preemptor's own ClusterQueue, by stage. They do not change during a search."""

    def cells(self, node: Node) -> tuple[Cell, ...]:
        """Return the node's contested cells."""
        return contested_cells(node, self.contested)

    def in_stage(
        self,
        stage: Stage,
        queue: ClusterQueueEntry,
        policy: PreemptionPolicy,
        priority: int = ABOVE_ALL,
        first_key: PreemptionOrder | None = None,
    ) -> Iterator[Candidate]:
        """Return candidates of a ClusterQueue at one stage, in order.

        Args:
            stage: the stage of the search.
            queue: the ClusterQueue.
            policy: the preemption policy to apply.
            priority: the highest priority of candidates.
            first_key: a sort key before which there is no candidate.
        """
        quota_holders = self.world.quota_holders
        holders = quota_holders.leaving if stage is Stage.LEAVING else quota_holders.staying
        highest = min(priority, highest_priority(policy, self.preemptor.workload.priority))
        eligible = self._eligible(holders(queue.spec.name, first_key), policy, highest, queue.node)
        past_usage_of = self.world.local_queue_usage
        if past_usage_of is None or not queue.spec.usage_based_admission:
            return eligible
        return _by_usage(eligible, past_usage_of)

    def own_in_stage(self, stage: Stage) -> tuple[Candidate, ...]:
        """Return all candidates of the preemptor's own ClusterQueue at one stage, in order."""
        own = self._own.get(stage)
        if own is None:
            queue = self.preemptor.queue
            policy = queue.spec.preemption.within_cluster_queue
            own = self._own[stage] = tuple(self.in_stage(stage, queue, policy))
        return own

    def candidates(self, queue: ClusterQueueEntry, policy: PreemptionPolicy) -> Iterator[Candidate]:
        """Return all candidates of a ClusterQueue, in order."""
        return chain.from_iterable(self.in_stage(stage, queue, policy) for stage in STAGES)

    def _eligible(
        self,
        quota_holders: Iterator[tuple[PreemptionOrder, WorkloadEntry]],
        policy: PreemptionPolicy,
        highest: int,
        node: Node,
    ) -> Iterator[Candidate]:
        preemptor, contested, excluded = self.preemptor.workload, self.contested, self.excluded
        topologies = self.world.topologies
        newer_at = preemptor.priority if equals_must_be_newer(policy) else None
        for order, entry in quota_holders:
            if order.priority > highest:
                return
            workload, held = entry.workload, entry.held
            if held is None or workload.key in excluded:
                continue
            if order.priority == newer_at and workload.queued_at <= preemptor.queued_at:
                continue
            if uses_any(held.usage, contested):
                yield Candidate(order, entry, held, node, topologies)


def _by_usage(
    candidates: Iterator[Candidate], past_usage_of: Callable[[ObjectKey], Any]
) -> Iterator[Candidate]:
    """Return candidates of LocalQueues with more past usage first, otherwise in the given order."""
    ordered = list(candidates)
    queues = {candidate.entry.local_queue for candidate in ordered}
    use_of = {queue: past_usage_of(queue) for queue in queues}
    ordered.sort(key=lambda candidate: use_of[candidate.entry.local_queue], reverse=True)
    return iter(ordered)
