"""Laws A1 and A2: explanations agree with the model, and changes that they name give a workload quota."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from admitq.core import events as happened
from admitq.core.amounts import UNLIMITED, FlavorResource, add
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.changes import AddQuota, Change
from admitq.core.asking.cheapest_changes import find_cheapest_changes
from admitq.core.asking.explain import WITHOUT_QUOTA, explain
from admitq.core.asking.explanations import BindingLimit, BindingNode, ResourceConstraint, WaitingForTurn
from admitq.core.cohorts import declared_quotas
from admitq.core.instructions import ReserveQuota
from admitq.core.model import Cohort, FlavorQuotas, Instant, ObjectKey, ResourceGroup
from admitq.core.state import AdmissionState
from tests.laws.drawing import Draw
from tests.laws.law import check_law
from tests.laws.reference.observed import Observed
from tests.laws.reference.tree import Node, queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player

MOST_ROUNDS = 8
"""How many times the targets of a workload leave in a check."""


def _draw_workload(player: "Player", draw: Draw) -> ObjectKey | None:
    """Return a workload without quota that may still get it; None without one."""
    queries = player.core.queries
    known = [key for key in sorted(player.observed.workloads) if queries.workload_phase(key) in WITHOUT_QUOTA]
    return draw.choice(known) if known else None


# --- explanations ---------------------------------------------------------------------------------------


def check_explanation(player: "Player", draw: Draw) -> None:
    """Check the explanation of one workload by the model."""
    key = _draw_workload(player, draw)
    if key is None:
        return
    found = explain(player.core, key, player.now)
    assert found is not None, "the workload exists"
    player.core.validate()
    observed, name = player.observed, found.cluster_queue
    waits_in = observed.waits_in(key)
    listed = None if found.position is None else found.position.workload
    check_law(listed == (None if waits_in is None else key), "A1: another position", found, waits_in)
    if name is None or name not in observed.cluster_queues:
        check_law(not found.flavors, "A1: flavors without a ClusterQueue", found)
        return
    if isinstance(found.waits_for, WaitingForTurn):
        check_law(waits_in == name and observed.is_active(name), "A1: it has no turn", found)
    if observed.original(key, name) is not None or observed.tree().path(queue_node(name)) is None:
        return
    for verdict in found.flavors:
        for constraint in verdict.resources:
            _check_constraint(player, name, FlavorResource(verdict.flavor, constraint.resource), constraint)


def _check_constraint(player: "Player", name: str, pair: FlavorResource, found: ResourceConstraint) -> None:
    """Check the amounts of a constraint, its node, and the amounts that its holders would free."""
    observed, node = player.observed, queue_node(name)
    tree = observed.tree()
    available = tree.available(node, pair)
    check_law(found.free == max(0, available), "A1: another free amount", name, pair, found, available)
    potential = tree.potential(node, pair)
    check_law(found.maximum == potential, "A1: another maximum", name, pair, found, potential)
    total = add(found.requested, found.earlier)
    check_law(found.short_by == max(0, total - found.free), "A1: another shortage", name, pair, found)
    check_law((found.binding is None) == (found.short_by == 0), "A1: a shortage without node", found)
    if found.binding is not None:
        expected = _find_binding(observed, node, pair, exceeds_maximum=total > potential)
        check_law(found.binding == expected, "A1: another node limits it", name, pair, found, expected)
    for holding in found.holdings.listed:
        holder = observed.holder(holding.workload)
        assert holder is not None, "a holder holds quota"
        usage = dict(holder.usage)
        check_law(usage.get(pair) == holding.amount, "A1: holds another amount", holding, usage)
        tree.remove(holder.queue, usage)
        freed = tree.available(node, pair) - available
        tree.add(holder.queue, usage)
        check_law(0 < freed == holding.freed, "A1: frees another amount", name, pair, holding, freed)
    if found.short_by > 0 and total <= potential < UNLIMITED:
        check_law(found.holdings.listed, "A1: a shortage without holders", name, pair, found)


def _find_binding(
    observed: Observed, node: Node, pair: FlavorResource, *, exceeds_maximum: bool
) -> BindingNode:
    """Return the nearest node that has more in the model without its own borrowing limit; else the root."""

    def amount(objects: Observed, at: Node) -> int:
        tree = objects.tree()
        return tree.potential(at, pair) if exceeds_maximum else tree.available(at, pair)

    path = observed.tree().path(node) or []
    for each in path[:-1]:
        if amount(_without_limit(observed, each, pair), each) > amount(observed, each):
            return BindingNode(each.name, each.cohort, BindingLimit.BORROWING_LIMIT)
    return BindingNode(path[-1].name, path[-1].cohort, BindingLimit.QUOTA)


def _without_limit(observed: Observed, node: Node, pair: FlavorResource) -> Observed:
    """Return the same objects, without the borrowing limit of a node."""

    def unlimited(groups: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
        quotas = declared_quotas(groups)
        if pair in quotas:
            quotas[pair] = replace(quotas[pair], borrowing_limit=None)
        return tuple(
            ResourceGroup((resource,), (FlavorQuotas(flavor, ((resource, amount),)),))
            for (flavor, resource), amount in quotas.items()
        )

    if node.cohort:
        cohort = observed.cohorts.get(node.name, Cohort(node.name))
        changed = replace(cohort, resource_groups=unlimited(cohort.resource_groups))
        return replace(observed, cohorts=observed.cohorts | {node.name: changed})
    queue = observed.cluster_queues[node.name]
    changed = replace(queue, resource_groups=unlimited(queue.resource_groups))
    return replace(observed, cluster_queues=observed.cluster_queues | {node.name: changed})


# --- changes --------------------------------------------------------------------------------------------


def check_changes(player: "Player", draw: Draw) -> None:
    """Check the changes that are named for one workload by applying them."""
    key = _draw_workload(player, draw)
    if key is None:
        return
    core, now = player.core, player.now
    preempted = player.preempted_uids.get(key, set())
    found = find_cheapest_changes(core, key, now, copying_branch(core))
    core.validate()
    check_law(not (found.needs_none and found.alternatives), "A2: changes that are not needed", key, found)
    if found.needs_none:
        check_law(_gets_quota(core, key, (), now, preempted), "A2: it needs a change", key)
    for alternative in found.alternatives:
        check_law(
            _gets_quota(core, key, alternative.changes, now, preempted),
            "A2: changes do not suffice",
            key,
            alternative,
        )
    costs = [alternative.cost for alternative in found.alternatives]
    check_law(costs == sorted(costs), "A2: changes in another order than their costs", costs)
    for alternative in found.alternatives:
        match alternative.changes:
            case (AddQuota() as change,):
                _check_quota_is_needed(core, key, change, now)
            case _:
                pass


def _gets_quota(
    core: AdmissionState, key: ObjectKey, changes: Iterable[Change], now: Instant, preempted: Iterable[str]
) -> bool:
    """Apply changes to a copy, run all cycles, and let the targets of the workload leave; again and again."""
    copy = core.fork()
    world = copy.queries.world
    for change in changes:
        for event in list(change.events(world)):
            copy.observe(event, now=now)
    targets = set(preempted)
    for _ in range(MOST_ROUNDS):
        decided = copy.handle(happened.CyclesRequested(), now=now)
        copy.validate()
        if any(isinstance(each, ReserveQuota) and each.key == key for each in decided):
            return True
        due = copy.next_wakeup(now) if copy.queries.world.settings.requeue_batch_period else None
        pending = world.workloads[key].pending
        targets |= set() if pending is None else pending.preempted_uids
        leaving = [
            entry
            for entry in world.workloads.values()
            if entry.workload.uid in targets and entry.held and entry.is_leaving
        ]
        for entry in leaving:
            written = replace(entry.workload, admission=entry.admission, evicted=True)
            copy.observe(happened.WorkloadChanged(written), now=now)
            stopped = replace(written, admission=None, admitted=False, reserved_at=0)
            copy.observe(happened.WorkloadChanged(stopped), now=now)
        if not leaving and due is None:
            return False
        now = now if due is None else max(now, due)
    return False


def _check_quota_is_needed(core: AdmissionState, key: ObjectKey, change: AddQuota, now: Instant) -> None:
    """Check that quota is added only for flavors in which the workload lacks it."""
    found = explain(core, key, now)
    assert found is not None, "the workload exists"
    short = {
        FlavorResource(verdict.flavor, constraint.resource)
        for verdict in found.flavors
        for constraint in verdict.resources
        if constraint.short_by
    }
    check_law(short.issuperset(pair for pair, _ in change.amounts), "A2: adds quota that is free", change)
