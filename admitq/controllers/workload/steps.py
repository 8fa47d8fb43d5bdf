"""The steps of a decision about a Workload, and their order.

The first step that has something to write ends the decision; its write leads to the next decision. If no step
has anything to write, the controller reconciles the Workload again at the earliest deadline.
"""

from collections.abc import Callable
from typing import Final

from admitq.controllers.plan import ActionPlan
from admitq.controllers.workload.admission import admit, drop_resource_requests
from admitq.controllers.workload.admission_checks import apply_check_states, delay_retry, sync_checks
from admitq.controllers.workload.case import WorkloadCase, WorkloadInputs
from admitq.controllers.workload.deactivation import evict_inactive, set_inactive
from admitq.controllers.workload.finishing import (
    finish_orphan,
    finish_replaced_slice,
    remove_false_label,
    retain_or_delete_finished,
)
from admitq.controllers.workload.pending import (
    first_evaluation_deadline,
    report_admission_gates,
    report_pending,
)
from admitq.controllers.workload.queue_stops import leave_stopped_queue, requeue_after_queue_restart
from admitq.controllers.workload.requeuing import end_backoff, requeue_time
from admitq.controllers.workload.time_limits import (
    deactivate_after_execution_limit,
    evict_after_pods_ready_timeout,
    execution_deadline,
    pods_ready_deadline,
    record_execution_time,
    report_awaited_pods,
)
from admitq.core.model import Instant
from admitq_api.json_objects import JsonObject


def decide_workload(workload: JsonObject, inputs: WorkloadInputs, now: Instant) -> ActionPlan:
    """Return the plan of the first step that has something to do."""
    case = WorkloadCase(workload, inputs, now)
    for step in STEPS:
        decided = step(case)
        if decided is not None:
            return decided
    return ActionPlan(requeue_after=case.seconds_until(*(deadline(case) for deadline in DEADLINES)))


STEPS: Final[tuple[Callable[[WorkloadCase], ActionPlan | None], ...]] = (
    remove_false_label,
    finish_orphan,
    retain_or_delete_finished,
    record_execution_time,
    finish_replaced_slice,
    delay_retry,
    set_inactive,
    end_backoff,
    evict_inactive,
    requeue_after_queue_restart,
    report_admission_gates,
    sync_checks,
    report_pending,
    admit,
    drop_resource_requests,
    apply_check_states,
    leave_stopped_queue,
    evict_after_pods_ready_timeout,
    deactivate_after_execution_limit,
    report_awaited_pods,
)
"""In the order of evaluation."""

DEADLINES: Final[tuple[Callable[[WorkloadCase], Instant | None], ...]] = (
    requeue_time,
    pods_ready_deadline,
    execution_deadline,
    first_evaluation_deadline,
)
