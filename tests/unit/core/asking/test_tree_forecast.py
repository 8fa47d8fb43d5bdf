"""A forecast of all workloads of a cohort tree is, for each of them, the forecast of this workload alone."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.core.asking.branch import copying_branch
from admitq.core.asking.course import ForecastBounds
from admitq.core.asking.forecast import Forecast, forecast, read_forecast, run_courses
from admitq.core.asking.run_times import UNKNOWN, Run, RunTimeEstimate, RunTimeHistory
from admitq.core.model import SECOND, ObjectKey, Workload
from tests.unit.core.small_cluster import RECLAIM, SmallCluster, key, queue

DAY = 24 * 3600 * SECOND
BOUNDS = ForecastBounds(lambda: 0, horizon=DAY, courses=4)


def spread(*seconds: int) -> RunTimeEstimate:
    return RunTimeHistory([Run("g", "", each * SECOND) for each in seconds]).estimate("g", "")


class Drawn(NamedTuple):
    """A workload: its queue, size, priority, and run times in seconds; none: unknown."""

    queue: str
    cpu: int
    priority: int
    seconds: tuple[int, ...]


WORKLOADS = st.lists(
    st.builds(
        Drawn,
        queue=st.sampled_from(["a", "b"]),
        cpu=st.integers(1, 4),
        priority=st.integers(0, 1),
        seconds=st.sampled_from([(), (60, 60, 60), (5, 50, 500, 5000), (10_000, 60_000, 90_000)]),
    ),
    min_size=1,
    max_size=4,
)


def comparable(found: Forecast) -> tuple[object, ...]:
    """Return all but the estimates that courses used. A course about more workloads uses more."""
    return found.not_before, found.p50, found.p90, found.basis.courses, found.basis.bounds


@settings(max_examples=25, deadline=None)
@given(running=WORKLOADS, pending=WORKLOADS)
def test_forecast_of_a_tree_equals_the_forecast_of_each_workload(
    running: list[Drawn], pending: list[Drawn]
) -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 2, "team", preemption=RECLAIM), queue("b", 2, "team"))
    run_times: dict[ObjectKey, tuple[int, ...]] = {}
    for number, drawn in enumerate([*running, *pending]):
        if number == len(running):
            cluster.decide()
        cluster.submit(f"w{number}", drawn.queue, cpu=drawn.cpu, priority=drawn.priority)
        run_times[key(f"w{number}")] = drawn.seconds

    def estimate_of(workload: Workload) -> RunTimeEstimate:
        seconds = run_times[workload.key]
        return spread(*seconds) if seconds else UNKNOWN

    def ask(*asked: ObjectKey) -> dict[ObjectKey, Forecast]:
        branch = copying_branch(cluster.state)
        return dict(forecast(asked, now=cluster.now, branch=branch, estimate_of=estimate_of, bounds=BOUNDS))

    whole = ask(*run_times)
    for each in run_times:
        assert comparable(whole[each]) == comparable(ask(each)[each]), each


def test_forecast_grows_with_each_course() -> None:
    """With one course there is "not before", with two a median, and with three a p90."""
    cluster = SmallCluster(now=1_000 * SECOND)
    cluster.put(queue("a", 1))
    for name in ("first", "second", "third"):
        cluster.submit(name, "a")
    cluster.run("first")
    results = list(
        run_courses(
            [key("second"), key("third")],
            now=cluster.now,
            branch=copying_branch(cluster.state),
            estimate_of=lambda _: spread(60, 60, 60),
            bounds=BOUNDS,
        )
    )
    assert len(results) == 4
    for name, start in (("second", 60), ("third", 120)):
        read = [read_forecast(key(name), results[:count]) for count in (1, 2, 3, 4)]
        known = [(each.p50, each.p90) for each in read if each is not None]
        at = cluster.now + start * SECOND
        assert [each.not_before for each in read if each is not None] == [at] * 4
        assert known == [(None, None), (at, None), (at, at), (at, at)]
    assert read_forecast(key("none"), results) is None
