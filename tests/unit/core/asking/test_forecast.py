from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from admitq.asking.branches import branch_of
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.course import Bound, ForecastBounds
from admitq.core.asking.forecast import Delay, Forecast, delays, forecast
from admitq.core.asking.run_times import UNKNOWN, Run, RunTimeEstimate, RunTimeHistory, RunTimeSource
from admitq.core.events import ClusterQueueChanged, Event, WorkloadChanged
from admitq.core.model import SECOND, Instant, PodSet, Workload
from admitq.core.requests import template_requesting
from tests.unit.core.small_cluster import LOWER, SmallCluster, key, queue

HOUR = 3600 * SECOND
DAY = 24 * HOUR


def fixed(seconds: int) -> RunTimeEstimate:
    """Return the estimate of workloads that all run for the same time."""
    return RunTimeHistory([Run("g", "", seconds * SECOND)] * 5).estimate("g", "")


def spread(*seconds: int) -> RunTimeEstimate:
    return RunTimeHistory([Run("g", "", each * SECOND) for each in seconds]).estimate("g", "")


def bounds(**values: Any) -> ForecastBounds:
    return replace(ForecastBounds(lambda: 0, horizon=DAY, courses=12), **values)


def start_of(
    cluster: SmallCluster,
    name: str,
    run_time: RunTimeEstimate | Mapping[str, RunTimeEstimate],
    *,
    events: Sequence[Event] = (),
    **limits: Any,
) -> Forecast:
    def estimate_of(workload: Workload) -> RunTimeEstimate:
        return run_time if isinstance(run_time, RunTimeEstimate) else run_time[workload.key.name]

    answers = forecast(
        [key(name)],
        now=cluster.now,
        branch=copying_branch(cluster.state),
        estimate_of=estimate_of,
        bounds=bounds(**limits),
        events=events,
    )
    return answers[key(name)]


def seconds(cluster: SmallCluster, answer: Forecast) -> tuple[float | None, ...]:
    """Return how many seconds from now the workload starts: not before, p50, p90."""

    def after(instant: Instant | None) -> float | None:
        return None if instant is None else (instant - cluster.now) // SECOND

    return after(answer.not_before), after(answer.p50), after(answer.p90)


@pytest.fixture
def cluster() -> SmallCluster:
    """One ClusterQueue of 1 CPU in use since now, and two workloads that wait."""
    cluster = SmallCluster(now=1_000 * SECOND)
    cluster.put(queue("a", 1))
    for name in ("runs", "second", "third"):
        cluster.submit(name, "a")
    cluster.run("runs")
    return cluster


def test_workloads_start_one_after_the_other(cluster: SmallCluster) -> None:
    assert seconds(cluster, start_of(cluster, "second", fixed(60))) == (60, 60, 60)
    answer = start_of(cluster, "third", fixed(60))
    assert seconds(cluster, answer) == (120, 120, 120)
    assert answer.basis == (10, 5, {RunTimeSource.GROUP: 3}, frozenset())


def test_time_that_a_workload_has_run_is_subtracted(cluster: SmallCluster) -> None:
    cluster.now += 20 * SECOND
    assert seconds(cluster, start_of(cluster, "second", fixed(60))) == (40, 40, 40)


def test_spread_of_run_times_is_the_spread_of_the_answer(cluster: SmallCluster) -> None:
    """Each run time is equally likely, so that p50 is in the middle."""
    answer = start_of(cluster, "second", spread(*range(10, 110, 10)), courses=102)
    earliest, median, latest = seconds(cluster, answer)
    assert earliest == 10
    assert median is not None
    assert 40 <= median <= 60
    assert latest == 100


@pytest.mark.parametrize(("courses", "is_known"), [(13, True), (5, False)])
def test_p90_without_late_course_needs_many_drawn_courses(
    cluster: SmallCluster, courses: int, is_known: bool
) -> None:
    """Time ends the late course, which is the third. The clock is read three times for each course."""
    clock = readings(*[0] * 7, 30, *[40] * 60)
    answer = start_of(cluster, "second", spread(*range(10, 110, 10)), courses=courses, percent_used=clock)
    assert answer.basis.bounds == {Bound.REAL_TIME}
    latest = seconds(cluster, answer)[2]
    assert (latest is not None and 80 <= latest <= 100) if is_known else latest is None


def test_few_courses_use_the_late_course_for_p90(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "second", spread(*range(10, 110, 10)), courses=3)
    assert answer.basis.courses == 1
    assert seconds(cluster, answer)[2] == 100


def test_same_question_has_the_same_answer(cluster: SmallCluster) -> None:
    run_times = spread(10, 20, 30)
    assert start_of(cluster, "third", run_times) == start_of(cluster, "third", run_times)


def test_workload_that_holds_quota_has_started(cluster: SmallCluster) -> None:
    cluster.now += HOUR
    answer = start_of(cluster, "runs", fixed(60))
    assert seconds(cluster, answer) == (-3600, -3600, -3600)


def test_workload_that_does_not_exist_has_no_forecast(cluster: SmallCluster) -> None:
    answers = forecast(
        [key("none")],
        now=cluster.now,
        branch=copying_branch(cluster.state),
        estimate_of=lambda _: UNKNOWN,
        bounds=bounds(),
    )
    assert answers == {}


def test_workload_that_can_preempt_starts_now(cluster: SmallCluster) -> None:
    cluster.put(queue("a", 1, preemption=LOWER))
    cluster.submit("urgent", "a", priority=5)
    assert seconds(cluster, start_of(cluster, "urgent", fixed(60))) == (0, 0, 0)


def test_preempted_workload_runs_again_from_its_begin(cluster: SmallCluster) -> None:
    cluster.put(queue("a", 1, preemption=LOWER))
    cluster.submit("urgent", "a", priority=5)
    cluster.now += 50 * SECOND
    assert seconds(cluster, start_of(cluster, "second", fixed(60))) == (120, 120, 120)


def test_workload_that_never_fits_does_not_start_before_the_horizon(cluster: SmallCluster) -> None:
    cluster.submit("huge", "a", cpu=5)
    answer = start_of(cluster, "huge", fixed(60))
    assert seconds(cluster, answer) == (24 * 3600, None, None)
    assert answer.basis.bounds == {Bound.NOTHING_ENDS}


def test_workload_behind_one_of_unknown_run_time_may_start_at_any_time(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "second", UNKNOWN)
    assert seconds(cluster, answer) == (0, None, None)
    assert answer.basis.sources == {RunTimeSource.UNKNOWN: 2}
    assert answer.basis.bounds == {Bound.NOTHING_ENDS}


def test_workload_without_queue_does_not_start_before_the_horizon(cluster: SmallCluster) -> None:
    cluster.submit("lost", "no such queue")
    assert seconds(cluster, start_of(cluster, "lost", fixed(60))) == (24 * 3600, None, None)


def test_horizon_ends_a_course(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "third", fixed(60), horizon=100 * SECOND)
    assert seconds(cluster, answer) == (100, None, None)
    assert answer.basis.bounds == {Bound.HORIZON}


def test_number_of_decisions_ends_a_course(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "third", fixed(60), decisions=1)
    assert seconds(cluster, answer) == (60, None, None)
    assert answer.basis.bounds == {Bound.DECISIONS}


def readings(*percent: int) -> Callable[[], int]:
    """Return a clock that shows these percentages of the time, one after the other, and then always 100."""
    left = iter(percent)
    return lambda: next(left, 100)


def test_forecast_without_time_says_only_what_it_knows(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "third", fixed(60), percent_used=readings(0, 1))
    assert seconds(cluster, answer) == (60, None, None)
    assert answer.basis.bounds == {Bound.REAL_TIME}
    assert answer.basis.courses == 0


def test_drawn_course_that_time_ended_does_not_count(cluster: SmallCluster) -> None:
    """The clock is read before each course, at each step of it that does not end it, and after it."""
    answer = start_of(cluster, "third", fixed(60), percent_used=readings(0, 1, 2, 3, 3, 50))
    assert seconds(cluster, answer) == (120, None, None)
    assert answer.basis.courses == 0


def test_early_course_leaves_time_for_a_drawn_one(cluster: SmallCluster) -> None:
    """The early course ends at a quarter of the time, with the instant that it has reached."""
    answer = start_of(cluster, "third", fixed(60), percent_used=readings(0, 24, 25, 25, 25, 60, 99))
    assert seconds(cluster, answer) == (60, 120, None)
    assert answer.basis.bounds == {Bound.REAL_TIME}
    assert answer.basis.courses == 1


def test_early_course_has_a_part_of_the_time_that_is_left(cluster: SmallCluster) -> None:
    answer = start_of(cluster, "third", fixed(60), percent_used=readings(60, 69, 70))
    assert seconds(cluster, answer) == (60, None, None)


def test_other_cohort_trees_are_not_simulated(cluster: SmallCluster) -> None:
    cluster.put(queue("b", 1))
    cluster.submit("elsewhere", "b")
    cluster.submit("waits-elsewhere", "b")
    cluster.run("elsewhere")
    known = {name: fixed(60) for name in ("runs", "second", "third")}
    assert seconds(cluster, start_of(cluster, "second", known)) == (60, 60, 60)


def test_cohort_with_the_queue_is_simulated(cluster: SmallCluster) -> None:
    cluster.put(queue("a", 1, "team"), queue("b", 1, "team"))
    cluster.submit("elsewhere", "b")
    cluster.decide()
    known = {"runs": fixed(60), "elsewhere": fixed(10), "second": fixed(60), "third": fixed(60)}
    assert seconds(cluster, start_of(cluster, "second", known)) == (10, 10, 10)


def test_backoff_of_a_workload_ends_in_time(cluster: SmallCluster) -> None:
    cluster.put(queue("b", 1))
    cluster.submit("backs-off", "b", requeue_at=cluster.now + 30 * SECOND)
    assert seconds(cluster, start_of(cluster, "backs-off", fixed(60))) == (30, 30, 30)


def test_hypothetical_events_come_first(cluster: SmallCluster) -> None:
    more = ClusterQueueChanged(queue("a", 2))
    assert seconds(cluster, start_of(cluster, "third", fixed(60), events=[more])) == (60, 60, 60)


def test_delay_is_the_difference_of_the_medians(cluster: SmallCluster) -> None:
    pods = (PodSet("main", 1, template_requesting({"cpu": 1})),)
    new = Workload(key("new"), "uid-new", "a", queued_at=0, pod_sets=pods, priority=1)
    answers = delays(
        [key("third"), key("new"), key("none")],
        [WorkloadChanged(new)],
        now=cluster.now,
        branch=copying_branch(cluster.state),
        estimate_of=lambda _: fixed(60),
        bounds=bounds(),
    )
    assert answers.keys() == {key("third"), key("new")}
    assert answers[key("third")].by == 60 * SECOND
    assert (answers[key("new")].before, answers[key("new")].by) == (None, None)


def test_delay_without_median_is_not_known(cluster: SmallCluster) -> None:
    known = start_of(cluster, "third", fixed(60))
    assert Delay(known, replace(known, p50=None)).by is None


def test_forked_processes_give_the_same_answer(cluster: SmallCluster) -> None:
    run_times = spread(10, 20, 30)
    in_processes = forecast(
        [key("third")],
        now=cluster.now,
        branch=branch_of(cluster.state, deadline_s=60),
        estimate_of=lambda _: run_times,
        bounds=bounds(),
    )
    assert in_processes[key("third")] == start_of(cluster, "third", run_times)


def test_ends_in_a_crowded_queue_are_rounded_by_less_than_two_percent(cluster: SmallCluster) -> None:
    pods = (PodSet("main", 1, template_requesting({"cpu": 1})),)
    last = [
        WorkloadChanged(Workload(key(f"w{number}"), f"uid-{number}", "a", 100 + number, pods))
        for number in range(200)
    ]
    exact = 202 * 301
    answers = forecast(
        [key("w199")],
        now=cluster.now,
        branch=copying_branch(cluster.state),
        estimate_of=lambda _: fixed(301),
        bounds=bounds(courses=2),
        events=last,
    )
    start = (answers[key("w199")].not_before - cluster.now) / SECOND
    assert 0.97 * exact <= start < exact
