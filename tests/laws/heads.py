"""The one place where the laws look inside the core: whom a cycle takes, and where their scans go on.

Which of the parked a change wakes is up to the core, as long as nobody is forgotten. So the model is told who
the heads of a cycle are, and finds everything else by itself; but for what LocalQueues have used, which
depends on when somebody looked, and is held against a model of its own (``test_books``).
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from admitq.core import cycle
from admitq.core.cycle.entry import Entry
from admitq.core.cycle.nominate import nominate as nominate_head
from admitq.core.cycle.nominate import valid_scan
from admitq.core.cycle.turns import Cycle
from admitq.core.entries import ClusterQueueEntry
from admitq.core.handlers import cycles as cycle_handler
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.core.waiting.pending import Pending
from admitq.core.world import World
from tests.laws.reference.cycle import Head
from tests.laws.reference.preemption import Used


def _head(
    world: World,
    queue: ClusterQueueEntry,
    pending: Pending,
    preemptors: Mapping[str, tuple[str, int]],
    preempted_uids: Mapping[ObjectKey, Collection[str]],
) -> Head:
    generation = queue.node.root.generation
    found = pending.scan
    progress = None if found is None else valid_scan(world, found, generation)
    name, workload = queue.spec.name, pending.workload
    tried = () if progress is None else progress.tried
    return Head(
        name,
        workload.key,
        {(each.pod_set, each.resource): each.flavor_index for each in tried},
        preemptors.get(name) == (workload.uid, workload.generation),
        preempted_uids.get(workload.key, ()),
        1 if progress is None else progress.attempts + 1,
    )


class Taken(NamedTuple):
    """Whom a cycle takes, and what LocalQueues have used so far, if that counts."""

    heads: list[Head]
    used: Mapping[ObjectKey, Used] | None


def _used(world: World) -> Mapping[ObjectKey, Used] | None:
    usage_of = world.local_queue_usage
    return None if usage_of is None else {key: Used(*usage_of(key)) for key in world.local_queues}


def used_by_local_queues(core: AdmissionState) -> Mapping[ObjectKey, Used] | None:
    """What LocalQueues have used so far, if that counts."""
    return _used(core._world)  # pyright: ignore[reportPrivateUsage]


@contextmanager
def taken_heads(
    preemptors: Mapping[str, tuple[str, int]], displaced: Mapping[ObjectKey, Collection[str]]
) -> Generator[list[Taken]]:
    """The heads of each cycle that is run meanwhile.

    Args:
        preemptors: by ClusterQueue, uid and generation of who waits for victims there.
        displaced: by workload, uids of those who were to leave for it.
    """
    cycles: list[Taken] = []

    def run_cycle(
        world: World, heads: Iterable[tuple[ClusterQueueEntry, Pending]], now: Instant
    ) -> Iterator[None]:
        cycles.append(Taken([], _used(world)))
        return cycle.run_cycle(world, heads, now)

    def nominate(running: Cycle, queue: ClusterQueueEntry, pending: Pending) -> Entry:
        cycles[-1].heads.append(_head(running.world, queue, pending, preemptors, displaced))
        return nominate_head(running, queue, pending)

    with (
        mock.patch.object(cycle_handler, "run_cycle", run_cycle),
        mock.patch.object(cycle, "nominate", nominate),
    ):
        yield cycles
