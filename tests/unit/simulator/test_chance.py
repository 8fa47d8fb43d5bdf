"""Distributions and arrivals: what is drawn, and that it is drawn the same each time."""

from itertools import islice
from statistics import fmean, median

import pytest

from admitq.simulator import arrivals
from admitq.simulator.distributions import create_random_stream, create_sampler
from admitq.simulator.schema import Arrivals, Distribution

SECOND = 1_000_000_000


def drawn(of: object, count: int = 4000) -> list[float]:
    draw = create_sampler(Distribution.model_validate(of))
    chance = create_random_stream(1, "test")
    return [draw(chance) / SECOND for _ in range(count)]


@pytest.mark.parametrize(
    ("of", "low", "high", "mean"),
    [
        ("90s", 90, 90, 90),
        ({"constant": "90s", "jitter": 0.5}, 90, 135, 112.5),
        ({"uniform": {"min": "10s", "max": "20s"}}, 10, 20, 15),
        ({"exponential": {"mean": "10s"}}, 0, 200, 10),
        ({"weibull": {"scale": "10s", "shape": 1.0}}, 0, 200, 10),
        ({"exponential": {"mean": "10s"}, "atLeast": "5s", "atMost": "8s"}, 5, 8, None),
        ({"constant": "90s", "atMost": "1m"}, 60, 60, 60),
    ],
)
def test_what_is_drawn_lies_where_it_must(of: object, low: float, high: float, mean: float | None) -> None:
    values = drawn(of)
    assert low <= min(values) <= max(values) <= high
    if mean is not None:
        assert fmean(values) == pytest.approx(mean, rel=0.06)


def test_half_of_a_lognormal_is_below_its_median() -> None:
    assert median(drawn({"lognormal": {"median": "60s", "sigma": 1.5}})) == pytest.approx(60, rel=0.1)


def test_streams_of_different_purposes_differ_and_those_of_one_do_not() -> None:
    assert create_random_stream(1, "a", "b").random() == create_random_stream(1, "a", "b").random()
    assert (
        len(
            {
                create_random_stream(1, "a").random(),
                create_random_stream(1, "b").random(),
                create_random_stream(2, "a").random(),
            }
        )
        == 3
    )


def times(*of: object) -> list[float]:
    kinds = [Arrivals.model_validate(one) for one in of]
    return [at / SECOND for at in islice(arrivals.times(kinds, create_random_stream(1, "test")), 1000)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ((), [0]),
        (({"fixed": {"count": 3}},), [0, 0, 0]),
        (({"fixed": {"count": 3, "start": "5s", "every": "10s"}},), [5, 15, 25]),
        (({"at": ["20s", "1s"]},), [1, 20]),
        (({"at": ["7s"]}, {"fixed": {"count": 2, "every": "10s"}}), [0, 7, 10]),
    ],
)
def test_fixed_arrivals_come_when_they_are_said_to(of: tuple[object, ...], expected: list[float]) -> None:
    assert times(*of) == expected
    assert arrivals.expected([Arrivals.model_validate(one) for one in of]) == len(expected)


def test_poisson_arrivals_keep_their_mean_and_their_bounds() -> None:
    found = times({"poisson": {"every": "10s", "start": "100s", "end": "5100s"}})
    assert found == sorted(found)
    assert 100 <= found[0] <= found[-1] <= 5100
    assert 430 < len(found) < 570
    assert len(times({"poisson": {"every": "10s", "count": 7}})) == 7


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ({"every": "10s"}, None),
        ({"every": "10s", "count": 5}, 5),
        ({"every": "1s", "count": 5, "end": "9s"}, None),
    ],
)
def test_how_many_will_come_is_known_where_chance_does_not_decide(of: object, expected: int | None) -> None:
    assert arrivals.expected([Arrivals.model_validate({"poisson": of})]) == expected
