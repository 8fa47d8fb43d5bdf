"""The racks of a cluster as a group of equal nodes, so that a run can have another number of them.

The nodes of the group have the most frequent shape of the nodes of the cluster. Workloads with places are
queued again, because their hosts do not exist in the run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import orjson

from admitq.core.asking import effects
from admitq.core.asking.effects import revise_workload
from admitq.core.events import PodOfOthersChanged
from admitq.core.topology.domains import HOST_NAME
from admitq.manifests.documents import InputError, Place, Problem
from admitq.simulator.present import PresentCluster, PresentWorkload
from admitq.simulator.schema import NodeGroup, NodeLevel
from admitq_api.json_objects import JsonObject, value_at

NODES_OPTION = "--nodes"


@dataclass(frozen=True, slots=True)
class ClusterRacks:
    """The racks of one flavor of a cluster.

    Attributes:
        group: the nodes of the flavor as a group. It has the name of the flavor.
        present: the cluster without these nodes.
    """

    group: NodeGroup
    present: PresentCluster


def find_cluster_racks(present: PresentCluster, name: str | None) -> ClusterRacks:
    """Return the racks of a cluster.

    Args:
        present: the cluster.
        name: the name of the flavor; None for the only one with racks.

    Raises:
        InputError: there is no such flavor, or there are several.
    """
    levels = {
        _name(topology): [str(level["nodeLabel"]) for level in value_at(topology, ("spec", "levels"), [])]
        for topology in _of_kind(present, "Topology")
    }
    flavors: dict[str, tuple[list[str], list[JsonObject]]] = {}
    for flavor in _of_kind(present, "ResourceFlavor"):
        of_flavor = levels.get(value_at(flavor, ("spec", "topologyName"), ""), [])
        nodes = _list_nodes(present, flavor, of_flavor)
        if len(of_flavor) > 1 and of_flavor[-1] == HOST_NAME and nodes:
            flavors[_name(flavor)] = of_flavor, nodes
    names = ", ".join(flavors)
    if not flavors:
        raise _error(
            "the cluster has no flavor with nodes and a topology with racks and hosts: write nodes in "
            "compact form into a Scenario"
        )
    if name is None and len(flavors) > 1:
        raise _error(f"several flavors have racks: choose one of {names}")
    chosen = next(iter(flavors)) if name is None else name
    if chosen not in flavors:
        raise _error(f"no flavor {chosen} has racks: choose one of {names}")
    of_chosen, nodes = flavors[chosen]
    return ClusterRacks(
        _create_group(chosen, of_chosen, nodes), _without_nodes(present, frozenset(map(_name, nodes)))
    )


def _error(remedy: str) -> InputError:
    return InputError([Problem(Place(NODES_OPTION), "", remedy)])


def _name(obj: JsonObject) -> str:
    return str(value_at(obj, ("metadata", "name"), ""))


def _labels(obj: JsonObject) -> Mapping[str, str]:
    return value_at(obj, ("metadata", "labels"), {})


def _of_kind(present: PresentCluster, kind: str) -> Iterable[JsonObject]:
    return (each.value for each in present.files.manifests if each.value.get("kind") == kind)


def _list_nodes(present: PresentCluster, flavor: JsonObject, levels: Sequence[str]) -> list[JsonObject]:
    """Return the nodes of a flavor that have all levels."""
    required = value_at(flavor, ("spec", "nodeLabels"), {}).items()
    return [
        node
        for node in _of_kind(present, "Node")
        if required <= _labels(node).items() and all(level in _labels(node) for level in levels)
    ]


def _create_group(name: str, levels: Sequence[str], nodes: Sequence[JsonObject]) -> NodeGroup:
    """Return equal nodes in as many domains, on average."""
    allocatable, taints = _find_shape(nodes)
    above = levels[:-1]
    counts = [_count_domains(nodes, above[:end]) for end in range(len(levels))]
    common = set.intersection(*({*_labels(node).items()} for node in nodes))
    return NodeGroup.model_construct(
        name=name,
        domains=tuple(
            NodeLevel.model_construct(label=label, count=ceil(count / before))
            for label, before, count in zip(above, counts[:-1], counts[1:], strict=True)
        ),
        hosts=ceil(len(nodes) / counts[-1]),
        allocatable=allocatable,
        labels={key: value for key, value in sorted(common) if key not in levels},
        taints=tuple(taints),
    )


def _count_domains(nodes: Iterable[JsonObject], levels: Sequence[str]) -> int:
    return len({tuple(_labels(node)[level] for level in levels) for node in nodes})


def _find_shape(nodes: Iterable[JsonObject]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the most frequent allocatable amounts and taints."""
    shapes = Counter(
        orjson.dumps(
            (value_at(node, ("status", "allocatable"), {}), value_at(node, ("spec", "taints"), []) or []),
            option=orjson.OPT_SORT_KEYS,
        )
        for node in nodes
    )
    (shape, _), *_ = shapes.most_common(1)
    return orjson.loads(shape)


def _without_nodes(present: PresentCluster, removed: frozenset[str]) -> PresentCluster:
    manifests = [
        each
        for each in present.files.manifests
        if each.value.get("kind") != "Node" or _name(each.value) not in removed
    ]
    pods = tuple(
        event
        for event in present.pods_of_others
        if not (isinstance(event, PodOfOthersChanged) and event.pod.node in removed)
    )
    return present._replace(
        files=replace(present.files, manifests=manifests),
        workloads=tuple(map(_queue_again, present.workloads)),
        pods_of_others=pods,
    )


def _queue_again(each: PresentWorkload) -> PresentWorkload:
    """Return a workload with places as one that waits. It runs for its remaining run time."""
    workload = each.workload
    parts = () if workload.admission is None else workload.admission.pod_set_assignments
    if not any(part.topology is not None for part in parts):
        return each
    stopped = effects.stop(workload, workload.queued_at)
    return each._replace(workload=revise_workload(stopped, evicted=False, evicted_at=0, unhealthy_nodes=()))
