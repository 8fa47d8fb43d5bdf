"""What a head waits for that has quota, but no place in a topology.

If its ClusterQueue preempts, any free capacity in the topologies may help: with it, fewer victims may be
enough. Else only a leaf helps that can hold more of its pods.
"""

from collections.abc import Iterable

from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.units_to_place import to_place
from admitq.core.flavor_options import FlavorOptions
from admitq.core.preemption import never_preempts
from admitq.core.requests import PodSetDemand, group_by_unit
from admitq.core.topology.topologies import Topologies, room_of
from admitq.core.waiting.transitions import Cause


def causes_of_lacking_room(
    topologies: Topologies, entry: CycleEntry, demands: tuple[PodSetDemand, ...]
) -> Iterable[Cause]:
    """Return the causes that end the waiting of a head that has no place.

    Args:
        topologies: the topologies of all flavors.
        entry: the head.
        demands: what each of its podsets requests.
    """
    options = entry.queue.flavor_options
    if entry.original is not None or not never_preempts(entry.queue.spec.preemption):
        return map(room_of, options.topologies)
    return room_for_podsets(topologies, options, demands)


def room_for_podsets(
    topologies: Topologies, options: FlavorOptions, demands: tuple[PodSetDemand, ...]
) -> list[Cause]:
    """Return the causes that stand for more room for one of the podsets, in any flavor.

    From this call on, the topologies notice whether there is more.
    """
    units = [[to_place(demand, demand.count) for demand in unit.values()] for unit in group_by_unit(demands)]
    return [
        cause
        for flavor in options.topologies
        for unit in units
        for cause in topologies.causes_of_room(flavor, unit)
    ]
