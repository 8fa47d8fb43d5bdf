"""The virtual clock, and the world around the core: what it decides is carried out, and observed.

Everything that happens at one instant is told before the core runs its cycles, as it is on a cluster where
observations come in while cycles wait.
"""

import heapq
from collections.abc import Callable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from admitq.core.events import CyclesRequested, Event, WorkloadChanged, WorkloadDeleted
from admitq.core.instructions import Instruction, Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import SECOND, Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.simulator.course import START, Course, Work, revised
from admitq.simulator.distributions import stream
from admitq.simulator.measures import Measures
from admitq.simulator.plan import Plan, Source, Submission
from admitq.simulator.schema import Kill, Nanoseconds
from admitq.simulator.timeline import Happening, Timeline
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq_api.conditions import ConditionType, Reason, format_time

_ROUNDS: Final = 100_000
"""After so many rounds of decisions at one instant something goes round in circles."""

_CYCLES: Final = CyclesRequested()

_IDLE_WAKES: Final = 1_000
"""How often the core may be woken by its own timers with nothing else to come, before that is the end."""


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "Finished"
    """All that was submitted has ended."""
    STUCK = "Stuck"
    """Workloads wait, and nothing is left to happen that could admit them."""
    UNTIL = "Until"
    """The time was up."""


class Unsettled(RuntimeError):
    """The core decides at one instant without end."""


Action = Callable[[Any, int], None]
"""Takes its subject, and the epoch for which it was planned."""

Progress = Callable[["Simulation"], None]


class Simulation:
    """A run.

    Args:
        plan: what happens. It can be played once.
        timeline: what is told as it happens.
    """

    def __init__(self, plan: Plan, timeline: Timeline | None = None) -> None:
        self.plan = plan
        self.measures = Measures()
        self.now: Nanoseconds = 0
        self.ending: Ending | None = None
        self.state = AdmissionState(plan.settings, statuses=False)
        self.courses: dict[ObjectKey, Course] = {}
        """All that were submitted and have not ended."""
        self._timeline = timeline
        self._heap: list[tuple[Nanoseconds, int, Action, Any, int]] = []
        self._order = 0
        self._submitted = 0
        self._numbers: dict[str, int] = {}
        self._due: list[Instruction] = []
        self._wake_at: Nanoseconds | None = None
        self._idle_wakes = 0
        self._last_event: Nanoseconds = 0
        self._chance = stream(plan.seed, "kills")
        self._carry_out: Mapping[type[Instruction], Callable[[Any], None]] = {
            ReserveQuota: self._reserve,
            Preempt: self._preempt,
        }

    @property
    def submitted(self) -> int:
        """How many workloads have arrived."""
        return self._submitted

    # --- the clock --------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None, *, every: int = 256) -> Ending:
        """Play it to its end.

        Args:
            progress: told how far it is.
            every: after how many instants it is told.

        Raises:
            Unsettled: a defect of the core.
        """
        self._begin()
        heap, until = self._heap, self.plan.until
        instants = 0
        while heap:
            now = heap[0][0]
            if until is not None and now > until:
                self.now = until
                return self._end(Ending.UNTIL)
            self.now = now
            while heap and heap[0][0] == now:
                _, _, act, subject, epoch = heapq.heappop(heap)
                act(subject, epoch)
                if act != self._woken:
                    self._last_event = now
            self._settle()
            instants += 1
            if progress is not None and not instants % every:
                progress(self)
        # That time passed for the core's own timers is nothing that happened.
        self.now = until if until is not None and self.courses else self._last_event
        return self._end(Ending.STUCK if self.courses else Ending.FINISHED)

    def _begin(self) -> None:
        plan = self.plan
        self.measures.observe(plan.start, 0)
        for event in plan.start:
            self._tell(event)
        for at, event in plan.changes:
            self._plan(at, self._change, event)
        for kill in plan.kills:
            self._plan(kill.at, self._kill, kill)
        for source in plan.sources:
            self._expect(source)

    def _end(self, ending: Ending) -> Ending:
        self.state.tell_again()
        self.ending = ending
        return ending

    def _plan(self, at: Nanoseconds, act: Action, subject: object, epoch: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, act, subject, epoch))

    @property
    def _instant(self) -> Instant:
        return START + self.now

    @property
    def _whole_second(self) -> Instant:
        """The present as objects tell it: times of the API are whole seconds."""
        instant = START + self.now
        return instant - instant % SECOND

    # --- the core ---------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        for instruction in self.state.handle(event, now=START + self.now):
            if type(instruction) in self._carry_out:
                self._due.append(instruction)

    def _settle(self) -> None:
        """Have the core decide, and carry out what it decides, until it has nothing more to say."""
        instant = self._instant
        wake = self.state.next_wakeup(instant)
        acted = False
        for _ in range(_ROUNDS):
            if wake != instant:
                break
            self._tell(_CYCLES)
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
            raise Unsettled(f"the core still decides after {_ROUNDS} rounds at {self.now / SECOND} s")
        if acted:
            self._last_event = self.now
        self._idle_wakes = 0 if acted else self._idle_wakes + 1
        if wake is not None and wake > instant:
            self._expect_wake(wake - START)

    def _expect_wake(self, at: Nanoseconds) -> None:
        if self._wake_at is not None and self.now < self._wake_at <= at:
            return
        if self._heap or self._idle_wakes < _IDLE_WAKES:
            self._wake_at = at
            self._plan(at, self._woken, None)

    def _woken(self, _subject: None, _epoch: int) -> None:
        """Nothing happens but that time has passed."""

    # --- what arrives -----------------------------------------------------------------------------

    def _expect(self, source: Source) -> None:
        submission = next(source.submissions, None)
        if submission is not None:
            self._plan(submission.at, self._arrive, (source, submission))

    def _arrive(self, subject: tuple[Source, Submission], _epoch: int) -> None:
        source, submission = subject
        self._submitted += 1
        number = self._numbers[source.prefix] = self._numbers.get(source.prefix, 0) + 1
        template = submission.template
        workload = revised(
            template.workload,
            key=ObjectKey(template.workload.key.namespace, f"{source.prefix}-{number}"),
            uid=f"{self._submitted:012d}",
            queued_at=self._whole_second,
        )
        course = Course(source, template, workload, self.now, Work([*submission.work]))
        self.courses[workload.key] = course
        self.measures.submitted(course, self.now)
        self._record(Happening.SUBMITTED, course)
        self._tell(WorkloadChanged(workload))
        self._expect(source)

    # --- what the core decides --------------------------------------------------------------------

    def _reserve(self, instruction: ReserveQuota) -> None:
        course = self.courses.get(instruction.key)
        if course is None or course.workload.uid != instruction.uid:
            return
        course.epoch += 1
        course.count = sum(one.count for one in instruction.admission.pod_set_assignments)
        delay = course.source.ready_after(course.source.chance) if instruction.admit else 0
        course.workload = revised(
            course.workload,
            admission=instruction.admission,
            reserved_at=self._whole_second,
            evicted=False,
            admitted=instruction.admit,
            pods_ready=instruction.admit and not delay,
        )
        self.measures.waits_no_more(course, self.now)
        self._hold(course)
        self._tell(WorkloadChanged(course.workload))
        if instruction.admit:
            self._admitted(course, delay)
        else:
            self._plan(self.now + self.plan.checks(course.source.chance), self._checked, course, course.epoch)

    def _checked(self, course: Course, epoch: int) -> None:
        """All admission checks are ready."""
        admission = course.workload.admission
        if course.epoch != epoch or admission is None:
            return
        spec = self.measures.queues[admission.cluster_queue].spec
        delay = course.source.ready_after(course.source.chance)
        course.workload = revised(
            course.workload,
            admission_checks=tuple(sorted((rule.name, "Ready") for rule in spec.admission_checks)),
            admitted=True,
            pods_ready=not delay,
        )
        self._tell(WorkloadChanged(course.workload))
        self._admitted(course, delay)

    def _admitted(self, course: Course, delay: Nanoseconds) -> None:
        """Its pods are made, and ready after a while."""
        if course.admitted_at is None:
            self.measures.admitted(course, self.now)
        self._record(Happening.ADMITTED, course)
        if course.template.deadline is not None:
            self._plan(self.now + course.template.deadline, self._too_late, course, course.epoch)
        if delay:
            self._plan(self.now + delay, self._ready, course, course.epoch)
        else:
            self._start(course)

    def _ready(self, course: Course, epoch: int) -> None:
        if course.epoch == epoch:
            course.workload = revised(course.workload, pods_ready=True)
            self._tell(WorkloadChanged(course.workload))
            self._start(course)

    def _start(self, course: Course) -> None:
        course.runs = True
        course.work.start(course.running, self.now)
        self._expect_end(course)

    def _expect_end(self, course: Course) -> None:
        end = course.work.next_end
        if end is None:
            self._finish(course, success=True)
        else:
            self._plan(end, self._pods_end, course, course.epoch)

    def _pods_end(self, course: Course, epoch: int) -> None:
        if course.epoch != epoch:
            return
        work = course.work
        work.end_due(course.running, self.now)
        if work.running and course.template.has_pods and self.plan.settings.gates.reclaimable_pods:
            reclaimable = course.template.reclaimable(course.count, work.ended)
            if reclaimable != course.workload.reclaimable_pods:
                course.workload = revised(course.workload, reclaimable_pods=reclaimable)
                self._tell(WorkloadChanged(course.workload))
                self._hold(course)
        self._expect_end(course)

    def _finish(self, course: Course, *, success: bool) -> None:
        course.epoch += 1
        self._record(Happening.FINISHED if success else Happening.FAILED, course)
        self.measures.ended(course, self.now, success=success)
        self.measures.holds(course, (), self.now)
        del self.courses[course.workload.key]
        self._tell(WorkloadChanged(revised(course.workload, finished=True)))
        self._tell(WorkloadDeleted(course.workload.key, course.workload.uid))

    def _hold(self, course: Course) -> None:
        self.measures.holds(course, self.state.usage_of_workload(course.workload.key), self.now)

    # --- evictions --------------------------------------------------------------------------------

    def _preempt(self, instruction: Preempt) -> None:
        course = self.courses.get(instruction.key)
        if course is None or course.workload.evicted or course.workload.admission is None:
            return
        lost = self._interrupt(course)
        by = instruction.preemptor_path[-1] if instruction.preemptor_path else ""
        self.measures.preempted(course, instruction.reason, by, lost)
        self._record(Happening.PREEMPTED, course, f"{instruction.reason} for {instruction.preemptor}")
        course.workload = revised(course.workload, evicted=True)
        self._tell(WorkloadChanged(course.workload))
        delay = course.source.termination(course.source.chance)
        self._plan(self.now + delay, self._stopped, (course, instruction.reason), course.epoch)

    def _interrupt(self, course: Course) -> int:
        course.epoch += 1
        course.runs = False
        return course.work.interrupt(course.source.checkpoints, self.now)

    def _stopped(self, subject: tuple[Course, PreemptionReason], epoch: int) -> None:
        course, reason = subject
        if course.epoch == epoch:
            self._give_back(course, self._queued_at(course, reason))

    def _give_back(self, course: Course, queued_at: Instant) -> None:
        self.measures.holds(course, (), self.now)
        course.workload = revised(
            course.workload,
            admission=None,
            reserved_at=0,
            admitted=False,
            pods_ready=False,
            admission_checks=(),
            queued_at=queued_at,
        )
        self._record(Happening.STOPPED, course)
        self.measures.waits(course, self.now)
        self._tell(WorkloadChanged(course.workload))

    def _queued_at(self, course: Course, reason: PreemptionReason) -> Instant:
        """The place in the queue that the workload comes back to, by the rule of the cluster."""
        if not self.plan.how.reclaim_moves_to_back:
            return course.workload.queued_at
        raw = {
            "metadata": {"creationTimestamp": _time(course.workload.queued_at)},
            "status": {
                "conditions": [
                    _true(ConditionType.EVICTED, Reason.PREEMPTED, self._instant),
                    _true(ConditionType.PREEMPTED, reason, self._instant),
                ]
            },
        }
        return read_queue_order_timestamp(raw, self.plan.how)

    # --- what happens meanwhile -------------------------------------------------------------------

    def _change(self, event: Event, _epoch: int) -> None:
        self.measures.observe((event,), self.now)
        self._tell(event)

    def _too_late(self, course: Course, epoch: int) -> None:
        """Its deadline has passed."""
        if course.epoch == epoch:
            course.work.interrupt(None, self.now)
            self._finish(course, success=False)

    def _kill(self, kill: Kill, _epoch: int) -> None:
        found = [
            course
            for course in self.courses.values()
            if course.runs
            and fnmatchcase(course.source.name, kill.workloads)
            and any(fnmatchcase(pair.flavor, kill.flavor) for pair, _ in course.holds)
        ]
        for course in self._chance.sample(found, min(kill.count, len(found))):
            lost = self._interrupt(course)
            self.measures.killed_one(course, lost)
            self._record(Happening.KILLED, course)
            if kill.then == "Fail":
                self._finish(course, success=False)
                continue
            delay = course.source.ready_after(course.source.chance)
            if delay:
                course.workload = revised(course.workload, pods_ready=False)
                self._tell(WorkloadChanged(course.workload))
                self._plan(self.now + delay, self._ready, course, course.epoch)
            else:
                self._start(course)

    def _record(self, happening: Happening, course: Course, detail: str = "") -> None:
        if self._timeline is not None:
            self._timeline.write(self.now, happening, course, detail)


def _time(instant: Instant) -> str:
    return format_time(instant)


def _true(condition: ConditionType, reason: str, since: Instant) -> dict[str, str]:
    return {"type": condition, "status": "True", "reason": reason, "lastTransitionTime": _time(since)}
