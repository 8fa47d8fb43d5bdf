"""The time that decides the place of a Workload in its queue."""

from typing import Final

from admitq.core.model import Instant
from admitq.translate.read_options import ReadOptions
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_object

_MILLISECOND: Final = 1_000_000


def read_queue_order_timestamp(obj: JsonObject, how: ReadOptions) -> Instant:
    """Return the time from which on a Workload counts as queued.

    This is the time of the eviction after the Retry of an admission check, and, if so configured, after a
    PodsReady timeout or a preemption by a borrower. Otherwise it is the time of the creation.
    """
    state = require_object(obj.get("status"), "status").get("conditions")
    evicted = conditions.find_condition(state, ConditionType.EVICTED)
    if evicted is not None and evicted.get("status") == "True":
        reason = evicted.get("reason")
        if reason == Reason.ADMISSION_CHECK or (
            reason == Reason.PODS_READY_TIMEOUT and how.timeout_moves_to_back
        ):
            return conditions.parse_time(evicted["lastTransitionTime"])
    preempted = conditions.find_condition(state, ConditionType.PREEMPTED)
    if (
        how.reclaim_moves_to_back
        and preempted is not None
        and (preempted.get("status"), preempted.get("reason"))
        == ("True", Reason.IN_COHORT_RECLAIM_WHILE_BORROWING)
    ):
        return conditions.parse_time(preempted["lastTransitionTime"]) + _MILLISECOND
    return conditions.parse_time(obj["metadata"]["creationTimestamp"])
