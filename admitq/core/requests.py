"""Compute the requests of podsets: from their pod templates to the amounts that count against quota.

The request of one pod is computed as in Kubernetes. A container without a request of a resource requests its
limit, or else the default of the LimitRanges of the namespace. Init containers run one after the other,
before the containers. Containers run together. A restartable init container (a sidecar) runs beside all
containers that start after it. A pod needs the maximum of the two phases. Requests of the pod level replace
this maximum. The overhead of the template, or else of the RuntimeClass, is added.

Transformations of the configuration then change the request (``transformations``). Up to here, amounts are
exact. The result is rounded up to milli-CPU or whole units, and multiplied by the number of pods that are
still to run. So the amount of a podset is divisible by its pods.

Results are cached, because many workloads have equal requests.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from admitq.core.amounts import UNLIMITED, Amounts, amounts, multiply
from admitq.core.limit_ranges import NO_LIMITS, NamespaceLimits
from admitq.core.model import (
    ContainerResources,
    ExactAmounts,
    HashedOnce,
    PodSet,
    PodTemplate,
)
from admitq.core.refusals import Bound, OutOfBounds
from admitq.core.settings import Resources
from admitq.core.transformations import transform

_AS_REQUESTED: Final = Resources()
_MILLI: Final = 1000
_CACHE_SIZE: Final = 1 << 14
"""The size of the caches."""


@dataclass(frozen=True, slots=True)
class RequestRules(HashedOnce):
    """All inputs of the requests of a podset, except for its pod template.

    ``overheads`` has the overheads of RuntimeClasses, by name. ``reclaimable_pods`` is the gate of this name.
    """

    resources: Resources = _AS_REQUESTED
    limits: NamespaceLimits = NO_LIMITS
    overheads: tuple[tuple[str, ExactAmounts], ...] = ()
    reclaimable_pods: bool = True

    __hash__ = HashedOnce.__hash__


DEFAULT_RULES: Final = RequestRules()
"""Rules that leave the requests of the pod template as they are."""


@dataclass(frozen=True, slots=True)
class PodSetDemand(HashedOnce):
    """The requests of the pods of a podset that are still to run: the sum, and that of one pod.

    ``on_node`` is what one pod takes from its node: its request before transformations.
    """

    pod_set: PodSet
    count: int
    totals: Amounts
    per_pod: Amounts
    on_node: Amounts

    __hash__ = HashedOnce.__hash__

    def for_pods(self, count: int) -> "PodSetDemand":
        """Return the demand of this number of pods."""
        return (
            self
            if count == self.count
            else PodSetDemand(self.pod_set, count, _totals(self.per_pod, count), self.per_pod, self.on_node)
        )


def group_by_unit(demands: Iterable[PodSetDemand]) -> Iterable[dict[int, PodSetDemand]]:
    """Return podsets in units, by position: those of one group are one unit, at the position of the first."""
    units: dict[str | int, dict[int, PodSetDemand]] = {}
    for position, demand in enumerate(demands):
        group = demand.pod_set.group
        units.setdefault(position if group is None else group, {})[position] = demand
    return units.values()


class ResolvedRequests(NamedTuple):
    """The requests of the podsets of a workload, and the problems that make them invalid."""

    demands: tuple[PodSetDemand, ...]
    problems: tuple[OutOfBounds, ...]


def template_requesting(of: Mapping[str, int] | Iterable[tuple[str, int]]) -> PodTemplate:
    """Return a template with one container that requests these amounts, in milli-CPU and whole units."""
    exact = ((resource, Fraction(amount, _scale(resource))) for resource, amount in amounts(of))
    return PodTemplate((ContainerResources(tuple(exact)),))


def _scale(resource: str) -> int:
    return _MILLI if resource == "cpu" else 1


def rounded_up(resource: str, amount: Fraction) -> int:
    """Return an exact amount in milli-CPU or whole units, rounded up and limited to int64."""
    return min(UNLIMITED, -(-amount * _scale(resource) // 1))


# --- one pod --------------------------------------------------------------------------------------------

_Exact = dict[str, Fraction]
_ZERO: Final = Fraction()


def _add_amounts(into: _Exact, amounts_to_add: Mapping[str, Fraction]) -> None:
    for resource, amount in amounts_to_add.items():
        into[resource] = into.get(resource, _ZERO) + amount


def _raise_to_amounts(into: _Exact, least_amounts: Mapping[str, Fraction]) -> None:
    for resource, amount in least_amounts.items():
        into[resource] = max(into.get(resource, _ZERO), amount)


def _nonnegative(exact: ExactAmounts) -> _Exact:
    return {resource: max(_ZERO, amount) for resource, amount in exact}


class _Part(NamedTuple):
    """A container or the pod level, with its requests and limits after defaults."""

    field: str
    requests: _Exact
    limits: _Exact


def _resolve_part(field: str, stated: ContainerResources, limits: NamespaceLimits) -> _Part:
    own = dict(stated.limits)
    requests = {
        **dict(limits.default_limits),
        **dict(limits.default_requests),
        **own,
        **dict(stated.requests),
    }
    return _Part(field, _nonnegative(tuple(requests.items())), {**dict(limits.default_limits), **own})


class _Pod(NamedTuple):
    """One pod of a template under the rules of a namespace."""

    containers: tuple[_Part, ...]
    init_containers: tuple[_Part, ...]
    pod_level: _Part
    requests: ExactAmounts


def _compute_running_requests(
    template: PodTemplate, containers: Iterable[_Part], init_containers: Iterable[_Part]
) -> _Exact:
    starting: _Exact = {}
    sidecars: _Exact = {}
    for stated, part in zip(template.init_containers, init_containers, strict=True):
        with_sidecars = dict(sidecars)
        _add_amounts(with_sidecars, part.requests)
        _raise_to_amounts(starting, with_sidecars)
        if stated.restartable:
            sidecars = with_sidecars
    running = sidecars
    for part in containers:
        _add_amounts(running, part.requests)
    _raise_to_amounts(running, starting)
    return running


def _resolve_pod(template: PodTemplate, rules: RequestRules) -> _Pod:
    containers, init_containers = (
        tuple(
            _resolve_part(f"{name}[{index}].", stated, rules.limits)
            for index, stated in enumerate(stated_containers)
        )
        for name, stated_containers in (
            ("containers", template.containers),
            ("initContainers", template.init_containers),
        )
    )
    pod_level = _resolve_part("", ContainerResources(template.requests, template.limits), NO_LIMITS)
    running = _compute_running_requests(template, containers, init_containers)
    running.update(pod_level.requests)
    overhead = template.overhead
    if overhead is None:
        overhead = dict(rules.overheads).get(template.runtime_class or "", ())
    _add_amounts(running, _nonnegative(overhead))
    return _Pod(containers, init_containers, pod_level, tuple(sorted(running.items())))


def pod_requests(template: PodTemplate, rules: RequestRules = DEFAULT_RULES) -> ExactAmounts:
    """Return the request of one pod, before transformations."""
    return _resolve_pod(template, rules).requests


# --- invalid requests -----------------------------------------------------------------------------------


def _find_requests_above(
    bound: Bound, field: str, requests: Mapping[str, Fraction], maxima: Mapping[str, Fraction]
) -> Iterator[OutOfBounds]:
    for resource in sorted(requests.keys() & maxima.keys()):
        if requests[resource] > maxima[resource]:
            yield OutOfBounds(bound, f"{field}[{resource}]", resource, requests[resource], maxima[resource])


def _find_requests_below(
    field: str, requests: Mapping[str, Fraction], minima: Mapping[str, Fraction]
) -> Iterator[OutOfBounds]:
    for resource in sorted(requests.keys() & minima.keys()):
        if requests[resource] < minima[resource]:
            yield OutOfBounds(
                Bound.MINIMUM, f"{field}[{resource}]", resource, requests[resource], minima[resource]
            )


def _above_limits(pod: _Pod) -> Iterator[OutOfBounds]:
    for part in (*pod.init_containers, *pod.containers, pod.pod_level):
        yield from _find_requests_above(
            Bound.LIMIT, f"{part.field}resources.requests", part.requests, part.limits
        )


def _outside_limit_ranges(pod: _Pod, limits: NamespaceLimits) -> Iterator[OutOfBounds]:
    maximum, minimum = dict(limits.container_maximum), dict(limits.container_minimum)
    for part in (*pod.init_containers, *pod.containers):
        field = f"{part.field}resources.requests"
        yield from _find_requests_above(Bound.MAXIMUM, field, part.requests, maximum)
        yield from _find_requests_below(field, part.requests, minimum)
    requests = dict(pod.requests)
    yield from _find_requests_above(Bound.MAXIMUM, "resources.requests", requests, dict(limits.pod_maximum))
    yield from _find_requests_below("resources.requests", requests, dict(limits.pod_minimum))


# --- podsets --------------------------------------------------------------------------------------------


class _Template(NamedTuple):
    """The amounts that count for one pod of a template, and the problems that make its requests invalid."""

    per_pod: Amounts
    on_node: Amounts
    above_limits: tuple[OutOfBounds, ...]
    outside_limit_ranges: tuple[OutOfBounds, ...]


@lru_cache(_CACHE_SIZE)
def _resolve_template(template: PodTemplate, rules: RequestRules) -> _Template:
    pod = _resolve_pod(template, rules)
    counted_requests = transform(dict(pod.requests), rules.resources)
    return _Template(
        amounts({resource: rounded_up(resource, amount) for resource, amount in counted_requests.items()}),
        amounts({resource: rounded_up(resource, amount) for resource, amount in pod.requests}),
        tuple(_above_limits(pod)),
        tuple(_outside_limit_ranges(pod, rules.limits)),
    )


def _totals(per_pod: Amounts, count: int) -> Amounts:
    return tuple((resource, multiply(amount, count)) for resource, amount in per_pod)


def _with_full_path(index: int, problems: Iterable[OutOfBounds]) -> Iterator[OutOfBounds]:
    for problem in problems:
        yield problem._replace(field=f"spec.podSets[{index}].template.spec.{problem.field}")


@lru_cache(_CACHE_SIZE)
def resolve(
    pod_sets: tuple[PodSet, ...],
    reclaimable_pods: tuple[tuple[str, int], ...] = (),
    rules: RequestRules = DEFAULT_RULES,
) -> ResolvedRequests:
    """Return the requests of each podset of a workload, and the problems that make them invalid.

    Args:
        pod_sets: the podsets, in order.
        reclaimable_pods: the number of pods that are no longer needed, by podset.
        rules: the rules of the namespace of the workload.
    """
    reclaimable = dict(reclaimable_pods) if rules.reclaimable_pods else {}
    demands: list[PodSetDemand] = []
    above_limits: list[OutOfBounds] = []
    outside: list[OutOfBounds] = []
    for index, pod_set in enumerate(pod_sets):
        template = _resolve_template(pod_set.template, rules)
        count = pod_set.count - min(reclaimable.get(pod_set.name, 0), pod_set.count)
        totals = _totals(template.per_pod, count)
        demands.append(PodSetDemand(pod_set, count, totals, template.per_pod, template.on_node))
        above_limits.extend(_with_full_path(index, template.above_limits))
        outside.extend(_with_full_path(index, template.outside_limit_ranges))
    problems = tuple(above_limits or outside)
    return ResolvedRequests(tuple(demands), problems)


def requests_on_node(template: PodTemplate, rules: RequestRules = DEFAULT_RULES) -> Amounts:
    """Return what one pod takes from its node: its request before transformations."""
    return _resolve_template(template, rules).on_node


def demands(
    pod_sets: tuple[PodSet, ...],
    reclaimable_pods: tuple[tuple[str, int], ...] = (),
    rules: RequestRules = DEFAULT_RULES,
) -> tuple[PodSetDemand, ...]:
    """Return the requests of each podset of a workload; see ``resolve``."""
    return resolve(pod_sets, reclaimable_pods, rules).demands
