"""A fast driver of the core: the figures include its own work.

It has a virtual clock, a heap of run times, and two observations for each workload: its reservation was
written, and it finished. The driver creates the observed values before the clock starts, except for the
admission and its time.
"""

import heapq
from dataclasses import dataclass, replace

from admitq.core.events import CyclesRequested, WorkloadChanged
from admitq.core.instructions import ReserveQuota
from admitq.core.model import SECOND, Admission, ObjectKey, Workload
from admitq.core.state import AdmissionState

_CYCLES = CyclesRequested()


@dataclass(slots=True, eq=False)
class _PreparedWorkload:
    """The observations of a workload after its admission, and its run time in nanoseconds."""

    reserved: Workload
    finished: Workload
    run_time: int


def _complete(workload: Workload, admission: Admission, now: int) -> None:
    object.__setattr__(workload, "admission", admission)
    object.__setattr__(workload, "reserved_at", now // SECOND * SECOND)


class Driver:
    """Execute the decisions of a state on a virtual clock."""

    def __init__(self, state: AdmissionState) -> None:
        self.state = state
        self.now = 0
        self.admitted = 0
        self._prepared: dict[ObjectKey, _PreparedWorkload] = {}
        self._finishes: list[tuple[int, int, _PreparedWorkload]] = []

    def prepare(self, workload: Workload, run_time: int) -> None:
        """Store the later observations of a workload, and its run time in nanoseconds."""
        reserved = replace(workload, admitted=True)
        self._prepared[workload.key] = _PreparedWorkload(reserved, replace(reserved, finished=True), run_time)

    def arrive(self, workload: Workload) -> None:
        """Let the state observe a pending workload."""
        self.state.handle(WorkloadChanged(workload), now=self.now)

    def decide(self) -> int:
        """Run cycles until nothing more fits, and return how many workloads were admitted."""
        observe, now, prepared = self.state.observe, self.now, self._prepared
        before = self.admitted
        for instruction in self.state.handle(_CYCLES, now=now):
            if type(instruction) is ReserveQuota:
                it = prepared.pop(instruction.key)
                _complete(it.reserved, instruction.admission, now)
                _complete(it.finished, instruction.admission, now)
                self.admitted += 1
                heapq.heappush(self._finishes, (now + it.run_time, self.admitted, it))
                observe(WorkloadChanged(it.reserved), now=now)
        return self.admitted - before

    def finish_next(self, *, alone: bool = False) -> bool:
        """Advance the clock to the next end, and finish all workloads of that instant, or one if ``alone``.

        Return whether any workload finished.
        """
        finishes, observe = self._finishes, self.state.observe
        if not finishes:
            return False
        self.now = now = finishes[0][0]
        while finishes and finishes[0][0] == now:
            observe(WorkloadChanged(heapq.heappop(finishes)[2].finished), now=now)
            if alone:
                break
        return True

    def run(self, *, alone: bool = False) -> None:
        """Continue until no workload runs.

        Args:
            alone: whether to decide after each workload that finishes, not only after each instant.
        """
        self.decide()
        while self.finish_next(alone=alone):
            self.decide()
