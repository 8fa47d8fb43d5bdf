"""A context of stand-ins: real stores, and a client that applies writes to them or fails as it is told."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import jsonpatch

from admitq.controllers.context import Context
from admitq.controllers.indexes import followed_resource, job_indexes, resource_of
from admitq.controllers.registry import stores_needed
from admitq.controllers.settings import Settings
from admitq.core.model import ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, LocalQueueStatus
from admitq.runtime.client import Client, Page
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, current_priority
from admitq.runtime.resources import NAMESPACES, Resource
from admitq.runtime.store import Store
from admitq.workloads.admission_status import ADMISSION_CONDITIONS, ADMISSION_FIELDS
from admitq_api.json_objects import value_at
from tests.unit.controllers.builders import KINDS, NAMES, SETTINGS, after, at, time

NOT_FOUND = ApiError(404, "NotFound", "the server could not find the requested resource")
CONFLICT = ApiError(409, "Conflict", "changed since")


def _path(pointer: str) -> list[str | int]:
    """The steps of a JSON pointer; none of the fields here has a number for its name."""
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    return [int(step) if step.isdigit() else step for step in steps]


def not_found(name: str) -> ApiError:
    """An object that is not there, of a kind that is."""
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
    """Applies writes to the stores' objects; ``fails`` holds an error by verb, raised instead."""

    stores: Stores
    fails: dict[str, ApiError] = field(default_factory=dict[str, ApiError])
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    priorities: list[CallPriority] = field(default_factory=list[CallPriority])
    """With what priority each of the calls would wait for the rate limit."""
    api: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    """What the API server has that the stores may lack, by plural and name."""
    served: set[Resource] = field(default_factory=set[Resource])
    """What discovery tells of."""
    unserved: set[Resource] = field(default_factory=set[Resource])
    """What is not served any more."""
    version: int = 100

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
        found = self.api.get((resource.plural, name))
        if found is None:
            raise NOT_FOUND if resource in self.unserved else not_found(name)
        return found

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[list[dict[str, Any]], str]:
        """Read what of ``api`` has the one label that is asked for, or all."""
        self._call("list", resource.plural, label_selector or field_selector)
        label, _, value = (label_selector or "").partition("=")
        found = [
            one
            for (plural, _), one in self.api.items()
            if plural == resource.plural
            and (not label or value_at(one, ("metadata", "labels", label)) == value)
        ]
        return found, str(self.version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        page_size: int,
    ) -> AsyncGenerator[Page]:
        """The same in pages of which each begins where the last one ended."""
        found, version = await self.list(resource, namespace, label_selector, field_selector)
        for start in range(0, max(1, len(found)), page_size):
            yield Page(found[start : start + page_size], version, start == 0)

    async def request_json(self, method: str, path: str) -> dict[str, Any]:
        """Tell of the versions of groups, or of the resources of one."""
        self._call(method.lower(), path)
        if path == "/apis":
            versions = sorted({(one.group, one.version) for one in self.served})
            return {"groups": [{"name": group, "versions": [{"version": one}]} for group, one in versions]}
        offered = [
            {"name": one.plural, "kind": one.kind, "namespaced": one.namespaced}
            for one in self.served
            if path == f"/{'apis' if one.group else 'api'}/{one.api_version}"
        ]
        if not offered:
            raise NOT_FOUND
        return {"resources": offered}

    async def create(self, resource: Resource, obj: dict[str, Any], *, field_manager: str) -> dict[str, Any]:
        self._call("create", f"{resource.plural}/{obj['metadata']['name']}", obj)
        added = {"uid": f"uid-{obj['metadata']['name']}", "creationTimestamp": time(10)}
        made = {**obj, "metadata": {**added, **obj["metadata"]}}
        return self._written(made)

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
        found = self.stores.of(resource).get(namespace or "", name)
        assert found is not None
        if patch["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise CONFLICT
        return self._written(after(found, patch))

    async def apply(
        self, resource: Resource, obj: dict[str, Any], *, field_manager: str, subresource: str | None
    ) -> dict[str, Any]:
        """Apply a status as the API server does for a manager that owns all of the admission status."""
        metadata = obj["metadata"]
        self._call("apply", f"{resource.plural}/{metadata['name']}/{subresource}", obj)
        found = self.stores.of(resource).get(metadata["namespace"], metadata["name"])
        assert found is not None
        if metadata["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise CONFLICT
        before: dict[str, Any] = found.get("status") or {}
        kept = [one for one in before.get("conditions") or () if one["type"] not in ADMISSION_CONDITIONS]
        others = {name: value for name, value in before.items() if name not in ADMISSION_FIELDS}
        applied = [*obj["status"]["conditions"], *kept]
        return self._written({**found, "status": {**others, **obj["status"], "conditions": applied}})

    async def json_patch(
        self, resource: Resource, name: str, operations: Any, *, namespace: str | None, field_manager: str
    ) -> dict[str, Any]:
        self._call("json_patch", f"{resource.plural}/{name}", operations)
        found = self.stores.of(resource).get(namespace or "", name)
        assert found is not None
        tests = [one for one in operations if one["op"] == "test"]
        for test in tests:
            if value_at(found, _path(test["path"])) != test["value"]:
                raise ApiError(422, "Invalid", f"testing value {test['path']} failed")
        changes = [one for one in operations if one["op"] != "test"]
        return self._written(jsonpatch.apply_patch(found, changes))

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
class Told:
    """Keeps what it is told: a recorder of events and metrics alike."""

    events: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    counted: list[str] = field(default_factory=list[str])
    gates: list[tuple[str, str, float, bool]] = field(default_factory=list[tuple[str, str, float, bool]])
    excess: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    cohorts: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    versions: list[str] = field(default_factory=list[str])
    """The resourceVersions of the objects that events regard."""

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str, *_: Any) -> None:
        self.versions.append(regarding["metadata"].get("resourceVersion", ""))
        self.events.append((regarding["metadata"]["name"], reason, note))

    def gate_removed(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        self.gates.append((gate, cluster_queue, seconds, is_group))

    def excess_pods(self, workload: dict[str, Any], job_kind: str, number: int) -> None:
        self.excess.append((workload["metadata"].get("name", ""), job_kind, number))

    def cohort_reported(self, name: str, parent: str, root: str, _: CohortStatus) -> None:
        self.cohorts.append((name, parent, root))

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_named: self.counted.append(name)


@dataclass
class Core:
    """A core that answers what it is given."""

    cluster_queues: dict[str, ClusterQueueStatus] = field(default_factory=dict[str, ClusterQueueStatus])
    local_queues: dict[ObjectKey, LocalQueueStatus] = field(default_factory=dict[ObjectKey, LocalQueueStatus])
    cohorts: dict[str, CohortStatus] = field(default_factory=dict[str, CohortStatus])
    reserving: set[str] = field(default_factory=set[str])

    def cluster_queue_status(self, name: str) -> ClusterQueueStatus | None:
        return self.cluster_queues.get(name)

    def local_queue_status(self, key: ObjectKey) -> LocalQueueStatus | None:
        return self.local_queues.get(key)

    def cohort_status(self, name: str) -> CohortStatus | None:
        return self.cohorts.get(name)

    def cluster_queue_has_reservations(self, name: str) -> bool:
        return name in self.reserving

    def parked_refusal(self, key: ObjectKey) -> None:
        return None

    def is_bypassed(self, key: ObjectKey) -> bool:
        return False

    def admissibility(self, key: ObjectKey) -> None:
        return None


class World:
    """A context with everything that a test looks at."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        kinds = {resource_of(one): job_indexes(one, NAMES) for one in settings.integrations}
        followed = {
            followed_resource(one, kind): {}
            for one in settings.integrations
            for kind in one.templates.referenced_kinds
        }
        needed = {**stores_needed(NAMES), **kinds, **followed}
        self.stores = Stores({one: Store(one, indexes=indexes) for one, indexes in needed.items()})
        self.client = StubClient(self.stores)
        self.told = Told()
        self.core = Core()
        self.now = at(10)
        self.ctx = Context(
            client=cast("Client", self.client),
            names=NAMES,
            settings=settings,
            recorder=cast("Any", self.told),
            clock=lambda: self.now,
            stores=self.stores,
            metrics=cast("Any", self.told),
            queue_metrics=cast("Any", self.told),
            observe_write=self.put,
        )
        self.put(NAMESPACES, {"metadata": {"name": "ns", "uid": "uid-ns", "resourceVersion": "1"}})

    def put(self, resource: Resource, *objects: dict[str, Any]) -> None:
        """Take objects into a store, as a watch would."""
        for obj in objects:
            self.stores.of(resource).upsert(obj)

    def get(self, resource: Resource, name: str, namespace: str = "ns") -> Any:
        """What a store holds of an object."""
        return self.stores.of(resource).get(namespace if resource.namespaced else "", name)

    @property
    def calls(self) -> list[str]:
        """The calls of the API server, as verb and object."""
        return [f"{verb} {what}" for verb, what, _ in self.client.calls]


def cluster_scoped(name: str, **fields: Any) -> dict[str, Any]:
    """An object without a namespace, complete enough for a store."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "5", **fields.pop("metadata", {})}
    return {"metadata": metadata, **fields}


__all__ = ["CONFLICT", "KINDS", "NOT_FOUND", "Core", "World", "cluster_scoped"]
