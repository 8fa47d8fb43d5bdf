"""Finds the pods of a namespace that belong to a Workload, by an index of pods.

Keys connect pods and Workloads. A pod belongs to a Workload if they share a key. Each key has a kind, so that
a label value cannot be mistaken for the name of a Workload.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum, auto
from typing import Final, TypeAlias

from admitq.integrations.families.pods import has_ended
from admitq.integrations.ownership import get_controller
from admitq.runtime.resources import PODS
from admitq_api.json_objects import JsonObject, select_fields, value_at
from admitq_api.labels import Names

_KEPT: Final = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp")


class KeyKind(StrEnum):
    """The kind of a key."""

    WORKLOAD = auto()
    """Name of a Workload, from the annotation that the admission wrote on the pod."""
    CHAIN = auto()
    """Name of the first slice of an elastic job, from an annotation of the pod."""
    POD = auto()
    """UID of the pod itself. The pods of a group own its Workload."""
    JOB = auto()
    """UID of a job: of an owner of the pod, or from a label that the job's controller set."""


Key: TypeAlias = tuple[KeyKind, str]


def may_run(pod: JsonObject, names: Names) -> bool:
    """Whether a pod uses or may use resources: it has not ended, and no scheduling gate of admitq holds it.

    A deleted pod runs until its object is removed, if it is assigned to a node. Without a node it never
    starts.
    """
    spec = pod.get("spec") or {}
    if has_ended(pod):
        return False
    if "deletionTimestamp" in pod["metadata"] and not spec.get("nodeName"):
        return False
    gates = {gate.get("name") for gate in spec.get("schedulingGates") or ()}
    return gates.isdisjoint((names.admission_gate, names.elastic_gate, names.topology_gate))


def keys_of_pod(pod: JsonObject, names: Names) -> Iterator[Key]:
    """Yield the keys of a pod."""
    metadata: JsonObject = pod["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    if (workload := annotations.get(names.workload)) is not None:
        yield KeyKind.WORKLOAD, workload
    if (chain := annotations.get(names.workload_slice_name)) is not None:
        yield KeyKind.CHAIN, chain
    if uid := metadata.get("uid"):
        yield KeyKind.POD, uid
    for value in (metadata.get("labels") or {}).values():
        yield KeyKind.JOB, value
    for owner in metadata.get("ownerReferences") or ():
        if uid := owner.get("uid"):
            yield KeyKind.JOB, uid


def keys_of_workload(workload: JsonObject, names: Names) -> Iterator[Key]:
    """Yield the keys by which the pods of a Workload are found."""
    metadata: JsonObject = workload["metadata"]
    yield KeyKind.WORKLOAD, metadata["name"]
    if (chain := value_at(metadata, ("annotations", names.workload_slice_name))) is not None:
        yield KeyKind.CHAIN, chain
    for owner in metadata.get("ownerReferences") or ():
        if uid := owner.get("uid"):
            yield KeyKind.POD, uid
    for uid in job_uids(workload, names):
        yield KeyKind.JOB, uid


def belongs_to(pod: JsonObject, workload: JsonObject, names: Names) -> bool:
    """Whether a pod was created for the job of a Workload of its namespace."""
    return not set(keys_of_pod(pod, names)).isdisjoint(keys_of_workload(workload, names))


def job_uids(workload: JsonObject, names: Names) -> set[str]:
    """Return the UIDs of the job of a Workload: from a label, and from its controller reference."""
    stated = (
        value_at(workload, ("metadata", "labels", names.job_uid)),
        value_at(get_controller(workload), ("uid",)),
    )
    return {uid for uid in stated if uid}


class PodIndex:
    """The pods of one namespace that may run, by key.

    The cost of finding the pods of a Workload depends only on their number. The index keeps only the
    metadata that is needed to choose, delete and report excess pods.

    Args:
        names: annotations and labels.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._pods: list[JsonObject] = []
        self._by_key: dict[Key, list[int]] = {}

    @property
    def pods(self) -> tuple[JsonObject, ...]:
        """All pods, in the order in which they were added."""
        return tuple(self._pods)

    def add(self, pods: Iterable[JsonObject]) -> None:
        """Add those of the pods that may run."""
        for pod in pods:
            if not may_run(pod, self._names):
                continue
            for key in keys_of_pod(pod, self._names):
                self._by_key.setdefault(key, []).append(len(self._pods))
            metadata = select_fields(pod["metadata"], _KEPT)
            self._pods.append({"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata})

    def of(self, workload: JsonObject) -> tuple[JsonObject, ...]:
        """Return the pods that belong to a Workload, in the order in which they were added."""
        keys = set(keys_of_workload(workload, self._names))
        # A pod may be found under several keys.
        positions = {at for key in keys for at in self._by_key.get(key, ())}
        return tuple(self._pods[at] for at in sorted(positions))
