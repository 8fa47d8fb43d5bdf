"""Candidates for preemption, and their order within one ClusterQueue.

The order (semantics, Preemption): workloads that are leaving already, because preempting them costs nothing;
then, in a ClusterQueue with usage-based admission, workloads of the LocalQueue that used more; then lower
priority, more recently reserved, uid. Between ClusterQueues, the next candidates are compared by the last
three only. A candidate that an attempt may not take does not hold up the candidates behind it.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey, PreemptionPolicy, Workload
from admitq.core.preemption.policies import ABOVE_ALL, equals_must_be_newer, highest_priority
from admitq.core.quota import Cell
from admitq.core.quota_holders import PreemptionOrder
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
    """Whether candidates are leaving already or are running; the first come first."""

    LEAVING = 0
    STAYING = 1


STAGES: Final = (Stage.LEAVING, Stage.STAYING)


class ExcludedWorkloads:
    """Workloads that are no candidates: all keys of several containers, as they are when asked."""

    __slots__ = ("_containers",)

    def __init__(self, *containers: Container[ObjectKey]) -> None:
        self._containers = containers

    def __contains__(self, key: ObjectKey) -> bool:
        """Whether the workload is no candidate."""
        for container in self._containers:  # noqa: SIM110 asked for each candidate: a generator costs more
            if key in container:
                return True
        return False


class Candidate:
    """A workload that a search may remove from the tree, and restore exactly.

    The reason holds for the preemptor's own ClusterQueue; a search changes it for all others.
    """

    __slots__ = ("entry", "node", "order", "reason", "usage")

    def __init__(self, order: PreemptionOrder, entry: WorkloadEntry, usage: Usage, node: Node) -> None:
        self.order = order
        self.entry = entry
        self.usage = usage
        self.node = node
        self.reason = PreemptionReason.IN_CLUSTER_QUEUE

    def remove(self) -> None:
        """Remove its usage from the tree."""
        cells = self.node.cells
        for pair, amount in self.usage:
            quota.add_usage(cells[pair], -amount)

    def restore(self) -> None:
        """Undo ``remove``."""
        cells = self.node.cells
        for pair, amount in self.usage:
            quota.add_usage(cells[pair], amount)


def is_borrowing(cells: Iterable[Cell]) -> bool:
    """Whether a node uses more than its quota, in at least one of these of its cells."""
    for cell in cells:  # noqa: SIM110 asked at every turn of a search: a generator costs more
        if cell.usage > cell.subtree:
            return True
    return False


def contested_cells(node: Node, contested: Iterable[FlavorResource]) -> tuple[Cell, ...]:
    """Return the node's cells of the contested (flavor, resource) pairs."""
    cells = node.cells
    return tuple([cells[pair] for pair in contested if pair in cells])


def uses_any(usage: Usage, pairs: Container[FlavorResource]) -> bool:
    """Whether a usage contains one of these (flavor, resource) pairs."""
    for pair, _ in usage:  # noqa: SIM110 asked for each workload: a generator costs more
        if pair in pairs:
            return True
    return False


@dataclass(frozen=True, slots=True)
class TargetSearch:
    """What a search is for: capacity for the preemptor's usage, of which some pairs are contested.

    ``excluded`` are workloads that are no candidates. Their usage is off the tree already, or they were
    admitted in this cycle.
    """

    world: World
    preemptor: Preemptor
    usage: Mapping[FlavorResource, int]
    contested: Collection[FlavorResource]
    excluded: Container[ObjectKey]

    def cells(self, node: Node) -> tuple[Cell, ...]:
        """Return the node's contested cells."""
        return contested_cells(node, self.contested)

    def in_stage(
        self,
        stage: Stage,
        queue: ClusterQueueEntry,
        policy: PreemptionPolicy,
        priority: int = ABOVE_ALL,
        since: PreemptionOrder | None = None,
    ) -> Iterator[Candidate]:
        """Return candidates of a ClusterQueue at one stage, in order.

        Args:
            stage: leaving or staying.
            queue: the ClusterQueue.
            policy: the preemption policy to apply.
            priority: the highest priority of candidates.
            since: a place in the order before which there is no candidate.
        """
        quota_holders = self.world.quota_holders
        holders = quota_holders.leaving if stage is Stage.LEAVING else quota_holders.staying
        highest = min(priority, highest_priority(policy, self.preemptor.workload.priority))
        eligible = self._eligible(holders(queue.spec.name, since), policy, highest, queue.node)
        past_use_of = self.world.local_queue_usage
        if past_use_of is None or not queue.spec.usage_based_admission:
            return eligible
        return _by_usage(eligible, past_use_of)

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
                yield Candidate(order, entry, held.usage, node)


def _by_usage(
    candidates: Iterator[Candidate], past_use_of: Callable[[ObjectKey], Any]
) -> Iterator[Candidate]:
    """Return candidates of LocalQueues that used more first, otherwise in the given order."""
    ordered = list(candidates)
    queues = {candidate.entry.local_queue for candidate in ordered}
    use_of = {queue: past_use_of(queue) for queue in queues}
    ordered.sort(key=lambda candidate: use_of[candidate.entry.local_queue], reverse=True)
    return iter(ordered)
