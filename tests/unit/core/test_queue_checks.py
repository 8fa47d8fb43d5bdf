"""The checks of a ClusterQueue's pending workloads detect damage."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from admitq.core.admission_fair_sharing import PastUsage
from admitq.core.violations import InvariantViolated
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.order import LatestPreemptor
from admitq.core.waiting.pending import new_pending
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.wait_states import QUEUED
from tests.unit.core.pending_workloads import (
    lane_of,
    name_of,
    park_head,
    pop,
    preempt_for_head,
    queue_of,
    retry_on_progress,
    workload,
)


def _change_position(queue: PendingQueue) -> None:
    queue.members[name_of("a")].position = new_pending(workload("a", 99)).position


def _change_key(queue: PendingQueue) -> None:
    queue.members[name_of("a")].workload = replace(workload("a", 1), has_closed_preemption_gate=True)


def _keep_preemptor(queue: PendingQueue) -> None:
    queue.positions.preemptor = LatestPreemptor(name_of("deleted"), 1)


def _forget_lane(queue: PendingQueue) -> None:
    queue.lanes.by_key.clear()


def _miscount_lane(queue: PendingQueue) -> None:
    lane_of(queue, "a").size += 1


def _miscount_local_queue(queue: PendingQueue) -> None:
    lane_of(queue, "a").size_by_local_queue.clear()


def _miscount_parked(queue: PendingQueue) -> None:
    queue.lanes.waiting.parked_workloads += 1


def _forget_parked(queue: PendingQueue) -> None:
    park_head(queue)
    queue.lanes.waiting.parked.clear()


def _forget_blocking(queue: PendingQueue) -> None:
    preempt_for_head(queue)
    queue.lanes.waiting.blocking = None


def _forget_any_return(queue: PendingQueue) -> None:
    park_head(queue)
    queue.lanes.waiting.by_any_return.clear()


def _forget_progress(queue: PendingQueue) -> None:
    pending = pop(queue)
    queue.requeue_waiting(pending, retry_on_progress(pending))
    queue.lanes.waiting.by_progress.clear()


def _unregister_need(queue: PendingQueue) -> None:
    park_head(queue, 5)
    queue.registration.needs.clear()


def _unregister_any_return(queue: PendingQueue) -> None:
    park_head(queue)
    queue.registration.waits_for_any_return = False


def _unregister_progress(queue: PendingQueue) -> None:
    queue.registration.waits_for_progress = True


def _forget_need(queue: PendingQueue) -> None:
    park_head(queue, 5)
    queue.lanes.waiting.by_need.clear()
    queue.registration.needs.clear()


def _forget_indexed_position(queue: PendingQueue) -> None:
    park_head(queue, 5)
    lane_of(queue, "a").indexed_at = None


def _clear_offered_lanes(queue: PendingQueue) -> None:
    queue.lanes.unparked_positions.clear()


def _queue_head_without_offering_its_lane(queue: PendingQueue) -> None:
    pending = pop(queue)
    pending.state = QUEUED


def _forget_emptied(queue: PendingQueue) -> None:
    park_head(queue)
    queue.remove(name_of("a"))
    queue.lanes.emptied.clear()


def _forget_local_queue(queue: PendingQueue) -> None:
    lane = lane_of(queue, "a")
    queue.lanes.by_local_queue[name_of("main")] = {lane: None}


def _change_past_usage(queue: PendingQueue) -> None:
    lane_of(queue, "a").past_usage = PastUsage(infinite=False, amount=Fraction(9))


def _replace_lane(queue: PendingQueue) -> None:
    lane = lane_of(queue, "a")
    queue.lanes.by_key[lane.key] = Lane(lane.key, size=1)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_change_position, "position of n/a"),
        (_change_key, "lane of n/a"),
        (_keep_preemptor, "the preemptor n/deleted does not wait"),
        (_forget_lane, "workloads in lanes that are not indexed"),
        (_replace_lane, "workloads of lane"),
        (_miscount_lane, "workloads of lane"),
        (_miscount_local_queue, "by LocalQueue"),
        (_miscount_parked, "workloads in parked lanes: is 1, should be 0"),
        (_forget_parked, "parked lanes"),
        (_forget_blocking, "blocking lanes"),
        (_forget_any_return, "lanes that wait for any return"),
        (_forget_progress, "lanes that wait for progress"),
        (_unregister_need, "registered needs"),
        (_unregister_any_return, "registered for any return"),
        (_unregister_progress, "registered for progress"),
        (_forget_need, "needs of"),
        (_forget_indexed_position, "indexed position of"),
        (_clear_offered_lanes, "has a head that no cycle would take"),
        (_queue_head_without_offering_its_lane, "workloads of lane"),
        (_forget_emptied, "is empty and would never be dropped"),
        (_forget_local_queue, "lanes by LocalQueue"),
        (_change_past_usage, "past usage of"),
    ],
)
def test_check_queue_detects_damage(damage: Callable[[PendingQueue], None], complaint: str) -> None:
    queue = queue_of(workload("a", 1))
    damage(queue)
    with pytest.raises(InvariantViolated, match=complaint):
        check_queue(queue)
