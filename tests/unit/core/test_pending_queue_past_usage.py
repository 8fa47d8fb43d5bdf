"""Order of LocalQueues by past usage in one ClusterQueue, and the cost of changes with parked lanes."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from admitq.core.admission_fair_sharing import PastUsage
from admitq.core.model import ObjectKey, Workload
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.wait_states import BACKOFF_ENDED, PROGRESS_MADE, TREE_EDITED, Backoff
from tests.unit.core.pending_workloads import (
    Quota,
    drain,
    enter,
    lines_run,
    name_of,
    park_head,
    pop,
    preempt_for_head,
    queue_of,
    retry_on_progress,
    waiting_for_quota,
    workload,
)


class Usage:
    """The past usage of LocalQueues."""

    def __init__(self, **amounts: int) -> None:
        self.amounts = amounts

    def __call__(self, local_queue: ObjectKey) -> PastUsage:
        return PastUsage(infinite=False, amount=Fraction(self.amounts.get(local_queue.name, 0)))


def workload_of_local_queue(name: str, local_queue: str, queued_at: int = 0, priority: int = 0) -> Workload:
    return replace(workload(name, queued_at, priority=priority), queue_name=local_queue)


def test_local_queue_with_less_past_usage_comes_first_at_any_priority() -> None:
    queue = queue_of(
        workload_of_local_queue("a1", "a", 1, 9),
        workload_of_local_queue("b1", "b", 2),
        workload_of_local_queue("a2", "a", 3),
    )
    usage = Usage(a=2, b=1)
    queue.order_by_past_usage(usage)
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert drain(queue) == ["b1", "a1", "a2"]


def test_lane_is_sorted_again_when_past_usage_of_its_local_queue_changes() -> None:
    queue = queue_of(workload_of_local_queue("a1", "a", 1, 9), workload_of_local_queue("b1", "b", 2))
    usage = Usage(a=2, b=1)
    queue.order_by_past_usage(usage)
    assert pop(queue).workload.uid == "b1"
    queue.remove(name_of("b1"))
    enter(queue, workload_of_local_queue("a2", "a", 3), workload_of_local_queue("b2", "b", 4))
    usage.amounts["b"] = 3
    queue.lanes.past_usage_changed(name_of("b"))
    queue.lanes.past_usage_changed(name_of("b"))  # The second time changes nothing.
    check_queue(queue)
    assert drain(queue) == ["a1", "a2", "b2"]


def test_workloads_are_ordered_by_priority_when_past_usage_no_longer_counts() -> None:
    queue = queue_of()
    queue.order_by_past_usage(Usage(a=2, b=1))
    enter(queue, workload_of_local_queue("late", "b", 9), workload_of_local_queue("urgent", "a", 9, 1))
    queue.order_by_past_usage(None)
    check_queue(queue)
    assert drain(queue) == ["urgent", "late"]


def test_held_back_workload_is_ordered_by_past_usage_when_its_backoff_ends() -> None:
    queue = queue_of(workload_of_local_queue("a1", "a", 1), workload_of_local_queue("b1", "b", 2))
    pending = queue.members[name_of("a1")]
    queue.hold_back(pending, Backoff(7))
    queue.order_by_past_usage(Usage(a=2, b=1))
    check_queue(queue)
    assert pending.state == Backoff(7)
    queue.enter(pending, BACKOFF_ENDED)
    assert drain(queue) == ["b1", "a1"]


def test_preemptor_stays_first_at_any_past_usage() -> None:
    queue = queue_of(workload_of_local_queue("a1", "a", 1), workload_of_local_queue("b1", "b", 2))
    usage = Usage(a=1, b=2)
    queue.order_by_past_usage(usage)
    preempt_for_head(queue)
    usage.amounts["a"] = 9
    queue.lanes.past_usage_changed(name_of("a"))
    check_queue(queue)
    assert queue.head() is None
    queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["a1", "b1"]


def test_past_usage_changes_nothing_without_usage_based_admission() -> None:
    queue = queue_of(workload_of_local_queue("a1", "a", 1))
    queue.lanes.past_usage_changed(name_of("a"))
    check_queue(queue)
    assert drain(queue) == ["a1"]


@pytest.mark.parametrize("needs", [(), (5,)], ids=["any return", "five"])
def test_parked_lane_is_sorted_by_new_past_usage_and_stays_parked(needs: tuple[int, ...]) -> None:
    cpu_quota = Quota()
    queue = queue_of(
        workload_of_local_queue("a1", "a", 1),
        workload_of_local_queue("b1", "b", 2),
        registration=cpu_quota.registration,
    )
    usage = Usage(a=1, b=2)
    queue.order_by_past_usage(usage)
    assert [park_head(queue, *needs) for _ in range(2)] == ["a1", "b1"]
    usage.amounts["a"] = 5
    queue.lanes.past_usage_changed(name_of("a"))
    check_queue(queue)
    assert queue.head() is None
    if needs:
        cpu_quota.give_back(5)
    else:
        queue.end_waiting(TREE_EDITED)
    assert drain(queue) == ["b1", "a1"]


def test_lanes_by_local_queue_are_dropped_when_past_usage_no_longer_counts() -> None:
    queue = queue_of(workload_of_local_queue("a1", "a", 1), workload_of_local_queue("b1", "b", 2))
    queue.order_by_past_usage(Usage(a=1, b=2))
    park_head(queue)
    queue.order_by_past_usage(None)
    queue.lanes.drop_emptied()
    check_queue(queue)
    assert queue.lanes.by_local_queue == {}
    assert drain(queue) == ["a1", "b1"]


# --- costs ----------------------------------------------------------------------------------------------


def change_past_usage_of_another(queue: PendingQueue, usage: Usage) -> None:
    usage.amounts["b"] += 1
    queue.lanes.past_usage_changed(name_of("b"))


def empty_a_lane(queue: PendingQueue, _usage: Usage) -> None:
    queue.remove(name_of("b1"))
    queue.lanes.drop_emptied()


def make_progress(queue: PendingQueue, _usage: Usage) -> None:
    queue.end_waiting(PROGRESS_MADE)


@pytest.mark.parametrize("change", [change_past_usage_of_another, empty_a_lane, make_progress])
def test_cost_of_change_does_not_grow_with_parked_lanes_that_it_does_not_concern(
    change: Callable[[PendingQueue, Usage], None],
) -> None:
    def cost(others: int) -> int:
        waiting = [workload_of_local_queue(f"a{number}", "a", number, number) for number in range(others)]
        queue, usage = queue_of(*waiting, workload_of_local_queue("b1", "b", others)), Usage(a=1, b=2)
        queue.order_by_past_usage(usage)
        while (pending := queue.pop()) is not None:
            state = retry_on_progress if pending.workload.uid == "b1" else waiting_for_quota
            queue.requeue_waiting(pending, state(pending))
        queue.lanes.drop_emptied()
        result = lines_run(lambda: change(queue, usage))
        check_queue(queue)
        return result

    assert cost(others=300) == cost(others=3)
