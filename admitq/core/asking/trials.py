"""Try changes on a disposable state: apply them, run cycles, and see whether a workload gets quota."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from admitq.core.asking.changes import Change
from admitq.core.asking.wait_causes import leaving_targets
from admitq.core.entries import WorkloadEntry
from admitq.core.events import CyclesRequested, WorkloadChanged
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState

_MOST_CYCLES: Final = 500
"""The number of cycles after which a trial without a result ends."""

_MOST_ROUNDS: Final = 4
"""How many times the targets of the workload leave."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What changes lead to: whether a workload gets quota, and the workloads that it preempts for it.

    Targets that were leaving before the trial are not among ``preempted``.
    """

    gets_quota: bool
    preempted: tuple[ObjectKey, ...] = ()


def has_always_time() -> bool:
    """Whether a trial may continue: always."""
    return True


def try_changes(
    state: AdmissionState,
    key: ObjectKey,
    changes: Iterable[Change],
    now: Instant,
    *,
    alone: bool = False,
    has_time: Callable[[], bool] = has_always_time,
) -> Trial:
    """Apply changes, and run cycles until a pending workload gets quota or no head is left.

    When no head is left, the targets of the workload leave, and are pending again; then cycles run again.
    Nothing else happens: no other preempted workload leaves, no backoff ends, and no workload finishes. If
    changes of a cohort tree are collected (requeueBatchPeriod), the period ends when no head is left. Cycles
    evaluate the cohort tree of the workload only, because other trees make no difference. There is one
    exception: with blockAdmission, unready pods of any tree halt admission.

    Args:
        state: the state to change.
        key: the workload.
        changes: the changes, in order.
        now: the present instant, in nanoseconds since the Unix epoch.
        alone: whether cycles evaluate no other ClusterQueue. Such a trial costs little. If the workload gets
            no quota in it, then hardly ever in competition with others.
        has_time: is called before each cycle. If it returns False, the workload gets no quota.
    """
    for change in changes:
        for event in list(change.events(state.queries.world)):
            state.observe(event, now=now)
    _pause_others(state, key, alone=alone)
    preempted: dict[ObjectKey, None] = {}
    for _ in range(_MOST_ROUNDS):
        if _gets_quota(state, key, now, preempted, has_time):
            return Trial(gets_quota=True, preempted=tuple(preempted))
        targets = list(_leaving_targets(state, key))
        if not targets:
            break
        for target in targets:
            _leave(state, target, now)
    return Trial(gets_quota=False)


def _pause_others(state: AdmissionState, key: ObjectKey, *, alone: bool) -> None:
    """Exclude ClusterQueues from cycles that make no difference, or all others."""
    world = state.queries.world
    queue = world.cluster_queues.get(state.queries.cluster_queue_of(key) or "")
    if queue is None or (world.settings.block_admission and not alone):
        return
    kept = {queue.spec.name} if alone else {node.name for node in queue.node.root.cluster_queues_below()}
    paused = world.waiting.heads.paused
    state.pause(replace(paused, cluster_queues=paused.cluster_queues | (world.cluster_queues.keys() - kept)))


def _gets_quota(
    state: AdmissionState,
    key: ObjectKey,
    now: Instant,
    preempted: dict[ObjectKey, None],
    has_time: Callable[[], bool],
) -> bool:
    """Run cycles one by one until the workload reserves quota; add the workloads that it preempts."""
    waiting = state.queries.world.waiting
    for _ in range(_MOST_CYCLES):
        if not has_time():
            return False
        state.observe(CyclesRequested(1), now=now)
        for instruction in state.instructions(refreshes=False):
            match instruction:
                case ReserveQuota() if instruction.key == key:
                    return True
                case Preempt() if instruction.preemptor == key:
                    preempted[instruction.key] = None
                case _:
                    pass
        if not waiting.heads.has_any():
            batch_ends = waiting.batches.next_at()
            if batch_ends is None:
                return False
            now = max(now, batch_ends)
    return False


def _leaving_targets(state: AdmissionState, key: ObjectKey) -> Iterator[WorkloadEntry]:
    world = state.queries.world
    entry = world.workloads[key]
    queue = None if entry.queued_in is None else world.cluster_queues.get(entry.queued_in)
    if queue is not None and entry.pending is not None:
        yield from leaving_targets(world, queue, entry.pending)


def _leave(state: AdmissionState, target: WorkloadEntry, now: Instant) -> None:
    """Observe the eviction of a workload, and that its job has stopped."""
    evicted = replace(
        target.workload,
        admission=target.admission,
        admitted=target.is_admitted,
        reserved_at=target.reserved_at,
        evicted=True,
        evicted_at=now,
    )
    state.observe(WorkloadChanged(evicted), now=now)
    stopped = replace(evicted, admission=None, admitted=False, reserved_at=0)
    state.observe(WorkloadChanged(stopped), now=now)
