"""Which flavors a workload gets: podset by podset, resource group by resource group, in order.

All resources of one group that a podset requests take the same flavor; groups are independent. For each
flavor two questions are asked, both as tables of refusals: may its nodes hold these pods (taints, node
selector, affinity), and is there quota for every resource. What quota cannot give now, preemption may:
that is the *oracle*, which here answers that there is nobody to preempt.

A scan that stopped at a flavor it liked remembers the place, so that a workload that then lost the quota
to another goes on with the next flavor; it starts over after the last.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import UNLIMITED, FlavorResource, add, amounts
from admitq.core.cohorts import Forest, Node
from admitq.core.instructions import FlavorAttempt
from admitq.core.model import (
    ClusterQueue,
    FlavorFungibility,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
)
from admitq.core.quota import Cell
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorNotFound,
    FlavorRefusal,
    InsufficientQuota,
    NodeAffinityMismatch,
    NoFlavorFits,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import PodSetDemand
from admitq.core.selectors import accepts_nodes, untolerated

PODS: Final = "pods"
"""The resource that every podset requests by its count, where a ClusterQueue gives quota for it."""


class Mode(IntEnum):
    """How a flavor can serve a request, worst first."""

    NO_FIT = 0
    NO_PREEMPTION_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


ATTEMPT_MODES: Final[Mapping[Mode, str]] = {
    Mode.NO_FIT: "NoFit",
    Mode.NO_PREEMPTION_CANDIDATES: "NoPreemptionCandidates",
    Mode.PREEMPT: "Preempt",
    Mode.RECLAIM: "Reclaim",
    Mode.FIT: "Fit",
}
"""The mode of an attempt as users read it."""


class Prospect(NamedTuple):
    """What a flavor offers: a mode, and how far up the tree quota comes from."""

    mode: Mode
    borrow_level: int


class PreemptionQuestion(NamedTuple):
    """What the oracle is asked: whether preemption could free this much of one (flavor, resource)."""

    pair: FlavorResource
    cell: Cell
    amount: int


Oracle = Callable[[PreemptionQuestion], Prospect]
"""Tells what preemption could do where unused quota does not suffice."""


def nobody_to_preempt(question: PreemptionQuestion) -> Prospect:  # noqa: ARG001 an oracle that need not look
    """The oracle of a queue that never preempts."""
    return Prospect(Mode.NO_FIT, 0)


# --- preference and search: one row for each value of the API -----------------------------------------


def _mode_then_nearness(prospect: Prospect) -> tuple[int, int, int]:
    return (prospect.mode, -prospect.borrow_level, 0)


def _nearness_then_mode(prospect: Prospect) -> tuple[int, int, int]:
    usable = min(prospect.mode, Mode.PREEMPT)
    return (usable, -prospect.borrow_level, prospect.mode)


_PREFERENCES: Final[Mapping[str | None, Callable[[Prospect], tuple[int, int, int]]]] = {
    None: _mode_then_nearness,
    "BorrowingOverPreemption": _mode_then_nearness,
    "PreemptionOverBorrowing": _nearness_then_mode,
}

_NEVER_TAKEN: Final = (Mode.NO_FIT, Mode.NO_PREEMPTION_CANDIDATES)
_BY_PREEMPTION: Final = (Mode.PREEMPT, Mode.RECLAIM)
_TRY_NEXT: Final = "TryNextFlavor"


def keeps_searching(prospect: Prospect, fungibility: FlavorFungibility) -> bool:
    """Whether to look at the next flavor although this one was judged so."""
    return (
        prospect.mode in _NEVER_TAKEN
        or (prospect.mode in _BY_PREEMPTION and fungibility.when_can_preempt == _TRY_NEXT)
        or (prospect.borrow_level > 0 and fungibility.when_can_borrow == _TRY_NEXT)
    )


# --- what a ClusterQueue offers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OfferedFlavor:
    """A flavor with the ClusterQueue's quota cell of each resource that it gives."""

    name: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True, eq=False)
class OfferedGroup:
    """The flavors of a resource group, in order of preference."""

    resources: tuple[str, ...]
    flavors: tuple[OfferedFlavor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """All that a ClusterQueue gives, laid out for the search."""

    group_of: Mapping[str, OfferedGroup]
    fungibility: FlavorFungibility


def offer_of(cluster_queue: ClusterQueue, forest: Forest, node: Node) -> Offer:
    """Lay out what a ClusterQueue gives. To be done again when its specification or cohort changes."""
    group_of: dict[str, OfferedGroup] = {}
    for group in cluster_queue.resource_groups:
        flavors = tuple(
            OfferedFlavor(
                flavor.name,
                {
                    resource: forest.cell(node, FlavorResource(flavor.name, resource))
                    for resource in group.covered_resources
                },
            )
            for flavor in group.flavors
        )
        offered = OfferedGroup(group.covered_resources, flavors)
        for resource in group.covered_resources:
            group_of.setdefault(resource, offered)
    return Offer(group_of, cluster_queue.flavor_fungibility)


# --- assignment -----------------------------------------------------------------------------------------


class TriedFlavor(NamedTuple):
    """How far the scan of one resource group got for a podset: the group is named by its first resource."""

    pod_set: str
    resource: str
    flavor_index: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Flavors for every podset, or the refusal of the first podset that none fits."""

    pod_sets: tuple[PodSetAssignment, ...]
    usage: tuple[tuple[FlavorResource, int], ...]
    mode: Mode
    """The worst mode of any podset: with anything but ``FIT`` quota is not to be had without preemption."""
    borrow_level: int
    refusal: NoFlavorFits | None
    attempts: tuple[FlavorAttempt, ...]
    tried: tuple[TriedFlavor, ...]
    """Scans that have flavors left to try."""


class _Search:
    """One search for flavors. Usage that the workload itself takes is counted while searching."""

    def __init__(self, offer: Offer, flavors: Mapping[str, ResourceFlavor], oracle: Oracle) -> None:
        self.offer = offer
        self.flavors = flavors
        self.oracle = oracle
        self.preferred = _PREFERENCES.get(offer.fungibility.preference, _mode_then_nearness)
        self.taken: dict[FlavorResource, int] = {}
        self.attempts: list[FlavorAttempt] = []
        self.tried: list[TriedFlavor] = []

    def judge_quota(
        self, flavor: OfferedFlavor, needs: Iterable[tuple[str, int]]
    ) -> tuple[Prospect, tuple[FlavorRefusal, ...]]:
        """What the flavor's quota can do for the requests: the worst of its resources."""
        worst = Prospect(Mode.FIT, 0)
        refusals: tuple[FlavorRefusal, ...] = ()
        for resource, amount in needs:
            pair = FlavorResource(flavor.name, resource)
            cell = flavor.cells[resource]
            previously = self.taken.get(pair, 0)
            value = add(previously, amount)
            maximum = quota.potential_available(cell)
            if value > maximum:
                refusal = ExceedsMaxQuota(flavor.name, resource, previously, amount, maximum)
                return Prospect(Mode.NO_FIT, 0), (*refusals, refusal)
            free = quota.available(cell)
            if value <= free:
                prospect = Prospect(Mode.FIT, quota.borrow_level(cell, value).level)
            else:
                refusals = (*refusals, InsufficientQuota(flavor.name, resource, value - free))
                prospect = self.oracle(PreemptionQuestion(pair, cell, value))
            if self.preferred(prospect) < self.preferred(worst):
                worst = prospect
            if worst.mode is Mode.NO_FIT:
                break
        return worst, refusals

    def scan(
        self, pod_set: PodSet, group: OfferedGroup, needs: tuple[tuple[str, int], ...], start: int
    ) -> tuple[OfferedFlavor | None, Prospect, tuple[FlavorRefusal, ...]]:
        """The flavor to take for one resource group, what it offers, and why others were not taken."""
        best: OfferedFlavor | None = None
        best_prospect = Prospect(Mode.NO_FIT, 0)
        why_not: list[FlavorRefusal] = []
        last = len(group.flavors) - 1
        index = start if start <= last else 0
        while index <= last:
            flavor = group.flavors[index]
            unfit = unfit_nodes(pod_set, flavor.name, self.flavors)
            prospect, refusals = (
                self.judge_quota(flavor, needs) if unfit is None else (Prospect(Mode.NO_FIT, 0), (unfit,))
            )
            if prospect != (Mode.FIT, 0):
                self.attempts.append(
                    FlavorAttempt(
                        pod_set.name,
                        flavor.name,
                        ATTEMPT_MODES[prospect.mode],
                        prospect.borrow_level,
                        refusals,
                    )
                )
            if prospect.mode is Mode.NO_FIT:
                why_not.extend(refusals)
            elif best is None or self.preferred(prospect) > self.preferred(best_prospect):
                best, best_prospect = flavor, prospect
            if not keeps_searching(prospect, self.offer.fungibility):
                break
            index += 1
        if index < last:
            self.tried.append(TriedFlavor(pod_set.name, needs[0][0], index))
        return best, best_prospect, tuple(why_not)


def unfit_nodes(
    pod_set: PodSet, name: str, flavors: Mapping[str, ResourceFlavor]
) -> FlavorNotFound | UntoleratedTaint | NodeAffinityMismatch | None:
    """Why the flavor's nodes cannot hold these pods, whatever quota there is."""
    flavor = flavors.get(name)
    if flavor is None:
        return FlavorNotFound(name)
    if flavor.node_taints:
        taint = untolerated(flavor.node_taints, pod_set.tolerations, flavor.tolerations)
        if taint is not None:
            return UntoleratedTaint(name, taint.key, taint.value, taint.effect)
    if flavor.node_labels and not accepts_nodes(pod_set, dict(flavor.node_labels)):
        return NodeAffinityMismatch(name)
    return None


# --- the aggregated reason why not ----------------------------------------------------------------------

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"

_SEVERITY: Final = (WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)
"""From the least severe: what passes by waiting, what needs other quota, what needs other flavors."""

_SEVERITY_OF: Final[Mapping[type[FlavorRefusal], int]] = {
    InsufficientQuota: 0,
    ExceedsMaxQuota: 1,
    ResourceNotCovered: 2,
    FlavorNotFound: 2,
    UntoleratedTaint: 2,
    NodeAffinityMismatch: 2,
}


def _severity(group: tuple[FlavorRefusal, ...]) -> int:
    """Severity for one resource group: its most hopeful flavor counts; a flavor's last word decides it."""
    by_flavor: dict[str, int] = {}
    for refusal in group:
        if not isinstance(refusal, ResourceNotCovered):
            by_flavor[refusal.flavor] = _SEVERITY_OF[type(refusal)]
    return min(by_flavor.values(), default=len(_SEVERITY) - 1)


def _needs_by_group(
    demand: PodSetDemand, offer: Offer
) -> tuple[list[tuple[OfferedGroup, tuple[tuple[str, int], ...]]], tuple[FlavorRefusal, ...]]:
    """The podset's requests by resource group, and a refusal for each request that nothing covers."""
    totals = demand.totals
    if PODS in offer.group_of:
        totals = amounts({**dict(totals), PODS: min(demand.count, UNLIMITED)})
    by_group: dict[OfferedGroup, list[tuple[str, int]]] = {}
    uncovered: list[FlavorRefusal] = []
    for resource, amount in totals:
        group = offer.group_of.get(resource)
        if group is not None:
            by_group.setdefault(group, []).append((resource, amount))
        elif amount:
            uncovered.append(ResourceNotCovered(resource))
    return [(group, tuple(needs)) for group, needs in by_group.items()], tuple(uncovered)


def assign(
    demands: Iterable[PodSetDemand],
    offer: Offer,
    flavors: Mapping[str, ResourceFlavor],
    *,
    tried: tuple[TriedFlavor, ...] = (),
    oracle: Oracle = nobody_to_preempt,
) -> Assignment:
    """Search flavors for all podsets of a workload in one ClusterQueue.

    Args:
        demands: what each podset asks for, in order.
        offer: what the ClusterQueue gives.
        flavors: the flavors that exist, by name.
        tried: where scans of an earlier attempt are to go on.
        oracle: what preemption could free.
    """
    search = _Search(offer, flavors, oracle)
    start = {(scan.pod_set, scan.resource): scan.flavor_index + 1 for scan in tried}
    assigned: list[PodSetAssignment] = []
    mode, level = Mode.FIT, 0
    for demand in demands:
        by_group, why_not = _needs_by_group(demand, offer)
        severity = _severity(why_not) if why_not else -1
        flavor_of: dict[str, str] = {}
        usage: dict[str, int] = {}
        for group, needs in by_group:
            key = (demand.pod_set.name, needs[0][0])
            chosen, prospect, group_why_not = search.scan(demand.pod_set, group, needs, start.get(key, 0))
            if chosen is None:
                why_not += group_why_not
                severity = max(severity, _severity(group_why_not))
                continue
            mode, level = min(mode, prospect.mode), max(level, prospect.borrow_level)
            for resource, amount in needs:
                pair = FlavorResource(chosen.name, resource)
                search.taken[pair] = add(search.taken.get(pair, 0), amount)
                flavor_of[resource] = chosen.name
                usage[resource] = amount
        if severity >= 0:
            refusal = NoFlavorFits(demand.pod_set.name, why_not, _SEVERITY[severity])
            return Assignment((), (), Mode.NO_FIT, 0, refusal, tuple(search.attempts), tuple(search.tried))
        assigned.append(
            PodSetAssignment(
                demand.pod_set.name, tuple(sorted(flavor_of.items())), amounts(usage), demand.count
            )
        )
    return Assignment(
        tuple(assigned),
        tuple(search.taken.items()),
        mode,
        level,
        None,
        tuple(search.attempts),
        tuple(search.tried),
    )
