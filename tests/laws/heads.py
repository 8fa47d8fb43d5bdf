"""Looks inside the core, where nothing else of the laws does: the heads of each cycle and their scans.

The core decides which parked workloads a change wakes, as long as it misses none. So the model gets the heads
of a cycle and computes everything else itself. The one exception is the past usage of LocalQueues: it depends
on the times of sampling, and `test_usage_accounts` compares it with a model of its own.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from admitq.core import cycle
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.nominate import nominate as nominate_head
from admitq.core.cycle.nominate import valid_scan
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.entries import ClusterQueueEntry
from admitq.core.handlers import cycles as cycle_handler
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.core.waiting.pending import PendingEntry
from admitq.core.world import World
from tests.laws.reference.cycle import Head
from tests.laws.reference.preemption import Used


def _head(
    world: World,
    queue: ClusterQueueEntry,
    pending: PendingEntry,
    preemptors: Mapping[str, tuple[str, int]],
    preempted_uids: Mapping[ObjectKey, Collection[str]],
) -> Head:
    generation = queue.node.root.generation
    found = pending.scan
    progress = None if found is None else valid_scan(world, found, generation)
    name, workload = queue.spec.name, pending.workload
    stops = () if progress is None else progress.scan_stops
    return Head(
        name,
        workload.key,
        {(each.pod_set, each.resource): each.flavor_index for each in stops},
        preemptors.get(name) == (workload.uid, workload.generation),
        preempted_uids.get(workload.key, ()),
        1 if progress is None else progress.attempts + 1,
    )


class RecordedCycle(NamedTuple):
    """The heads of a cycle, and the past usage of LocalQueues if it counts."""

    heads: list[Head]
    used: Mapping[ObjectKey, Used] | None


def _used(world: World) -> Mapping[ObjectKey, Used] | None:
    usage_of = world.local_queue_usage
    return None if usage_of is None else {key: Used(*usage_of(key)) for key in world.local_queues}


def local_queue_usage(core: AdmissionState) -> Mapping[ObjectKey, Used] | None:
    """Return the past usage of LocalQueues, if it counts."""
    return _used(core._world)  # pyright: ignore[reportPrivateUsage]


def is_halted(core: AdmissionState) -> bool:
    """Whether admission waits for ready pods."""
    return core._world.is_halted  # pyright: ignore[reportPrivateUsage]


def heads_without_waiting(core: AdmissionState) -> Mapping[str, list[ObjectKey]]:
    """Return all heads that each ClusterQueue gives, one after another, once all waiting has ended."""
    copy = core.fork()
    copy.retry_everything()
    return {
        name: [pending.workload.key for pending in iter(entry.queue.pop, None)]
        for name, entry in copy._world.cluster_queues.items()  # pyright: ignore[reportPrivateUsage]
    }


@contextmanager
def record_cycles(
    preemptors: Mapping[str, tuple[str, int]], displaced: Mapping[ObjectKey, Collection[str]]
) -> Generator[list[RecordedCycle]]:
    """Record the heads of each cycle that runs in this context.

    Args:
        preemptors: by ClusterQueue, uid and generation of its workload that waits for preemption.
        displaced: by workload, uids of the workloads that were preempted for it.
    """
    cycles: list[RecordedCycle] = []

    def run_cycle(
        world: World, heads: Iterable[tuple[ClusterQueueEntry, PendingEntry]], now: Instant
    ) -> Iterator[None]:
        cycles.append(RecordedCycle([], _used(world)))
        return cycle.run_cycle(world, heads, now)

    def nominate(running: Cycle, queue: ClusterQueueEntry, pending: PendingEntry) -> CycleEntry:
        cycles[-1].heads.append(_head(running.world, queue, pending, preemptors, displaced))
        return nominate_head(running, queue, pending)

    with (
        mock.patch.object(cycle_handler, "run_cycle", run_cycle),
        mock.patch.object(cycle, "nominate", nominate),
    ):
        yield cycles
