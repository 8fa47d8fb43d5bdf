"""Changes that could admit a pending workload. None of them is tried here (``cheapest_changes``)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from admitq.core import quota
from admitq.core.activity import ActiveReason
from admitq.core.amounts import FlavorResource, add
from admitq.core.asking.changes import (
    ActivateChecks,
    AddQuota,
    AllowFlavor,
    Change,
    CreateFlavors,
    FinishWorkloads,
    LiftHolds,
    ReducedPodSet,
    ReducePods,
    ResumeClusterQueue,
    ResumeLocalQueue,
)
from admitq.core.asking.constraints import demands_of, find_holders, options_of
from admitq.core.asking.flavor_plans import FlavorPlan, find_plans
from admitq.core.asking.rooms import find_sufficient_leavers
from admitq.core.cycle.nominate import FlavorSearch
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.instructions import FitMode
from admitq.core.ledger import Usage
from admitq.core.lifecycle import Phase
from admitq.core.model import ObjectKey, PodSet, ResourceFlavor, StopPolicy, Toleration
from admitq.core.partial_admission import assign_partially, may_shrink
from admitq.core.selectors import accepts_nodes, find_untolerated_taint
from admitq.core.waiting.queue_positions import comes_before
from admitq.core.world import World

_MOST_FINISHED: Final = 8
"""The number of workloads that one change has finished."""

_PARTS: Final = 8

_SCALE: Final = 1 << 20


# --- obstacles that have nothing to do with quota -------------------------------------------------------


def find_obstacle_changes(world: World, entry: WorkloadEntry) -> Iterator[Change]:
    """Yield the changes without which the workload is not evaluated at all."""
    workload = entry.workload
    if entry.phase in {Phase.HELD, Phase.INACTIVE}:
        yield LiftHolds(
            workload.key,
            activates=not workload.active,
            releases=workload.on_hold,
            admission_gates=workload.admission_gates,
        )
    local_queue = world.local_queues.get(entry.local_queue)
    if local_queue is None:
        return
    if local_queue.spec.stop_policy is not StopPolicy.NONE:
        yield ResumeLocalQueue(entry.local_queue)
    queue = world.cluster_queues.get(local_queue.spec.cluster_queue)
    for cause in () if queue is None else queue.inactive_causes:
        match cause.reason:
            case ActiveReason.STOPPED:
                yield ResumeClusterQueue(local_queue.spec.cluster_queue)
            case ActiveReason.FLAVOR_NOT_FOUND:
                yield CreateFlavors(cause.names)
            case ActiveReason.ADMISSION_CHECK_NOT_FOUND | ActiveReason.ADMISSION_CHECK_INACTIVE:
                yield ActivateChecks(cause.names)
            case _:
                pass


# --- the workload itself --------------------------------------------------------------------------------


def find_changes_of_workload(
    world: World, queue: ClusterQueueEntry, entry: WorkloadEntry
) -> Iterator[Change]:
    """Yield changes of the specification of the workload, except of its priority."""
    if entry.workload.has_closed_preemption_gate:
        yield LiftHolds(entry.workload.key, opens_preemption_gate=True)
    yield from _allow_flavors(world, queue, entry)
    yield from _reduce_pods(world, queue, entry)


def _allow_flavors(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> Iterator[Change]:
    """Yield a change for each flavor that nodes refuse and that has room."""
    options = options_of(world, queue, entry)
    pod_sets = {pod_set.name: pod_set for pod_set in entry.workload.pod_sets}
    refused: dict[str, dict[str, None]] = {}
    room: dict[str, FlavorPlan] = {}
    for unit in options.units:
        for group in unit.groups:
            for option in group.flavor_options:
                if option.refusal is not None:
                    refused.setdefault(option.flavor, {}).update(dict.fromkeys(unit.names))
                    room.setdefault(option.flavor, FlavorPlan()).add(option)
    for name, names in refused.items():
        flavor = world.catalog.flavors.get(name)
        if flavor is not None and not room[name].shortage:
            yield _allow_flavor(entry.workload.key, flavor, [pod_sets[each] for each in names])


def _allow_flavor(key: ObjectKey, flavor: ResourceFlavor, pod_sets: list[PodSet]) -> AllowFlavor:
    added: list[Toleration] = []
    for pod_set in pod_sets:
        while taint := find_untolerated_taint(
            flavor.node_taints, pod_set.tolerations, flavor.tolerations, added
        ):
            added.append(Toleration(taint.key, "Equal", taint.value, taint.effect))
    labels = dict(flavor.node_labels)
    return AllowFlavor(
        key,
        flavor.name,
        tuple(pod_set.name for pod_set in pod_sets),
        tuple(added),
        drops_node_selection=not all(accepts_nodes(pod_set, labels) for pod_set in pod_sets),
    )


def _reduce_pods(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> Iterator[Change]:
    """Yield the change to the most pods that fit into unused quota, if there is one."""
    demands = demands_of(world, entry)
    smaller = tuple(replace(each, pod_set=replace(each.pod_set, min_count=1)) for each in demands)
    if not may_shrink(smaller) or world.original_of(queue.spec.name, entry.workload) is not None:
        return
    search = FlavorSearch(world, queue, entry.workload, None)
    assignment = assign_partially(smaller, search.assign, lambda found: found.mode is FitMode.FIT)
    if assignment is None:
        return
    fitting = {part.name: part.count for part in assignment.pod_sets}
    reduced = tuple(
        ReducedPodSet(demand.pod_set.name, present, present - (demand.count - fitting[demand.pod_set.name]))
        for demand in demands
        if fitting[demand.pod_set.name] < demand.count
        for present in (demand.pod_set.count,)
    )
    if reduced:
        yield ReducePods(entry.workload.key, reduced)


# --- workloads that hold quota --------------------------------------------------------------------------


def find_finishes(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> Iterator[Change]:
    """Yield workloads that would free enough quota by their end: few and small ones for each flavor choice.

    Others would free enough room in a topology, if it lacks room.
    While admission is halted, they are the workloads with pods that are not ready.
    """
    if world.is_halted:
        if len(world.pods.unready) <= _MOST_FINISHED:
            yield FinishWorkloads(tuple(sorted(world.pods.unready)))
        return
    for plan in find_plans(options_of(world, queue, entry)):
        if not plan.exceeds_maximum:
            holders = _find_sufficient_holders(world, queue, plan)
            if holders:
                yield FinishWorkloads(tuple(sorted(holder.workload.key for holder in holders)))
    for leavers in find_sufficient_leavers(world, queue, entry):
        yield FinishWorkloads(tuple(sorted(leaver.workload.key for leaver in leavers)))


def _find_sufficient_holders(world: World, queue: ClusterQueueEntry, plan: FlavorPlan) -> list[WorkloadEntry]:
    """Choose holders until the plan fits, by removing their usage from the tree; then restore the tree."""
    chosen: list[WorkloadEntry] = []
    while (
        (shortage := plan.shortage)
        and len(chosen) < _MOST_FINISHED
        and (best := _find_best_holder(world, queue, shortage, chosen)) is not None
    ):
        chosen.append(best)
        _change_usage(world, best, -1)
    fits = not plan.shortage
    needed: list[WorkloadEntry] = []
    for holder in chosen:
        _change_usage(world, holder, 1)
        if plan.shortage:
            _change_usage(world, holder, -1)
            needed.append(holder)
    for holder in needed:
        _change_usage(world, holder, 1)
    return needed if fits else []


def _find_best_holder(
    world: World,
    queue: ClusterQueueEntry,
    shortage: Mapping[FlavorResource, int],
    chosen: Collection[WorkloadEntry],
) -> WorkloadEntry | None:
    """Return the holder that frees most of what is missing; of equal ones that of lowest priority."""
    covered: dict[ObjectKey, int] = {}
    sizes: dict[ObjectKey, int] = {}
    holders: dict[ObjectKey, WorkloadEntry] = {}
    for pair, missing in shortage.items():
        for holder, _, amount, freed in find_holders(world, queue.node, pair):
            key = holder.workload.key
            if holder in chosen:
                continue
            holders[key] = holder
            covered[key] = covered.get(key, 0) + min(freed, missing) * _SCALE // missing
            sizes[key] = sizes.get(key, 0) + amount

    def preference(key: ObjectKey) -> tuple[int, bool, int, int, ObjectKey]:
        holder = holders[key]
        return (-covered[key], not holder.is_leaving, holder.workload.priority, sizes[key], key)

    return holders[min(holders, key=preference)] if holders else None


def _change_usage(world: World, holder: WorkloadEntry, sign: int) -> None:
    held = holder.held
    usage: Usage = () if held is None else held.usage
    cells = {} if held is None else world.cluster_queues[held.cluster_queue].node.cells
    for pair, amount in usage:
        quota.add_usage(cells[pair], sign * amount)


# --- quota ----------------------------------------------------------------------------------------------


def find_more_quota(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> Iterator[AddQuota]:
    """Yield the least nominal quota that is missing in the ClusterQueue, for each choice of flavors."""
    for plan in find_plans(options_of(world, queue, entry)):
        missing = plan.missing_quota
        if missing:
            yield AddQuota(queue.spec.name, tuple(sorted(missing.items())))


def add_for_workloads_before(
    queue: ClusterQueueEntry, entry: WorkloadEntry, change: AddQuota
) -> list[AddQuota]:
    """Return larger additions, ascending: also for the workloads before it in the ClusterQueue, by eighths.

    They take the quota first. The list is empty if they request none of the added resources.
    """
    pending = entry.pending
    before: dict[str, int] = {}
    for other in () if pending is None else queue.queue.members.values():
        if pending is not None and comes_before(queue.queue, other, pending):
            for demand in queue.queue.key_of(other.workload).demands:
                for resource, amount in demand.totals:
                    before[resource] = add(before.get(resource, 0), amount)
    if not any(before.get(pair.resource) for pair, _ in change.amounts):
        return []
    return [
        replace(
            change,
            amounts=tuple(
                (pair, add(more, before.get(pair.resource, 0) * part // _PARTS))
                for pair, more in change.amounts
            ),
        )
        for part in range(1, _PARTS + 1)
    ]


# --- priority -------------------------------------------------------------------------------------------


def find_priorities(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> list[int]:
    """Return higher priorities that could make a difference, ascending.

    They are one more than those of workloads that hold quota in the cohort tree, and of workloads that wait
    in the ClusterQueue.
    """
    own = entry.workload.priority
    others = {pending.workload.priority for pending in queue.queue.members.values()}
    for node in queue.node.root.cluster_queues_below():
        for holders in (world.quota_holders.leaving, world.quota_holders.staying):
            others.update(holder.workload.priority for _, holder in holders(node.name))
    return sorted(priority + 1 for priority in others if priority >= own)
