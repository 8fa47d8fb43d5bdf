"""A state that replaces another one contains its observations and the reservations being written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admitq.core import dump
from admitq.core import events as happened
from admitq.core.instructions import ReserveQuota
from admitq.core.state import AdmissionState
from tests.unit.core.play import Play, key, queue


def play_with_reservation() -> tuple[Play, ReserveQuota]:
    """Return a cluster with two workloads of which only one fits, and the reservation of that one."""
    play = Play()
    play.put(queue("q", 4))
    play.submit("first", "q", cpu=3)
    play.submit("second", "q", cpu=3)
    [reservation] = [each for each in play.cycles() if isinstance(each, ReserveQuota)]
    return play, reservation


def observe_again(play: Play) -> AdmissionState:
    """Return a new state that observed the same objects."""
    new_state = play.state.empty()
    for event in dump.observations(play.state.to_dump()):
        new_state.observe(event, now=play.now)
    return new_state


def charged(state: AdmissionState, name: str) -> int:
    return sum(amount for _, amount in state.queries.usage_of_workload(key(name)))


def test_reservation_that_is_being_written_is_counted_in_new_state() -> None:
    play, reservation = play_with_reservation()
    queries, new_state = play.state.queries, observe_again(play)
    cycles = queries.cycles_run
    new_state.assume(reservation, now=play.now)
    play.state.replace_with(new_state)
    assert (charged(play.state, "first"), play.state.queries.cycles_run) == (3, cycles)
    assert queries.usage_of_workload(key("first")) == play.state.queries.usage_of_workload(key("first"))
    assert play.state.deciding is None
    assert play.decide() == []
    play.send(happened.ReservationDiscarded(reservation.key, reservation.uid))
    assert play.decide() == ["first"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda play: play.delete("first"), id="deleted"),
        pytest.param(
            lambda play: play.put_workload(replace(play.workloads["first"], uid="other")), id="recreated"
        ),
        pytest.param(lambda play: play.finish("first"), id="finished"),
    ],
)
def test_reservation_without_workload_is_not_counted(meanwhile: Callable[[Play], None]) -> None:
    play, reservation = play_with_reservation()
    meanwhile(play)
    new_state = observe_again(play)
    new_state.assume(reservation, now=play.now)
    assert charged(new_state, "first") == 0
    new_state.instructions()
    new_state.validate()


def test_reservation_that_was_observed_is_counted_once() -> None:
    play, reservation = play_with_reservation()
    play.change("first", admission=reservation.admission, admitted=True)
    new_state = observe_again(play)
    new_state.assume(reservation, now=play.now)
    assert charged(new_state, "first") == 3
    new_state.instructions()
    new_state.validate()
