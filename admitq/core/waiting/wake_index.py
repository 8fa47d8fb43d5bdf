"""The index of one cohort tree: for each kind of change, the ClusterQueues with lanes that wait for it.

Each cohort tree has one ``WakeIndex``, at its root. Each ClusterQueue has one ``TreeRegistration``: a summary
of what its lanes wait for. ``WaitingLanes`` then finds the lanes of the ClusterQueue.

Needs. The amount that is available to a ClusterQueue is the least of several bounds (``quota.available``).
The root has a bound, and so has each node with a borrowing limit on the path to the root. The *slack* of a
node is its bound minus the available local quota of the node itself and of the nodes below it. For each
(flavor, resource), the index has the least need of a ClusterQueue. It is stored at the lowest node with an
insufficient bound, in a heap by the slack that this node must have. A return of quota raises only bounds on
its own path to the root. So the tops of the heaps on this path show which needs may be met, however many
ClusterQueues wait.

A need that the index reports as met is no longer *armed*: the index does not report it again. It is armed
again when a cycle has found no head in the ClusterQueue.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.quota import Cell


def _slack(cell: Cell) -> int | None:
    """Return the slack of a node; None if the node sets no bound."""
    if cell.parent is None:
        return cell.subtree_quota - cell.usage
    limit = cell.borrowing_limit
    return None if limit is None else cell.lent - cell.spilled + limit


def _binding_node(cell: Cell, amount: int) -> tuple[Cell, int]:
    """Return the lowest node with an insufficient bound, and the least slack that may be sufficient."""
    unused_local_quota = local = 0
    while cell.parent is not None:
        unused_local_quota += cell.unused_local_quota
        local += cell.local
        slack = _slack(cell)
        if slack is not None and unused_local_quota + slack < amount:
            break
        cell = cell.parent
    # Local quota below may be returned as well, at most all of it.
    return cell, amount - local


@dataclass(slots=True, eq=False)
class TreeRegistration:
    """What the lanes of one ClusterQueue wait for in its cohort tree."""

    name: str
    cells: Mapping[FlavorResource, Cell]
    """The quota cells of the ClusterQueue."""
    index: "WakeIndex"
    has_waiting_lanes: bool = False
    """Whether a lane waits."""
    waits_for_any_return: bool = False
    """Whether any return of quota to the tree ends the waiting of a lane."""
    waits_for_progress: bool = False
    """Whether progress of a head of the tree ends the waiting of a lane."""
    holds_back_for_queue: bool = False
    """Whether a workload is held back until the ClusterQueue, its tree or its quota changes."""
    has_blocking_head: bool = False
    """Whether the ClusterQueue has a blocking head."""
    needs: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    """For each (flavor, resource), the least amount that ends the waiting of a lane."""
    armed: dict[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    """For each armed need, the number of its entry in the index."""

    def available(self, pair: FlavorResource) -> int:
        """Return the amount of a (flavor, resource) that is available to the ClusterQueue now."""
        cell = self.cells.get(pair)
        return 0 if cell is None else quota.available(cell)

    def set_waiting(self, *, waits: bool) -> None:
        """Set whether a lane waits."""
        if waits != self.has_waiting_lanes:
            self.has_waiting_lanes = waits
            self.index.update(self)

    def set_any_return(self, *, waits: bool) -> None:
        """Set whether any return of quota ends the waiting of a lane."""
        if waits != self.waits_for_any_return:
            self.waits_for_any_return = waits
            self.index.update(self)

    def set_held_back(self, *, holds_back: bool) -> None:
        """Set whether a workload is held back until the ClusterQueue, its tree or its quota changes."""
        if holds_back != self.holds_back_for_queue:
            self.holds_back_for_queue = holds_back
            self.index.update(self)

    def set_progress(self, *, waits: bool) -> None:
        """Set whether progress in the tree ends the waiting of a lane."""
        if waits != self.waits_for_progress:
            self.waits_for_progress = waits
            self.index.update(self)

    def set_blocking(self, *, blocks: bool) -> None:
        """Set whether the ClusterQueue has a blocking head."""
        if blocks != self.has_blocking_head:
            self.has_blocking_head = blocks
            self.index.update(self)

    def set_need(self, pair: FlavorResource, amount: int | None) -> None:
        """Set the least amount that ends the waiting of a lane; None if no lane has a need of the pair."""
        if self.needs.get(pair) == amount:
            return
        self.armed.pop(pair, None)
        if amount is None:
            del self.needs[pair]
            self.index.update(self)
        else:
            self.needs[pair] = amount
            self.index.arm(self, pair)

    def rearm(self) -> None:
        """Arm all needs again that were reported as met."""
        if len(self.armed) < len(self.needs):
            for pair in self.needs.keys() - self.armed.keys():
                self.index.arm(self, pair)


_ArmedNeed = tuple[int, int, TreeRegistration, FlavorResource]
"""The slack with which the need may be met, the number of the entry, and the need: ClusterQueue and pair."""

_SMALL_HEAP: Final = 128
"""The size up to which a heap may keep outdated entries."""


@dataclass(slots=True, eq=False)
class WakeIndex:
    """The ClusterQueues of one cohort tree, by what may end the waiting of their lanes."""

    waiting: dict[str, TreeRegistration] = field(default_factory=dict[str, TreeRegistration])
    waiting_for_any_return: dict[str, TreeRegistration] = field(default_factory=dict[str, TreeRegistration])
    waiting_for_progress: dict[str, TreeRegistration] = field(default_factory=dict[str, TreeRegistration])
    with_blocking_head: dict[str, TreeRegistration] = field(default_factory=dict[str, TreeRegistration])
    with_needs: dict[str, TreeRegistration] = field(default_factory=dict[str, TreeRegistration])
    """ClusterQueues with lanes that have needs."""
    _heaps: dict[Cell, list[_ArmedNeed]] = field(default_factory=dict[Cell, list[_ArmedNeed]])
    _compaction_size: dict[Cell, int] = field(default_factory=dict[Cell, int])
    """For each heap, the size at which outdated entries are removed."""
    _entries: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no lane of the tree waits."""
        return not (self.waiting or self.waiting_for_any_return)

    @property
    def names(self) -> list[str]:
        """ClusterQueues with lanes that wait, sorted."""
        return sorted({*self.waiting, *self.waiting_for_any_return})

    def update(self, registration: TreeRegistration) -> None:
        """Index a ClusterQueue by its present registration."""
        for index, belongs in (
            (self.waiting, registration.has_waiting_lanes),
            (
                self.waiting_for_any_return,
                registration.waits_for_any_return or registration.holds_back_for_queue,
            ),
            (self.waiting_for_progress, registration.waits_for_progress),
            (self.with_blocking_head, registration.has_blocking_head),
            (self.with_needs, bool(registration.needs)),
        ):
            if belongs:
                index[registration.name] = registration
            else:
                index.pop(registration.name, None)

    def arm(self, registration: TreeRegistration, pair: FlavorResource) -> None:
        """Arm the least need of a ClusterQueue: ``met_by_return`` reports it when it is met."""
        self.with_needs[registration.name] = registration
        own = registration.cells.get(pair)
        if own is None:
            return  # An edit removed the quota. The edit itself ends the waiting.
        cell, slack = _binding_node(own, registration.needs[pair])
        self._entries += 1
        registration.armed[pair] = self._entries
        heap = self._heaps.setdefault(cell, [])
        heapq.heappush(heap, (slack, self._entries, registration, pair))
        if len(heap) > self._compaction_size.get(cell, _SMALL_HEAP):
            heap[:] = [entry for entry in heap if self._is_armed(entry)]
            heapq.heapify(heap)
            self._compaction_size[cell] = max(_SMALL_HEAP, 2 * len(heap))

    def _is_armed(self, entry: _ArmedNeed) -> bool:
        _, number, registration, pair = entry
        return registration.index is self and registration.armed.get(pair) == number

    def move(self, registrations: Iterable[TreeRegistration], other: "WakeIndex") -> None:
        """Move ClusterQueues to another tree."""
        for registration in registrations:
            for index in (
                self.waiting,
                self.waiting_for_any_return,
                self.waiting_for_progress,
                self.with_blocking_head,
                self.with_needs,
            ):
                index.pop(registration.name, None)
            registration.index = other
            registration.armed.clear()
            other.update(registration)
            for pair in registration.needs:
                other.arm(registration, pair)

    def met_by_return(self, cell: Cell) -> list[TreeRegistration]:
        """Return the ClusterQueues with a need that is met, after quota returned at this cell.

        Each need is reported once, until it is armed again.
        """
        met: list[TreeRegistration] = []
        ancestor: Cell | None = cell
        while ancestor is not None:
            heap = self._heaps.get(ancestor)
            if heap:
                self._pop_met_needs(ancestor, heap, met)
            ancestor = ancestor.parent
        return met

    def _pop_met_needs(self, cell: Cell, heap: list[_ArmedNeed], met: list[TreeRegistration]) -> None:
        slack = _slack(cell)
        bound_elsewhere: list[tuple[TreeRegistration, FlavorResource]] = []
        while heap and slack is not None and heap[0][0] <= slack:
            entry = heapq.heappop(heap)
            if not self._is_armed(entry):
                continue
            _, _, registration, pair = entry
            del registration.armed[pair]
            if registration.available(pair) >= registration.needs[pair]:
                met.append(registration)
            else:
                bound_elsewhere.append((registration, pair))
        for registration, pair in bound_elsewhere:
            self.arm(registration, pair)
