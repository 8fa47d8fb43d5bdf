"""What the core observes of nodes, and of the pods on them."""

from typing import Any

import pytest

from admitq.core.events import NodeChanged, NodeDeleted, PodOfOthersChanged, PodOfOthersDeleted
from admitq.core.model import ObjectKey, Taint
from admitq.core.topology.domains import Node
from admitq.core.topology.topologies import PodOnNode
from admitq.translate.nodes import read_node, trim_node
from admitq.translate.observations import READ_ERRORS, observations
from admitq.translate.pods_of_others import trim_pod
from admitq.translate.read_options import ReadOptions
from admitq.translate.topologies import read_levels
from admitq_api.labels import DEFAULT_GROUP, names_for
from admitq_api.stored_fields import MalformedField

NAMES = names_for(DEFAULT_GROUP)
READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}
OBSERVATIONS = observations(NAMES, ReadOptions())


def node(*, labels: dict[str, str] | None = None, spec: Any = None, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "uid": "u",
            "resourceVersion": "7",
            "labels": labels or {},
            "annotations": {"a": "b"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", **(spec or {})},
        "status": {"conditions": [READY], "images": [{"names": ["large"]}], **status},
    }


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (node(), Node("n1")),
        (node(labels={"rack": "r1", "block": "b1"}), Node("n1", (("block", "b1"), ("rack", "r1")))),
        (
            node(spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "now"}]}),
            Node("n1", taints=(Taint("k", "v", "NoSchedule"),)),
        ),
        (node(spec={"unschedulable": True}), Node("n1", schedulable=False)),
        (node(conditions=[]), Node("n1", ready=False)),
        (node(conditions=[{"type": "Ready", "status": "Unknown"}]), Node("n1", ready=False)),
        (node(conditions=[{"type": "DiskPressure", "status": "True"}]), Node("n1", ready=False)),
        (
            # What is less than a milli-CPU or a unit cannot be used.
            node(allocatable={"cpu": "1500500u", "memory": "2500m", "pods": "110"}),
            Node("n1", allocatable=(("cpu", 1500), ("memory", 2), ("pods", 110))),
        ),
    ],
    ids=[
        "ready",
        "labels",
        "taint",
        "cordoned",
        "no conditions",
        "not ready",
        "no readiness",
        "allocatable, rounded down",
    ],
)
def test_node_is_read_from_its_trimmed_form(stored: dict[str, Any], read: Node) -> None:
    assert OBSERVATIONS["nodes"].changed(stored) == NodeChanged(read)
    assert read_node(trim_node(stored)) == read
    assert OBSERVATIONS["nodes"].deleted(trim_node(stored)) == NodeDeleted("n1")


def test_trimmed_node_does_not_change_with_a_heartbeat() -> None:
    later = {**READY, "lastHeartbeatTime": "2026-01-02T03:09:05Z"}
    assert trim_node(node()) == trim_node(node(conditions=[later]))


@pytest.mark.parametrize(
    ("stored", "field"),
    [
        (node(allocatable={"cpu": "many"}), "status.allocatable[cpu]"),
        (node(labels={"rack": 1}), "metadata.labels"),  # pyright: ignore[reportArgumentType]
        (node(spec={"taints": "none"}), "spec.taints"),
    ],
)
def test_error_of_an_unreadable_node_names_the_field(stored: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedField) as error:
        read_node(stored)
    assert error.value.field == field


def pod(*, annotations: dict[str, str] | None = None, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "1Ki"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "ns",
            "name": "p",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"app": "a"},
            "annotations": annotations or {},
        },
        "spec": {"nodeName": "n1", "containers": containers, "volumes": [{"name": "v"}], **spec},
        "status": {"phase": phase, "podIP": "10.0.0.1"},
    }


OF_POD = (("cpu", 2000), ("memory", 1024))
PLACED = {NAMES.workload: "w"}


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (pod(), PodOnNode("n1", OF_POD)),
        (pod(nodeName=""), None),
        (pod(phase="Pending"), PodOnNode("n1", OF_POD)),
        (pod(phase="Succeeded"), None),
        (pod(phase="Failed"), None),
        (pod(overhead={"cpu": "500m"}), PodOnNode("n1", (("cpu", 2500), ("memory", 1024)))),
        (
            pod(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3"}}}]),
            PodOnNode("n1", (("cpu", 3000), ("memory", 1024))),
        ),
        (
            pod(
                initContainers=[
                    {"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}
                ]
            ),
            PodOnNode("n1", (("cpu", 5000), ("memory", 1024))),
        ),
        (pod(annotations=PLACED), PodOnNode("n1", OF_POD)),
        (pod(annotations={NAMES.podset_required_topology: "rack"}), PodOnNode("n1", OF_POD)),
        (pod(annotations={**PLACED, NAMES.podset_required_topology: "rack"}), None),
        (pod(annotations={**PLACED, NAMES.podset_preferred_topology: "rack"}), None),
        (pod(annotations={**PLACED, NAMES.podset_unconstrained_topology: "true"}), None),
        (pod(annotations={**PLACED, NAMES.podset_slice_required_topology: "rack"}), None),
        (pod(annotations={**PLACED, NAMES.podset_slice_required_topology_constraints: "[]"}), None),
    ],
    ids=[
        "running",
        "on no node",
        "starting",
        "succeeded",
        "failed",
        "overhead",
        "init container",
        "sidecar",
        "of a workload without a place",
        "with a request, of no workload",
        "placed by a required level",
        "placed by a preferred level",
        "placed without constraint",
        "placed in slices",
        "placed in slices of several levels",
    ],
)
def test_pod_is_read_from_its_trimmed_form(stored: dict[str, Any], read: PodOnNode | None) -> None:
    key = ObjectKey("ns", "p")
    event = PodOfOthersDeleted(key) if read is None else PodOfOthersChanged(key, read)
    assert OBSERVATIONS["pods"].changed(stored) == event
    assert OBSERVATIONS["pods"].changed(trim_pod(stored, NAMES)) == event
    assert OBSERVATIONS["pods"].deleted(trim_pod(stored, NAMES)) == PodOfOthersDeleted(key)


def test_trimmed_pod_has_only_what_is_read() -> None:
    trimmed = trim_pod(pod(annotations={"a": "b"}), NAMES)
    assert trimmed == {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"resources": {"requests": {"cpu": "2", "memory": "1Ki"}}}],
        },
        "status": {"phase": "Running"},
    }
    assert list(trim_pod(pod(annotations={**PLACED, NAMES.podset_required_topology: "rack"}), NAMES)) == [
        "metadata"
    ]


def test_pod_of_unexpected_structure_is_an_error_of_reading() -> None:
    with pytest.raises(READ_ERRORS):
        OBSERVATIONS["pods"].changed(pod(containers="none"))


def test_levels_of_a_topology_are_read_in_order() -> None:
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert read_levels({"spec": {"levels": levels}}) == ("block", "rack", "kubernetes.io/hostname")
    with pytest.raises(MalformedField, match=r"spec.levels\[1\].nodeLabel"):
        read_levels({"spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": 1}]}})
