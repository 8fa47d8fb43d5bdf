"""A workload with a failed reservation is held back, longer after each failure in a row."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, LocalQueue, QueueingStrategy, StopPolicy
from tests.unit.core.small_cluster import SmallCluster, key, queue, reserved

BASE = SECOND // 20
MAX = 30 * SECOND


def fail_reservation(cluster: SmallCluster, name: str) -> None:
    cluster.send(happened.ReservationFailed(key(name), f"uid-{name}"))


def decide_and_fail(cluster: SmallCluster, name: str) -> None:
    """Run cycles that reserve quota for this workload only, and report that the write failed."""
    assert reserved(cluster.cycles()) == [name]
    fail_reservation(cluster, name)


def wait_for_cycle(cluster: SmallCluster) -> int:
    """Move the clock to the next cycle that is due, and return the time between."""
    due = cluster.state.next_wakeup(cluster.now)
    assert due is not None
    waited, cluster.now = due - cluster.now, due
    return waited


def cluster_with_failures(times: int, **fields: Any) -> SmallCluster:
    """Return a ClusterQueue with quota for one workload; its reservation failed this many times."""
    cluster = SmallCluster()
    cluster.put(queue("q", 1, **fields))
    cluster.submit("first", "q")
    for number in range(times):
        decide_and_fail(cluster, "first")
        if number + 1 < times:
            wait_for_cycle(cluster)
    return cluster


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_other_workloads_are_admitted_while_failed_one_is_held_back(strategy: QueueingStrategy) -> None:
    cluster = cluster_with_failures(1, queueing_strategy=strategy)
    cluster.submit("second", "q")
    cluster.submit("third", "q")
    assert cluster.decide() == ["second"]
    wait_for_cycle(cluster)
    assert cluster.decide() == []
    cluster.finish("second")
    assert cluster.decide() == ["first"]


def test_retry_delay_doubles_up_to_its_limit() -> None:
    cluster, delays = cluster_with_failures(1), list[int]()
    for _ in range(12):
        expected = cluster.state.queries.retry_delay(key("first"))
        delays.append(wait_for_cycle(cluster))
        decide_and_fail(cluster, "first")
        assert cluster.state.next_wakeup(cluster.now) == cluster.now + expected
    assert delays == [BASE * 2**n for n in range(10)] + [MAX, MAX]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cluster: cluster.change("first", priority=1), id="changed"),
        pytest.param(lambda cluster: cluster.change("first", uid="other"), id="recreated"),
        pytest.param(lambda cluster: cluster.restart_manager(), id="restart of the manager"),
    ],
)
def test_failure_count_is_reset_by_change_recreation_or_restart(
    change: Callable[["RestartingCluster"], None],
) -> None:
    cluster = RestartingCluster()
    cluster.put(queue("q", 1))
    cluster.submit("first", "q")
    for _ in range(3):
        decide_and_fail(cluster, "first")
        wait_for_cycle(cluster)
    decide_and_fail(cluster, "first")
    change(cluster)
    assert cluster.state.queries.retry_delay(key("first")) == BASE
    assert reserved(cluster.cycles()) == ["first"]


class RestartingCluster(SmallCluster):
    """A cluster in which the manager can restart."""

    def restart_manager(self) -> None:
        """Replace the state by one that is built from what the API server returns."""
        self.state = self.state.restarted()


def test_failure_count_is_reset_when_reservation_is_written() -> None:
    cluster = cluster_with_failures(3)
    wait_for_cycle(cluster)
    assert cluster.decide() == ["first"]
    assert cluster.state.queries.retry_delay(key("first")) == BASE


def test_observation_without_a_change_does_not_end_the_backoff() -> None:
    cluster = cluster_with_failures(3)
    cluster.put_workload(cluster.workloads["first"])
    assert reserved(cluster.cycles()) == []
    assert wait_for_cycle(cluster) == 4 * BASE


def test_backoff_continues_after_local_queue_was_stopped() -> None:
    cluster = cluster_with_failures(3)
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q", stop_policy=StopPolicy.HOLD)))
    cluster.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q")))
    assert wait_for_cycle(cluster) == 4 * BASE


def test_backoff_ends_at_later_of_requeue_time_and_retry_delay() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("first", "q")
    cluster.cycles()
    cluster.change("first", requeue_at=cluster.now + SECOND)
    fail_reservation(cluster, "first")
    assert wait_for_cycle(cluster) == SECOND


def test_restored_state_keeps_failure_count() -> None:
    cluster = cluster_with_failures(3)
    cluster.restart()
    assert cluster.state.queries.retry_delay(key("first")) == 8 * BASE
    assert wait_for_cycle(cluster) == 4 * BASE
    decide_and_fail(cluster, "first")
    assert wait_for_cycle(cluster) == 8 * BASE


def test_failure_without_unwritten_reservation_is_not_counted() -> None:
    cluster = cluster_with_failures(0)
    fail_reservation(cluster, "first")
    assert cluster.decide() == ["first"]
    for event in (happened.ReservationFailed, happened.ReservationDiscarded):
        cluster.send(event(key("first"), "uid-first"))
    assert cluster.state.queries.retry_delay(key("first")) == BASE
    assert cluster.state.queries.retry_delay(key("unknown")) == 0


def test_discarded_reservation_is_decided_again_at_once() -> None:
    cluster = cluster_with_failures(2)
    wait_for_cycle(cluster)
    cluster.cycles()
    cluster.send(happened.ReservationDiscarded(key("first"), "uid-first"))
    assert cluster.decide() == ["first"]
