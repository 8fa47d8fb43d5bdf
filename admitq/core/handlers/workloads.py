"""Handlers of events about Workloads, and of writes of Workloads that failed."""

from admitq.core import charging
from admitq.core.entries import WorkloadEntry
from admitq.core.events import (
    PreemptionFailed,
    ReservationDiscarded,
    ReservationFailed,
    TopologyAssignmentFailed,
    WorkloadChanged,
    WorkloadDeleted,
)
from admitq.core.model import Instant, ObjectKey, Workload
from admitq.core.refusals import PreemptionsFailed, WaitingForTargets
from admitq.core.waiting.pending import PendingEntry
from admitq.core.world import World


def update_workload(world: World, event: WorkloadChanged, now: Instant) -> None:
    """Record a Workload as it is now."""
    workload = event.workload
    entry = world.workloads.get(workload.key)
    if entry is not None and entry.workload.uid != workload.uid:
        _forget(world, entry, now)
        entry = None
    if entry is None:
        entry = world.workloads[workload.key] = WorkloadEntry(workload)
        _index(world, entry)
        world.settle(entry, now)
        return
    former, was_leaving = entry.workload, entry.is_leaving
    if entry.confirm(workload):
        if world.settings.block_admission:
            world.pods.update(entry)
    elif former == workload:
        return
    else:
        _observe(world, entry, workload)
        if former.priority != workload.priority or former.queued_at != workload.queued_at:
            # Other preemptors than before may preempt the workload now.
            _retry_preemptors(world, entry)
        elif entry.is_leaving and not was_leaving:
            # The workload comes first among the candidates from now on.
            _retry_blocking_preemptors(world, entry)
        world.settle(entry, now)
    charging.update_charge(world, entry, former, now)


def _observe(world: World, entry: WorkloadEntry, workload: Workload) -> None:
    """Record a workload as it is now, and index it again if its keys changed."""
    former = entry.workload
    if (
        former.finished == workload.finished
        and former.queue_name == workload.queue_name
        and former.pod_sets == workload.pod_sets
        and former.replaces == workload.replaces
    ):
        entry.observe(workload)
        return
    _unindex(world, entry)
    entry.observe(workload)
    _index(world, entry)
    if former.replaces is not None and former.replaces != workload.replaces:
        world.reservations.recount_replacements(former.replaces)


def _index(world: World, entry: WorkloadEntry) -> None:
    if not entry.workload.finished:
        world.indexes.add_workload(entry)
        world.reservations.add_replacement(entry)


def _unindex(world: World, entry: WorkloadEntry) -> None:
    if not entry.workload.finished:
        world.indexes.remove_workload(entry)
        world.reservations.remove_replacement(entry)


def delete_workload(world: World, event: WorkloadDeleted, now: Instant) -> None:
    """Remove a Workload, unless another Workload has the same name by now."""
    entry = world.workloads.get(event.key)
    if entry is not None and entry.workload.uid == event.uid:
        _forget(world, entry, now)


def _forget(world: World, entry: WorkloadEntry, now: Instant) -> None:
    """Remove a workload with its quota, from its queue and from all indexes."""
    _unindex(world, entry)
    del world.workloads[entry.workload.key]
    world.dequeue(entry)
    world.count_as_pending_in(entry, None)
    world.reservations.release(entry)
    world.second_passes.settle(entry.workload.key, now, needed=False)
    charging.discharge(world, entry)


def undo_failed_reservation(world: World, event: ReservationFailed, now: Instant) -> None:
    """Return the quota of a reservation that could not be written, and hold the workload back for a backoff.

    Other workloads can get the quota. Without the backoff, the workload would take it again before they do.
    """
    entry = _with_assumption(world, event.key, event.uid)
    if entry is not None:
        entry.count_failed_reservation(now)
        _forget_assumption(world, entry, now)


def discard_reservation(world: World, event: ReservationDiscarded, now: Instant) -> None:
    """Return the quota of a reservation that will not be written."""
    entry = _with_assumption(world, event.key, event.uid)
    if entry is not None:
        _forget_assumption(world, entry, now)


def _with_assumption(world: World, key: ObjectKey, uid: str) -> WorkloadEntry | None:
    entry = world.workloads.get(key)
    if entry is None or entry.workload.uid != uid or entry.assumed is None:
        return None
    return entry


def _forget_assumption(world: World, entry: WorkloadEntry, now: Instant) -> None:
    entry.assumed = None
    world.settle(entry, now)
    charging.discharge(world, entry)


def undo_topology_assignment(world: World, event: TopologyAssignmentFailed, now: Instant) -> None:
    """Return the places of topology assignments that could not be written."""
    entry = world.workloads.get(event.key)
    if entry is not None and entry.workload.uid == event.uid and entry.assumed_places is not None:
        entry.assumed_places = None
        world.settle(entry, now)


def undo_preemption(world: World, event: PreemptionFailed, _now: Instant) -> None:
    """Record that a workload could not be preempted, and retry the workloads that may preempt.

    The next cycle finds other victims, or decides the same preemption again.
    """
    entry = world.workloads.get(event.key)
    if entry is None or entry.workload.uid != event.uid or entry.preempting is None:
        return
    instruction, entry.preempting = entry.preempting, None
    world.reservations.holding_changed(entry)
    preemptor = world.workloads.get(instruction.preemptor)
    if preemptor is not None and preemptor.workload.uid == instruction.preemptor_uid:
        _count_failed_preemption(world, preemptor.pending)
    _retry_preemptors(world, entry)


def _count_failed_preemption(world: World, preemptor: PendingEntry | None) -> None:
    """Count a failed preemption. If those of all victims of the preemptor failed, report this."""
    if preemptor is None or preemptor.preemptions is None:
        return
    failed = preemptor.preemptions.failed + 1
    preemptor.preemptions = preemptor.preemptions._replace(failed=failed)
    if isinstance(preemptor.refusal, WaitingForTargets) and failed == preemptor.preemptions.victims:
        world.report(preemptor, PreemptionsFailed(failed, preemptor.refusal.refused))


def _retry_blocking_preemptors(world: World, entry: WorkloadEntry) -> None:
    held = entry.held
    queue = None if held is None else world.cluster_queues.get(held.cluster_queue)
    if held is not None and queue is not None:
        world.waiting.candidates_leave(queue.node.root, {pair: frozenset() for pair, _ in held.usage})


def _retry_preemptors(world: World, entry: WorkloadEntry) -> None:
    queue = None if entry.held is None else world.cluster_queues.get(entry.held.cluster_queue)
    if queue is not None:
        world.waiting.candidates_changed(queue.node)
