"""Pods and pod groups in a world with their controller."""

from collections.abc import Callable
from typing import Any

from admitq.controllers.indexes import group_key_name
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.integrations.kinds.pod import POD
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    TEMPLATE,
    condition,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.world import World, cluster_scoped

GROUP = Key("ns", group_key_name("g"))

GATES = [{"name": NAMES.admission_gate}, {"name": NAMES.topology_gate}]

EVICTED = condition("Evicted", True, "Preempted", "Preempted for x", since=5)


def pod(
    name: str = "p", *, group: str = "", total: int = 2, state: str = "held", **metadata: Any
) -> dict[str, Any]:
    """Return a managed pod.

    States: held (gated), running, deleted (its grace period has ended), succeeded, failed.
    """
    labels = {NAMES.managed: "true", NAMES.queue_name: "lq", **metadata.pop("labels", {})}
    annotations = {NAMES.role_hash: "r", **metadata.pop("annotations", {})}
    if group:
        labels[NAMES.pod_group_name] = group
        annotations[NAMES.pod_group_total_count] = str(total)
    if state == "deleted":
        metadata["deletionTimestamp"] = metadata.pop("deletion", timestamp(1))
    spec: dict[str, Any] = dict(TEMPLATE["spec"])
    if state == "held":
        spec["schedulingGates"] = GATES
    if state in {"running", "deleted"}:
        spec["nodeName"] = "n"
    phase = {"held": "Pending", "deleted": "Running"}.get(state, state.title())
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "3",
            "creationTimestamp": timestamp(0),
            "labels": labels,
            "annotations": annotations,
            "finalizers": [NAMES.managed_finalizer],
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def pods_of_group(*states: str, **fields: Any) -> list[dict[str, Any]]:
    """Return one pod of group ``g`` for each state, named ``a``, ``b`` and so on."""
    return [pod("abcdef"[number], group="g", state=state, **fields) for number, state in enumerate(states)]


def owner(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}


def group_workload(
    make: Callable[..., dict[str, Any]],
    *conditions: dict[str, Any],
    owners: str = "ab",
    count: int = 2,
    **parts: Any,
) -> dict[str, Any]:
    """Return the Workload of group ``g``."""
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "r", "count": count, "flavors": {"cpu": "f"}}],
    }
    given = {"admission": admission} if make is not workload else {}
    metadata = {
        "annotations": {NAMES.is_group_workload: "true"},
        "ownerReferences": [owner(name) for name in owners],
        **parts.pop("metadata", {}),
    }
    spec = {"podSets": [{"name": "r", "count": 2, "template": TEMPLATE}]}
    return make(*conditions, name="g", metadata=metadata, spec=spec, **given, **parts)


class PodWorld(World):
    """A world in which deleted pods wait for their finalizers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings_with(**{"integrations": (POD,), **settings}))
        self.put(KINDS.resource_flavors, cluster_scoped("f", spec={"nodeLabels": {"pool": "spot"}}))
        self.pods = JobController(self.ctx, POD, OwnerLookup(self.ctx))
        self.client.delete = self._delete  # type: ignore[method-assign]

    async def _delete(
        self, resource: Any, name: str, *, namespace: str | None, uid: str, **_: Any
    ) -> dict[str, Any]:
        self.client.calls.append(("delete", f"{resource.plural}/{name}", uid))
        stored = self.stores.of(resource).get(namespace or "", name)
        assert stored is not None
        if not stored["metadata"].get("finalizers"):
            self.stores.of(resource).remove(stored)
            return {}
        self.client.version += 1
        stored["metadata"] |= {
            "deletionTimestamp": timestamp(10),
            "resourceVersion": str(self.client.version),
        }
        return stored

    async def settle(self, key: Key = GROUP) -> None:
        """Reconcile a job until the controller makes no more calls."""
        for _ in range(50):
            before = len(self.client.calls)
            await self.pods.reconcile(key)
            if len(self.client.calls) == before:
                return
        raise AssertionError(self.calls)

    def final_objects(self) -> dict[str, Any]:
        """Return all pods and Workloads by name, without their versions."""
        objects = [*self.stores.of(PODS).list(), *self.stores.of(KINDS.workloads).list()]
        return {obj["metadata"]["name"]: without_version(obj) for obj in objects}


def without_version(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def gate_names(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
