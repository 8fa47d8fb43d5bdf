"""Dumps: the state as immutable values, which can be written as JSON, read and restored.

A dump has all observed objects, and the results of decisions that cannot be observed: assumptions, wait
states, scan progress, counts of cycles and changes. Its values are frozen dataclasses, named tuples and
enums. JSON has the type name of each value, so that one function can write all types, and one function can
read them.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from operator import itemgetter
from typing import Any, Final, cast

from admitq.core import (
    admission_fair_sharing,
    amounts,
    charging,
    events,
    flavors,
    instructions,
    limit_ranges,
    model,
    ordering,
    refusals,
    requests,
    settings,
)
from admitq.core.admission_fair_sharing import DumpedAccounts
from admitq.core.charging_state import SeenAdmitted
from admitq.core.cycle.waiting_for_room import room_for_podsets
from admitq.core.entries import AssumedPlaces, Assumption, ClusterQueueEntry, FailedReservations
from admitq.core.events import Event
from admitq.core.instructions import Preempt
from admitq.core.model import Instant, ObjectKey
from admitq.core.refusals import Refusal
from admitq.core.replacing import Original
from admitq.core.second_pass import SecondPass
from admitq.core.settings import CoreSettings
from admitq.core.topology import refusals as topology_refusals
from admitq.core.topology import request
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import Node
from admitq.core.topology.topologies import PodOnNode, is_room
from admitq.core.waiting import order, pending, scheduling_key, transitions, wait_states
from admitq.core.waiting.order import LatestPreemptor
from admitq.core.waiting.pending import PendingEntry, PreemptionCounts, ScanProgress
from admitq.core.waiting.scheduling_key import SchedulingKey
from admitq.core.waiting.transitions import Cause, HeldBack
from admitq.core.waiting.wait_states import BLOCKING, READY, LaneState, Ready
from admitq.core.world import World

_NAME: Final = "is"


VERSION: Final = 5
"""The version of the dump format. Dumps of other versions cannot be read."""


class DumpError(ValueError):
    """A dump cannot be read."""


@dataclass(frozen=True, slots=True)
class DumpedPending:
    """A pending workload: its wait state, and the results of its attempts."""

    key: ObjectKey
    held_back: HeldBack | None
    scan: ScanProgress | None
    refusal: Refusal | None
    preemptions: PreemptionCounts | None
    preempted_uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DumpedQueue:
    """The state of a ClusterQueue without its workloads, and of its cohort tree without quota and usage."""

    name: str
    generation: int
    progress: int
    preemptor: LatestPreemptor | None
    lanes: tuple[tuple[SchedulingKey, LaneState], ...]
    has_outdated_refusals: bool
    batch_due_at: Instant | None


@dataclass(frozen=True, slots=True)
class DumpedObjects:
    """The objects that were observed."""

    flavors: tuple[model.ResourceFlavor, ...]
    checks: tuple[model.AdmissionCheck, ...]
    topologies: tuple[tuple[str, tuple[str, ...]], ...]
    """Each Topology with its levels."""
    nodes: tuple[Node, ...]
    pods_of_others: tuple[tuple[ObjectKey, PodOnNode], ...]
    namespaces: tuple[tuple[str, model.Labels], ...]
    limit_ranges: tuple[tuple[ObjectKey, model.LimitRange], ...]
    overheads: tuple[tuple[str, model.ExactAmounts], ...]
    cohorts: tuple[model.Cohort, ...]
    cluster_queues: tuple[model.ClusterQueue, ...]
    local_queues: tuple[model.LocalQueue, ...]
    workloads: tuple[model.Workload, ...]


@dataclass(frozen=True, slots=True)
class Dump:
    """The whole state."""

    settings: CoreSettings
    cycle: int
    objects: DumpedObjects
    assumptions: tuple[tuple[ObjectKey, Assumption], ...]
    assumed_places: tuple[tuple[ObjectKey, AssumedPlaces], ...]
    preemptions: tuple[Preempt, ...]
    halted: bool
    second_passes: tuple[SecondPass, ...]
    usage_accounts: DumpedAccounts | None
    seen_admitted: tuple[SeenAdmitted, ...]
    seen_leaving: tuple[str, ...]
    pending: tuple[DumpedPending, ...]
    queues: tuple[DumpedQueue, ...]
    failed_reservations: tuple[tuple[ObjectKey, FailedReservations], ...] = ()
    topology_gains: int = 0
    version: int = VERSION


# --- taking and restoring -------------------------------------------------------------------------------


def take(world: World) -> Dump:
    """Return a dump of the state."""
    entries = [world.workloads[key] for key in sorted(world.workloads)]
    return Dump(
        settings=world.settings,
        cycle=world.cycle,
        objects=_take_objects(world),
        assumptions=tuple(
            (entry.workload.key, entry.assumed) for entry in entries if entry.assumed is not None
        ),
        assumed_places=tuple(
            (entry.workload.key, entry.assumed_places)
            for entry in entries
            if entry.assumed_places is not None
        ),
        preemptions=tuple(entry.preempting for entry in entries if entry.preempting is not None),
        halted=world.is_halted,
        second_passes=world.second_passes.scheduled,
        usage_accounts=None if world.charging.accounts is None else world.charging.accounts.to_dump(),
        seen_admitted=tuple(sorted(world.charging.seen_admitted)),
        seen_leaving=tuple(sorted(world.charging.seen_leaving)),
        pending=tuple(
            _take_pending(entry.workload.key, entry.pending) for entry in entries if entry.pending is not None
        ),
        queues=tuple(_take_queue(world, name) for name in sorted(world.cluster_queues)),
        failed_reservations=tuple(
            (entry.workload.key, entry.failed) for entry in entries if entry.failed is not None
        ),
        topology_gains=world.topologies.gains,
    )


def _take_objects(world: World) -> DumpedObjects:
    return DumpedObjects(
        flavors=tuple(world.catalog.flavors[name] for name in sorted(world.catalog.flavors)),
        checks=tuple(world.catalog.checks[name] for name in sorted(world.catalog.checks)),
        topologies=tuple(sorted(world.topologies.levels.items())),
        nodes=tuple(world.topologies.nodes[name] for name in sorted(world.topologies.nodes)),
        pods_of_others=tuple(sorted(world.topologies.pods_of_others.items())),
        namespaces=tuple(
            (name, tuple(sorted(labels.items())))
            for name, labels in sorted(world.catalog.namespaces.items(), key=itemgetter(0))
        ),
        limit_ranges=world.request_rules.limit_ranges,
        overheads=tuple(sorted(world.request_rules.overheads.items())),
        cohorts=tuple(world.catalog.cohorts[name] for name in sorted(world.catalog.cohorts)),
        cluster_queues=tuple(world.cluster_queues[name].spec for name in sorted(world.cluster_queues)),
        local_queues=tuple(world.local_queues[key].spec for key in sorted(world.local_queues)),
        workloads=tuple(world.workloads[key].workload for key in sorted(world.workloads)),
    )


def _take_pending(key: ObjectKey, pending: PendingEntry) -> DumpedPending:
    return DumpedPending(
        key,
        pending.state if isinstance(pending.state, HeldBack) else None,
        pending.scan,
        pending.refusal,
        pending.preemptions,
        tuple(sorted(pending.preempted_uids)),
    )


def _take_queue(world: World, name: str) -> DumpedQueue:
    entry = world.cluster_queues[name]
    root = entry.node.root
    lanes = entry.queue.lanes.by_key.values()
    return DumpedQueue(
        name,
        root.generation,
        root.progress,
        entry.queue.positions.preemptor,
        tuple(sorted(((lane.key, lane.state) for lane in lanes if lane.state != READY), key=repr)),
        world.waiting.has_outdated_refusals_in(entry),
        world.waiting.batches.due_at(name),
    )


def observations(dump: Dump) -> Iterator[Event]:
    """Yield events that observe all objects of a dump."""
    yield from (events.TopologyChanged(name, levels) for name, levels in dump.objects.topologies)
    yield from (events.NodeChanged(node) for node in dump.objects.nodes)
    yield from (events.PodOfOthersChanged(key, pod) for key, pod in dump.objects.pods_of_others)
    yield from (events.AdmissionCheckChanged(check) for check in dump.objects.checks)
    yield from (events.ResourceFlavorChanged(flavor) for flavor in dump.objects.flavors)
    yield from (events.NamespaceChanged(name, labels) for name, labels in dump.objects.namespaces)
    yield from (events.LimitRangeChanged(key, limits) for key, limits in dump.objects.limit_ranges)
    yield from (events.RuntimeClassChanged(name, overhead) for name, overhead in dump.objects.overheads)
    yield from (events.CohortChanged(cohort) for cohort in dump.objects.cohorts)
    yield from (events.ClusterQueueChanged(queue) for queue in dump.objects.cluster_queues)
    yield from (events.LocalQueueChanged(queue) for queue in dump.objects.local_queues)
    yield from (events.WorkloadChanged(workload) for workload in dump.objects.workloads)


def _check(where: str, names: Iterable[object], known: Container[object]) -> None:
    """Raise DumpError if a name is not known."""
    for name in names:
        if name not in known:
            raise DumpError(f"{where}: {name} is not known")


def restore_unobserved(world: World, dump: Dump) -> None:
    """Restore all state that cannot be observed. The objects of the dump must have been observed already.

    Raises:
        DumpError: the dump refers to an object that it does not have.
    """
    world.cycle = dump.cycle
    if dump.usage_accounts is not None:
        accounts = {balance.queue for balance in dump.usage_accounts.balances}
        _check("usage_accounts.balances", accounts, world.local_queues)
        _check("local_queues", world.local_queues, accounts)
        _check("usage_accounts.charges", (charge.queue for charge in dump.usage_accounts.charges), accounts)
    charging.restore(world, dump.usage_accounts)
    world.charging.seen_admitted = list(dump.seen_admitted)
    world.charging.seen_leaving = set(dump.seen_leaving)
    _check("assumptions", (key for key, _ in dump.assumptions), world.workloads)
    for key, assumption in dump.assumptions:
        entry = world.workloads[key]
        entry.assumed = assumption
        world.settle(entry, 0)
    _check("assumed_places", (key for key, _ in dump.assumed_places), world.workloads)
    for key, places in dump.assumed_places:
        entry = world.workloads[key]
        entry.assumed_places = places
        world.settle(entry, 0)
    _check("failed_reservations", (key for key, _ in dump.failed_reservations), world.workloads)
    for key, failed in dump.failed_reservations:
        world.workloads[key].failed = failed
    _check("preemptions", (preemption.key for preemption in dump.preemptions), world.workloads)
    for preemption in dump.preemptions:
        world.preempt(preemption)
    _check("pending", (dumped.key for dumped in dump.pending), world.workloads)
    for dumped in dump.pending:
        _restore_pending(world, dumped)
    _check("queues", (dumped.name for dumped in dump.queues), world.cluster_queues)
    for dumped in dump.queues:
        entry = world.cluster_queues[dumped.name]
        if dumped.preemptor is not None:
            _check("queues.preemptor", (dumped.preemptor.key,), entry.queue.members)
            entry.queue.restore_preemptor(dumped.preemptor)
        for key, state in dumped.lanes:
            _restore_lane(entry, key, state, has_batch=dumped.batch_due_at is not None)
            causes = () if isinstance(state, Ready) else state.causes
            _restore_waiting_for_room(world, entry, key, causes)
        world.cohort_trees.restore_counts(entry.node, dumped.generation, dumped.progress)
        world.waiting.restore(entry, has_outdated_refusals=dumped.has_outdated_refusals)
    world.waiting.batches.restore(
        (dumped.name, dumped.batch_due_at) for dumped in dump.queues if dumped.batch_due_at is not None
    )
    world.pods.is_halted = dump.halted
    world.topologies.gains = dump.topology_gains
    needed = {second_pass.key for second_pass in world.second_passes.scheduled}
    _check("second_passes", (second_pass.key for second_pass in dump.second_passes), needed)
    world.second_passes.restore(dump.second_passes)


def _restore_pending(world: World, dumped: DumpedPending) -> None:
    entry = world.workloads[dumped.key]
    pending = entry.pending
    if pending is None:
        raise DumpError(f"pending: {dumped.key} does not wait")
    queue = world.cluster_queues[entry.queued_in or ""]
    pending.scan, pending.refusal, pending.preemptions = dumped.scan, dumped.refusal, dumped.preemptions
    pending.preempted_uids = frozenset(dumped.preempted_uids)
    if pending.scan is not None and pending.lane is not None:
        _restore_waiting_for_room(world, queue, pending.lane.key, pending.scan.causes)
    queue.queue.restore_held_back(pending, None)
    if dumped.held_back is not None:
        world.waiting.restore_held_back(queue, pending, dumped.held_back)


def _restore_waiting_for_room(
    world: World, entry: ClusterQueueEntry, key: SchedulingKey, causes: Iterable[Cause]
) -> None:
    if any(map(is_room, causes)):
        room_for_podsets(world.topologies, entry.flavor_options, key.demands)


def _restore_lane(entry: ClusterQueueEntry, key: SchedulingKey, state: LaneState, *, has_batch: bool) -> None:
    if isinstance(state, BLOCKING):
        _check("queues.lanes.head", (state.head.key,), entry.queue.members)
    # Until its batch is due, a lane may need quota that an edit removed.
    if not isinstance(state, Ready) and state.needs is not None and not has_batch:
        _check("queues.lanes.needs", (pair for pair, _ in state.needs), entry.node.cells)
    entry.queue.restore_lane(key, state)


# --- writing and reading --------------------------------------------------------------------------------


def _is_value(kind: object) -> bool:
    return isinstance(kind, type) and (
        is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, Enum)
    )


_OWN_KINDS: Final = (
    AssumedPlaces,
    Assumption,
    FailedReservations,
    SeenAdmitted,
    SecondPass,
    Fraction,
    Dump,
    DumpedPending,
    DumpedObjects,
    DumpedQueue,
    Original,
    Node,
    PodOnNode,
    TopologyAssignment,
)

_KINDS: Final[Mapping[str, type]] = {
    name: kind
    for module in (
        admission_fair_sharing,
        amounts,
        model,
        refusals,
        instructions,
        ordering,
        order,
        pending,
        scheduling_key,
        transitions,
        wait_states,
        flavors,
        requests,
        settings,
        limit_ranges,
        request,
        topology_refusals,
    )
    for name, kind in vars(module).items()
    if _is_value(kind)
} | {kind.__name__: kind for kind in _OWN_KINDS}


def encode(value: object) -> object:
    """Return a value as JSON values.

    Raises:
        DumpError: dumps cannot have values of this type.
    """
    if isinstance(value, Enum):
        return {_NAME: type(value).__name__, "value": value.value}
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, Fraction):
        return {_NAME: Fraction.__name__, "numerator": value.numerator, "denominator": value.denominator}
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {_NAME: type(value).__name__, **content}
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        names = getattr(items, "_fields", None)
        if names is None:
            return [encode(item) for item in items]
        return {
            _NAME: type(items).__name__,
            **{name: encode(item) for name, item in zip(names, items, strict=True)},
        }
    raise DumpError(f"dumps cannot have values of type {type(value).__name__}")


def decode(raw: object) -> object:
    """Return the value that ``encode`` wrote.

    Raises:
        DumpError: a kind or field is not known.
    """
    if isinstance(raw, list):
        return tuple(decode(item) for item in cast("list[object]", raw))
    if not isinstance(raw, Mapping):
        return raw
    content = dict(cast("Mapping[str, Any]", raw))
    name = content.pop(_NAME, None)
    kind = _KINDS.get(str(name))
    if kind is None:
        raise DumpError(f"unknown kind {name!r}")
    try:
        if issubclass(kind, Enum):
            return kind(content["value"])
        return kind(**{field: decode(value) for field, value in content.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise DumpError(f"{name} cannot be read: {error}") from error
