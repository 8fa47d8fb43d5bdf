"""Whom a workload may preempt, in which order."""

from typing import NamedTuple

from admitq.core.instructions import PreemptionReason
from admitq.core.model import Workload
from admitq.core.world import ClusterQueueEntry, WorkloadEntry


class Victim(NamedTuple):
    """A workload that is to be preempted, and for what reason."""

    entry: WorkloadEntry
    reason: PreemptionReason


class Preemptor(NamedTuple):
    """A workload that does not fit, and the ClusterQueue in which it waits."""

    queue: ClusterQueueEntry
    workload: Workload
