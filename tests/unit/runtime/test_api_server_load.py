"""The estimate of how slow the API server is."""

import pytest

from admitq.runtime.api_server_load import ApiServerLoad


class Clock:
    """A clock that the test sets; seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def record(load: ApiServerLoad, clock: Clock, *seconds: float, operation: str = "patch workloads") -> None:
    """Record writes, a second apart."""
    for each in seconds:
        clock.now += 1.0
        load.record(operation, each)


def test_idle_api_server_is_not_slow(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    assert load.slowness == 1.0
    record(load, clock, *[0.005] * 20)
    assert load.slowness == pytest.approx(1.0, abs=0.01)


def test_slowness_is_the_factor_of_the_shortest_response_time(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    record(load, clock, 0.005, *[0.05] * 20)
    assert load.slowness == pytest.approx(10.0, rel=0.1)


def test_response_times_of_different_operations_are_not_compared(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    record(load, clock, 0.005)
    record(load, clock, *[0.5] * 20, operation="patch jobs")
    assert load.slowness == pytest.approx(1.0, abs=0.05)


def test_one_slow_write_of_many_does_not_count_much(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    for _ in range(100):
        clock.now += 0.001
        load.record("patch workloads", 0.005)
    load.record("patch workloads", 0.05)
    assert 1.0 < load.slowness < 2.0


def test_slowness_is_forgotten_without_further_writes(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    record(load, clock, 0.005, *[0.5] * 20)
    clock.now += 60
    assert load.slowness == pytest.approx(1.0, abs=0.3)


def test_a_lasting_change_of_response_times_is_learned(clock: Clock) -> None:
    load = ApiServerLoad(clock)
    record(load, clock, 0.005, *[0.05] * 4000)
    assert load.slowness == pytest.approx(1.0, abs=0.1)
