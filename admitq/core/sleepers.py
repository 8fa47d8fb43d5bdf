"""Who waits in a cohort tree for quota, and whether what became free may let somebody in.

Whoever is parked tells what it *needs*: so much of one (flavor, resource), available at its ClusterQueue.
What is available there is the least of several bounds: one for each node on the path that has a borrowing
limit, and one for the root (see ``quota.available``). A need is kept at the lowest node whose bound does not
suffice, in a heap by what that bound is short of. What is given back raises bounds on its own path to the
root alone: the tops of the heaps there tell whether anybody may be let in, however many wait.

Who cannot tell what it needs, because more than quota decides over it, is *restless*: whatever is given back
concerns it.
"""

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from admitq.core import quota
from admitq.core.quota import Cell

Need = tuple[Cell, int]
"""An amount that has to be available at a ClusterQueue's cell before another attempt makes sense."""


def _slack(cell: Cell) -> int | None:
    """What the node lets through from above; None if it sets no bound."""
    if cell.parent is None:
        return cell.subtree - cell.usage
    limit = cell.borrowing_limit
    return None if limit is None else cell.lent - cell.spilled + limit


def _what_binds(need: Need) -> tuple[Cell, int]:
    """The lowest node whose bound does not suffice, and the least slack there with which it may."""
    cell, amount = need
    kept = local = 0
    while cell.parent is not None:
        kept += cell.local_available
        local += cell.local
        slack = _slack(cell)
        if slack is not None and kept + slack < amount:
            break
        cell = cell.parent
    # Local parts below may come free as well: more than all of them cannot.
    return cell, amount - local


@dataclass(slots=True, eq=False)
class Sleepers:
    """Those who wait in one tree. They fall asleep one by one, and all are woken at once.

    Who falls asleep is restless at first, for a *cause*; it becomes calm when the cycle is over and it tells
    what it needs.
    """

    names: dict[str, None] = field(default_factory=dict[str, None])
    """ClusterQueues in which somebody waits."""
    restless: dict[Hashable, str] = field(default_factory=dict[Hashable, str])
    """What keeps which ClusterQueue restless."""
    hopeful: dict[str, None] = field(default_factory=dict[str, None])
    """ClusterQueues in which somebody waits who was beaten over a flavor. Once that is kept for nobody any
    more it may be let in, although nothing is given back."""
    standing: dict[str, None] = field(default_factory=dict[str, None])
    """ClusterQueues that are blocked by their first workload, which takes part in every cycle of the tree."""
    needs: dict[Need, None] = field(default_factory=dict[Need, None])
    _heaps: dict[Cell, list[tuple[int, int, Need]]] = field(
        default_factory=dict[Cell, list[tuple[int, int, Need]]]
    )
    _noted: int = 0

    def add(self, name: str, cause: Hashable) -> None:
        """Note that somebody waits in a ClusterQueue, whom everything concerns."""
        self.names[name] = None
        self.restless[cause] = name

    def calm(self, cause: Hashable, needs: Iterable[Need]) -> None:
        """Note what somebody needs, any of these, unless it was woken since it fell asleep."""
        if self.restless.pop(cause, None) is not None:
            self.need(needs)

    def need(self, needs: Iterable[Need]) -> None:
        """Note what somebody needs."""
        for need in needs:
            if need not in self.needs:
                self.needs[need] = None
                self._keep(need)

    def clear(self) -> list[str]:
        """Remove all entries except ``standing``; return the ClusterQueues that had one, sorted."""
        names = sorted(self.names)
        self.names.clear()
        self.restless.clear()
        self.hopeful.clear()
        self.needs.clear()
        self._heaps.clear()
        return names

    def move(self, names: Iterable[str], other: "Sleepers") -> None:
        """Have those who wait in some ClusterQueues wait in another tree, where anything may concern them."""
        for name in names:
            if name in self.names:
                del self.names[name]
                self.hopeful.pop(name, None)
                other.add(name, name)
                if name in self.standing:
                    del self.standing[name]
                    other.standing[name] = None

    def concerned_by(self, cell: Cell) -> bool:
        """Whether somebody may be let in by what was given back at this cell."""
        if self.restless:
            return True
        at: Cell | None = cell
        while at is not None:
            heap = self._heaps.get(at)
            if heap and self._may_let_in(at, heap):
                return True
            at = at.parent
        return False

    def _keep(self, need: Need) -> None:
        cell, short_of = _what_binds(need)
        self._noted += 1
        heapq.heappush(self._heaps.setdefault(cell, []), (short_of, self._noted, need))

    def _may_let_in(self, cell: Cell, heap: list[tuple[int, int, Need]]) -> bool:
        slack = _slack(cell)
        moved: list[Need] = []
        while heap and slack is not None and heap[0][0] <= slack:
            need = heap[0][2]
            if quota.available(need[0]) >= need[1]:
                return True
            heapq.heappop(heap)
            moved.append(need)
        for need in moved:
            # Something else binds it now, or a local part that is in use.
            self._keep(need)
        return False
