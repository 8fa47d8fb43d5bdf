"""A run of the core on the virtual clock: its decisions are carried out and observed.

The core observes everything that happens at one instant before it runs its cycles. On a cluster, observations
come in while cycles wait.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from admitq.core.events import CyclesRequested, Event
from admitq.core.instructions import Instruction, Preempt, ReserveQuota
from admitq.core.model import SECOND
from admitq.core.state import AdmissionState
from admitq.simulator.clock import VirtualClock
from admitq.simulator.course import START
from admitq.simulator.measures import Measures
from admitq.simulator.plan import SimulationPlan
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.timeline import Timeline
from admitq.simulator.workloads import SimulatedWorkloads

_ROUNDS: Final = 100_000
"""After so many rounds of decisions at one instant something goes round in circles."""

_CYCLES: Final = CyclesRequested()

_IDLE_WAKES: Final = 1_000
"""How often the core's own timers may wake it while nothing else is scheduled, before the run ends."""


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "Finished"
    """All that was submitted has ended."""
    STUCK = "Stuck"
    """Workloads wait, and nothing is left to happen that could admit them."""
    UNTIL = "Until"
    """The time was up."""


class EndlessDecisionsError(RuntimeError):
    """The core decides at one instant without end."""


Progress = Callable[["Simulation"], None]


class Simulation:
    """A run.

    Args:
        plan: what happens. It can be played once.
        timeline: where what happens is written.
    """

    def __init__(self, plan: SimulationPlan, timeline: Timeline | None = None) -> None:
        self.plan = plan
        self.measures = Measures()
        self.clock = VirtualClock()
        self.ending: Ending | None = None
        self.state = AdmissionState(plan.settings, statuses=False)
        self.workloads = SimulatedWorkloads(
            plan, self.clock, self.state, self.measures, self._observe, timeline
        )
        self._due: list[Instruction] = []
        self._wake_at: Nanoseconds | None = None
        self._idle_wakes = 0
        self._last_event: Nanoseconds = 0
        self._carry_out: Mapping[type[Instruction], Callable[[Any], None]] = {
            ReserveQuota: self.workloads.reserve,
            Preempt: self.workloads.preempt,
        }

    @property
    def now(self) -> Nanoseconds:
        """The present, in nanoseconds since the start."""
        return self.clock.now

    # --- the clock --------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None, *, every: int = 256) -> Ending:
        """Run it to its end.

        Args:
            progress: called with the run, to show how far it is.
            every: after how many instants it is called.

        Raises:
            Unsettled: a defect of the core.
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
            instants += 1
            if progress is not None and not instants % every:
                progress(self)
        # The time that only the core's own timers waited for does not count.
        clock.now = until if until is not None and self.workloads.courses else self._last_event
        return self._end(Ending.STUCK if self.workloads.courses else Ending.FINISHED)

    def _begin(self) -> None:
        plan = self.plan
        self.measures.observe(plan.start, 0)
        for event in plan.start:
            self._observe(event)
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
        for instruction in self.state.handle(event, now=self.clock.instant):
            if type(instruction) in self._carry_out:
                self._due.append(instruction)

    def _settle(self) -> None:
        """Have the core decide, and carry out its decisions, until it decides nothing more."""
        instant = self.clock.instant
        wake = self.state.next_wakeup(instant)
        acted = False
        for _ in range(_ROUNDS):
            if wake != instant:
                break
            self._observe(_CYCLES)
            decided = bool(self._due)
            while self._due:
                due, self._due = self._due, []
                for instruction in due:
                    self._carry_out[type(instruction)](instruction)
            acted = acted or decided
            wake = self.state.next_wakeup(instant)
            if not decided:
                break
        else:
            raise EndlessDecisionsError(
                f"the core still decides after {_ROUNDS} rounds at {self.now / SECOND} s"
            )
        if acted:
            self._last_event = self.now
        self._idle_wakes = 0 if acted else self._idle_wakes + 1
        if wake is not None and wake > instant:
            self._expect_wake(wake - START)

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
