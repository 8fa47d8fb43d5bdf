"""Requests of podsets (semantics, Resource arithmetic), with every step written out."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from admitq.core.model import (
    ContainerResources,
    ExactAmounts,
    LimitedType,
    LimitRangeItem,
    PodSet,
    PodTemplate,
    Workload,
)
from admitq.core.settings import Resources
from tests.laws.reference.observed import Observed, limit_ranges_of

Exact = dict[str, Fraction]

_ZERO = Fraction(0)


def _sum(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> Exact:
    return {name: left.get(name, _ZERO) + right.get(name, _ZERO) for name in {**left, **right}}


def _most(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> Exact:
    return {name: max(left.get(name, _ZERO), right.get(name, _ZERO)) for name in {**left, **right}}


def _extreme(amounts: Iterable[ExactAmounts], of: Callable[[list[Fraction]], Fraction]) -> Exact:
    """Return the extreme of the stated amounts, by resource."""
    by_resource: dict[str, list[Fraction]] = {}
    for some in amounts:
        for resource, amount in some:
            by_resource.setdefault(resource, []).append(amount)
    return {resource: of(stated) for resource, stated in by_resource.items()}


def _first(amounts: Iterable[ExactAmounts]) -> Exact:
    """Return the amount that is stated first, by resource."""
    result: Exact = {}
    for some in amounts:
        result = {**dict(some), **result}
    return result


def _exceeds(amounts: Mapping[str, Fraction], bounds: Mapping[str, Fraction]) -> bool:
    return any(amount > bounds[name] for name, amount in amounts.items() if name in bounds)


# --- one pod --------------------------------------------------------------------------------------------


class _Container(NamedTuple):
    """A container with what the LimitRanges of its namespace add."""

    requests: Exact
    limits: Exact
    restartable: bool


class Pod(NamedTuple):
    """The requests of a pod in its namespace, and whether they are within all bounds."""

    requests: Exact
    sound: bool


def _adjusted(container: ContainerResources, items: list[LimitRangeItem]) -> _Container:
    """Use a limit if no request is stated, and a default of the namespace if neither is stated."""
    limits = {**_first(item.default_limits for item in items), **dict(container.limits)}
    requests = {
        **limits,
        **_first(item.default_requests for item in items),
        **dict(container.limits),
        **dict(container.requests),
    }
    return _Container(requests, limits, container.restartable)


def _is_within(requests: Mapping[str, Fraction], items: list[LimitRangeItem]) -> bool:
    maxima = _extreme((item.maximum for item in items), min)
    minima = _extreme((item.minimum for item in items), max)
    return not _exceeds(requests, maxima) and not any(
        requests[name] < least for name, least in minima.items() if name in requests
    )


def pod(observed: Observed, namespace: str, template: PodTemplate) -> Pod:
    """Return the pod of a template in a namespace."""
    items = [item for each in limit_ranges_of(observed.limit_ranges, namespace) for item in each.items]
    of_containers = [item for item in items if item.type is LimitedType.CONTAINER]
    of_pods = [item for item in items if item.type is LimitedType.POD]
    containers = [_adjusted(container, of_containers) for container in template.containers]
    init_containers = [_adjusted(container, of_containers) for container in template.init_containers]

    running: Exact = {}
    for container in containers:
        running = _sum(running, container.requests)
    starting: Exact = {}
    sidecars: Exact = {}
    for container in init_containers:
        together = _sum(sidecars, container.requests)
        starting = _most(starting, together)
        if container.restartable:
            sidecars = together
    needs = _most(starting, _sum(running, sidecars))

    pod_level = {**dict(template.limits), **dict(template.requests)}
    overhead = template.overhead
    if overhead is None:
        overhead = observed.runtime_classes.get(template.runtime_class or "", ())
    needs = _sum({**needs, **pod_level}, dict(overhead))

    parts = [*containers, *init_containers]
    return Pod(
        needs,
        sound=not any(_exceeds(part.requests, part.limits) for part in parts)
        and not _exceeds(pod_level, dict(template.limits))
        and all(_is_within(part.requests, of_containers) for part in parts)
        and _is_within(needs, of_pods),
    )


# --- configuration --------------------------------------------------------------------------------------


def counted(requests: Mapping[str, Fraction], resources: Resources) -> Exact:
    """Return the requests without excluded resources, and after all transformations."""
    kept = {
        name: amount
        for name, amount in requests.items()
        if not any(name.startswith(prefix) for prefix in resources.excluded_prefixes)
    }
    result = dict(kept)
    generated: Exact = {}
    for each in resources.transformations:
        if each.input not in kept:
            continue
        value = kept[each.input]
        if each.multiply_by is not None and each.multiply_by in kept:
            value *= kept[each.multiply_by]
        for output in each.outputs:
            generated = _sum(generated, {output.resource: value * output.factor})
        if not each.retain:
            del result[each.input]
    return _sum(result, {name: max(_ZERO, amount) for name, amount in generated.items()})


def units(resource: str, amount: Fraction) -> int:
    """Return milli-CPU, or whole units of other resources, rounded up; negative amounts become 0."""
    return max(0, math.ceil(amount * (1000 if resource == "cpu" else 1)))


# --- podsets --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demand:
    """The request of one pod of a podset, and the number of pods that are still to run."""

    pod_set: PodSet
    count: int
    per_pod: Mapping[str, int]

    def totals(self) -> dict[str, int]:
        """Return the request of all its pods."""
        return {resource: amount * self.count for resource, amount in self.per_pod.items()}

    def with_count(self, count: int) -> "Demand":
        """Return the same with another number of pods."""
        return replace(self, count=count)


class Requests(NamedTuple):
    """The requests of a workload's podsets, and whether they are within all bounds."""

    demands: tuple[Demand, ...]
    sound: bool


def requests(observed: Observed, workload: Workload) -> Requests:
    """Return the requests of a workload in its namespace."""
    settings = observed.settings
    reclaimable = dict(workload.reclaimable_pods) if settings.gates.reclaimable_pods else {}
    pods = [pod(observed, workload.key.namespace, pod_set.template) for pod_set in workload.pod_sets]
    return Requests(
        tuple(
            Demand(
                pod_set,
                pod_set.count - min(pod_set.count, reclaimable.get(pod_set.name, 0)),
                {
                    name: units(name, amount)
                    for name, amount in counted(each.requests, settings.resources).items()
                },
            )
            for pod_set, each in zip(workload.pod_sets, pods, strict=True)
        ),
        all(each.sound for each in pods) and not workload.resource_problems,
    )
