"""A state that follows another one knows what the API tells, and what is being written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admitq.core import dump
from admitq.core import events as happened
from admitq.core.instructions import ReserveQuota
from admitq.core.state import AdmissionState
from tests.unit.core.play import Play, key, queue


def decided() -> tuple[Play, ReserveQuota]:
    """Of two workloads that do not both fit, one is about to reserve quota."""
    play = Play()
    play.put(queue("q", 4))
    play.submit("first", "q", cpu=3)
    play.submit("second", "q", cpu=3)
    [reservation] = [one for one in play.cycles() if isinstance(one, ReserveQuota)]
    return play, reservation


def observed(play: Play) -> AdmissionState:
    """An empty state to which was shown what the other one observed."""
    fresh = play.state.empty()
    for event in dump.observations(play.state.to_dump()):
        fresh.observe(event, now=play.now)
    return fresh


def held(state: AdmissionState, name: str) -> int:
    return sum(amount for _, amount in state.queries.usage_of_workload(key(name)))


def test_reservation_that_is_being_written_stays_counted() -> None:
    play, reservation = decided()
    queries, fresh = play.state.queries, observed(play)
    cycles = queries.cycles_run
    fresh.assume(reservation, now=play.now)
    play.state.replace_with(fresh)
    assert (held(play.state, "first"), play.state.queries.cycles_run) == (3, cycles)
    assert queries.usage_of_workload(key("first")) == play.state.queries.usage_of_workload(key("first"))
    assert play.state.deciding is None
    assert play.decide() == []
    play.send(happened.ReservationDiscarded(reservation.key, reservation.uid))
    assert play.decide() == ["first"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda play: play.delete("first"), id="gone"),
        pytest.param(
            lambda play: play.put_workload(replace(play.workloads["first"], uid="other")), id="another"
        ),
        pytest.param(lambda play: play.finish("first"), id="finished"),
    ],
)
def test_reservation_without_workload_is_not_counted(meanwhile: Callable[[Play], None]) -> None:
    play, reservation = decided()
    meanwhile(play)
    fresh = observed(play)
    fresh.assume(reservation, now=play.now)
    assert held(fresh, "first") == 0
    fresh.instructions()
    fresh.validate()


def test_reservation_that_was_observed_is_counted_once() -> None:
    play, reservation = decided()
    play.change("first", admission=reservation.admission, admitted=True)
    fresh = observed(play)
    fresh.assume(reservation, now=play.now)
    assert held(fresh, "first") == 3
    fresh.instructions()
    fresh.validate()
