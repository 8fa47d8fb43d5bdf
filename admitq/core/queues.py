"""The pending workloads of one ClusterQueue: who is next, who is parked, and what wakes them.

Rules of this file
- A workload is *in a lane*, *aside*, or *in flight* (popped by the cycle that is running), never in two.
- A lane holds the workloads of one shape: everything that decides whether they fit is equal, so that what
  is found out about one holds for all. Lanes are sorted inside and compete by their first.
- BestEffortFIFO parks the whole lane when its first does not fit. StrictFIFO is *blocked* by its first: no
  workload behind it is tried. Both end when something in the cohort tree changes (``wake``).
- A workload that waits for its victims to leave is the *claimant*: of a BestEffortFIFO queue it stays the
  first (*sticky*) and blocks it like one of StrictFIFO.
- A workload that blocks its queue does not ask for a cycle, but takes part in every cycle of its cohort tree,
  so that no other workload takes the capacity that is reserved for it.
- In a queue that goes by what LocalQueues used, the LocalQueue is part of the shape: a lane then has one
  usage, and its first competes with that before all else.
- What concerns one workload alone puts it aside, each reason with its own way back (``Aside``).
- Heaps drop what is stale when it comes to the top; a removal costs nothing but a mark.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

from admitq.core.admission_fair_sharing import NEVER_USED, PastUse
from admitq.core.amounts import add, multiply
from admitq.core.assignments import TriedFlavor
from admitq.core.model import Instant, ObjectKey, QueueingStrategy, Workload
from admitq.core.ordering import QueueOrder, queue_order
from admitq.core.refusals import Refusal
from admitq.core.replacing import Original
from admitq.core.requests import PLAIN, PodSetDemand, RequestRules, demands


class Aside(StrEnum):
    """Why a single workload is kept out of the lanes, and so what lets it in again."""

    NAMESPACE = "Namespace"
    """Its namespace is not selected: labels of the namespace, or the selector, must change."""
    OWN = "Own"
    """Something in the workload itself is wrong: it must change."""
    BACKOFF = "Backoff"
    """It may not be tried before an instant, or before its Requeued condition is true."""
    TREE = "Tree"
    """The cohort tree is cyclic, or the flavors that it would get have too many checks: the tree, or what its
    ClusterQueue says, must change."""


class Shape(NamedTuple):
    """All of a workload that decides whether and how it fits; equal shapes share a lane.

    ``local_queue`` is set where LocalQueues take turns by what they used, ``original`` where the workload is
    to take over what another holds, ``alone`` where each workload is tried for itself, whatever became of
    its equals.
    """

    demands: tuple[PodSetDemand, ...]
    priority: int
    has_closed_preemption_gate: bool
    local_queue: ObjectKey | None = None
    original: Original | None = None
    alone: ObjectKey | None = None


class PendingShape(NamedTuple):
    """What metrics count distinct workloads by: requests and priority, wherever they wait."""

    demands: tuple[PodSetDemand, ...]
    priority: int


def _pending_shape(shape: Shape) -> PendingShape:
    return PendingShape(shape.demands, shape.priority)


def local_queue_of(workload: Workload) -> ObjectKey:
    """The LocalQueue that a workload names."""
    return ObjectKey(workload.key.namespace, workload.queue_name)


def _plain_rules(_namespace: str) -> RequestRules:
    return PLAIN


class Place(NamedTuple):
    """An entry of the heaps: where a workload stands, and which."""

    order: QueueOrder
    key: ObjectKey


Front = tuple[bool, PastUse, Place]
"""The first of a lane, where it competes with those of other lanes.

One that waits for others to leave (not ``not_sticky``) comes before all, so that nobody takes what is freed
for it again and again, however little went through its LocalQueue; then comes whose LocalQueue used less.
"""


def _front(usage: PastUse, place: Place) -> Front:
    return (place.order.not_sticky, usage, place)


class Claimant(NamedTuple):
    """The workload of a queue that others were last told to leave for."""

    key: ObjectKey
    generation: int


class Preemptions(NamedTuple):
    """The preemptions of one attempt: how many there are to be, were asked for, and could not be done."""

    victims: int
    told: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Where the scan of flavors goes on at the next attempt.

    ``cycle`` and ``generation`` are those of the attempt, ``begun`` the generation of the cohort tree when
    the scan last started from the first flavor, ``since`` how far the tree had got then, ``attempts`` how
    many there were from there on, and ``beaten`` whether others of its cycle were in the way of any of them.
    """

    tried: tuple[TriedFlavor, ...]
    cycle: int
    generation: int
    begun: int
    since: int
    attempts: int
    beaten: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """Pending workloads of one shape.

    ``refusal`` is set while the lane is parked, for one that was queued at ``refused_at``: who was queued
    earlier may preempt more, and has to be tried itself. Who ``is_hopeful`` was beaten over a flavor that was
    kept for somebody else.
    """

    shape: Shape
    usage: PastUse = NEVER_USED
    places: list[Place] = field(default_factory=list[Place])
    size: int = 0
    refusal: Refusal | None = None
    refused_at: Instant = 0
    is_hopeful: bool = False


@dataclass(slots=True, eq=False)
class Pending:
    """A workload waiting for quota.

    ``lane`` stays set in flight. ``refusal`` is what it was last refused for, while that is what its status
    tells too; ``progress`` where its scan of flavors stands; ``preemptions`` what it waits for; ``displaced``
    the uids of all who were to leave for it since it began to wait.
    """

    workload: Workload
    place: Place
    lane: Lane | None = None
    aside: Aside | None = None
    in_flight: bool = False
    progress: ScanProgress | None = None
    refusal: Refusal | None = None
    preemptions: Preemptions | None = None
    displaced: frozenset[str] = frozenset()


def new_pending(workload: Workload) -> Pending:
    """A workload that begins to wait."""
    return Pending(workload, Place(queue_order(workload), workload.key))


_SLACK: Final = 64
"""How many stale entries a heap may hold beyond its living ones before it is rebuilt."""


class PendingQueue:
    """The pending workloads of one ClusterQueue."""

    def __init__(
        self,
        strategy: QueueingStrategy,
        rules_of: Callable[[str], RequestRules] = _plain_rules,
        original_of: Callable[[Workload], Original | None] | None = None,
        *,
        equals_share_a_lane: bool = True,
    ) -> None:
        """An empty queue.

        Args:
            strategy: what a head that does not fit does to those behind it.
            rules_of: what decides in a namespace what podsets ask for.
            original_of: what a workload is to take over; None where nobody replaces anybody.
            equals_share_a_lane: whether who equals one that did not fit is passed over with it.
        """
        self.strategy = strategy
        self._rules_of = rules_of
        self._original_of = original_of
        self._equals_share_a_lane = equals_share_a_lane
        self._usage_of: Callable[[ObjectKey], PastUse] | None = None
        self.members: dict[ObjectKey, Pending] = {}
        self.lanes: dict[Shape, Lane] = {}
        self.parked_in_lanes = 0
        self._set_aside = 0
        """How many workloads stand in parked lanes."""
        self._parked: dict[Lane, None] = {}
        self._hopeful: dict[Lane, None] = {}
        """Parked lanes that are hopeful."""
        self._emptied: dict[Lane, None] = {}
        """Parked lanes that nobody may stand in any more; a superset."""
        self._lanes_of: dict[ObjectKey, dict[Lane, None]] = {}
        """By LocalQueue, where those take turns by what they used."""
        self._fronts: list[Front] = []
        self._aside: dict[Aside, dict[ObjectKey, Pending]] = {reason: {} for reason in Aside}
        self._by_namespace: dict[str, dict[ObjectKey, Pending]] = {}
        self._blocked: Place | None = None
        self._claimant: Claimant | None = None

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def inadmissible(self) -> int:
        """How many are parked or aside."""
        return self.parked_in_lanes + self._set_aside

    @property
    def shapes(self) -> tuple[AbstractSet[PendingShape], AbstractSet[PendingShape]]:
        """The distinct shapes of workloads to be tried, and of those parked or aside. Slow."""
        waiting = [lane for lane in self.lanes.values() if lane.size]
        ready = {_pending_shape(lane.shape) for lane in waiting if lane.refusal is None}
        parked = {_pending_shape(lane.shape) for lane in waiting if lane.refusal is not None}
        aside = (self.shape_of(pending.workload) for pending in self._all_aside())
        return ready, parked.union(map(_pending_shape, aside))

    @property
    def requests(self) -> Mapping[str, int]:
        """What all workloads in lanes and aside request together, by resource. Slow."""
        total: dict[str, int] = {}
        in_lanes = ((lane.shape, lane.size) for lane in self.lanes.values())
        aside = ((self.shape_of(pending.workload), 1) for pending in self._all_aside())
        for shape, count in chain(in_lanes, aside):
            for resource, amount in chain.from_iterable(demand.totals for demand in shape.demands):
                if amount and count:
                    total[resource] = add(total.get(resource, 0), multiply(amount, count))
        return total

    def _all_aside(self) -> Iterator[Pending]:
        return chain.from_iterable(of.values() for of in self._aside.values())

    @property
    def is_asleep(self) -> bool:
        """Whether a change in the cohort tree could let somebody in."""
        return bool(self._parked or self._blocked or self._aside[Aside.TREE])

    def is_parked(self, pending: Pending) -> bool:
        """Whether the workload is parked or aside, and so inadmissible."""
        return pending.aside is not None or self._parked_with(pending) is not None

    @property
    def blocked(self) -> Place | None:
        """The first, while it does not fit and no workload behind it is tried."""
        return self._blocked

    @property
    def claimant(self) -> Claimant | None:
        """Who waits for others to leave, as far as that was not forgotten."""
        return self._claimant

    def is_claimant(self, pending: Pending) -> bool:
        """Whether the workload waits for others to leave."""
        return self._is_claimant(pending.workload)

    def aside(self, reason: Aside) -> Iterator[Pending]:
        """Those kept aside for the reason."""
        return iter(list(self._aside[reason].values()))

    # --- in and out -------------------------------------------------------------------------------

    def enter(self, pending: Pending) -> Lane:
        """Take a workload that is new, in flight or was aside, into the lane of its shape, and tell which."""
        self.members[pending.workload.key] = pending
        self._leave_aside(pending)
        lane = pending.lane
        if lane is None:
            lane = pending.lane = self._lane(self.shape_of(pending.workload))
        pending.in_flight = False
        lane.size += 1
        heapq.heappush(lane.places, pending.place)
        if lane.refusal is not None:
            self.parked_in_lanes += 1
            if pending.workload.queued_at < lane.refused_at:
                self._unpark(lane)
        elif lane.places[0] == pending.place:
            heapq.heappush(self._fronts, _front(lane.usage, pending.place))
        self._compact(lane)
        return lane

    def set_aside(self, pending: Pending, reason: Aside) -> None:
        """Keep a workload that is new or in flight out of the lanes."""
        self.members[pending.workload.key] = pending
        self._leave_aside(pending)
        self._leave_lane(pending)
        pending.aside = reason
        self._aside[reason][pending.workload.key] = pending
        self._set_aside += 1
        if reason is Aside.NAMESPACE:
            namespace = pending.workload.key.namespace
            self._by_namespace.setdefault(namespace, {})[pending.workload.key] = pending

    def remove(self, key: ObjectKey) -> None:
        """Forget a workload."""
        self._take_out(self.members.pop(key))
        if self._claimant is not None and self._claimant.key == key:
            self._claimant = None

    def update(self, pending: Pending, workload: Workload) -> None:
        """Replace a workload by its changed value, which keeps its place if that does not change it.

        A workload in a parked lane stays parked while its shape is the same. One that was aside for its
        own sake, or that blocks the queue, is looked at again.
        """
        claimant = self._claimant
        if claimant is not None and claimant.key == workload.key and not self._is_claimant(workload):
            self._claimant = None
        if workload.generation != pending.workload.generation:
            pending.displaced = frozenset()
        place = self._place_of(workload)
        same_shape = self.shape_of(workload) == self._shape_now(pending)
        moved = place != pending.place or not same_shape
        reconsidered = pending.aside in (Aside.OWN, Aside.BACKOFF) or self._blocked == pending.place
        if not same_shape:
            pending.progress = None
        if not (moved or reconsidered):
            pending.workload = workload
            return
        self._take_out(pending)
        pending.workload, pending.place = workload, place
        self.enter(pending)

    def readjust(self, pending: Pending) -> None:
        """What decides over a workload's requests, or what it takes over, changed: look again if it matters.

        Whoever blocks the queue may do so because of a bound, with requests that are as they were.
        """
        if pending.aside is Aside.OWN:
            self.enter(pending)
        elif pending.lane is not None:
            same_shape = self.shape_of(pending.workload) == pending.lane.shape
            if same_shape and self._blocked != pending.place:
                return
            self._take_out(pending)
            if not same_shape:
                pending.progress = None
            self.enter(pending)

    def first(self) -> Pending | None:
        """Who is next, if anybody is to be tried now."""
        while self._fronts:
            _, usage, place = self._fronts[0]
            pending = self.members.get(place.key)
            if pending is not None and pending.place == place:
                lane = pending.lane
                if (
                    lane is not None
                    and lane.refusal is None
                    and lane.usage == usage
                    and self._first_of(lane) == place
                ):
                    return None if place == self._blocked else pending
            heapq.heappop(self._fronts)
        return None

    def pop(self) -> Pending | None:
        """Take who is next into flight."""
        pending = self.first()
        if pending is not None and pending.lane is not None:
            lane = pending.lane
            pending.in_flight = True
            lane.size -= 1
            # It is at the top of both heaps, and would be found stale there.
            heapq.heappop(self._fronts)
            heapq.heappop(lane.places)
            self._offer(lane)
        return pending

    # --- parking and waking -----------------------------------------------------------------------

    def block(self, pending: Pending) -> None:
        """Put one in flight back, and try no workload of this queue for itself while it is the first."""
        self.enter(pending)
        self._blocked = pending.place

    def claim(self, pending: Pending) -> None:
        """Note that one in flight waits for others to leave, and no more who did before."""
        former = None if self._claimant is None else self.members[self._claimant.key]
        self._claimant = Claimant(pending.workload.key, pending.workload.generation)
        if former is not None:
            self._sort_again(former)
        self._sort_again(pending)

    def park(self, pending: Pending, refusal: Refusal, *, hopeful: bool = False) -> None:
        """Put one in flight back, and stop trying it and its equals."""
        lane = self.enter(pending)
        self._park(lane, refusal, pending.workload.queued_at, hopeful=hopeful)

    def first_refused(self) -> list[Pending]:
        """Those who were refused for all who are parked, in order: the first of each lane, or who blocks."""
        if self._blocked is not None:
            return [self.members[self._blocked.key]]
        places = [self._first_of(lane) for lane in self._parked]
        return [self.members[place.key] for place in sorted(place for place in places if place is not None)]

    def refuse_again(self, pending: Pending, refusal: Refusal) -> None:
        """Somebody who is parked would be refused as well now, but for this."""
        lane = pending.lane
        if lane is not None and lane.refusal is not None:
            lane.refusal, lane.refused_at = refusal, pending.workload.queued_at

    def wake(self) -> None:
        """Something in the cohort tree changed: whoever did not fit is to be tried again."""
        self.unblock()
        for lane in list(self._parked):
            self._unpark(lane)
        self._let_in(self._aside[Aside.TREE])

    def wake_hopeful(self) -> None:
        """What those who hope were beaten over may be kept no more: they are to be tried again."""
        for lane in list(self._hopeful):
            self._unpark(lane)

    def change_strategy(self, strategy: QueueingStrategy) -> None:
        """Go on by another strategy: who stands in nobody's way by the one may hold up all by the other."""
        if strategy is not self.strategy:
            self.strategy = strategy
            self.wake()
            self._let_in(self._aside[Aside.OWN])
            if self._claimant is not None:
                self._sort_again(self.members[self._claimant.key])

    def go_by_usage(self, usage_of: Callable[[ObjectKey], PastUse] | None) -> None:
        """Have LocalQueues take turns by what they used, or no more (None): everybody is sorted again."""
        if usage_of == self._usage_of:
            return
        self._usage_of = usage_of
        for pending in self.members.values():
            if pending.lane is not None:
                self._take_out(pending)
                self.enter(pending)

    def usage_changed(self, local_queue: ObjectKey) -> None:
        """What went through a LocalQueue changed, and with it the turn of those who wait in it."""
        if self._usage_of is None:
            return
        usage = self._usage_of(local_queue)
        for lane in self._lanes_of.get(local_queue, ()):
            if lane.usage != usage:
                lane.usage = usage
                if lane.refusal is None:
                    self._offer(lane)

    def wake_namespace(self, namespace: str) -> None:
        """The namespace is selected now."""
        self._let_in(self._by_namespace.get(namespace, {}))

    def unblock(self) -> None:
        """What made the first stop the queue may not hold any more: try it again."""
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
        for lane in self._emptied:
            if lane in self._parked and not lane.size:
                self._unpark(lane)
        self._emptied.clear()

    def restore_parked(self, shape: Shape, refusal: Refusal, refused_at: Instant, *, hopeful: bool) -> None:
        """Park a lane as a dump had it."""
        lane = self._lane(shape)
        self._park(lane, refusal, refused_at, hopeful=hopeful)
        self._emptied[lane] = None

    def restore_blocked(self, key: ObjectKey) -> None:
        """Block the queue as a dump had it."""
        self._blocked = self.members[key].place

    def restore_claimant(self, claimant: Claimant) -> None:
        """Know who waits for others to leave, as a dump had it."""
        self._claimant = claimant
        self._sort_again(self.members[claimant.key])

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
            if pending.place != self._place_of(pending.workload):
                raise AssertionError(f"{pending.workload.key} stands at {pending.place}")
            if pending.lane is not None:
                in_lanes[id(pending.lane)] = in_lanes.get(id(pending.lane), 0) + 1
                if self.shape_of(pending.workload) != pending.lane.shape:
                    raise AssertionError(f"{pending.workload.key} is in a lane of another shape")
        parked = 0
        for shape, lane in self.lanes.items():
            counted = (lane.shape == shape, lane.size, lane in self._parked)
            expected = (True, in_lanes.pop(id(lane), 0), lane.refusal is not None)
            parked += lane.size if lane.refusal is not None else 0
            first = self._first_of(lane)
            front = None if first is None else _front(self._usage_by(shape), first)
            offered = front is None or lane.refusal is not None or front in self._fronts
            if counted != expected or not offered:
                raise AssertionError(f"lane {shape}: {counted} should be {expected}, offered: {offered}")
        if in_lanes or parked != self.parked_in_lanes:
            raise AssertionError(f"{parked} parked in lanes, counted {self.parked_in_lanes}")
        if self._claimant is not None and self._claimant.key not in self.members:
            raise AssertionError(f"{self._claimant.key} is gone and still waited for")
        if self._blocked is not None and self._blocked.key not in self.members:
            raise AssertionError(f"{self._blocked.key} is gone and still blocks the queue")
        self._check_indexes()

    def _check_indexes(self) -> None:
        of_queues = {lane: key for key, lanes in self._lanes_of.items() for lane in lanes}
        in_queues = {lane: key for lane in self.lanes.values() if (key := lane.shape.local_queue) is not None}
        hopeful = {lane for lane in self._parked if lane.is_hopeful}
        emptied = {lane for lane in self._parked if not lane.size}
        if (of_queues, self._hopeful.keys()) != (in_queues, hopeful) or not emptied <= self._emptied.keys():
            raise AssertionError("lanes are not where their indexes look for them")

    def shape_of(self, workload: Workload) -> Shape:
        """The shape that a workload has in this queue now."""
        return Shape(
            demands(workload.pod_sets, workload.reclaimable_pods, self._rules_of(workload.key.namespace)),
            workload.priority,
            workload.has_closed_preemption_gate,
            None if self._usage_of is None else local_queue_of(workload),
            None if workload.replaces is None or self._original_of is None else self._original_of(workload),
            None if self._equals_share_a_lane else workload.key,
        )

    # --- internals --------------------------------------------------------------------------------

    def _park(self, lane: Lane, refusal: Refusal, refused_at: Instant, *, hopeful: bool) -> None:
        lane.refusal, lane.refused_at, lane.is_hopeful = refusal, refused_at, hopeful
        self._parked[lane] = None
        if hopeful:
            self._hopeful[lane] = None
        self.parked_in_lanes += lane.size

    def _unpark(self, lane: Lane) -> None:
        lane.refusal = None
        del self._parked[lane]
        self._hopeful.pop(lane, None)
        self.parked_in_lanes -= lane.size
        self._offer(lane)
        self._drop_if_empty(lane)

    def _shape_now(self, pending: Pending) -> Shape:
        return self.shape_of(pending.workload) if pending.lane is None else pending.lane.shape

    def _is_claimant(self, workload: Workload) -> bool:
        claimant = self._claimant
        return claimant is not None and claimant == (workload.key, workload.generation)

    def _place_of(self, workload: Workload) -> Place:
        sticky = self.strategy is QueueingStrategy.BEST_EFFORT_FIFO and self._is_claimant(workload)
        return Place(queue_order(workload, sticky=sticky), workload.key)

    def _sort_again(self, pending: Pending) -> None:
        place = self._place_of(pending.workload)
        if place == pending.place:
            return
        if pending.lane is None or pending.in_flight:
            pending.place = place
            return
        self._take_out(pending)
        pending.place = place
        self.enter(pending)

    def _take_out(self, pending: Pending) -> None:
        if pending.aside is not None:
            self._leave_aside(pending)
        else:
            self._leave_lane(pending)

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
        self._set_aside -= 1
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
            self.unblock()
        if pending.in_flight:
            pending.in_flight = False
        else:
            lane.size -= 1
            if lane.refusal is not None:
                self.parked_in_lanes -= 1
                if not lane.size:
                    self._emptied[lane] = None
            elif lane.places[0] == pending.place:
                self._offer(lane)
        self._drop_if_empty(lane)

    def _lane(self, shape: Shape) -> Lane:
        lane = self.lanes.get(shape)
        if lane is None:
            lane = self.lanes[shape] = Lane(shape, self._usage_by(shape))
            if shape.local_queue is not None:
                self._lanes_of.setdefault(shape.local_queue, {})[lane] = None
        return lane

    def _usage_by(self, shape: Shape) -> PastUse:
        if self._usage_of is None or shape.local_queue is None:
            return NEVER_USED
        return self._usage_of(shape.local_queue)

    def _drop_if_empty(self, lane: Lane) -> None:
        if not lane.size and lane.refusal is None and self.lanes.get(lane.shape) is lane:
            self._forget_lane(lane)

    def _forget_lane(self, lane: Lane) -> None:
        del self.lanes[lane.shape]
        if lane.shape.local_queue is not None:
            of_queue = self._lanes_of[lane.shape.local_queue]
            del of_queue[lane]
            if not of_queue:
                del self._lanes_of[lane.shape.local_queue]

    @staticmethod
    def _parked_with(pending: Pending) -> Refusal | None:
        return None if pending.lane is None else pending.lane.refusal

    def _stands(self, place: Place, lane: Lane) -> bool:
        pending = self.members.get(place.key)
        return (
            pending is not None and pending.lane is lane and not pending.in_flight and pending.place == place
        )

    def _first_of(self, lane: Lane) -> Place | None:
        # ``_stands`` written out: this is asked several times of every head.
        places, members = lane.places, self.members
        while places:
            place = places[0]
            pending = members.get(place.key)
            if (
                pending is not None
                and pending.lane is lane
                and not pending.in_flight
                and (pending.place is place or pending.place == place)
            ):
                return place
            heapq.heappop(places)
        return None

    def _offer(self, lane: Lane) -> None:
        first = self._first_of(lane)
        if first is not None:
            heapq.heappush(self._fronts, _front(lane.usage, first))

    def _compact(self, lane: Lane) -> None:
        """Keep heaps in proportion to what lives in them; a sorted list is a heap."""
        if len(lane.places) > 2 * lane.size + _SLACK:
            lane.places[:] = sorted({place for place in lane.places if self._stands(place, lane)})
        if len(self._fronts) > 2 * len(self.lanes) + _SLACK:
            awake = (each for each in self.lanes.values() if each.refusal is None)
            firsts = ((each.usage, self._first_of(each)) for each in awake)
            self._fronts = sorted(_front(usage, first) for usage, first in firsts if first is not None)
