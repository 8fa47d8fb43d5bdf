"""Writes preemptions to Workloads: the eviction, its preemptor and its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from admitq.core.instructions import Preempt
from admitq.core.model import Instant
from admitq.manager.guarded_writes import DecisionKind, GuardedWrites, WorkloadDecision
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.runtime.events import EventRecorder
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.translate import messages
from admitq.translate.messages import EffectivePriority
from admitq.workloads.evictions import eviction_event_reason
from admitq.workloads.transitions import (
    StatusTransition,
    find_condition,
    holds_quota,
    is_being_evicted,
)
from admitq_api.conditions import ConditionType, Reason
from admitq_api.labels import Names

EVICTION_EVENT: Final = eviction_event_reason(Reason.PREEMPTED)


@dataclass
class PreemptionWriter:
    """Writes preemptions, records events on both Workloads, and counts preemptions.

    The quota of a preempted workload stays in use until its job has stopped. The job controller stops the
    job.

    Args:
        writes: writes statuses of Workloads.
        names: the names of the API group.
        recorder: records Kubernetes events.
        measures: counts what happens to workloads.
        clock: wall time in nanoseconds.
        priority_of: returns the priority of a Workload and its boost.
        errors: reports unexpected exceptions after the write. An exception prevents the events.
    """

    writes: GuardedWrites
    names: Names
    recorder: EventRecorder
    measures: WorkloadMeasures
    clock: Callable[[], Instant]
    priority_of: Callable[[dict[str, Any]], EffectivePriority]
    errors: UnexpectedErrors = LOG_ONLY

    async def preempt(self, instruction: Preempt) -> bool:
        """Write and record a preemption; return False if it is certain that the Workload is not evicted."""
        preemptor = self.writes.latest_version(instruction.preemptor, instruction.preemptor_uid)
        message = messages.preempted_message(instruction, self._job_uid(preemptor))
        before = self.writes.latest_version(instruction.key, instruction.uid)
        if before is not None and is_being_evicted(before):
            return True
        with call_priority(CallPriority.EVICTION):
            written = await self.writes.write_decision(
                WorkloadDecision(
                    DecisionKind.PREEMPTION,
                    instruction.key,
                    instruction.uid,
                    lambda obj: self._patch(obj, instruction, message),
                    is_being_evicted,
                )
            )
        if written is None:
            return False
        if (find_condition(written, ConditionType.PREEMPTED) or {}).get("message") == message:
            # The preemption has its effect even if its events cannot be recorded.
            with self.errors.contain(ErrorPart.REPORT, instruction.key):
                self._record(instruction, message, written, preemptor)
        return True

    def _patch(self, obj: dict[str, Any], instruction: Preempt, message: str) -> dict[str, Any] | None:
        if not holds_quota(obj):
            return None
        transition = StatusTransition(obj, self.clock())
        transition.preempt(instruction.reason, message)
        return transition.patch()

    def _record(
        self, instruction: Preempt, message: str, written: dict[str, Any], preemptor: dict[str, Any] | None
    ) -> None:
        self.measures.preempted(instruction.preemptor_path[-1], instruction.reason)
        priorities = messages.priorities_message(
            EffectivePriority(0, 0) if preemptor is None else self.priority_of(preemptor),
            self.priority_of(written),
        )
        self.recorder.event(written, "Normal", "Preempted", f"{message}; {priorities}")
        self.recorder.event(written, "Normal", EVICTION_EVENT, message)
        if preemptor is not None:
            note = f"Preempted workload {instruction.key} (UID: {instruction.uid}) in ClusterQueue"
            queue = instruction.victim_path[-1]
            self.recorder.event(preemptor, "Normal", "PreemptedWorkload", f"{note} {queue}; {priorities}")

    def _job_uid(self, preemptor: dict[str, Any] | None) -> str:
        if preemptor is None:
            return ""
        return (preemptor["metadata"].get("labels") or {}).get(self.names.job_uid, "")
