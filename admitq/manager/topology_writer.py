"""Writes topology assignments of workloads that hold quota already."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from admitq.core.instructions import AssignTopology
from admitq.core.model import Admission
from admitq.manager.guarded_writes import DecisionKind, GuardedWrites, Patch, WorkloadDecision
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.workloads.admission_patches import topology_patch
from admitq.workloads.stored_admissions import has_admission
from admitq.workloads.transitions import is_being_evicted, is_reserved


@dataclass(frozen=True)
class TopologyWriter:
    """Writes topology assignments to the statuses of Workloads.

    Args:
        writes: writes statuses of Workloads.
        by_hostname_prefix: whether assignments may have a slice for each prefix of host names.
    """

    writes: GuardedWrites
    by_hostname_prefix: bool = True

    async def assign(self, instruction: AssignTopology) -> bool:
        """Write topology assignments. Return whether they are written.

        If not, it is certain that they have no effect: quota is not reserved any more, or the workload has
        changed.
        """
        with call_priority(CallPriority.RESERVATION):
            written = await self.writes.write_decision(
                WorkloadDecision(
                    DecisionKind.TOPOLOGY_ASSIGNMENT,
                    instruction.key,
                    instruction.uid,
                    partial(self._patch, admission=instruction.admission),
                    is_written_in=partial(has_admission, admission=instruction.admission),
                )
            )
        return written is not None

    def _patch(self, obj: dict[str, Any], admission: Admission) -> Patch | None:
        if not is_reserved(obj) or is_being_evicted(obj):
            return None
        return topology_patch(obj, admission, by_hostname_prefix=self.by_hostname_prefix)
