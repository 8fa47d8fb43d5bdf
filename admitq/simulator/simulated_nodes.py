"""The nodes of a run as far as they fail, and when Kubernetes deletes the pods on them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from admitq.core.events import Event, NodeChanged, NodeDeleted
from admitq.core.model import SECOND, Instant, Taint, Toleration
from admitq.core.selectors import tolerates
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.workloads.host_failures import NodeHealth

NO_EXECUTE: Final = "NoExecute"

CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that Kubernetes adds to a node that is cordoned."""

NOT_READY: Final = Taint("node.kubernetes.io/not-ready", "", NO_EXECUTE)
"""The taint that Kubernetes adds to a node that is not ready."""

TOLERATES_NOT_READY: Final = Toleration(
    key=NOT_READY.key, operator="Exists", effect=NO_EXECUTE, toleration_seconds=300
)
"""The toleration that the API server adds to pods that have none for nodes that are not ready."""


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A node: its health, and since when it has each taint."""

    health: NodeHealth
    taints: dict[Taint, Instant]

    def find_deletion(self, tolerations: Iterable[Toleration]) -> Instant | None:
        """Return the instant at which pods with these tolerations are deleted; None if they may stay."""
        own = [*tolerations]
        if not any(tolerates(each, NOT_READY) for each in own):
            own.append(TOLERATES_NOT_READY)
        return min(
            (
                since + seconds * SECOND
                for taint, since in self.taints.items()
                if (seconds := _tolerated_seconds(taint, own)) is not None
            ),
            default=None,
        )


def _tolerated_seconds(taint: Taint, tolerations: Iterable[Toleration]) -> int | None:
    """Return how long a taint lets pods run; None without limit."""
    if taint.effect != NO_EXECUTE:
        return None
    tolerated = [each.toleration_seconds for each in tolerations if tolerates(each, taint)]
    if not tolerated:
        return 0
    return min((max(0, seconds) for seconds in tolerated if seconds is not None), default=None)


@dataclass(slots=True, eq=False)
class SimulatedNodes:
    """All nodes, by host name and name.

    ``have_changed`` tells whether any node changed during the run.
    """

    have_changed: bool = False
    _by_host: dict[str, dict[str, SimulatedNode]] = field(default_factory=dict[str, dict[str, SimulatedNode]])
    _hosts: dict[str, str] = field(default_factory=dict[str, str])
    """The host of each node."""

    def observe(self, event: Event, now: Instant) -> tuple[str, ...]:
        """Record an event, and return the hosts that it concerns. Other objects than nodes do not count."""
        match event:
            case NodeChanged(node=node):
                return tuple(self._put(node, now))
            case NodeDeleted(name=name):
                return tuple(self._remove(name))
            case _:
                return ()

    def _remove(self, name: str) -> Iterator[str]:
        host = self._hosts.pop(name, None)
        if host is not None:
            del self._by_host[host][name]
            yield host

    def _put(self, node: Node, now: Instant) -> Iterator[str]:
        host = dict(node.labels).get(HOST_NAME, "")
        former_host = self._hosts.get(node.name)
        former = None if former_host is None else self._by_host[former_host][node.name]
        if former_host != host:
            yield from self._remove(node.name)
        own = (*node.taints, *(() if node.schedulable else (CORDONED,)))
        known = {} if former is None else former.taints
        taints = {taint: known.get(taint, now) for taint in (*own, *(() if node.ready else (NOT_READY,)))}
        since = now if former is None or former.health.is_ready != node.ready else former.health.since
        health = NodeHealth(node.name, node.ready, since, own)
        self._hosts[node.name] = host
        self._by_host.setdefault(host, {})[node.name] = SimulatedNode(health, taints)
        yield host

    def of_host(self, host: str) -> Iterable[SimulatedNode]:
        """Return the nodes with a host name."""
        return self._by_host.get(host, {}).values()

    def list_health(self, host: str) -> Iterator[NodeHealth]:
        """Yield the health of the nodes with a host name."""
        return (node.health for node in self.of_host(host))
