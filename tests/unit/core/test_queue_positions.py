"""Positions of pending workloads in ClusterQueues and LocalQueues."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core import events as happened
from admitq.core.admission_fair_sharing import PastUsage
from admitq.core.model import LocalQueue, ObjectKey, PodSet, StopPolicy, Workload
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_positions import (
    QueuedWorkload,
    Window,
    comes_before,
    find_position,
    list_local_queue,
    list_queue,
)
from admitq.core.waiting.transitions import HeldBack
from admitq.core.waiting.wait_states import Backoff, NamespaceNotSelected
from tests.unit.core.pending_workloads import (
    HUGE,
    LARGE,
    SMALL,
    block_with_head,
    drain,
    enter,
    hold_back,
    name_of,
    park_head,
    pop,
    preempt_for_head,
    queue_of,
    workload,
)
from tests.unit.core.small_cluster import LOWER, SmallCluster, key, queue

ALL = Window(100)


def names(listed: Sequence[QueuedWorkload] | None) -> list[str] | None:
    return None if listed is None else [each.workload.name for each in listed]


def past_usage(amount: int) -> PastUsage:
    return PastUsage(infinite=False, amount=Fraction(amount))


def order_of(queue: PendingQueue) -> list[str] | None:
    return names(list_queue(queue, ALL))


# --- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workloads", "order"),
    [
        pytest.param([("b", 2, 0), ("a", 1, 0)], ["a", "b"], id="earlier first"),
        pytest.param([("a", 1, 0), ("b", 2, 1)], ["b", "a"], id="higher priority first"),
        pytest.param([("b", 1, 0), ("a", 1, 0)], ["a", "b"], id="uids of the same instant"),
        pytest.param([], [], id="empty"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_order_is_that_of_priority_and_time(
    workloads: list[tuple[str, int, int]], order: list[str], *, strict: bool
) -> None:
    entered = [workload(name, at, priority=priority) for name, at, priority in workloads]
    assert order_of(queue_of(*entered, strict=strict)) == order


def test_workload_keeps_position_while_it_is_parked() -> None:
    queue = queue_of(workload("a", 1, LARGE), workload("b", 2))
    assert park_head(queue) == "a"
    assert order_of(queue) == ["a", "b"]


@pytest.mark.parametrize("state", [Backoff(7), NamespaceNotSelected()])
def test_workload_keeps_position_while_it_is_held_back(state: HeldBack) -> None:
    queue = queue_of(workload("a", 1), workload("c", 3))
    hold_back(queue, state, workload("b", 2))
    assert order_of(queue) == ["a", "b", "c"]


def test_head_keeps_position_while_it_is_in_a_cycle() -> None:
    queue = queue_of(workload("a", 1), workload("b", 2))
    pop(queue)
    assert order_of(queue) == ["a", "b"]


def test_blocking_head_of_strict_queue_comes_after_higher_priority() -> None:
    queue = queue_of(workload("a", 1), strict=True)
    block_with_head(queue)
    enter(queue, workload("b", 2, priority=1))
    assert order_of(queue) == ["b", "a"]


@pytest.mark.parametrize(("strict", "order"), [(False, ["a", "b"]), (True, ["b", "a"])])
def test_latest_preemptor_is_first_in_best_effort_queue_only(order: list[str], *, strict: bool) -> None:
    queue = queue_of(workload("a", 1), strict=strict)
    preempt_for_head(queue)
    enter(queue, workload("b", 2, priority=1))
    assert order_of(queue) == order


def test_local_queue_with_less_past_usage_comes_first_also_while_held_back() -> None:
    queue = queue_of()
    usage = {"used": past_usage(2), "new": past_usage(1)}
    queue.order_by_past_usage(lambda local_queue: usage[local_queue.name])
    enter(queue, in_local_queue("a", "used", 1, 5))
    hold_back(queue, Backoff(7), in_local_queue("b", "new", 2))
    hold_back(queue, Backoff(7), in_local_queue("c", "used", 3, 9))
    assert order_of(queue) == ["b", "c", "a"]


def test_latest_preemptor_comes_before_local_queues_with_less_past_usage() -> None:
    queue = queue_of()
    usage = {"used": past_usage(2), "new": past_usage(1)}
    queue.order_by_past_usage(lambda local_queue: usage[local_queue.name])
    enter(queue, in_local_queue("a", "used", 1))
    preempt_for_head(queue)
    enter(queue, in_local_queue("b", "new", 2))
    assert order_of(queue) == ["a", "b"]


def in_local_queue(name: str, local_queue: str, queued_at: int, priority: int = 0) -> Workload:
    return Workload(name_of(name), name, local_queue, queued_at, SMALL, priority)


# --- law ------------------------------------------------------------------------------------------------

DRAWN = st.tuples(
    st.sampled_from((SMALL, LARGE, HUGE)),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(("x", "y", "z")),
)


@given(
    drawn=st.lists(DRAWN, max_size=12),
    usages=st.none() | st.lists(st.integers(0, 2), min_size=3, max_size=3),
    strict=st.booleans(),
)
def test_order_is_the_order_of_heads(
    drawn: list[tuple[tuple[PodSet, ...], int, int, str]], usages: list[int] | None, *, strict: bool
) -> None:
    queue = queue_of(strict=strict)
    if usages is not None:
        amounts = dict(zip("xyz", usages, strict=True))
        queue.order_by_past_usage(lambda local_queue: past_usage(amounts[local_queue.name]))
    for number, (pods, queued_at, priority, local_queue) in enumerate(drawn):
        name = f"w{number}"
        enter(queue, Workload(name_of(name), name, local_queue, queued_at, pods, priority))
    listed = order_of(queue)
    assert listed == drain(queue)


# --- windows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "listed"),
    [
        (Window(2), [("a", 0, 0), ("b", 1, 0)]),
        (Window(2, 1), [("b", 1, 0), ("c", 2, 1)]),
        (Window(9, 3), [("d", 3, 1)]),
        (Window(9, 4), []),
        (Window(0), []),
        (Window(10**30, 10**30), []),
    ],
)
def test_window_does_not_change_positions(window: Window, listed: list[tuple[str, int, int]]) -> None:
    queue = queue_of(*two_local_queues())
    found = [
        (each.workload.name, each.in_cluster_queue, each.in_local_queue) for each in list_queue(queue, window)
    ]
    assert found == listed


@pytest.mark.parametrize(
    ("window", "listed"),
    [
        (Window(9), [("b", 1, 0), ("d", 3, 1)]),
        (Window(1, 1), [("d", 3, 1)]),
        (Window(9, 2), []),
    ],
)
def test_window_of_local_queue_counts_its_workloads(
    window: Window, listed: list[tuple[str, int, int]]
) -> None:
    queue = queue_of(*two_local_queues())
    found = [
        (each.workload.name, each.in_cluster_queue, each.in_local_queue)
        for each in list_local_queue(queue, key("y"), window)
    ]
    assert found == listed


def two_local_queues() -> list[Workload]:
    return [in_local_queue(name, "xy"[at % 2], at) for at, name in enumerate("abcd")]


def test_position_of_one_workload_is_that_of_the_list() -> None:
    queue = queue_of(*two_local_queues())
    assert [find_position(queue, each.workload) for each in list_queue(queue, ALL)] == list_queue(queue, ALL)
    assert find_position(queue, key("other")) is None


def test_workload_comes_before_those_behind_it_only() -> None:
    queue = queue_of(*two_local_queues())
    first, second = (queue.members[name_of(name)] for name in "ab")
    assert comes_before(queue, first, second)
    assert not comes_before(queue, second, first)
    assert not comes_before(queue, first, first)


# --- queries --------------------------------------------------------------------------------------------


def test_local_queues_of_one_name_in_two_namespaces_are_kept_apart() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q"))
    cluster.send(happened.NamespaceChanged("m", ()))
    other = ObjectKey("m", "q")
    cluster.send(happened.LocalQueueChanged(LocalQueue(other, "q")))
    for number, (namespace, name) in enumerate((("n", "w"), ("m", "w"), ("m", "same"), ("n", "same"))):
        cluster.put_workload(Workload(ObjectKey(namespace, name), f"u{number}", "q", number, SMALL))
    queries = cluster.state.queries
    assert queries.list_cluster_queue("q", ALL) == [
        QueuedWorkload(ObjectKey("n", "w"), key("q"), 0, 0),
        QueuedWorkload(ObjectKey("m", "w"), other, 1, 0),
        QueuedWorkload(ObjectKey("m", "same"), other, 2, 1),
        QueuedWorkload(ObjectKey("n", "same"), key("q"), 3, 1),
    ]
    assert queries.list_local_queue(other, ALL) == [
        QueuedWorkload(ObjectKey("m", "w"), other, 1, 0),
        QueuedWorkload(ObjectKey("m", "same"), other, 2, 1),
    ]


def test_queue_that_does_not_exist_has_no_list() -> None:
    queries = SmallCluster().state.queries
    assert queries.list_cluster_queue("q", ALL) is None
    assert queries.list_local_queue(key("q"), ALL) is None


def test_local_queue_without_cluster_queue_has_an_empty_list() -> None:
    cluster = SmallCluster()
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("dangling"), "nowhere")))
    cluster.submit("lost", "dangling")
    assert names(cluster.state.queries.list_local_queue(key("dangling"), ALL)) == []


def test_stopped_cluster_queue_lists_its_workloads() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 9, stop_policy=StopPolicy.HOLD))
    cluster.submit("w", "q")
    assert names(cluster.state.queries.list_cluster_queue("q", ALL)) == ["w"]


def test_stopped_local_queue_lists_no_workloads() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 9))
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q", stop_policy=StopPolicy.HOLD)))
    cluster.submit("w", "q")
    assert names(cluster.state.queries.list_cluster_queue("q", ALL)) == []
    assert names(cluster.state.queries.list_local_queue(key("q"), ALL)) == []


def test_workload_leaves_list_when_quota_is_reserved() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    for name in ("first", "second"):
        cluster.submit(name, "q")
    cluster.cycles()
    assert names(cluster.state.queries.list_cluster_queue("q", ALL)) == ["second"]


def test_order_is_the_same_after_restart_with_a_preemptor() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 2, preemption=LOWER))
    cluster.submit("runs", "q", cpu=2)
    cluster.run("runs")
    cluster.submit("preempts", "q", cpu=2, priority=1)
    cluster.cycles()
    cluster.submit("higher", "q", cpu=2, priority=2)
    assert names(cluster.state.queries.list_cluster_queue("q", ALL)) == ["preempts", "higher"]
    cluster.restart()
    assert names(cluster.state.queries.list_cluster_queue("q", ALL)) == ["preempts", "higher"]
