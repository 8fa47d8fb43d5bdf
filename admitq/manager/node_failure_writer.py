"""Writes evictions of workloads with pods on failed nodes for which there is no other place."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from admitq.core.instructions import EvictForNodeFailures
from admitq.core.model import Instant
from admitq.manager.guarded_writes import DecisionKind, GuardedWrites, Patch, WorkloadDecision
from admitq.runtime.events import EventRecorder
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.workloads.evictions import eviction_event_reason
from admitq.workloads.transitions import StatusTransition, holds_quota, is_being_evicted
from admitq_api.conditions import Reason

_MESSAGE: Final = "Workload was evicted as there was no replacement for unhealthy node(s): "


@dataclass(frozen=True)
class NodeFailureWriter:
    """Writes evictions for failed nodes to the statuses of Workloads, and records their events.

    Args:
        writes: writes statuses of Workloads.
        recorder: records Kubernetes events.
        clock: wall time in nanoseconds.
    """

    writes: GuardedWrites
    recorder: EventRecorder
    clock: Callable[[], Instant]

    async def evict(self, instruction: EvictForNodeFailures) -> None:
        """Write and record an eviction. If it cannot be written, the core decides again."""
        before = self.writes.latest_version(instruction.key, instruction.uid)
        if before is None or is_being_evicted(before):
            return
        message = _MESSAGE + ",".join(instruction.nodes)
        with call_priority(CallPriority.EVICTION):
            written = await self.writes.write_decision(
                WorkloadDecision(
                    DecisionKind.NODE_FAILURE,
                    instruction.key,
                    instruction.uid,
                    partial(self._patch, message=message),
                    is_being_evicted,
                )
            )
        if written is not None:
            self.recorder.event(written, "Normal", eviction_event_reason(Reason.NODE_FAILURES), message)

    def _patch(self, obj: dict[str, Any], message: str) -> Patch | None:
        if not holds_quota(obj):
            return None
        transition = StatusTransition(obj, self.clock())
        transition.evict(Reason.NODE_FAILURES, message)
        return transition.patch()
