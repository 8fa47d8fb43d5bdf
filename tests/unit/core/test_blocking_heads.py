"""Blocking heads of a ClusterQueue: how a head becomes one, and what ends it."""

from dataclasses import replace

import pytest

from admitq.core.model import QueueingStrategy
from admitq.core.waiting.order import LatestPreemptor
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.transitions import ImpossibleTransition
from admitq.core.waiting.wait_states import (
    HEAD_OVERTAKEN,
    PROGRESS_MADE,
    QUOTA_RETURNED,
    TREE_EDITED,
    FirstOfStrictQueue,
    InvalidWorkload,
    LaneState,
    LostInCycle,
    WaitingForPreemption,
)
from tests.unit.core.pending_workloads import (
    HUGE,
    LARGE,
    Quota,
    block_with_head,
    drain,
    enter,
    hold_back,
    lane_of,
    name_of,
    needs,
    park_head,
    pop,
    preempt_for_head,
    queue_of,
    retry_on_progress,
    waiting_for_quota,
    workload,
)


def test_preemptor_stays_the_head_before_urgent_workloads() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2))
    pending = preempt_for_head(queue)
    enter(queue, workload("urgent", 3, priority=9))
    assert queue.head() is None
    assert (queue.blocking_head, queue.is_waiting) == (pending, True)
    queue.end_waiting(TREE_EDITED)
    assert queue.blocking_head is None
    assert drain(queue) == ["a", "urgent", "b"]
    assert queue.positions.preemptor is None


def test_latest_preemptor_replaces_former_one() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2, LARGE), workload("c", 3))
    first = pop(queue)
    queue.set_preemptor(first)
    queue.requeue_waiting(first, waiting_for_quota(first))
    second = pop(queue)
    assert queue.positions.is_preemptor(first.workload)
    queue.set_preemptor(second)
    queue.requeue(second)
    check_queue(queue)
    assert [queue.positions.is_preemptor(each.workload) for each in (first, second)] == [False, True]
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["b", "a", "c"]


def test_preemptor_with_new_generation_is_no_longer_the_latest_preemptor() -> None:
    queue = queue_of(workload("a", 9), workload("b", 2))
    queue.remove(name_of("b"))
    pending = pop(queue)
    queue.set_preemptor(pending)
    queue.requeue(pending)
    enter(queue, workload("b", 2))
    queue.update(pending, replace(pending.workload, generation=2))
    check_queue(queue)
    assert queue.positions.preemptor is None
    assert drain(queue) == ["b", "a"]


def test_preemptor_that_is_held_back_loses_its_position_to_a_later_one() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    first = pop(queue)
    queue.set_preemptor(first)
    queue.hold_back(first, InvalidWorkload())
    second = pop(queue)
    queue.set_preemptor(second)
    queue.requeue(second)
    check_queue(queue)
    queue.update_requests(first)
    assert drain(queue) == ["b", "a"]


def test_preemptor_of_a_strict_queue_is_not_first_until_the_strategy_changes() -> None:
    queue = queue_of(workload("a", 9), workload("b", 10), strict=True)
    preempt_for_head(queue)
    enter(queue, workload("early", 1))
    assert queue.head() is queue.members[name_of("early")]
    queue.change_strategy(QueueingStrategy.BEST_EFFORT_FIFO)
    check_queue(queue)
    assert drain(queue) == ["a", "early", "b"]


def test_change_of_strategy_retries_workloads_that_are_held_back_as_invalid() -> None:
    queue = queue_of()
    hold_back(queue, InvalidWorkload(), workload("a", 1))
    queue.change_strategy(QueueingStrategy.STRICT_FIFO)
    check_queue(queue)
    assert drain(queue) == ["a"]


def test_progress_ends_waiting_only_of_lanes_that_retry_on_progress() -> None:
    queue = queue_of(workload("retries", 1, LARGE), workload("refused", 2), workload("blocks", 3, HUGE))
    retries = pop(queue)
    queue.requeue_waiting(retries, retry_on_progress(retries))
    park_head(queue)
    blocking = preempt_for_head(queue)
    assert queue.inadmissible == 2
    queue.end_waiting(PROGRESS_MADE)
    check_queue(queue)
    assert (queue.blocking_head, queue.head(), queue.inadmissible) == (blocking, None, 1)
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["blocks", "retries", "refused"]


def test_return_of_quota_ends_waiting_only_of_lanes_without_needs() -> None:
    queue = queue_of(workload("any", 1, LARGE), workload("five", 2), workload("blocks", 3, HUGE))
    park_head(queue)
    park_head(queue, 5)
    preempt_for_head(queue)
    queue.end_waiting(QUOTA_RETURNED)
    check_queue(queue)
    assert queue.blocking_head is None
    assert drain(queue) == ["blocks", "any"]
    assert lane_of(queue, "five").is_parked


@pytest.mark.parametrize("kind", [FirstOfStrictQueue, WaitingForPreemption, LostInCycle])
def test_earlier_workload_of_same_lane_overtakes_blocking_head(
    kind: type[FirstOfStrictQueue | WaitingForPreemption | LostInCycle],
) -> None:
    queue = queue_of(workload("b", 2), strict=True)
    pending = pop(queue)
    state: LaneState = kind(pending.position)
    queue.requeue_waiting(pending, state)
    enter(queue, workload("a", 1))
    earlier = pop(queue)
    assert earlier.workload.key.name == "a"
    assert queue.blocking_head is None
    queue.end_blocking(HEAD_OVERTAKEN)
    queue.remove(name_of("a"))
    check_queue(queue)
    assert queue.head() is pending


def test_blocking_head_with_met_need_is_the_head() -> None:
    cpu_quota = Quota()
    queue = queue_of(
        workload("a", 1, LARGE), workload("b", 2), strict=True, registration=cpu_quota.registration
    )
    pending = pop(queue)
    queue.requeue_waiting(pending, FirstOfStrictQueue(pending.position, needs(5)))
    assert [each.key for each in queue.lanes.waiting.indexed] == [lane_of(queue, "a").key]
    assert queue.head() is None
    assert cpu_quota.give_back(5) == ["q"]
    assert queue.head() is pending
    assert drain(queue) == ["a", "b"]


def test_blocking_head_is_indexed_by_its_position_after_earlier_workload_of_its_lane_left() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("b", 2), strict=True, registration=cpu_quota.registration)
    blocking = pop(queue)
    state = FirstOfStrictQueue(blocking.position, needs(5))
    queue.requeue(blocking)
    enter(queue, workload("a", 1))
    queue.restore_lane(lane_of(queue, "b").key, state)
    check_queue(queue)
    queue.remove(name_of("a"))
    check_queue(queue)
    cpu_quota.give_back(5)
    assert queue.head() is blocking


def test_lane_behind_a_blocking_head_has_no_head_when_its_need_is_met() -> None:
    cpu_quota = Quota()
    queue = queue_of(workload("b", 2, LARGE), strict=True, registration=cpu_quota.registration)
    park_head(queue, 5)
    enter(queue, workload("a", 1))
    block_with_head(queue)
    cpu_quota.give_back(5)
    assert queue.head() is None


def test_blocking_head_that_is_parked_without_a_new_attempt_is_a_defect() -> None:
    queue = queue_of(workload("a", 1), strict=True)
    pending = block_with_head(queue)
    with pytest.raises(ImpossibleTransition, match="requeued: Queued does not become Queued"):
        queue.requeue_waiting(pending, waiting_for_quota(pending))


def test_preemptor_is_restored_with_its_position() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    queue.restore_preemptor(LatestPreemptor(name_of("b"), 1))
    check_queue(queue)
    assert drain(queue) == ["b", "a"]
