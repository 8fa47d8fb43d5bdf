"""Run the core on the virtual clock: carry out its decisions and report their effects to it.

The core first observes everything that happens at one instant, and then runs its cycles.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from admitq.core.asking.execution import run_due_cycles
from admitq.core.events import Event
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Instruction,
    Preempt,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.state import AdmissionState
from admitq.simulator.clock import START, VirtualClock
from admitq.simulator.measures import Measures
from admitq.simulator.plan import SimulationPlan
from admitq.simulator.run_context import RunContext
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.timeline import Timeline
from admitq.simulator.topology_measures import TopologyMeasures
from admitq.simulator.workloads import SimulatedWorkloads

_ROUNDS: Final = 100_000
"""The maximum number of rounds of decisions at one instant; more mean an endless loop."""

_IDLE_WAKES: Final = 1_000
"""The maximum number of timers of the core in a row while no other action is scheduled."""


class Ending(StrEnum):
    """The reason of the end of a run."""

    FINISHED = "Finished"
    """All submitted workloads have ended."""
    STUCK = "Stuck"
    """Workloads are pending that nothing can admit any more."""
    UNTIL = "Until"
    """The end of the run was reached."""


Progress = Callable[["Simulation"], None]


class Simulation:
    """A run of the core.

    Args:
        plan: the plan of the run. It can be run once.
        timeline: the destination of the events.
    """

    def __init__(self, plan: SimulationPlan, timeline: Timeline | None = None) -> None:
        self.plan = plan
        self.measures = Measures()
        self.clock = VirtualClock()
        self.ending: Ending | None = None
        self.state = AdmissionState(plan.settings, statuses=False)
        self.topologies = TopologyMeasures(self.state.queries.world, self.measures.grid, plan.common_pods)
        context = RunContext(
            plan, self.clock, self.state, self.measures, self.topologies, self._observe, timeline
        )
        self.workloads = SimulatedWorkloads(context)
        self._decided = 0
        self._wake_at: Nanoseconds | None = None
        self._idle_wakes = 0
        self._last_event: Nanoseconds = 0
        self._carry_out: Mapping[type[Instruction], Callable[[Any], None]] = {
            ReserveQuota: self.workloads.reserve,
            AssignTopology: self.workloads.assign_topology,
            Preempt: self.workloads.preempt,
            EvictForNodeFailures: self.workloads.evict_for_node_failures,
            ReportSecondPass: self.workloads.report_second_pass,
        }

    @property
    def now(self) -> Nanoseconds:
        """The current time in nanoseconds since the start."""
        return self.clock.now

    # --- the clock --------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None, *, every: int = 256) -> Ending:
        """Run to the end.

        Args:
            progress: called with the run, to show its progress.
            every: the number of instants between its calls.

        Raises:
            EndlessDecisionsError: a defect of the core.
        """
        self._begin()
        clock, until = self.clock, self.plan.until
        instants = 0
        while (now := clock.next) is not None:
            if until is not None and now > until:
                clock.now = until
                return self._end(Ending.UNTIL)
            clock.now = now
            for act, subject, epoch in clock.take_due():
                act(subject, epoch)
                if act != self._woken:
                    self._last_event = now
            self._settle()
            self.topologies.settle(now)
            instants += 1
            if progress is not None and not instants % every:
                progress(self)
        # The run ends with the last event. Later timers of the core do not count.
        clock.now = until if until is not None and self.workloads.unfinished else self._last_event
        return self._end(Ending.STUCK if self.workloads.unfinished else Ending.FINISHED)

    def _begin(self) -> None:
        plan = self.plan
        self.measures.observe(plan.start, 0)
        for event in plan.start:
            self._observe(event)
        self.topologies.settle(0)
        for at, event in plan.changes:
            self.clock.schedule(at, self._change, event)
        for kill in plan.kills:
            self.clock.schedule(kill.at, self.workloads.kill, kill)
        for source in plan.sources:
            self.workloads.expect(source)

    def _end(self, ending: Ending) -> Ending:
        self.state.refresh_refusals()
        self.ending = ending
        return ending

    # --- the core ---------------------------------------------------------------------------------

    def _observe(self, event: Event) -> None:
        # Only cycles decide, so there are no instructions.
        self.state.handle(event, now=self.clock.instant)

    def _settle(self) -> None:
        """Let the core decide and carry out its decisions, until there are no more."""
        instant = self.clock.instant
        decided = self._decided
        wake = run_due_cycles(self.state, instant, self._carry_out_decision, rounds=_ROUNDS)
        acted = self._decided > decided
        if acted:
            self._last_event = self.now
        self._idle_wakes = 0 if acted else self._idle_wakes + 1
        if wake is not None and wake > instant:
            self._expect_wake(wake - START)

    def _carry_out_decision(self, instruction: Instruction) -> None:
        # A second pass that fails is repeated, which is no progress.
        self._decided += not isinstance(instruction, ReportSecondPass)
        self._carry_out[type(instruction)](instruction)

    def _expect_wake(self, at: Nanoseconds) -> None:
        if self._wake_at is not None and self.now < self._wake_at <= at:
            return
        if self.clock.next is not None or self._idle_wakes < _IDLE_WAKES:
            self._wake_at = at
            self.clock.schedule(at, self._woken, None)

    def _woken(self, _subject: None, _epoch: int) -> None:
        """Do nothing: the core runs after each instant."""

    def _change(self, event: Event, _epoch: int) -> None:
        self.measures.observe((event,), self.now)
        self._observe(event)
        self.workloads.observe_change(event)
