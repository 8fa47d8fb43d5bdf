"""The waiting lanes of one ClusterQueue, indexed by what ends their waiting.

``TreeRegistration`` has the summary of these lanes that the index of the cohort tree uses.
"""

from collections.abc import Callable
from functools import partial
from operator import ge
from typing import Final

from admitq.core.amounts import FlavorResource
from admitq.core.sorted_blocks import SortedBlocks
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.order import LanePosition
from admitq.core.waiting.transitions import Cause, WaitEvent
from admitq.core.waiting.wait_states import (
    BLOCKING,
    PROGRESS_MADE,
    QUOTA_RETURNED,
    Ready,
    RetryOnProgress,
)
from admitq.core.waiting.wake_index import TreeRegistration

ONE_PASS_FROM: Final = 16
"""If more than one in this many entries is concerned, one pass through all entries costs less than to look
each of them up."""


class WaitingLanes:
    """The lanes of one ClusterQueue in another state than ``Ready``.

    Args:
        registration: how the ClusterQueue waits in its cohort tree.
        position_of: returns the position under which the needs of a lane are indexed: the position of its
            blocking head, or else of its first workload. None if the lane has no workload.
    """

    def __init__(
        self, registration: TreeRegistration, position_of: Callable[[Lane], LanePosition | None]
    ) -> None:
        self.parked: dict[Lane, None] = {}
        self.parked_workloads = 0
        """How many workloads are in parked lanes."""
        self.blocking: Lane | None = None
        """The lane of the blocking head."""
        self.by_any_return: dict[Lane, None] = {}
        self.by_progress: dict[Lane, None] = {}
        self.by_cause: dict[Cause, dict[Lane, None]] = {}
        """Lanes that a constraint other than quota refused."""
        self.by_need: dict[FlavorResource, SortedBlocks[LanePosition, Lane, int]] = {}
        """Lanes with the amounts that they need, by (flavor, resource). The bound is the least amount."""
        self.indexed: dict[Lane, None] = {}
        """Lanes with needs. Their refusals state how much is missing."""
        self._registration = registration
        self._position_of = position_of

    def find_concerned(self, event: WaitEvent, cause: Cause | None = None) -> list[Lane]:
        """Return the lanes with a wait state that an event of a tree, ClusterQueue or constraint ends."""
        if cause is not None:
            return list(self.by_cause.get(cause, ()))
        if event is QUOTA_RETURNED:
            return list(self.by_any_return)
        if event is PROGRESS_MADE:
            return list(self.by_progress)
        return [*self.parked, *(() if self.blocking is None else (self.blocking,))]

    def first_with_available_need(self) -> LanePosition | None:
        """Return the position of the first lane with a need that is met now; None without such a lane."""
        first: LanePosition | None = None
        for pair, lanes in self.by_need.items():
            entry = lanes.first(partial(ge, self._registration.available(pair)))
            if entry is not None and (first is None or entry.key < first):
                first = entry.key
        return first

    # --- lanes in and out -------------------------------------------------------------------------

    def add(self, lane: Lane) -> None:
        """Index a lane by its present state."""
        state = lane.state
        assert not isinstance(state, Ready)  # noqa: S101 narrows the type
        if isinstance(state, BLOCKING):
            self.blocking = lane
        else:
            self.parked[lane] = None
            self.parked_workloads += lane.size
            if isinstance(state, RetryOnProgress):
                self.by_progress[lane] = None
        for cause in state.causes:
            self.by_cause.setdefault(cause, {})[lane] = None
        if state.needs is None:
            self.by_any_return[lane] = None
        else:
            self._index_needs(lane)
        self._register()

    def remove(self, lane: Lane) -> None:
        """Remove a lane that still has the state by which it was indexed."""
        if isinstance(lane.state, BLOCKING):
            self.blocking = None
        else:
            self._remove_parked(lane)
        self._remove_any_return_and_causes(lane)
        self._unindex_needs(lane)
        self._register()

    def remove_parked(self, lanes: list[Lane]) -> None:
        """Remove parked lanes that still have the states by which they were indexed."""
        self._unindex_needs_of(lanes)
        for lane in lanes:
            self._remove_parked(lane)
            self._remove_any_return_and_causes(lane)
        self._register()

    def _remove_parked(self, lane: Lane) -> None:
        del self.parked[lane]
        self.parked_workloads -= lane.size
        self.by_progress.pop(lane, None)

    def _remove_any_return_and_causes(self, lane: Lane) -> None:
        self.by_any_return.pop(lane, None)
        for cause in () if isinstance(lane.state, Ready) else lane.state.causes:
            lanes = self.by_cause[cause]
            del lanes[lane]
            if not lanes:
                del self.by_cause[cause]

    def _register(self) -> None:
        registration = self._registration
        registration.set_waiting(waits=bool(self.parked) or self.blocking is not None)
        registration.set_any_return(waits=bool(self.by_any_return))
        registration.set_progress(waits=bool(self.by_progress))

    # --- needs ------------------------------------------------------------------------------------

    def reindex_needs(self, lane: Lane) -> None:
        """Index the needs of a lane again, because its position or its first workload changed."""
        self._unindex_needs(lane)
        self._index_needs(lane)

    def _index_needs(self, lane: Lane) -> None:
        needs = () if isinstance(lane.state, Ready) else lane.state.needs
        position = self._position_of(lane) if needs else None
        if not needs or position is None:
            return
        lane.indexed_at = position
        self.indexed[lane] = None
        for pair, amount in needs:
            lanes = self.by_need.get(pair)
            if lanes is None:
                lanes = self.by_need[pair] = SortedBlocks(min)
            lanes.add(position, lane, amount)
            self._registration.set_need(pair, lanes.bound)

    def _unindex_needs(self, lane: Lane) -> None:
        position, lane.indexed_at = lane.indexed_at, None
        if position is None or isinstance(lane.state, Ready):
            return
        del self.indexed[lane]
        for pair, _ in lane.state.needs or ():
            self.by_need[pair].remove(position)
            self._need_removed(pair)

    def _unindex_needs_of(self, lanes: list[Lane]) -> None:
        indexed = [lane for lane in lanes if lane.indexed_at is not None]
        if len(indexed) * ONE_PASS_FROM < len(self.indexed):
            for lane in indexed:
                self._unindex_needs(lane)
            return
        for lane in indexed:
            lane.indexed_at = None
            del self.indexed[lane]
        for pair in list(self.by_need):
            self.by_need[pair].keep(self.indexed)
            self._need_removed(pair)

    def _need_removed(self, pair: FlavorResource) -> None:
        least = self.by_need[pair].bound
        if least is None:
            del self.by_need[pair]
        self._registration.set_need(pair, least)
