"""The nodes and workloads of `hack/bench topology`: blocks, racks and hosts of 96 CPU, and pods of 12 CPU."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from admitq.core.events import (
    ClusterQueueChanged,
    Event,
    LocalQueueChanged,
    NamespaceChanged,
    NodeChanged,
    ResourceFlavorChanged,
    TopologyChanged,
)
from admitq.core.model import (
    SECOND,
    Admission,
    ClusterQueue,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Placement
from admitq.core.state import AdmissionState
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME, PODS, Node
from admitq.core.topology.request import TopologyRequest

LEVELS: Final = ("block", "rack", HOST_NAME)
BLOCKS: Final = 10
RACKS_OF_BLOCK: Final = 10
PODS_OF_HOST: Final = 8
"""The number of pods of 12 CPU that fit on one host."""

CPU_OF_POD: Final = 12_000
IN_RACK: Final = TopologyRequest(required="rack")

_NAMESPACE, _QUEUE, _FLAVOR = "bench", "queue", "default"
_FREE_QUOTA: Final = ResourceQuota(10**12)


@dataclass(frozen=True, slots=True)
class TopologySize:
    """The number of hosts in a rack. There are 10 blocks of 10 racks."""

    hosts_of_rack: int

    @property
    def hosts(self) -> int:
        """The number of all hosts."""
        return BLOCKS * RACKS_OF_BLOCK * self.hosts_of_rack

    def host(self, number: int) -> str:
        """Return the name of a host. Hosts of one rack have numbers in a row."""
        return f"host-{number:05}"

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes."""
        for number in range(self.hosts):
            rack = number // self.hosts_of_rack
            labels = (
                ("block", f"block-{rack // RACKS_OF_BLOCK:02}"),
                (HOST_NAME, self.host(number)),
                ("rack", f"rack-{rack:03}"),
            )
            yield Node(self.host(number), labels, (), (("cpu", PODS_OF_HOST * CPU_OF_POD), (PODS, 110)))


def configuration(quota: ResourceQuota = _FREE_QUOTA) -> Iterator[Event]:
    """Yield a ClusterQueue that never preempts, its LocalQueue, and a flavor with a topology."""
    yield NamespaceChanged(_NAMESPACE, ())
    yield TopologyChanged("racks", LEVELS)
    yield ResourceFlavorChanged(ResourceFlavor(_FLAVOR, topology_name="racks"))
    groups = (ResourceGroup(("cpu",), (FlavorQuotas(_FLAVOR, (("cpu", quota),)),)),)
    yield ClusterQueueChanged(
        ClusterQueue(_QUEUE, resource_groups=groups, namespace_selector=LabelSelector())
    )
    yield LocalQueueChanged(LocalQueue(ObjectKey(_NAMESPACE, _QUEUE), _QUEUE))


def new_state(events: Iterator[Event]) -> AdmissionState:
    """Return a state that places pods and has observed these events."""
    state = AdmissionState(CoreSettings(placement=Placement()))
    for event in events:
        state.handle(event, now=0)
    return state


def node_events(size: TopologySize) -> Iterator[Event]:
    """Yield the configuration and all nodes."""
    yield from configuration()
    yield from map(NodeChanged, size.nodes())


def workload(
    name: str, pods: int, queued_at: int, request: TopologyRequest = IN_RACK, *, cpu: int = CPU_OF_POD
) -> Workload:
    """Return a pending workload with so many pods of ``cpu`` milli-CPU."""
    template = template_requesting({"cpu": cpu})
    pod_sets = (PodSet("main", pods, template, topology_request=request),)
    return Workload(ObjectKey(_NAMESPACE, name), name, _QUEUE, queued_at, pod_sets)


def running(pending: Workload, host: str) -> Workload:
    """Return the same workload, admitted: all of its pods run on one host."""
    count = pending.pod_sets[0].count
    assigned = PodSetAssignment(
        "main",
        (("cpu", _FLAVOR),),
        (("cpu", count * CPU_OF_POD),),
        count,
        topology=TopologyAssignment((HOST_NAME,), (((host,), count),)),
    )
    return replace(pending, admission=Admission(_QUEUE, (assigned,)), admitted=True, reserved_at=SECOND)
