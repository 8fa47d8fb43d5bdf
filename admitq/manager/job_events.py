"""Records events on jobs that wait, so that ``kubectl describe job`` shows why.

The event on the job has the reason of the Workload's condition QuotaReserved=False. Its note is a short
explanation: if a cycle refused the workload or its lane, which quota it lacks, else the message of the
condition. The event is recorded when the reason changes, whichever program wrote it. A change of amounts or
of the queue order records nothing. The first version of a Workload that a process observes records nothing,
so a restart does not repeat the events.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from admitq.core.asking.explain import explain_refusal
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.integrations.ownership import get_controller
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.events import EventRecorder
from admitq.translate.messages import Explanation, pending_condition
from admitq.translate.short_explanations import short_explanation
from admitq.workloads.transitions import find_condition, is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, objects_at

REASON_INTERVAL_SECONDS: Final = 300.0
"""The shortest time between two events with one reason on one job."""


class JobEventRecorder:
    """Records why Workloads wait, in events on their jobs.

    Args:
        recorder: records Kubernetes events.
        state: the core, which knows more than the condition tells.
        errors: reports exceptions of explanations. The event then has the message of the condition.
        run_between_cycles: runs work that reads the state: at once, or after the running cycle.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        state: AdmissionState,
        errors: UnexpectedErrors,
        run_between_cycles: Callable[[Callable[[], None]], None],
    ) -> None:
        self._recorder = recorder
        self._state = state
        self._errors = errors
        self._run_between_cycles = run_between_cycles

    def record_changed_reason(self, old: JsonObject, new: JsonObject | None) -> None:
        """Record an event on the job of a Workload if the reason why the Workload waits has changed.

        Args:
            old: the former version of the Workload.
            new: the current version; None if the Workload was deleted.
        """
        waiting = None if new is None else _find_waiting(new)
        if new is None or waiting is None:
            return
        former = _find_waiting(old)
        job = _job_reference(new)
        if job is None or (former is not None and former.get("reason") == waiting.get("reason")):
            return
        key = ObjectKey(str(new["metadata"].get("namespace", "")), str(new["metadata"]["name"]))
        condition = Explanation(str(waiting.get("reason")), str(waiting.get("message")))
        self._run_between_cycles(partial(self._record, job, key, condition))

    def _record(self, job: JsonObject, key: ObjectKey, condition: Explanation) -> None:
        note = condition.message
        with self._errors.contain(ErrorPart.REPORT, key):
            note = self._explain(key, condition)
        self._recorder.event(
            {**job}, "Warning", condition.reason, note, at_most_every=REASON_INTERVAL_SECONDS
        )

    def _explain(self, key: ObjectKey, condition: Explanation) -> str:
        """Return the short explanation of a refusal, or else the message of the condition.

        The condition may have another cause than the last refusal, such as a stopped queue.
        """
        explanation = explain_refusal(self._state, key)
        if explanation is None or pending_condition(explanation.refusal).reason != condition.reason:
            return condition.message
        return short_explanation(explanation)


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
