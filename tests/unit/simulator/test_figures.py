"""The arithmetic of the report: series, Jain's index, and the bound of the makespan."""

from array import array
from pathlib import Path

import pytest

from admitq.simulator.measures import MakespanBound
from admitq.simulator.report import jain, report
from admitq.simulator.series import BUCKETS, Grid, Level
from admitq.simulator.simulated_workload import RemainingWork
from admitq.simulator.templates import Parallelism
from tests.unit.simulator.stage import WORLD, run_scenario

SECOND = 1_000_000_000


def test_level_has_exact_integral_and_peak() -> None:
    level = Level(Grid())
    for delta, at in ((3, 10), (4, 20), (-6, 25), (1, 25), (-2, 40)):
        level.change(delta, at)
    level.settle(100)
    assert (level.value, level.peak, level.integral) == (0, 7, 3 * 10 + 7 * 5 + 2 * 15)


@pytest.mark.parametrize("end", [5, 1_000_000, 3 * SECOND, 2_000_000 * SECOND + 7])
def test_course_of_level_adds_up_to_its_integral(end: int) -> None:
    grid = Grid()
    level = Level(grid)
    level.change(2, end // 5)
    level.change(5, end // 3)
    level.change(-6, end // 2)
    means = level.bucket_means(end)
    assert 1 <= len(means) <= BUCKETS
    last = (end - 1) % grid.width + 1
    total = sum(value * grid.width for value in means[:-1]) + means[-1] * last
    assert total == pytest.approx(level.integral)


def test_bucket_means_of_levels_of_one_grid_have_equal_length() -> None:
    grid = Grid()
    early, late, unchanged = Level(grid), Level(grid), Level(grid)
    early.change(1, 0)
    early.change(-1, 5)
    late.change(1, 900 * SECOND)
    assert len({len(level.bucket_means(1000 * SECOND)) for level in (early, late, unchanged)}) == 1
    assert sum(unchanged.bucket_means(1000 * SECOND)) == 0


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([], None),
        ([1.0], None),
        ([1.0, 1.0, 1.0], 1.0),
        ([1.0, 0.0], 0.5),
        ([0.0, 0.0], 1.0),
        ([3.0, 1.0], 0.8),
    ],
)
def test_jain_index_of_values(values: list[float], index: float | None) -> None:
    assert jain(values) == pytest.approx(index)


def makespan_bound(*arrivals: tuple[int, float], earliest_end: int = 0) -> MakespanBound:
    times = array("q", [at for at, _ in arrivals])
    return MakespanBound(times, {"cpu": array("d", [work for _, work in arrivals])}, earliest_end)


@pytest.mark.parametrize(
    ("makespan", "bound"),
    [
        pytest.param(makespan_bound((0, 100.0), (0, 100.0)), 20.0, id="all work divided by all quota"),
        pytest.param(makespan_bound((0, 10.0), (50, 100.0)), 60.0, id="work starts after its arrival"),
        pytest.param(makespan_bound((0, 100.0), earliest_end=70), 70.0, id="longest workload alone"),
        pytest.param(makespan_bound((30, 100.0), (0, 100.0)), 40.0, id="workloads out of order"),
    ],
)
def test_makespan_bound_is_that_of_work_quota_and_longest_workload(
    makespan: MakespanBound, bound: float
) -> None:
    assert makespan.bound({"cpu": 10.0}) == bound


@pytest.mark.parametrize(
    ("checkpoints", "lost", "remaining"),
    [(None, 70 * 2, [100, 100]), (0, 0, [30, 100]), (30, 10 * 2, [40, 100]), (100, 70 * 2, [100, 100])],
)
def test_interrupted_work_continues_from_last_checkpoint(
    checkpoints: int | None, lost: int, remaining: list[int]
) -> None:
    work = RemainingWork([(100, 2), (100, 2)])
    parallelism = Parallelism(completions=4, parallel=2)
    work.start(parallelism, 0)
    assert work.interrupt(checkpoints, 70) == lost
    assert sorted(run_time for run_time, _ in work.waiting) == remaining
    work.start(parallelism, 1000)
    assert work.next_end == 1000 + remaining[0]


def test_next_pod_starts_when_a_pod_ends() -> None:
    work = RemainingWork([(10, 1), (30, 1), (20, 1)])
    parallelism = Parallelism(completions=3, parallel=2)
    work.start(parallelism, 0)
    ends: list[int] = []
    while (end := work.next_end) is not None:
        ends.append(end)
        work.end_due(parallelism, end)
    assert (ends, work.ended, work.done, work.longest) == ([20, 30], 3, 60, 30)


def test_report_has_utilisation_borrowing_and_quota_in_units_of_resource(tmp_path: Path) -> None:
    lender = WORLD.replace("name: queue\n", "name: lender\n").split("---\n")[1]
    world = f"{WORLD}---\n{lender}".replace("namespaceSelector", "cohortName: both\n  namespaceSelector")
    spec = "workloads: [{name: w, queue: team/main, requests: {cpu: 1500m}, pods: 4, runTime: 1m}]"
    simulation, _ = run_scenario(tmp_path, spec, world)
    result = report(simulation)
    (use,) = result.flavors
    assert (use.quota, use.mean, use.peak, use.utilisation) == (8.0, 6.0, 6.0, 0.75)
    borrower = next(queue for queue in result.cluster_queues if queue.cluster_queue == "queue")
    assert (borrower.borrowed_mean, borrower.borrowed_peak) == (2.0, 2.0)
    assert borrower.borrowed_share == pytest.approx(1 / 3, abs=1e-6)
    assert (result.makespan, result.bound, result.ratio) == (60.0, 60.0, 1.0)
