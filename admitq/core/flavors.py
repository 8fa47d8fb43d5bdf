"""The search for the flavors of a workload: unit by unit, resource group by resource group, in order.

A *unit* is the podsets of one podset group, or one podset without such a group. A unit gets one flavor for
all resources of a resource group that it requests. Its resource groups are independent of each other. A
*demand* (``QuotaDemand``) is an amount of one resource that a unit requests from a flavor. The demand names
its *pair* (flavor, resource), and its *cell*: the quota and usage of this pair in the ClusterQueue.

A flavor is refused if its nodes cannot hold the pods (taints, node selector, affinity), or if the request
exceeds all quota that the ClusterQueue may use, borrowed quota included. If the request is within this
maximum but exceeds the unused quota, the *oracle* answers what preemption could achieve. The oracle is a
function, which the caller passes.

One call of ``assign`` is one attempt of a scan. The result says, for each resource group, at which flavor the
attempt stopped, if flavors are left after that one. If the workload then loses the quota to another workload,
the next attempt continues with the next flavor. When no flavors are left, the next attempt starts with the
first flavor.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from admitq.core import quota
from admitq.core.amounts import UNLIMITED, FlavorResource, add
from admitq.core.assignments import FITS_WITHOUT_BORROWING, NO_FIT, Assignment, FlavorFit, ScanStop
from admitq.core.flavor_options import (
    FlavorOption,
    FlavorOptions,
    GroupOptions,
    QuotaDemand,
    RequestOptions,
    UnitOptions,
)
from admitq.core.instructions import ConsideredFlavor, FitMode
from admitq.core.model import (
    FlavorFungibility,
    FlavorFungibilityPolicy,
    FlavorFungibilityPreference,
    PodSetAssignment,
)
from admitq.core.quota import Cell
from admitq.core.refusals import (
    ExceedsMaxQuota,
    FlavorNotFound,
    FlavorRefusal,
    InsufficientQuota,
    NodeAffinityMismatch,
    NoFitReason,
    NoFlavorFits,
    OriginalHasOtherFlavor,
    PodSetRefusals,
    RequestedLevelMissing,
    ResourceNotCovered,
    TopologyMissing,
    TopologyOnly,
    TopologyUnsupported,
    UntoleratedTaint,
)
from admitq.core.requests import PodSetDemand


class PreemptionQuestion(NamedTuple):
    """A question to the oracle: whether preemption could make quota available for this amount of a pair.

    The amount is the whole amount that the workload needs of the pair, not only the missing part.
    """

    pair: FlavorResource
    cell: Cell
    amount: int


Oracle = Callable[[PreemptionQuestion], FlavorFit]
"""Returns how the amount fits with preemption: the mode, and the borrow level."""


def answer_without_preemption(question: PreemptionQuestion) -> FlavorFit:
    """Answer a question to the oracle for a ClusterQueue that never preempts."""
    level = quota.borrow_level(question.cell, question.amount).level
    return FlavorFit(FitMode.NO_PREEMPTION_CANDIDATES, level)


# --- which of two flavors is better, and when the search stops ------------------------------------------

# These functions return sort keys: of two flavors, the one with the greater key is better.


def _by_mode_then_level(fit: FlavorFit) -> tuple[int, int, int]:
    return (fit.mode, -fit.borrow_level, 0)


def _by_level_then_mode(fit: FlavorFit) -> tuple[int, int, int]:
    # PREEMPT and all better modes count as equal. The borrow level decides between them, then the mode.
    capped_mode = min(fit.mode, FitMode.PREEMPT)
    return (capped_mode, -fit.borrow_level, fit.mode)


def _by_mode(fit: FlavorFit) -> tuple[int, int, int]:
    return (fit.mode, 0, 0)


_PREFERENCES: Final[Mapping[FlavorFungibilityPreference, Callable[[FlavorFit], tuple[int, int, int]]]] = {
    FlavorFungibilityPreference.BORROWING_OVER_PREEMPTION: _by_mode_then_level,
    FlavorFungibilityPreference.PREEMPTION_OVER_BORROWING: _by_level_then_mode,
}

_NOT_USABLE_NOW: Final = (FitMode.NO_FIT, FitMode.NO_PREEMPTION_CANDIDATES)
_NEED_PREEMPTION: Final = (FitMode.PREEMPT, FitMode.RECLAIM)
_TRY_NEXT: Final = FlavorFungibilityPolicy.TRY_NEXT_FLAVOR


def should_try_next_flavor(fit: FlavorFit, fungibility: FlavorFungibility | None) -> bool:
    """Whether the search of a resource group continues with the next flavor.

    Args:
        fit: mode and borrow level of the present flavor, for the resource that fits worst.
        fungibility: the rules of the ClusterQueue. If they are None, the search stops only at a flavor that
            fits without preemption.
    """
    if fungibility is None:
        return fit.mode is not FitMode.FIT
    return (
        fit.mode in _NOT_USABLE_NOW
        or (fit.mode in _NEED_PREEMPTION and fungibility.when_can_preempt is _TRY_NEXT)
        or (fit.borrow_level > 0 and fungibility.when_can_borrow is _TRY_NEXT)
    )


# --- severity of refusals -------------------------------------------------------------------------------

# A severity is an index of this tuple. Reasons come in order, from the least severe to the most severe.
_REASONS_BY_SEVERITY: Final = tuple(NoFitReason)

_SEVEREST: Final = len(_REASONS_BY_SEVERITY) - 1

_SEVERITY_OF: Final[Mapping[type[FlavorRefusal], int]] = {
    InsufficientQuota: _REASONS_BY_SEVERITY.index(NoFitReason.WAITING_FOR_QUOTA),
    ExceedsMaxQuota: _REASONS_BY_SEVERITY.index(NoFitReason.EXCEEDS_MAX_QUOTA),
    ResourceNotCovered: _SEVEREST,
    FlavorNotFound: _SEVEREST,
    UntoleratedTaint: _SEVEREST,
    NodeAffinityMismatch: _SEVEREST,
    OriginalHasOtherFlavor: _SEVEREST,
    TopologyUnsupported: _SEVEREST,
    TopologyOnly: _SEVEREST,
    TopologyMissing: _SEVEREST,
    RequestedLevelMissing: _SEVEREST,
}


# --- one flavor -----------------------------------------------------------------------------------------


class _FlavorResult(NamedTuple):
    """The result of one flavor.

    Attributes:
        worst_fit: mode and borrow level of the resource that fits worst. The preference of the ClusterQueue
            decides which fit is worse. Flavors are compared by this value.
        mode: the worst mode of all resources.
        borrow_level: the highest borrow level of all resources. The resource with this level is not always
            the resource with the worst mode.
        contested: the pairs that do not fit into unused quota.
        refusals: why the flavor is refused, or why resources do not fit into unused quota. The last refusal
            gives the severity of the flavor.
    """

    worst_fit: FlavorFit
    mode: FitMode
    borrow_level: int
    contested: tuple[FlavorResource, ...]
    refusals: tuple[FlavorRefusal, ...]


_NO_FLAVOR_CHOSEN: Final = _FlavorResult(NO_FIT, FitMode.NO_FIT, 0, (), ())

_PriorUsage = dict[FlavorResource, int]
"""The usage of the units that were assigned earlier in this search."""


def _evaluate_flavor(
    flavor_option: FlavorOption, prior_usage: _PriorUsage, options: FlavorOptions, oracle: Oracle
) -> _FlavorResult:
    """Return how a flavor fits the requests of a unit in one resource group."""
    if flavor_option.refusal is not None:
        return _FlavorResult(NO_FIT, FitMode.NO_FIT, 0, (), (flavor_option.refusal,))
    worst_fit, mode, level = FITS_WITHOUT_BORROWING, FitMode.FIT, 0
    contested: tuple[FlavorResource, ...] = ()
    refusals: tuple[FlavorRefusal, ...] = ()
    for demand in flavor_option.demands:
        pair, cell, amount = demand
        prior_amount = prior_usage.get(pair, 0)
        total = add(prior_amount, amount)
        free = max(0, quota.available(cell))
        # A request that int64 cannot hold is stored as UNLIMITED. It never fits, even into unlimited quota.
        if total <= free and total != UNLIMITED:
            fit_level = quota.borrow_level(cell, total).level
            fit = FlavorFit(FitMode.FIT, fit_level) if fit_level else FITS_WITHOUT_BORROWING
        else:
            fit, refusal = _evaluate_shortage(demand, prior_amount, free, options, oracle)
            refusals = (*refusals, refusal)
            if fit.mode is FitMode.NO_FIT:
                return _FlavorResult(NO_FIT, FitMode.NO_FIT, 0, (), refusals)
            contested = (*contested, pair)
        if fit is not FITS_WITHOUT_BORROWING:
            mode, level = min(mode, fit.mode), max(level, fit.borrow_level)
            worst_fit = min(worst_fit, fit, key=_preference(options))
    return _FlavorResult(worst_fit, mode, level, contested, refusals)


def _evaluate_shortage(
    demand: QuotaDemand, prior_amount: int, free: int, options: FlavorOptions, oracle: Oracle
) -> tuple[FlavorFit, FlavorRefusal]:
    """Return how a demand beyond the unused quota fits with preemption, and the refusal to report."""
    pair, cell, amount = demand
    total = add(prior_amount, amount)
    maximum = quota.potential_available(cell)
    if total > maximum or total == UNLIMITED:
        return NO_FIT, ExceedsMaxQuota(pair.flavor, pair.resource, prior_amount, amount, maximum)
    refusal = InsufficientQuota(pair.flavor, pair.resource, total - free)
    if (
        options.preempts_while_borrowing
        or cell.nominal >= total
        or quota.borrow_level(cell, total).may_reclaim
    ):
        return oracle(PreemptionQuestion(pair, cell, total)), refusal
    return NO_FIT, refusal


def _preference(options: FlavorOptions) -> Callable[[FlavorFit], tuple[int, int, int]]:
    if options.fungibility is None:
        return _by_mode
    preference = options.fungibility.preference
    return _by_mode_then_level if preference is None else _PREFERENCES[preference]


# --- one resource group ---------------------------------------------------------------------------------


class _GroupResult(NamedTuple):
    """The result of the search of one resource group.

    Attributes:
        chosen: the best flavor for the unit; None if all flavors have mode NO_FIT.
        best_result: the result of the chosen flavor.
        flavor_results: the results of all flavors that were evaluated or refused, by name.
        stopped_at: the index of the flavor at which the search stopped; None if no flavors are left after it.
    """

    chosen: FlavorOption | None
    best_result: _FlavorResult
    flavor_results: tuple[tuple[str, _FlavorResult], ...]
    stopped_at: int | None

    def severity(self) -> int:
        """Return the severity of the flavor that comes closest to fitting.

        Call this method only for groups without a chosen flavor.
        """
        severities = [_SEVERITY_OF[type(result.refusals[-1])] for _, result in self.flavor_results]
        return min(severities, default=_SEVEREST)


class _RequiredFlavors(NamedTuple):
    """The flavors that podsets must get.

    If ``refuses_others`` is True, the result has a refusal for each other flavor. If it is False, other
    flavors are skipped without a refusal.
    """

    flavors: Mapping["_PodSetResource", str]
    refuses_others: bool


def _search_group(
    group: GroupOptions,
    start: int,
    required_flavor: str | None,
    evaluate: Callable[[FlavorOption], _FlavorResult],
    options: FlavorOptions,
    *,
    refuses_others: bool,
) -> _GroupResult:
    """Search a flavor for one resource group, in order from index ``start`` on.

    If a flavor is required, evaluate only that one.
    """
    chosen: FlavorOption | None = None
    best = _NO_FLAVOR_CHOSEN
    flavor_results: list[tuple[str, _FlavorResult]] = []
    last = len(group.flavor_options) - 1
    index = start if start <= last else 0
    while index <= last:
        flavor_option = group.flavor_options[index]
        if required_flavor is None or flavor_option.flavor == required_flavor:
            result = evaluate(flavor_option)
            flavor_results.append((flavor_option.flavor, result))
            if result.mode is not FitMode.NO_FIT:
                preferred = _preference(options)
                if chosen is None or preferred(result.worst_fit) > preferred(best.worst_fit):
                    chosen, best = flavor_option, result
                if not should_try_next_flavor(result.worst_fit, options.fungibility):
                    break
        elif refuses_others:
            refusal = OriginalHasOtherFlavor(flavor_option.flavor, required_flavor)
            flavor_results.append(
                (flavor_option.flavor, _FlavorResult(NO_FIT, FitMode.NO_FIT, 0, (), (refusal,)))
            )
        index += 1
    return _GroupResult(chosen, best, tuple(flavor_results), index if index < last else None)


# --- all podsets ----------------------------------------------------------------------------------------


def assign(
    demands: tuple[PodSetDemand, ...],
    options: FlavorOptions,
    *,
    scan_stops: tuple[ScanStop, ...] = (),
    oracle: Oracle = answer_without_preemption,
    restrict_to: tuple[PodSetAssignment, ...] | None = None,
    original: tuple[PodSetAssignment, ...] | None = None,
) -> Assignment:
    """Search flavors for all podsets of a workload in one ClusterQueue.

    Args:
        demands: what each podset requests, in order.
        options: the flavors of the ClusterQueue.
        scan_stops: the flavors at which the previous attempt of the scan stopped. The search continues after
            them.
        oracle: answers what preemption could achieve.
        restrict_to: podsets with the flavors that they must keep. The search considers no other flavor. It
            finds out whether these flavors fit now, or with preemption.
        original: the podsets of the workload that this workload replaces, with their flavors; None if it
            replaces none. The search refuses all other flavors.
    """
    request_options = options.options_for(demands)
    is_unrestricted = restrict_to is None and original is None
    levels = _first_choice_levels(request_options, options) if not scan_stops and is_unrestricted else None
    cached = None if levels is None else request_options.cached_fits.get(levels)
    if cached is not None:
        return cached
    refusal_cache_key = (
        request_options.quota_situation
        if oracle is answer_without_preemption and not scan_stops and is_unrestricted
        else None
    )
    if refusal_cache_key is not None and levels is None:
        cached = request_options.cached_refusals.get(refusal_cache_key)
        if cached is not None:
            return cached
    start_indexes = {(stop.pod_set, stop.resource): stop.flavor_index + 1 for stop in scan_stops}
    given = restrict_to or original or ()
    flavors = {(pod_set.name, resource): flavor for pod_set in given for resource, flavor in pod_set.flavors}
    required = _RequiredFlavors(flavors, refuses_others=restrict_to is None)
    assignment = _search(request_options, options, oracle, start_indexes, required)
    if levels is not None:
        request_options.cached_fits[levels] = assignment
    elif refusal_cache_key is not None:
        request_options.cache_refusal(refusal_cache_key, assignment)
    return assignment


def _first_choice_levels(request_options: RequestOptions, options: FlavorOptions) -> tuple[int, ...] | None:
    """Return the borrow level of each resource group of each unit, if each gets the first flavor of its list.

    Return None if a request does not fit into the first flavor, or if the search continues after this flavor.
    """
    if request_options.first is None:
        return None
    levels: list[int] = []
    for demands in request_options.first:
        level = 0
        for _, cell, amount in demands:
            if amount and (amount > quota.available(cell) or amount == UNLIMITED):
                return None
            level = max(level, quota.borrow_level(cell, amount).level)
        if level and should_try_next_flavor(FlavorFit(FitMode.FIT, level), options.fungibility):
            return None
        levels.append(level)
    return tuple(levels)


_PodSetResource = tuple[str, str]
"""A podset and a resource.

The key of a resource group of a unit is the first podset of the unit and the first resource of the group.
"""


def _required_flavor(
    unit: UnitOptions, group: GroupOptions, required: Mapping[_PodSetResource, str]
) -> str | None:
    """Return the flavor that a unit must get for a resource group; None if it may get any flavor."""
    names = (required.get((name, resource)) for name in unit.names for resource in group.resources)
    return next((name for name in names if name is not None), None)


def _search(
    request_options: RequestOptions,
    options: FlavorOptions,
    oracle: Oracle,
    start_indexes: Mapping[_PodSetResource, int],
    required: _RequiredFlavors,
) -> Assignment:
    """Search flavors for all units, in order. Stop after the first unit that gets no flavor."""
    prior_usage: _PriorUsage = {}
    group_results: list[tuple[_PodSetResource, _GroupResult]] = []
    refusals_of_pod_sets: list[PodSetRefusals] = []

    def evaluate(flavor_option: FlavorOption) -> _FlavorResult:
        return _evaluate_flavor(flavor_option, prior_usage, options, oracle)

    for unit in request_options.units:
        severity = _SEVEREST if unit.uncovered_refusals else -1
        refusals: list[FlavorRefusal] = [*unit.uncovered_refusals]
        for group in unit.groups:
            key = (unit.names[0], group.resources[0])
            required_flavor = _required_flavor(unit, group, required.flavors) if required.flavors else None
            start_index = start_indexes.get(key, 0)
            group_result = _search_group(
                group, start_index, required_flavor, evaluate, options, refuses_others=required.refuses_others
            )
            if group_result.best_result.mode is not FitMode.FIT:
                for _, result in group_result.flavor_results:
                    refusals += result.refusals
            if group_result.chosen is None:
                severity = max(severity, group_result.severity())
            elif severity < 0:
                group_results.append((key, group_result))
                for pair, _, amount in group_result.chosen.demands:
                    prior_usage[pair] = add(prior_usage.get(pair, 0), amount)
        if refusals or severity >= 0:
            refusals_of_pod_sets += [PodSetRefusals(name, tuple(refusals)) for name in unit.names]
        if severity >= 0:
            refusal = NoFlavorFits(tuple(refusals_of_pod_sets), _REASONS_BY_SEVERITY[severity])
            level = _borrow_level(group_results)
            return Assignment(
                (), (), FitMode.NO_FIT, level, frozenset(), refusal, (), _scan_stops(group_results)
            )
    return _assignment(request_options, group_results, refusals_of_pod_sets)


def _assignment(
    request_options: RequestOptions,
    group_results: list[tuple[_PodSetResource, _GroupResult]],
    refusals_of_pod_sets: list[PodSetRefusals],
) -> Assignment:
    """Return the assignment of the chosen flavors. It may need preemption."""
    choice = request_options.choose(
        tuple([group_result.chosen for _, group_result in group_results if group_result.chosen is not None])
    )
    results = [group_result.best_result for _, group_result in group_results]
    mode = min([result.mode for result in results], default=FitMode.FIT)
    fits = mode is FitMode.FIT
    return Assignment(
        *choice,
        mode,
        _borrow_level(group_results),
        frozenset([pair for result in results for pair in result.contested]),
        None if fits else NoFlavorFits(tuple(refusals_of_pod_sets), NoFitReason.WAITING_FOR_QUOTA),
        tuple(_considered_flavors(group_results)) if fits else (),
        _scan_stops(group_results),
    )


def _borrow_level(group_results: Iterable[tuple[_PodSetResource, _GroupResult]]) -> int:
    return max([group_result.best_result.borrow_level for _, group_result in group_results], default=0)


def _scan_stops(group_results: Iterable[tuple[_PodSetResource, _GroupResult]]) -> tuple[ScanStop, ...]:
    return tuple(
        ScanStop(*group, group_result.stopped_at)
        for group, group_result in group_results
        if group_result.stopped_at is not None
    )


def _considered_flavors(
    group_results: Iterable[tuple[_PodSetResource, _GroupResult]],
) -> Iterable[ConsideredFlavor]:
    """Yield the flavors that the search considered, except those that fit without borrowing."""
    for (pod_set, _), group_result in group_results:
        for flavor, result in group_result.flavor_results:
            fit = result.worst_fit
            if fit != FITS_WITHOUT_BORROWING:
                yield ConsideredFlavor(pod_set, flavor, fit.mode, fit.borrow_level, result.refusals)
