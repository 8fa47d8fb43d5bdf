"""The pending workloads of one ClusterQueue: who is next, who is parked, and what wakes them.

Rules of this file
- A workload is *in a lane*, *aside*, or *in flight* (popped by the cycle that is running), never in two.
- A lane holds the workloads of one shape: everything that decides whether they fit is equal, so that what
  is found out about one holds for all. Lanes are sorted inside and compete by their first.
- BestEffortFIFO parks the whole lane when its first does not fit. StrictFIFO stops at its first (*blocked*),
  whoever stands behind it. Both end when something in the cohort tree changes (``wake``).
- What concerns one workload alone puts it aside, each reason with its own way back (``Aside``).
- Heaps drop what is stale when it comes to the top; a removal costs nothing but a mark.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from admitq.core.flavors import TriedFlavor
from admitq.core.model import ObjectKey, PodSet, QueueingStrategy, Workload
from admitq.core.ordering import QueueOrder, queue_order
from admitq.core.refusals import Refusal
from admitq.core.requests import PodSetDemand, demands


class Aside(StrEnum):
    """Why a single workload is kept out of the lanes, and so what lets it in again."""

    NAMESPACE = "Namespace"
    """Its namespace is not selected: labels of the namespace, or the selector, must change."""
    OWN = "Own"
    """Something in the workload itself is wrong: it must change."""
    BACKOFF = "Backoff"
    """It may not be tried before an instant, or before its Requeued condition is true."""
    TREE = "Tree"
    """The cohort tree is cyclic: it must change."""


class Shape(NamedTuple):
    """All of a workload that decides whether and how it fits; equal shapes share a lane."""

    pod_sets: tuple[PodSet, ...]
    reclaimable_pods: tuple[tuple[str, int], ...]
    priority: int
    has_closed_preemption_gate: bool


def shape_of(workload: Workload) -> Shape:
    """The shape of a workload."""
    return Shape(
        workload.pod_sets,
        workload.reclaimable_pods,
        workload.priority,
        workload.has_closed_preemption_gate,
    )


class Place(NamedTuple):
    """An entry of the heaps: where a workload stands, and which."""

    order: QueueOrder
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where the scan of flavors goes on at the next attempt.

    ``cycle`` and ``generation`` are those of the attempt, ``begun`` the generation of the cohort tree when
    the scan last started from the first flavor, ``attempts`` how many there were since.
    """

    tried: tuple[TriedFlavor, ...]
    cycle: int
    generation: int
    begun: int
    attempts: int


@dataclass(slots=True, eq=False)
class Lane:
    """Pending workloads of one shape. ``refusal`` is set while the lane is parked."""

    shape: Shape
    demands: tuple[PodSetDemand, ...]
    places: list[Place] = field(default_factory=list[Place])
    size: int = 0
    refusal: Refusal | None = None


@dataclass(slots=True, eq=False)
class Pending:
    """A workload waiting for quota.

    ``lane`` stays set in flight. ``refusal`` is what it was last refused for, while that is what its status
    tells too; ``progress`` where its scan of flavors stands.
    """

    workload: Workload
    place: Place
    lane: Lane | None = None
    aside: Aside | None = None
    in_flight: bool = False
    progress: ScanProgress | None = None
    refusal: Refusal | None = None


def _place_of(workload: Workload) -> Place:
    return Place(queue_order(workload), workload.key)


def new_pending(workload: Workload) -> Pending:
    """A workload that begins to wait."""
    return Pending(workload, _place_of(workload))


_SLACK: Final = 64
"""How many stale entries a heap may hold beyond its living ones before it is rebuilt."""


class PendingQueue:
    """The pending workloads of one ClusterQueue."""

    def __init__(self, strategy: QueueingStrategy) -> None:
        self.strategy = strategy
        self.members: dict[ObjectKey, Pending] = {}
        self.lanes: dict[Shape, Lane] = {}
        self.parked_in_lanes = 0
        """How many workloads stand in parked lanes."""
        self._parked: dict[Lane, None] = {}
        self._fronts: list[Place] = []
        self._aside: dict[Aside, dict[ObjectKey, Pending]] = {reason: {} for reason in Aside}
        self._by_namespace: dict[str, dict[ObjectKey, Pending]] = {}
        self._blocked: Place | None = None

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def inadmissible(self) -> int:
        """How many are parked or aside."""
        return self.parked_in_lanes + sum(map(len, self._aside.values()))

    @property
    def shapes(self) -> tuple[int, int]:
        """How many distinct shapes stand in lanes: those to be tried, and those parked."""
        waiting = [lane.refusal is None for lane in self.lanes.values() if lane.size]
        return sum(waiting), len(waiting) - sum(waiting)

    @property
    def is_asleep(self) -> bool:
        """Whether a change in the cohort tree could let somebody in."""
        return bool(self._parked or self._blocked or self._aside[Aside.TREE])

    @property
    def blocked(self) -> Place | None:
        """The first of a StrictFIFO queue, while it is known not to be admitted."""
        return self._blocked

    def aside(self, reason: Aside) -> Iterator[Pending]:
        """Those kept aside for the reason."""
        return iter(list(self._aside[reason].values()))

    # --- in and out -------------------------------------------------------------------------------

    def enter(self, pending: Pending) -> None:
        """Take a workload that is new, in flight or was aside, into the lane of its shape."""
        self.members[pending.workload.key] = pending
        self._leave_aside(pending)
        lane = pending.lane
        if lane is None:
            lane = pending.lane = self._lane(shape_of(pending.workload))
        pending.in_flight = False
        lane.size += 1
        heapq.heappush(lane.places, pending.place)
        if lane.refusal is not None:
            self.parked_in_lanes += 1
        elif lane.places[0] == pending.place:
            heapq.heappush(self._fronts, pending.place)
        self._compact(lane)

    def set_aside(self, pending: Pending, reason: Aside) -> None:
        """Keep a workload that is new or in flight out of the lanes."""
        self.members[pending.workload.key] = pending
        self._leave_aside(pending)
        self._leave_lane(pending)
        pending.aside = reason
        self._aside[reason][pending.workload.key] = pending
        if reason is Aside.NAMESPACE:
            namespace = pending.workload.key.namespace
            self._by_namespace.setdefault(namespace, {})[pending.workload.key] = pending

    def remove(self, key: ObjectKey) -> None:
        """Forget a workload."""
        pending = self.members.pop(key)
        self._leave_aside(pending)
        self._leave_lane(pending)

    def update(self, pending: Pending, workload: Workload) -> None:
        """Replace a workload by its changed value, which keeps its place if that does not change it.

        A workload in a parked lane stays parked while its shape is the same. One that was aside for its
        own sake, or that blocks a StrictFIFO queue, is looked at again.
        """
        place = _place_of(workload)
        same_shape = shape_of(workload) == shape_of(pending.workload)
        moved = place != pending.place or not same_shape
        reconsidered = pending.aside in (Aside.OWN, Aside.BACKOFF) or self._blocked == pending.place
        if not same_shape:
            pending.progress = None
        if not (moved or reconsidered):
            pending.workload = workload
            return
        self.remove(workload.key)
        pending.workload, pending.place = workload, place
        self.enter(pending)

    def first(self) -> Pending | None:
        """Who is next, if anybody is to be tried now."""
        while self._fronts:
            place = self._fronts[0]
            pending = self.members.get(place.key)
            if pending is not None and pending.place == place:
                lane = pending.lane
                if lane is not None and lane.refusal is None and self._first_of(lane) == place:
                    return None if place == self._blocked else pending
            heapq.heappop(self._fronts)
        return None

    def pop(self) -> Pending | None:
        """Take who is next into flight."""
        pending = self.first()
        if pending is not None and pending.lane is not None:
            pending.in_flight = True
            pending.lane.size -= 1
            self._offer(pending.lane)
        return pending

    # --- parking and waking -----------------------------------------------------------------------

    def park(self, pending: Pending, refusal: Refusal) -> None:
        """Put one in flight back, and stop trying: its equals for BestEffortFIFO, everyone for StrictFIFO."""
        if self.strategy is QueueingStrategy.STRICT_FIFO:
            self.enter(pending)
            self._blocked = pending.place
            return
        self.enter(pending)
        lane = pending.lane
        if lane is not None and lane.refusal is None:
            lane.refusal = refusal
            self._parked[lane] = None
            self.parked_in_lanes += lane.size

    def wake(self) -> None:
        """Something in the cohort tree changed: whoever did not fit is to be tried again."""
        self._blocked = None
        for lane in self._parked:
            lane.refusal = None
            self.parked_in_lanes -= lane.size
            self._offer(lane)
            self._drop_if_empty(lane)
        self._parked.clear()
        self._let_in(self._aside[Aside.TREE])

    def change_strategy(self, strategy: QueueingStrategy) -> None:
        """Go on by another strategy: who stands in nobody's way by the one may hold up all by the other."""
        if strategy is not self.strategy:
            self.strategy = strategy
            self.wake()
            self._let_in(self._aside[Aside.OWN])

    def wake_namespace(self, namespace: str) -> None:
        """The namespace is selected now."""
        self._let_in(self._by_namespace.get(namespace, {}))

    def unblock(self) -> None:
        """What made the first of a StrictFIFO queue stop it may not hold any more: try it again."""
        self._blocked = None

    def namespaces_aside(self) -> list[str]:
        """Namespaces that have workloads aside because they are not selected."""
        return sorted(self._by_namespace)

    def forget_refusals(self) -> None:
        """What was told of the workloads is told no more, because their status tells something else now."""
        for pending in self.members.values():
            pending.refusal = None

    def drop_empty_lanes(self) -> None:
        """Forget shapes that were found not to fit and that nobody has any more."""
        for lane in [lane for lane in self._parked if not lane.size]:
            del self._parked[lane], self.lanes[lane.shape]

    def restore_parked(self, shape: Shape, refusal: Refusal) -> None:
        """Park a lane as a dump had it."""
        lane = self._lane(shape)
        lane.refusal = refusal
        self._parked[lane] = None
        self.parked_in_lanes += lane.size

    def restore_blocked(self, key: ObjectKey) -> None:
        """Block a StrictFIFO queue as a dump had it."""
        self._blocked = self.members[key].place

    def is_bypassed(self, key: ObjectKey) -> bool:
        """Whether the workload is parked because an equal one did not fit, without having been tried."""
        pending = self.members.get(key)
        return pending is not None and pending.refusal is None and self._parked_with(pending) is not None

    def refusal_of(self, key: ObjectKey) -> Refusal | None:
        """Why the workload is parked: for itself, or with its equals."""
        pending = self.members.get(key)
        if pending is None:
            return None
        return pending.refusal or self._parked_with(pending)

    def check(self) -> None:
        """Check the bookkeeping. Slow.

        Raises:
            AssertionError: lanes, counts and heaps do not agree.
        """
        in_lanes: dict[int, int] = {}
        for pending in self.members.values():
            if pending.lane is not None:
                in_lanes[id(pending.lane)] = in_lanes.get(id(pending.lane), 0) + 1
        parked = 0
        for shape, lane in self.lanes.items():
            counted = (lane.shape == shape, lane.size, lane in self._parked)
            expected = (True, in_lanes.pop(id(lane), 0), lane.refusal is not None)
            parked += lane.size if lane.refusal is not None else 0
            first = self._first_of(lane)
            offered = first is None or lane.refusal is not None or first in self._fronts
            if counted != expected or not offered:
                raise AssertionError(f"lane {shape}: {counted} should be {expected}, offered: {offered}")
        if in_lanes or parked != self.parked_in_lanes:
            raise AssertionError(f"{parked} parked in lanes, counted {self.parked_in_lanes}")

    # --- internals --------------------------------------------------------------------------------

    def _let_in(self, some: dict[ObjectKey, Pending]) -> None:
        for pending in list(some.values()):
            self.enter(pending)

    def _leave_aside(self, pending: Pending) -> None:
        reason = pending.aside
        if reason is None:
            return
        pending.aside = None
        key = pending.workload.key
        del self._aside[reason][key]
        if reason is Aside.NAMESPACE:
            of_namespace = self._by_namespace[key.namespace]
            del of_namespace[key]
            if not of_namespace:
                del self._by_namespace[key.namespace]

    def _leave_lane(self, pending: Pending) -> None:
        lane = pending.lane
        if lane is None:
            return
        pending.lane = None
        if self._blocked == pending.place:
            self._blocked = None
        if pending.in_flight:
            pending.in_flight = False
        else:
            lane.size -= 1
            if lane.refusal is not None:
                self.parked_in_lanes -= 1
            elif lane.places[0] == pending.place:
                self._offer(lane)
        self._drop_if_empty(lane)

    def _lane(self, shape: Shape) -> Lane:
        lane = self.lanes.get(shape)
        if lane is None:
            lane = self.lanes[shape] = Lane(shape, demands(shape.pod_sets, shape.reclaimable_pods))
        return lane

    def _drop_if_empty(self, lane: Lane) -> None:
        if not lane.size and lane.refusal is None:
            self.lanes.pop(lane.shape, None)

    @staticmethod
    def _parked_with(pending: Pending) -> Refusal | None:
        return None if pending.lane is None else pending.lane.refusal

    def _stands(self, place: Place, lane: Lane) -> bool:
        pending = self.members.get(place.key)
        return (
            pending is not None and pending.lane is lane and not pending.in_flight and pending.place == place
        )

    def _first_of(self, lane: Lane) -> Place | None:
        places = lane.places
        while places:
            if self._stands(places[0], lane):
                return places[0]
            heapq.heappop(places)
        return None

    def _offer(self, lane: Lane) -> None:
        first = self._first_of(lane)
        if first is not None:
            heapq.heappush(self._fronts, first)

    def _compact(self, lane: Lane) -> None:
        """Keep heaps in proportion to what lives in them; a sorted list is a heap."""
        if len(lane.places) > 2 * lane.size + _SLACK:
            lane.places[:] = sorted({place for place in lane.places if self._stands(place, lane)})
        if len(self._fronts) > 2 * len(self.lanes) + _SLACK:
            firsts = (self._first_of(each) for each in self.lanes.values() if each.refusal is None)
            self._fronts = sorted(first for first in firsts if first is not None)
