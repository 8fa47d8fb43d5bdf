"""The quota that the podsets of a pending workload lack, and the workloads that hold it."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import FlavorResource, add
from admitq.core.asking.explanations import (
    BindingLimit,
    BindingNode,
    FlavorVerdict,
    QuotaHolding,
    QuotaHoldings,
    ResourceConstraint,
)
from admitq.core.asking.wait_causes import MOST_LISTED
from admitq.core.cohorts import Node
from admitq.core.entries import ClusterQueueEntry, WorkloadEntry
from admitq.core.flavor_options import FlavorOption, QuotaDemand, RequestOptions, UnitOptions
from admitq.core.model import Instant, ObjectKey
from admitq.core.overlay import evaluate_without_original
from admitq.core.quota import Cell
from admitq.core.requests import PodSetDemand
from admitq.core.world import World

_NO_FLAVOR: Final = ""

_FindHoldings = Callable[[FlavorResource, Node], QuotaHoldings]
"""Returns the holdings below a node that limits a request."""


def demands_of(world: World, entry: WorkloadEntry) -> tuple[PodSetDemand, ...]:
    """Return what the podsets of a workload request at present."""
    return world.request_rules.resolve(entry.workload).demands


def options_of(world: World, queue: ClusterQueueEntry, entry: WorkloadEntry) -> RequestOptions:
    """Return the flavors of a ClusterQueue for the present requests of a workload."""
    return queue.flavor_options.options_for(demands_of(world, entry))


def find_flavor_verdicts(
    world: World, queue: ClusterQueueEntry, entry: WorkloadEntry, *, lists_holders: bool = True
) -> tuple[FlavorVerdict, ...]:
    """Return for each podset and flavor whether it fits, and for each resource what is missing.

    If the workload replaces another one, the quota of that one counts as free. Without ``lists_holders``,
    all holdings are empty, and the cost does not grow with the number of workloads.
    """
    units = options_of(world, queue, entry).units
    original = world.original_of(queue.spec.name, entry.workload)
    find_listed = partial(_list_holders, world, queue.node, original) if lists_holders else _list_no_holders

    def find() -> tuple[FlavorVerdict, ...]:
        return tuple(_verdicts(queue.node, units, find_listed))

    return find() if original is None else evaluate_without_original(world, original, find)


def _verdicts(
    node: Node, units: tuple[UnitOptions, ...], find_listed: _FindHoldings
) -> Iterator[FlavorVerdict]:
    earlier: dict[FlavorResource, int] = {}
    for unit in units:
        for uncovered in unit.uncovered_refusals:
            yield FlavorVerdict(unit.names, _NO_FLAVOR, uncovered, ())
        for group in unit.groups:
            for option in group.flavor_options:
                constraints = tuple(
                    _constraint(node, demand, earlier.get(demand.pair, 0), find_listed)
                    for demand in option.demands
                )
                yield FlavorVerdict(unit.names, option.flavor, option.refusal, constraints)
        for option in _options(unit):
            for pair, _, amount in option.demands:
                earlier[pair] = add(earlier.get(pair, 0), amount)


def _options(unit: UnitOptions) -> Iterator[FlavorOption]:
    """Yield the flavors that the podsets of a unit could get."""
    for group in unit.groups:
        yield from (option for option in group.flavor_options if option.refusal is None)


def _constraint(
    node: Node, demand: QuotaDemand, earlier: int, find_listed: _FindHoldings
) -> ResourceConstraint:
    pair, cell, requested = demand
    total = add(earlier, requested)
    free, maximum = max(0, quota.available(cell)), quota.potential_available(cell)
    short_by = max(0, total - free)
    binding, holdings = None, QuotaHoldings()
    if short_by:
        exceeds_maximum = total > maximum
        limit = quota.potential_available if exceeds_maximum else quota.available
        binding_cell = quota.find_binding_cell(cell, limit)
        binding_node = _node_of(node, pair, binding_cell)
        limit_kind = BindingLimit.QUOTA if binding_cell.parent is None else BindingLimit.BORROWING_LIMIT
        binding = BindingNode(binding_node.name, binding_node.is_cohort, limit_kind)
        if not exceeds_maximum:
            holdings = find_listed(pair, binding_node)
    return ResourceConstraint(pair.resource, requested, earlier, free, maximum, short_by, binding, holdings)


def _list_holders(
    world: World, node: Node, original: WorkloadEntry | None, pair: FlavorResource, binding: Node
) -> QuotaHoldings:
    holders = _holders_below(world, node, pair, binding)
    return _listed(holder for holder in holders if holder.entry is not original)


def _list_no_holders(_pair: FlavorResource, _binding: Node) -> QuotaHoldings:
    return QuotaHoldings()


def _node_of(node: Node, pair: FlavorResource, cell: Cell) -> Node:
    path = (node, *node.ancestors)
    return next(each for each in path if each.cells.get(pair) is cell)


class Holder(NamedTuple):
    """A workload that holds an amount of a pair, and the amount that its end would make available."""

    entry: WorkloadEntry
    cluster_queue: str
    amount: int
    freed: int


def find_holders(world: World, node: Node, pair: FlavorResource) -> Iterator[Holder]:
    """Yield the workloads that would free an amount of a pair for a ClusterQueue's node by their end."""
    binding_node = _node_of(node, pair, quota.find_binding_cell(node.cells[pair]))
    yield from _holders_below(world, node, pair, binding_node)


def _holders_below(world: World, node: Node, pair: FlavorResource, binding: Node) -> Iterator[Holder]:
    """Yield the holders below the binding node.

    If all usage of a ClusterQueue left, an amount m would become available. If a single workload leaves, its
    own amount becomes available, but at most m.
    """
    for below in binding.cluster_queues_below():
        most, name = _freed_by_all(below.cells.get(pair), node.cells[pair]), below.name
        if not most:
            continue
        for _, entry in chain(world.quota_holders.leaving(name), world.quota_holders.staying(name)):
            for held_pair, amount in () if entry.held is None else entry.held.usage:
                if held_pair == pair:
                    yield Holder(entry, name, amount, min(amount, most))


def _freed_by_all(cell: Cell | None, at: Cell) -> int:
    """Return the amount that becomes available at a cell if all usage of another cell leaves."""
    if cell is None or cell.usage <= 0:
        return 0
    usage, before = cell.usage, quota.available(at)
    quota.remove_usage(cell, usage)
    freed = quota.available(at) - before
    quota.add_usage(cell, usage)
    return freed


def _listed(holders: Iterable[Holder]) -> QuotaHoldings:
    found = list(holders)
    listed = nsmallest(MOST_LISTED, found, key=_largest_first)
    more_amount = sum(each.amount for each in found) - sum(each.amount for each in listed)
    return QuotaHoldings(tuple(map(_holding, listed)), len(found) - len(listed), more_amount)


def _largest_first(holder: Holder) -> tuple[int, Instant, ObjectKey]:
    return (-holder.freed, holder.entry.reserved_at, holder.entry.workload.key)


def _holding(holder: Holder) -> QuotaHolding:
    entry = holder.entry
    return QuotaHolding(
        entry.workload.key,
        holder.cluster_queue,
        holder.amount,
        holder.freed,
        entry.workload.priority,
        entry.reserved_at,
        entry.is_leaving,
    )
