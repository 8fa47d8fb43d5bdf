"""Charge LocalQueues for the quota of their workloads (semantics, Admission fair sharing).

``admission_fair_sharing`` has the usage accounts, and this module changes them. Without admission fair
sharing there are no accounts, and the functions here do nothing.

A workload is charged when its reservation is decided. The charge is settled when the workload is observed as
admitted. Events of different objects may come in any order. So the order in which workloads are observed as
admitted at one instant must not matter. Their charges are settled when the instant is over, with the usage at
that time.
"""

import heapq
from collections.abc import Iterator

from admitq.core.admission_fair_sharing import DumpedAccounts, UsageAccounts
from admitq.core.charging_state import SampleTimer, SeenAdmitted
from admitq.core.entries import LocalQueueEntry, WorkloadEntry
from admitq.core.ledger import Usage
from admitq.core.model import ConsumedResources, Instant, LocalQueue, ObjectKey, Workload
from admitq.core.statuses import ReportedPastUsage
from admitq.core.world import World

# --- LocalQueues ----------------------------------------------------------------------------------------


def open_account(world: World, spec: LocalQueue, now: Instant) -> None:
    """Open the account of a LocalQueue that was created, or update it."""
    if world.charging.accounts is not None:
        driver = world.driver
        follows_status = not (driver.runs_cycles or driver.writes_statuses)
        world.charging.accounts.open(spec, now, follows_status=follows_status)
        _note_usage(world, spec.key)
        schedule_sample(world, spec.key)


def close_account(world: World, key: ObjectKey) -> None:
    """Close the account of a LocalQueue that was deleted."""
    if world.charging.accounts is not None:
        world.charging.accounts.close(key)


def _find_usage_based_queue(world: World, key: ObjectKey) -> LocalQueueEntry | None:
    """Return the LocalQueue, if its ClusterQueue has usage-based admission."""
    entry = world.local_queues.get(key)
    queue = None if entry is None else world.cluster_queues.get(entry.spec.cluster_queue)
    return entry if queue is not None and queue.spec.usage_based_admission else None


def _note_usage(world: World, key: ObjectKey) -> None:
    """Sort the workloads of a LocalQueue again after a change of its past usage, if past usage decides."""
    world.outbox.touched_local_queues.add(key)
    entry = _find_usage_based_queue(world, key)
    queue = None if entry is None else world.cluster_queues.get(entry.spec.cluster_queue)
    if queue is not None:
        queue.queue.lanes.past_usage_changed(key)
        world.waiting.heads.touch(queue)


# --- workloads ------------------------------------------------------------------------------------------


def charge(world: World, entry: WorkloadEntry, usage: Usage) -> None:
    """Charge a workload for a reservation that was decided, by the usage that it adds."""
    queue = entry.local_queue
    if world.charging.accounts is not None and _find_usage_based_queue(world, queue) is not None:
        totals = (((pair.resource, amount),) for pair, amount in usage)
        world.charging.accounts.penalize(queue, entry.workload.uid, totals)
        _note_usage(world, queue)


def discharge(world: World, entry: WorkloadEntry) -> None:
    """Remove the charge of a workload, because the workload lost its reservation, ended or was deleted."""
    _forget_charge(world, entry.workload.uid)


def _forget_charge(world: World, uid: str) -> None:
    """Remove a charge, or mark it for removal if it must be settled first."""
    if world.charging.accounts is None:
        return
    if any(seen.uid == uid for seen in world.charging.seen_admitted):
        world.charging.seen_leaving.add(uid)
    else:
        _take_back(world, world.charging.accounts, uid)


def _take_back(world: World, accounts: UsageAccounts, uid: str) -> None:
    if (queue := accounts.roll_back(uid)) is not None:
        _note_usage(world, queue)


def update_charge(world: World, entry: WorkloadEntry, former: Workload, now: Instant) -> None:
    """Update charges after a change of a workload. ``former`` is its value before the change."""
    workload = entry.workload
    if world.charging.accounts is None:
        return
    if former.queue_name != workload.queue_name:
        _forget_charge(world, workload.uid)
    if workload.finished or (not workload.active and entry.held is None):
        discharge(world, entry)
    if _is_admitted(workload) and not _is_admitted(former):
        world.charging.seen_admitted.append(SeenAdmitted(now, entry.local_queue, workload.uid))


def _is_admitted(workload: Workload) -> bool:
    return workload.admitted and workload.admission is not None


def restore(world: World, dumped: DumpedAccounts | None) -> None:
    """Restore the accounts of a dump, with admission fair sharing."""
    if world.charging.accounts is not None and dumped is not None:
        world.charging.accounts.restore(dumped)
        for key in world.local_queues:
            _note_usage(world, key)
            schedule_sample(world, key)


def settle_admissions(world: World, before: Instant | None = None) -> None:
    """Settle the charges of workloads that were observed as admitted, if set only before an instant."""
    accounts, seen = world.charging.accounts, world.charging.seen_admitted
    if accounts is None or not seen or (before is not None and seen[0].at >= before):
        return
    world.charging.seen_admitted = []
    for at, key, uid in sorted(seen):
        if _find_usage_based_queue(world, key) is not None:
            accounts.settle(key, uid, _admitted_usage(world, key), at)
            _note_usage(world, key)
            schedule_sample(world, key)
    for uid in world.charging.seen_leaving:
        _take_back(world, accounts, uid)
    world.charging.seen_leaving.clear()


def _admitted_usage(world: World, key: ObjectKey) -> dict[str, int]:
    """Return the present usage of the admitted workloads of a LocalQueue, by resource."""
    used: dict[str, int] = {}
    for pair, amount in world.reservations.ledger.of_local_queue(key).admitted_usage.items():
        used[pair.resource] = used.get(pair.resource, 0) + amount
    return used


def past_usage(world: World, key: ObjectKey) -> ReportedPastUsage:
    """Return the past usage for the status of a LocalQueue, also without usage-based admission.

    It has each resource that the ClusterQueue covers, also resources that were not used.
    """
    consumed = None if world.charging.accounts is None else world.charging.accounts.consumed(key)
    if world.charging.accounts is None or consumed is None:
        return ReportedPastUsage(None, None)
    usage = world.charging.accounts.usage(key)
    amounts = dict.fromkeys(_covered_resources(world, key), 0) | dict(consumed.consumed)
    reported = ConsumedResources(tuple(sorted(amounts.items())), consumed.at)
    return ReportedPastUsage(reported, None if usage.infinite else usage.amount)


def _covered_resources(world: World, key: ObjectKey) -> Iterator[str]:
    entry = world.local_queues.get(key)
    queue = None if entry is None else world.cluster_queues.get(entry.spec.cluster_queue)
    for group in () if queue is None else queue.spec.resource_groups:
        yield from group.covered_resources


# --- time -----------------------------------------------------------------------------------------------


def schedule_sample(world: World, key: ObjectKey) -> None:
    """Schedule the next sample of a LocalQueue."""
    if world.charging.accounts is not None and key in world.local_queues:
        heapq.heappush(world.charging.samples, SampleTimer(world.charging.accounts.next_sample(key), key))


def next_sample(world: World) -> Instant | None:
    """Return the instant of the next sample; None if there is none."""
    while world.charging.accounts is not None and world.charging.samples:
        at, key = world.charging.samples[0]
        if key in world.local_queues and world.charging.accounts.next_sample(key) == at:
            return at
        heapq.heappop(world.charging.samples)
    return None


def take_samples(world: World, now: Instant) -> None:
    """Take the samples that are due."""
    accounts = world.charging.accounts
    while accounts is not None and (at := next_sample(world)) is not None and at <= now:
        key = heapq.heappop(world.charging.samples).key
        accounts.sample(key, _admitted_usage(world, key), now)
        _note_usage(world, key)
        schedule_sample(world, key)
