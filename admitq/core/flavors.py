"""Which flavors a workload gets: podset by podset, resource group by resource group, in order.

All resources of one group that a podset requests take the same flavor; groups are independent, and podsets
of one podset group are assigned together. For each flavor two questions are asked, both as tables of
refusals: may its nodes hold these pods (taints, node selector, affinity), and is there quota for every
resource. What unused quota does not suffice for, preemption may: that is the *oracle*.

A scan that stopped at a flavor it liked remembers the place, so that a workload that then lost the quota
to another goes on with the next flavor; it starts over after the last.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import UNLIMITED, FlavorResource, add
from admitq.core.assignments import AT_HOME, NOTHING, Assignment, Prospect, TriedFlavor
from admitq.core.instructions import FlavorAttempt, Mode
from admitq.core.model import (
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    PodSetAssignment,
)
from admitq.core.offers import Candidate, Check, GroupPlan, Offer, Plan, UnitPlan
from admitq.core.quota import Cell
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorNotFound,
    FlavorRefusal,
    InsufficientQuota,
    NodeAffinityMismatch,
    NoFitReason,
    NoFlavorFits,
    OriginalHasOther,
    PodSetRefusals,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import PodSetDemand


class PreemptionQuestion(NamedTuple):
    """What the oracle is asked: whether preemption could free this much of one (flavor, resource)."""

    pair: FlavorResource
    cell: Cell
    amount: int


Oracle = Callable[[PreemptionQuestion], Prospect]
"""Tells what preemption could do where unused quota does not suffice."""


def nobody_to_preempt(question: PreemptionQuestion) -> Prospect:
    """The oracle of a queue that never preempts."""
    level = quota.borrow_level(question.cell, question.amount).level
    return Prospect(Mode.NO_PREEMPTION_CANDIDATES, level)


# --- preference and search: one row for each value of the API -----------------------------------------


def _mode_then_nearness(prospect: Prospect) -> tuple[int, int, int]:
    return (prospect.mode, -prospect.borrow_level, 0)


def _nearness_then_mode(prospect: Prospect) -> tuple[int, int, int]:
    usable = min(prospect.mode, Mode.PREEMPT)
    return (usable, -prospect.borrow_level, prospect.mode)


def _mode_alone(prospect: Prospect) -> tuple[int, int, int]:
    return (prospect.mode, 0, 0)


_PREFERENCES: Final[Mapping[FlavorFungibilityPreference, Callable[[Prospect], tuple[int, int, int]]]] = {
    FlavorFungibilityPreference.BORROWING_OVER_PREEMPTION: _mode_then_nearness,
    FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING: _nearness_then_mode,
}

_NEVER_TAKEN: Final = (Mode.NO_FIT, Mode.NO_PREEMPTION_CANDIDATES)
_BY_PREEMPTION: Final = (Mode.PREEMPT, Mode.RECLAIM)
_TRY_NEXT: Final = FlavorFungibilityPolicy.TRY_NEXT_FLAVOR


def keeps_searching(prospect: Prospect, fungibility: FlavorFungibility | None) -> bool:
    """Whether to look at the next flavor although this one was judged so; by rules, or only for what fits."""
    if fungibility is None:
        return prospect.mode is not Mode.FIT
    return (
        prospect.mode in _NEVER_TAKEN
        or (prospect.mode in _BY_PREEMPTION and fungibility.when_can_preempt is _TRY_NEXT)
        or (prospect.borrow_level > 0 and fungibility.when_can_borrow is _TRY_NEXT)
    )


# --- the aggregated reason why not ----------------------------------------------------------------------

_SEVERITY: Final = tuple(NoFitReason)

_SEVEREST: Final = len(_SEVERITY) - 1

_SEVERITY_OF: Final[Mapping[type[FlavorRefusal], int]] = {
    InsufficientQuota: 0,
    ExceedsMaxQuota: 1,
    ResourceNotCovered: _SEVEREST,
    FlavorNotFound: _SEVEREST,
    UntoleratedTaint: _SEVEREST,
    NodeAffinityMismatch: _SEVEREST,
    OriginalHasOther: _SEVEREST,
}


# --- one flavor -----------------------------------------------------------------------------------------


class _Verdict(NamedTuple):
    """What one flavor offers.

    ``prospect`` is its worst resource by preference, as which it competes with other flavors; ``mode`` and
    ``borrow_level`` are the worst of any resource. The last refusal is the one that decided.
    """

    prospect: Prospect
    mode: Mode
    borrow_level: int
    contested: tuple[FlavorResource, ...]
    refusals: tuple[FlavorRefusal, ...]


_UNTRIED: Final = _Verdict(NOTHING, Mode.NO_FIT, 0, (), ())

Taken = dict[FlavorResource, int]
"""What podsets before this one, of the same workload, take."""


def _judge(candidate: Candidate, taken: Taken, offer: Offer, oracle: Oracle) -> _Verdict:
    """What quota, or preemption, can do for everything that is asked of a flavor."""
    if candidate.unfit is not None:
        return _Verdict(NOTHING, Mode.NO_FIT, 0, (), (candidate.unfit,))
    worst, mode, level = AT_HOME, Mode.FIT, 0
    contested: tuple[FlavorResource, ...] = ()
    refusals: tuple[FlavorRefusal, ...] = ()
    for check in candidate.checks:
        pair, cell, amount = check
        previously = taken.get(pair, 0)
        value = add(previously, amount)
        free = max(0, quota.available(cell))
        if value <= free and value != UNLIMITED:
            near = quota.borrow_level(cell, value).level
            prospect = Prospect(Mode.FIT, near) if near else AT_HOME
        else:
            prospect, refusal = _short_of(check, previously, free, offer, oracle)
            refusals = (*refusals, refusal)
            if prospect.mode is Mode.NO_FIT:
                return _Verdict(NOTHING, Mode.NO_FIT, 0, (), refusals)
            contested = (*contested, pair)
        if prospect is not AT_HOME:
            mode, level = min(mode, prospect.mode), max(level, prospect.borrow_level)
            worst = min(worst, prospect, key=_preference(offer))
    return _Verdict(worst, mode, level, contested, refusals)


def _short_of(
    check: Check, previously: int, free: int, offer: Offer, oracle: Oracle
) -> tuple[Prospect, FlavorRefusal]:
    """What preemption can do where unused quota does not suffice for all that the workload is to take."""
    pair, cell, amount = check
    value = add(previously, amount)
    maximum = quota.potential_available(cell)
    if value > maximum or value == UNLIMITED:
        return NOTHING, ExceedsMaxQuota(pair.flavor, pair.resource, previously, amount, maximum)
    refusal = InsufficientQuota(pair.flavor, pair.resource, value - free)
    if offer.always_asks or cell.nominal >= value or quota.borrow_level(cell, value).may_reclaim:
        return oracle(PreemptionQuestion(pair, cell, value)), refusal
    return NOTHING, refusal


def _preference(offer: Offer) -> Callable[[Prospect], tuple[int, int, int]]:
    if offer.fungibility is None:
        return _mode_alone
    preference = offer.fungibility.preference
    return _mode_then_nearness if preference is None else _PREFERENCES[preference]


# --- one resource group ---------------------------------------------------------------------------------


class _Scan(NamedTuple):
    """How the flavors of one resource group were looked through.

    ``stopped_at`` is the flavor at which the scan stopped although there are more.
    """

    chosen: Candidate | None
    verdict: _Verdict
    verdicts: tuple[tuple[str, _Verdict], ...]
    stopped_at: int | None

    def severity(self) -> int:
        """Of a group that found nothing: its most hopeful flavor counts."""
        last_words = [_SEVERITY_OF[type(verdict.refusals[-1])] for _, verdict in self.verdicts]
        return min(last_words, default=_SEVEREST)


class _Pins(NamedTuple):
    """The flavors that podsets were given before, and whether others are refused or passed over."""

    flavors: Mapping["_Group", str]
    refuses_others: bool


def _scan(
    group: GroupPlan,
    begin: int,
    only: str | None,
    judge: Callable[[Candidate], _Verdict],
    offer: Offer,
    *,
    refuses_others: bool,
) -> _Scan:
    """Look through the flavors of a resource group from a place on, or at one only."""
    chosen: Candidate | None = None
    best = _UNTRIED
    verdicts: list[tuple[str, _Verdict]] = []
    last = len(group.candidates) - 1
    index = begin if begin <= last else 0
    while index <= last:
        candidate = group.candidates[index]
        if only is None or candidate.flavor == only:
            verdict = judge(candidate)
            verdicts.append((candidate.flavor, verdict))
            if verdict.mode is not Mode.NO_FIT:
                preferred = _preference(offer)
                if chosen is None or preferred(verdict.prospect) > preferred(best.prospect):
                    chosen, best = candidate, verdict
                if not keeps_searching(verdict.prospect, offer.fungibility):
                    break
        elif refuses_others:
            refusal = OriginalHasOther(candidate.flavor, only)
            verdicts.append((candidate.flavor, _Verdict(NOTHING, Mode.NO_FIT, 0, (), (refusal,))))
        index += 1
    return _Scan(chosen, best, tuple(verdicts), index if index < last else None)


# --- all podsets ----------------------------------------------------------------------------------------


def assign(
    demands: tuple[PodSetDemand, ...],
    offer: Offer,
    *,
    tried: tuple[TriedFlavor, ...] = (),
    oracle: Oracle = nobody_to_preempt,
    restrict_to: tuple[PodSetAssignment, ...] | None = None,
    original: tuple[PodSetAssignment, ...] | None = None,
) -> Assignment:
    """Search flavors for all podsets of a workload in one ClusterQueue.

    Args:
        demands: what each podset asks for, in order.
        offer: what the ClusterQueue gives.
        tried: where scans of an earlier attempt are to go on.
        oracle: what preemption could free.
        restrict_to: the assignment to keep to, where only the mode is to be found out anew.
        original: the assignment of the workload that this one replaces: other flavors are refused.
    """
    plan = offer.plan(demands)
    is_free = restrict_to is None and original is None
    levels = _first_choice_levels(plan, offer) if not tried and is_free else None
    known = None if levels is None else plan.fitting.get(levels)
    if known is not None:
        return known
    outlook = plan.outlook if oracle is nobody_to_preempt and not tried and is_free else None
    if outlook is not None and levels is None:
        known = plan.refused.get(outlook)
        if known is not None:
            return known
    start = {(scan.pod_set, scan.resource): scan.flavor_index + 1 for scan in tried}
    kept = restrict_to or original or ()
    flavors = {(part.name, resource): flavor for part in kept for resource, flavor in part.flavors}
    pins = _Pins(flavors, refuses_others=restrict_to is None)
    assignment = _search(plan, offer, oracle, start, pins)
    if levels is not None:
        plan.fitting[levels] = assignment
    elif outlook is not None:
        plan.remember(outlook, assignment)
    return assignment


def _first_choice_levels(plan: Plan, offer: Offer) -> tuple[int, ...] | None:
    """How far up quota comes from for each group, where everything fits into the first flavors at once."""
    if plan.first is None:
        return None
    levels: list[int] = []
    for checks in plan.first:
        level = 0
        for _, cell, amount in checks:
            if amount and (amount > quota.available(cell) or amount == UNLIMITED):
                return None
            level = max(level, quota.borrow_level(cell, amount).level)
        if level and keeps_searching(Prospect(Mode.FIT, level), offer.fungibility):
            return None
        levels.append(level)
    return tuple(levels)


_Group = tuple[str, str]
"""A resource group as podsets ask for it, named by their first and by the first resource."""


def _pinned(unit: UnitPlan, group: GroupPlan, pins: Mapping[_Group, str]) -> str | None:
    """The flavor that podsets were given for a group before."""
    names = (pins.get((name, resource)) for name in unit.names for resource in group.resources)
    return next((name for name in names if name is not None), None)


def _search(plan: Plan, offer: Offer, oracle: Oracle, start: Mapping[_Group, int], pins: _Pins) -> Assignment:
    taken: Taken = {}
    scans: list[tuple[_Group, _Scan]] = []
    parts: list[PodSetRefusals] = []

    def judge(candidate: Candidate) -> _Verdict:
        return _judge(candidate, taken, offer, oracle)

    for unit in plan.units:
        severity = _SEVEREST if unit.uncovered else -1
        refusals: list[FlavorRefusal] = [*unit.uncovered]
        for group in unit.groups:
            key = (unit.names[0], group.resources[0])
            only = _pinned(unit, group, pins.flavors) if pins.flavors else None
            begin = start.get(key, 0)
            scan = _scan(group, begin, only, judge, offer, refuses_others=pins.refuses_others)
            if scan.verdict.mode is not Mode.FIT:
                for _, verdict in scan.verdicts:
                    refusals += verdict.refusals
            if scan.chosen is None:
                severity = max(severity, scan.severity())
            elif severity < 0:
                scans.append((key, scan))
                for pair, _, amount in scan.chosen.checks:
                    taken[pair] = add(taken.get(pair, 0), amount)
        if refusals or severity >= 0:
            parts += [PodSetRefusals(name, tuple(refusals)) for name in unit.names]
        if severity >= 0:
            refusal = NoFlavorFits(tuple(parts), _SEVERITY[severity])
            level = _borrow_level(scans)
            return Assignment((), (), Mode.NO_FIT, level, frozenset(), refusal, (), _tried(scans))
    return _assignment(plan, scans, parts)


def _assignment(plan: Plan, scans: list[tuple[_Group, _Scan]], parts: list[PodSetRefusals]) -> Assignment:
    """A flavor for everything, though others may have to be preempted for it."""
    choice = plan.choose(tuple([scan.chosen for _, scan in scans if scan.chosen is not None]))
    verdicts = [scan.verdict for _, scan in scans]
    mode = min([verdict.mode for verdict in verdicts], default=Mode.FIT)
    fits = mode is Mode.FIT
    return Assignment(
        *choice,
        mode,
        _borrow_level(scans),
        frozenset([pair for verdict in verdicts for pair in verdict.contested]),
        None if fits else NoFlavorFits(tuple(parts), NoFitReason.WAITING_FOR_QUOTA),
        tuple(_attempts(scans)) if fits else (),
        _tried(scans),
    )


def _borrow_level(scans: Iterable[tuple[_Group, _Scan]]) -> int:
    return max([scan.verdict.borrow_level for _, scan in scans], default=0)


def _tried(scans: Iterable[tuple[_Group, _Scan]]) -> tuple[TriedFlavor, ...]:
    return tuple(TriedFlavor(*group, scan.stopped_at) for group, scan in scans if scan.stopped_at is not None)


def _attempts(scans: Iterable[tuple[_Group, _Scan]]) -> Iterable[FlavorAttempt]:
    """The flavors that were looked at and not simply taken."""
    for (pod_set, _), scan in scans:
        for flavor, verdict in scan.verdicts:
            prospect = verdict.prospect
            if prospect != AT_HOME:
                yield FlavorAttempt(pod_set, flavor, prospect.mode, prospect.borrow_level, verdict.refusals)
