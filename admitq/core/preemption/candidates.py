"""Who comes into question as a victim, and in which order within one ClusterQueue.

The order (semantics, Preemption): who leaves already, because that costs nothing; then, in a ClusterQueue
whose LocalQueues take turns by what they used, those of the LocalQueue that used more; then lower priority,
more recently reserved, uid. Between ClusterQueues their next candidates are compared by the last three;
whoever may not be taken in an attempt stands before nobody in it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.holders import PreemptionOrder
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey, Workload
from admitq.core.preemption.policies import ABOVE_ALL, equals_must_be_newer, highest_priority
from admitq.core.quota import Cell
from admitq.core.world import World


class Victim(NamedTuple):
    """A workload that is to be preempted, and for what reason."""

    entry: WorkloadEntry
    reason: PreemptionReason


class Preemptor(NamedTuple):
    """A workload that does not fit, and the ClusterQueue in which it waits."""

    queue: ClusterQueueEntry
    workload: Workload


class Candidate:
    """A workload that may be taken off the live tree for a while, and put back exactly.

    Whoever takes it for another reason than being in the preemptor's ClusterQueue says so.
    """

    __slots__ = ("entry", "holds", "node", "order", "reason")

    def __init__(self, order: PreemptionOrder, entry: WorkloadEntry, holds: Usage, node: Node) -> None:
        self.order = order
        self.entry = entry
        self.holds = holds
        self.node = node
        self.reason = PreemptionReason.IN_CLUSTER_QUEUE

    def take(self) -> None:
        """Take what it holds off the tree."""
        cells = self.node.cells
        for pair, amount in self.holds:
            quota.add_usage(cells[pair], -amount)

    def put_back(self) -> None:
        """Undo ``take``."""
        cells = self.node.cells
        for pair, amount in self.holds:
            quota.add_usage(cells[pair], amount)


def in_debt(cells: Iterable[Cell]) -> bool:
    """Whether a node uses more than its quota, in one of these of its cells at least."""
    return any(cell.usage > cell.subtree for cell in cells)


@dataclass(frozen=True, slots=True)
class Search:
    """What a search is about: room for a workload's usage, where some (flavor, resource) are contested.

    ``gone`` are workloads that are no candidates: somebody has taken them off the tree already, or the cycle
    that asks let them in.
    """

    world: World
    preemptor: Preemptor
    usage: Mapping[FlavorResource, int]
    contested: Collection[FlavorResource]
    gone: Collection[ObjectKey]

    def active(self, node: Node) -> ClusterQueueEntry | None:
        """The ClusterQueue of a node, if it takes part in cycles."""
        queue = self.world.cluster_queues[node.name]
        return queue if queue.is_active else None

    def cells(self, node: Node) -> tuple[Cell, ...]:
        """The node's cells of what is contested."""
        return tuple([node.cells[pair] for pair in self.contested if pair in node.cells])

    def leaving(
        self, queue: ClusterQueueEntry, policy: str, priority: int = ABOVE_ALL
    ) -> Iterator[Candidate]:
        """Candidates of a ClusterQueue who leave already, in order, up to a priority."""
        return self._in_order(queue, policy, priority, self.world.holders.leaving)

    def staying(
        self, queue: ClusterQueueEntry, policy: str, priority: int = ABOVE_ALL
    ) -> Iterator[Candidate]:
        """Candidates of a ClusterQueue who do not leave yet, in order, up to a priority."""
        return self._in_order(queue, policy, priority, self.world.holders.staying)

    def candidates(self, queue: ClusterQueueEntry, policy: str) -> Iterator[Candidate]:
        """All candidates of a ClusterQueue, in order."""
        return chain(self.leaving(queue, policy), self.staying(queue, policy))

    def _in_order(
        self,
        queue: ClusterQueueEntry,
        policy: str,
        priority: int,
        holders: Callable[[str], Iterator[tuple[PreemptionOrder, WorkloadEntry]]],
    ) -> Iterator[Candidate]:
        highest = min(priority, highest_priority(policy, self.preemptor.workload.priority))
        eligible = self._eligible(holders(queue.spec.name), policy, highest, queue.node)
        used = self.world.local_queue_usage
        if used is None or not queue.spec.usage_based_admission:
            return eligible
        return _by_usage(eligible, used)

    def _eligible(
        self,
        holders: Iterator[tuple[PreemptionOrder, WorkloadEntry]],
        policy: str,
        highest: int,
        node: Node,
    ) -> Iterator[Candidate]:
        preemptor, contested, gone = self.preemptor.workload, self.contested, self.gone
        newer_at = preemptor.priority if equals_must_be_newer(policy) else None
        for order, entry in holders:
            if order.priority > highest:
                return
            workload, held = entry.workload, entry.held
            if held is None or (gone and workload.key in gone):
                continue
            if order.priority == newer_at and workload.queued_at <= preemptor.queued_at:
                continue
            holds = held.usage
            for pair, _ in holds:
                if pair in contested:
                    yield Candidate(order, entry, holds, node)
                    break


def _by_usage(candidates: Iterator[Candidate], used: Callable[[ObjectKey], Any]) -> Iterator[Candidate]:
    """Those of LocalQueues that used more first, otherwise in the order in which they come."""
    ordered = list(candidates)
    queues = {candidate.entry.local_queue for candidate in ordered}
    of = {queue: used(queue) for queue in queues}
    ordered.sort(key=lambda candidate: of[candidate.entry.local_queue], reverse=True)
    return iter(ordered)
