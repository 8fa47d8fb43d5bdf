"""Records events on jobs that wait, so that ``kubectl describe job`` shows why.

The event on the job has the reason and the message of the Workload's condition QuotaReserved=False. It is
recorded when the reason changes, whichever program wrote it. The first version of a Workload that a process
observes records nothing, so a restart does not repeat the events.
"""

from typing import Any, Final

from admitq.integrations.ownership import get_controller
from admitq.runtime.events import EventRecorder
from admitq.workloads.transitions import find_condition, is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, objects_at

REASON_INTERVAL_SECONDS: Final = 300.0
"""The shortest time between two events with one reason on one job."""


def record_changed_reason(old: JsonObject, new: JsonObject | None, recorder: EventRecorder) -> None:
    """Record an event on the job of a Workload if the reason why the Workload waits has changed.

    Args:
        old: the former version of the Workload.
        new: the current version; None if the Workload was deleted.
        recorder: records the event.
    """
    waiting = None if new is None else _find_waiting(new)
    if new is None or waiting is None:
        return
    former = _find_waiting(old)
    job = _job_reference(new)
    if job is None or (former is not None and former.get("reason") == waiting.get("reason")):
        return
    recorder.event(
        job,
        "Warning",
        str(waiting.get("reason")),
        str(waiting.get("message")),
        at_most_every=REASON_INTERVAL_SECONDS,
    )


def _find_waiting(workload: JsonObject) -> JsonObject | None:
    """Return the condition QuotaReserved=False of an unfinished Workload; None if it has none."""
    if is_condition_true(workload, ConditionType.FINISHED):
        return None
    condition = find_condition(workload, ConditionType.QUOTA_RESERVED)
    return condition if condition is not None and condition.get("status") == "False" else None


def _job_reference(workload: JsonObject) -> dict[str, Any] | None:
    """Return a reference to the job: the controller of the Workload, or the first pod of a pod group."""
    owners = objects_at(workload, ("metadata", "ownerReferences"))
    owner = get_controller(workload) or next(iter(owners), None)
    if owner is None:
        return None
    return {**owner, "namespace": workload["metadata"].get("namespace")}
