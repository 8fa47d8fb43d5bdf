"""Percentiles by nearest rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.percentiles import percentile


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 10), (1, 10), (10, 10), (11, 20), (50, 50), (90, 90), (99, 100), (100, 100)]
)
def test_percentiles_are_by_nearest_rank(percent: int, value: int) -> None:
    assert percentile([10, 20, 30, 40, 50, 60, 70, 80, 90, 100], percent) == value


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 100))
def test_percentile_is_the_smallest_value_that_covers_the_percentage(values: list[int], percent: int) -> None:
    found = percentile(sorted(values), percent)
    covering = [
        each for each in values if 100 * sum(other <= each for other in values) >= percent * len(values)
    ]
    assert found == min(covering)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(IndexError):
        percentile([], 50)
