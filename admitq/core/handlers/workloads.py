"""Handlers of events about Workloads, and of writes about them that did not take effect."""

from admitq.core import charging
from admitq.core.events import PreemptionFailed, ReservationFailed, WorkloadChanged, WorkloadDeleted
from admitq.core.model import Instant
from admitq.core.world import WorkloadEntry, World


def update_workload(world: World, event: WorkloadChanged, now: Instant) -> None:
    """Take a Workload as it is now."""
    workload = event.workload
    entry = world.workloads.get(workload.key)
    if entry is not None and entry.workload.uid != workload.uid:
        _forget(world, entry, now)
        entry = None
    if entry is None:
        entry = world.workloads[workload.key] = WorkloadEntry(workload)
        world.index_workload(entry)
        world.settle(entry, now)
        return
    former = entry.workload
    if not world.confirm(entry, workload):
        if former == workload:
            return
        world.observe_workload(entry, workload)
        is_other_candidate = former.priority != workload.priority or former.queued_at != workload.queued_at
        if is_other_candidate and entry.held is not None:
            # Other workloads may preempt it now than before.
            world.retry_preemptors_of(entry)
        world.settle(entry, now)
    charging.follow(world, entry, former, now)


def delete_workload(world: World, event: WorkloadDeleted, now: Instant) -> None:
    """Remove a Workload, unless another one has its name by now."""
    entry = world.workloads.get(event.key)
    if entry is not None and entry.workload.uid == event.uid:
        _forget(world, entry, now)


def _forget(world: World, entry: WorkloadEntry, now: Instant) -> None:
    """Remove a workload that holds nothing from now on and waits in no queue."""
    world.unindex_workload(entry)
    del world.workloads[entry.workload.key]
    world.dequeue(entry)
    world.list_pending(entry, None)
    world.release(entry)
    world.second_passes.settle(entry.workload.key, now, needed=False)
    charging.discharge(world, entry)


def undo_reservation(world: World, event: ReservationFailed, now: Instant) -> None:
    """Return the quota of a reservation that could not be written."""
    entry = world.workloads.get(event.key)
    if entry is not None and entry.workload.uid == event.uid and entry.assumed is not None:
        entry.assumed = None
        world.settle(entry, now)
        charging.discharge(world, entry)


def undo_preemption(world: World, event: PreemptionFailed, _now: Instant) -> None:
    """Count a workload as staying that could not be preempted."""
    entry = world.workloads.get(event.key)
    if entry is not None and entry.workload.uid == event.uid:
        world.preemption_failed(entry)
