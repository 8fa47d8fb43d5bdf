"""A workload with a failed reservation is held back, longer after each failure in a row."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import SECOND, LocalQueue, QueueingStrategy, StopPolicy
from tests.unit.core.play import Play, key, queue, reserved

BASE = SECOND // 20
MAX = 30 * SECOND


def fail(play: Play, name: str) -> None:
    play.send(happened.ReservationFailed(key(name), f"uid-{name}"))


def decide_and_fail(play: Play, name: str) -> None:
    """Have the reservation of this workload alone decided, which cannot be written."""
    assert reserved(play.cycles()) == [name]
    fail(play, name)


def wait(play: Play) -> int:
    """Have time pass until a cycle is due; for how long."""
    due = play.state.next_wakeup(play.now)
    assert due is not None
    waited, play.now = due - play.now, due
    return waited


def failing(times: int, **fields: Any) -> Play:
    """A ClusterQueue with quota for one workload, of which the reservation failed so often in a row."""
    play = Play()
    play.put(queue("q", 1, **fields))
    play.submit("first", "q")
    for number in range(times):
        decide_and_fail(play, "first")
        if number + 1 < times:
            wait(play)
    return play


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_others_are_admitted_while_the_first_is_held_back(strategy: QueueingStrategy) -> None:
    play = failing(1, queueing_strategy=strategy)
    play.submit("second", "q")
    play.submit("third", "q")
    assert play.decide() == ["second"]
    wait(play)
    assert play.decide() == []
    play.finish("second")
    assert play.decide() == ["first"]


def test_delay_doubles_up_to_its_limit() -> None:
    play, delays = failing(1), list[int]()
    for _ in range(12):
        expected = play.state.queries.retry_delay(key("first"))
        delays.append(wait(play))
        decide_and_fail(play, "first")
        assert play.state.next_wakeup(play.now) == play.now + expected
    assert delays == [BASE * 2**n for n in range(10)] + [MAX, MAX]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda play: play.change("first", priority=1), id="changed"),
        pytest.param(lambda play: play.change("first", uid="other"), id="created anew"),
        pytest.param(lambda play: play.restart_anew(), id="restart of the manager"),
    ],
)
def test_failures_are_forgotten(change: Callable[["Anew"], None]) -> None:
    play = Anew()
    play.put(queue("q", 1))
    play.submit("first", "q")
    for _ in range(3):
        decide_and_fail(play, "first")
        wait(play)
    decide_and_fail(play, "first")
    change(play)
    assert play.state.queries.retry_delay(key("first")) == BASE
    assert reserved(play.cycles()) == ["first"]


class Anew(Play):
    """A play in which the manager may restart."""

    def restart_anew(self) -> None:
        """Know nothing but what the API shows."""
        self.state = self.state.restarted()


def test_failures_are_forgotten_once_a_reservation_is_written() -> None:
    play = failing(3)
    wait(play)
    assert play.decide() == ["first"]
    assert play.state.queries.retry_delay(key("first")) == BASE


def test_observation_without_a_change_does_not_end_the_backoff() -> None:
    play = failing(3)
    play.put_workload(play.workloads["first"])
    assert reserved(play.cycles()) == []
    assert wait(play) == 4 * BASE


def test_backoff_goes_on_after_the_local_queue_was_stopped() -> None:
    play = failing(3)
    play.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q", stop_policy=StopPolicy.HOLD)))
    play.send(happened.LocalQueueChanged(LocalQueue(key("q"), "q")))
    assert wait(play) == 4 * BASE


def test_later_of_the_two_instants_ends_the_backoff() -> None:
    play = Play()
    play.put(queue("q", 1))
    play.submit("first", "q")
    play.cycles()
    play.change("first", requeue_at=play.now + SECOND)
    fail(play, "first")
    assert wait(play) == SECOND


def test_restored_state_continues_the_count() -> None:
    play = failing(3)
    play.restart()
    assert play.state.queries.retry_delay(key("first")) == 8 * BASE
    assert wait(play) == 4 * BASE
    decide_and_fail(play, "first")
    assert wait(play) == 8 * BASE


def test_failures_of_what_holds_no_undecided_reservation_are_not_counted() -> None:
    play = failing(0)
    fail(play, "first")
    assert play.decide() == ["first"]
    for event in (happened.ReservationFailed, happened.ReservationDiscarded):
        play.send(event(key("first"), "uid-first"))
    assert play.state.queries.retry_delay(key("first")) == BASE
    assert play.state.queries.retry_delay(key("unknown")) == 0


def test_discarded_reservation_is_decided_anew_at_once() -> None:
    play = failing(2)
    wait(play)
    play.cycles()
    play.send(happened.ReservationDiscarded(key("first"), "uid-first"))
    assert play.decide() == ["first"]
