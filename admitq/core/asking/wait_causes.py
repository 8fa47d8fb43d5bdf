"""What a workload waits for, from its phase and from the wait state of its lane."""

from typing import Final

from admitq.core.activity import flavor_names
from admitq.core.applicable_checks import applicable_checks, assigned_flavors
from admitq.core.asking.explanations import (
    WaitCause,
    WaitingBehindHead,
    WaitingForActivation,
    WaitingForBackoff,
    WaitingForChange,
    WaitingForChecks,
    WaitingForClusterQueue,
    WaitingForJobToStop,
    WaitingForLocalQueue,
    WaitingForOpenPreemptionGate,
    WaitingForOtherHeads,
    WaitingForPodsReady,
    WaitingForRelease,
    WaitingForTargetsToLeave,
    WaitingForTurn,
    WaitingForUnusedQuota,
)
from admitq.core.cycle import inadmissibility
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.lifecycle import Phase
from admitq.core.model import CheckState, Instant
from admitq.core.refusals import PreemptionGated, Refusal
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.queue_numbers import refusal_of
from admitq.core.waiting.queue_positions import comes_before
from admitq.core.waiting.wait_states import (
    Backoff,
    LostInCycle,
    RetryOnProgress,
    WaitingForPreemption,
)
from admitq.core.world import World

MOST_LISTED: Final = 10
"""The number of workloads that one list of an explanation has. Others are counted."""


def find_wait_cause(world: World, entry: WorkloadEntry, now: Instant) -> WaitCause | None:
    """Return what a workload waits for; None if it is admitted or finished."""
    workload = entry.workload
    match entry.phase:
        case Phase.FINISHED | Phase.ADMITTED:
            return None
        case Phase.RESERVED:
            return WaitingForChecks(_outstanding_checks(world, entry))
        case Phase.EVICTING:
            return WaitingForJobToStop()
        case Phase.INACTIVE:
            return WaitingForActivation()
        case Phase.HELD:
            return WaitingForRelease(
                workload.admission_gates,
                workload.on_hold,
                workload.waiting_for_replacement_pods,
                workload.deleting,
            )
        case _:
            return _cause_of_pending(world, entry, now)


def _outstanding_checks(world: World, entry: WorkloadEntry) -> tuple[tuple[str, CheckState | None], ...]:
    admission = entry.admission
    queue = None if admission is None else world.cluster_queues.get(admission.cluster_queue)
    if admission is None or queue is None:
        return ()
    assigned = assigned_flavors(admission.pod_set_assignments)
    names = applicable_checks(queue.spec.admission_checks, flavor_names(queue.spec), assigned)
    states = dict(entry.workload.admission_checks)
    return tuple(
        (name, states.get(name)) for name in sorted(names) if states.get(name) is not CheckState.READY
    )


def _cause_of_pending(world: World, entry: WorkloadEntry, now: Instant) -> WaitCause:
    local_queue = world.local_queues.get(entry.local_queue)
    if local_queue is None or not local_queue.is_open:
        return WaitingForLocalQueue(entry.local_queue, exists=local_queue is not None)
    name = local_queue.spec.cluster_queue
    queue, pending = world.cluster_queues.get(name), entry.pending
    if queue is None or pending is None:
        return WaitingForClusterQueue(name, exists=False)
    if not queue.is_active or world.waiting.heads.paused.covers(queue):
        return WaitingForClusterQueue(name, exists=True, causes=queue.inactive_causes)
    if isinstance(pending.state, Backoff):
        until = pending.state.until
        return WaitingForBackoff(until) if until is None or until > now else WaitingForTurn()
    if pending.is_held_back:
        return WaitingForChange(inadmissibility(world, queue, entry.workload) or pending.refusal)
    if world.is_halted:
        unready = sorted(world.pods.unready)
        return WaitingForPodsReady(tuple(unready[:MOST_LISTED]), len(unready[MOST_LISTED:]))
    return _cause_of_queued(world, queue, pending)


def _cause_of_queued(world: World, queue: ClusterQueueEntry, pending: PendingEntry) -> WaitCause:
    head, lane = queue.queue.blocking_head, pending.lane
    refusal = refusal_of(queue.queue, pending.workload.key)
    if head is pending:
        return _cause_of_blocking(world, queue, pending, refusal)
    if lane is not None and lane.is_parked:
        return _lacks_quota(refusal, retries_on_progress=isinstance(lane.state, RetryOnProgress))
    if head is not None and comes_before(queue.queue, head, pending):
        return WaitingBehindHead(head.workload.key)
    return WaitingForTurn()


def _cause_of_blocking(
    world: World, queue: ClusterQueueEntry, head: PendingEntry, refusal: Refusal | None
) -> WaitCause:
    match queue.queue.blocking_state:
        case WaitingForPreemption():
            return WaitingForTargetsToLeave(
                tuple(target.workload.key for target in leaving_targets(world, queue, head))
            )
        case LostInCycle():
            return WaitingForOtherHeads(refusal)
        case _:
            return _lacks_quota(refusal)


def _lacks_quota(refusal: Refusal | None, *, retries_on_progress: bool = False) -> WaitCause:
    if isinstance(refusal, PreemptionGated):
        return WaitingForOpenPreemptionGate()
    return WaitingForUnusedQuota(refusal, retries_on_progress)


def leaving_targets(world: World, queue: ClusterQueueEntry, preemptor: PendingEntry) -> list[WorkloadEntry]:
    """Return the workloads that were preempted for a pending workload and still hold quota, by key."""
    targets = [
        holder
        for node in queue.node.root.cluster_queues_below()
        for _, holder in world.quota_holders.leaving(node.name)
        if holder.workload.uid in preemptor.preempted_uids
    ]
    return sorted(targets, key=lambda target: target.workload.key)
