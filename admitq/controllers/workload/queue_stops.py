"""Queues that are stopped, deleted or restarted."""

from typing import Final

from admitq.controllers.plan import ActionPlan
from admitq.controllers.workload.case import WorkloadCase
from admitq.controllers.workload.requeuing import requeue_block_reason
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at

TERMINATING_OR_MISSING: Final = "is terminating or missing"


def stop_policy(queue: JsonObject) -> str:
    """Return the stop policy of a ClusterQueue or LocalQueue; the default is "None"."""
    return value_at(queue, ("spec", "stopPolicy"), "None") or "None"


def is_usable(queue: JsonObject | None) -> bool:
    """Whether a queue exists and is not being deleted."""
    return queue is not None and "deletionTimestamp" not in queue["metadata"]


def requeue_after_queue_restart(case: WorkloadCase) -> ActionPlan | None:
    """Requeue a Workload that a stopped queue evicted, once the queue is restarted."""
    match requeue_block_reason(case):
        case Reason.LOCAL_QUEUE_STOPPED:
            queue, reason, kind = case.inputs.local_queue, Reason.LOCAL_QUEUE_RESTARTED, "LocalQueue"
        case Reason.CLUSTER_QUEUE_STOPPED:
            queue, reason, kind = case.inputs.cluster_queue, Reason.CLUSTER_QUEUE_RESTARTED, "ClusterQueue"
        case _:
            return None
    if queue is None or stop_policy(queue) != "None":
        return None
    transition = case.begin_transition()
    message = f"The {kind} was restarted after being stopped"
    transition.set_condition(ConditionType.REQUEUED, True, reason, message)
    return case.plan_transition(transition)


def leave_stopped_queue(case: WorkloadCase) -> ActionPlan | None:
    """Release the quota of a Workload that is not admitted, and evict an admitted one if its queue drains."""
    if not case.is_reserved or case.is_true(ConditionType.EVICTED):
        return None
    inputs = case.inputs
    for kind, name, queue, reason in (
        ("LocalQueue", case.queue_name, inputs.local_queue, Reason.LOCAL_QUEUE_STOPPED),
        ("ClusterQueue", inputs.cluster_queue_name, inputs.cluster_queue, Reason.CLUSTER_QUEUE_STOPPED),
    ):
        transition = case.begin_transition()
        if case.is_true(ConditionType.ADMITTED):
            if queue is not None and stop_policy(queue) == "HoldAndDrain":
                return case.evict(transition, reason, f"The {kind} is stopped")
        elif queue is None or not is_usable(queue):
            transition.release(
                case.reported_reason(Reason.MISCONFIGURED), f"{kind} {name} {TERMINATING_OR_MISSING}"
            )
            return case.plan_transition(transition)
        elif stop_policy(queue) != "None":
            transition.release(case.reported_reason(Reason.SUSPENDED), f"{kind} {name} is stopped")
            return case.plan_transition(transition)
    return None
