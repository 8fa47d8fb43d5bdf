"""Second passes: at the beginning of a cycle, search topology assignments for workloads that hold quota.

The workloads keep their quota and flavors, whatever the result. Topologies are not supported yet: every
second pass is refused, and the refusal is reported.
"""

from collections.abc import Iterator

from admitq.core.cycle.inadmissibility import inadmissibility
from admitq.core.entries import WorkloadEntry
from admitq.core.instructions import ReportSecondPass
from admitq.core.model import Admission, Instant, ResourceFlavor
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
from admitq.core.world import World


def is_second_pass_due(world: World, now: Instant) -> bool:
    """Whether a second pass is due. While admission is halted, no second pass is due."""
    due_at = None if world.is_halted else world.second_passes.next_at()
    return due_at is not None and due_at <= now


def try_second_passes(world: World, now: Instant) -> Iterator[None]:
    """Evaluate the workloads with a due second pass. Yield after each."""
    for second_pass in world.second_passes.take_due(now):
        world.deciding = second_pass.key
        entry = world.workloads[second_pass.key]
        admission = entry.workload.admission
        assert admission is not None  # noqa: S101 narrows the type
        refusal = _refusal(world, entry, admission)
        world.outbox.second_pass_reports.append(
            ReportSecondPass(second_pass.key, entry.workload.uid, refusal)
        )
        world.second_passes.reschedule(second_pass, now)
        yield
    world.deciding = None


def _refusal(world: World, entry: WorkloadEntry, admission: Admission) -> Refusal:
    queue = world.cluster_queues.get(admission.cluster_queue)
    if queue is None:
        return ClusterQueueNotFound(admission.cluster_queue)
    return inadmissibility(world, queue, entry.workload) or _refuse_topology(world, admission)


def _refuse_topology(world: World, admission: Admission) -> NoFlavorFits:
    """Return why the first podset that needs a topology assignment gets none, by flavor."""
    assignment = next(
        assignment for assignment in admission.pod_set_assignments if assignment.lacks_topology_assignment
    )
    flavors = sorted({flavor for _, flavor in assignment.flavors})
    refusals = tuple(_topology_refusal(name, world.catalog.flavors.get(name)) for name in flavors)
    return NoFlavorFits((PodSetRefusals(assignment.name, refusals),), NoFitReason.NO_MATCHING_FLAVOR)


def _topology_refusal(name: str, flavor: ResourceFlavor | None) -> FlavorRefusal:
    if flavor is None:
        return FlavorNotFound(name)
    return TopologyUnsupported(name) if flavor.topology_name is None else TopologyMissing(name)
