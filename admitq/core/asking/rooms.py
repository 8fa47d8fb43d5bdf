"""The room that topologies have for a pending workload, and the workloads that take it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from admitq.core.asking.constraints import demands_of, options_of
from admitq.core.cycle.units_to_place import assigned_before, to_place
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.flavor_options import UnitOptions
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.kept_pods import keep_pods
from admitq.core.topology.rooms import TopologyRoom
from admitq.core.topology.topologies import Place
from admitq.core.world import World

_MOST_LEAVING: Final = 8
"""The number of workloads of which one change assumes the end."""

Rooms = Mapping[tuple[tuple[str, ...], str], TopologyRoom]
"""The room for podsets that are assigned together, by their names and the flavor."""


class _RoomOfUnit(NamedTuple):
    """Podsets that are assigned together, and the room for their pods."""

    names: tuple[str, ...]
    pods: tuple[PodsToPlace, ...]
    room: TopologyRoom


def find_rooms(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> Rooms:
    """Return the room in each flavor with a topology that could be assigned now.

    The places of earlier podsets of the workload count as taken, as if these got the same flavor. Pods that
    an elastic job keeps need no room.
    """
    units, demands = options_of(world, queue, entry).units, demands_of(world, entry)
    before = _assigned_before(world, queue, entry)
    return {
        (names, flavor): room
        for flavor in _flavors_of(queue, units)
        for names, _, room in _rooms_in(world, flavor, units, demands, before)
    }


def _assigned_before(
    world: World, queue: ClusterQueueEntry, entry: WorkloadEntry
) -> Mapping[str, TopologyAssignment]:
    original = world.original_of(queue.spec.name, entry.workload)
    return assigned_before(world.topologies, None if original is None else original.admission)


def _flavors_of(queue: ClusterQueueEntry, units: Sequence[UnitOptions]) -> list[str]:
    """Return the flavors in which pods get their places at once."""
    options = queue.flavor_options
    flavors = {
        option.flavor for unit in units for group in unit.groups for option in group.flavor_options
    }.intersection(options.topologies)
    return sorted(flavors - options.placed_later)


def _rooms_in(
    world: World,
    flavor: str,
    units: Sequence[UnitOptions],
    demands: Sequence[PodSetDemand],
    before: Mapping[str, TopologyAssignment],
) -> list[_RoomOfUnit]:
    topology = world.topologies.get(flavor)
    rooms: list[_RoomOfUnit] = []
    if topology is None:
        return rooms
    with world.topologies.assuming() as assume:
        for unit in units:
            if not _may_get(unit, flavor):
                continue
            all_pods = [to_place(demands[position], demands[position].count) for position in unit.positions]
            pods = keep_pods(topology, all_pods, before).missing
            if not pods:
                continue
            placed = topology.place(pods)
            room = topology.find_room(pods, fits=isinstance(placed, dict))
            if room is not None:
                rooms.append(_RoomOfUnit(unit.names, pods, room))
            if isinstance(placed, dict):
                for each in pods:
                    assume(Place((flavor,), placed[each.name], each.amounts_of_pod))
    return rooms


def _may_get(unit: UnitOptions, flavor: str) -> bool:
    return any(
        option.flavor == flavor and option.refusal is None
        for group in unit.groups
        for option in group.flavor_options
    )


def find_sufficient_leavers(
    world: World, queue: ClusterQueueEntry, entry: WorkloadEntry
) -> Iterator[list[WorkloadEntry]]:
    """Yield workloads that would free enough room by their end: few and large ones, for each flavor.

    They have pods in the domain that is closest to hold the first podsets without a place.
    """
    units, demands = options_of(world, queue, entry).units, demands_of(world, entry)
    before = _assigned_before(world, queue, entry)
    for flavor in _flavors_of(queue, units):
        lacking = next(
            (
                (pods, room)
                for _, pods, room in _rooms_in(world, flavor, units, demands, before)
                if not room.fits
            ),
            None,
        )
        topology = world.topologies.get(flavor)
        if lacking is not None and topology is not None:
            leavers = _find_leavers(world, flavor, topology, *lacking)
            if leavers:
                yield leavers


def _find_leavers(
    world: World,
    flavor: str,
    topology: FlavorTopology,
    pods: tuple[PodsToPlace, ...],
    room: TopologyRoom,
) -> list[WorkloadEntry]:
    """Choose workloads until the pods have a place, by removing their places; then restore the places."""

    def pods_inside(holder: WorkloadEntry) -> int:
        return sum(
            topology.pods_in(place.assignment, room.closest)
            for place in _places_of(holder)
            if flavor in world.topologies.list_concerned(place)
        )

    def fits() -> bool:
        return isinstance(topology.place(pods), dict)

    inside = [(holder, count) for holder in _holders(world) if (count := pods_inside(holder))]
    inside.sort(key=lambda each: (-each[1], each[0].workload.priority, each[0].workload.key))
    chosen: list[WorkloadEntry] = []
    for holder, _ in inside[:_MOST_LEAVING]:
        chosen.append(holder)
        world.topologies.release(_places_of(holder))
        if fits():
            break
    suffices = fits()
    needed: list[WorkloadEntry] = []
    for holder in chosen:
        world.topologies.hold(_places_of(holder))
        if not fits():
            world.topologies.release(_places_of(holder))
            needed.append(holder)
    for holder in needed:
        world.topologies.hold(_places_of(holder))
    return needed if suffices else []


def _places_of(holder: WorkloadEntry) -> Collection[Place]:
    return () if holder.held is None else holder.held.places


def _holders(world: World) -> Iterator[WorkloadEntry]:
    """Yield the workloads with quota of all cohort trees: a topology does not belong to one tree."""
    for name in world.cluster_queues:
        for _, holder in chain(world.quota_holders.leaving(name), world.quota_holders.staying(name)):
            yield holder
