"""The capacity that a preemptor needs, and the smallest set of victims that frees it."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Protocol

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.model import PreemptionPolicy
from admitq.core.preemption.candidates import Candidate, SingleCandidates, Stage, TargetSearch
from admitq.core.preemption.index import CandidateIndex
from admitq.core.quota import Cell


class RequestedCapacity:
    """The capacity that a workload requests at its ClusterQueue: quota, and places in topologies.

    A (flavor, resource) with an amount of zero does not count.

    Args:
        node: the node of the ClusterQueue.
        usage: the requested quota.
        has_room: returns a false value while its pods have no place. With None, they need none.
    """

    def __init__(
        self,
        node: Node,
        usage: Mapping[FlavorResource, int],
        has_room: Callable[[], object] | None = None,
    ) -> None:
        self.node = node
        self._has_room = has_room
        self.pairs = [pair for pair, amount in usage.items() if amount > 0]
        self._needed = [(node.cells[pair], usage[pair]) for pair in self.pairs]

    def is_available(self) -> bool:
        """Whether the workload fits, borrowing if necessary."""
        return self.is_quota_available() and (self._has_room is None or bool(self._has_room()))

    def is_quota_available(self) -> bool:
        """Whether there is enough quota, borrowing if necessary."""
        for cell, amount in self._needed:  # noqa: SIM110 a search asks many times: a generator costs more
            if quota.available(cell) < amount:
                return False
        return True

    def is_available_within_nominal(self) -> bool:
        """Whether the workload fits without borrowing by its ClusterQueue."""
        return self._is_within_nominal() and self.is_available()

    def is_quota_available_within_nominal(self) -> bool:
        """Whether there is enough quota without borrowing by its ClusterQueue."""
        return self._is_within_nominal() and self.is_quota_available()

    def _is_within_nominal(self) -> bool:
        for cell, amount in self._needed:  # noqa: SIM110 a search asks many times: a generator costs more
            if quota.borrowing_with(cell, amount):
                return False
        return True

    def add_to_usage(self) -> None:
        """Count the requested amounts as usage of the ClusterQueue."""
        for cell, amount in self._needed:
            quota.add_usage(cell, amount)

    def remove_from_usage(self) -> None:
        """Undo ``add_to_usage``."""
        for cell, amount in self._needed:
            quota.remove_usage(cell, amount)


class Reachability(Enum):
    """What an attempt may achieve. It is estimated from sums of usage, without evaluating candidates."""

    IMPOSSIBLE = auto()
    """Not even the preemption of all candidates would free enough."""
    ONLY_WITH_OWN_CANDIDATES = auto()
    """Candidates of the preemptor's own ClusterQueue are needed, even if all others are preempted."""
    POSSIBLE = auto()
    """Candidates of other ClusterQueues may free enough."""


def estimate_reachability(
    search: TargetSearch,
    index: CandidateIndex[Any],
    capacity: RequestedCapacity,
    is_enough: Callable[[], bool],
) -> Reachability:
    """Return which candidates could free enough quota, if all listed ClusterQueues used nothing."""
    policy = search.preemptor.queue.spec.preemption
    with _listed_usage_removed(
        index, capacity, reclaims=policy.reclaim_within_cohort is not PreemptionPolicy.NEVER
    ):
        if is_enough():
            return Reachability.POSSIBLE
        own = [*search.own_in_stage(Stage.LEAVING), *search.own_in_stage(Stage.STAYING)]
        for candidate in own:
            candidate.remove()
        is_possible = is_enough()
        for candidate in own:
            candidate.restore()
        return Reachability.ONLY_WITH_OWN_CANDIDATES if is_possible else Reachability.IMPOSSIBLE


@contextmanager
def _listed_usage_removed(
    index: CandidateIndex[Any], capacity: RequestedCapacity, *, reclaims: bool
) -> Generator[None]:
    """Remove the usage of listed ClusterQueues from the cohorts above the preemptor, within the block."""
    replaced: list[tuple[Cell, int]] = []
    for pair in capacity.pairs if reclaims else ():
        child_on_path = capacity.node
        cell = child_on_path.cells[pair]
        for cohort in capacity.node.ancestors:
            spilled = cell.spilled
            cell = cohort.cells[pair]
            replaced.append((cell, cell.usage))
            cell.usage = index.usage_without_listed(cohort, child_on_path, pair) + spilled
            child_on_path = cohort
    try:
        yield
    finally:
        for cell, usage in replaced:
            cell.usage = usage


class RestorableRange(Protocol):
    """Restores and removes ranges of the candidates that a search has removed."""

    def remove(self, start: int, end: int) -> None:
        """Remove the candidates from one index to another."""
        ...

    def restore(self, start: int, end: int) -> None:
        """Restore the candidates from one index to another."""
        ...


def drop_unneeded(
    removed: list[Candidate], is_enough: Callable[[], bool], ranges: RestorableRange | None = None
) -> None:
    """Restore every candidate that is not needed, from the last but one that was removed to the first.

    The last candidate is needed: the candidates before it were not enough. It takes the position of each
    candidate that is restored, so that the order changes (semantics, Preemption).

    Candidates are tried in batches: if the whole batch can be restored, each of its candidates can. The size
    of batches doubles after each success.

    Args:
        removed: the candidates. This function removes those from the list that are not needed.
        is_enough: whether the preemptor fits without the candidates that are removed now.
        ranges: removes and restores ranges of ``removed``; None: one candidate after another.
    """
    ranges = ranges or SingleCandidates(removed)
    spared: list[tuple[int, int]] = []
    end, batch_size = len(removed) - 1, 1
    while end > 0:
        start = max(0, end - batch_size)
        ranges.restore(start, end)
        if is_enough():
            spared.append((start, end))
            end, batch_size = start, 2 * batch_size
            continue
        ranges.remove(start, end)
        if batch_size == 1:
            end = start
        batch_size = 1
    for start, end in spared:
        if end == len(removed) - 1:
            del removed[start:end]  # The last candidate takes each of these positions in turn.
            continue
        for index in reversed(range(start, end)):
            removed[index] = removed[-1]
            removed.pop()
