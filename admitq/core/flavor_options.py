"""The flavor options of a ClusterQueue: the flavors that it has for a request.

``FlavorOptions`` caches for each request whether the nodes of a flavor can hold the pods, and which quota
cells the request needs. Only specifications decide this. The options are built again when the ClusterQueue or
one of its flavors changes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from admitq.core.amounts import UNLIMITED, Amounts, FlavorResource, add, amounts
from admitq.core.assignments import Assignment
from admitq.core.cohorts import CohortTrees, Node
from admitq.core.delayed_places import find_flavors_placed_later, is_placed_elsewhere
from admitq.core.model import (
    AdmissionCheck,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    ResourceFlavor,
)
from admitq.core.quota import BorrowLevel, Cell, available, borrow_level, potential_available
from admitq.core.refusals import (
    FlavorNotFound,
    FlavorRefusal,
    NodeAffinityMismatch,
    RequestedLevelMissing,
    ResourceNotCovered,
    TopologyMissing,
    TopologyOnly,
    TopologyUnsupported,
    UntoleratedTaint,
)
from admitq.core.requests import PodSetDemand, group_by_unit
from admitq.core.selectors import accepts_nodes, find_untolerated_taint
from admitq.core.settings import CoreSettings
from admitq.core.topology.request import NOTHING
from admitq.core.topology.topologies import Topologies
from admitq.core.waiting.wait_states import QuotaNeed

PODS: Final = "pods"
"""The resource for the number of pods. If a ClusterQueue covers it, each podset requests its count of it."""

_MOST_CACHED_REQUESTS: Final = 1024
"""The number of different requests for which a ClusterQueue caches the options."""

_DEFAULT_RULES: Final = FlavorFungibility()

NodeRefusal = FlavorNotFound | UntoleratedTaint | NodeAffinityMismatch


class QuotaDemand(NamedTuple):
    """An amount of one resource that is requested from one flavor."""

    pair: FlavorResource
    cell: Cell
    amount: int


class FlavorOption(NamedTuple):
    """A flavor for one resource group: the amounts requested of it, and why it can never be assigned."""

    flavor: str
    refusal: FlavorRefusal | None
    demands: tuple[QuotaDemand, ...]


class GroupOptions(NamedTuple):
    """The resources of one resource group that podsets request together, and the flavors to choose from."""

    resources: tuple[str, ...]
    flavor_options: tuple[FlavorOption, ...]


class UnitOptions(NamedTuple):
    """Podsets that are assigned together: one, or all of one podset group.

    ``requests`` has the requests of each podset, for resources that the ClusterQueue covers.
    """

    positions: tuple[int, ...]
    names: tuple[str, ...]
    counts: tuple[int, ...]
    requests: tuple[Amounts, ...]
    uncovered_refusals: tuple[ResourceNotCovered, ...]
    groups: tuple[GroupOptions, ...]

    @property
    def shortage(self) -> tuple[QuotaNeed, ...] | None:
        """The needs of the first group that gets no flavor now. If one is met, the group gets a flavor."""
        for group in self.groups:
            needs = [
                _find_shortage(flavor_option.demands)
                for flavor_option in group.flavor_options
                if flavor_option.refusal is None
            ]
            if None not in needs:
                return tuple(need for need in needs if need is not None)
        return None

    def assigned(self, flavor_of: Mapping[str, str]) -> Iterable[tuple[int, PodSetAssignment]]:
        """Yield the assignments of the podsets by position, given the flavor of each resource."""
        for position, name, count, requests in zip(
            self.positions, self.names, self.counts, self.requests, strict=True
        ):
            flavors = tuple((resource, flavor_of[resource]) for resource, _ in requests)
            yield position, PodSetAssignment(name, flavors, requests, count)


class FlavorChoice(NamedTuple):
    """The assignments of podsets, and the sum of their usage without amounts of zero."""

    pod_sets: tuple[PodSetAssignment, ...]
    usage: tuple[tuple[FlavorResource, int], ...]


def _find_shortage(demands: Iterable[QuotaDemand]) -> QuotaNeed | None:
    """Return the first of these amounts that is not available; None if all are."""
    for pair, cell, amount in demands:
        if amount > max(0, available(cell)):
            return QuotaNeed(pair, amount)
    return None


QuotaSituation = tuple[tuple[int, int, BorrowLevel], ...]
"""For each quota demand: the available amount, this amount without any usage, and the borrow level."""

_MOST_CACHED_REFUSALS: Final = 64


class RequestOptions(NamedTuple):
    """The flavor options of podsets with the same demands, unit by unit, and caches of results.

    ``first`` has the amounts that are requested of the first flavor of each group, if all podsets get their
    first flavors. It is None if a first flavor cannot be assigned. There are three caches:

    - ``cached_fits``: assignments of first flavors that fit, by the borrow levels of the groups.
    - ``cached_choices``: assignments and their usage, by the flavors of the groups.
    - ``cached_refusals``: refusals of attempts without preemption, by the quota situation. Most waiting
      workloads are evaluated many times in the same situation.
    """

    units: tuple[UnitOptions, ...]
    first: tuple[tuple[QuotaDemand, ...], ...] | None
    cached_fits: dict[tuple[int, ...], Assignment]
    cached_choices: dict[tuple[str, ...], FlavorChoice]
    cached_refusals: dict[QuotaSituation, Assignment]

    @property
    def quota_situation(self) -> QuotaSituation | None:
        """The inputs of an attempt without preemption; None if podsets depend on each other."""
        if len(self.units) != 1:
            return None
        return tuple(
            [
                (max(0, available(cell)), potential_available(cell), borrow_level(cell, amount))
                for group in self.units[0].groups
                for flavor_option in group.flavor_options
                for _, cell, amount in flavor_option.demands
            ]
        )

    @property
    def has_quota_in_all_flavors(self) -> bool:
        """Whether the podsets have quota in each flavor that suits them, so that no more of it can help.

        False if several choices of a flavor depend on each other: quota decides which of them are tried.
        """
        choices = [
            [each.demands for each in group.flavor_options if each.refusal is None]
            for unit in self.units
            for group in unit.groups
        ]
        if len(choices) > 1 and any(len(flavors) > 1 for flavors in choices):
            return False
        requested = Counter[Cell]()
        for _, cell, amount in chain.from_iterable(chain.from_iterable(choices)):
            requested[cell] = add(requested[cell], amount)
        return all(amount <= max(0, available(cell)) for cell, amount in requested.items())

    @property
    def shortage(self) -> tuple[QuotaNeed, ...] | None:
        """The needs of an attempt without preemption. Until one of them is met, its result is the same.

        None if the needs are not known: something else refuses the podsets, or podsets depend on each other.
        """
        if len(self.units) == 1:
            return self.units[0].shortage
        if self.first is None or any(
            len(group.flavor_options) > 1 for unit in self.units for group in unit.groups
        ):
            return None
        needs = (need for demands in self.first if (need := _find_shortage(demands)) is not None)
        return next(((need,) for need in needs), None)

    def cache_refusal(self, situation: QuotaSituation, assignment: Assignment) -> None:
        """Cache the result of an attempt in a quota situation."""
        if len(self.cached_refusals) >= _MOST_CACHED_REFUSALS:
            self.cached_refusals.clear()
        self.cached_refusals[situation] = assignment

    def choose(self, flavor_options: tuple[FlavorOption, ...]) -> FlavorChoice:
        """Return the assignments and usage with these flavors: one flavor for each group, in order."""
        names = tuple([flavor_option.flavor for flavor_option in flavor_options])
        choice = self.cached_choices.get(names)
        if choice is None:
            choice = self.cached_choices[names] = self._choice(flavor_options)
        return choice

    def _choice(self, flavor_options: Iterable[FlavorOption]) -> FlavorChoice:
        remaining = iter(flavor_options)
        assigned: dict[int, PodSetAssignment] = {}
        usage_by_pair: dict[FlavorResource, int] = {}
        for unit in self.units:
            flavor_of: dict[str, str] = {}
            for group, flavor_option in zip(unit.groups, remaining, strict=False):
                flavor_of.update(dict.fromkeys(group.resources, flavor_option.flavor))
                for pair, _, amount in flavor_option.demands:
                    usage_by_pair[pair] = add(usage_by_pair.get(pair, 0), amount)
            assigned.update(unit.assigned(flavor_of))
        usage = tuple((pair, amount) for pair, amount in usage_by_pair.items() if amount)
        return FlavorChoice(tuple(assigned[position] for position in sorted(assigned)), usage)


TopologyLevels = tuple[str, ...] | None
"""The labels of the levels of a topology; None if its Topology does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class FlavorWithCells:
    """A flavor, if it exists, with the ClusterQueue's quota cell of each of its resources."""

    name: str
    spec: ResourceFlavor | None
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True, eq=False)
class GroupWithCells:
    """The flavors of a resource group, in order of preference."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorWithCells, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FlavorOptions:
    """The flavors of a ClusterQueue, and the rules to choose among them."""

    groups: tuple[GroupWithCells, ...] = ()
    fungibility: FlavorFungibility | None = _DEFAULT_RULES
    """The rules for trying further flavors; None if the gate FlavorFungibility is disabled."""
    ignores_undeclared: bool = False
    preempts_while_borrowing: bool = False
    """Whether preemption may help wherever quota is missing, also for a request that must borrow."""
    places_pods: bool = False
    """Whether pods are assigned to the domains of topologies."""
    topologies: Mapping[str, TopologyLevels] = field(default_factory=dict[str, TopologyLevels])
    """The levels of the topologies of flavors, by flavor. Empty if no flavor has a topology."""
    implies_topology: bool = False
    """Whether all flavors have a topology, so that all podsets are placed."""
    placed_later: frozenset[str] = frozenset()
    """The flavors in which pods get their places only when the admission checks are ready."""
    placed_elsewhere: bool = False
    """Whether other clusters have the nodes and the topologies."""
    refused: Mapping[str, FlavorRefusal] = field(default_factory=dict[str, FlavorRefusal])
    """The refusals of flavors that a constraint other than quota refuses."""
    cached: dict[tuple[PodSetDemand, ...], RequestOptions] = field(
        default_factory=dict[tuple[PodSetDemand, ...], RequestOptions]
    )

    def without_flavors(self, refused: Mapping[str, FlavorRefusal]) -> "FlavorOptions":
        """Return the same options without these flavors."""
        return replace(self, refused=refused, cached={}) if refused else self

    def options_for(self, demands: tuple[PodSetDemand, ...]) -> RequestOptions:
        """Return the options of podsets with these demands."""
        request_options = self.cached.get(demands)
        if request_options is None:
            if len(self.cached) >= _MOST_CACHED_REQUESTS:
                self.cached.clear()
            units = tuple(_unit_options(self, unit) for unit in group_by_unit(demands))
            request_options = self.cached[demands] = RequestOptions(units, _first_choices(units), {}, {}, {})
        return request_options


def build_flavor_options(
    cluster_queue: ClusterQueue,
    cohort_trees: CohortTrees,
    node: Node,
    flavors: Mapping[str, ResourceFlavor],
    settings: CoreSettings,
    topologies: Topologies | None = None,
    checks: Mapping[str, AdmissionCheck] | None = None,
) -> FlavorOptions:
    """Build the flavor options of a ClusterQueue.

    Args:
        cluster_queue: the ClusterQueue.
        cohort_trees: all cohort trees.
        node: the node of the ClusterQueue.
        flavors: all flavors by name.
        settings: the settings of the core.
        topologies: the topologies of flavors; None: none.
        checks: all AdmissionChecks by name; None: none.
    """
    groups: list[GroupWithCells] = []
    for group in cluster_queue.resource_groups:
        flavors_with_cells = tuple(
            FlavorWithCells(
                flavor.name,
                flavors.get(flavor.name),
                {
                    resource: cohort_trees.cell(node, FlavorResource(flavor.name, resource))
                    for resource in group.covered_resources
                },
            )
            for flavor in group.flavors
        )
        groups.append(GroupWithCells(group.covered_resources, flavors_with_cells))
    gates = settings.gates
    specs = [flavor.spec for group in groups for flavor in group.flavors if flavor.spec is not None]
    levels = (
        _levels_of(specs, topologies) if settings.placement is not None and topologies is not None else {}
    )
    return FlavorOptions(
        tuple(groups),
        cluster_queue.flavor_fungibility if gates.flavor_fungibility else None,
        ignores_undeclared=settings.resources.ignore_undeclared and gates.quota_check_strategy,
        preempts_while_borrowing=_may_preempt_while_borrowing(
            cluster_queue.preemption, fair=settings.fair_sharing is not None
        ),
        places_pods=settings.placement is not None,
        topologies=levels,
        implies_topology=bool(levels) and len(levels) == len({flavor.name for flavor in specs}),
        placed_later=find_flavors_placed_later(cluster_queue, checks or {}, settings)
        if levels
        else frozenset(),
        placed_elsewhere=bool(levels) and is_placed_elsewhere(cluster_queue, checks or {}, settings),
    )


def _levels_of(flavors: Iterable[ResourceFlavor], topologies: Topologies) -> dict[str, TopologyLevels]:
    return {
        flavor.name: topologies.levels.get(flavor.topology_name)
        for flavor in flavors
        if flavor.topology_name is not None
    }


def _may_preempt_while_borrowing(policy: ClusterQueuePreemption, *, fair: bool) -> bool:
    never = PreemptionPolicy.NEVER
    return policy.borrow_within_cohort.policy is not never or (
        fair and policy.reclaim_within_cohort is not never
    )


# --- options of one request -----------------------------------------------------------------------------


def find_node_refusal(
    pod_sets: Iterable[PodSet], name: str, flavor: ResourceFlavor | None
) -> NodeRefusal | None:
    """Return why the nodes of a flavor cannot hold all of these pods; None if they can."""
    if flavor is None:
        return FlavorNotFound(name)
    labels = dict(flavor.node_labels)
    for pod_set in pod_sets:
        taint = find_untolerated_taint(flavor.node_taints, pod_set.tolerations, flavor.tolerations)
        if taint is not None:
            return UntoleratedTaint(name, taint.key, taint.value, taint.effect)
        if not accepts_nodes(pod_set, labels):
            return NodeAffinityMismatch(name)
    return None


def find_topology_refusal(
    pod_sets: Iterable[PodSet], flavor: str, options: FlavorOptions
) -> TopologyUnsupported | TopologyOnly | TopologyMissing | RequestedLevelMissing | None:
    """Return why the topology of a flavor, or that it has none, refuses podsets; None if it does not.

    Source: semantics, Topology-aware scheduling, Flavor check messages.
    """
    if not options.places_pods:
        return None
    requests = [pod_set.topology_request or NOTHING for pod_set in pod_sets]
    are_requested = any(not request.is_empty for request in requests)
    if flavor not in options.topologies:
        return TopologyUnsupported(flavor) if are_requested else None
    if not (are_requested or options.implies_topology):
        return TopologyOnly(flavor)
    if options.placed_elsewhere:
        return None
    levels = options.topologies[flavor]
    if levels is None:
        return TopologyMissing(flavor)
    requested = {label for request in requests for label in request.labels}
    return None if requested <= set(levels) else RequestedLevelMissing(flavor)


def _unit_options(options: FlavorOptions, unit: Mapping[int, PodSetDemand]) -> UnitOptions:
    covered = {resource for group in options.groups for resource in group.resources}
    requests: list[Amounts] = []
    requested: dict[str, int] = {}
    for demand in unit.values():
        totals = dict(demand.totals)
        if PODS in covered:
            totals[PODS] = min(demand.count, UNLIMITED)
        for resource, amount in totals.items():
            requested[resource] = add(requested.get(resource, 0), amount)
        requests.append(amounts(item for item in totals.items() if item[0] in covered))
    missing = sorted(resource for resource, amount in requested.items() if amount and resource not in covered)
    pod_sets = [demand.pod_set for demand in unit.values()]
    group_options = (_group_options(group, pod_sets, requested, options) for group in options.groups)
    return UnitOptions(
        tuple(unit),
        tuple(pod_set.name for pod_set in pod_sets),
        tuple(demand.count for demand in unit.values()),
        tuple(requests),
        () if options.ignores_undeclared else tuple(map(ResourceNotCovered, missing)),
        tuple(group for group in group_options if group.resources),
    )


def _first_choices(units: Iterable[UnitOptions]) -> tuple[tuple[QuotaDemand, ...], ...] | None:
    usage: dict[FlavorResource, int] = {}
    choices: list[tuple[QuotaDemand, ...]] = []
    for unit in units:
        if unit.uncovered_refusals:
            return None
        for group in unit.groups:
            first = group.flavor_options[0] if group.flavor_options else None
            if first is None or first.refusal is not None:
                return None
            demands: list[QuotaDemand] = []
            for pair, cell, amount in first.demands:
                usage[pair] = add(usage.get(pair, 0), amount)
                demands.append(QuotaDemand(pair, cell, usage[pair]))
            choices.append(tuple(demands))
    return tuple(choices)


def _group_options(
    group: GroupWithCells,
    pod_sets: Collection[PodSet],
    requested: Mapping[str, int],
    options: FlavorOptions,
) -> GroupOptions:
    resources = tuple(sorted(requested.keys() & set(group.resources)))
    return GroupOptions(
        resources,
        tuple(
            FlavorOption(
                flavor.name,
                find_node_refusal(pod_sets, flavor.name, flavor.spec)
                or find_topology_refusal(pod_sets, flavor.name, options)
                or options.refused.get(flavor.name),
                tuple(
                    QuotaDemand(
                        FlavorResource(flavor.name, resource), flavor.cells[resource], requested[resource]
                    )
                    for resource in resources
                ),
            )
            for flavor in group.flavors
        ),
    )
