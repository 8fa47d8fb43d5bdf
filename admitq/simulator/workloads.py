"""The workloads of a simulation: how they arrive, get quota, are evicted and end."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from admitq.core.asking import effects
from admitq.core.asking.effects import revise_workload
from admitq.core.events import Event, WorkloadChanged, WorkloadDeleted
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Preempt,
    PreemptionReason,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.model import Instant, ObjectKey
from admitq.simulator.distributions import create_random_stream
from admitq.simulator.plan import Submission, WorkloadSource
from admitq.simulator.run_context import RunContext
from admitq.simulator.running_pods import RunningPods
from admitq.simulator.schema import Kill
from admitq.simulator.simulated_workload import RemainingWork, SimulatedWorkload
from admitq.simulator.timeline import TimelineEvent
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq_api.conditions import ConditionType, Reason, format_time


class SimulatedWorkloads:
    """Carries out decisions on workloads, and reports each change of a workload to the core.

    Args:
        context: the run.

    Attributes:
        unfinished: all workloads that were submitted and have not ended.
        submitted: how many workloads were submitted.
    """

    def __init__(self, context: RunContext) -> None:
        self.unfinished: dict[ObjectKey, SimulatedWorkload] = {}
        self.submitted = 0
        self._context = context
        self._plan = context.plan
        self._clock = context.clock
        self._measures = context.measures
        self._observe = context.observe
        self._record = context.record
        self._pods = RunningPods(context, self)
        self._numbers: dict[str, int] = {}
        """The number of the last workload, by prefix of its name."""
        self._chance = create_random_stream(context.plan.seed, "kills")

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
        self._context.hold(simulated)
        if workload.evicted:
            delay = simulated.source.termination(simulated.source.chance)
            self._clock.schedule(self._clock.now + delay, self._stop_present, simulated, simulated.epoch)
        elif workload.admitted:
            simulated.admitted_at = self._clock.now  # Its wait was over before the run.
            self._create_pods(simulated, 0)
            self._pods.review_hosts(simulated)
        else:
            self._expect_checks(simulated)

    def _stop_present(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch:
            self._requeue(simulated, simulated.workload.queued_at)

    def _find(self, key: ObjectKey, uid: str) -> SimulatedWorkload | None:
        """Return the workload of a decision; None if it does not exist any more."""
        simulated = self.unfinished.get(key)
        return simulated if simulated is not None and simulated.workload.uid == uid else None

    def reserve(self, instruction: ReserveQuota) -> None:
        """Reserve quota for a workload, and admit it or schedule the end of its admission checks."""
        simulated = self._find(instruction.key, instruction.uid)
        if simulated is None:
            return
        simulated.void_actions()
        simulated.count = sum(assignment.count for assignment in instruction.admission.pod_set_assignments)
        delay = self._pods.draw_delay(simulated) if instruction.admit else 0
        simulated.workload = effects.reserve(
            simulated.workload,
            instruction.admission,
            self._clock.instant,
            admit=instruction.admit,
            pods_ready=not delay,
        )
        self._measures.stopped_waiting(simulated, self._clock.now)
        self._context.hold(simulated)
        self._context.topologies.count_placed(instruction.admission)
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
        """Set all admission checks ready, and admit the workload unless it waits for its places."""
        admission = simulated.workload.admission
        if simulated.epoch != epoch or admission is None:
            return
        spec = self._measures.queues[admission.cluster_queue].spec
        lacks_places = any(part.lacks_topology_assignment for part in admission.pod_set_assignments)
        if lacks_places and self._context.places_pods:
            # A second pass follows.
            self._context.set(simulated, effects.set_checks_ready(simulated.workload, spec))
            return
        delay = self._pods.draw_delay(simulated)
        self._context.set(
            simulated, effects.admit_after_checks(simulated.workload, spec, pods_ready=not delay)
        )
        self._create_pods(simulated, delay)
        self._pods.review_if_changed(simulated)

    def assign_topology(self, instruction: AssignTopology) -> None:
        """Admit a workload that waited for its places, or continue its pods of failed hosts on others."""
        simulated = self._find(instruction.key, instruction.uid)
        if simulated is None:
            return
        simulated.second_pass_refusal = None
        workload, delay = simulated.workload, self._pods.draw_delay(simulated)
        pods_ready = workload.pods_ready if workload.admitted else not delay
        self._context.set(
            simulated, effects.assign_topology(workload, instruction.admission, pods_ready=pods_ready)
        )
        if workload.admitted:
            self._measures.host_failures.replaced += 1
            self._record(TimelineEvent.REPLACED, simulated, " ".join(workload.unhealthy_nodes))
            self._pods.expect_resumption(simulated, delay)
        else:
            self._context.topologies.count_placed(instruction.admission)
            self._create_pods(simulated, delay)

    def report_second_pass(self, instruction: ReportSecondPass) -> None:
        """Keep why a workload got no place."""
        simulated = self._find(instruction.key, instruction.uid)
        if simulated is not None:
            simulated.second_pass_refusal = instruction.refusal

    def _create_pods(self, simulated: SimulatedWorkload, delay: int) -> None:
        """Create the pods, which are ready after the delay."""
        if simulated.admitted_at is None:
            self._measures.admitted(simulated, self._clock.now)
        self._record(TimelineEvent.ADMITTED, simulated)
        self._pods.create(simulated, delay)

    def observe_change(self, event: Event) -> None:
        """Let pods follow the change of their node. The core must have observed it."""
        self._pods.observe_change(event, self.unfinished.values())

    def finish(self, simulated: SimulatedWorkload, *, success: bool) -> None:
        """End a workload."""
        simulated.void_actions()
        self._record(TimelineEvent.FINISHED if success else TimelineEvent.FAILED, simulated)
        self._measures.ended(simulated, self._clock.now, success=success)
        self._measures.usage_changed(simulated, (), self._clock.now)
        del self.unfinished[simulated.workload.key]
        self._context.revise(simulated, finished=True)
        self._observe(WorkloadDeleted(simulated.workload.key, simulated.workload.uid))

    def preempt(self, instruction: Preempt) -> None:
        """Evict a workload for its preemptor."""
        simulated = self._find(instruction.key, instruction.uid)
        if simulated is None or simulated.workload.admission is None or simulated.has_to_stop:
            return
        lost = self._pods.interrupt(simulated)
        by = instruction.preemptor_path[-1] if instruction.preemptor_path else ""
        self._measures.preempted(simulated, instruction.reason, by, lost)
        self._record(TimelineEvent.PREEMPTED, simulated, f"{instruction.reason} for {instruction.preemptor}")
        self._evict(simulated, instruction.reason)

    def evict_for_node_failures(self, instruction: EvictForNodeFailures) -> None:
        """Evict a workload with pods on failed hosts for which there is no other place."""
        simulated = self._find(instruction.key, instruction.uid)
        if simulated is not None:
            self.evict_from_hosts(simulated, instruction.nodes)

    def evict_from_hosts(self, simulated: SimulatedWorkload, hosts: Iterable[str]) -> None:
        """Evict a workload from failed hosts."""
        if simulated.has_to_stop:
            return
        lost = self._pods.interrupt(simulated)
        self._measures.evicted_for_node_failures(simulated, lost)
        self._record(TimelineEvent.EVICTED, simulated, f"{Reason.NODE_FAILURES}: {' '.join(hosts)}")
        self._evict(simulated)

    def _evict(self, simulated: SimulatedWorkload, reason: PreemptionReason | None = None) -> None:
        """Write an eviction, and schedule the end of the pods. There is a reason after a preemption."""
        simulated.void_actions()
        self._context.set(simulated, effects.evict(simulated.workload, self._clock.instant))
        delay = simulated.source.termination(simulated.source.chance)
        self._clock.schedule(
            self._clock.now + delay, self._requeue_stopped, (simulated, reason), simulated.epoch
        )

    def _requeue_stopped(
        self, subject: tuple[SimulatedWorkload, PreemptionReason | None], epoch: int
    ) -> None:
        simulated, reason = subject
        if simulated.epoch == epoch:
            queued_at = simulated.workload.queued_at
            self._requeue(simulated, queued_at if reason is None else self._queued_at(simulated, reason))

    def _requeue(self, simulated: SimulatedWorkload, queued_at: Instant) -> None:
        self._measures.usage_changed(simulated, (), self._clock.now)
        simulated.second_pass_refusal = None
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
            lost = self._pods.interrupt(simulated)
            self._measures.workload_killed(simulated, lost)
            self._record(TimelineEvent.KILLED, simulated)
            if kill.then == "Fail":
                self.finish(simulated, success=False)
                continue
            delay = self._pods.draw_delay(simulated)
            if delay:
                self._context.revise(simulated, pods_ready=False)
            self._pods.restart(simulated, delay)


def _time(instant: Instant) -> str:
    return format_time(instant)


def _true(condition: ConditionType, reason: str, since: Instant) -> dict[str, str]:
    return {"type": condition, "status": "True", "reason": reason, "lastTransitionTime": _time(since)}
