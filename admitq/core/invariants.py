"""Check invariants of the state by computing it again from the observed objects.

Events update the cohort trees, the ledger and the queues step by step. ``check`` computes their content from
scratch and compares it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import Node, declared_quotas
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.ledger import Usage, usage_of
from admitq.core.lifecycle import Phase
from admitq.core.model import ObjectKey
from admitq.core.quota import Cell
from admitq.core.replacing import usage_beyond
from admitq.core.second_pass import needs_second_pass
from admitq.core.topology.topologies import Topologies
from admitq.core.violations import InvariantViolated, expect
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.world import World


def check(world: World) -> None:
    """Check all invariants. Slow.

    Raises:
        InvariantViolated: an invariant does not hold; the message says which.
    """
    _check_ledger(world)
    _check_cohort_trees(world)
    _check_queues(world)
    _check_local_queues(world)
    _check_indexes(world)
    _check_holders(world)
    _check_blocking_heads(world)
    _check_pods(world)
    _check_second_passes(world)
    _check_topologies(world)
    _check_outbox_is_empty(world)


def _check_topologies(world: World) -> None:
    """Check that the usage of each topology is that of the workloads which hold places."""
    topologies, expected = world.topologies, Topologies(world.settings.placement)
    for name, levels in topologies.levels.items():
        expected.set_topology(name, levels)
    for node in topologies.nodes.values():
        expected.set_node(node)
    for key, pod in topologies.pods_of_others.items():
        expected.set_pod_of_others(key, pod)
    for flavor in world.catalog.flavors.values():
        expected.set_flavor(flavor)
    for entry in world.workloads.values():
        if entry.held is not None:
            expected.hold(entry.held.places)
    expect("flavors with a topology", topologies.flavors, expected.flavors)
    for name in expected.flavors:
        found_topology, expected_topology = topologies.get(name), expected.get(name)
        assert found_topology is not None  # noqa: S101 narrows the type
        assert expected_topology is not None  # noqa: S101 narrows the type
        found_tree, expected_tree = found_topology.tree, expected_topology.tree
        expect("usage of the topology of {}", found_tree.usage(), expected_tree.usage(), name)
        expect("free capacity of the topology of {}", found_tree.free(), expected_tree.free(), name)


def _usage(world: World) -> dict[str, Usage]:
    gate = world.settings.gates.reclaimable_pods
    by_queue: dict[str, Counter[FlavorResource]] = {}
    for entry in world.workloads.values():
        admission = entry.admission
        if admission is not None and not entry.workload.finished and not world.reservations.is_void(entry):
            total = by_queue.setdefault(admission.cluster_queue, Counter())
            usage = usage_of(entry.workload, admission, reclaimable_pods=gate)
            original = world.workloads.get(entry.workload.replaces or entry.workload.key)
            is_successor = (
                original is not None and world.reservations.replacements.find_successor(original) is entry
            )
            if original is not None and is_successor and not world.reservations.is_void(original):
                original_admission = original.admission
                assert original_admission is not None  # noqa: S101 narrows the type
                usage = usage_beyond(
                    usage, usage_of(original.workload, original_admission, reclaimable_pods=gate)
                )
            for pair, amount in usage:
                total[pair] += amount
    return {
        name: tuple(sorted((pair, amount) for pair, amount in total.items() if amount))
        for name, total in by_queue.items()
    }


def _check_ledger(world: World) -> None:
    usage = _usage(world)
    expect("ClusterQueues with reservations", set(world.reservations.ledger.cluster_queues), set(usage))
    for name, account in world.reservations.ledger.cluster_queues.items():
        expect("usage reserved in {}", tuple(sorted(account.reserved_usage.items())), usage[name], name)
    for name, entry in world.cluster_queues.items():
        entries = [
            workload_entry
            for workload_entry in world.workloads.values()
            if workload_entry.admission is not None
            and workload_entry.admission.cluster_queue == name
            and not workload_entry.workload.finished
            and not world.reservations.is_void(workload_entry)
        ]
        account = world.reservations.ledger.of_cluster_queue(name)
        expect("workloads reserving in {}", account.reserving, len(entries), name)
        expect(
            "workloads admitted in {}",
            account.admitted,
            sum(workload_entry.is_admitted for workload_entry in entries),
            name,
        )
        own = {pair: cell.usage for pair, cell in entry.node.cells.items() if cell.usage}
        expect("usage at the node of {}", tuple(sorted(own.items())), usage.get(name, ()), name)


def _check_cohort_trees(world: World) -> None:
    cohort_trees = world.cohort_trees
    for node in (*cohort_trees.cluster_queues.values(), *cohort_trees.cohorts.values()):
        if node.parent is None and node.declared_parent is not None and not node.is_cohort:
            raise InvariantViolated(f"ClusterQueue {node.name} is not linked to its cohort")
        for pair, cell in node.cells.items():
            _check_cell(node, pair, cell)
        children = (*node.cohorts.values(), *node.cluster_queues.values())
        tallest = max((child.height.value for child in node.cohorts.values()), default=0)
        expect("height of {}", node.height.value, 1 + tallest if children else 0, node.name)
    for name, spec in world.catalog.cohorts.items():
        _check_declared(cohort_trees.cohorts[name], declared_quotas(spec.resource_groups))
    for entry in world.cluster_queues.values():
        _check_declared(entry.node, declared_quotas(entry.spec.resource_groups))
        _check_registration(world, entry)


def _check_registration(world: World, entry: ClusterQueueEntry) -> None:
    """Check that a ClusterQueue is registered for everything that its lanes wait for."""
    name, registration, index = entry.spec.name, entry.queue.registration, entry.node.root.wake_index
    expect("registration of {}", registration, world.cohort_trees.registrations[name], name)
    expect("index of {}", registration.index, index, name)
    waits_for_any_return = registration.waits_for_any_return or registration.holds_back_for_queue
    for what, registrations, expected in (
        ("an edit", index.waiting, registration.has_waiting_lanes),
        ("any return", index.waiting_for_any_return, waits_for_any_return),
        ("progress", index.waiting_for_progress, registration.waits_for_progress),
        ("cycles of its tree", index.with_blocking_head, registration.has_blocking_head),
        ("an amount", index.with_needs, bool(registration.needs)),
    ):
        expect("whether {} waits for {}", name in registrations, expected, name, what)
    for pair, amount in registration.needs.items():
        is_met = registration.available(pair) >= amount
        is_noticed = (
            name in world.waiting.heads.queues or name in world.waiting.batches or not entry.is_active
        )
        if not is_met and pair not in registration.armed and not is_noticed:
            raise InvariantViolated(f"{name} needs {amount} of {pair}, which would not be noticed")
        if is_met and not is_noticed and entry.queue.head() is not None:
            raise InvariantViolated(f"{amount} of {pair} is available to {name}, which waits for it")


def _check_declared(node: Node, quotas: Any) -> None:
    declared = {pair for pair, cell in node.cells.items() if cell.declared}
    expect("declared quotas of {}", declared, set(quotas), node.name)


def _children(node: Node, pair: FlavorResource) -> Iterable[Cell]:
    for child in (*node.cohorts.values(), *node.cluster_queues.values()):
        cell = child.cells.get(pair)
        if cell is not None:
            yield cell


def _check_cell(node: Node, pair: FlavorResource, cell: Cell) -> None:
    where = f"{node.name} {pair.flavor}/{pair.resource}"
    children = list(_children(node, pair))
    expect("links of {}", cell.links, len(children), where)
    received = sum(child.subtree_quota - child.local for child in children)
    expect("subtree quota of {}", cell.subtree_quota, cell.nominal + received, where)
    if node.is_cohort:
        spilled = sum(max(0, child.usage - child.local) for child in children)
        expect("usage of {}", cell.usage, spilled, where)
    local = 0 if cell.lending_limit is None else max(0, cell.subtree_quota - cell.lending_limit)
    expect("local quota of {}", cell.local, local, where)
    above = None if node.parent is None else node.parent.cells.get(pair)
    expect("parent of {}", cell.parent, above, where)
    if cell.idle:
        raise InvariantViolated(f"{where} is not removed although nothing uses it")
    quota.available(cell)


def _check_queues(world: World) -> None:
    """Check that each workload is queued where it belongs by its phase, and only there."""
    for key, entry in world.workloads.items():
        local_queue = world.local_queues.get(entry.local_queue)
        target = (
            local_queue.spec.cluster_queue
            if entry.phase is Phase.PENDING and local_queue is not None and local_queue.is_open
            else None
        )
        expected = target if target in world.cluster_queues else None
        expect("queue of {}", entry.queued_in, expected, key)
        expect("whether {} waits", entry.pending is not None, expected is not None, key)
        if entry.workload.finished and entry.held is not None:
            raise InvariantViolated(f"{key} is finished and holds quota")
    for name, queue in world.cluster_queues.items():
        members = queue.queue.members
        waiting = {key for key, entry in world.workloads.items() if entry.queued_in == name}
        expect("members of {}", set(members), waiting, name)
        for key, pending in members.items():
            expect("pending entry of {}", pending, world.workloads[key].pending, key)
            expect("whether {} is in no lane", (pending.lane is None), pending.is_held_back, key)
            if pending.is_in_cycle:
                raise InvariantViolated(f"{key} is in a cycle although no cycle runs")
        check_queue(queue.queue)


def _check_local_queues(world: World) -> None:
    counted = Counter(entry.counted_in for entry in world.workloads.values())
    for key, entry in world.local_queues.items():
        expect("pending in {}", entry.pending, counted[key], key)


def _check_indexes(world: World) -> None:
    by_queue: dict[ObjectKey, set[ObjectKey]] = {}
    queues_in: dict[str, set[ObjectKey]] = {}
    by_runtime_class: dict[str, set[ObjectKey]] = {}
    inactive: dict[str, set[ObjectKey]] = {}
    for key, entry in world.workloads.items():
        if entry.workload.finished:
            continue
        by_queue.setdefault(entry.local_queue, set()).add(key)
        queues_in.setdefault(key.namespace, set()).add(entry.local_queue)
        admission = entry.workload.admission
        if admission is not None and entry.workload.evicted and not entry.workload.active:
            inactive.setdefault(admission.cluster_queue, set()).add(key)
        for pod_set in entry.workload.pod_sets:
            if pod_set.template.runtime_class is not None:
                by_runtime_class.setdefault(pod_set.template.runtime_class, set()).add(key)
    for what, index, expected in (
        ("workloads by queue", world.indexes.workloads_by_local_queue, by_queue),
        ("queues by namespace", world.indexes.local_queues_by_namespace, queues_in),
        ("workloads by RuntimeClass", world.indexes.workloads_by_runtime_class, by_runtime_class),
        ("inactive workloads by ClusterQueue", world.reservations.inactive_in, inactive),
    ):
        expect(what, {name: set(of) for name, of in index.items()}, expected)


def _check_holders(world: World) -> None:
    """Check that each holder of quota is listed in the ClusterQueue that is charged, in order."""
    charged: dict[tuple[str, bool], list[WorkloadEntry]] = {}
    for key, entry in world.workloads.items():
        if entry.held is not None:
            charged.setdefault((entry.held.cluster_queue, entry.is_leaving), []).append(entry)
        elif entry.preempting is not None:
            raise InvariantViolated(f"{key} is to be preempted although it holds no quota")
    expect("holders of quota", len(world.quota_holders), sum(map(len, charged.values())))
    for (name, leaving), entries in charged.items():
        holders = world.quota_holders.leaving(name) if leaving else world.quota_holders.staying(name)
        entries.sort(key=lambda holder: (holder.workload.priority, -holder.reserved_at, holder.workload.uid))
        expect(
            "{} of {}",
            [holder.workload.key for _, holder in holders],
            [holder.workload.key for holder in entries],
            "leaving holders" if leaving else "staying holders",
            name,
        )


def _check_blocking_heads(world: World) -> None:
    for name, entry in world.cluster_queues.items():
        blocks = entry.queue.blocking_head is not None
        expect(
            "whether {} is registered as blocking", entry.queue.registration.has_blocking_head, blocks, name
        )
        if blocks and not entry.is_active:
            raise InvariantViolated(f"the head of {name} blocks it although the queue is not active")


def _check_pods(world: World) -> None:
    unready = {key for key, entry in world.workloads.items() if world.pods.is_unready(entry)}
    expected = unready if world.settings.block_admission else set[ObjectKey]()
    expect("workloads that admission waits for", world.pods.unready, expected)
    if world.is_halted and not world.pods.unready:
        raise InvariantViolated("admission is halted without an unready workload")


def _check_second_passes(world: World) -> None:
    needed = sorted(
        key for key, entry in world.workloads.items() if needs_second_pass(entry, world.settings.placement)
    )
    scheduled = sorted(second_pass.key for second_pass in world.second_passes.scheduled)
    expect("workloads that need a second pass", scheduled, needed)


def _check_outbox_is_empty(world: World) -> None:
    for name, entry in world.cluster_queues.items():
        if entry.is_active and entry.queue.head() is not None and name not in world.waiting.heads.queues:
            raise InvariantViolated(f"{name} has a head that no cycle would take")
    decided = (
        world.outbox.reservations,
        world.outbox.topology_assignments,
        world.outbox.preemptions,
        world.outbox.recomputations,
        world.outbox.reports,
        world.outbox.touched_cluster_queues,
        world.outbox.touched_local_queues,
    )
    if any(decided):
        raise InvariantViolated("instructions were decided and not returned")
    expect("workload that is being decided", world.deciding, None)
