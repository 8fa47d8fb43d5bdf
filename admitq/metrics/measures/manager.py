"""All measures of a manager."""

from admitq.core.model import ObjectKey
from admitq.metrics.measures.gauges import PendingWorkloads, WorkloadGauges
from admitq.metrics.measures.queue_statuses import NO_STATUSES, ChangedStatuses, QueueStatuses
from admitq.metrics.measures.queues import QueueMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures


class ManagerMeasures:
    """The measures of a manager, by what they are about.

    Args:
        scope: which objects have series.
        pending: where pending workloads are read.
        statuses: where the statuses of queues and cohorts are read.

    Attributes:
        workloads: what happens to workloads.
        queues: the numbers of queues and cohorts.
        changed: the queues and cohorts with gauges to set before the next scrape.
        gauges: how many workloads there are.
    """

    def __init__(
        self,
        scope: MeasureScope,
        pending: PendingWorkloads | None = None,
        statuses: QueueStatuses = NO_STATUSES,
    ) -> None:
        self.workloads = WorkloadMeasures(scope)
        self.changed = ChangedStatuses(statuses)
        # Sums over queues are updated afterwards, so they include these gauges.
        scope.metrics.update_on_scrape(self._set_changed_gauges)
        self.queues = QueueMeasures(scope)
        self.gauges = WorkloadGauges(scope, self.queues, pending or PendingWorkloads())

    def _set_changed_gauges(self) -> None:
        self.changed.set_gauges(self.queues)

    def forget_cluster_queue(self, name: str) -> None:
        """Drop all series and numbers of a ClusterQueue that was deleted."""
        self.workloads.forget_cluster_queue(name)
        self.changed.forget_cluster_queue(name)
        self.queues.forget_cluster_queue(name)

    def forget_local_queue(self, key: ObjectKey) -> None:
        """Drop all series and numbers of a LocalQueue that was deleted."""
        self.changed.forget_local_queue(key)
        self.queues.forget_local_queue(*key)
