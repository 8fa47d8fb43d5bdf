"""What a decision does to a workload once it is carried out: the values that the core observes next."""

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from admitq.core.instructions import PreemptionReason
from admitq.core.model import SECOND, Admission, CheckState, ClusterQueue, Instant, Workload
from admitq.core.settings import Gates
from admitq.core.topology.replacement import select_hosts_with_pods

_MILLISECOND: Final = SECOND // 1000

_FIELDS: Final = tuple(each.name for each in fields(Workload))
_PLACES: Final = {name: index for index, name in enumerate(_FIELDS)}
_values = attrgetter(*_FIELDS)


def revise_workload(workload: Workload, **changes: Any) -> Workload:
    """Return the workload with some fields changed, as ``dataclasses.replace``, in a third of the time.

    A simulation changes every workload several times.
    """
    values: list[Any] = [*_values(workload)]
    for name, value in changes.items():
        values[_PLACES[name]] = value
    return Workload(*values)


def to_whole_second(instant: Instant) -> Instant:
    """Return the instant as timestamps of API objects have it."""
    return instant - instant % SECOND


def reserve(
    workload: Workload, admission: Admission, now: Instant, *, admit: bool, pods_ready: bool
) -> Workload:
    """Return the workload when its reservation is written.

    Args:
        workload: the workload before.
        admission: the reservation.
        now: the present instant.
        admit: whether the same write admits the workload.
        pods_ready: whether its pods are ready at once.
    """
    return revise_workload(
        workload,
        admission=admission,
        reserved_at=to_whole_second(now),
        evicted=False,
        admitted=admit,
        pods_ready=admit and pods_ready,
    )


def set_checks_ready(workload: Workload, cluster_queue: ClusterQueue) -> Workload:
    """Return the workload when all admission checks of its ClusterQueue are ready, and it is not admitted."""
    checks = tuple(sorted((rule.name, CheckState.READY) for rule in cluster_queue.admission_checks))
    return revise_workload(workload, admission_checks=checks)


def admit_after_checks(workload: Workload, cluster_queue: ClusterQueue, *, pods_ready: bool) -> Workload:
    """Return the workload when all admission checks of its ClusterQueue are ready, and it is admitted."""
    return revise_workload(set_checks_ready(workload, cluster_queue), admitted=True, pods_ready=pods_ready)


def assign_topology(workload: Workload, admission: Admission, *, pods_ready: bool) -> Workload:
    """Return the workload when its topology assignments are written. If it lacked them, it is now admitted.

    Args:
        workload: the workload before.
        admission: the reservation with the assignments.
        pods_ready: whether all of its pods are ready at once.
    """
    return revise_workload(
        workload,
        admission=admission,
        admitted=True,
        pods_ready=pods_ready,
        unhealthy_nodes=select_hosts_with_pods(workload.unhealthy_nodes, admission),
    )


def evict(workload: Workload, now: Instant) -> Workload:
    """Return the workload when its eviction is written. It holds its quota until its job has stopped."""
    return revise_workload(workload, evicted=True, evicted_at=to_whole_second(now), unhealthy_nodes=())


def stop(workload: Workload, queued_at: Instant) -> Workload:
    """Return an evicted workload when its job has stopped: it holds no quota, and is queued again.

    Args:
        workload: the workload before.
        queued_at: its queue-order timestamp after the eviction.
    """
    return revise_workload(
        workload,
        admission=None,
        reserved_at=0,
        admitted=False,
        pods_ready=False,
        admission_checks=(),
        queued_at=queued_at,
    )


def queued_at_after_preemption(
    workload: Workload, reason: PreemptionReason, now: Instant, gates: Gates
) -> Instant:
    """Return the queue-order timestamp of a preempted workload (semantics, Ordering).

    If cycles ignore priorities between queues, a workload that a borrower preempted is queued behind it.
    """
    moves_to_back = not gates.priority_sorting_within_cohort
    if moves_to_back and reason is PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING:
        return to_whole_second(now) + _MILLISECOND
    return workload.queued_at
