import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.asking.run_times import WHOLE, Run, RunTimeEstimate, RunTimeHistory, RunTimeSource


def history(*durations: int, group: str = "train", censored: frozenset[int] = frozenset()) -> RunTimeHistory:
    return RunTimeHistory(Run(group, "queue", each, each in censored) for each in durations)


def at(estimate: RunTimeEstimate, *quantiles: float, elapsed: int = 0) -> list[int | None]:
    return [estimate.remaining_at(int(each * WHOLE), elapsed) for each in quantiles]


def test_quantiles_are_those_of_the_runs_of_the_group() -> None:
    estimate = history(40, 10, 30, 20).estimate("train", "queue")
    assert (estimate.source, estimate.samples) == (RunTimeSource.GROUP, 4)
    assert at(estimate, 0, 0.24, 0.25, 0.5, 0.75, 0.99) == [10, 10, 20, 30, 40, 40]


def test_workload_that_runs_is_compared_with_longer_runs_only() -> None:
    estimate = history(10, 20, 30, 40).estimate("train", "queue")
    assert at(estimate, 0, 0.49, 0.5, 0.99, elapsed=20) == [10, 10, 20, 20]


def test_workload_that_outlived_all_runs_runs_twice_as_long_in_half_of_the_cases() -> None:
    estimate = history(10, 20, 30).estimate("train", "queue")
    assert at(estimate, 0, 0.5, 0.75, 0.999, elapsed=100) == [0, 100, 300, 1900]


@pytest.mark.parametrize(
    ("of_group", "of_queue", "source", "samples"),
    [
        (3, 0, RunTimeSource.GROUP, 3),
        (2, 1, RunTimeSource.QUEUE, 3),
        (0, 3, RunTimeSource.QUEUE, 3),
        (1, 1, RunTimeSource.ALL, 4),
    ],
)
def test_runs_of_others_count_if_those_of_the_group_or_queue_are_few(
    of_group: int, of_queue: int, source: RunTimeSource, samples: int
) -> None:
    known = RunTimeHistory(
        [
            Run("", "other queue", 7),
            *[Run("train", "queue", 5)] * of_group,
            *[Run("other", "queue", 9)] * of_queue,
            Run("", "other queue", 7),
        ]
    )
    estimate = known.estimate("train", "queue")
    assert (estimate.source, estimate.samples) == (source, samples)


def test_workload_without_group_has_the_estimate_of_its_queue() -> None:
    assert history(5, 5, 5).estimate("", "queue").source is RunTimeSource.QUEUE


def test_few_runs_of_the_group_count_if_there_are_few_of_all() -> None:
    assert history(5).estimate("train", "other queue").source is RunTimeSource.GROUP


def test_runs_without_known_end_do_not_make_a_group_known() -> None:
    runs = [*[Run("train", "queue", 5, is_censored=True)] * 9, *[Run("", "other queue", 7)] * 3]
    assert RunTimeHistory(runs).estimate("train", "queue").source is RunTimeSource.ALL
    assert RunTimeHistory(runs[:9]).estimate("train", "queue").durations == (5,)


def test_only_the_latest_runs_count() -> None:
    estimate = history(*[1] * 300, *[2] * 200).estimate("train", "queue")
    assert (estimate.durations, estimate.samples) == ((2,), 200)


def test_later_run_changes_the_estimate() -> None:
    known = history(1, 1, 1)
    assert known.estimate("train", "queue") is known.estimate("train", "queue")
    known.add(Run("train", "queue", 2))
    assert known.estimate("train", "queue").durations == (1, 2)


@pytest.mark.parametrize(
    ("quantile", "elapsed", "expected"), [(0.5, 0, 50), (0.5, 80, 10), (0.9, 200, 0), (0, 0, 0)]
)
def test_each_time_up_to_the_limit_is_equally_likely_without_runs(
    quantile: float, elapsed: int, expected: int
) -> None:
    estimate = RunTimeHistory().estimate("train", "queue", limit=100)
    assert estimate.source is RunTimeSource.LIMIT
    assert at(estimate, quantile, elapsed=elapsed) == [expected]


def test_limit_cuts_longer_runs_off() -> None:
    estimate = history(10, 20, 300).estimate("train", "queue", limit=100)
    assert at(estimate, 0, 0.99) == [10, 100]
    assert at(estimate, 0.99, elapsed=95) == [5]


def test_own_estimate_of_the_job_comes_before_all_runs() -> None:
    estimate = history(10, 20, 300).estimate("train", "queue", remaining=7)
    assert estimate.source is RunTimeSource.OWN_ESTIMATE
    assert at(estimate, 0, 0.99, elapsed=50) == [7, 7]
    limited = RunTimeHistory().estimate("train", "queue", remaining=7, limit=55)
    assert at(limited, 0.5, elapsed=50) == [5]


def test_workload_without_runs_and_limit_never_ends() -> None:
    estimate = RunTimeHistory().estimate("train", "queue")
    assert estimate.source is RunTimeSource.UNKNOWN
    assert at(estimate, 0, 0.99) == [None, None]


def test_weight_of_a_censored_run_goes_to_longer_runs() -> None:
    """Of the runs 10, 20+, 30, 40, those of 30 and 40 have one and a half times the weight."""
    estimate = history(10, 20, 30, 40, censored=frozenset({20})).estimate("train", "queue")
    assert estimate.durations == (10, 30, 40)
    assert estimate.weights == (WHOLE, 5 * WHOLE // 2, 4 * WHOLE)


def test_longest_run_counts_with_its_own_length_if_it_is_censored() -> None:
    estimate = history(10, 20, 30, censored=frozenset({30})).estimate("train", "queue")
    assert estimate.durations == (10, 20, 30)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 99),
    st.integers(0, 60),
)
def test_remaining_time_grows_with_the_quantile_and_is_never_negative(
    runs: list[tuple[int, bool]], percent: int, elapsed: int
) -> None:
    known = RunTimeHistory(Run("", "queue", duration, censored) for duration, censored in runs)
    estimate = known.estimate("", "queue")
    assert estimate.weights[-1] == len(runs) * WHOLE
    lower = estimate.remaining_at(WHOLE * percent // 101, elapsed)
    upper = estimate.remaining_at(WHOLE * (percent + 1) // 101, elapsed)
    assert lower is not None
    assert upper is not None
    assert 0 <= lower <= upper
