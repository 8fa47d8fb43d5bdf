"""Which changes would admit a workload? Each change that is named was tried: it admits the workload.

Costs

Changes are sorted by effort, then by size. An ``Effort`` says who must act, and which other workloads the
change affects; the smallest comes first. The size compares changes of the same effort: removed pods in
proportion to all pods, finished or preempted workloads, added quota in proportion to the request.

A trial (``trials``) decides whether a change suffices, on a branch of the state. Trials cost most of the
time. So they come in the order of costs, and end when enough changes are found or too many were tried. A
trial without other ClusterQueues comes first: it costs little, and most changes that do not suffice fail.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import Final, NamedTuple

from admitq.core.asking.branch import Branch
from admitq.core.asking.candidate_changes import (
    add_for_workloads_before,
    find_changes_of_workload,
    find_finishes,
    find_more_quota,
    find_obstacle_changes,
    find_priorities,
)
from admitq.core.asking.changes import (
    ActivateChecks,
    AddQuota,
    AllowFlavor,
    Change,
    CreateFlavors,
    FinishWorkloads,
    LiftHolds,
    RaisePriority,
    ReducePods,
    ResumeClusterQueue,
    ResumeLocalQueue,
)
from admitq.core.asking.constraints import demands_of
from admitq.core.asking.explain import WITHOUT_QUOTA
from admitq.core.asking.trials import Trial, has_always_time, try_changes
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.model import Instant, ObjectKey
from admitq.core.overlay import evaluate_without_original
from admitq.core.state import AdmissionState
from admitq.core.world import World

MOST_TRIALS: Final = 32
"""The number of trials of one question. Each costs a branch of the state."""


class Effort(IntEnum):
    """Who must act, and which other workloads a change affects."""

    WORKLOAD = 0
    """Its user changes the workload. It asks for no more and no less."""
    FEWER_PODS = 1
    """Its user changes the workload. It runs with fewer pods."""
    QUEUE = 2
    """An administrator resumes a queue. Other workloads of the queue are admitted, too."""
    OTHER_WORKLOADS = 3
    """Other workloads finish."""
    PRIORITY = 4
    """It gets a higher priority. It may preempt other workloads, and workloads that wait may wait longer."""
    OBJECTS = 5
    """An administrator creates flavors, or makes admission checks active."""
    QUOTA = 6
    """An administrator adds quota."""


_EFFORTS: Final[dict[type[Change], Effort]] = {
    LiftHolds: Effort.WORKLOAD,
    AllowFlavor: Effort.WORKLOAD,
    ReducePods: Effort.FEWER_PODS,
    ResumeLocalQueue: Effort.QUEUE,
    ResumeClusterQueue: Effort.QUEUE,
    FinishWorkloads: Effort.OTHER_WORKLOADS,
    RaisePriority: Effort.PRIORITY,
    CreateFlavors: Effort.OBJECTS,
    ActivateChecks: Effort.OBJECTS,
    AddQuota: Effort.QUOTA,
}


class Cost(NamedTuple):
    """The greatest effort of changes, and their size."""

    effort: Effort
    size: Fraction


@dataclass(frozen=True, slots=True)
class SufficientChanges:
    """Changes that admit a workload together. ``preempted`` are workloads that it then preempts."""

    changes: tuple[Change, ...]
    cost: Cost
    preempted: tuple[ObjectKey, ...] = ()


@dataclass(frozen=True, slots=True)
class CheapestChanges:
    """The cheapest changes that admit a workload, cheapest first.

    ``needs_none``: it gets quota, or has it, without any change. Then there are no alternatives.
    """

    needs_none: bool
    alternatives: tuple[SufficientChanges, ...] = ()


def find_cheapest_changes(
    state: AdmissionState,
    key: ObjectKey,
    now: Instant,
    branch: Branch,
    *,
    most: int = 3,
    priorities: Sequence[int] | None = None,
    has_time: Callable[[], bool] = has_always_time,
) -> CheapestChanges:
    """Return changes of which each alternative alone would admit a workload.

    Args:
        state: the state to ask, between two cycles. It is the same afterwards.
        key: the workload. Without it, there are no alternatives.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about disposable copies of the same state.
        most: the number of alternatives to find.
        priorities: the priorities that exist. None: any priority may be given.
        has_time: is called before each trial, and before each cycle of a trial. If it returns False, the
            search ends with what it has found, which is the cheapest part. It is also called on branches.
    """
    world = state.queries.world
    entry = world.workloads.get(key)
    if entry is None or entry.phase not in WITHOUT_QUOTA:
        return CheapestChanges(needs_none=entry is not None and entry.held is not None)
    trials = _Trials(key, now, branch, has_time)
    obstacles = tuple(find_obstacle_changes(world, entry))
    without_more = trials.run(obstacles, alone=False)
    if without_more.gets_quota and not obstacles:
        return CheapestChanges(needs_none=True)
    if without_more.gets_quota:
        found = SufficientChanges(obstacles, _cost(world, entry, obstacles), without_more.preempted)
        return CheapestChanges(needs_none=False, alternatives=(found,))
    alternatives: list[SufficientChanges] = []
    for candidate in _candidates(world, entry, obstacles, trials, priorities):
        if len(alternatives) == most or not trials.may_continue:
            break
        found = candidate()
        if found is not None:
            alternatives.append(found)
    return CheapestChanges(
        needs_none=False, alternatives=tuple(sorted(alternatives, key=lambda each: each.cost))
    )


class _Trials:
    """Runs trials on branches, and counts them."""

    def __init__(self, key: ObjectKey, now: Instant, branch: Branch, has_time: Callable[[], bool]) -> None:
        self._key = key
        self._now = now
        self._branch = branch
        self._has_time = has_time
        self._left = MOST_TRIALS

    @property
    def may_continue(self) -> bool:
        """Whether more changes may be tried."""
        return self._left > 0 and self._has_time()

    def run(self, changes: tuple[Change, ...], *, alone: bool) -> Trial:
        """Try changes on a new branch, without other ClusterQueues or with them."""
        self._left -= 1
        question = partial(try_changes, key=self._key, changes=changes, now=self._now)
        return self._branch(partial(question, alone=alone, has_time=self._has_time))


_Candidate = Callable[[], SufficientChanges | None]
"""Tries changes; None if they do not suffice."""


def _candidates(
    world: World,
    entry: WorkloadEntry,
    obstacles: tuple[Change, ...],
    trials: _Trials,
    priorities: Sequence[int] | None,
) -> Iterable[_Candidate]:
    """Return candidates in the order of their costs."""
    local_queue = world.local_queues.get(entry.local_queue)
    queue = None if local_queue is None else world.cluster_queues.get(local_queue.spec.cluster_queue)
    if queue is None:
        return []
    find = partial(_find_single_changes, world, queue, entry)
    original = world.original_of(queue.spec.name, entry.workload)
    single = find() if original is None else evaluate_without_original(world, original, find)
    attempt = _Attempt(world, entry, obstacles, trials)
    costed: list[tuple[Cost, _Candidate]] = []
    for change in dict.fromkeys(single):
        candidate = partial(attempt.try_change, change)
        if isinstance(change, AddQuota):
            candidate = partial(attempt.try_quota, queue, change)
        costed.append((attempt.cost(change), candidate))
    own = entry.workload.priority
    known = (
        find_priorities(world, queue, entry)
        if priorities is None
        else sorted({priority for priority in priorities if priority > own})
    )
    if known:
        raised = [RaisePriority(entry.workload.key, priority) for priority in known]
        costed.append((attempt.cost(raised[-1]), partial(attempt.find_least, raised)))
    return [candidate for _, candidate in sorted(costed, key=lambda each: each[0])]


def _find_single_changes(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> list[Change]:
    return [
        *find_changes_of_workload(world, queue, entry),
        *find_finishes(world, queue, entry),
        *find_more_quota(world, queue, entry),
    ]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Tries single changes, each together with the changes that remove obstacles."""

    world: World
    entry: WorkloadEntry
    obstacles: tuple[Change, ...]
    trials: _Trials

    def cost(self, change: Change) -> Cost:
        """Return the cost of a change, without workloads that are preempted."""
        return _cost(self.world, self.entry, (*self.obstacles, change))

    def try_change(self, change: Change) -> SufficientChanges | None:
        """Return the change if it suffices."""
        return self._try_in_competition(change) if self._suffices_alone(change) else None

    def try_quota(self, queue: ClusterQueueEntry, change: AddQuota) -> SufficientChanges | None:
        """Return the addition if it suffices, else one that suffices for workloads before it, too."""
        found = self.try_change(change)
        return found or self.find_least(add_for_workloads_before(queue, self.entry, change))

    def find_least(self, changes: Sequence[Change]) -> SufficientChanges | None:
        """Return the least of these ascending changes that suffices; the last one if the least is not known.

        Bisection finds the least change that suffices without other ClusterQueues.
        """
        if not changes or not self._suffices_alone(changes[-1]):
            return None
        low, high = 0, len(changes) - 1
        while low < high and self.trials.may_continue:
            index = (low + high) // 2
            if self._suffices_alone(changes[index]):
                high = index
            else:
                low = index + 1
        found = self._try_in_competition(changes[high])
        return found if found or high == len(changes) - 1 else self._try_in_competition(changes[-1])

    def _suffices_alone(self, change: Change) -> bool:
        return self.trials.run((*self.obstacles, change), alone=True).gets_quota

    def _try_in_competition(self, change: Change) -> SufficientChanges | None:
        changes = (*self.obstacles, change)
        trial = self.trials.run(changes, alone=False) if self.trials.may_continue else None
        if trial is None or not trial.gets_quota:
            return None
        cost = self.cost(change)
        if isinstance(change, RaisePriority):
            cost = cost._replace(size=Fraction(len(trial.preempted)))
        return SufficientChanges(changes, cost, trial.preempted)


# --- costs ----------------------------------------------------------------------------------------------


def _cost(world: World, entry: WorkloadEntry, changes: tuple[Change, ...]) -> Cost:
    return Cost(_effort(changes), sum((_size(world, entry, change) for change in changes), Fraction(0)))


def _effort(changes: tuple[Change, ...]) -> Effort:
    return max(_EFFORTS[type(change)] for change in changes)


def _size(world: World, entry: WorkloadEntry, change: Change) -> Fraction:
    match change:
        case ReducePods():
            pods = sum(pod_set.count for pod_set in entry.workload.pod_sets)
            return Fraction(sum(each.present - each.remaining for each in change.pod_sets), pods)
        case FinishWorkloads():
            return Fraction(len(change.workloads))
        case AddQuota():
            requested: dict[str, int] = {}
            for demand in demands_of(world, entry):
                for resource, amount in demand.totals:
                    requested[resource] = requested.get(resource, 0) + amount
            return sum(
                (Fraction(more, max(1, requested.get(pair.resource, 0))) for pair, more in change.amounts),
                Fraction(0),
            )
        case _:
            return Fraction(1)
