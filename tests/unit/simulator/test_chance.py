"""Distributions and arrivals are drawn within their bounds, and equally in each run."""

from itertools import islice
from statistics import fmean, median

import pytest

from admitq.simulator import arrivals
from admitq.simulator.distributions import create_random_stream, create_sampler
from admitq.simulator.schema import Arrivals, Distribution

SECOND = 1_000_000_000


def draw_values(spec: object, count: int = 4000) -> list[float]:
    draw = create_sampler(Distribution.model_validate(spec))
    stream = create_random_stream(1, "test")
    return [draw(stream) / SECOND for _ in range(count)]


@pytest.mark.parametrize(
    ("spec", "low", "high", "mean"),
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
def test_drawn_values_have_bounds_and_mean_of_distribution(
    spec: object, low: float, high: float, mean: float | None
) -> None:
    values = draw_values(spec)
    assert low <= min(values) <= max(values) <= high
    if mean is not None:
        assert fmean(values) == pytest.approx(mean, rel=0.06)


def test_lognormal_distribution_has_given_median() -> None:
    assert median(draw_values({"lognormal": {"median": "60s", "sigma": 1.5}})) == pytest.approx(60, rel=0.1)


def test_random_streams_of_equal_seed_and_purpose_are_equal() -> None:
    assert create_random_stream(1, "a", "b").random() == create_random_stream(1, "a", "b").random()


def test_random_streams_of_different_seed_or_purpose_differ() -> None:
    streams = [(1, "a"), (1, "b"), (2, "a")]
    assert len({create_random_stream(seed, purpose).random() for seed, purpose in streams}) == 3


def times(*spec: object) -> list[float]:
    kinds = [Arrivals.model_validate(item) for item in spec]
    return [at / SECOND for at in islice(arrivals.times(kinds, create_random_stream(1, "test")), 1000)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ((), [0]),
        (({"fixed": {"count": 3}},), [0, 0, 0]),
        (({"fixed": {"count": 3, "start": "5s", "every": "10s"}},), [5, 15, 25]),
        (({"at": ["20s", "1s"]},), [1, 20]),
        (({"at": ["7s"]}, {"fixed": {"count": 2, "every": "10s"}}), [0, 7, 10]),
    ],
)
def test_fixed_arrivals_are_at_given_times(spec: tuple[object, ...], expected: list[float]) -> None:
    assert times(*spec) == expected
    assert arrivals.expected([Arrivals.model_validate(item) for item in spec]) == len(expected)


def test_poisson_arrivals_have_given_rate_and_bounds() -> None:
    arrival_times = times({"poisson": {"every": "10s", "start": "100s", "end": "5100s"}})
    assert arrival_times == sorted(arrival_times)
    assert 100 <= arrival_times[0] <= arrival_times[-1] <= 5100
    assert 430 < len(arrival_times) < 570


def test_poisson_arrivals_end_after_given_count() -> None:
    assert len(times({"poisson": {"every": "10s", "count": 7}})) == 7


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"every": "10s"}, None),
        ({"every": "10s", "count": 5}, 5),
        ({"every": "1s", "count": 5, "end": "9s"}, None),
    ],
)
def test_expected_number_of_poisson_arrivals_is_known_only_if_count_is_certain(
    spec: object, expected: int | None
) -> None:
    assert arrivals.expected([Arrivals.model_validate({"poisson": spec})]) == expected
