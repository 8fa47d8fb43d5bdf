"""A context of stubs: real stores, and a client that applies writes to their objects or fails on demand."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import jsonpatch

from admitq.controllers.context import Context
from admitq.controllers.indexes import followed_resource, job_indexes, resource_of
from admitq.controllers.registry import stores_needed
from admitq.controllers.settings import ControllerSettings
from admitq.core.model import ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, LocalQueueStatus
from admitq.runtime.client import Client, Page
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.resources import NAMESPACES, Resource
from admitq.runtime.store import Store
from admitq.runtime.write_scheduler import WriteScheduler
from admitq.workloads.admission_status import ADMISSION_CONDITIONS, ADMISSION_FIELDS
from admitq_api.json_objects import value_at
from tests.unit.controllers.builders import KINDS, NAMES, SETTINGS, apply_patch, instant, timestamp

NOT_FOUND = ApiError(404, "NotFound", "the server could not find the requested resource")
CONFLICT = ApiError(409, "Conflict", "changed since")


def _path(pointer: str) -> list[str | int]:
    """Return the steps of a JSON pointer; a number is always an index, never the name of a field."""
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    return [int(step) if step.isdigit() else step for step in steps]


def not_found(name: str) -> ApiError:
    """Return the error for a missing object of a served kind."""
    return ApiError(404, "NotFound", f"{name} not found", body={"details": {"name": name}})


@dataclass
class Stores:
    """Stores of all resources, with the indexes that the controllers need."""

    stores: dict[Resource, Store]

    def of(self, resource: Resource) -> Store:
        return self.stores[resource]

    def find(self, resource: Resource) -> Store | None:
        return self.stores.get(resource)


@dataclass
class StubClient:
    """Applies writes to objects of the stores; ``fails`` maps verbs to errors that are raised instead."""

    stores: Stores
    fails: dict[str, ApiError] = field(default_factory=dict[str, ApiError])
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    priorities: list[CallPriority] = field(default_factory=list[CallPriority])
    """The priority with which each call would wait for the rate limit."""
    api: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    """Objects of the API server by plural and name; the stores may lack them."""
    served: set[Resource] = field(default_factory=set[Resource])
    """Resources that discovery returns."""
    unserved: set[Resource] = field(default_factory=set[Resource])
    """Resources that are no longer served."""
    version: int = 100
    scheduler: WriteScheduler = field(default_factory=WriteScheduler)

    def _call(self, verb: str, what: str, body: Any = None) -> None:
        self.calls.append((verb, what, body))
        is_read = verb in {"get", "list"}
        self.priorities.append(current_priority(CallPriority.READ if is_read else CallPriority.STATUS))
        if (error := self.fails.get(verb)) is not None:
            raise error

    def _written(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        self._call("get", f"{resource.plural}/{name}")
        obj = self.api.get((resource.plural, name))
        if obj is None:
            raise NOT_FOUND if resource in self.unserved else not_found(name)
        return obj

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the objects of ``api`` with the selected label, or all."""
        self._call("list", resource.plural, label_selector or field_selector)
        label, _, value = (label_selector or "").partition("=")
        objects = [
            obj
            for (plural, _), obj in self.api.items()
            if plural == resource.plural
            and (not label or value_at(obj, ("metadata", "labels", label)) == value)
        ]
        return objects, str(self.version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        page_size: int,
    ) -> AsyncGenerator[Page]:
        """Return the same objects in pages."""
        objects, version = await self.list(resource, namespace, label_selector, field_selector)
        for start in range(0, max(1, len(objects)), page_size):
            yield Page(objects[start : start + page_size], version, start == 0)

    async def request_json(self, method: str, path: str) -> dict[str, Any]:
        """Return the versions of all groups, or the resources of one group."""
        self._call(method.lower(), path)
        if path == "/apis":
            versions = sorted({(resource.group, resource.version) for resource in self.served})
            groups = [{"name": group, "versions": [{"version": version}]} for group, version in versions]
            return {"groups": groups}
        resources = [
            {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
            for resource in self.served
            if path == f"/{'apis' if resource.group else 'api'}/{resource.api_version}"
        ]
        if not resources:
            raise NOT_FOUND
        return {"resources": resources}

    async def create(self, resource: Resource, obj: dict[str, Any], *, field_manager: str) -> dict[str, Any]:
        self._call("create", f"{resource.plural}/{obj['metadata']['name']}", obj)
        added = {"uid": f"uid-{obj['metadata']['name']}", "creationTimestamp": timestamp(10)}
        return self._written({**obj, "metadata": {**added, **obj["metadata"]}})

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None,
        subresource: str | None,
        field_manager: str,
    ) -> dict[str, Any]:
        what = f"{resource.plural}/{name}" + (f"/{subresource}" if subresource else "")
        self._call("patch", what, patch)
        stored = self.stores.of(resource).get(namespace or "", name)
        assert stored is not None
        if patch["metadata"].get("resourceVersion") != stored["metadata"]["resourceVersion"]:
            raise CONFLICT
        return self._written(apply_patch(stored, patch))

    async def apply(
        self, resource: Resource, obj: dict[str, Any], *, field_manager: str, subresource: str | None
    ) -> dict[str, Any]:
        """Apply a status as the API server does for a field manager that owns the whole admission status."""
        metadata = obj["metadata"]
        self._call("apply", f"{resource.plural}/{metadata['name']}/{subresource}", obj)
        stored = self.stores.of(resource).get(metadata["namespace"], metadata["name"])
        assert stored is not None
        if metadata["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise CONFLICT
        before: dict[str, Any] = stored.get("status") or {}
        kept = [item for item in before.get("conditions") or () if item["type"] not in ADMISSION_CONDITIONS]
        others = {name: value for name, value in before.items() if name not in ADMISSION_FIELDS}
        conditions = [*obj["status"]["conditions"], *kept]
        return self._written({**stored, "status": {**others, **obj["status"], "conditions": conditions}})

    async def json_patch(
        self, resource: Resource, name: str, operations: Any, *, namespace: str | None, field_manager: str
    ) -> dict[str, Any]:
        self._call("json_patch", f"{resource.plural}/{name}", operations)
        stored = self.stores.of(resource).get(namespace or "", name)
        assert stored is not None
        tests = [operation for operation in operations if operation["op"] == "test"]
        for test in tests:
            if value_at(stored, _path(test["path"])) != test["value"]:
                raise ApiError(422, "Invalid", f"testing value {test['path']} failed")
        changes = [operation for operation in operations if operation["op"] != "test"]
        return self._written(jsonpatch.apply_patch(stored, changes))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None,
        uid: str,
        resource_version: str | None,
        propagation: str,
        grace_seconds: int | None,
    ) -> dict[str, Any]:
        verb = "delete" if grace_seconds is None else f"delete within {grace_seconds} s"
        self._call(verb, f"{resource.plural}/{name}", (uid, resource_version))
        return {}


@dataclass
class StubRecorder:
    """Keeps recorded events and metrics."""

    events: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    metrics: list[str] = field(default_factory=list[str])
    """The names of called methods that have no list of their own."""
    gates: list[tuple[str, str, float, bool]] = field(default_factory=list[tuple[str, str, float, bool]])
    excess: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    versions: list[str] = field(default_factory=list[str])
    """The resourceVersions of the objects that events regard."""

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str, *_: Any) -> None:
        self.versions.append(regarding["metadata"].get("resourceVersion", ""))
        self.events.append((regarding["metadata"]["name"], reason, note))

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        self.gates.append((gate, cluster_queue, seconds, is_group))

    def excess_pods(self, workload: dict[str, Any], job_kind: str, number: int) -> None:
        self.excess.append((workload["metadata"].get("name", ""), job_kind, number))

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_named: self.metrics.append(name)


@dataclass
class StubCore:
    """A core with fixed answers."""

    cluster_queues: dict[str, ClusterQueueStatus] = field(default_factory=dict[str, ClusterQueueStatus])
    local_queues: dict[ObjectKey, LocalQueueStatus] = field(default_factory=dict[ObjectKey, LocalQueueStatus])
    cohorts: dict[str, CohortStatus] = field(default_factory=dict[str, CohortStatus])
    reserving: set[str] = field(default_factory=set[str])
    computed: int = 0
    """How many statuses of ClusterQueues were computed."""

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        self.computed += 1
        return self.cluster_queues.get(name)

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        return self.local_queues.get(key)

    def cohort_status(self, name: str) -> CohortStatus | None:
        return self.cohorts.get(name)

    def is_cluster_queue_active(self, name: str) -> bool | None:
        status = self.cluster_queues.get(name)
        return None if status is None else status.active

    def has_local_queue(self, key: ObjectKey) -> bool:
        return key in self.local_queues

    def cluster_queue_has_reservations(self, name: str) -> bool:
        return name in self.reserving

    def last_refusal(self, key: ObjectKey) -> None:
        return None

    def is_bypassed(self, key: ObjectKey) -> bool:
        return False

    def find_inadmissibility(self, key: ObjectKey) -> None:
        return None


class World:
    """A context with the stubs that a test inspects."""

    def __init__(self, settings: ControllerSettings = SETTINGS) -> None:
        kinds = {
            resource_of(integration): job_indexes(integration, NAMES) for integration in settings.integrations
        }
        followed = {
            followed_resource(integration, kind): {}
            for integration in settings.integrations
            for kind in integration.templates.referenced_kinds
        }
        needed = {**stores_needed(NAMES), **kinds, **followed}
        self.stores = Stores(
            {resource: Store(resource, indexes=indexes) for resource, indexes in needed.items()}
        )
        self.client = StubClient(self.stores)
        self.recorder = StubRecorder()
        self.core = StubCore()
        self.now = instant(10)
        self.ctx = Context(
            client=cast("Client", self.client),
            names=NAMES,
            settings=settings,
            recorder=cast("Any", self.recorder),
            clock=lambda: self.now,
            stores=self.stores,
            metrics=cast("Any", self.recorder),
            observe_write=self.put,
        )
        self.put(NAMESPACES, {"metadata": {"name": "ns", "uid": "uid-ns", "resourceVersion": "1"}})

    def put(self, resource: Resource, *objects: dict[str, Any]) -> None:
        """Store objects, as a watch would."""
        for obj in objects:
            self.stores.of(resource).upsert(obj)

    def get(self, resource: Resource, name: str, namespace: str = "ns") -> Any:
        """Return an object of a store."""
        return self.stores.of(resource).get(namespace if resource.namespaced else "", name)

    @property
    def calls(self) -> list[str]:
        """The calls of the API server, each as verb and object."""
        return [f"{verb} {what}" for verb, what, _ in self.client.calls]


def cluster_scoped(name: str, **fields: Any) -> dict[str, Any]:
    """Return an object without a namespace that a store accepts."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "5", **fields.pop("metadata", {})}
    return {"metadata": metadata, **fields}


__all__ = ["CONFLICT", "KINDS", "NOT_FOUND", "StubCore", "World", "cluster_scoped"]
