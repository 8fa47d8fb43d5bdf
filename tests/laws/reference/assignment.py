"""Flavor assignment (semantics, Flavor assignment): every search scans the flavors in order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.model import (
    ClusterQueue,
    FlavorFungibility,
    FlavorQuotas,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    SelectorOperator,
    SelectorRequirement,
    Taint,
    Toleration,
)
from admitq.core.settings import CoreSettings
from tests.laws.reference.requests import Demand
from tests.laws.reference.tree import Tree, queue_node

PODS = "pods"


class Mode(IntEnum):
    """How quota can serve a request, the worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Prospect(NamedTuple):
    """A mode and a borrow level."""

    mode: Mode
    level: int


Oracle = Callable[[FlavorResource, int], Prospect]
"""Returns what preemption could do for an amount of one (flavor, resource)."""

Pins = Mapping[tuple[str, str], str]
"""By podset and resource, the only flavor that may be assigned."""

Scan = tuple[str, str]
"""A podset and the first resource that it requests of a resource group."""


@dataclass
class Assignment:
    """Flavors for every podset, if ``mode`` is not ``NO_FIT``."""

    mode: Mode = Mode.FIT
    level: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    flavors: dict[str, dict[str, str]] = field(default_factory=dict)
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    contested: set[FlavorResource] = field(default_factory=set)
    """The (flavor, resource) pairs that need preemption."""
    tried: dict[Scan, int] = field(default_factory=dict)
    """Scans that stopped before the last flavor, with the index of their last flavor."""


# --- preference -----------------------------------------------------------------------------------------


def rank(prospect: Prospect, preference: str | None) -> tuple[int, int, int]:
    """Return how good a prospect is: the greater the better."""
    mode, level = prospect
    if mode is Mode.NO_FIT:
        return (0, 0, 0)
    tier = 1 if mode is Mode.NO_CANDIDATES else 2
    if preference == "PreemptionOverBorrowing":
        return (tier, -level, mode)
    return (tier, mode, -level)


def keeps_searching(prospect: Prospect, fungibility: FlavorFungibility) -> bool:
    """Whether the next flavor is evaluated, too."""
    if prospect.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return True
    if prospect.mode in (Mode.PREEMPT, Mode.RECLAIM) and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return prospect.level > 0 and fungibility.when_can_borrow == "TryNextFlavor"


# --- nodes ----------------------------------------------------------------------------------------------


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value in requirement.values
        case SelectorOperator.NOT_IN:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None
        case SelectorOperator.GREATER_THAN:
            return value is not None and int(value) > int(requirement.values[0])
        case SelectorOperator.LESS_THAN:
            return value is not None and int(value) < int(requirement.values[0])


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def accepts(flavor: ResourceFlavor | None, pod_set: PodSet) -> bool:
    """Whether nodes of the flavor may run the pods, whatever quota there is."""
    if flavor is None:
        return False
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.node_taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            return False
    labels = dict(flavor.node_labels)
    if any(key in labels and labels[key] != value for key, value in pod_set.node_selector):
        return False
    terms = pod_set.required_node_affinity
    if not terms:
        return True
    return any(
        all(_holds(each, labels) for each in term.requirements if each.key in labels) for term in terms
    )


# --- the scan -------------------------------------------------------------------------------------------


@dataclass
class Search:
    """One search for flavors in one ClusterQueue."""

    queue: ClusterQueue
    tree: Tree
    flavors: Mapping[str, ResourceFlavor]
    settings: CoreSettings
    oracle: Oracle

    def assign(
        self,
        demands: Sequence[Demand],
        start: Mapping[Scan, int] | None = None,
        only: Pins | None = None,
    ) -> Assignment:
        """Find flavors for all podsets.

        Args:
            demands: requests of each podset, in order.
            start: index after which a scan continues.
            only: the only flavors that may be assigned.
        """
        result = Assignment()
        for together in self._grouped(demands):
            if not self._assign_group(result, together, start or {}, only):
                result.mode = Mode.NO_FIT
                return result
        return result

    @staticmethod
    def _grouped(demands: Sequence[Demand]) -> list[list[Demand]]:
        """Return podsets of one group together, at the place of the first."""
        groups: dict[str | int, list[Demand]] = {}
        for index, demand in enumerate(demands):
            name = demand.pod_set.group
            groups.setdefault(index if name is None else name, []).append(demand)
        return list(groups.values())

    def _needs(self, demand: Demand) -> dict[str, int]:
        needs = demand.totals()
        covered = {resource for group in self.queue.resource_groups for resource in group.covered_resources}
        if PODS in covered:
            needs[PODS] = demand.count
        return needs

    def _group_of(self, resource: str) -> ResourceGroup | None:
        return next(
            (group for group in self.queue.resource_groups if resource in group.covered_resources), None
        )

    def _assign_group(
        self,
        result: Assignment,
        together: list[Demand],
        start: Mapping[Scan, int],
        only: Pins | None,
    ) -> bool:
        needs: dict[str, int] = {}
        for demand in together:
            for resource, amount in self._needs(demand).items():
                needs[resource] = needs.get(resource, 0) + amount
        ignored = self.settings.resources.ignore_undeclared and self.settings.gates.quota_check_strategy
        for resource in sorted(needs):
            if self._group_of(resource) is None:
                if needs[resource] and not ignored:
                    return False
                del needs[resource]
        chosen: dict[str, str] = {}
        for group in self.queue.resource_groups:
            covered = group.covered_resources
            wanted = {resource: needs[resource] for resource in sorted(needs) if resource in covered}
            if not wanted:
                continue
            flavor = self._scan(result, [demand.pod_set for demand in together], group, wanted, start, only)
            if flavor is None:
                return False
            for resource, amount in wanted.items():
                pair = FlavorResource(flavor, resource)
                result.usage[pair] = result.usage.get(pair, 0) + amount
                chosen[resource] = flavor
        for demand in together:
            own = {name: amount for name, amount in self._needs(demand).items() if name in chosen}
            result.counts[demand.pod_set.name] = demand.count
            result.amounts[demand.pod_set.name] = own
            result.flavors[demand.pod_set.name] = {name: chosen[name] for name in own}
        return True

    def _scan(
        self,
        result: Assignment,
        pod_sets: list[PodSet],
        group: ResourceGroup,
        wanted: dict[str, int],
        start: Mapping[Scan, int],
        only: Pins | None,
    ) -> str | None:
        scan = (pod_sets[0].name, next(iter(wanted)))
        index = start.get(scan, -1) + 1
        if index >= len(group.flavors):
            index = 0
        best: tuple[Prospect, FlavorQuotas, dict[str, Prospect]] | None = None
        while index < len(group.flavors):
            flavor = group.flavors[index]
            prospects = self._judge(result, pod_sets, flavor, wanted, only)
            prospect = min(prospects.values(), key=self._rank)
            if prospect.mode is not Mode.NO_FIT and (
                best is None or self._rank(prospect) > self._rank(best[0])
            ):
                best = (prospect, flavor, prospects)
            if not self._goes_on(prospect):
                break
            index += 1
        if index < len(group.flavors) - 1:
            result.tried[scan] = index
        if best is None:
            return None
        _, flavor, prospects = best
        for resource, (mode, level) in prospects.items():
            result.mode = min(result.mode, mode)
            result.level = max(result.level, level)
            if mode is not Mode.FIT:
                result.contested.add(FlavorResource(flavor.name, resource))
        return flavor.name

    def _rank(self, prospect: Prospect) -> tuple[int, int, int]:
        if not self.settings.gates.flavor_fungibility:
            return (prospect.mode, 0, 0)
        return rank(prospect, self.queue.flavor_fungibility.preference)

    def _goes_on(self, prospect: Prospect) -> bool:
        if not self.settings.gates.flavor_fungibility:
            return prospect.mode is not Mode.FIT
        return keeps_searching(prospect, self.queue.flavor_fungibility)

    def _judge(
        self,
        result: Assignment,
        pod_sets: list[PodSet],
        flavor: FlavorQuotas,
        wanted: dict[str, int],
        only: Pins | None,
    ) -> dict[str, Prospect]:
        """Return the prospect of each resource in one flavor."""
        no_fit = dict.fromkeys(wanted, Prospect(Mode.NO_FIT, 0))
        if not all(accepts(self.flavors.get(flavor.name), pod_set) for pod_set in pod_sets):
            return no_fit
        prospects: dict[str, Prospect] = {}
        for resource, amount in wanted.items():
            pins = {(only or {}).get((pod_set.name, resource), flavor.name) for pod_set in pod_sets}
            if pins != {flavor.name}:
                return no_fit
            pair = FlavorResource(flavor.name, resource)
            prospects[resource] = self._quota(pair, result.usage.get(pair, 0) + amount)
            if prospects[resource].mode is Mode.NO_FIT:
                return no_fit
        return prospects

    def _quota(self, pair: FlavorResource, amount: int) -> Prospect:
        tree, name = self.tree, self.queue.name
        node = queue_node(name)
        if amount > tree.potential(node, pair):
            return Prospect(Mode.NO_FIT, 0)
        level = tree.level(name, pair, amount)
        if amount <= max(0, tree.available(node, pair)):
            return Prospect(Mode.FIT, level.level)
        policy = self.queue.preemption
        reclaims_fairly = self.settings.fair_sharing is not None and policy.reclaim_within_cohort != "Never"
        if (
            tree.nominal(node, pair) >= amount
            or level.may_reclaim
            or policy.borrow_within_cohort.policy != "Never"
            or reclaims_fairly
        ):
            return self.oracle(pair, amount)
        return Prospect(Mode.NO_FIT, 0)
