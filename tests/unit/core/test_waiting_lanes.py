"""Waiting ends for one lane, or for many lanes at once."""

import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.model import PodSet
from admitq.core.requests import template_requesting
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.wait_states import (
    CLUSTER_QUEUE_CHANGED,
    PROGRESS_MADE,
    LaneState,
    QuotaNeed,
    RetryOnProgress,
    WaitingForQuota,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex
from tests.unit.core.pending_workloads import NO_FIT, Quota, drain, enter, needs, pop, queue_of, workload


def _pods(cpu: int) -> tuple[PodSet, ...]:
    return (PodSet("main", 1, template_requesting({"cpu": cpu})),)


def _refused(
    pending: PendingEntry, kind: type[WaitingForQuota] | type[RetryOnProgress], amount: int
) -> LaneState:
    return kind(NO_FIT, pending.workload.queued_at, needs(amount))


@pytest.mark.parametrize(("with_progress", "others"), [(1, 40), (3, 40), (40, 3), (40, 0), (0, 5)])
def test_progress_ends_waiting_of_many_lanes_that_retry_on_it_and_of_no_others(
    with_progress: int, others: int
) -> None:
    count = with_progress + others
    queue = queue_of(*(workload(f"w{number:02}", number, _pods(1 + number)) for number in range(count)))
    for number in range(count):
        pending = pop(queue)
        kind = RetryOnProgress if number < with_progress else WaitingForQuota
        queue.requeue_waiting(pending, _refused(pending, kind, 1 + number))
    assert queue.head() is None
    queue.end_waiting(PROGRESS_MADE)
    check_queue(queue)
    assert drain(queue) == [f"w{number:02}" for number in range(with_progress)]
    assert queue.inadmissible == others


def test_lane_whose_waiting_ends_is_ordered_among_many_ready_lanes() -> None:
    queue = queue_of(workload("b", 0, _pods(99)))
    pending = pop(queue)
    queue.requeue_waiting(pending, _refused(pending, WaitingForQuota, 99))
    enter(queue, *(workload(f"c{number:02}", 10 + number, _pods(1 + number)) for number in range(40)))
    enter(queue, workload("a", 5, _pods(50)))
    queue.end_waiting(CLUSTER_QUEUE_CHANGED)
    check_queue(queue)
    assert drain(queue) == ["b", "a", *(f"c{number:02}" for number in range(40))]


@pytest.mark.parametrize("first_pair", [0, 1])
def test_lanes_are_taken_in_order_when_needs_of_several_flavors_are_met(first_pair: int) -> None:
    pairs = [FlavorResource(name, "cpu") for name in ("default", "spot")]
    cpu_quotas = {pair: Quota() for pair in pairs}
    cells = {pair: cpu_quota.cell for pair, cpu_quota in cpu_quotas.items()}
    queue = queue_of(
        workload("a", 1, _pods(1)),
        workload("b", 2, _pods(2)),
        registration=TreeRegistration("q", cells, WakeIndex()),
    )
    for pair in (pairs[first_pair], pairs[1 - first_pair]):
        pending = pop(queue)
        state = WaitingForQuota(NO_FIT, pending.workload.queued_at, (QuotaNeed(pair, 9),))
        queue.requeue_waiting(pending, state)
    assert queue.head() is None
    for cpu_quota in cpu_quotas.values():
        cpu_quota.give_back(9)
    assert drain(queue) == ["a", "b"]
