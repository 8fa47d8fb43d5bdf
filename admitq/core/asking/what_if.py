"""What if? The difference that hypothetical events make: to admissions, positions, usage and shares.

The events and the cycles that follow are those of the manager. Decisions are carried out at once
(``execution``). Time does not advance: workloads that run stay, and no backoff ends. ``forecast`` answers
when pending workloads start.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.asking.branch import Branch
from admitq.core.asking.execution import Execution
from admitq.core.cohorts import Node
from admitq.core.events import Event
from admitq.core.fair_sharing import Share, share
from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.ledger import Usage
from admitq.core.model import Admission, Instant, ObjectKey, Workload
from admitq.core.state import AdmissionState
from admitq.core.waiting.queue_positions import Window

_ALL = Window(limit=1 << 62)


class NodeName(NamedTuple):
    """The name of a ClusterQueue or a cohort."""

    is_cohort: bool
    name: str


class Place(NamedTuple):
    """The position of a pending workload in its ClusterQueue; the first is 0."""

    cluster_queue: str
    position: int


class Stop(NamedTuple):
    """Why a workload loses its quota. Without a preemptor, a queue drains."""

    reason: PreemptionReason | None = None
    preemptor: ObjectKey | None = None


class Move(NamedTuple):
    """The places of a pending workload without and with the events; None where it is not pending."""

    before: Place | None
    after: Place | None


class AmountChange(NamedTuple):
    """The usage of a (flavor, resource) without and with the events."""

    before: int
    after: int


class ShareChange(NamedTuple):
    """The shares of a node without and with the events; None where the node does not exist."""

    before: Share | None
    after: Share | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the decisions of a state have led to."""

    admissions: Mapping[ObjectKey, Admission]
    """The reservations of all workloads that hold quota."""
    places: Mapping[ObjectKey, Place]
    usage: Mapping[NodeName, Usage]
    shares: Mapping[NodeName, Share]
    stops: Mapping[ObjectKey, Stop] = field(default_factory=dict[ObjectKey, Stop])
    """The workloads that lost their quota on the way, by the last time that they did."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference that hypothetical events make. All mappings are sorted by their keys."""

    admitted: Mapping[ObjectKey, Admission]
    """Workloads that hold quota with the events, and not without."""
    stopped: Mapping[ObjectKey, Stop]
    """Workloads that hold quota without the events, and lose it with them: they are preempted, or a queue
    drains."""
    not_admitted: tuple[ObjectKey, ...]
    """Workloads that would get quota without the events, and get none with them. They do not hold it yet."""
    reassigned: Mapping[ObjectKey, tuple[Admission, Admission]]
    """Workloads that hold other quota with the events than without."""
    moves: Mapping[ObjectKey, Move]
    """Changes of positions of workloads that are pending with or without the events."""
    usage: Mapping[NodeName, Mapping[FlavorResource, AmountChange]]
    shares: Mapping[NodeName, ShareChange]


def what_if(state: AdmissionState, events: Iterable[Event], *, now: Instant, branch: Branch) -> Difference:
    """Return the difference between a state with hypothetical events and the same state without them.

    Args:
        state: a disposable state.
        events: the events, in the order in which the state observes them.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about the state as it is at the call.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    # A state at rest is what its decisions lead to. Else cycles and evictions that are due anyway must not
    # count as a difference.
    is_at_rest = Execution(state, now).is_at_rest
    before = collect_outcome(state) if is_at_rest else branch(_WithEvents((), now))
    return compare_outcomes(before, _WithEvents(tuple(events), now)(state))


class _WithEvents(NamedTuple):
    """The question what a state comes to after some events."""

    events: tuple[Event, ...]
    now: Instant

    def __call__(self, state: AdmissionState) -> Outcome:
        """Change the state, and return what it came to."""
        stops: dict[ObjectKey, Stop] = {}

        def stopped(workload: Workload, preemption: Preempt | None) -> None:
            stops[workload.key] = (
                Stop() if preemption is None else Stop(preemption.reason, preemption.preemptor)
            )

        execution = Execution(state, self.now, on_stopped=stopped)
        execution.begin()
        for event in self.events:
            execution.observe(event)
        execution.settle()
        return collect_outcome(state, stops)


def collect_outcome(state: AdmissionState, stops: Mapping[ObjectKey, Stop] | None = None) -> Outcome:
    """Return what a state has come to. It does not change."""
    world = state.queries.world
    places = {
        queued.workload: Place(name, queued.in_cluster_queue)
        for name in world.cluster_queues
        for queued in state.queries.list_cluster_queue(name, _ALL) or ()
    }
    return Outcome(
        admissions={
            key: entry.admission
            for key, entry in world.workloads.items()
            if entry.held is not None and entry.admission is not None
        },
        places=places,
        usage={name: _usage_of(node) for name, node in _nodes(state)},
        shares={name: share(node) for name, node in _nodes(state)},
        stops=stops or {},
    )


def _nodes(state: AdmissionState) -> Iterator[tuple[NodeName, Node]]:
    trees = state.queries.world.cohort_trees
    for name, node in trees.cluster_queues.items():
        yield NodeName(is_cohort=False, name=name), node
    for name, node in trees.cohorts.items():
        yield NodeName(is_cohort=True, name=name), node


def _usage_of(node: Node) -> Usage:
    """Return the usage of all ClusterQueues below a node, whatever quota covers it."""
    total: dict[FlavorResource, int] = {}
    for queue in node.cluster_queues_below():
        for pair, cell in queue.cells.items():
            if cell.usage:
                total[pair] = total.get(pair, 0) + cell.usage
    return tuple(sorted(total.items()))


def compare_outcomes(before: Outcome, after: Outcome) -> Difference:
    """Return the difference between the outcomes without and with hypothetical events."""
    lost = sorted(before.admissions.keys() - after.admissions.keys())
    return Difference(
        admitted={
            key: after.admissions[key] for key in sorted(after.admissions.keys() - before.admissions.keys())
        },
        stopped={key: after.stops[key] for key in lost if key in after.stops},
        not_admitted=tuple(key for key in lost if key not in after.stops),
        reassigned={
            key: (before.admissions[key], after.admissions[key])
            for key in sorted(before.admissions.keys() & after.admissions.keys())
            if before.admissions[key] != after.admissions[key]
        },
        moves={
            key: Move(before.places.get(key), after.places.get(key))
            for key in sorted(before.places.keys() | after.places.keys())
            if before.places.get(key) != after.places.get(key)
        },
        usage={
            name: changes
            for name in sorted(before.usage.keys() | after.usage.keys())
            if (changes := _changed(dict(before.usage.get(name, ())), dict(after.usage.get(name, ()))))
        },
        shares={
            name: ShareChange(before.shares.get(name), after.shares.get(name))
            for name in sorted(before.shares.keys() | after.shares.keys())
            if before.shares.get(name) != after.shares.get(name)
        },
    )


def _changed(
    before: Mapping[FlavorResource, int], after: Mapping[FlavorResource, int]
) -> dict[FlavorResource, AmountChange]:
    return {
        pair: AmountChange(before.get(pair, 0), after.get(pair, 0))
        for pair in sorted(before.keys() | after.keys())
        if before.get(pair, 0) != after.get(pair, 0)
    }
