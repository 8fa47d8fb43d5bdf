from fractions import Fraction

import pytest

from benchmarks.measures import AmountOverTime, percentile_of_unsorted, usage_by_process
from benchmarks.seed import Plan
from localcluster.processes import Usage


def plan(**changes: object) -> Plan:
    defaults = {
        "setting": "literal",
        "scale": 1.0,
        "jobs": 1000,
        "nodes": 100,
        "node_cpu": 10,
        "deadline_s": 900,
        "timeout_s": None,
        "queue": True,
        "seed": 1,
    }
    return Plan(**{**defaults, **changes})  # type: ignore[arg-type]


def test_level_mean_is_weighted_by_duration():
    level = AmountOverTime()
    level.begin(10.0)
    level.change(+4, 11.0)
    level.change(-3, 13.0)
    assert level.mean(15.0) == pytest.approx((0 * 1 + 4 * 2 + 1 * 2) / 5)
    assert level.peak == 4
    assert level.value == 1


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([float(n) for n in range(1000, 0, -1)], 90, 900.0),
        ([float(n) for n in range(1000, 0, -1)], Fraction(999, 10), 999.0),
    ],
)
def test_percentile_of_unsorted_is_smallest_value_that_covers_the_percentage(
    values: list[float], percent: int | Fraction, expected: float | None
):
    assert percentile_of_unsorted(values, percent) == expected


def test_usage_is_counted_from_load_start_and_dead_processes_are_marked():
    before = {"etcd": Usage(cpu_seconds=2.0, rss_mib=10, peak_rss_mib=10)}
    after = [("etcd", Usage(cpu_seconds=5.0, rss_mib=50, peak_rss_mib=100)), ("kwok", None)]
    assert usage_by_process(before, after) == {
        "etcd": {"cpu_s": 3.0, "rss_mb": 105},
        "kwok": {"cpu_s": None, "rss_mb": None, "died": True},
    }


@pytest.mark.parametrize(
    ("changes", "slots", "bound_minutes"),
    [
        ({}, 500, 75.0),
        ({"setting": "ten-minute"}, 3000, 12.5),
        ({"scale": 10.0}, 500, 7.5),
        # If all jobs fit at the same time, the bound is one mean run time.
        ({"node_cpu": 250}, 12_500, 3.75),
    ],
)
def test_plan_bound_is_run_time_without_idle_slots(
    changes: dict[str, object], slots: int, bound_minutes: float
):
    assert plan(**changes).slots == slots
    assert plan(**changes).bound_s == pytest.approx(bound_minutes * 60)
