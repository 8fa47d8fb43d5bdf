"""The size of admitq for a number of jobs an hour."""

from dataclasses import replace

import pytest

from benchmarks.sizing import ChartDefaults, MeasuredCosts, fit_line, size_for

COSTS = MeasuredCosts(
    manager_cpu_s=36.0,
    webhook_cpu_s=3.6,
    calls=9.0,
    writes=5.0,
    write_cpu_ms=4.0,
    base_mb=100.0,
    pending_kb=2.0,
    finished_kb=1.0,
)
DEFAULTS = ChartDefaults(
    manager_cpu_milli=250,
    manager_memory_mib=256,
    manager_memory_limit_mib=1024,
    webhook_cpu_milli=100,
    qps=300,
)


def test_mean_use_follows_from_costs_and_rate() -> None:
    size = size_for(10_000, COSTS, DEFAULTS)
    # 10,000 jobs an hour are 2.78 a second.
    assert size.manager_cores == pytest.approx(0.1)
    assert size.webhook_cores == pytest.approx(0.01)
    assert size.api_server_cores == pytest.approx(10 * 20 / 3600)
    assert size.calls_per_s == pytest.approx(25)
    assert (size.pending, size.finished) == (100_000, 240_000)
    assert size.manager_mb == pytest.approx(100 + 200 + 240)


def test_requests_have_a_reserve_and_whole_steps() -> None:
    size = size_for(10_000, COSTS, DEFAULTS)
    # Four times 100m; 1.25 times 515 MiB in steps of 64; ten times 25 calls.
    assert (size.manager_cpu_milli, size.manager_memory_mib) == (400, 704)
    assert size.manager_memory_limit_mib == 1408
    assert size_for(20_000, COSTS, DEFAULTS).qps == 500


def test_requests_are_not_below_the_defaults() -> None:
    size = size_for(100, COSTS, DEFAULTS)
    assert (
        ChartDefaults(
            size.manager_cpu_milli,
            size.manager_memory_mib,
            size.manager_memory_limit_mib,
            size.webhook_cpu_milli,
            size.qps,
        )
        == DEFAULTS
    )


@pytest.mark.parametrize(
    ("costs", "figure"),
    [
        (replace(COSTS, manager_cpu_s=72.0), "manager_cpu_milli"),
        (replace(COSTS, webhook_cpu_s=36.0), "webhook_cpu_milli"),
        (replace(COSTS, writes=10.0), "api_server_cores"),
        (replace(COSTS, write_cpu_ms=8.0), "api_server_cores"),
        (replace(COSTS, calls=18.0), "qps"),
        (replace(COSTS, base_mb=400.0), "manager_memory_mib"),
        (replace(COSTS, pending_kb=4.0), "manager_memory_mib"),
        (replace(COSTS, finished_kb=2.0), "manager_memory_mib"),
    ],
)
def test_larger_cost_needs_more(costs: MeasuredCosts, figure: str) -> None:
    before, after = (getattr(size_for(10_000, each, DEFAULTS), figure) for each in (COSTS, costs))
    assert after > before


def test_line_fits_points() -> None:
    assert fit_line([(0, 1), (10, 21), (20, 41)]) == pytest.approx((1, 2))
    assert fit_line([(0, 0), (0, 2), (2, 2), (2, 4)]) == pytest.approx((1, 1))
    with pytest.raises(ValueError, match="different x"):
        fit_line([(3, 1), (3, 2)])
