"""The nodes of a scenario in compact form, as the manifests of Nodes that `kubectl get nodes` would print."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from admitq.core.topology.domains import PODS
from admitq.manifests.documents import Document, field_path
from admitq.simulator.schema import NodeGroup, Scenario
from admitq.translate.nodes import read_node
from admitq_api.stored_fields import MalformedField

_MOST_PODS: Final = 110
"""The number of pods for which a kubelet has room by default."""


def list_nodes(scenario: Scenario, spec: Document) -> Iterator[Document]:
    """Yield the manifests of all nodes in compact form.

    Args:
        scenario: the scenario.
        spec: its ``spec``, for errors.

    Raises:
        InputError: a quantity or a taint cannot be read.
    """
    for index, group in enumerate(scenario.nodes):
        written = spec.value.get("nodes", ())
        # A group that was created from the nodes of a cluster is in no file.
        part = spec.within(("nodes", index), written[index]) if index < len(written) else spec
        is_checked = False
        for node in _nodes_of(group):
            if not is_checked:
                _check(node, part)
                is_checked = True
            yield Document(part.file, node, part.node, part.base)


def _check(node: Mapping[str, Any], part: Document) -> None:
    """Raise the error of a field that all nodes of a group have."""
    try:
        read_node(node)
    except MalformedField as error:
        # The group has the fields of the node without its parts spec and status.
        raise part.error(field_path(error.field)[1:], error.remedy) from None


def _nodes_of(group: NodeGroup) -> Iterator[dict[str, Any]]:
    counts = [level.count for level in group.domains]
    for numbers in product(*map(_numbers, (*counts, group.hosts))):
        labels = dict(group.labels)
        name = group.name
        for level, number in zip(group.domains, numbers, strict=False):
            name = labels[level.label] = f"{name}-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{name}-{numbers[-1]}", "labels": labels},
            "spec": {"taints": [*group.taints]},
            "status": {"allocatable": {PODS: _MOST_PODS, **group.allocatable}},
        }


def _numbers(count: int) -> list[str]:
    """Return numbers from 0, with zeros before them, so that their order is that of their texts."""
    width = len(str(count - 1))
    return [f"{number:0{width}}" for number in range(count)]
