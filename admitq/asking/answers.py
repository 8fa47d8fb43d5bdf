"""Answers about a state as JSON values, each with a field ``text``: lines that are ready to print.

Each function gets a disposable state, which may not have run its due cycles yet. The visibility server calls
them in a child process (``branches``), and the plugin of kubectl in its own process.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any, Final

from admitq.asking.patience import percent_used
from admitq.core.asking.branch import Branch
from admitq.core.asking.cheapest_changes import find_cheapest_changes
from admitq.core.asking.course import Bound, EstimateOf, ForecastBounds
from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.asking.explain import explain
from admitq.core.asking.forecast import Delay, Forecast, delays, forecast
from admitq.core.asking.what_if import Difference, NodeName, what_if
from admitq.core.events import (
    ClusterQueueChanged,
    CohortChanged,
    Event,
    LocalQueueChanged,
    WorkloadChanged,
    WorkloadDeleted,
)
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.core.waiting.queue_positions import Window
from admitq.translate.differences import DifferenceAnswer
from admitq.translate.explanations import explanation_json, explanation_lines
from admitq.translate.forecasts import TreeProgress, forecast_json, forecast_lines, progress_json
from admitq.translate.viewers import EVERYTHING, Viewer
from admitq_api.conditions import format_time

HORIZON: Final[Instant] = 30 * 86_400 * SECOND
"""How far forecasts look ahead."""

_ALL_TIME: Final = 100
"""All of the caller's time, in percent."""

_MOST_STARTS: Final = 10
"""The maximum number of workloads for which starts are compared."""


def explanation_document(
    state: AdmissionState,
    key: ObjectKey,
    *,
    now: Instant,
    branch: Branch,
    viewer: Viewer = EVERYTHING,
    seconds: float,
) -> dict[str, Any] | None:
    """Return why a workload waits, and the cheapest changes that admit it; None if it does not exist.

    Args:
        state: a disposable state.
        key: the workload. The viewer must be allowed to see it.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about this state, as it is at each call.
        viewer: what the reader may see.
        seconds: the time for the answer. The search for changes ends then.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    used = percent_used(seconds)
    assume_due_decisions(state, now, [key])
    explanation = explain(state, key, now)
    if explanation is None:
        return None
    changes = find_cheapest_changes(state, key, now, branch, has_time=lambda: used() < _ALL_TIME)
    return {
        **explanation_json(explanation, changes, viewer),
        "text": explanation_lines(explanation, changes, viewer),
    }


def eta_document(
    state: AdmissionState,
    key: ObjectKey,
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    seconds: float,
) -> dict[str, Any] | None:
    """Return when a workload starts; None if it does not exist.

    Args:
        state: a disposable state.
        key: the workload.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about this state, as it is at each call.
        estimate_of: returns the estimated run time of a workload.
        seconds: the time for the answer. Simulations end then.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    found = forecast_start(state, key, now=now, branch=branch, estimate_of=estimate_of, seconds=seconds)
    return None if found is None else start_document(key, found, now=now)


def forecast_start(
    state: AdmissionState,
    key: ObjectKey,
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    seconds: float,
) -> Forecast | None:
    """Return the forecast of the start of a workload; None if it does not exist.

    The arguments are those of ``eta_document``.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    bounds = ForecastBounds(percent_used(seconds), HORIZON)
    assume_due_decisions(state, now, [key])
    return forecast([key], now=now, branch=branch, estimate_of=estimate_of, bounds=bounds).get(key)


def start_document(
    key: ObjectKey,
    found: Forecast,
    *,
    now: Instant,
    as_of: Instant | None = None,
    tree: TreeProgress | None = None,
) -> dict[str, Any]:
    """Return the forecast of the start of a workload as JSON values.

    Args:
        key: the workload.
        found: the forecast.
        now: the present instant, in nanoseconds since the Unix epoch.
        as_of: the instant of the forecast; None: now.
        tree: the progress of a forecast of the cohort tree, if there is one.
    """
    return {
        "workload": {"namespace": key.namespace, "name": key.name},
        "asOf": format_time(now if as_of is None else as_of),
        **forecast_json(found),
        "treeForecast": progress_json(tree),
        "text": forecast_lines(key, found, now=now, horizon=HORIZON, as_of=as_of, tree=tree),
    }


def what_if_document(
    state: AdmissionState,
    events: Iterable[Event],
    *,
    now: Instant,
    branch: Branch,
    estimate_of: EstimateOf,
    viewer: Viewer = EVERYTHING,
    seconds: float,
) -> dict[str, Any]:
    """Return the difference that hypothetical events make, and the changed starts of some workloads.

    The starts are those of workloads that the viewer may see: first of those that the events concern most,
    then of the first ones in the queues of the changed cohort trees.

    Args:
        state: a disposable state.
        events: the hypothetical events, in the order in which the state observes them.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about this state, as it is at each call.
        estimate_of: returns the estimated run time of a workload.
        viewer: what the reader may see.
        seconds: the time for the answer. Simulations end then.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    used = percent_used(seconds)
    supposed = tuple(events)
    assume_due_decisions(state, now)
    difference = branch(partial(what_if, events=supposed, now=now, branch=branch))
    nodes = find_visible_nodes(state, viewer)
    asked = _find_asked(state, supposed, difference, viewer)
    changed = delays(
        asked,
        supposed,
        now=now,
        branch=branch,
        estimate_of=estimate_of,
        bounds=ForecastBounds(used, HORIZON),
    )
    starts = {key: delay for key, delay in changed.items() if _is_change(delay)}
    answer = DifferenceAnswer(difference, starts, now, viewer, nodes)
    return {**answer.json, "text": answer.lines}


# --- what is shown of a difference ----------------------------------------------------------------------


def find_visible_nodes(state: AdmissionState, viewer: Viewer) -> frozenset[NodeName] | None:
    """Return the ClusterQueues of the namespaces that a viewer may see, and the cohorts above; None: all.

    The state must have no hypothetical LocalQueues. Else a viewer could choose what to see.
    """
    if viewer.namespaces is None:
        return None
    world = state.queries.world
    nodes: set[NodeName] = set()
    for key, entry in world.local_queues.items():
        queue = world.cluster_queues.get(entry.spec.cluster_queue)
        if queue is not None and viewer.may_see(key):
            nodes.add(NodeName(is_cohort=False, name=queue.spec.name))
            nodes.update(NodeName(is_cohort=True, name=node.name) for node in queue.node.ancestors)
    return frozenset(nodes)


def _find_asked(
    state: AdmissionState, events: Sequence[Event], difference: Difference, viewer: Viewer
) -> list[ObjectKey]:
    """Return the workloads for which starts are compared."""
    deleted = {event.key for event in events if isinstance(event, WorkloadDeleted)}
    candidates = chain(
        (event.workload.key for event in events if isinstance(event, WorkloadChanged)),
        difference.stopped,
        difference.not_admitted,
        difference.admitted,
        (key for key, move in difference.moves.items() if move.after is not None),
        _first_pending(state, _find_changed_queues(state, events, difference)),
    )
    visible = (key for key in candidates if viewer.may_see(key) and key not in deleted)
    return list(islice(dict.fromkeys(visible), _MOST_STARTS))


def _first_pending(state: AdmissionState, queues: Iterable[str]) -> Iterator[ObjectKey]:
    """Yield the first pending workloads of ClusterQueues: first all first ones, then all second ones."""
    window = Window(limit=_MOST_STARTS)
    lists = [state.queries.list_cluster_queue(name, window) or () for name in queues]
    for row in zip_longest(*lists):
        yield from (queued.workload for queued in row if queued is not None)


def _find_changed_queues(state: AdmissionState, events: Iterable[Event], difference: Difference) -> list[str]:
    """Return the ClusterQueues of the cohort trees that events concern; all if these are not known."""
    world = state.queries.world
    trees = world.cohort_trees
    nodes = [
        *difference.usage,
        *difference.shares,
        *filter(None, (_find_node(state, event) for event in events)),
    ]
    found = [(trees.cohorts if is_cohort else trees.cluster_queues).get(name) for is_cohort, name in nodes]
    roots = {node.root for node in found if node is not None}
    names = {node.name for root in roots for node in root.cluster_queues_below()}
    return sorted(names or world.cluster_queues)


def _find_node(state: AdmissionState, event: Event) -> NodeName | None:
    """Return the ClusterQueue or cohort that an event concerns; None if it concerns several, or none."""
    match event:
        case ClusterQueueChanged(queue):
            return NodeName(is_cohort=False, name=queue.name)
        case CohortChanged(cohort):
            return NodeName(is_cohort=True, name=cohort.name)
        case LocalQueueChanged(local_queue):
            return NodeName(is_cohort=False, name=local_queue.cluster_queue)
        case WorkloadChanged(workload):
            key = ObjectKey(workload.key.namespace, workload.queue_name)
            local_queue = state.queries.world.local_queues.get(key)
            if local_queue is not None:
                return NodeName(is_cohort=False, name=local_queue.spec.cluster_queue)
        case _:
            pass
    return None


def _is_change(delay: Delay) -> bool:
    """Whether events are known to change a start. What a simulation reaches in its time is not a start."""
    before, after = delay
    if before is None or after is None or delay.by is not None:
        return delay.by != 0
    unknown = [each for each in (before, after) if each.p50 is None]
    return len(unknown) == 1 and Bound.REAL_TIME not in unknown[0].basis.bounds
