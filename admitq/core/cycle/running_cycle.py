"""The running cycle: the order of its entries, and the overlays of the cohort trees."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.cycle.entry import CycleEntry
from admitq.core.fair_sharing import Tournament
from admitq.core.model import Instant, ObjectKey
from admitq.core.ordering import CycleOrder, cycle_order
from admitq.core.overlay import Overlay
from admitq.core.preemption import Victim, is_borrowing
from admitq.core.refusals import QuotaTakenInCycle, Refusal
from admitq.core.settings import Gates
from admitq.core.waiting.wait_states import Blocking
from admitq.core.world import World


def _find_entries_behind(entries: Sequence[CycleEntry]) -> dict[CycleEntry, list[CycleEntry]]:
    """Return, for each preemptor, the entries that were preempted for it. They are processed after it.

    This is so while the preemptor may get quota, in this cycle or with other flavors in a later one. The
    order has no circle: a target held quota when it was preempted, so it became pending later than its
    preemptor.
    """
    preemptors = [
        entry
        for entry in entries
        if entry.pending.preempted_uids and (entry.refusal is None or entry.scan is not None)
    ]
    if not preemptors:
        return {}
    by_uid = {entry.uid: (index, entry) for index, entry in enumerate(entries)}
    behind: dict[CycleEntry, list[CycleEntry]] = {}
    for entry in preemptors:
        entries_behind = sorted(by_uid[uid] for uid in entry.pending.preempted_uids if uid in by_uid)
        behind[entry] = [
            entry_behind for _, entry_behind in entries_behind if entry_behind.root is entry.root
        ]
    return behind


def _sort_key_of(entry: CycleEntry, gates: Gates) -> CycleOrder:
    level = 0 if entry.assignment is None else entry.assignment.borrow_level
    return cycle_order(entry.pending.workload, level, gates, preemptor=entry.is_preemptor)


class _EntriesInOrder:
    """The entries in the order of cycles without fair sharing, in a list with the last entry first."""

    def __init__(self, entries: Iterable[CycleEntry], gates: Gates) -> None:
        self._gates = gates
        self._entries = [(_sort_key_of(entry, gates), entry) for entry in entries]
        self._entries.sort(key=_SORT_KEY, reverse=True)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: CycleEntry) -> None:
        self._entries.append((_sort_key_of(entry, self._gates), entry))
        self._entries.sort(key=_SORT_KEY, reverse=True)

    def pop(self) -> CycleEntry:
        return self._entries.pop()[1]


_SORT_KEY: Final = itemgetter(0)


@dataclass(slots=True, eq=False)
class Cycle:
    """The running cycle. ``overlays`` has the overlay of each cohort tree, by root."""

    world: World
    now: Instant
    tournament: Tournament[CycleEntry] | None = None
    overlays: dict[Node, Overlay] = field(default_factory=dict[Node, Overlay])
    lost: list[CycleEntry] = field(default_factory=list[CycleEntry])
    """Heads that lost to other heads of this cycle."""
    blocking: list[tuple[CycleEntry, Blocking]] = field(default_factory=list[tuple[CycleEntry, Blocking]])
    """Heads that become blocking heads unless the cycle changed what refused them, and their wait states."""
    out_of_flavors: list[tuple[CycleEntry, Refusal]] = field(default_factory=list[tuple[CycleEntry, Refusal]])
    """Heads that their last flavors refused, and that lost earlier flavors to other heads."""
    parked: list[CycleEntry] = field(default_factory=list[CycleEntry])
    """Heads of parked lanes, and of StrictFIFO queues, with needs that are known at the end of the cycle."""
    reserved: dict[ObjectKey, None] = field(default_factory=dict[ObjectKey, None])
    """Workloads that reserved quota in this cycle. They are not candidates for preemption in it."""
    leaving: dict[Node, dict[FlavorResource, set[str]]] = field(
        default_factory=dict[Node, dict[FlavorResource, set[str]]]
    )
    """By root, the (flavor, resource) pairs of preempted workloads. For each pair, the ClusterQueues with a
    head that preempted such workloads and would find the same targets again."""
    progressed: dict[Node, None] = field(default_factory=dict[Node, None])
    """Roots of trees in which a head made progress."""

    def overlay(self, entry: CycleEntry) -> Overlay:
        """Return the overlay of the tree of an entry."""
        overlay = self.overlays.get(entry.root)
        if overlay is None:
            overlay = self.overlays[entry.root] = Overlay(self.world, entry.root, self.reserved)
        return overlay

    def in_order(self, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
        """Yield the entries in the order in which they are processed."""
        gates = self.world.settings.gates
        if len(entries) == 1:
            yield from entries
            return
        if self.world.settings.fair_sharing is not None:
            # Heads that are refused for other reasons than quota do not compare shares: they would come
            # before a head of the same cohort that borrows.
            yield from [entry for entry in entries if entry.assignment is None]
            entries = [entry for entry in entries if entry.assignment is not None]
        entries_behind = _find_entries_behind(entries)
        preemptors_ahead = Counter(entry for behind in entries_behind.values() for entry in behind)
        first = [entry for entry in entries if entry not in preemptors_ahead] if preemptors_ahead else entries
        if self.world.settings.fair_sharing is None:
            remaining = _EntriesInOrder(first, gates)
        else:
            remaining = self.tournament = Tournament(first, gates)
        while len(remaining):
            entry = remaining.pop()
            yield entry
            behind = entries_behind.get(entry)
            if behind is None:
                continue
            if entry.refusal is not None:
                # The preemptor tries other flavors next. Its targets would take back the quota that they
                # left.
                for target in behind:
                    target.refusal = target.refusal or QuotaTakenInCycle()
            preemptors_ahead.subtract(behind)
            for target in [target for target in behind if not preemptors_ahead[target]]:
                remaining.add(target)

    def count_progress(self, entry: CycleEntry) -> None:
        """Record that an entry made progress: it reserved, preempted, or gave up reserved capacity."""
        self.world.cohort_trees.count_progress(entry.root)
        self.progressed[entry.root] = None

    def note_leaving(self, entry: CycleEntry, victims: Iterable[Victim]) -> None:
        """Record the (flavor, resource) pairs of workloads that will be preempted for an entry.

        Only workloads of a borrowing ClusterQueue count: heads of other ClusterQueues preempt no others. The
        entry itself would find the same targets again, because workloads that are leaving come first. With
        fair sharing it may find more targets, because its targets change the shares. The caller must not have
        reserved the capacity of the entry yet: this capacity would count as usage.
        """
        is_fair = self.world.settings.fair_sharing is not None
        for victim in victims:
            held = victim.entry.held
            assert held is not None, "a victim holds quota"  # noqa: S101 narrows the type
            if is_fair or is_borrowing(self.world.cluster_queues[held.cluster_queue].node.cells.values()):
                leaving = self.leaving.setdefault(entry.root, {})
                for pair, _ in held.usage:
                    satisfied = leaving.setdefault(pair, set())
                    if not is_fair:
                        satisfied.add(entry.queue.spec.name)

    def usage_changed(self, entry: CycleEntry) -> None:
        """Report to the tournament that usage at the node of an entry changed, and so shares did."""
        if self.tournament is not None:
            self.tournament.usage_changed(entry.node)

    def reserve_capacity(self, entry: CycleEntry, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Reserve capacity for an entry that gets nothing yet, so that later entries do not get it."""
        amounts = [(pair, amount) for pair, amount in usage if amount]
        # A head without targets reserves no places: if heads of other cohort trees lost them, nothing would
        # tell these heads when it gives them up.
        places = entry.places if entry.victims or entry.fits_after_others else ()
        if amounts or places:
            self.overlay(entry).reserve_capacity(entry.node, amounts, places)
            entry.has_reserved_capacity = True
            self.usage_changed(entry)
