"""The pending workloads of one ClusterQueue: its head, and what the other workloads wait for.

Each workload is in one of three places: in the lane of its scheduling key, held back, or a head of the
running cycle. In a BestEffortFIFO ClusterQueue, the latest preemptor stays first until it is admitted, before
workloads of higher priority. So it gets the capacity that was freed for it.
"""

from collections.abc import Callable

from admitq.core.admission_fair_sharing import PastUsage
from admitq.core.model import ObjectKey, QueueingStrategy, Workload
from admitq.core.waiting.held_back import HeldBackWorkloads
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.lanes import Lanes
from admitq.core.waiting.order import LatestPreemptor, QueuePositions
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.scheduling_key import KeyRules, SchedulingKey
from admitq.core.waiting.transitions import Cause, HeldBack, WaitEvent
from admitq.core.waiting.wait_states import (
    CLUSTER_QUEUE_CHANGED,
    EVENT_INTO_LANE_STATE,
    HEAD_CHANGED,
    HOLDING_BACK,
    IN_CYCLE,
    NAMESPACE_SELECTED,
    NOMINATED,
    ORDER_CHANGED,
    PARKED,
    PROGRESS_MADE,
    QUEUE_RECONSIDERED,
    QUEUED,
    REQUESTS_CHANGED,
    REQUEUED,
    STRATEGY_CHANGED,
    WORKLOAD_CHANGED,
    Blocking,
    InCycle,
    InvalidWorkload,
    LaneState,
    QueueUnusable,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex


class PendingQueue:
    """The pending workloads of one ClusterQueue."""

    def __init__(
        self,
        strategy: QueueingStrategy,
        rules: KeyRules | None = None,
        registration: TreeRegistration | None = None,
        *,
        takes_head_by_need: bool = True,
    ) -> None:
        """Begin without workloads.

        Args:
            strategy: whether a head that does not fit blocks the workloads behind it.
            rules: the rules by which scheduling keys are computed.
            registration: how the ClusterQueue waits in its cohort tree; None without a tree, in tests.
            takes_head_by_need: as in ``Lanes``.
        """
        self.positions = QueuePositions(strategy)
        self.members: dict[ObjectKey, PendingEntry] = {}
        self.registration = registration or TreeRegistration("", {}, WakeIndex())
        self.lanes = Lanes(self.members, self.registration, takes_head_by_need=takes_head_by_need)
        self.held_back = HeldBackWorkloads(self.registration)
        self._rules = rules or KeyRules()

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def inadmissible(self) -> int:
        """The number of workloads that are in parked lanes or held back."""
        return self.lanes.waiting.parked_workloads + len(self.held_back)

    @property
    def blocking_head(self) -> PendingEntry | None:
        """The blocking head; None without one."""
        state = self.blocking_state
        return None if state is None else self.members[state.head.key]

    @property
    def blocking_state(self) -> Blocking | None:
        """The wait state of the blocking head; None without one."""
        return self.lanes.blocking_state

    @property
    def is_waiting(self) -> bool:
        """Whether a change of the cohort tree could let a cycle take a workload that waits."""
        return self.registration.has_waiting_lanes or self.registration.holds_back_for_queue

    # --- in and out -------------------------------------------------------------------------------

    def enter(self, pending: PendingEntry, event: WaitEvent) -> Lane:
        """Queue a workload in the lane of its scheduling key.

        Args:
            pending: a workload that arrives, is held back, or was a head of a cycle.
            event: the reason, as a row of the table of single workloads.
        """
        self.members[pending.workload.key] = pending
        self._leave_held_back(pending)
        lane = pending.lane
        if lane is None:
            lane = pending.lane = self.lanes.lane_of(self.key_of(pending.workload))
        pending.change_state(event, QUEUED)
        self.lanes.add(pending)
        return lane

    def hold_back(self, pending: PendingEntry, state: HeldBack) -> None:
        """Hold a workload back out of the lanes."""
        self.members[pending.workload.key] = pending
        self._leave_held_back(pending)
        self._leave_lane(pending)
        pending.change_state(HOLDING_BACK[type(state)].begins, state)
        self.held_back.add(pending, state)

    def remove(self, key: ObjectKey) -> None:
        """Forget a workload."""
        pending = self.members.pop(key)
        self._leave_held_back(pending)
        self._leave_lane(pending)
        if self.positions.preemptor is not None and self.positions.preemptor.key == key:
            self.positions.preemptor = None

    def update(self, pending: PendingEntry, workload: Workload) -> None:
        """Replace a workload by its changed value.

        A workload in a parked lane stays parked while its scheduling key and its position are the same. The
        blocking head is evaluated again. So is a workload that is held back by a state that ends with any
        change.
        """
        preemptor = self.positions.preemptor
        if (
            preemptor is not None
            and preemptor.key == workload.key
            and not self.positions.is_preemptor(workload)
        ):
            self.positions.preemptor = None
        if workload.generation != pending.workload.generation:
            pending.preempted_uids = frozenset()
        position = self.positions.position_of(workload)
        former_key = self.key_of(pending.workload) if pending.lane is None else pending.lane.key
        is_same_key = self.key_of(workload) == former_key
        ends_with_change = pending.is_held_back and HOLDING_BACK[type(pending.state)].ends_with_change
        is_evaluated_again = ends_with_change or self._is_blocking(pending)
        if not is_same_key:
            pending.scan = None
        if is_same_key and position == pending.position and not is_evaluated_again:
            pending.workload = workload
            return
        self._leave_lane(pending)
        pending.workload, pending.position = workload, position
        self.enter(pending, WORKLOAD_CHANGED)

    def update_requests(self, pending: PendingEntry) -> None:
        """Evaluate a workload again if its requests, or the quota that it takes over, may have changed.

        A blocking head is evaluated again in any case: a LimitRange may have refused it, and other bounds may
        allow the same requests.
        """
        if isinstance(pending.state, InvalidWorkload):
            self.enter(pending, REQUESTS_CHANGED)
        elif pending.lane is not None:
            is_same_key = self.key_of(pending.workload) == pending.lane.key
            if is_same_key and not self._is_blocking(pending):
                return
            self._leave_lane(pending)
            if not is_same_key:
                pending.scan = None
            self.enter(pending, REQUESTS_CHANGED)

    def head(self) -> PendingEntry | None:
        """Return the workload that the next cycle takes as the head; None if there is none."""
        return self.lanes.head()

    def pop(self) -> PendingEntry | None:
        """Take the head into a cycle."""
        pending = self.lanes.head()
        if pending is not None:
            self.lanes.take_head(pending)
        return pending

    # --- results of a cycle -----------------------------------------------------------------------

    def requeue(self, pending: PendingEntry) -> None:
        """Queue a head again, so that the next cycle evaluates it."""
        self.enter(pending, REQUEUED)

    def requeue_waiting(self, pending: PendingEntry, state: LaneState) -> Lane:
        """Queue a head again, and give its lane a wait state."""
        lane = self.enter(pending, REQUEUED)
        self.lanes.change_state(lane, EVENT_INTO_LANE_STATE[type(state)], state)
        return lane

    def set_preemptor(self, pending: PendingEntry) -> None:
        """Make a head that waits for its targets to leave the latest preemptor."""
        former_preemptor = (
            None if self.positions.preemptor is None else self.members[self.positions.preemptor.key]
        )
        self.positions.preemptor = LatestPreemptor(pending.workload.key, pending.workload.generation)
        if former_preemptor is not None:
            self._sort_again(former_preemptor)
        self._sort_again(pending)

    def restore_preemptor(self, preemptor: LatestPreemptor) -> None:
        """Restore the latest preemptor of a dump."""
        self.positions.preemptor = preemptor
        self._sort_again(self.members[preemptor.key])

    def restore_held_back(self, pending: PendingEntry, state: HeldBack | None) -> None:
        """Restore from a dump whether a workload is held back, and in which state."""
        if pending.is_held_back:
            self.enter(pending, WORKLOAD_CHANGED)
        if state is not None:
            self._leave_lane(pending)
            if InCycle in HOLDING_BACK[type(state)].begins.next_kind:
                pending.change_state(NOMINATED, IN_CYCLE)
            self.hold_back(pending, state)

    def restore_lane(self, key: SchedulingKey, state: LaneState) -> None:
        """Restore the wait state of a lane from a dump."""
        lane = self.lanes.lane_of(key)
        self.lanes.change_state(lane, EVENT_INTO_LANE_STATE[type(state)], state)
        if isinstance(state, PARKED):
            self.lanes.note_emptied(lane)

    # --- what ends waiting ------------------------------------------------------------------------

    def end_waiting(self, event: WaitEvent, cause: Cause | None = None) -> None:
        """End the waiting of the lanes that an event concerns.

        Args:
            event: what happened, as a row of the table of lanes.
            cause: what changed, if a constraint reports the event.
        """
        self.lanes.end_waiting(event, cause)
        if event is not PROGRESS_MADE:
            self._enter_all(self.held_back.of_kind(QueueUnusable), QUEUE_RECONSIDERED)

    def end_blocking(self, event: WaitEvent) -> None:
        """End the waiting of the blocking head, if there is one."""
        self.lanes.end_blocking(event)

    def namespace_selected(self, namespace: str) -> None:
        """Queue the workloads again that were held back because this namespace was not selected."""
        self._enter_all(self.held_back.of_namespace(namespace), NAMESPACE_SELECTED)

    def change_strategy(self, strategy: QueueingStrategy) -> None:
        """Change the queueing strategy, and evaluate all waiting workloads by the new one."""
        if strategy is self.positions.strategy:
            return
        self.positions.strategy = strategy
        self.end_waiting(CLUSTER_QUEUE_CHANGED)
        for kind in STRATEGY_CHANGED.next_kind:
            self._enter_all(self.held_back.of_kind(kind), STRATEGY_CHANGED)
        if self.positions.preemptor is not None:
            self._sort_again(self.members[self.positions.preemptor.key])

    def order_by_past_usage(self, past_usage_of: Callable[[ObjectKey], PastUsage] | None) -> None:
        """Order LocalQueues by past usage, or no longer (None)."""
        if not self.lanes.order_by_past_usage(past_usage_of):
            return
        for pending in list(self.members.values()):
            if pending.lane is not None:
                self._leave_lane(pending)
                self.enter(pending, ORDER_CHANGED)

    def forget_refusals(self) -> None:
        """Forget which refusals were reported: the statuses of the workloads no longer show them."""
        for pending in self.members.values():
            pending.refusal = None

    # --- keys and positions -----------------------------------------------------------------------

    def key_of(self, workload: Workload) -> SchedulingKey:
        """Return the present scheduling key of a workload in this ClusterQueue."""
        return self._rules.key_of(workload, by_local_queue=self.lanes.is_ordered_by_past_usage)

    def _sort_again(self, pending: PendingEntry) -> None:
        position = self.positions.position_of(pending.workload)
        if position == pending.position:
            return
        if pending.lane is None or pending.is_in_cycle:
            pending.position = position
            return
        self._leave_lane(pending)
        pending.position = position
        self.enter(pending, ORDER_CHANGED)

    def _is_blocking(self, pending: PendingEntry) -> bool:
        state = self.blocking_state
        return state is not None and state.head == pending.position

    # --- internals --------------------------------------------------------------------------------

    def _enter_all(self, entries: list[PendingEntry], event: WaitEvent) -> None:
        for pending in entries:
            self.enter(pending, event)

    def _leave_lane(self, pending: PendingEntry) -> None:
        lane = pending.lane
        if lane is None:
            return
        if self._is_blocking(pending):
            self.end_blocking(HEAD_CHANGED)
        if pending.is_in_cycle:
            pending.lane = None
            self.lanes.drop_if_empty(lane)
        else:
            self.lanes.remove(pending)

    def _leave_held_back(self, pending: PendingEntry) -> None:
        if pending.is_held_back:
            self.held_back.remove(pending)
