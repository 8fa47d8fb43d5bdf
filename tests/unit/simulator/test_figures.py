"""Series, percentiles, Jain's index, bounds: the arithmetic of the report."""

from array import array
from pathlib import Path

import pytest

from admitq.simulator.course import RemainingWork
from admitq.simulator.measures import MakespanBound
from admitq.simulator.report import jain, percentile, report
from admitq.simulator.series import BUCKETS, Grid, Level
from admitq.simulator.templates import Parallelism
from tests.unit.simulator.stage import WORLD, played

SECOND = 1_000_000_000


def test_a_level_keeps_integral_and_peak_exactly() -> None:
    level = Level(Grid())
    for by, at in ((3, 10), (4, 20), (-6, 25), (1, 25), (-2, 40)):
        level.change(by, at)
    level.settle(100)
    assert (level.value, level.peak, level.integral) == (0, 7, 3 * 10 + 7 * 5 + 2 * 15)


@pytest.mark.parametrize("end", [5, 1_000_000, 3 * SECOND, 2_000_000 * SECOND + 7])
def test_the_course_of_a_level_adds_up_to_its_integral(end: int) -> None:
    grid = Grid()
    level = Level(grid)
    level.change(2, end // 5)
    level.change(5, end // 3)
    level.change(-6, end // 2)
    course = level.course(end)
    assert 1 <= len(course) <= BUCKETS
    last = (end - 1) % grid.width + 1
    total = sum(value * grid.width for value in course[:-1]) + course[-1] * last
    assert total == pytest.approx(level.integral)


def test_courses_of_one_grid_have_the_same_buckets() -> None:
    grid = Grid()
    early, late, never = Level(grid), Level(grid), Level(grid)
    early.change(1, 0)
    early.change(-1, 5)
    late.change(1, 900 * SECOND)
    assert len({len(level.course(1000 * SECOND)) for level in (early, late, never)}) == 1
    assert sum(never.course(1000 * SECOND)) == 0


@pytest.mark.parametrize(
    ("percent", "value"), [(1, 10), (10, 10), (50, 50), (51, 60), (90, 90), (99, 100), (100, 100)]
)
def test_percentiles_are_by_nearest_rank(percent: int, value: int) -> None:
    assert percentile([10, 20, 30, 40, 50, 60, 70, 80, 90, 100], percent) == value


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
def test_jains_index(values: list[float], index: float | None) -> None:
    assert jain(values) == pytest.approx(index)


def lower(*those: tuple[int, float], earliest_end: int = 0) -> MakespanBound:
    return MakespanBound(
        array("q", [at for at, _ in those]), {"cpu": array("d", [work for _, work in those])}, earliest_end
    )


@pytest.mark.parametrize(
    ("of", "bound"),
    [
        pytest.param(lower((0, 100.0), (0, 100.0)), 20.0, id="all work by all quota"),
        pytest.param(lower((0, 10.0), (50, 100.0)), 60.0, id="work that comes late cannot be done before"),
        pytest.param(lower((0, 100.0), earliest_end=70), 70.0, id="the longest alone"),
        pytest.param(lower((30, 100.0), (0, 100.0)), 40.0, id="in whatever order they ended"),
    ],
)
def test_the_bound_of_the_makespan(of: MakespanBound, bound: float) -> None:
    assert of.bound({"cpu": 10.0}) == bound


@pytest.mark.parametrize(
    ("checkpoints", "lost", "left"),
    [(None, 70 * 2, [100, 100]), (0, 0, [30, 100]), (30, 10 * 2, [40, 100]), (100, 70 * 2, [100, 100])],
)
def test_what_survives_an_interruption(checkpoints: int | None, lost: int, left: list[int]) -> None:
    work = RemainingWork([(100, 2), (100, 2)])
    how = Parallelism(completions=4, parallel=2)
    work.start(how, 0)
    assert work.interrupt(checkpoints, 70) == lost
    assert sorted(run_time for run_time, _ in work.left) == left
    work.start(how, 1000)
    assert work.next_end == 1000 + left[0]


def test_pods_take_the_places_of_those_that_ended() -> None:
    work = RemainingWork([(10, 1), (30, 1), (20, 1)])
    how = Parallelism(completions=3, parallel=2)
    work.start(how, 0)
    ends: list[int] = []
    while (end := work.next_end) is not None:
        ends.append(end)
        work.end_due(how, end)
    assert (ends, work.ended, work.done, work.longest) == ([20, 30], 3, 60, 30)


def test_utilisation_borrowing_and_quota_have_the_unit_of_the_resource(tmp_path: Path) -> None:
    lender = WORLD.replace("name: queue\n", "name: lender\n").split("---\n")[1]
    world = f"{WORLD}---\n{lender}".replace("namespaceSelector", "cohortName: both\n  namespaceSelector")
    spec = "workloads: [{name: w, queue: team/main, requests: {cpu: 1500m}, pods: 4, runTime: 1m}]"
    simulation, _ = played(tmp_path, spec, world)
    result = report(simulation)
    (use,) = result.flavors
    assert (use.quota, use.mean, use.peak, use.utilisation) == (8.0, 6.0, 6.0, 0.75)
    borrower = next(one for one in result.cluster_queues if one.cluster_queue == "queue")
    assert (borrower.borrowed_mean, borrower.borrowed_peak) == (2.0, 2.0)
    assert borrower.borrowed_share == pytest.approx(1 / 3, abs=1e-6)
    assert (result.makespan, result.bound, result.ratio) == (60.0, 60.0, 1.0)
