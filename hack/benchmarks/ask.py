"""Measure answers to questions about a state with many pending workloads.

The state is at rest: 30 ClusterQueues in five cohorts use all of their quota. Each answer is measured as in a
server: from the call until the answer of a forked child process has arrived (``admitq.asking.branches``). The
questions are:

- *explain*: why does this workload wait? As in the visibility server, the state has run no cycles before.
- *changes*: which are the cheapest changes that would admit it?
- *eta*: when will this workload start? The workloads are at all positions of their queues. This is the first
  question about its cohort tree.
- *eta_again*: the same question when the forecast of the tree exists. Before, each tree is simulated for as
  long as in the visibility server.
- *whatif*: what would a new job, more quota, a drained queue, or another cohort change?
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from admitq.asking.branch_processes import ChildLimits, Send
from admitq.asking.branches import ask, ask_for_parts, branch_of
from admitq.asking.patience import percent_used
from admitq.asking.tree_forecasts import PackedCourse, TreeForecast, run_tree_courses
from admitq.core.asking.cheapest_changes import find_cheapest_changes
from admitq.core.asking.cohort_tree import list_tree_queues, list_waiting
from admitq.core.asking.course import ForecastBounds
from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.asking.explain import explain
from admitq.core.asking.explanations import WorkloadExplanation
from admitq.core.asking.forecast import forecast
from admitq.core.asking.run_times import Run, RunTimeHistory
from admitq.core.asking.what_if import Difference, what_if
from admitq.core.events import ClusterQueueChanged, Event, WorkloadChanged
from admitq.core.model import (
    SECOND,
    ClusterQueue,
    ClusterQueuePreemption,
    ObjectKey,
    PreemptionPolicy,
    StopPolicy,
)
from admitq.core.state import AdmissionState
from admitq.process.garbage_collection import exclude_current_objects, reduce_collections
from admitq.visibility.tree_forecasts import TreeForecastLimits
from benchmarks.core_driver import Driver
from benchmarks.core_worlds import (
    CPU,
    Class,
    MeasurementFailed,
    Setting,
    new_state,
    pod_sets,
    workload,
    workloads,
)
from benchmarks.measures import percentile_of_unsorted
from localcluster.cluster import to_stderr

PENDING: Final = 10_000
TARGETS_MS: Final[Mapping[str, float]] = {"explain": 50.0, "eta": 1000.0, "whatif": 1000.0}
"""The highest accepted p99 of questions, in milliseconds."""

DEADLINE_S: Final = 5.0
"""Seconds after which a question counts as failed."""

ETA_S: Final = 0.75
"""Seconds after which a forecast begins no other step. The answer then says what it knows."""

_HORIZON: Final = 30 * 86_400 * SECOND
_COHORTS, _QUEUES_PER_COHORT = 5, 6
_RUNS: Final = 40
_PREEMPTION: Final = ClusterQueuePreemption(
    reclaim_within_cohort=PreemptionPolicy.ANY, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY
)


@dataclass(frozen=True, slots=True)
class AskLoad:
    """The number of pending workloads, and of questions of each kind."""

    pending: int = PENDING
    questions: int = 100


@dataclass(frozen=True, slots=True)
class _World:
    """The state that is asked, its history of run times, and its pending workloads.

    ``observing`` has the same objects, and has run no cycles.
    """

    state: AdmissionState
    observing: AdmissionState
    now: int
    history: RunTimeHistory
    pending: list[ObjectKey]
    cluster_queues: list[ClusterQueue]


def _new_world(pending: int, chance: random.Random) -> _World:
    """Return a state at rest in which all quota is in use and so many workloads wait."""
    each = max(1, round(pending / (_COHORTS * _QUEUES_PER_COHORT) / 5))
    classes = (Class(1, 50, 0, 3 * each + 1), Class(5, 100, 0, each + 1), Class(20, 200, 0, each + 1))
    setting = Setting(_COHORTS, _QUEUES_PER_COHORT, classes, preemption=_PREEMPTION)
    driver = Driver(new_state(setting))
    for arrived, _ in workloads(setting):
        driver.prepare(arrived, 10**15)
        driver.arrive(arrived)
    driver.decide()
    state = driver.state
    queued = [each.workload for each in state.queries.pending_workloads()]
    names = sorted(state.queries.world.cluster_queues)
    runs = (
        Run("", name, round(chance.lognormvariate(7.5, 1)) * SECOND) for name in names for _ in range(_RUNS)
    )
    specs = [state.queries.world.cluster_queues[name].spec for name in names]
    return _World(state, state.restarted(), driver.now, RunTimeHistory(runs), queued, specs)


# --- questions ------------------------------------------------------------------------------------------


def _ask_why(world: _World, chance: random.Random) -> bool:
    """Ask why a workload waits. Return whether there is an answer."""
    key = chance.choice(world.pending)

    def question(state: AdmissionState) -> WorkloadExplanation | None:
        assume_due_decisions(state, world.now, [key])
        return explain(state, key, world.now)

    return ask(world.observing, question, deadline_s=DEADLINE_S) is not None


def _ask_changes(world: _World, chance: random.Random) -> bool:
    """Ask which changes would admit a workload. Return whether there are any."""
    branch = branch_of(world.state, deadline_s=DEADLINE_S)
    key = chance.choice(world.pending)
    return bool(find_cheapest_changes(world.state, key, world.now, branch).alternatives)


def _ask_eta(world: _World, chance: random.Random) -> bool:
    """Ask when a workload starts. Return whether the answer has a median."""
    key = chance.choice(world.pending)
    used = percent_used(ETA_S)

    def question(state: AdmissionState) -> bool:
        answer = forecast(
            [key],
            now=world.now,
            branch=branch_of(state, deadline_s=DEADLINE_S),
            estimate_of=lambda each: world.history.estimate("", each.queue_name),
            bounds=ForecastBounds(used, _HORIZON),
        )[key]
        return answer.p50 is not None

    return ask(world.state, question, deadline_s=DEADLINE_S)


def _forecast_trees(world: _World) -> list[TreeForecast]:
    """Return the forecasts of all cohort trees."""
    left, found = dict.fromkeys(world.pending), list[TreeForecast]()
    while left:
        names = list_tree_queues(world.state, [next(iter(left))])
        found.append(_forecast_tree(world, [each.workload.key for each in list_waiting(world.state, names)]))
        left = {key: None for key in left if found[-1].read(key) is None}
    return found


def _forecast_tree(world: _World, asked: list[ObjectKey]) -> TreeForecast:
    """Return the forecast of a cohort tree that a child process makes."""
    found, seconds = TreeForecast(asked, world.now), TreeForecastLimits().seconds

    def question(state: AdmissionState, send: Send) -> None:
        for course in run_tree_courses(
            state,
            asked,
            now=world.now,
            branch=branch_of(state, deadline_s=2 * seconds),
            estimate_of=lambda each: world.history.estimate("", each.queue_name),
            seconds=seconds,
        ):
            send(course)

    def receive(part: object) -> None:
        found.courses.append(cast("PackedCourse", part))

    asyncio.run(ask_for_parts(world.state, question, receive, ChildLimits(2 * seconds)))
    return found


def _ask_again(world: _World, trees: list[TreeForecast], chance: random.Random) -> bool:
    """Ask forecasts of cohort trees when a workload starts. Return whether the answer has a median."""
    key = chance.choice(world.pending)
    known = [each for tree in trees if (each := tree.read(key)) is not None]
    return any(each.p50 is not None for each in known)


def _hypothetical_events(world: _World, chance: random.Random) -> Iterator[Event]:
    """Yield a change of each kind, without end."""
    number = 0
    while True:
        spec = chance.choice(world.cluster_queues)
        queue = world.cluster_queues.index(spec)
        new = workload(f"new-{number}", queue, pod_sets(4), 1000, number)
        yield WorkloadChanged(new)
        yield ClusterQueueChanged(_with_cpu(spec, 60))
        yield ClusterQueueChanged(replace(spec, stop_policy=StopPolicy.HOLD_AND_DRAIN))
        yield ClusterQueueChanged(replace(spec, cohort="another"))
        number += 1


def _with_cpu(spec: ClusterQueue, cpus: int) -> ClusterQueue:
    (group,) = spec.resource_groups
    (flavor,) = group.flavors
    ((resource, quota),) = flavor.resources
    more = replace(flavor, resources=((resource, replace(quota, nominal=cpus * CPU)),))
    return replace(spec, resource_groups=(replace(group, flavors=(more,)),))


def _ask_what_if(world: _World, event: Event) -> bool:
    """Ask for the difference that an event makes. Return whether there is one."""

    def question(state: AdmissionState) -> Difference:
        return what_if(state, [event], now=world.now, branch=branch_of(state, deadline_s=DEADLINE_S))

    difference = ask(world.state, question, deadline_s=DEADLINE_S)
    return bool(difference.admitted or difference.moves or difference.usage)


# --- measurement ----------------------------------------------------------------------------------------


def run(load: AskLoad) -> tuple[dict[str, Any], bool]:
    """Ask all questions. Return the figures, and whether all are within their targets.

    Raises:
        MeasurementFailed: a question had no answer.
    """
    chance = random.Random(1)  # noqa: S311 the same questions in every run
    world = _new_world(load.pending, chance)
    reduce_collections()  # As in a server.
    exclude_current_objects()
    events = _hypothetical_events(world, chance)
    trees: list[TreeForecast] = []
    questions: dict[str, Callable[[], bool]] = {
        "explain": lambda: _ask_why(world, chance),
        "changes": lambda: _ask_changes(world, chance),
        "eta": lambda: _ask_eta(world, chance),
        "eta_again": lambda: _ask_again(world, trees, chance),
        "whatif": lambda: _ask_what_if(world, next(events)),
    }
    figures: dict[str, Any] = {"benchmark": "ask", "pending": len(world.pending)}
    passed = True
    for name, question in questions.items():
        if name == "eta_again":
            trees += _forecast_trees(world)
            figures["eta_tree_simulations"] = min(len(tree.courses) for tree in trees)
        seconds: list[float] = []
        answered = 0
        for _ in range(load.questions):
            began = time.perf_counter()
            answered += question()
            seconds.append(time.perf_counter() - began)
        if not name.startswith("eta") and answered < load.questions:
            raise MeasurementFailed(f"{load.questions - answered} questions {name} had no answer")
        for percent in (50, 99):
            value = percentile_of_unsorted(seconds, percent) or 0.0
            figures[f"{name}_p{percent}_ms"] = round(value * 1000, 1)
        if name.startswith("eta"):
            figures[f"{name}_with_median"] = answered
        passed = passed and figures[f"{name}_p99_ms"] <= TARGETS_MS.get(name, math.inf)
        to_stderr(f"{name}: {figures[f'{name}_p50_ms']} ms median, {figures[f'{name}_p99_ms']} ms p99")
    return figures, passed
