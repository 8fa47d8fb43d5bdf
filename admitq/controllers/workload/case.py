"""A Workload, and the inputs of the decision about its next step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from admitq.controllers.plan import ActionPlan, RecordEvent, plan_of, workload_status_patch
from admitq.controllers.pods.remaining_pods import RemainingPods
from admitq.controllers.settings import ControllerSettings
from admitq.core.model import Instant
from admitq.runtime.kinds import Kinds
from admitq.translate.messages import Explanation
from admitq.workloads.evictions import eviction_event_reason
from admitq.workloads.transitions import StatusTransition, is_active
from admitq_api.conditions import SECOND, ConditionsByType, ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

CONCERN: Final = "workload-controller"


@dataclass(frozen=True, slots=True)
class WorkloadInputs:
    """All that a decision about a Workload depends on, besides the Workload and the time."""

    names: Names
    kinds: Kinds
    settings: ControllerSettings
    local_queue: JsonObject | None = None
    is_local_queue_readable: bool = True
    cluster_queue: JsonObject | None = None
    cluster_queue_name: str = ""
    cluster_queue_active: bool | None = False
    """None while the core has not observed the ClusterQueue."""
    inadmissible: Explanation | None = None
    """Why no admission is possible under the present configuration."""
    original: JsonObject | None = None
    """The Workload that this one replaces (semantics, Elastic jobs)."""
    bypassed: Explanation | None = None
    """Why an equal Workload was refused, so that the core skipped this one."""
    owners_gone: bool = False
    """None of the owners in the Workload's metadata exists, and no other controller handles that."""
    remaining_pods: RemainingPods | None = None
    """Pods of the Workload that can still run although its job is gone."""
    slices: Sequence[JsonObject] = ()
    """The Workloads of the same elastic job, if the Workload is one of its slices."""
    unrecorded_execution: Instant = 0
    """Duration of admissions that another program ended without recording their time; nanoseconds."""
    acting_since: Instant = 0
    """When this process began to act. Jobs report earlier changes of their pods only from then on."""


class WorkloadCase:
    """A Workload, the inputs of the decision about it, and the time.

    Attributes:
        workload: the Workload.
        inputs: the inputs of the decision.
        now: the time, in nanoseconds.
        conditions: the conditions of the Workload.
        is_reserved: whether quota is reserved for the Workload.
        is_active: whether the Workload may be queued.
    """

    def __init__(self, workload: JsonObject, inputs: WorkloadInputs, now: Instant) -> None:
        self.workload = workload
        self.inputs = inputs
        self.now = now
        self.conditions = ConditionsByType(value_at(workload, ("status", "conditions")))
        self.is_reserved = self.conditions.is_true(ConditionType.QUOTA_RESERVED)
        self.is_active = is_active(workload)

    @property
    def settings(self) -> ControllerSettings:
        """The settings of the controllers."""
        return self.inputs.settings

    @property
    def queue_name(self) -> str:
        """Name of the LocalQueue."""
        return value_at(self.workload, ("spec", "queueName"), "")

    def begin_transition(self) -> StatusTransition:
        """Begin a change of the Workload's status."""
        return StatusTransition(self.workload, self.now)

    def plan_transition(self, transition: StatusTransition, *events: RecordEvent | None) -> ActionPlan | None:
        """Return the plan that writes the change and then records the events; None if there is no change."""
        if transition.patch() is None:
            return None
        if not transition.is_condition_true(ConditionType.QUOTA_RESERVED):
            self.set_pods_awaited(transition)
        write = workload_status_patch(self.inputs.kinds.workloads, self.workload, transition.patch(), CONCERN)
        return None if write is None else plan_of(write, *events)

    def set_pods_awaited(self, transition: StatusTransition) -> None:
        """Set PodsReady=False if readiness is tracked and the condition is absent."""
        if self.settings.pods_ready is not None:
            transition.add_pods_ready()

    def evict(
        self, transition: StatusTransition, reason: Reason, message: str, cause: str = ""
    ) -> ActionPlan | None:
        """Return the plan that evicts the Workload and records the event; None if there is no change."""
        transition.evict(reason, message, cause)
        return self.plan_transition(
            transition, RecordEvent(self.workload, "Normal", eviction_event_reason(reason, cause), message)
        )

    def is_true(self, type: ConditionType) -> bool:  # noqa: A002 the name in the API
        """Whether a condition of the Workload holds."""
        return self.conditions.is_true(type)

    def reported_reason(self, reason: str) -> str:
        """Return the reason to report instead of a detailed one."""
        return self.settings.pending.reported_reason(reason)

    def seconds_until(self, *deadlines: Instant | None) -> float | None:
        """Return the seconds until the earliest deadline ahead; None if there is none."""
        ahead = [deadline for deadline in deadlines if deadline is not None and deadline > self.now]
        return (min(ahead) - self.now) / SECOND if ahead else None
