"""Check the counts and indexes of a ``PendingQueue`` against its workloads and lanes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from admitq.core.model import ObjectKey
from admitq.core.violations import InvariantViolated, expect
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.scheduling_key import local_queue_of
from admitq.core.waiting.transitions import Cause
from admitq.core.waiting.wait_states import BLOCKING, Ready, RetryOnProgress


def check_queue(queue: PendingQueue) -> None:
    """Check all counts and indexes. Slow.

    Raises:
        InvariantViolated: workloads, lanes and indexes do not agree.
    """
    _check_members(queue)
    lanes = queue.lanes
    parked = {lane for lane in lanes.by_key.values() if lane.is_parked}
    waiting = {lane for lane in lanes.by_key.values() if not isinstance(lane.state, Ready)}
    any_return = {lane for lane in waiting if not isinstance(lane.state, Ready) and lane.state.needs is None}
    progress = {lane for lane in parked if isinstance(lane.state, RetryOnProgress)}
    by_cause = {
        (cause, lane) for lane in waiting if not isinstance(lane.state, Ready) for cause in lane.state.causes
    }
    local_queues = {
        lane: key.local_queue for key, lane in lanes.by_key.items() if key.local_queue is not None
    }
    least = {pair: blocks.bound for pair, blocks in lanes.waiting.by_need.items()}
    registration = queue.registration
    for what, actual, expected in (
        ("parked lanes", set(lanes.waiting.parked), parked),
        ("workloads in parked lanes", lanes.waiting.parked_workloads, sum(lane.size for lane in parked)),
        (
            "blocking lanes",
            {lanes.waiting.blocking} - {None},
            {lane for lane in waiting if _is_blocking(lane)},
        ),
        ("lanes that wait for any return", set(lanes.waiting.by_any_return), any_return),
        ("lanes by cause", _causes(lanes.waiting.by_cause), by_cause),
        ("lanes that wait for progress", set(lanes.waiting.by_progress), progress),
        ("lanes by LocalQueue", _local_queues(queue), local_queues),
        ("registered needs", registration.needs, least),
        ("registered for any return", registration.waits_for_any_return, bool(any_return)),
        ("registered as waiting", registration.has_waiting_lanes, bool(waiting)),
        ("registered for progress", registration.waits_for_progress, bool(progress)),
    ):
        expect(what, actual, expected)
    for lane in lanes.by_key.values():
        _check_lane(queue, lane)


def _is_blocking(lane: Lane) -> bool:
    return isinstance(lane.state, BLOCKING)


def _causes(by_cause: Mapping[Cause, Iterable[Lane]]) -> set[tuple[Cause, Lane]]:
    return {(cause, lane) for cause, lanes in by_cause.items() for lane in lanes}


def _local_queues(queue: PendingQueue) -> dict[Lane, Any]:
    return {lane: key for key, lanes in queue.lanes.by_local_queue.items() for lane in lanes}


def _check_members(queue: PendingQueue) -> None:
    sizes = defaultdict[int, Counter[ObjectKey]](Counter)
    for pending in queue.members.values():
        if pending.lane is not None:
            sizes[id(pending.lane)][local_queue_of(pending.workload)] += 1
    for lane in queue.lanes.by_key.values():
        by_local_queue = sizes.pop(id(lane), Counter[ObjectKey]())
        expect("workloads of lane {}", lane.size, by_local_queue.total(), lane.key)
        expect("workloads of lane {} by LocalQueue", lane.size_by_local_queue, by_local_queue, lane.key)
    expect("workloads in lanes that are not indexed", dict(sizes), {})
    for key, pending in queue.members.items():
        expect("position of {}", pending.position, queue.positions.position_of(pending.workload), key)
        if pending.lane is not None:
            expect("lane of {}", pending.lane.key, queue.key_of(pending.workload), key)
    preemptor = queue.positions.preemptor
    if preemptor is not None and preemptor.key not in queue.members:
        raise InvariantViolated(f"the preemptor {preemptor.key} does not wait")


def _check_lane(queue: PendingQueue, lane: Lane) -> None:
    lanes, first = queue.lanes, queue.lanes.first_of(lane)
    expect("key of the lane", lanes.by_key[lane.key], lane)
    if lane.size:
        # The past usage of an empty lane is updated when its LocalQueue names this ClusterQueue again.
        expect("past usage of {}", lane.past_usage, lanes.past_usage_of(lane.key), lane.key)
    indexed = {
        (pair, entry.bound)
        for pair, lanes_by_need in lanes.waiting.by_need.items()
        for entry in lanes_by_need
        if entry.item is lane
    }
    position = None if first is None else lanes.position_of(lane, first)
    head = lane.state.head if isinstance(lane.state, BLOCKING) else first
    needs: Any = () if isinstance(lane.state, Ready) or head is None else lane.state.needs or ()
    expected = None if head is None or not needs else lanes.position_of(lane, head)
    expect("needs of {}", indexed, set(needs), lane.key)
    expect("indexed position of {}", lane.indexed_at, expected, lane.key)
    if lane.is_parked:
        if not lane.size and lane not in lanes.emptied:
            raise InvariantViolated(f"lane {lane.key} is empty and would never be dropped")
    elif position is not None and position not in lanes.unparked_positions:
        raise InvariantViolated(f"lane {lane.key} has a head that no cycle would take")
