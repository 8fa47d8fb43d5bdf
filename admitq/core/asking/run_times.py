"""Run times of workloads: from finished workloads to the run time that remains of others.

A *run* is one finished workload: how long it held quota. Workloads that are likely to run alike have the same
*group*, for example the prefix of the names that a user gives to the jobs of one kind. The run time of a
workload is estimated from the runs of its group. If these are few, the runs of its ClusterQueue count, or
else those of all ClusterQueues.

A run is *censored* if a limit ended it, or if it has not ended: it would be longer by an unknown time. Its
weight goes to the longer runs, in equal parts (the product-limit estimator). If there are none, the run
counts with its own length.

A workload that has run for some time is compared only with longer runs. If it has run longer than all known
runs, the chance that it runs n times as long in total is one in n.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate
from typing import Final, NamedTuple

from admitq.core.model import Instant

_FEWEST: Final = 3
"""The smallest number of runs with known ends of a group or queue that are preferred to those of others."""

_MOST: Final = 200
"""The number of the latest runs of a group or queue that count."""

_LONGEST_FACTOR: Final = 20
"""A workload that has run longer than all known runs is expected to run at most so many times as long."""


WHOLE: Final = 1 << 32
"""Quantiles are integers from 0 to less than this number, which are much faster than fractions."""


class RunTimeSource(StrEnum):
    """What an estimate of a run time rests on, from the best source to none."""

    OWN_ESTIMATE = "OwnEstimate"
    """The job reports how long it will still run."""
    GROUP = "Group"
    """Finished workloads of the same group."""
    QUEUE = "Queue"
    """Finished workloads of the same ClusterQueue."""
    ALL = "All"
    """Finished workloads of all ClusterQueues."""
    LIMIT = "Limit"
    """A limit on the run time of the workload; each time up to it is equally likely."""
    UNKNOWN = "Unknown"
    """Nothing: the workload is expected never to end."""


class Run(NamedTuple):
    """A finished workload: its group (may be empty), its ClusterQueue, and how long it held quota (ns).

    A workload that still runs may be given as a censored run. Else short runs prevail in a young history.
    """

    group: str
    cluster_queue: str
    duration: Instant
    is_censored: bool = False


@dataclass(frozen=True, slots=True)
class RunTimeEstimate:
    """The estimated run time of a workload.

    Attributes:
        source: what it rests on.
        durations: distinct run times of runs, ascending; nanoseconds.
        weights: the cumulative weight of the runs up to each duration; a run has the weight ``WHOLE``.
        samples: the number of runs.
        limit: the longest run time that is allowed; nanoseconds; None without a limit.
        remaining: the remaining run time that the job itself reports; nanoseconds.
    """

    source: RunTimeSource
    durations: tuple[Instant, ...] = ()
    weights: tuple[int, ...] = ()
    samples: int = 0
    limit: Instant | None = None
    remaining: Instant | None = None

    def remaining_at(self, quantile: int, elapsed: Instant = 0) -> Instant | None:
        """Return the remaining run time at a quantile.

        Args:
            quantile: from 0 to less than ``WHOLE``.
            elapsed: for how long the workload has run; nanoseconds.

        Returns:
            Nanoseconds; None if the workload is expected never to end.
        """
        left = None if self.limit is None else max(0, self.limit - elapsed)
        if self.remaining is not None:
            return self.remaining if left is None else min(self.remaining, left)
        if self.durations:
            remaining = self._remaining_of_runs(quantile, elapsed)
            return remaining if left is None else min(remaining, left)
        return None if left is None else left * quantile // WHOLE

    def _remaining_of_runs(self, quantile: int, elapsed: Instant) -> Instant:
        first = bisect_right(self.durations, elapsed) if elapsed else 0
        if first == len(self.durations):
            total = min(_LONGEST_FACTOR * elapsed, elapsed * WHOLE // (WHOLE - quantile))
            return total - elapsed
        shorter = self.weights[first - 1] if first else 0
        target = shorter + quantile * (self.weights[-1] - shorter) // WHOLE
        index = min(max(first, bisect_right(self.weights, target)), len(self.durations) - 1)
        return self.durations[index] - elapsed


UNKNOWN: Final = RunTimeEstimate(RunTimeSource.UNKNOWN)
"""The estimate for a workload of which nothing is known."""


class RunTimeHistory:
    """The runs of finished workloads, by group and by ClusterQueue.

    Args:
        runs: the runs, the earliest first.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._by_source: dict[tuple[RunTimeSource, str], list[Run]] = defaultdict(list)
        self._estimates: dict[tuple[str, str], RunTimeEstimate] = {}
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Add a run that is later than all others."""
        for key in _keys(run.group, run.cluster_queue):
            runs = self._by_source[key]
            runs.append(run)
            if len(runs) > _MOST:
                del runs[0]
        self._estimates.clear()

    def estimate(
        self,
        group: str,
        cluster_queue: str,
        *,
        limit: Instant | None = None,
        remaining: Instant | None = None,
    ) -> RunTimeEstimate:
        """Return the estimate for a workload.

        Args:
            group: the group of the workload; empty if it has none.
            cluster_queue: its ClusterQueue.
            limit: the longest run time that is allowed; nanoseconds.
            remaining: the remaining run time that its job reports; nanoseconds.
        """
        if remaining is not None:
            return RunTimeEstimate(RunTimeSource.OWN_ESTIMATE, limit=limit, remaining=remaining)
        known = self._of_runs(group, cluster_queue)
        if known.source is RunTimeSource.UNKNOWN:
            return known if limit is None else RunTimeEstimate(RunTimeSource.LIMIT, limit=limit)
        if limit is None:
            return known
        return RunTimeEstimate(known.source, known.durations, known.weights, known.samples, limit)

    def _of_runs(self, group: str, cluster_queue: str) -> RunTimeEstimate:
        estimate = self._estimates.get((group, cluster_queue))
        if estimate is None:
            estimate = self._first_of_enough(group, cluster_queue)
            self._estimates[group, cluster_queue] = estimate
        return estimate

    def _first_of_enough(self, group: str, cluster_queue: str) -> RunTimeEstimate:
        """Return the estimate from the best source that has enough runs with known ends, or else from any."""
        keys = _keys(group, cluster_queue)
        for fewest in (_FEWEST, 1):
            for key in keys:
                runs = self._by_source.get(key, ())
                if sum(not run.is_censored for run in runs) >= fewest:
                    return _estimate_from(runs, key[0])
        runs = self._by_source.get(keys[-1], ())
        return _estimate_from(runs, keys[-1][0]) if runs else UNKNOWN


def _keys(group: str, cluster_queue: str) -> list[tuple[RunTimeSource, str]]:
    """Return the sources of the run time of a workload, the best first, each with its name."""
    keys = [(RunTimeSource.QUEUE, cluster_queue), (RunTimeSource.ALL, "")]
    return [(RunTimeSource.GROUP, group), *keys] if group else keys


def _estimate_from(runs: Sequence[Run], source: RunTimeSource) -> RunTimeEstimate:
    """Return the distribution of the run times of some runs."""
    # A censored run would have been longer than runs of the same length that ended by themselves.
    ordered = sorted(runs, key=lambda run: (run.duration, run.is_censored))
    weights: dict[Instant, Fraction] = {}
    weight = Fraction(1)
    for index, run in enumerate(ordered):
        longer = len(ordered) - index - 1
        if run.is_censored and longer:
            weight *= Fraction(longer + 1, longer)
        else:
            weights[run.duration] = weights.get(run.duration, Fraction(0)) + weight
    cumulative = (int(total * WHOLE) for total in accumulate(weights.values()))
    return RunTimeEstimate(source, tuple(weights), tuple(cumulative), len(runs))
