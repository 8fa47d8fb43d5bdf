"""Laws S1 to S3: statuses and usage agree with the model, and each change of a status is reported."""

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
from tests.laws.law import law
from tests.laws.reference.tree import cohort_node, queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player


class StatusLaws:
    """The checks of what the core shows.

    Args:
        player: the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self.shown: dict[object, object] = {}
        self.asked: set[object] = set()
        """What was to be shown anew since it was looked at last."""

    @property
    def _core(self) -> AdmissionState:
        """The core; an operation may replace it."""
        return self._player.core

    def check_refreshes(self) -> None:
        """A refresh is asked for whenever what is shown changed."""
        current: dict[object, object] = {}
        for name in QUEUES:
            current[RefreshClusterQueue(name)] = self._core.queries.cluster_queue_status(name)
        for key in LOCAL_QUEUES:
            current[RefreshLocalQueue(key)] = self._core.queries.local_queue_status(key)
        for name in COHORTS:
            current[RefreshCohort(name)] = self._core.queries.cohort_status(name)
        changed = {
            what for what, status in current.items() if status is not None and status != self.shown.get(what)
        }
        law(changed <= self.asked, "a status changed and nobody is told", changed - self.asked)
        self.shown = current
        self.asked.clear()

    def check_books(self) -> None:
        """The core's numbers against the model's."""
        observed = self._observed
        tree = observed.tree()
        waits_in = [observed.waits_in(key) for key in observed.workloads]
        for name, queue in observed.cluster_queues.items():
            status = self._core.queries.cluster_queue_status(name)
            assert status is not None, name
            law(status.active == observed.is_active(name), "S2: activity", name, status)
            law(status.pending == waits_in.count(name), "S3: how many wait", name, status)
            node = queue_node(name)
            for flavor, totals in status.flavors_reservation:
                for total in totals:
                    pair = FlavorResource(flavor, total.resource)
                    used = tree.usage(node, pair)
                    beyond = max(0, used - tree.nominal(node, pair)) if queue.cohort is not None else 0
                    law((total.total, total.borrowed) == (used, beyond), "S2: usage", name, total, used)
        for key, local_queue in observed.local_queues.items():
            if local_queue.cluster_queue not in observed.cluster_queues:
                status = self._core.queries.local_queue_status(key)
                assert status is not None, key
                counters = (status.pending, status.reserving, status.admitted)
                lists = (status.flavors_reservation, status.flavors_usage)
                law((*counters, *lists) == (0, 0, 0, None, None), "a queue without ClusterQueue counts", key)
        for name in sorted({node.name for node in tree.parents if node.cohort}):
            status = self._core.queries.cohort_status(name)
            assert status is not None, name
            if tree.path(cohort_node(name)) is None:
                continue
            for pair, subtree in status.subtree_quota:
                law(subtree == tree.subtree(cohort_node(name), pair), "S2: quota of a cohort", name, pair)
        self.check_nobody_counts_too_little()

    def check_nobody_counts_too_little(self) -> None:
        """What one who replaces another does not count with himself, those whom he replaces do."""
        observed = self._observed
        for key in observed.workloads:
            if observed.workloads[key].replaces is None:
                continue
            counted = Counter[FlavorResource]()
            for each in observed.line(key):
                counted.update(dict(self._core.queries.usage_of_workload(each)))
            assigned = observed.assigned(key)
            law(all(counted[pair] >= assigned[pair] for pair in assigned), "S1: too little", key, counted)
