"""The lanes of one ClusterQueue, in order, and by what ends their waiting.

Heaps drop entries that are out of date when these come to the top; removing a workload only marks it.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Final

from admitq.core.admission_fair_sharing import NEVER_USED, PastUse
from admitq.core.amounts import FlavorResource
from admitq.core.model import ObjectKey
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.lanes_by_need import LanesByNeed
from admitq.core.waiting.order import LanePosition, Position
from admitq.core.waiting.pending import Pending
from admitq.core.waiting.scheduling_key import SchedulingKey
from admitq.core.waiting.wait_states import (
    EARLIER_WORKLOAD_QUEUED,
    HEAD_OVERTAKEN,
    IN_CYCLE,
    LANE_EMPTIED,
    NEED_MET,
    NOMINATED,
    PARKED,
    PROGRESS_MADE,
    QUOTA_RETURNED,
    READY,
    STANDING,
    LaneState,
    Ready,
    RetryOnProgress,
    WaitEvent,
    check_transition,
)
from admitq.core.waiting.wake_index import TreeRegistration

_SLACK: Final = 64
"""How many entries that are out of date a heap may hold beyond its others before it is rebuilt."""


class Lanes:
    """The lanes of one ClusterQueue."""

    def __init__(
        self, members: Mapping[ObjectKey, Pending], registration: TreeRegistration, *, ends_by_need: bool
    ) -> None:
        """No lanes.

        Args:
            members: all pending workloads of the ClusterQueue.
            registration: how the ClusterQueue waits in its cohort tree.
            ends_by_need: whether a lane whose need is met may give the head. If not, its waiting ends with
                the next batch of the cohort tree.
        """
        self.by_key: dict[SchedulingKey, Lane] = {}
        self.parked_workloads = 0
        """How many workloads are in parked lanes."""
        self.parked: dict[Lane, None] = {}
        self.standing: Lane | None = None
        """The lane of the standing head."""
        self._members = members
        self._registration = registration
        self._ends_by_need = ends_by_need
        self._usage_of: Callable[[ObjectKey], PastUse] | None = None
        self.offered: list[LanePosition] = []
        """A heap of the positions of lanes that are not parked."""
        self.by_any_return: dict[Lane, None] = {}
        self.by_progress: dict[Lane, None] = {}
        self.by_need: dict[FlavorResource, LanesByNeed[Lane]] = {}
        self.indexed: dict[Lane, None] = {}
        """Lanes that wait for certain amounts, whose refusals state what is missing of these."""
        self.emptied: dict[Lane, None] = {}
        """Parked lanes without workloads; a superset."""
        self.by_local_queue: dict[ObjectKey, dict[Lane, None]] = {}
        """By LocalQueue, where these take turns by past use."""

    @property
    def uses_past_use(self) -> bool:
        """Whether LocalQueues take turns by past use."""
        return self._usage_of is not None

    # --- workloads in and out ---------------------------------------------------------------------

    def lane_of(self, key: SchedulingKey) -> Lane:
        """The lane of a scheduling key, created where there is none."""
        lane = self.by_key.get(key)
        if lane is None:
            lane = self.by_key[key] = Lane(key, self.usage_by(key))
            if key.local_queue is not None:
                self.by_local_queue.setdefault(key.local_queue, {})[lane] = None
        return lane

    def add(self, pending: Pending) -> None:
        """Queue a workload in its lane."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        lane.size += 1
        heapq.heappush(lane.heads, pending.position)
        state = lane.state
        if isinstance(state, PARKED):
            self.parked_workloads += 1
            if pending.workload.queued_at < state.refused_at:
                self.change_state(lane, EARLIER_WORKLOAD_QUEUED, READY)
            elif lane.heads[0] == pending.position:
                self._index_needs_anew(lane)
        elif lane.heads[0] == pending.position:
            heapq.heappush(self.offered, self.position_of(lane, pending.position))
        self._compact(lane)

    def remove(self, pending: Pending) -> None:
        """Take a queued workload out of its lane."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        pending.lane = None
        lane.size -= 1
        if lane.is_parked:
            self.parked_workloads -= 1
            if not lane.size:
                self.emptied[lane] = None
            if lane.indexed_at is not None and lane.indexed_at[2] == pending.position:
                self._index_needs_anew(lane)
        elif lane.heads[0] == pending.position:
            self._offer(lane)
        self.drop_if_empty(lane)

    def take_head(self, pending: Pending) -> None:
        """Take the head of the ClusterQueue, as ``head`` found it, out of its lane into a cycle."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        if isinstance(lane.state, STANDING) and lane.state.head != pending.position:
            self.change_state(lane, HEAD_OVERTAKEN, READY)
        elif not isinstance(lane.state, Ready):
            self.change_state(lane, NEED_MET, READY)
        lane.size -= 1
        # It is at the top of both heaps, and would be found out of date there.
        heapq.heappop(self.offered)
        heapq.heappop(lane.heads)
        # Its position may be in the heap twice: only its state tells that it is not queued any more.
        pending.change_state(NOMINATED, IN_CYCLE)
        self._offer(lane)

    def head(self) -> Pending | None:
        """The workload that a cycle evaluates next; None if every lane waits."""
        first = self._first_position()
        best, is_held_up = first, False
        if first is not None and self.standing is not None:
            is_held_up = first[2] == self.standing.state.head  # pyright: ignore[reportAttributeAccessIssue]
        if self._ends_by_need:
            for pair, lanes in self.by_need.items():
                lane = lanes.first_within(self._registration.available(pair))
                if lane is None or lane.indexed_at is None:
                    continue
                if best is None or lane.indexed_at <= best:
                    best, is_held_up = lane.indexed_at, False
        return None if best is None or is_held_up else self._members[best[2].key]

    def _first_position(self) -> LanePosition | None:
        """The first position of a lane that is not parked."""
        while self.offered:
            position = self.offered[0]
            _, usage, head = position
            pending = self._members.get(head.key)
            if pending is not None and pending.position == head:
                lane = pending.lane
                if (
                    lane is not None
                    and not isinstance(lane.state, PARKED)
                    and lane.usage == usage
                    and self.first_of(lane) == head
                ):
                    return position
            heapq.heappop(self.offered)
        return None

    @staticmethod
    def position_of(lane: Lane, head: Position) -> LanePosition:
        """The position of a lane among others, with this head."""
        return (head.order.not_sticky, lane.usage, head)

    def first_of(self, lane: Lane) -> Position | None:
        """The position of the first workload that is queued in a lane."""
        # ``_is_queued_at`` is written out, because this is asked several times of every head.
        heads, members = lane.heads, self._members
        while heads:
            head = heads[0]
            pending = members.get(head.key)
            if (
                pending is not None
                and pending.lane is lane
                and not pending.is_in_cycle
                and (pending.position is head or pending.position == head)
            ):
                return head
            heapq.heappop(heads)
        return None

    # --- wait states ------------------------------------------------------------------------------

    def change_state(self, lane: Lane, event: WaitEvent, state: LaneState) -> None:
        """Give a lane its next wait state, and index it by what ends that.

        Raises:
            ImpossibleTransition: the table of wait states has no such transition.
        """
        was_parked = lane.is_parked
        former, lane.state = lane.state, check_transition(event, lane.state, state)
        if not isinstance(former, Ready):
            self._unindex(lane, former)
        if not isinstance(state, Ready):
            self._index(lane, state)
        if was_parked and isinstance(state, Ready):
            self._offer(lane)
            self.drop_if_empty(lane)

    def end_waiting(self, event: WaitEvent) -> None:
        """Have cycles take the workloads again of all lanes whose waiting the event ends."""
        if event is QUOTA_RETURNED:
            lanes = list(self.by_any_return)
        elif event is PROGRESS_MADE:
            lanes = list(self.by_progress)
        else:
            lanes = [*self.parked, *(() if self.standing is None else (self.standing,))]
        for lane in lanes:
            self.change_state(lane, event, READY)

    def drop_emptied(self) -> None:
        """Forget parked lanes without workloads."""
        for lane in self.emptied:
            if lane.is_parked and not lane.size:
                self.change_state(lane, LANE_EMPTIED, READY)
        self.emptied.clear()

    def note_emptied(self, lane: Lane) -> None:
        """Forget a parked lane with the next emptied ones, if it has no workload by then."""
        self.emptied[lane] = None

    def _index(self, lane: Lane, state: LaneState) -> None:
        assert not isinstance(state, Ready)  # noqa: S101 narrows the type
        if isinstance(state, STANDING):
            self.standing = lane
        else:
            self.parked[lane] = None
            self.parked_workloads += lane.size
            if isinstance(state, RetryOnProgress):
                self.by_progress[lane] = None
                self._registration.set_progress(waits=True)
        self._registration.set_waiting(waits=True)
        if state.needs is None:
            self.by_any_return[lane] = None
            self._registration.set_any_return(waits=True)
        else:
            self._index_needs(lane)

    def _unindex(self, lane: Lane, state: LaneState) -> None:
        assert not isinstance(state, Ready)  # noqa: S101 narrows the type
        if isinstance(state, STANDING):
            self.standing = None
        else:
            del self.parked[lane]
            self.parked_workloads -= lane.size
            if isinstance(state, RetryOnProgress):
                del self.by_progress[lane]
                self._registration.set_progress(waits=bool(self.by_progress))
        self._registration.set_waiting(waits=bool(self.parked) or self.standing is not None)
        if state.needs is None:
            del self.by_any_return[lane]
            self._registration.set_any_return(waits=bool(self.by_any_return))
        else:
            self._unindex_needs(lane, state)

    def _index_needs(self, lane: Lane) -> None:
        state = lane.state
        assert not isinstance(state, Ready)  # noqa: S101 narrows the type
        # An earlier workload of the lane does not wait as the standing head does.
        head = state.head if isinstance(state, STANDING) else self.first_of(lane)
        if head is None or not state.needs:
            return
        lane.indexed_at = self.position_of(lane, head)
        self.indexed[lane] = None
        for cause, amount in state.needs:
            lanes = self.by_need.get(cause)
            if lanes is None:
                lanes = self.by_need[cause] = LanesByNeed()
            lanes.add(lane.indexed_at, amount, lane)
            self._registration.set_need(cause, lanes.least)

    def _unindex_needs(self, lane: Lane, state: LaneState) -> None:
        assert not isinstance(state, Ready)  # noqa: S101 narrows the type
        position, lane.indexed_at = lane.indexed_at, None
        if position is None:
            return
        del self.indexed[lane]
        for cause, _ in state.needs or ():
            lanes = self.by_need[cause]
            lanes.remove(position)
            if not lanes:
                del self.by_need[cause]
            self._registration.set_need(cause, lanes.least)

    def _index_needs_anew(self, lane: Lane) -> None:
        self._unindex_needs(lane, lane.state)
        if not isinstance(lane.state, Ready) and lane.state.needs is not None:
            self._index_needs(lane)

    # --- turns of LocalQueues ---------------------------------------------------------------------

    def go_by_usage(self, usage_of: Callable[[ObjectKey], PastUse] | None) -> bool:
        """Have LocalQueues take turns by past use, or no longer (None); whether that is a change."""
        changed = usage_of != self._usage_of
        self._usage_of = usage_of
        return changed

    def usage_changed(self, local_queue: ObjectKey) -> None:
        """Sort the lanes of a LocalQueue anew, whose past use changed."""
        if self._usage_of is None:
            return
        usage = self._usage_of(local_queue)
        for lane in self.by_local_queue.get(local_queue, ()):
            if lane.usage == usage:
                continue
            lane.usage = usage
            if lane.indexed_at is not None:
                self._index_needs_anew(lane)
            if not lane.is_parked:
                self._offer(lane)

    def usage_by(self, key: SchedulingKey) -> PastUse:
        """The past use of the LocalQueue of a scheduling key, where that counts."""
        if self._usage_of is None or key.local_queue is None:
            return NEVER_USED
        return self._usage_of(key.local_queue)

    # --- heaps ------------------------------------------------------------------------------------

    def _offer(self, lane: Lane) -> None:
        first = self.first_of(lane)
        if first is not None:
            heapq.heappush(self.offered, self.position_of(lane, first))

    def drop_if_empty(self, lane: Lane) -> None:
        """Forget a lane without workloads, unless it is parked or has a head in a cycle."""
        if lane.size or not isinstance(lane.state, Ready) or self.by_key.get(lane.key) is not lane:
            return
        del self.by_key[lane.key]
        if lane.key.local_queue is not None:
            of_queue = self.by_local_queue[lane.key.local_queue]
            del of_queue[lane]
            if not of_queue:
                del self.by_local_queue[lane.key.local_queue]

    def _compact(self, lane: Lane) -> None:
        """Keep heaps in proportion to the entries that count; a sorted list is a heap."""
        if len(lane.heads) > 2 * lane.size + _SLACK:
            lane.heads[:] = sorted({head for head in lane.heads if self._is_queued_at(head, lane)})
        if len(self.offered) > 2 * len(self.by_key) + _SLACK:
            others = ((each, self.first_of(each)) for each in self.by_key.values() if not each.is_parked)
            self.offered = sorted(self.position_of(each, head) for each, head in others if head is not None)

    def _is_queued_at(self, head: Position, lane: Lane) -> bool:
        pending = self._members.get(head.key)
        return (
            pending is not None
            and pending.lane is lane
            and not pending.is_in_cycle
            and pending.position == head
        )
