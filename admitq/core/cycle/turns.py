"""A cycle that runs: whose turn it is, and what is supposed of the cohort trees meanwhile."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.cycle.entry import Entry
from admitq.core.fair_sharing import Tournament
from admitq.core.model import (
    Instant,
)
from admitq.core.ordering import cycle_order
from admitq.core.overlay import Overlay
from admitq.core.refusals import Refusal
from admitq.core.world import World


@dataclass(slots=True, eq=False)
class Cycle:
    """A cycle that runs, and what it supposes of each cohort tree, by root."""

    world: World
    now: Instant
    tournament: Tournament[Entry] | None = None
    overlays: dict[Node, Overlay] = field(default_factory=dict[Node, Overlay])
    beaten: list[Entry] = field(default_factory=list[Entry])
    waiting: list[Entry] = field(default_factory=list[Entry])
    out_of_flavors: list[tuple[Entry, Refusal]] = field(default_factory=list[tuple[Entry, Refusal]])
    """Who found nothing with the last flavors, and was beaten over others."""
    parked: list[Entry] = field(default_factory=list[Entry])
    advanced: dict[Node, None] = field(default_factory=dict[Node, None])
    """Roots of trees in which somebody got somewhere."""

    def overlay(self, entry: Entry) -> Overlay:
        """What is supposed of the entry's tree."""
        found = self.overlays.get(entry.root)
        if found is None:
            found = self.overlays[entry.root] = Overlay(self.world)
        return found

    def turns(self, entries: list[Entry]) -> Iterator[Entry]:
        """The entries, in the order in which they are to be processed."""
        gates = self.world.settings.gates
        if len(entries) == 1:
            yield from entries
            return
        if self.world.settings.fair_sharing is None:
            yield from sorted(
                entries,
                key=lambda entry: cycle_order(
                    entry.workload,
                    0 if entry.assignment is None else entry.assignment.borrow_level,
                    gates,
                    preemptor=entry.is_preemptor,
                ),
            )
            return
        self.tournament = Tournament(entries, gates)
        while len(self.tournament):
            yield self.tournament.pop()

    def got_somewhere(self, entry: Entry) -> None:
        """Note that an entry took quota, had victims told, or gave up what was kept for it."""
        self.world.forest.got_somewhere(entry.root)
        self.advanced[entry.root] = None

    def usage_changed(self, entry: Entry) -> None:
        """Have shares compared anew where the entry's usage counts."""
        if self.tournament is not None:
            self.tournament.usage_changed(entry.node)

    def keep(self, entry: Entry, usage: Iterable[tuple[FlavorResource, int]]) -> None:
        """Leave capacity for an entry that gets nothing yet to those behind it no more, if there is any."""
        amounts = [(pair, amount) for pair, amount in usage if amount]
        if amounts:
            self.overlay(entry).keep(entry.node, amounts)
            entry.keeps = True
            self.usage_changed(entry)
