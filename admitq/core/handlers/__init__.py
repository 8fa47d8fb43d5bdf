"""Event handlers of the core: one function for each type of event.

A handler records an observation and updates all its consequences. An exception in a handler is a defect of
the core: the state may then be changed in part only (``admitq.manager.recovery``).
"""

from collections.abc import Callable
from typing import Any, Final

from admitq.core import events
from admitq.core.events import Event
from admitq.core.handlers import (
    cluster_queues,
    cohorts,
    cycles,
    local_queues,
    namespaces,
    nodes,
    references,
    request_rules,
    workloads,
)
from admitq.core.model import Instant
from admitq.core.world import World

Handler = Callable[[World, Any, Instant], None]
"""Handles an event at the present instant, in nanoseconds since the Unix epoch."""

HANDLERS: Final[dict[type[Event], Handler]] = {
    events.ClusterQueueChanged: cluster_queues.update_cluster_queue,
    events.ClusterQueueDeleted: cluster_queues.delete_cluster_queue,
    events.CohortChanged: cohorts.update_cohort,
    events.CohortDeleted: cohorts.delete_cohort,
    events.LocalQueueChanged: local_queues.update_local_queue,
    events.LocalQueueDeleted: local_queues.delete_local_queue,
    events.ResourceFlavorChanged: references.update_flavor,
    events.ResourceFlavorDeleted: references.delete_flavor,
    events.AdmissionCheckChanged: references.update_check,
    events.AdmissionCheckDeleted: references.delete_check,
    events.TopologyChanged: references.update_topology,
    events.TopologyDeleted: references.delete_topology,
    events.NodeChanged: nodes.update_node,
    events.NodeDeleted: nodes.delete_node,
    events.PodOfOthersChanged: nodes.update_pod_of_others,
    events.PodOfOthersDeleted: nodes.delete_pod_of_others,
    events.NamespaceChanged: namespaces.update_namespace,
    events.NamespaceDeleted: namespaces.delete_namespace,
    events.LimitRangeChanged: request_rules.update_limit_range,
    events.LimitRangeDeleted: request_rules.delete_limit_range,
    events.RuntimeClassChanged: request_rules.update_runtime_class,
    events.RuntimeClassDeleted: request_rules.delete_runtime_class,
    events.WorkloadChanged: workloads.update_workload,
    events.WorkloadDeleted: workloads.delete_workload,
    events.ReservationFailed: workloads.undo_failed_reservation,
    events.ReservationDiscarded: workloads.discard_reservation,
    events.TopologyAssignmentFailed: workloads.undo_topology_assignment,
    events.PreemptionFailed: workloads.undo_preemption,
    events.CyclesRequested: cycles.run_requested_cycles,
}
"""The handler of each type of event."""
