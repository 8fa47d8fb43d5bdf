"""What is free on the nodes of each flavor, computed again from all nodes, pods and workloads at each use."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.model import Admission, ObjectKey, PodSetAssignment, ResourceFlavor, Workload
from admitq.core.topology.domains import HOST_NAME, PODS, Node
from admitq.core.topology.topologies import PodOnNode
from tests.laws.reference.observed import Observed
from tests.laws.reference.requests import pod, units

Leaf = tuple[str, ...]
Free = dict[Leaf, Counter[str]]


@dataclass
class Places:
    """Nodes, pods that belong to no workload, and topology assignments that are being written."""

    observed: Observed
    nodes: dict[str, Node] = field(default_factory=dict)
    pods_of_others: dict[ObjectKey, PodOnNode] = field(default_factory=dict)
    assumed: dict[ObjectKey, tuple[Admission, Admission]] = field(default_factory=dict)
    """By workload, its observed reservation, and the same with its topology assignments."""

    def observe(self, event: Event) -> None:
        """Apply an event that was applied to the observed objects."""
        match event:
            case happened.NodeChanged(node):
                self.nodes[node.name] = node
            case happened.NodeDeleted(name):
                self.nodes.pop(name, None)
            case happened.PodOfOthersChanged(key, each):
                self.pods_of_others[key] = each
            case happened.PodOfOthersDeleted(key):
                self.pods_of_others.pop(key, None)
            case happened.TopologyAssignmentFailed(key):
                self.assumed.pop(key, None)
            case _:
                workloads = self.observed.workloads
                self.assumed = {
                    key: (former, placed)
                    for key, (former, placed) in self.assumed.items()
                    if key in workloads and _may_be_written(workloads[key], former)
                }

    def admission(self, key: ObjectKey) -> Admission | None:
        """Return what a workload holds, with topology assignments that are being written."""
        return self.assumed[key][1] if key in self.assumed else self.observed.admission(key)

    def hosts_of(self, key: ObjectKey) -> list[str]:
        """Return the hosts to which the pods of a workload are assigned; none of leaves that are no hosts."""
        admission = self.admission(key)
        parts = () if admission is None else admission.pod_set_assignments
        hosts = {host: None for part in parts for host, _ in pods_by_host(part)}
        return list(hosts)

    def kept_of(self, workload: Workload, part: PodSetAssignment) -> Counter[Leaf]:
        """Return the pods of a podset that stay where its original has them, by leaf."""
        placement, name = self.observed.settings.placement, workload.replaces
        if placement is None or not placement.keeps_pods or name is None:
            return Counter()
        if name not in self.observed.workloads:
            return Counter()
        before = next((each for each in self._parts_of(name) if each.name == part.name), None)
        if before is None or part.topology is None:
            return Counter()
        return Counter(dict(part.topology.domains)) & Counter(dict(_domains_of(before)))

    # --- amounts ----------------------------------------------------------------------------------

    def levels_of(self, flavor: str) -> tuple[str, ...]:
        """Return the levels of the topology of a flavor; empty without one."""
        found = self.observed.flavors.get(flavor)
        return () if found is None else self.observed.topologies.get(found.topology_name or "", ())

    def nodes_of(self, flavor: str) -> list[Node]:
        """Return the nodes on which pods of a flavor may run."""
        found, levels = self.observed.flavors[flavor], self.levels_of(flavor)
        return [node for node in self.nodes.values() if _belongs(node, found, levels)]

    def of_pod(self, key: ObjectKey, pod_set: str) -> dict[str, int]:
        """Return what one pod of a workload takes from its node."""
        workload = self.observed.workloads[key]
        template = next(each.template for each in workload.pod_sets if each.name == pod_set)
        requests = pod(self.observed, key.namespace, template).requests
        amounts = {name: units(name, amount) for name, amount in requests.items()}
        return with_pod({name: amount for name, amount in amounts.items() if amount})

    def free(self, flavor: str) -> Free:
        """Return what is free in each leaf of a flavor; negative where more is used than there is."""
        levels, free = self.levels_of(flavor), Free()
        for node in self.nodes_of(flavor):
            leaf = free.setdefault(_leaf_of(node, levels), Counter())
            leaf.update(dict(node.allocatable))
            for each in self.pods_of_others.values():
                if each.node == node.name:
                    leaf.subtract(with_pod(dict(each.requests)))
        for key, part, counted in self._placed():
            assert part.topology is not None, "it is placed"
            if not self._concerns(part, flavor):
                continue
            for values, count in counted:
                name = values[-1:] if levels[-1] == HOST_NAME else values
                if name in free:
                    taken = self.of_pod(key, part.name)
                    free[name].subtract({resource: amount * count for resource, amount in taken.items()})
        return free

    def _placed(self) -> Iterator[tuple[ObjectKey, PodSetAssignment, list[tuple[Leaf, int]]]]:
        """Yield the podsets with places of workloads that hold quota, and the pods that count in each domain.

        A pod that a replacement has where its original has one counts once.
        """
        for key in self.observed.workloads:
            original, counted = self.observed.replaced_by(key), Counter[object]()
            if original is not None:
                for part in self._parts_of(original):
                    for values, count in _domains_of(part):
                        counted[self._kind_of_pod(original, part, values)] += count
            for part in self._parts_of(key):
                beyond: list[tuple[Leaf, int]] = []
                for values, count in _domains_of(part):
                    kind = self._kind_of_pod(key, part, values)
                    common = min(count, counted[kind])
                    counted[kind] -= common
                    beyond.append((values, count - common))
                yield key, part, beyond

    def _parts_of(self, key: ObjectKey) -> Iterator[PodSetAssignment]:
        admission, workload = self.admission(key), self.observed.workloads[key]
        if admission is None or self.observed.is_not_charged(key):
            return
        names = {pod_set.name for pod_set in workload.pod_sets}
        yield from (
            part for part in admission.pod_set_assignments if part.topology is not None and part.name in names
        )

    def _kind_of_pod(self, key: ObjectKey, part: PodSetAssignment, values: Leaf) -> object:
        """Return what two pods have in common that count once: flavors, requests and domain."""
        assert part.topology is not None, "it is placed"
        flavors = frozenset(name for _, name in part.flavors)
        leaf = values[-1:] if part.topology.levels[-1] == HOST_NAME else values
        return flavors, tuple(sorted(self.of_pod(key, part.name).items())), leaf

    def _concerns(self, part: PodSetAssignment, flavor: str) -> bool:
        placement, levels = self.observed.settings.placement, self.levels_of(flavor)
        assert part.topology is not None, "it is placed"
        assert placement is not None, "pods are placed"
        if placement.shares_hosts and part.topology.levels[-1] == HOST_NAME:
            return levels[-1:] == (HOST_NAME,)
        return flavor in {name for _, name in part.flavors}


def _domains_of(part: PodSetAssignment) -> tuple[tuple[Leaf, int], ...]:
    return () if part.topology is None else part.topology.domains


def pods_by_host(part: PodSetAssignment) -> list[tuple[str, int]]:
    """Return the hosts of a podset with the number of its pods; none of leaves that are no hosts."""
    if part.topology is None or part.topology.levels[-1] != HOST_NAME:
        return []
    return [(values[-1], count) for values, count in part.topology.domains]


def with_pod(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts with one of ``pods``."""
    return {**amounts, PODS: amounts.get(PODS, 0) + 1}


def _leaf_of(node: Node, levels: tuple[str, ...]) -> Leaf:
    labels = dict(node.labels)
    return (labels[HOST_NAME],) if levels[-1] == HOST_NAME else tuple(labels[level] for level in levels)


def _belongs(node: Node, flavor: ResourceFlavor, levels: tuple[str, ...]) -> bool:
    labels = dict(node.labels)
    return (
        node.ready
        and node.schedulable
        and bool(levels)
        and labels.keys() >= set(levels)
        and set(flavor.node_labels) <= set(node.labels)
    )


def _may_be_written(workload: Workload, former: Admission) -> bool:
    return workload.admission == former and not (workload.finished or workload.evicted)
