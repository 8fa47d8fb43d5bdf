"""How the hosts of topology assignments fail. Pure functions on trimmed nodes (semantics, Node failure)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from admitq.controllers.pods.topology_slots import PodSetSlots
from admitq.core.model import Instant, Toleration
from admitq.core.selectors import find_untolerated_taint
from admitq.core.topology.domains import HOST_NAME
from admitq.translate.taints import read_taints
from admitq_api.conditions import find_condition, transition_time
from admitq_api.json_objects import JsonObject, text_at, value_at
from admitq_api.stored_fields import MalformedField

READY: Final = "Ready"
"""The condition of a node that its kubelet reports."""

NodesOfHost = Callable[[str], Iterable[JsonObject]]
"""Returns the nodes with a host name. There may be two while one replaces the other."""

TolerationsOfPodSets = Mapping[str, Sequence[Toleration]]
"""The tolerations of each podset, with those of its flavors and of admission checks."""


class Failure(IntEnum):
    """What is wrong with a host; a greater value is worse."""

    NONE = 0
    TAINTED_FOR_A_TIME = 1
    """A taint is tolerated, but only for some seconds."""
    TAINTED = 2
    """A taint is not tolerated by some podset on the host."""
    NOT_READY = 3
    GONE = 4
    """The node does not exist, or has never reported whether it is ready."""


@dataclass(frozen=True, slots=True)
class FailedHost:
    """What is wrong with a host, the names of its nodes, and since when the last of them is not ready."""

    failure: Failure
    nodes: frozenset[str] = frozenset()
    since: Instant = 0


def list_hosts(slots: Iterable[PodSetSlots]) -> dict[str, frozenset[str]]:
    """Return the hosts of each podset that has an assignment down to hosts."""
    return {
        item.name: frozenset(values[-1] for values, _ in item.domains)
        for item in slots
        if item.levels[-1:] == (HOST_NAME,)
    }


def find_failed_hosts(
    hosts: Mapping[str, AbstractSet[str]], nodes: NodesOfHost, tolerations: TolerationsOfPodSets
) -> dict[str, FailedHost]:
    """Return the failed ones of the hosts of podsets, by name."""
    failed: dict[str, FailedHost] = {}
    for host in sorted(frozenset[str]().union(*hosts.values())):
        there = list(nodes(host))
        on_host = [tolerations.get(podset, ()) for podset, listed in hosts.items() if host in listed]
        failure = min((_find_failure(node, on_host) for node in there), default=Failure.GONE)
        if failure is not Failure.NONE:
            failed[host] = FailedHost(
                failure,
                frozenset(text_at(node, ("metadata", "name")) for node in there),
                max(map(_since, there), default=0),
            )
    return failed


def _find_failure(node: JsonObject, on_host: Sequence[Sequence[Toleration]]) -> Failure:
    ready = find_condition(value_at(node, ("status", "conditions")), READY)
    if ready is None:
        return Failure.GONE
    if ready.get("status") != "True":
        return Failure.NOT_READY
    try:
        taints = read_taints(value_at(node, ("spec", "taints")), "spec.taints")
    except MalformedField:
        # The core places nothing on a node that it cannot read. Pods that run there may stay.
        return Failure.NONE
    if any(find_untolerated_taint(taints, tolerations) for tolerations in on_host):
        return Failure.TAINTED
    unlimited = ([item for item in tolerations if item.toleration_seconds is None] for tolerations in on_host)
    if any(find_untolerated_taint(taints, tolerations) for tolerations in unlimited):
        return Failure.TAINTED_FOR_A_TIME
    return Failure.NONE


def _since(node: JsonObject) -> Instant:
    return transition_time(find_condition(value_at(node, ("status", "conditions")), READY)) or 0
