"""Which flavors a workload gets: podset by podset, resource group by resource group, in order.

All resources of one group that a podset requests take the same flavor; groups are independent, and podsets
of one podset group are assigned together. For each flavor two questions are asked, both as tables of
refusals: may its nodes hold these pods (taints, node selector, affinity), and is there quota for every
resource. What unused quota does not suffice for, preemption may: that is the *oracle*.

A scan that stopped at a flavor it liked remembers the place, so that a workload that then lost the quota
to another goes on with the next flavor; it starts over after the last.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import UNLIMITED, FlavorResource, add
from admitq.core.assignments import AT_HOME, NOTHING, Assignment, Mode, Prospect, TriedFlavor
from admitq.core.instructions import FlavorAttempt
from admitq.core.model import FlavorFungibility, PodSetAssignment
from admitq.core.offers import Candidate, Check, GroupPlan, Offer, Plan, UnitPlan
from admitq.core.quota import Cell
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorNotFound,
    FlavorRefusal,
    InsufficientQuota,
    NodeAffinityMismatch,
    NoFlavorFits,
    PodSetRefusals,
    ResourceNotCovered,
    UntoleratedTaint,
)
from admitq.core.requests import PodSetDemand

ATTEMPT_MODES: Final[Mapping[Mode, str]] = {
    Mode.NO_FIT: "NoFit",
    Mode.NO_PREEMPTION_CANDIDATES: "NoPreemptionCandidates",
    Mode.PREEMPT: "Preempt",
    Mode.RECLAIM: "Reclaim",
    Mode.FIT: "Fit",
}
"""The mode of an attempt as users read it."""


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


_PREFERENCES: Final[Mapping[str | None, Callable[[Prospect], tuple[int, int, int]]]] = {
    None: _mode_then_nearness,
    "BorrowingOverPreemption": _mode_then_nearness,
    "PreemptionOverBorrowing": _nearness_then_mode,
}

_NEVER_TAKEN: Final = (Mode.NO_FIT, Mode.NO_PREEMPTION_CANDIDATES)
_BY_PREEMPTION: Final = (Mode.PREEMPT, Mode.RECLAIM)
_TRY_NEXT: Final = "TryNextFlavor"


def keeps_searching(prospect: Prospect, fungibility: FlavorFungibility | None) -> bool:
    """Whether to look at the next flavor although this one was judged so; by rules, or only for what fits."""
    if fungibility is None:
        return prospect.mode is not Mode.FIT
    return (
        prospect.mode in _NEVER_TAKEN
        or (prospect.mode in _BY_PREEMPTION and fungibility.when_can_preempt == _TRY_NEXT)
        or (prospect.borrow_level > 0 and fungibility.when_can_borrow == _TRY_NEXT)
    )


# --- the aggregated reason why not ----------------------------------------------------------------------

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"

_SEVERITY: Final = (WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)
"""From the least severe: what passes by waiting, what needs other quota, what needs other flavors."""

_SEVEREST: Final = len(_SEVERITY) - 1

_SEVERITY_OF: Final[Mapping[type[FlavorRefusal], int]] = {
    InsufficientQuota: 0,
    ExceedsMaxQuota: 1,
    ResourceNotCovered: _SEVEREST,
    FlavorNotFound: _SEVEREST,
    UntoleratedTaint: _SEVEREST,
    NodeAffinityMismatch: _SEVEREST,
}


# --- one resource group ---------------------------------------------------------------------------------


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


class _Scan:
    """How the flavors of one resource group were looked through."""

    def __init__(self) -> None:
        self.chosen: Candidate | None = None
        self.verdict = _Verdict(NOTHING, Mode.NO_FIT, 0, (), ())
        """Of the chosen one."""
        self.verdicts: list[tuple[Candidate, _Verdict]] = []
        self.stopped_at: int | None = None
        """The flavor at which the scan stopped although there are more."""

    @property
    def refusals(self) -> Iterable[FlavorRefusal]:
        """Why the group does not fit into unused quota."""
        if self.verdict.mode is not Mode.FIT:
            for _, verdict in self.verdicts:
                yield from verdict.refusals

    @property
    def severity(self) -> int:
        """Of a group that found nothing: its most hopeful flavor counts."""
        last_words = (verdict.refusals[-1] for _, verdict in self.verdicts if verdict.refusals)
        return min((_SEVERITY_OF[type(refusal)] for refusal in last_words), default=_SEVEREST)


class _Search:
    """One search for flavors. Usage that the workload itself takes is counted while searching."""

    def __init__(self, offer: Offer, oracle: Oracle) -> None:
        self.offer = offer
        self.oracle = oracle
        fungibility = offer.fungibility
        self.preferred = _mode_alone if fungibility is None else _PREFERENCES[fungibility.preference]
        self.taken: dict[FlavorResource, int] = {}

    def scan(self, group: GroupPlan, start: int, only: str | None) -> _Scan:
        """Look through the flavors of a resource group, or at one only."""
        scan = _Scan()
        last = len(group.candidates) - 1
        index = start if start <= last else 0
        while index <= last:
            candidate = group.candidates[index]
            if only is None or candidate.flavor == only:
                verdict = self._judge(candidate)
                scan.verdicts.append((candidate, verdict))
                prospect = verdict.prospect
                if prospect.mode is not Mode.NO_FIT and (
                    scan.chosen is None or self.preferred(prospect) > self.preferred(scan.verdict.prospect)
                ):
                    scan.chosen, scan.verdict = candidate, verdict
                if not keeps_searching(prospect, self.offer.fungibility):
                    break
            index += 1
        if index < last:
            scan.stopped_at = index
        return scan

    def take(self, candidate: Candidate) -> None:
        """Count what is taken from a flavor."""
        for pair, _, amount in candidate.checks:
            self.taken[pair] = add(self.taken.get(pair, 0), amount)

    def _judge(self, candidate: Candidate) -> _Verdict:
        if candidate.unfit is not None:
            return _Verdict(NOTHING, Mode.NO_FIT, 0, (), (candidate.unfit,))
        worst, mode, level = AT_HOME, Mode.FIT, 0
        contested: list[FlavorResource] = []
        refusals: list[FlavorRefusal] = []
        for check in candidate.checks:
            prospect, refusal = self._ask_quota(check)
            if refusal is not None:
                refusals.append(refusal)
                contested.append(check.pair)
            if prospect.mode is Mode.NO_FIT:
                return _Verdict(NOTHING, Mode.NO_FIT, 0, (), tuple(refusals))
            mode, level = min(mode, prospect.mode), max(level, prospect.borrow_level)
            if self.preferred(prospect) < self.preferred(worst):
                worst = prospect
        return _Verdict(worst, mode, level, tuple(contested), tuple(refusals))

    def _ask_quota(self, check: Check) -> tuple[Prospect, FlavorRefusal | None]:
        """What quota, or preemption, can do for one request, on top of what the workload takes already."""
        pair, cell, amount = check
        previously = self.taken.get(pair, 0)
        value = add(previously, amount)
        free = max(0, quota.available(cell))
        if value <= free and value < UNLIMITED:
            return Prospect(Mode.FIT, quota.borrow_level(cell, value).level), None
        maximum = quota.potential_available(cell)
        if value > maximum or value == UNLIMITED:
            return NOTHING, ExceedsMaxQuota(pair.flavor, pair.resource, previously, amount, maximum)
        short = InsufficientQuota(pair.flavor, pair.resource, value - free)
        if self.offer.always_asks or cell.nominal >= value or quota.borrow_level(cell, value).may_reclaim:
            return self.oracle(PreemptionQuestion(pair, cell, value)), short
        return NOTHING, short


# --- all podsets ----------------------------------------------------------------------------------------


def assign(
    demands: tuple[PodSetDemand, ...],
    offer: Offer,
    *,
    tried: tuple[TriedFlavor, ...] = (),
    oracle: Oracle = nobody_to_preempt,
    restrict_to: tuple[PodSetAssignment, ...] | None = None,
) -> Assignment:
    """Search flavors for all podsets of a workload in one ClusterQueue.

    Args:
        demands: what each podset asks for, in order.
        offer: what the ClusterQueue gives.
        tried: where scans of an earlier attempt are to go on.
        oracle: what preemption could free.
        restrict_to: the assignment to keep to, where only the mode is to be found out anew.
    """
    plan = offer.plan(demands)
    levels = _first_choice_levels(plan, offer) if not tried and restrict_to is None else None
    known = None if levels is None else plan.fitting.get(levels)
    if known is not None:
        return known
    start = {(scan.pod_set, scan.resource): scan.flavor_index + 1 for scan in tried}
    pins = {(part.name, resource): flavor for part in restrict_to or () for resource, flavor in part.flavors}
    assignment = _assign(plan, _Search(offer, oracle), start, pins)
    if levels is not None:
        plan.fitting[levels] = assignment
    return assignment


def as_recorded(recorded: tuple[PodSetAssignment, ...]) -> Assignment:
    """The assignment of a workload that has its quota already: it keeps what was recorded."""
    taken: dict[FlavorResource, int] = {}
    for part in recorded:
        amount_of = dict(part.resource_usage)
        for resource, flavor in part.flavors:
            pair = FlavorResource(flavor, resource)
            taken[pair] = add(taken.get(pair, 0), amount_of.get(resource, 0))
    return Assignment(recorded, _nonzero(taken), Mode.FIT, 0, frozenset(), None, (), ())


def _nonzero(taken: Mapping[FlavorResource, int]) -> tuple[tuple[FlavorResource, int], ...]:
    return tuple((pair, amount) for pair, amount in taken.items() if amount)


def _first_choice_levels(plan: Plan, offer: Offer) -> tuple[int, ...] | None:
    """How far up quota comes from for each group, where everything fits into the first flavors at once."""
    if plan.first is None:
        return None
    levels: list[int] = []
    for checks in plan.first:
        level = 0
        for _, cell, amount in checks:
            if amount > max(0, quota.available(cell)) or amount == UNLIMITED:
                return None
            level = max(level, quota.borrow_level(cell, amount).level)
        if level and keeps_searching(Prospect(Mode.FIT, level), offer.fungibility):
            return None
        levels.append(level)
    return tuple(levels)


class _Outcome:
    """What a search has come to so far."""

    def __init__(self) -> None:
        self.assigned: list[tuple[int, PodSetAssignment]] = []
        self.looked_at: list[tuple[str, Candidate, _Verdict]] = []
        self.tried: list[TriedFlavor] = []
        self.parts: list[PodSetRefusals] = []
        self.contested: set[FlavorResource] = set()
        self.mode = Mode.FIT
        self.borrow_level = 0

    def add(self, unit: UnitPlan, group: GroupPlan, scan: _Scan) -> None:
        """Count a group for which a flavor was found."""
        verdict = scan.verdict
        self.mode = min(self.mode, verdict.mode)
        self.borrow_level = max(self.borrow_level, verdict.borrow_level)
        self.contested.update(verdict.contested)
        self.looked_at.extend((unit.names[0], candidate, each) for candidate, each in scan.verdicts)
        if scan.stopped_at is not None:
            self.tried.append(TriedFlavor(unit.names[0], group.resources[0], scan.stopped_at))

    def attempts(self) -> Iterable[FlavorAttempt]:
        """The flavors that were looked at and not simply taken."""
        for name, candidate, verdict in self.looked_at:
            if verdict.prospect != AT_HOME:
                mode = ATTEMPT_MODES[verdict.prospect.mode]
                yield FlavorAttempt(
                    name, candidate.flavor, mode, verdict.prospect.borrow_level, verdict.refusals
                )

    def refused(self, severity: int) -> Assignment:
        """No flavor for some podset."""
        refusal = NoFlavorFits(tuple(self.parts), _SEVERITY[severity])
        return Assignment((), (), Mode.NO_FIT, 0, frozenset(), refusal, (), tuple(self.tried))

    def accepted(self, taken: Mapping[FlavorResource, int]) -> Assignment:
        """A flavor for everything, though others may have to be preempted for it."""
        fits = self.mode is Mode.FIT
        return Assignment(
            tuple(part for _, part in sorted(self.assigned, key=itemgetter(0))),
            _nonzero(taken),
            self.mode,
            self.borrow_level,
            frozenset(self.contested),
            None if fits else NoFlavorFits(tuple(self.parts), WAITING_FOR_QUOTA),
            tuple(self.attempts()) if fits else (),
            tuple(self.tried),
        )


def _pinned(unit: UnitPlan, group: GroupPlan, pins: Mapping[tuple[str, str], str]) -> str | None:
    """The flavor that podsets were given for a group before."""
    names = (pins.get((name, resource)) for name in unit.names for resource in group.resources)
    return next((name for name in names if name is not None), None)


def _assign(
    plan: Plan, search: _Search, start: Mapping[tuple[str, str], int], pins: Mapping[tuple[str, str], str]
) -> Assignment:
    outcome = _Outcome()
    for unit in plan.units:
        severity = _SEVEREST if unit.uncovered else -1
        refusals: list[FlavorRefusal] = list(unit.uncovered)
        flavor_of: dict[str, str] = {}
        for group in unit.groups:
            begin = start.get((unit.names[0], group.resources[0]), 0)
            scan = search.scan(group, begin, _pinned(unit, group, pins))
            refusals.extend(scan.refusals)
            if scan.chosen is None:
                severity = max(severity, scan.severity)
            elif severity < 0:
                outcome.add(unit, group, scan)
                search.take(scan.chosen)
                flavor_of.update(dict.fromkeys(group.resources, scan.chosen.flavor))
        if refusals or severity >= 0:
            outcome.parts.extend(PodSetRefusals(name, tuple(refusals)) for name in unit.names)
        if severity >= 0:
            return outcome.refused(severity)
        outcome.assigned.extend(unit.assigned(flavor_of))
    return outcome.accepted(search.taken)
