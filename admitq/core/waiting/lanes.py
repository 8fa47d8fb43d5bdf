"""The lanes of one ClusterQueue, in order, and their changes of state.

Removing a workload leaves its entries in the heaps. A heap drops an outdated entry when the entry is at the
top.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Final

from admitq.core.admission_fair_sharing import NEVER_USED, PastUsage
from admitq.core.model import ObjectKey
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.order import LanePosition, Position, lane_position
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.scheduling_key import SchedulingKey, local_queue_of
from admitq.core.waiting.transitions import Cause, WaitEvent, check_transition
from admitq.core.waiting.wait_states import (
    BLOCKING,
    EARLIER_WORKLOAD_QUEUED,
    HEAD_OVERTAKEN,
    IN_CYCLE,
    LANE_EMPTIED,
    NEED_MET,
    NOMINATED,
    PARKED,
    READY,
    Blocking,
    LaneState,
    Ready,
)
from admitq.core.waiting.waiting_lanes import ONE_PASS_FROM, WaitingLanes
from admitq.core.waiting.wake_index import TreeRegistration

_SLACK: Final = 64
"""A heap is rebuilt when its outdated entries outnumber its valid entries by more than this number."""


class Lanes:
    """The lanes of one ClusterQueue."""

    def __init__(
        self,
        members: Mapping[ObjectKey, PendingEntry],
        registration: TreeRegistration,
        *,
        takes_head_by_need: bool,
    ) -> None:
        """Begin without lanes.

        Args:
            members: all pending workloads of the ClusterQueue.
            registration: how the ClusterQueue waits in its cohort tree.
            takes_head_by_need: whether a lane with a met need may give the head. If not, the next batch of
                the cohort tree ends the waiting of the lane.
        """
        self.by_key: dict[SchedulingKey, Lane] = {}
        self._members = members
        self.waiting = WaitingLanes(registration, self._position_of_needs)
        self._takes_head_by_need = takes_head_by_need
        self._past_usage_of_queue: Callable[[ObjectKey], PastUsage] | None = None
        self.unparked_positions: list[LanePosition] = []
        """A heap of the positions of lanes that are not parked."""
        self.emptied: dict[Lane, None] = {}
        """Parked lanes without workloads; it may also have others."""
        self.by_local_queue: dict[ObjectKey, dict[Lane, None]] = {}
        """By LocalQueue, if the ClusterQueue orders LocalQueues by past usage."""

    @property
    def is_ordered_by_past_usage(self) -> bool:
        """Whether the ClusterQueue orders LocalQueues by past usage."""
        return self._past_usage_of_queue is not None

    @property
    def blocking_state(self) -> Blocking | None:
        """The wait state of the blocking head; None without a blocking head."""
        lane = self.waiting.blocking
        state = None if lane is None else lane.state
        return state if isinstance(state, BLOCKING) else None

    # --- workloads in and out ---------------------------------------------------------------------

    def lane_of(self, key: SchedulingKey) -> Lane:
        """Return the lane of a scheduling key; create it if there is none."""
        lane = self.by_key.get(key)
        if lane is None:
            lane = self.by_key[key] = Lane(key, self.past_usage_of(key))
            if key.local_queue is not None:
                self.by_local_queue.setdefault(key.local_queue, {})[lane] = None
        return lane

    def add(self, pending: PendingEntry) -> None:
        """Queue a workload in its lane."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        lane.count_queued(local_queue_of(pending.workload), 1)
        heapq.heappush(lane.positions, pending.position)
        state = lane.state
        if isinstance(state, PARKED):
            self.waiting.parked_workloads += 1
            if pending.workload.queued_at < state.refused_at:
                self.change_state(lane, EARLIER_WORKLOAD_QUEUED, READY)
            elif lane.positions[0] == pending.position:
                self.waiting.reindex_needs(lane)
        elif lane.positions[0] == pending.position:
            heapq.heappush(self.unparked_positions, self.position_of(lane, pending.position))
        self._compact(lane)

    def remove(self, pending: PendingEntry) -> None:
        """Take a queued workload out of its lane."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        pending.lane = None
        lane.count_queued(local_queue_of(pending.workload), -1)
        if lane.is_parked:
            self.waiting.parked_workloads -= 1
            if not lane.size:
                self.emptied[lane] = None
            if lane.indexed_at is not None and lane.indexed_at[2] == pending.position:
                self.waiting.reindex_needs(lane)
        elif lane.positions[0] == pending.position:
            self._push_position(lane)
        self.drop_if_empty(lane)

    def take_head(self, pending: PendingEntry) -> None:
        """Move the head of the ClusterQueue, which ``head`` returned, from its lane into a cycle."""
        lane = pending.lane
        assert lane is not None  # noqa: S101 narrows the type
        if isinstance(lane.state, BLOCKING) and lane.state.head != pending.position:
            self.change_state(lane, HEAD_OVERTAKEN, READY)
        elif not isinstance(lane.state, Ready):
            self.change_state(lane, NEED_MET, READY)
        lane.count_queued(local_queue_of(pending.workload), -1)
        # The head is at the top of both heaps. Its entries are outdated from now on.
        heapq.heappop(self.unparked_positions)
        heapq.heappop(lane.positions)
        # The heap may have the position twice. The state shows that the workload is no longer queued.
        pending.change_state(NOMINATED, IN_CYCLE)
        self._push_position(lane)

    def head(self) -> PendingEntry | None:
        """Return the workload that the next cycle takes as the head; None if every lane waits."""
        first, blocking = self._first_position(), self.blocking_state
        is_blocked = first is not None and blocking is not None and first[2] == blocking.head
        if self._takes_head_by_need:
            with_need = self.waiting.first_with_available_need()
            if with_need is not None and (first is None or with_need <= first):
                first, is_blocked = with_need, False
        return None if first is None or is_blocked else self._members[first[2].key]

    def _first_position(self) -> LanePosition | None:
        """Return the first position of a lane that is not parked."""
        while self.unparked_positions:
            position = self.unparked_positions[0]
            _, past_usage, head = position
            pending = self._members.get(head.key)
            if pending is not None and pending.position == head:
                lane = pending.lane
                if (
                    lane is not None
                    and not isinstance(lane.state, PARKED)
                    and lane.past_usage == past_usage
                    and self.first_of(lane) == head
                ):
                    return position
            heapq.heappop(self.unparked_positions)
        return None

    @staticmethod
    def position_of(lane: Lane, head: Position) -> LanePosition:
        """Return the position of a lane among others, with this head."""
        return lane_position(lane.past_usage, head)

    def first_of(self, lane: Lane) -> Position | None:
        """Return the position of the first workload that is queued in a lane."""
        # This is ``_is_queued_at``, inlined: the loop runs several times for every head.
        positions, members = lane.positions, self._members
        while positions:
            position = positions[0]
            pending = members.get(position.key)
            if (
                pending is not None
                and pending.lane is lane
                and not pending.is_in_cycle
                and (pending.position is position or pending.position == position)
            ):
                return position
            heapq.heappop(positions)
        return None

    # --- wait states ------------------------------------------------------------------------------

    def change_state(self, lane: Lane, event: WaitEvent, state: LaneState) -> None:
        """Give a lane its next wait state, and index the lane by what ends this state.

        Raises:
            ImpossibleTransition: the table of wait states has no such transition.
        """
        was_parked = lane.is_parked
        check_transition(event, lane.state, state)
        if not isinstance(lane.state, Ready):
            self.waiting.remove(lane)
        lane.state = state
        if not isinstance(state, Ready):
            self.waiting.add(lane)
        if was_parked and isinstance(state, Ready):
            self._push_position(lane)
            self.drop_if_empty(lane)

    def end_waiting(self, event: WaitEvent, cause: Cause | None = None) -> None:
        """End the waiting of all lanes that an event concerns: cycles take their workloads again.

        Args:
            event: what happened, as a row of the table of lanes.
            cause: what changed, if a constraint reports the event.

        Raises:
            ImpossibleTransition: the table of wait states has no such transition.
        """
        lanes = self.waiting.find_concerned(event, cause)
        # One event may end the waiting of tens of thousands of lanes, so this loop must be fast.
        parked = [lane for lane in lanes if isinstance(lane.state, PARKED)]
        self.waiting.remove_parked(parked)
        for lane in parked:
            lane.state = check_transition(event, lane.state, READY)
            if not lane.size:
                self.drop_if_empty(lane)
        self._push_positions(parked)
        if len(parked) < len(lanes):
            self.end_blocking(event)

    def end_blocking(self, event: WaitEvent) -> None:
        """End the waiting of the blocking head, if there is one."""
        if self.waiting.blocking is not None:
            self.change_state(self.waiting.blocking, event, READY)

    def drop_emptied(self) -> None:
        """Forget parked lanes without workloads."""
        for lane in self.emptied:
            if lane.is_parked and not lane.size:
                self.change_state(lane, LANE_EMPTIED, READY)
        self.emptied.clear()

    def note_emptied(self, lane: Lane) -> None:
        """Have the next ``drop_emptied`` forget a parked lane, if the lane has no workload by then."""
        self.emptied[lane] = None

    def _position_of_needs(self, lane: Lane) -> LanePosition | None:
        # Workloads of the lane that come before the blocking head do not wait for its needs.
        head = lane.state.head if isinstance(lane.state, BLOCKING) else self.first_of(lane)
        return None if head is None else self.position_of(lane, head)

    # --- order of LocalQueues ---------------------------------------------------------------------

    def order_by_past_usage(self, past_usage_of: Callable[[ObjectKey], PastUsage] | None) -> bool:
        """Order LocalQueues by past usage, or no longer (None). Return whether this is a change."""
        changed = past_usage_of != self._past_usage_of_queue
        self._past_usage_of_queue = past_usage_of
        return changed

    def past_usage_changed(self, local_queue: ObjectKey) -> None:
        """Sort the lanes of a LocalQueue again after its past usage changed."""
        if self._past_usage_of_queue is None:
            return
        past_usage = self._past_usage_of_queue(local_queue)
        for lane in self.by_local_queue.get(local_queue, ()):
            if lane.past_usage == past_usage:
                continue
            lane.past_usage = past_usage
            if lane.indexed_at is not None:
                self.waiting.reindex_needs(lane)
            if not lane.is_parked:
                self._push_position(lane)

    def past_usage_of(self, key: SchedulingKey) -> PastUsage:
        """Return the past usage of the LocalQueue of a scheduling key, if LocalQueues are ordered by it."""
        return NEVER_USED if key.local_queue is None else self.past_usage_of_local_queue(key.local_queue)

    def past_usage_of_local_queue(self, local_queue: ObjectKey) -> PastUsage:
        """Return the past usage of a LocalQueue, if LocalQueues are ordered by it."""
        return NEVER_USED if self._past_usage_of_queue is None else self._past_usage_of_queue(local_queue)

    # --- heaps ------------------------------------------------------------------------------------

    def _push_position(self, lane: Lane) -> None:
        first = self.first_of(lane)
        if first is not None:
            heapq.heappush(self.unparked_positions, self.position_of(lane, first))

    def _push_positions(self, lanes: list[Lane]) -> None:
        if len(lanes) * ONE_PASS_FROM < len(self.unparked_positions):
            for lane in lanes:
                self._push_position(lane)
            return
        first_of, position_of = self.first_of, self.position_of
        self.unparked_positions += [
            position_of(lane, first) for lane in lanes if (first := first_of(lane)) is not None
        ]
        heapq.heapify(self.unparked_positions)

    def drop_if_empty(self, lane: Lane) -> None:
        """Forget a lane without workloads, unless it is parked or has a head in a cycle."""
        if lane.size or not isinstance(lane.state, Ready) or self.by_key.get(lane.key) is not lane:
            return
        del self.by_key[lane.key]
        if lane.key.local_queue is not None:
            lanes = self.by_local_queue[lane.key.local_queue]
            del lanes[lane]
            if not lanes:
                del self.by_local_queue[lane.key.local_queue]

    def _compact(self, lane: Lane) -> None:
        """Rebuild heaps that have too many outdated entries. A sorted list is a heap."""
        if len(lane.positions) > 2 * lane.size + _SLACK:
            lane.positions[:] = sorted(
                {position for position in lane.positions if self._is_queued_at(position, lane)}
            )
        if len(self.unparked_positions) > 2 * len(self.by_key) + _SLACK:
            self.unparked_positions.clear()
            self._push_positions([lane for lane in self.by_key.values() if not lane.is_parked])

    def _is_queued_at(self, position: Position, lane: Lane) -> bool:
        pending = self._members.get(position.key)
        return (
            pending is not None
            and pending.lane is lane
            and not pending.is_in_cycle
            and pending.position == position
        )
