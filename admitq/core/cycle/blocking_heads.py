"""Which standing heads take part in a cycle.

A standing head was evaluated before. It would be decided over as before unless something that it looks at has
changed. Each return of quota and each edit that may change its outcome ends its waiting, and so makes it a
head of its own. So does a workload that begins to leave, if it holds something that the standing head looks
at: it comes first among the candidates for preemption now, and the head may find other targets (semantics,
Preemption).

What is left are the heads of the cycle: a standing head takes part if one of them may take, reserve or
preempt something of a (flavor, resource) that the standing head looks at, or overtook a standing head that
reserved some. It also takes part if another standing head that takes part may do so.

The first of a StrictFIFO queue takes part in every cycle of its tree (semantics, Cycle). With fair sharing,
the share of a queue depends on all that it uses, so that all standing heads take part if any does.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.cycle.entry import CycleEntry
from admitq.core.entries import ClusterQueueEntry
from admitq.core.instructions import FitMode
from admitq.core.model import QueueingStrategy
from admitq.core.preemption import reserves_capacity
from admitq.core.waiting.pending import PendingEntry
from admitq.core.world import World


def take_blocking_heads(
    world: World, entries: Iterable[CycleEntry]
) -> Iterator[tuple[ClusterQueueEntry, PendingEntry]]:
    """Take the standing heads into a cycle that its heads concern.

    Args:
        world: the state.
        entries: the heads of the cycle, nominated.
    """
    by_tree: dict[Node, list[CycleEntry]] = {}
    for entry in entries:
        by_tree.setdefault(entry.root, []).append(entry)
    for root, heads in by_tree.items():
        if root.wake_index.with_blocking_head:
            yield from world.waiting.heads.take_blocking(_participants(world, root, heads))


def _participants(world: World, root: Node, heads: Iterable[CycleEntry]) -> list[str]:
    blocking = {name: world.cluster_queues[name] for name in sorted(root.wake_index.with_blocking_head)}
    changed = set(chain.from_iterable(map(_pairs_changed_by, heads)))
    overtaken = (entry for entry in world.waiting.heads.overtaken if entry.node.root is root)
    changed = changed.union(*map(_pairs_of, overtaken))
    if world.settings.fair_sharing is not None:
        return list(blocking) if changed else [name for name, entry in blocking.items() if _is_strict(entry)]
    participants: dict[str, None] = {}
    others = dict(blocking)
    while concerned := [
        name for name, entry in others.items() if _is_strict(entry) or _looks_at(entry, changed)
    ]:
        for name in concerned:
            participants[name] = None
            changed |= _pairs_of(others.pop(name))
    return list(participants)


def _is_strict(entry: ClusterQueueEntry) -> bool:
    return entry.spec.queueing_strategy is QueueingStrategy.STRICT_FIFO


def _pairs_of(entry: ClusterQueueEntry) -> set[FlavorResource]:
    """Return what the heads of a ClusterQueue look at."""
    return set(entry.node.cells)


def _looks_at(entry: ClusterQueueEntry, changed: set[FlavorResource]) -> bool:
    return not changed.isdisjoint(entry.node.cells)


def _pairs_changed_by(entry: CycleEntry) -> Iterator[FlavorResource]:
    """Yield what a nominated head may take, reserve or preempt."""
    assignment = entry.assignment
    if (
        assignment is None
        or entry.refusal is not None
        or not (
            assignment.mode is FitMode.FIT or entry.victims or reserves_capacity(entry.queue.spec.preemption)
        )
    ):
        return
    yield from entry.node.cells
    for victim in entry.victims:
        assert victim.entry.held is not None, "a victim holds quota"  # noqa: S101 narrows the type
        yield from (pair for pair, _ in victim.entry.held.usage)
