"""Remove many candidates of other ClusterQueues at once, without their cells.

A classical search often must remove all candidates of other ClusterQueues before those of its own. Many
preemptors of a cycle remove the same ones. Only the cells on the path of the preemptor decide whether it
fits. So this module changes the usage of the cohort above the candidates by sums, which it computes once for
all preemptors. It leaves the cells of the candidates as they are.

This is exact if the ClusterQueues of the candidates are directly below the cohort, and have no local quota of
the requested (flavor, resource) pairs: all of their usage then counts in the cohort.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node
from admitq.core.preemption.candidates import Candidate, SingleCandidates


class CandidatesBelow:
    """Candidates in ClusterQueues directly below a cohort, in order.

    Args:
        cohort: the cohort.
        candidates: the candidates.
    """

    __slots__ = ("_sums", "candidates", "cohort", "is_exact")

    def __init__(self, cohort: Node, candidates: Sequence[Candidate]) -> None:
        self.cohort = cohort
        self.candidates = candidates
        self.is_exact = not any(
            cell.local for node in {each.node for each in candidates} for cell in node.cells.values()
        )
        """Whether all usage of the candidates counts in the cohort, so that a removal by sums is exact."""
        self._sums: dict[FlavorResource, list[int]] = {}

    def total(self, pair: FlavorResource, start: int, end: int) -> int:
        """Return the usage of the candidates from one index to another."""
        sums = self._sums.get(pair)
        if sums is None:
            amounts = (_amount_of(each, pair) for each in self.candidates)
            sums = self._sums[pair] = list(accumulate(amounts, initial=0))
        return sums[end] - sums[start]


def _amount_of(candidate: Candidate, pair: FlavorResource) -> int:
    for held, amount in candidate.usage:
        if held == pair:
            return amount
    return 0


class _Bulk(NamedTuple):
    """Candidates that were removed by sums: their indexes among all removed candidates."""

    start: int
    end: int
    candidates: CandidatesBelow


class RemovedCandidates:
    """The candidates that a search has removed, in order.

    Candidates of the preemptor's ClusterQueue are removed one by one, those of other ClusterQueues by sums.

    Args:
        own: the node of the preemptor's ClusterQueue.
        pairs: the (flavor, resource) pairs that the preemptor requests.
        is_enough: whether the preemptor fits without the candidates that are removed now.
    """

    def __init__(self, own: Node, pairs: Iterable[FlavorResource], is_enough: Callable[[], bool]) -> None:
        self.all: list[Candidate] = []
        self._single = SingleCandidates(self.all)
        self._own = own
        self._pairs = tuple(pairs)
        self._is_enough = is_enough
        self._bulks: list[_Bulk] = []

    def add_own(self, candidates: Iterable[Candidate]) -> bool:
        """Remove candidates of the preemptor's ClusterQueue until it fits. Return whether it does."""
        for candidate in candidates:
            self.all.append(candidate)
            candidate.remove()
            if self._is_enough():
                return True
        return False

    def add_bulk(self, candidates: CandidatesBelow) -> bool:
        """Remove candidates of other ClusterQueues until the preemptor fits. Return whether it does.

        Call this while the preemptor does not fit.
        """
        start, most = len(self.all), len(candidates.candidates)
        if not most:
            return False
        self._change_bulk(candidates, 0, most, -1)
        is_enough = self._is_enough()
        least = 1 if is_enough else most
        while least < most:
            middle = (least + most) // 2
            self._change_bulk(candidates, middle, most, 1)
            if self._is_enough():
                most = middle
            else:
                self._change_bulk(candidates, middle, most, -1)
                least = middle + 1
        self.all += candidates.candidates[:most]
        self._bulks.append(_Bulk(start, start + most, candidates))
        return is_enough

    def remove(self, start: int, end: int) -> None:
        """Remove the candidates from one index to another again, after ``restore``."""
        self._change(start, end, -1)

    def restore(self, start: int, end: int) -> None:
        """Restore the candidates from one index to another. They stay in the list."""
        self._change(start, end, 1)

    def restore_all(self) -> None:
        """Restore all candidates of the list. Callers may have dropped restored candidates from it."""
        for candidate in self.all:
            if candidate.node is self._own:
                candidate.restore()
                continue
            cells = self._bulks[0].candidates.cohort.cells
            for pair, amount in candidate.usage:
                if pair in self._pairs:
                    quota.add_usage(cells[pair], amount)

    def _change(self, start: int, end: int, sign: int) -> None:
        change_own = self._single.restore if sign > 0 else self._single.remove
        if end - start == 1 and self.all[start].node is self._own:  # Most ranges are of this kind.
            change_own(start, end)
            return
        for bulk in self._bulks:
            if start >= end:
                return
            if start < bulk.start:
                change_own(start, min(end, bulk.start))
            first, last = max(start, bulk.start), min(end, bulk.end)
            if first < last:
                self._change_bulk(bulk.candidates, first - bulk.start, last - bulk.start, sign)
            start = max(start, bulk.end)
        change_own(start, end)

    def _change_bulk(self, candidates: CandidatesBelow, start: int, end: int, sign: int) -> None:
        cells = candidates.cohort.cells
        for pair in self._pairs:
            amount = candidates.total(pair, start, end)
            if amount:
                quota.add_usage(cells[pair], sign * amount)
