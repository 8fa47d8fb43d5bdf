"""Numbers that are reported for the pending workloads of a ClusterQueue."""

from dataclasses import replace

import pytest

from admitq.core.waiting import queue_numbers
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.transitions import HeldBack
from admitq.core.waiting.wait_states import (
    Backoff,
    InvalidWorkload,
    NamespaceNotSelected,
    QueueUnusable,
)
from tests.unit.core.pending_workloads import (
    HUGE,
    LARGE,
    NO_FIT,
    hold_back,
    name_of,
    park_head,
    pop,
    queue_of,
    waiting_for_quota,
    workload,
)


def count_classes(queue: PendingQueue) -> tuple[int, ...]:
    """Count the equivalence classes that cycles take, and those that are inadmissible."""
    return tuple(map(len, queue_numbers.equivalence_classes(queue)))


@pytest.mark.parametrize("state", [Backoff(7), NamespaceNotSelected(), InvalidWorkload(), QueueUnusable()])
def test_d19_classes_of_workloads_that_are_held_back_are_inadmissible(state: HeldBack) -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2))
    for name in ("held-back", "equal"):
        hold_back(queue, state, workload(name, 3, HUGE))
    assert count_classes(queue) == (2, 1)
    hold_back(queue, state, workload("also", 4))
    assert count_classes(queue) == (2, 2)


def test_classes_of_parked_lanes_are_inadmissible() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE), workload("c", 3))
    assert count_classes(queue) == (2, 0)
    park_head(queue)
    assert count_classes(queue) == (1, 1)
    assert [queue_numbers.is_inadmissible(each) for each in queue.members.values()] == [True, True, False]


def test_workload_that_is_held_back_is_inadmissible() -> None:
    assert queue_numbers.is_inadmissible(hold_back(queue_of(), Backoff(7), workload("a")))


def test_d19_requests_are_those_of_all_pending_workloads_without_reclaimable_pods() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2, LARGE))
    request = queue_numbers.requests(queue)["cpu"] // 2
    hold_back(queue, NamespaceNotSelected(), workload("c", 3, LARGE))
    assert queue_numbers.requests(queue) == {"cpu": 3 * request}
    park_head(queue)
    assert queue_numbers.requests(queue) == {"cpu": 3 * request}
    changed = replace(workload("b", 2, LARGE), reclaimable_pods=(("main", 1),))
    queue.update(queue.members[name_of("b")], changed)
    assert queue_numbers.requests(queue) == {"cpu": 2 * request}


def test_workload_is_bypassed_if_another_of_its_lane_was_evaluated_instead() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    pending = pop(queue)
    pending.refusal = NO_FIT
    queue.requeue_waiting(pending, waiting_for_quota(pending))
    names = ("a", "b", "unknown")
    bypassed = [queue_numbers.is_bypassed(queue, name_of(name)) for name in names]
    refusals = [queue_numbers.refusal_of(queue, name_of(name)) for name in names]
    assert (bypassed, refusals) == ([False, True, False], [NO_FIT, NO_FIT, None])
    queue.forget_refusals()
    assert queue_numbers.is_bypassed(queue, name_of("a"))


def test_workload_that_is_held_back_has_no_refusal_of_a_lane() -> None:
    queue = queue_of()
    hold_back(queue, Backoff(7), workload("a"))
    assert queue_numbers.refusal_of(queue, name_of("a")) is None
