"""How the hosts of topology assignments fail, and when they count as unhealthy (semantics, Node failure).

Pure functions. The manager decides by them about a cluster, a simulation about simulated nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from admitq.core.model import SECOND, Instant, Taint, Toleration
from admitq.core.selectors import find_untolerated_taint
from admitq.core.topology.domains import HOST_NAME
from admitq.translate.taints import read_taints
from admitq_api.conditions import find_condition, transition_time
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import JsonObject, text_at, value_at
from admitq_api.stored_fields import MalformedField

READY: Final = "Ready"
"""The condition of a node that its kubelet reports."""

NOT_READY_TOLERATED: Final = 30 * SECOND
"""How long a node may be not ready, in nanoseconds, where this time decides."""


@dataclass(frozen=True, slots=True)
class NodeFailureSettings:
    """When a host of a topology assignment counts as failed (semantics, Node failure)."""

    on_pod_termination: bool = True
    """It has not failed before its pods end. Otherwise it has failed once it is not ready for some time."""
    after_fixed_time: bool = False
    """It has also failed once it is not ready for some time, although pods run there."""
    on_taints: bool = True
    """Taints that pods do not tolerate count as failures."""


def configured_node_failures(gates: FeatureGates) -> NodeFailureSettings | None:
    """Return the settings of the feature gates; None if pods of failed hosts are not placed elsewhere."""
    if not gates[Gate.TAS_FAILED_NODE_REPLACEMENT]:
        return None
    return NodeFailureSettings(
        on_pod_termination=gates[Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION],
        after_fixed_time=gates[Gate.TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME],
        on_taints=gates[Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS],
    )


# --- what is wrong with a host --------------------------------------------------------------------


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


class NodeHealth(NamedTuple):
    """What decides whether a node has failed.

    Attributes:
        name: the name of the node.
        is_ready: whether it is ready; None if it has never reported this.
        since: since when this is so, in nanoseconds; 0 if that is unknown.
        taints: its taints.
    """

    name: str
    is_ready: bool | None
    since: Instant = 0
    taints: tuple[Taint, ...] = ()


HealthOfHost = Callable[[str], Iterable[NodeHealth]]
"""Returns the nodes with a host name. There may be two while one replaces the other."""

TolerationsOfPodSets = Mapping[str, Sequence[Toleration]]
"""The tolerations of each podset, with those of its flavors and of admission checks."""


@dataclass(frozen=True, slots=True)
class FailedHost:
    """What is wrong with a host, the names of its nodes, and since when the last of them is not ready."""

    failure: Failure
    nodes: frozenset[str] = frozenset()
    since: Instant = 0


def read_node_health(node: JsonObject) -> NodeHealth:
    """Read what decides whether a node has failed. Taints that are not readable do not count."""
    ready = find_condition(value_at(node, ("status", "conditions")), READY)
    try:
        taints = read_taints(value_at(node, ("spec", "taints")), "spec.taints")
    except MalformedField:
        # The core places nothing on a node that it cannot read. Pods that run there may stay.
        taints = ()
    return NodeHealth(
        text_at(node, ("metadata", "name")),
        None if ready is None else ready.get("status") == "True",
        transition_time(ready) or 0,
        taints,
    )


def list_hosts(
    assignments: Iterable[tuple[str, Sequence[str], Iterable[tuple[Sequence[str], int]]]],
) -> dict[str, frozenset[str]]:
    """Return the hosts of each podset with an assignment down to hosts.

    Args:
        assignments: of each podset its name, and the levels and domains of its assignment.
    """
    return {
        name: frozenset(values[-1] for values, _ in domains)
        for name, levels, domains in assignments
        if tuple(levels[-1:]) == (HOST_NAME,)
    }


def find_failed_hosts(
    hosts: Mapping[str, AbstractSet[str]], nodes: HealthOfHost, tolerations: TolerationsOfPodSets
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
                frozenset(node.name for node in there),
                max((node.since for node in there), default=0),
            )
    return failed


def _find_failure(node: NodeHealth, on_host: Sequence[Sequence[Toleration]]) -> Failure:
    if node.is_ready is None:
        return Failure.GONE
    if not node.is_ready:
        return Failure.NOT_READY
    if any(find_untolerated_taint(node.taints, tolerations) for tolerations in on_host):
        return Failure.TAINTED
    unlimited = ([item for item in tolerations if item.toleration_seconds is None] for tolerations in on_host)
    if any(find_untolerated_taint(node.taints, tolerations) for tolerations in unlimited):
        return Failure.TAINTED_FOR_A_TIME
    return Failure.NONE


# --- whether a host is unhealthy ------------------------------------------------------------------


class HostVerdict(NamedTuple):
    """Whether a failed host is unhealthy.

    ``decided_again`` is when this changes by time alone. ``ends_waiting_pods`` tells that the end of its pods
    decides, so that no pod may wait for the host.
    """

    is_unhealthy: bool
    decided_again: Instant | None = None
    ends_waiting_pods: bool = False


def judge_host(
    settings: NodeFailureSettings,
    failed: FailedHost,
    now: Instant,
    *,
    has_pods: Callable[[AbstractSet[str]], bool],
) -> HostVerdict:
    """Return whether a failed host is unhealthy.

    As long as pods run there they are left alone, because the node may come back.

    Args:
        settings: the settings.
        failed: what is wrong with the host.
        now: the present instant.
        has_pods: whether pods of the workload run on one of these nodes, and are not about to end.
    """
    failure = failed.failure
    if failure <= Failure.TAINTED and not settings.on_taints:
        return HostVerdict(is_unhealthy=False)
    if failure is Failure.GONE or (failure is Failure.TAINTED and not settings.on_pod_termination):
        return HostVerdict(is_unhealthy=True)
    pods_decide = settings.on_pod_termination or failure is Failure.TAINTED_FOR_A_TIME
    if pods_decide and not has_pods(failed.nodes):
        return HostVerdict(is_unhealthy=True, ends_waiting_pods=True)
    time_decides = failure is Failure.NOT_READY and (not pods_decide or settings.after_fixed_time)
    tolerated_until = failed.since + NOT_READY_TOLERATED
    is_over = time_decides and now >= tolerated_until
    return HostVerdict(is_over, tolerated_until if time_decides and not is_over else None, pods_decide)


class UnhealthyHosts(NamedTuple):
    """The unhealthy hosts of a workload, those that are listed already first.

    ``evicts`` tells that the workload is evicted: pods of one host alone get other places.
    """

    hosts: tuple[str, ...]
    evicts: bool


def list_unhealthy_hosts(verdicts: Mapping[str, HostVerdict], before: Sequence[str]) -> UnhealthyHosts:
    """Return the unhealthy hosts of a workload.

    Args:
        verdicts: of each failed host.
        before: the hosts that are listed.
    """
    unhealthy = [host for host, verdict in verdicts.items() if verdict.is_unhealthy]
    unhealthy.sort(key=lambda host: before.index(host) if host in before else len(before))
    return UnhealthyHosts(tuple(unhealthy), len(unhealthy) > 1)
