"""Reads the statuses of queues and cohorts that have changed, before each scrape.

A busy queue changes many times between two scrapes. Its status is computed once for each scrape.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from admitq.core.model import ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, LocalQueueStatus
from admitq.metrics.measures.queues import QueueMeasures


@dataclass(frozen=True, slots=True)
class QueueStatuses:
    """Reads the statuses of the core.

    Args:
        is_reporting: whether this process exposes gauges of queues and cohorts now.
        cluster_queue: the status of a ClusterQueue; None if it does not exist.
        local_queue: the status of a LocalQueue; None if it does not exist.
        cohort: the status of a cohort; None if no object names it.
        cohort_path: a cohort, and the cohorts above it.
    """

    is_reporting: Callable[[], bool]
    cluster_queue: Callable[[str], ClusterQueueStatus | None]
    local_queue: Callable[[ObjectKey], LocalQueueStatus | None]
    cohort: Callable[[str], CohortStatus | None]
    cohort_path: Callable[[str], Sequence[str]]


NO_STATUSES: Final = QueueStatuses(
    is_reporting=lambda: False,
    cluster_queue=lambda _: None,
    local_queue=lambda _: None,
    cohort=lambda _: None,
    cohort_path=lambda name: (name,),
)
"""For processes that expose no gauges of queues."""


class ChangedStatuses:
    """The queues and cohorts with statuses that may have changed since the last scrape.

    Args:
        statuses: reads the statuses.
    """

    def __init__(self, statuses: QueueStatuses) -> None:
        self._statuses = statuses
        self._cluster_queues: set[str] = set()
        self._local_queues: set[ObjectKey] = set()
        self._cohorts: set[str] = set()

    def cluster_queue_changed(self, name: str) -> None:
        """Set the gauges of a ClusterQueue before the next scrape."""
        self._cluster_queues.add(name)

    def local_queue_changed(self, key: ObjectKey) -> None:
        """Set the gauges of a LocalQueue before the next scrape."""
        self._local_queues.add(key)

    def cohort_changed(self, name: str) -> None:
        """Set the gauges of a cohort before the next scrape."""
        self._cohorts.add(name)

    def forget_cluster_queue(self, name: str) -> None:
        """Forget a ClusterQueue that was deleted."""
        self._cluster_queues.discard(name)

    def forget_local_queue(self, key: ObjectKey) -> None:
        """Forget a LocalQueue that was deleted."""
        self._local_queues.discard(key)

    def set_gauges(self, measures: QueueMeasures) -> None:
        """Set the gauges of all that changed. While this process does not report, they stay changed."""
        if not self._statuses.is_reporting():
            return
        while self._cluster_queues:
            name = self._cluster_queues.pop()
            if (status := self._statuses.cluster_queue(name)) is not None:
                measures.cluster_queue_reported(name, status)
        while self._local_queues:
            key = self._local_queues.pop()
            if (local := self._statuses.local_queue(key)) is not None:
                measures.local_queue_reported(key, local)
        while self._cohorts:
            self._set_gauges_of_cohort(measures, self._cohorts.pop())

    def _set_gauges_of_cohort(self, measures: QueueMeasures, name: str) -> None:
        status = self._statuses.cohort(name)
        if status is None:
            measures.forget_cohort(name)
            return
        path = self._statuses.cohort_path(name)
        measures.cohort_reported(name, path[1] if len(path) > 1 else "", path[-1], status)
