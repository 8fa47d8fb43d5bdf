"""Second passes: at the beginning of a cycle, search topology assignments for workloads that hold quota.

The workloads keep their quota and flavors, whatever the result. But one with pods on a failed host is evicted
if there is no other place for them (gate TASFailedNodeReplacementFailFast).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from admitq.core.cycle.failed_hosts import place_again
from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.cycle.units_to_place import Unplaced, assigned_before, find_places, list_units
from admitq.core.entries import AssumedPlaces, WorkloadEntry
from admitq.core.instructions import AssignTopology, EvictForNodeFailures, ReportSecondPass
from admitq.core.model import Admission, Instant, PodSetUpdate, ResourceFlavor, Workload
from admitq.core.refusals import (
    ClusterQueueNotFound,
    FlavorNotFound,
    FlavorRefusal,
    NoFitReason,
    NoFlavorFits,
    PodSetRefusals,
    Refusal,
    TopologyMissing,
    TopologyUnsupported,
)
from admitq.core.requests import PodSetDemand
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.replacement import find_failed_host, has_host
from admitq.core.topology.topologies import Topologies
from admitq.core.world import World


def next_second_pass_at(world: World) -> Instant | None:
    """Return the instant of the next second pass; None if there is none.

    While admission is halted, only admitted workloads have second passes: their failed hosts may be why
    admission is halted.
    """
    if not world.is_halted:
        return world.second_passes.next_at()
    scheduled = world.second_passes.scheduled
    return min((each.at for each in scheduled if world.workloads[each.key].workload.admitted), default=None)


def is_second_pass_due(world: World, now: Instant) -> bool:
    """Whether a second pass is due."""
    due_at = next_second_pass_at(world)
    return due_at is not None and due_at <= now


def try_second_passes(world: World, now: Instant) -> Iterator[None]:
    """Evaluate the workloads with a due second pass. Yield after each."""
    for second_pass in world.second_passes.take_due(now):
        world.deciding = second_pass.key
        entry = world.workloads[second_pass.key]
        if world.is_halted and not entry.workload.admitted:
            world.second_passes.put_back(second_pass)
            continue
        # Before the admission, no pods run.
        host = find_failed_host(entry.workload) if entry.workload.admitted else None
        found = _place(world, entry, host)
        if isinstance(found, Admission):
            _assign(world, entry, found, now)
        else:
            # Also after an eviction, which may not be written.
            world.second_passes.reschedule(second_pass, now)
            _report(world, entry.workload, found, has_failed_host=host is not None)
        yield
    world.deciding = None


def _report(world: World, workload: Workload, refusal: Refusal, *, has_failed_host: bool) -> None:
    """Add the instruction that follows from a second pass without result."""
    placement = world.topologies.placement
    reason = refusal.reason if isinstance(refusal, NoFlavorFits) else None
    evicts = has_failed_host and placement is not None and placement.evicts_unplaced
    if evicts and reason is NoFitReason.TOPOLOGY_PLACEMENT_FAILED:
        world.outbox.node_failure_evictions.append(
            EvictForNodeFailures(workload.key, workload.uid, workload.unhealthy_nodes)
        )
    else:
        world.outbox.second_pass_reports.append(ReportSecondPass(workload.key, workload.uid, refusal))


def _place(world: World, entry: WorkloadEntry, failed_host: str | None) -> Admission | Refusal:
    """Return the reservation of a workload with its topology assignments, or why it gets none now."""
    workload, admission = entry.workload, entry.workload.admission
    assert admission is not None  # noqa: S101 narrows the type
    queue = world.cluster_queues.get(admission.cluster_queue)
    if queue is None:
        return ClusterQueueNotFound(admission.cluster_queue)
    refusal = inadmissibility(world, queue, workload) or _refuse_flavors(world, admission, failed_host)
    if refusal is not None:
        return refusal
    updates = workload.pod_set_updates
    demands = tuple(_updated(demand, updates) for demand in world.request_rules.resolve(workload).demands)
    if failed_host is not None:
        return place_again(world.topologies, demands, workload, failed_host)
    original = world.reservations.find_original(entry)
    before = assigned_before(world.topologies, None if original is None else original.admission)
    return _place_lacking(world.topologies, demands, admission, before)


def _place_lacking(
    topologies: Topologies,
    demands: tuple[PodSetDemand, ...],
    admission: Admission,
    before: Mapping[str, TopologyAssignment],
) -> Admission | NoFlavorFits:
    """Return a reservation with the topology assignments that it lacks, or why these are not possible now.

    Args:
        topologies: the topologies of all flavors.
        demands: what each podset requests, with what admission checks have added.
        admission: the reservation.
        before: the places that the pods keep, by podset.
    """
    by_name = {demand.pod_set.name: demand for demand in demands}
    # A podset that the workload does not have has no pods to place: another program wrote the reservation.
    waiting = tuple(
        part
        for part in admission.pod_set_assignments
        if part.lacks_topology_assignment and part.name in by_name
    )
    units = list_units(topologies.flavors, tuple(by_name[part.name] for part in waiting), waiting)
    found = units if isinstance(units, Unplaced) else find_places(topologies, units, before)
    if isinstance(found, Unplaced):
        return NoFlavorFits(found.refusals, NoFitReason.TOPOLOGY_PLACEMENT_FAILED)
    return replace(
        admission,
        pod_set_assignments=tuple(
            replace(part, topology=found.get(part.name), lacks_topology_assignment=False)
            if part.lacks_topology_assignment
            else part
            for part in admission.pod_set_assignments
        ),
    )


def _updated(demand: PodSetDemand, updates: Iterable[PodSetUpdate]) -> PodSetDemand:
    """Return the demand of a podset with the node selectors and tolerations that admission checks added."""
    pod_set = demand.pod_set
    of_pod_set = [update for update in updates if update.pod_set == pod_set.name]
    if not of_pod_set:
        return demand
    selectors = tuple(pair for update in of_pod_set for pair in update.node_selector)
    tolerations = tuple(each for update in of_pod_set for each in update.tolerations)
    return replace(
        demand,
        pod_set=replace(
            pod_set,
            node_selector=(*pod_set.node_selector, *selectors),
            tolerations=(*pod_set.tolerations, *tolerations),
        ),
    )


def _assign(world: World, entry: WorkloadEntry, placed: Admission, now: Instant) -> None:
    """Count the places of a workload as if they were written, and add the instruction to write them."""
    workload = entry.workload
    assert workload.admission is not None  # noqa: S101 narrows the type
    entry.assumed_places = AssumedPlaces(placed, workload.admission)
    world.settle(entry, now)
    world.outbox.topology_assignments.append(AssignTopology(workload.key, workload.uid, placed))


def _refuse_flavors(world: World, admission: Admission, failed_host: str | None) -> NoFlavorFits | None:
    """Return why the first podset that needs a topology assignment has no topology; None if all have one."""
    for assignment in admission.pod_set_assignments:
        flavors = sorted({flavor for _, flavor in assignment.flavors})
        needs_place = assignment.lacks_topology_assignment or (
            failed_host is not None and has_host(assignment.topology, failed_host)
        )
        if needs_place and not any(map(world.topologies.get, flavors)):
            refusals = tuple(_topology_refusal(name, world.catalog.flavors.get(name)) for name in flavors)
            return NoFlavorFits((PodSetRefusals(assignment.name, refusals),), NoFitReason.NO_MATCHING_FLAVOR)
    return None


def _topology_refusal(name: str, flavor: ResourceFlavor | None) -> FlavorRefusal:
    if flavor is None:
        return FlavorNotFound(name)
    return TopologyUnsupported(name) if flavor.topology_name is None else TopologyMissing(name)
