"""The workloads of a simulation: how they arrive, start, run, end and are evicted."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from admitq.core.events import Event, WorkloadChanged, WorkloadDeleted
from admitq.core.instructions import Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import CheckState, Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.simulator.clock import VirtualClock
from admitq.simulator.course import RemainingWork, SimulatedWorkload, revise_workload
from admitq.simulator.distributions import create_random_stream
from admitq.simulator.measures import Measures
from admitq.simulator.plan import SimulationPlan, Submission, WorkloadSource
from admitq.simulator.schema import Kill, Nanoseconds
from admitq.simulator.timeline import Timeline, TimelineEvent
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq_api.conditions import ConditionType, Reason, format_time


class SimulatedWorkloads:
    """Carries out decisions on workloads, and reports each change of a workload to the core.

    Args:
        plan: what is submitted and killed.
        clock: the virtual clock.
        state: the core.
        measures: the measurements of the run.
        observe: reports an event to the core.
        timeline: the destination of the events.

    Attributes:
        courses: all workloads that were submitted and have not ended.
        submitted: how many workloads were submitted.
    """

    def __init__(
        self,
        plan: SimulationPlan,
        clock: VirtualClock,
        state: AdmissionState,
        measures: Measures,
        observe: Callable[[Event], None],
        timeline: Timeline | None = None,
    ) -> None:
        self.courses: dict[ObjectKey, SimulatedWorkload] = {}
        self.submitted = 0
        self._plan = plan
        self._clock = clock
        self._state = state
        self._measures = measures
        self._observe = observe
        self._timeline = timeline
        self._numbers: dict[str, int] = {}
        """The number of the last workload with a prefix."""
        self._chance = create_random_stream(plan.seed, "kills")

    def expect(self, source: WorkloadSource) -> None:
        """Schedule the next submission of a source."""
        submission = next(source.submissions, None)
        if submission is not None:
            self._clock.schedule(submission.at, self._arrive, (source, submission))

    def _arrive(self, subject: tuple[WorkloadSource, Submission], _epoch: int) -> None:
        source, submission = subject
        self.submitted += 1
        number = self._numbers[source.prefix] = self._numbers.get(source.prefix, 0) + 1
        template = submission.template
        workload = revise_workload(
            template.workload,
            key=ObjectKey(template.workload.key.namespace, f"{source.prefix}-{number}"),
            uid=f"{self.submitted:012d}",
            queued_at=self._clock.whole_second,
        )
        course = SimulatedWorkload(
            source, template, workload, self._clock.now, RemainingWork([*submission.work])
        )
        self.courses[workload.key] = course
        self._measures.submitted(course, self._clock.now)
        self._record(TimelineEvent.SUBMITTED, course)
        self._observe(WorkloadChanged(workload))
        self.expect(source)

    def reserve(self, instruction: ReserveQuota) -> None:
        """Reserve quota for a workload, and admit it or schedule the end of its admission checks."""
        course = self.courses.get(instruction.key)
        if course is None or course.workload.uid != instruction.uid:
            return
        course.epoch += 1
        course.count = sum(one.count for one in instruction.admission.pod_set_assignments)
        delay = course.source.ready_after(course.source.chance) if instruction.admit else 0
        course.workload = revise_workload(
            course.workload,
            admission=instruction.admission,
            reserved_at=self._clock.whole_second,
            evicted=False,
            admitted=instruction.admit,
            pods_ready=instruction.admit and not delay,
        )
        self._measures.waits_no_more(course, self._clock.now)
        self._hold(course)
        self._observe(WorkloadChanged(course.workload))
        if instruction.admit:
            self._admitted(course, delay)
        else:
            self._clock.schedule(
                self._clock.now + self._plan.checks(course.source.chance), self._checked, course, course.epoch
            )

    def _checked(self, course: SimulatedWorkload, epoch: int) -> None:
        """Set all admission checks ready, and admit the workload."""
        admission = course.workload.admission
        if course.epoch != epoch or admission is None:
            return
        spec = self._measures.queues[admission.cluster_queue].spec
        delay = course.source.ready_after(course.source.chance)
        course.workload = revise_workload(
            course.workload,
            admission_checks=tuple(sorted((rule.name, CheckState.READY) for rule in spec.admission_checks)),
            admitted=True,
            pods_ready=not delay,
        )
        self._observe(WorkloadChanged(course.workload))
        self._admitted(course, delay)

    def _admitted(self, course: SimulatedWorkload, delay: Nanoseconds) -> None:
        """Create the pods, and schedule when they are ready."""
        if course.admitted_at is None:
            self._measures.admitted(course, self._clock.now)
        self._record(TimelineEvent.ADMITTED, course)
        if course.template.deadline is not None:
            self._clock.schedule(
                self._clock.now + course.template.deadline, self._too_late, course, course.epoch
            )
        if delay:
            self._clock.schedule(self._clock.now + delay, self._ready, course, course.epoch)
        else:
            self._start(course)

    def _ready(self, course: SimulatedWorkload, epoch: int) -> None:
        if course.epoch == epoch:
            course.workload = revise_workload(course.workload, pods_ready=True)
            self._observe(WorkloadChanged(course.workload))
            self._start(course)

    def _start(self, course: SimulatedWorkload) -> None:
        course.runs = True
        course.work.start(course.running, self._clock.now)
        self._expect_end(course)

    def _expect_end(self, course: SimulatedWorkload) -> None:
        end = course.work.next_end
        if end is None:
            self._finish(course, success=True)
        else:
            self._clock.schedule(end, self._pods_end, course, course.epoch)

    def _pods_end(self, course: SimulatedWorkload, epoch: int) -> None:
        if course.epoch != epoch:
            return
        work = course.work
        work.end_due(course.running, self._clock.now)
        if work.running and course.template.has_pods and self._plan.settings.gates.reclaimable_pods:
            reclaimable = course.template.reclaimable(course.count, work.ended)
            if reclaimable != course.workload.reclaimable_pods:
                course.workload = revise_workload(course.workload, reclaimable_pods=reclaimable)
                self._observe(WorkloadChanged(course.workload))
                self._hold(course)
        self._expect_end(course)

    def _finish(self, course: SimulatedWorkload, *, success: bool) -> None:
        course.epoch += 1
        self._record(TimelineEvent.FINISHED if success else TimelineEvent.FAILED, course)
        self._measures.ended(course, self._clock.now, success=success)
        self._measures.holds(course, (), self._clock.now)
        del self.courses[course.workload.key]
        self._observe(WorkloadChanged(revise_workload(course.workload, finished=True)))
        self._observe(WorkloadDeleted(course.workload.key, course.workload.uid))

    def _hold(self, course: SimulatedWorkload) -> None:
        self._measures.holds(
            course, self._state.queries.usage_of_workload(course.workload.key), self._clock.now
        )

    def preempt(self, instruction: Preempt) -> None:
        """Evict a workload, and schedule the end of its pods."""
        course = self.courses.get(instruction.key)
        if course is None or course.workload.evicted or course.workload.admission is None:
            return
        lost = self._interrupt(course)
        by = instruction.preemptor_path[-1] if instruction.preemptor_path else ""
        self._measures.preempted(course, instruction.reason, by, lost)
        self._record(TimelineEvent.PREEMPTED, course, f"{instruction.reason} for {instruction.preemptor}")
        course.workload = revise_workload(course.workload, evicted=True)
        self._observe(WorkloadChanged(course.workload))
        delay = course.source.termination(course.source.chance)
        self._clock.schedule(
            self._clock.now + delay, self._stopped, (course, instruction.reason), course.epoch
        )

    def _interrupt(self, course: SimulatedWorkload) -> int:
        course.epoch += 1
        course.runs = False
        return course.work.interrupt(course.source.checkpoints, self._clock.now)

    def _stopped(self, subject: tuple[SimulatedWorkload, PreemptionReason], epoch: int) -> None:
        course, reason = subject
        if course.epoch == epoch:
            self._requeue(course, self._queued_at(course, reason))

    def _requeue(self, course: SimulatedWorkload, queued_at: Instant) -> None:
        self._measures.holds(course, (), self._clock.now)
        course.workload = revise_workload(
            course.workload,
            admission=None,
            reserved_at=0,
            admitted=False,
            pods_ready=False,
            admission_checks=(),
            queued_at=queued_at,
        )
        self._record(TimelineEvent.STOPPED, course)
        self._measures.waits(course, self._clock.now)
        self._observe(WorkloadChanged(course.workload))

    def _queued_at(self, course: SimulatedWorkload, reason: PreemptionReason) -> Instant:
        """Return the queue-order timestamp of the evicted workload, as on a cluster."""
        if not self._plan.how.reclaim_moves_to_back:
            return course.workload.queued_at
        raw = {
            "metadata": {"creationTimestamp": _time(course.workload.queued_at)},
            "status": {
                "conditions": [
                    _true(ConditionType.EVICTED, Reason.PREEMPTED, self._clock.instant),
                    _true(ConditionType.PREEMPTED, reason, self._clock.instant),
                ]
            },
        }
        return read_queue_order_timestamp(raw, self._plan.how)

    def _too_late(self, course: SimulatedWorkload, epoch: int) -> None:
        """End a workload after its deadline."""
        if course.epoch == epoch:
            course.work.interrupt(None, self._clock.now)
            self._finish(course, success=False)

    def kill(self, kill: Kill, _epoch: int) -> None:
        """Interrupt some of the running workloads, as the scenario asks."""
        found = [
            course
            for course in self.courses.values()
            if course.runs
            and fnmatchcase(course.source.name, kill.workloads)
            and any(fnmatchcase(pair.flavor, kill.flavor) for pair, _ in course.holds)
        ]
        for course in self._chance.sample(found, min(kill.count, len(found))):
            lost = self._interrupt(course)
            self._measures.killed_one(course, lost)
            self._record(TimelineEvent.KILLED, course)
            if kill.then == "Fail":
                self._finish(course, success=False)
                continue
            delay = course.source.ready_after(course.source.chance)
            if delay:
                course.workload = revise_workload(course.workload, pods_ready=False)
                self._observe(WorkloadChanged(course.workload))
                self._clock.schedule(self._clock.now + delay, self._ready, course, course.epoch)
            else:
                self._start(course)

    def _record(self, happening: TimelineEvent, course: SimulatedWorkload, detail: str = "") -> None:
        if self._timeline is not None:
            self._timeline.write(self._clock.now, happening, course, detail)


def _time(instant: Instant) -> str:
    return format_time(instant)


def _true(condition: ConditionType, reason: str, since: Instant) -> dict[str, str]:
    return {"type": condition, "status": "True", "reason": reason, "lastTransitionTime": _time(since)}
