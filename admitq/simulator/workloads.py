"""The workloads of a simulation: how they arrive, start, run, end and are evicted."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from admitq.core.asking import effects
from admitq.core.asking.effects import revise_workload
from admitq.core.events import Event, WorkloadChanged, WorkloadDeleted
from admitq.core.instructions import Preempt, PreemptionReason, ReserveQuota
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.simulator.clock import VirtualClock
from admitq.simulator.distributions import create_random_stream
from admitq.simulator.measures import Measures
from admitq.simulator.plan import SimulationPlan, Submission, WorkloadSource
from admitq.simulator.schema import Kill, Nanoseconds
from admitq.simulator.simulated_workload import RemainingWork, SimulatedWorkload
from admitq.simulator.timeline import Timeline, TimelineEvent
from admitq.simulator.topology_measures import TopologyMeasures
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq_api.conditions import ConditionType, Reason, format_time


class SimulatedWorkloads:
    """Carries out decisions on workloads, and reports each change of a workload to the core.

    Args:
        plan: what is submitted and killed.
        clock: the virtual clock.
        state: the core.
        measures: the measurements of the run.
        topologies: the measurements of topologies.
        observe: reports an event to the core.
        timeline: the destination of the events.

    Attributes:
        unfinished: all workloads that were submitted and have not ended.
        submitted: how many workloads were submitted.
    """

    def __init__(
        self,
        plan: SimulationPlan,
        clock: VirtualClock,
        state: AdmissionState,
        measures: Measures,
        topologies: TopologyMeasures,
        observe: Callable[[Event], None],
        timeline: Timeline | None = None,
    ) -> None:
        self.unfinished: dict[ObjectKey, SimulatedWorkload] = {}
        self.submitted = 0
        self._plan = plan
        self._clock = clock
        self._state = state
        self._measures = measures
        self._topologies = topologies
        self._observe = observe
        self._timeline = timeline
        self._numbers: dict[str, int] = {}
        """The number of the last workload, by prefix of its name."""
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
        template, workload = submission.template, submission.present
        if workload is None:
            workload = revise_workload(
                template.workload,
                key=ObjectKey(template.workload.key.namespace, f"{source.prefix}-{number}"),
                uid=f"{self.submitted:012d}",
                queued_at=self._clock.whole_second,
            )
        simulated = SimulatedWorkload(
            source, template, workload, self._clock.now, RemainingWork([*submission.work])
        )
        self.unfinished[workload.key] = simulated
        self._measures.submitted(simulated, self._clock.now)
        self._record(TimelineEvent.SUBMITTED, simulated)
        self._observe(WorkloadChanged(workload))
        if workload.admission is not None:
            self._continue(simulated)
        self.expect(source)

    def _continue(self, simulated: SimulatedWorkload) -> None:
        """Continue a workload that holds quota already."""
        workload = simulated.workload
        assignments = () if workload.admission is None else workload.admission.pod_set_assignments
        simulated.count = sum(assignment.count for assignment in assignments)
        self._measures.stopped_waiting(simulated, self._clock.now)
        self._hold(simulated)
        if workload.evicted:
            delay = simulated.source.termination(simulated.source.chance)
            self._clock.schedule(self._clock.now + delay, self._stop_present, simulated, simulated.epoch)
        elif workload.admitted:
            simulated.admitted_at = self._clock.now  # Its wait was over before the run.
            self._create_pods(simulated, 0)
        else:
            self._expect_checks(simulated)

    def _stop_present(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch:
            self._requeue(simulated, simulated.workload.queued_at)

    def reserve(self, instruction: ReserveQuota) -> None:
        """Reserve quota for a workload, and admit it or schedule the end of its admission checks."""
        simulated = self.unfinished.get(instruction.key)
        if simulated is None or simulated.workload.uid != instruction.uid:
            return
        simulated.epoch += 1
        simulated.count = sum(assignment.count for assignment in instruction.admission.pod_set_assignments)
        delay = simulated.source.ready_after(simulated.source.chance) if instruction.admit else 0
        simulated.workload = effects.reserve(
            simulated.workload,
            instruction.admission,
            self._clock.instant,
            admit=instruction.admit,
            pods_ready=not delay,
        )
        self._measures.stopped_waiting(simulated, self._clock.now)
        self._hold(simulated)
        self._topologies.count_placed(instruction.admission)
        self._observe(WorkloadChanged(simulated.workload))
        if instruction.admit:
            self._create_pods(simulated, delay)
        else:
            self._expect_checks(simulated)

    def _expect_checks(self, simulated: SimulatedWorkload) -> None:
        """Schedule the end of the admission checks of a workload."""
        self._clock.schedule(
            self._clock.now + self._plan.checks(simulated.source.chance),
            self._admit_after_checks,
            simulated,
            simulated.epoch,
        )

    def _admit_after_checks(self, simulated: SimulatedWorkload, epoch: int) -> None:
        """Set all admission checks ready, and admit the workload."""
        admission = simulated.workload.admission
        if simulated.epoch != epoch or admission is None:
            return
        spec = self._measures.queues[admission.cluster_queue].spec
        delay = simulated.source.ready_after(simulated.source.chance)
        simulated.workload = effects.admit_after_checks(simulated.workload, spec, pods_ready=not delay)
        self._observe(WorkloadChanged(simulated.workload))
        self._create_pods(simulated, delay)

    def _create_pods(self, simulated: SimulatedWorkload, delay: Nanoseconds) -> None:
        """Create the pods, and schedule when they are ready."""
        if simulated.admitted_at is None:
            self._measures.admitted(simulated, self._clock.now)
        self._record(TimelineEvent.ADMITTED, simulated)
        if simulated.template.deadline is not None:
            self._clock.schedule(
                self._clock.now + simulated.template.deadline,
                self._end_at_deadline,
                simulated,
                simulated.epoch,
            )
        if delay:
            self._clock.schedule(self._clock.now + delay, self._set_pods_ready, simulated, simulated.epoch)
        else:
            self._start(simulated)

    def _set_pods_ready(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch:
            simulated.workload = revise_workload(simulated.workload, pods_ready=True)
            self._observe(WorkloadChanged(simulated.workload))
            self._start(simulated)

    def _start(self, simulated: SimulatedWorkload) -> None:
        simulated.runs = True
        simulated.work.start(simulated.running, self._clock.now)
        self._expect_end(simulated)

    def _expect_end(self, simulated: SimulatedWorkload) -> None:
        end = simulated.work.next_end
        if end is None:
            self._finish(simulated, success=True)
        else:
            self._clock.schedule(end, self._end_pods, simulated, simulated.epoch)

    def _end_pods(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch != epoch:
            return
        work = simulated.work
        work.end_due(simulated.running, self._clock.now)
        if work.running and simulated.template.has_pods and self._plan.settings.gates.reclaimable_pods:
            reclaimable = simulated.template.reclaimable(simulated.count, work.ended)
            if reclaimable != simulated.workload.reclaimable_pods:
                simulated.workload = revise_workload(simulated.workload, reclaimable_pods=reclaimable)
                self._observe(WorkloadChanged(simulated.workload))
                self._hold(simulated)
        self._expect_end(simulated)

    def _finish(self, simulated: SimulatedWorkload, *, success: bool) -> None:
        simulated.epoch += 1
        self._record(TimelineEvent.FINISHED if success else TimelineEvent.FAILED, simulated)
        self._measures.ended(simulated, self._clock.now, success=success)
        self._measures.usage_changed(simulated, (), self._clock.now)
        del self.unfinished[simulated.workload.key]
        self._observe(WorkloadChanged(revise_workload(simulated.workload, finished=True)))
        self._observe(WorkloadDeleted(simulated.workload.key, simulated.workload.uid))

    def _hold(self, simulated: SimulatedWorkload) -> None:
        self._measures.usage_changed(
            simulated, self._state.queries.usage_of_workload(simulated.workload.key), self._clock.now
        )

    def preempt(self, instruction: Preempt) -> None:
        """Evict a workload, and schedule the end of its pods."""
        simulated = self.unfinished.get(instruction.key)
        if simulated is None or simulated.workload.evicted or simulated.workload.admission is None:
            return
        lost = self._interrupt(simulated)
        by = instruction.preemptor_path[-1] if instruction.preemptor_path else ""
        self._measures.preempted(simulated, instruction.reason, by, lost)
        self._record(TimelineEvent.PREEMPTED, simulated, f"{instruction.reason} for {instruction.preemptor}")
        simulated.workload = revise_workload(simulated.workload, evicted=True)
        self._observe(WorkloadChanged(simulated.workload))
        delay = simulated.source.termination(simulated.source.chance)
        self._clock.schedule(
            self._clock.now + delay, self._requeue_stopped, (simulated, instruction.reason), simulated.epoch
        )

    def _interrupt(self, simulated: SimulatedWorkload) -> int:
        simulated.epoch += 1
        simulated.runs = False
        return simulated.work.interrupt(simulated.source.checkpoints, self._clock.now)

    def _requeue_stopped(self, subject: tuple[SimulatedWorkload, PreemptionReason], epoch: int) -> None:
        simulated, reason = subject
        if simulated.epoch == epoch:
            self._requeue(simulated, self._queued_at(simulated, reason))

    def _requeue(self, simulated: SimulatedWorkload, queued_at: Instant) -> None:
        self._measures.usage_changed(simulated, (), self._clock.now)
        simulated.workload = effects.stop(simulated.workload, queued_at)
        self._record(TimelineEvent.STOPPED, simulated)
        self._measures.waits(simulated, self._clock.now)
        self._observe(WorkloadChanged(simulated.workload))

    def _queued_at(self, simulated: SimulatedWorkload, reason: PreemptionReason) -> Instant:
        """Return the queue-order timestamp of the evicted workload, as on a cluster."""
        if not self._plan.how.reclaim_moves_to_back:
            return simulated.workload.queued_at
        raw = {
            "metadata": {"creationTimestamp": _time(simulated.workload.queued_at)},
            "status": {
                "conditions": [
                    _true(ConditionType.EVICTED, Reason.PREEMPTED, self._clock.instant),
                    _true(ConditionType.PREEMPTED, reason, self._clock.instant),
                ]
            },
        }
        return read_queue_order_timestamp(raw, self._plan.how)

    def _end_at_deadline(self, simulated: SimulatedWorkload, epoch: int) -> None:
        """End a workload after its deadline."""
        if simulated.epoch == epoch:
            simulated.work.interrupt(None, self._clock.now)
            self._finish(simulated, success=False)

    def kill(self, kill: Kill, _epoch: int) -> None:
        """Stop some of the running workloads, as the scenario requests."""
        affected = [
            simulated
            for simulated in self.unfinished.values()
            if simulated.runs
            and fnmatchcase(simulated.source.name, kill.workloads)
            and any(fnmatchcase(pair.flavor, kill.flavor) for pair, _ in simulated.holds)
        ]
        for simulated in self._chance.sample(affected, min(kill.count, len(affected))):
            lost = self._interrupt(simulated)
            self._measures.workload_killed(simulated, lost)
            self._record(TimelineEvent.KILLED, simulated)
            if kill.then == "Fail":
                self._finish(simulated, success=False)
                continue
            delay = simulated.source.ready_after(simulated.source.chance)
            if delay:
                simulated.workload = revise_workload(simulated.workload, pods_ready=False)
                self._observe(WorkloadChanged(simulated.workload))
                self._clock.schedule(
                    self._clock.now + delay, self._set_pods_ready, simulated, simulated.epoch
                )
            else:
                self._start(simulated)

    def _record(self, event: TimelineEvent, simulated: SimulatedWorkload, detail: str = "") -> None:
        if self._timeline is not None:
            self._timeline.write(self._clock.now, event, simulated, detail)


def _time(instant: Instant) -> str:
    return format_time(instant)


def _true(condition: ConditionType, reason: str, since: Instant) -> dict[str, str]:
    return {"type": condition, "status": "True", "reason": reason, "lastTransitionTime": _time(since)}
