"""Laws S1 to S3: statuses and usage agree with the model, and the core requests a refresh for each change."""

from collections import Counter
from typing import TYPE_CHECKING

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import (
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
)
from admitq.core.state import AdmissionState
from tests.laws.drawing import COHORTS, LOCAL_QUEUES, QUEUES
from tests.laws.law import check_law
from tests.laws.reference.tree import cohort_node, queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player


class StatusLaws:
    """Checks of the statuses that the core returns.

    Args:
        player: the player of the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self.reported: dict[object, object] = {}
        self.refreshed: set[object] = set()
        """The statuses to refresh since the last check."""

    @property
    def _core(self) -> AdmissionState:
        """The core. An operation may replace it."""
        return self._player.core

    def check_refreshes(self) -> None:
        """Check that the core requested a refresh of each status that changed."""
        current: dict[object, object] = {}
        for name in QUEUES:
            current[RefreshClusterQueue(name)] = self._core.queries.cluster_queue_status(name)
        for key in LOCAL_QUEUES:
            current[RefreshLocalQueue(key)] = self._core.queries.local_queue_status(key)
        for name in COHORTS:
            current[RefreshCohort(name)] = self._core.queries.cohort_status(name)
        changed = {
            what
            for what, status in current.items()
            if status is not None and status != self.reported.get(what)
        }
        check_law(changed <= self.refreshed, "a status changed without a refresh", changed - self.refreshed)
        self.reported = current
        self.refreshed.clear()

    def check_statuses(self) -> None:
        """Compare the numbers of all statuses with the model."""
        observed = self._observed
        tree = observed.tree()
        waits_in = [observed.waits_in(key) for key in observed.workloads]
        for name, queue in observed.cluster_queues.items():
            status = self._core.queries.cluster_queue_status(name)
            assert status is not None, name
            check_law(status.active == observed.is_active(name), "S2: activity", name, status)
            check_law(status.pending == waits_in.count(name), "S3: pending workloads", name, status)
            node = queue_node(name)
            for flavor, totals in status.flavors_reservation:
                for total in totals:
                    pair = FlavorResource(flavor, total.resource)
                    used = tree.usage(node, pair)
                    beyond = max(0, used - tree.nominal(node, pair)) if queue.cohort is not None else 0
                    check_law((total.total, total.borrowed) == (used, beyond), "S2: usage", name, total, used)
        for key, local_queue in observed.local_queues.items():
            if local_queue.cluster_queue not in observed.cluster_queues:
                status = self._core.queries.local_queue_status(key)
                assert status is not None, key
                counters = (status.pending, status.reserving, status.admitted)
                lists = (status.flavors_reservation, status.flavors_usage)
                check_law(
                    (*counters, *lists) == (0, 0, 0, None, None),
                    "a queue without ClusterQueue counts something",
                    key,
                )
        for name in sorted({node.name for node in tree.parents if node.cohort}):
            status = self._core.queries.cohort_status(name)
            assert status is not None, name
            if tree.path(cohort_node(name)) is None:
                continue
            for pair, subtree in status.subtree_quota:
                check_law(
                    subtree == tree.subtree_quota(cohort_node(name), pair),
                    "S2: quota of a cohort",
                    name,
                    pair,
                )
        self.check_replacements_count_enough()

    def check_replacements_count_enough(self) -> None:
        """Check that a replacement and those that it replaces count with all that it is assigned."""
        observed = self._observed
        for key in observed.workloads:
            if observed.workloads[key].replaces is None:
                continue
            counted = Counter[FlavorResource]()
            for each in observed.replacement_chain(key):
                counted.update(dict(self._core.queries.usage_of_workload(each)))
            assigned = observed.assigned(key)
            check_law(
                all(counted[pair] >= assigned[pair] for pair in assigned),
                "S1: a replacement and its originals are charged too little",
                key,
                counted,
            )
