"""The pods of jobs with a topology assignment: how they are watched, and to which Workload they belong."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from admitq.controllers.indexes import BY_CHAIN, namespaced_index_value
from admitq.controllers.pods.excess_pods import find_last_slice
from admitq.core.topology.domains import HOST_NAME
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_controller, is_group_workload
from admitq.runtime.resources import PODS
from admitq.runtime.store import Index, Key
from admitq.workloads.transitions import is_admitted, is_condition_true, is_finished_or_deleting
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, select_fields, value_at
from admitq_api.labels import Names

PLACED_PODS: Final = replace(PODS, view="with a topology")
"""Pods of started jobs that have not ended, as far as they may have a topology assignment."""

BY_CHAIN_IF_WAITING: Final = "chain-if-waiting"
"""Name of the index of pods that wait for their host, by the slice chain of their Workload."""

BY_AWAITED_HOST: Final = "awaited-host"
"""Name of the index of pods that wait for their host, by this host."""

_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
)


def find_placed_workload(workloads: Iterable[JsonObject], names: Names) -> JsonObject | None:
    """Return the admitted Workload that determines the domains of pods: of a chain, the last slice.

    The Workload of one flavor of another Workload has no pods of its own.
    """
    return find_last_slice((workload for workload in workloads if _lets_pods_run(workload, names)), names)


def _lets_pods_run(workload: JsonObject, names: Names) -> bool:
    return (
        is_admitted(workload)
        and not is_condition_true(workload, ConditionType.EVICTED)
        and not is_finished_or_deleting(workload)
        and not value_at(workload, ("metadata", "labels", names.concurrent_admission_parent))
    )


def select_members(workload: JsonObject, names: Names) -> Callable[[JsonObject], bool]:
    """Return the condition for pods that name the Workload to belong to its job.

    Users can create pods with any annotation. The pods of a group own its Workload. Other pods must have a
    controller.
    """
    controller = get_controller(workload)
    if is_group_workload(workload, names) or (controller or {}).get("kind") == PODS.kind:
        references = value_at(workload, ("metadata", "ownerReferences"), [])
        owners = {reference.get("uid") for reference in references}
        return lambda pod: pod["metadata"].get("uid") in owners
    return lambda pod: get_controller(pod) is not None


def list_unhealthy_nodes(workload: JsonObject) -> list[str]:
    """Return the hosts that the status of a Workload lists as unhealthy."""
    return [str(node.get("name")) for node in value_at(workload, ("status", "unhealthyNodes"), [])]


def get_awaited_host(pod: JsonObject, names: Names) -> str:
    """Return the host that a pod waits for: it was ungated into this host, and is not on a node yet.

    Empty for other pods.
    """
    if (
        pods.get_phase(pod) != "Pending"
        or pods.get_text(pod, "spec", "nodeName")
        or pods.has_gate(pod, names.topology_gate)
        or pods.is_being_deleted(pod)
    ):
        return ""
    return pods.get_text(pod, "spec", "nodeSelector", HOST_NAME)


def pod_chain_index(names: Names) -> Index:
    """Return the index of pods by the slice chain of their Workload, or else by its name."""

    def chain(pod: JsonObject) -> Iterator[str]:
        for key in (names.workload_slice_name, names.workload):
            if name := pods.get_annotation(pod, key):
                yield namespaced_index_value(pods.get_text(pod, "metadata", "namespace"), name)
                return

    return chain


def placed_pod_indexes(names: Names) -> dict[str, Index]:
    """Return the indexes of the store of these pods."""
    chain = pod_chain_index(names)

    def awaited_host(pod: dict[str, Any]) -> Iterator[str]:
        if host := get_awaited_host(pod, names):
            yield host

    def chain_if_waiting(pod: dict[str, Any]) -> Iterator[str]:
        if get_awaited_host(pod, names):
            yield from chain(pod)

    return {BY_CHAIN: chain, BY_AWAITED_HOST: awaited_host, BY_CHAIN_IF_WAITING: chain_if_waiting}


def trim_placed_pod(pod: JsonObject, names: Names) -> dict[str, Any]:
    """Return the fields of a pod that are read; only its identity without a topology.

    A pod with a topology has the gate or, afterwards, a node selector.
    """
    metadata, selector = pods.get_mapping(pod, "metadata"), pods.get_mapping(pod, "spec", "nodeSelector")
    if not selector and not pods.has_gate(pod, names.topology_gate):
        return {"metadata": select_fields(metadata, ("name", "namespace", "uid", "resourceVersion"))}
    kept = (names.workload, names.workload_slice_name, names.pod_index_offset)
    # The patch that ends a waiting pod contains its conditions.
    kept_status = ("phase", "conditions") if get_awaited_host(pod, names) else ("phase",)
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            **select_fields(metadata, _KEPT_METADATA),
            "annotations": select_fields(pods.get_mapping(metadata, "annotations"), kept),
        },
        "spec": select_fields(pods.get_mapping(pod, "spec"), ("nodeName", "nodeSelector", "schedulingGates")),
        "status": select_fields(pods.get_mapping(pod, "status"), kept_status),
    }


def key_of_chain(chain: str) -> Key:
    """Return the key under which the pods of a slice chain, or of one Workload, are reconciled."""
    namespace, _, name = chain.partition("/")
    return Key(namespace, name)
