"""The pods of admitted workloads: how they start, run and end, also when their hosts fail."""

from collections.abc import Iterable
from typing import Protocol

from admitq.core.events import Event
from admitq.core.topology.replacement import has_host
from admitq.simulator.clock import START
from admitq.simulator.failed_hosts import HostReview, read_tolerations, review_hosts
from admitq.simulator.run_context import RunContext
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.simulated_nodes import SimulatedNodes
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.timeline import TimelineEvent


class EndOfPods(Protocol):
    """What follows when the pods of a workload do not run any more."""

    def finish(self, simulated: SimulatedWorkload, *, success: bool) -> None:
        """End a workload."""
        ...

    def evict_from_hosts(self, simulated: SimulatedWorkload, hosts: Iterable[str]) -> None:
        """Evict a workload from failed hosts."""
        ...


class RunningPods:
    """Runs the pods of admitted workloads.

    Args:
        context: the run.
        end: what follows when pods do not run any more.
    """

    def __init__(self, context: RunContext, end: EndOfPods) -> None:
        self._context = context
        self._clock = context.clock
        self._end = end
        self._nodes = SimulatedNodes()
        for event in context.plan.start:
            self._nodes.observe(event, context.clock.instant)

    def create(self, simulated: SimulatedWorkload, delay: Nanoseconds) -> None:
        """Create the pods of an admitted workload, which are ready after the delay."""
        if simulated.template.deadline is not None:
            self._clock.schedule(
                self._clock.now + simulated.template.deadline,
                self._end_at_deadline,
                simulated,
                simulated.epoch,
            )
        self.restart(simulated, delay)

    def restart(self, simulated: SimulatedWorkload, delay: Nanoseconds) -> None:
        """Start all pods that have not ended. They are ready after the delay."""
        if delay:
            self._clock.schedule(self._clock.now + delay, self._set_ready, simulated, simulated.epoch)
        else:
            self._start(simulated)

    def interrupt(self, simulated: SimulatedWorkload) -> int:
        """Stop all pods. Return the lost work: pods times nanoseconds."""
        simulated.ends_epoch += 1
        simulated.runs = False
        simulated.stopped.clear()
        return simulated.work.interrupt(simulated.source.checkpoints, self._clock.now)

    def _set_ready(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch:
            self._start(simulated)

    def _start(self, simulated: SimulatedWorkload) -> None:
        simulated.runs = True
        self._fill_hosts(simulated)

    def _fill_hosts(self, simulated: SimulatedWorkload) -> None:
        """Start pods on the present hosts of the workload, as far as these have not failed."""
        failing = frozenset[str]()
        if self._nodes.have_changed:
            review = self._review(simulated)
            failing = review.failing
            simulated.work.release(failing - review.deleted)
        simulated.stopped = {host: pods for host, pods in simulated.stopped.items() if host in failing}
        if not simulated.stopped and not simulated.workload.pods_ready:
            self._context.revise(simulated, pods_ready=True)
        simulated.work.place(simulated.slots, failing)
        simulated.work.start(simulated.running, self._clock.now)
        self._expect_end(simulated)

    def _expect_end(self, simulated: SimulatedWorkload) -> None:
        simulated.ends_epoch += 1
        if simulated.work.is_done(simulated.running):
            self._end.finish(simulated, success=True)
        elif (end := simulated.work.next_end) is not None:
            self._clock.schedule(end, self._end_pods, simulated, simulated.ends_epoch)

    def _end_pods(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.ends_epoch != epoch:
            return
        work = simulated.work
        work.end_due(simulated.running, self._clock.now)
        if (
            not work.is_done(simulated.running)
            and simulated.template.has_pods
            and self._context.plan.settings.gates.reclaimable_pods
        ):
            reclaimable = simulated.template.reclaimable(simulated.count, work.ended)
            if reclaimable != simulated.workload.reclaimable_pods:
                self._context.revise(simulated, reclaimable_pods=reclaimable)
                self._context.hold(simulated)
        self._expect_end(simulated)
        if work.closed:
            # The end of its pods may decide whether a host is unhealthy.
            self.review_hosts(simulated)

    def _end_at_deadline(self, simulated: SimulatedWorkload, epoch: int) -> None:
        """End a workload after its deadline."""
        if simulated.epoch == epoch:
            self._fail(simulated)

    def _fail(self, simulated: SimulatedWorkload) -> None:
        simulated.work.interrupt(None, self._clock.now)
        self._end.finish(simulated, success=False)

    # --- hosts ------------------------------------------------------------------------------------

    def observe_change(self, event: Event, workloads: Iterable[SimulatedWorkload]) -> None:
        """Let pods follow the change of their node. The core must have observed it.

        Args:
            event: a change of any object.
            workloads: all workloads.
        """
        hosts = self._nodes.observe(event, self._clock.instant)
        if not hosts:
            return
        self._nodes.have_changed = True
        for simulated in [*workloads]:
            if any(has_host(each, host) for each in simulated.assignments.values() for host in hosts):
                self.review_hosts(simulated)

    def review_if_changed(self, simulated: SimulatedWorkload) -> None:
        """Review the hosts of a workload if nodes changed since its pods got their places."""
        if self._nodes.have_changed:
            self.review_hosts(simulated)

    def _review(self, simulated: SimulatedWorkload) -> HostReview:
        plan = self._context.plan
        flavors = self._context.state.queries.world.catalog.flavors
        tolerations = read_tolerations(simulated.workload, flavors)
        return review_hosts(simulated, self._nodes, tolerations, plan.node_failures, self._clock.instant)

    def _review_later(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch:
            self.review_hosts(simulated)

    def review_hosts(self, simulated: SimulatedWorkload) -> None:
        """Stop the pods on failed hosts, list unhealthy hosts, and continue pods on hosts that are back."""
        if not (simulated.is_admitted and self._context.places_pods):
            return
        review = self._review(simulated)
        if review.deleted and simulated.workload.is_single_pod:
            # Nothing creates the pod again.
            self._fail(simulated)
            return
        work = simulated.work
        reopened = work.closed - review.failing
        work.closed |= review.failing
        for host in review.stopping:
            self._stop_host(simulated, host)
        if not reopened.isdisjoint(simulated.stopped) or work.release(review.failing - review.deleted):
            self.expect_resumption(simulated, self.draw_delay(simulated))
        elif reopened:
            self.expect_resumption(simulated, 0)
        if review.review_at is not None:
            self._clock.schedule(review.review_at - START, self._review_later, simulated, simulated.epoch)
        if review.unhealthy is None:
            return
        if review.unhealthy.evicts:
            self._end.evict_from_hosts(simulated, review.unhealthy.hosts)
        elif review.unhealthy.hosts != simulated.workload.unhealthy_nodes:
            self._context.revise(simulated, unhealthy_nodes=review.unhealthy.hosts)

    def draw_delay(self, simulated: SimulatedWorkload) -> Nanoseconds:
        """Return after what time new pods of a workload are ready."""
        return simulated.source.ready_after(simulated.source.chance)

    def _stop_host(self, simulated: SimulatedWorkload, host: str) -> None:
        """Stop the pods on a host, unless they have stopped or ended before."""
        work = simulated.work
        if host in simulated.stopped or not work.runs_on(host):
            return
        before = work.running_pods
        lost = work.interrupt(simulated.source.checkpoints, self._clock.now, host)
        simulated.stopped[host] = before - work.running_pods
        self._context.measures.pods_stopped(simulated, simulated.stopped[host], lost)
        self._context.record(TimelineEvent.PODS_STOPPED, simulated, host)
        self._context.revise(simulated, pods_ready=False)
        self._expect_end(simulated)

    def expect_resumption(self, simulated: SimulatedWorkload, delay: Nanoseconds) -> None:
        """Schedule the start of pods on hosts that are healthy again, or that replace others."""
        simulated.resumes_at = self._clock.now + delay
        self._clock.schedule(simulated.resumes_at, self._resume, simulated, simulated.epoch)

    def _resume(self, simulated: SimulatedWorkload, epoch: int) -> None:
        if simulated.epoch == epoch and simulated.runs and simulated.resumes_at == self._clock.now:
            self._fill_hosts(simulated)
