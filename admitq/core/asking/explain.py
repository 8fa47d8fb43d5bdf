"""Why is a workload waiting? The answer is a value; nothing is decided for it a second time."""

from dataclasses import replace

from admitq.core.asking.constraints import find_flavor_verdicts
from admitq.core.asking.explanations import FlavorVerdict, RefusalExplanation, WorkloadExplanation
from admitq.core.asking.rooms import find_rooms
from admitq.core.asking.wait_causes import find_wait_cause
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.lifecycle import Phase
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.core.waiting import queue_positions
from admitq.core.world import World

WITHOUT_QUOTA = frozenset({Phase.PENDING, Phase.HELD, Phase.INACTIVE})
"""The phases of a workload that has no quota and may still get it."""


def explain(state: AdmissionState, key: ObjectKey, now: Instant) -> WorkloadExplanation | None:
    """Return why a workload is not admitted; None if it does not exist.

    The state is the same afterwards. The amounts are those of the present quota and usage; the last refusal
    may be older.

    Args:
        state: the state to ask, between two cycles.
        key: the workload.
        now: the present instant, in nanoseconds since the Unix epoch.
    """
    world, queries = state.queries.world, state.queries
    entry = world.workloads.get(key)
    if entry is None:
        return None
    name = queries.cluster_queue_of(key)
    queue = None if name is None else world.cluster_queues.get(name)
    is_without_quota = entry.phase in WITHOUT_QUOTA
    return WorkloadExplanation(
        key,
        entry.phase,
        entry.workload.priority,
        entry.local_queue,
        name,
        None if queue is None else queue_positions.find_position(queue.queue, key),
        find_wait_cause(world, entry, now),
        queries.last_refusal(key),
        _find_verdicts(world, queue, entry) if queue is not None and is_without_quota else (),
    )


def _find_verdicts(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> tuple[FlavorVerdict, ...]:
    rooms = find_rooms(world, queue, entry)
    return tuple(
        replace(verdict, room=rooms.get((verdict.pod_sets, verdict.flavor)))
        for verdict in find_flavor_verdicts(world, queue, entry)
    )


def explain_refusal(state: AdmissionState, key: ObjectKey) -> RefusalExplanation | None:
    """Return why a cycle refused a pending workload or its lane; None if no cycle did.

    This costs little, also while many workloads are pending or hold quota: no workload is searched. The state
    is the same afterwards.

    Args:
        state: the state to ask, between two cycles.
        key: the workload.
    """
    world = state.queries.world
    entry, refusal = world.workloads.get(key), state.queries.last_refusal(key)
    queue = None if entry is None else world.cluster_queues.get(entry.queued_in or "")
    if entry is None or queue is None or refusal is None:
        return None
    flavors = find_flavor_verdicts(world, queue, entry, lists_holders=False)
    return RefusalExplanation(queue.spec.name, refusal, flavors)
