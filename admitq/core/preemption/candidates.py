"""Who comes into question as a victim, and in which order within one ClusterQueue.

The order (semantics, Preemption): who leaves already, because that costs nothing; then, in a ClusterQueue
whose LocalQueues take turns by what they used, those of the LocalQueue that used more; then lower priority,
more recently reserved, uid. Between ClusterQueues their next candidates are compared by the last three.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.holders import preemption_order
from admitq.core.instructions import PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.model import ObjectKey, Workload
from admitq.core.preemption.policies import NEVER, ends_at_higher_priority, may_preempt
from admitq.core.quota import Cell
from admitq.core.world import ClusterQueueEntry, WorkloadEntry, World


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

    Whoever finds that it may be taken says for what reason.
    """

    __slots__ = ("_cells", "entry", "holds", "order", "reason")

    def __init__(self, entry: WorkloadEntry, holds: Usage, node: Node) -> None:
        self.entry = entry
        self.holds = holds
        self.reason = PreemptionReason.IN_CLUSTER_QUEUE
        self.order = preemption_order(entry)
        self._cells = [(node.cells[pair], amount) for pair, amount in holds]

    def take(self) -> None:
        """Take what it holds off the tree."""
        for cell, amount in self._cells:
            quota.remove_usage(cell, amount)

    def put_back(self) -> None:
        """Undo ``take``."""
        for cell, amount in self._cells:
            quota.add_usage(cell, amount)


def in_debt(cells: Iterable[Cell]) -> bool:
    """Whether a node uses more than its quota, in one of these of its cells at least."""
    return any(cell.usage > cell.subtree for cell in cells)


@dataclass(frozen=True, slots=True)
class Search:
    """What a search is about: room for a workload's usage, where some (flavor, resource) are contested.

    ``gone`` are workloads that somebody has taken off the tree already.
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

    def leaving(self, queue: ClusterQueueEntry, policy: str) -> Iterator[Candidate]:
        """Candidates of a ClusterQueue who leave already, in order."""
        return self._in_order(queue, policy, self.world.holders.leaving)

    def staying(self, queue: ClusterQueueEntry, policy: str) -> Iterator[Candidate]:
        """Candidates of a ClusterQueue who do not leave yet, in order."""
        return self._in_order(queue, policy, self.world.holders.staying)

    def _in_order(
        self,
        queue: ClusterQueueEntry,
        policy: str,
        holders: Callable[[str], Iterator[WorkloadEntry]],
    ) -> Iterator[Candidate]:
        if policy == NEVER:
            return iter(())
        eligible = self._eligible(holders(queue.spec.name), policy, queue.node)
        used = self.world.local_queue_usage
        if used is None or not queue.spec.usage_based_admission:
            return eligible
        return _by_usage(eligible, used)

    def _eligible(self, entries: Iterator[WorkloadEntry], policy: str, node: Node) -> Iterator[Candidate]:
        preemptor, contested, gone = self.preemptor.workload, self.contested, self.gone
        ends = ends_at_higher_priority(policy)
        for entry in entries:
            workload = entry.workload
            if ends and workload.priority > preemptor.priority:
                return
            holds = () if entry.held is None else entry.held.usage
            if (
                may_preempt(policy, preemptor, workload)
                and any(pair in contested for pair, _ in holds)
                and workload.key not in gone
            ):
                yield Candidate(entry, holds, node)


def _by_usage(candidates: Iterator[Candidate], used: Callable[[ObjectKey], Any]) -> Iterator[Candidate]:
    """Those of LocalQueues that used more first, otherwise in the order in which they come."""
    ordered = list(candidates)
    queues = {candidate.entry.local_queue for candidate in ordered}
    of = {queue: used(queue) for queue in queues}
    ordered.sort(key=lambda candidate: of[candidate.entry.local_queue], reverse=True)
    return iter(ordered)
