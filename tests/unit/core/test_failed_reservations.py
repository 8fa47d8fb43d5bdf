"""A workload with a failed reservation is held back, longer after each failure in a row."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, LocalQueue, QueueingStrategy, StopPolicy
from tests.unit.core.play import Play, key, queue, reserved

BASE = SECOND // 20
MAX = 30 * SECOND


def fail_reservation(play: Play, name: str) -> None:
    play.send(happened.ReservationFailed(key(name), f"uid-{name}"))


def decide_and_fail(play: Play, name: str) -> None:
    """Run cycles that reserve quota for this workload only, and report that the write failed."""
    assert reserved(play.cycles()) == [name]
    fail_reservation(play, name)


def wait_for_cycle(play: Play) -> int:
    """Move the clock to the next cycle that is due, and return the time between."""
    due = play.state.next_wakeup(play.now)
    assert due is not None
    waited, play.now = due - play.now, due
    return waited


def play_with_failures(times: int, **fields: Any) -> Play:
    """Return a ClusterQueue with quota for one workload; its reservation failed this many times."""
    play = Play()
    play.put(queue("q", 1, **fields))
    play.submit("first", "q")
    for number in range(times):
        decide_and_fail(play, "first")
        if number + 1 < times:
            wait_for_cycle(play)
    return play


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_other_workloads_are_admitted_while_failed_one_is_held_back(strategy: QueueingStrategy) -> None:
    play = play_with_failures(1, queueing_strategy=strategy)
    play.submit("second", "q")
    play.submit("third", "q")
    assert play.decide() == ["second"]
    wait_for_cycle(play)
    assert play.decide() == []
    play.finish("second")
    assert play.decide() == ["first"]


def test_retry_delay_doubles_up_to_its_limit() -> None:
    play, delays = play_with_failures(1), list[int]()
    for _ in range(12):
        expected = play.state.queries.retry_delay(key("first"))
        delays.append(wait_for_cycle(play))
        decide_and_fail(play, "first")
        assert play.state.next_wakeup(play.now) == play.now + expected
    assert delays == [BASE * 2**n for n in range(10)] + [MAX, MAX]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda play: play.change("first", priority=1), id="changed"),
        pytest.param(lambda play: play.change("first", uid="other"), id="recreated"),
        pytest.param(lambda play: play.restart_manager(), id="restart of the manager"),
    ],
)
def test_failure_count_is_reset_by_change_recreation_or_restart(
    change: Callable[["RestartingPlay"], None],
) -> None:
    play = RestartingPlay()
    play.put(queue("q", 1))
    play.submit("first", "q")
    for _ in range(3):
        decide_and_fail(play, "first")
        wait_for_cycle(play)
    decide_and_fail(play, "first")
    change(play)
    assert play.state.queries.retry_delay(key("first")) == BASE
    assert reserved(play.cycles()) == ["first"]


class RestartingPlay(Play):
    """A cluster in which the manager can restart."""

    def restart_manager(self) -> None:
        """Replace the state by one that is built from what the API server returns."""
        self.state = self.state.restarted()


def test_failure_count_is_reset_when_reservation_is_written() -> None:
    play = play_with_failures(3)
    wait_for_cycle(play)
    assert play.decide() == ["first"]
    assert play.state.queries.retry_delay(key("first")) == BASE


def test_observation_without_a_change_does_not_end_the_backoff() -> None:
    play = play_with_failures(3)
    play.put_workload(play.workloads["first"])
    assert reserved(play.cycles()) == []
    assert wait_for_cycle(play) == 4 * BASE


def test_backoff_continues_after_local_queue_was_stopped() -> None:
    play = play_with_failures(3)
    play.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q", stop_policy=StopPolicy.HOLD)))
    play.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q")))
    assert wait_for_cycle(play) == 4 * BASE


def test_backoff_ends_at_later_of_requeue_time_and_retry_delay() -> None:
    play = Play()
    play.put(queue("q", 1))
    play.submit("first", "q")
    play.cycles()
    play.change("first", requeue_at=play.now + SECOND)
    fail_reservation(play, "first")
    assert wait_for_cycle(play) == SECOND


def test_restored_state_keeps_failure_count() -> None:
    play = play_with_failures(3)
    play.restart()
    assert play.state.queries.retry_delay(key("first")) == 8 * BASE
    assert wait_for_cycle(play) == 4 * BASE
    decide_and_fail(play, "first")
    assert wait_for_cycle(play) == 8 * BASE


def test_failure_without_unwritten_reservation_is_not_counted() -> None:
    play = play_with_failures(0)
    fail_reservation(play, "first")
    assert play.decide() == ["first"]
    for event in (happened.ReservationFailed, happened.ReservationDiscarded):
        play.send(event(key("first"), "uid-first"))
    assert play.state.queries.retry_delay(key("first")) == BASE
    assert play.state.queries.retry_delay(key("unknown")) == 0


def test_discarded_reservation_is_decided_again_at_once() -> None:
    play = play_with_failures(2)
    wait_for_cycle(play)
    play.cycles()
    play.send(happened.ReservationDiscarded(key("first"), "uid-first"))
    assert play.decide() == ["first"]
