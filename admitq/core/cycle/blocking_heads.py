"""Find the blocking heads that join a cycle.

A blocking head was evaluated before, and would get the same result again unless a (flavor, resource) that it
needs has changed. Some changes end its waiting: a return of quota, and an edit that may change its result.
The next cycle then evaluates it in any case. Another such change is a workload that begins to leave, if it
holds a (flavor, resource) that the blocking head needs. Such a workload comes first among the candidates for
preemption, and the head may find other targets (semantics, Preemption).

Other changes come from the heads of the cycle. A blocking head joins the cycle if one of these heads may
take, reserve or preempt a (flavor, resource) that the blocking head needs. It also joins if a head of the
cycle overtook another blocking head that reserved such a pair. The same holds if another blocking head joins
that may take one.

The blocking head of a StrictFIFO queue joins every cycle of its tree (semantics, Cycle). With fair sharing,
the share of a queue depends on all of its usage. If a head of the cycle may take, reserve or preempt
anything, all blocking heads of its tree join.
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
    """Take the blocking heads that join a cycle out of their lanes, and yield them.

    Args:
        world: the state.
        entries: the heads of the cycle, after their nomination.
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
        name for name, entry in others.items() if _is_strict(entry) or _may_need_any(entry, changed)
    ]:
        for name in concerned:
            participants[name] = None
            changed |= _pairs_of(others.pop(name))
    return list(participants)


def _is_strict(entry: ClusterQueueEntry) -> bool:
    return entry.spec.queueing_strategy is QueueingStrategy.STRICT_FIFO


def _pairs_of(entry: ClusterQueueEntry) -> set[FlavorResource]:
    """Return the (flavor, resource) pairs that the heads of a ClusterQueue may need."""
    return set(entry.node.cells)


def _may_need_any(entry: ClusterQueueEntry, changed: set[FlavorResource]) -> bool:
    return not changed.isdisjoint(entry.node.cells)


def _pairs_changed_by(entry: CycleEntry) -> Iterator[FlavorResource]:
    """Yield the (flavor, resource) pairs that a nominated head may take, reserve or preempt."""
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
