"""All measures of a manager."""

from admitq.metrics.measures.gauges import PendingWorkloads, WorkloadGauges
from admitq.metrics.measures.queues import QueueMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures


class ManagerMeasures:
    """The measures of a manager, by what they are about.

    Args:
        scope: which objects have series.
        pending: where pending workloads are read.

    Attributes:
        workloads: what happens to workloads.
        queues: the numbers of queues and cohorts.
        gauges: how many workloads there are.
    """

    def __init__(self, scope: MeasureScope, pending: PendingWorkloads | None = None) -> None:
        self.workloads = WorkloadMeasures(scope)
        self.queues = QueueMeasures(scope)
        self.gauges = WorkloadGauges(scope, self.queues, pending or PendingWorkloads())

    def forget_cluster_queue(self, name: str) -> None:
        """Drop all series and numbers of a ClusterQueue that was deleted."""
        self.workloads.forget_cluster_queue(name)
        self.queues.forget_cluster_queue(name)
