"""What one pod asks for, as Kubernetes reckons it.

The rule: containers run together, init containers one after the other before them, and a restartable
init container (a sidecar) goes on running beside everything that starts after it. A pod needs the
larger of the two phases, then what the pod level states instead, then the runtime's overhead.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from admitq.core.amounts import Amounts, add, amounts, multiply
from admitq.core.model import PodSet


@dataclass(frozen=True, slots=True)
class InitContainer:
    """Requests of one init container; ``restartable`` is restartPolicy Always."""

    requests: Amounts = ()
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """The requests a pod template states, with limits already standing in for missing requests."""

    containers: tuple[Amounts, ...] = ()
    init_containers: tuple[InitContainer, ...] = ()
    overhead: Amounts = ()
    pod_level: Amounts = ()


@dataclass(frozen=True, slots=True)
class PodSetDemand:
    """What all pods of a podset that are still to run ask for together."""

    pod_set: PodSet
    count: int
    totals: Amounts


def _gain(into: dict[str, int], of: Iterable[tuple[str, int]]) -> None:
    for resource, amount in of:
        into[resource] = add(into.get(resource, 0), amount)


def _cover(into: dict[str, int], of: Iterable[tuple[str, int]]) -> None:
    for resource, amount in of:
        into[resource] = max(into.get(resource, 0), amount)


def pod_requests(requirements: PodRequirements) -> Amounts:
    """Requests of one pod: max(init phase, containers + sidecars), pod level instead, plus overhead."""
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in requirements.init_containers:
        beside = dict(sidecars)
        _gain(beside, container.requests)
        _cover(starting, beside.items())
        if container.restartable:
            sidecars = beside
    running = sidecars
    for requests in requirements.containers:
        _gain(running, requests)
    _cover(running, starting.items())
    running.update(requirements.pod_level)
    _gain(running, requirements.overhead)
    return amounts(running)


def demand(pod_set: PodSet, reclaimable: int = 0) -> PodSetDemand:
    """What a podset asks for without the pods that are known not to be needed any more."""
    count = pod_set.count - min(reclaimable, pod_set.count)
    totals = tuple((resource, multiply(amount, count)) for resource, amount in pod_set.requests)
    return PodSetDemand(pod_set, count, totals)


def demands(
    pod_sets: Iterable[PodSet], reclaimable_pods: Iterable[tuple[str, int]]
) -> tuple[PodSetDemand, ...]:
    """What each podset of a workload asks for."""
    reclaimable = dict(reclaimable_pods)
    return tuple(demand(pod_set, reclaimable.get(pod_set.name, 0)) for pod_set in pod_sets)
