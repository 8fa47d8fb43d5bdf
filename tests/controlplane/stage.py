"""A namespace with its own queues beside a running admitq, and short methods for the steps of stories.

Names of cluster-scoped objects end with the name of the namespace, so that stories do not interfere.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import EVENTS, JOBS, PODS, Resource
from admitq.workloads.transitions import StatusTransition
from admitq_api.json_objects import create_merge_patch, value_at
from admitq_api.labels import Names
from localcluster.waiting import eventually

DELETED_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "deleted", "uid": "deleted"}
"""A reference to an owner that does not exist: the garbage collector deletes objects with it."""
RUN_SECONDS = "kwok.admitq.dev/run-seconds"
"""How long simulated pods run; without it they run until they are deleted."""


EVENT_SECONDS = 180.0
"""How long stories wait for events: these leave the API server to other writes while it is busy."""


@dataclass(frozen=True)
class Stage:
    """The namespace of one story."""

    client: Client
    names: Names
    namespace: str

    @property
    def kinds(self) -> Kinds:
        """The resources of admitq's kinds."""
        return kinds_of(self.names)

    def own(self, name: str) -> str:
        """The name of a cluster-scoped object of this story."""
        return f"{name}-{self.namespace}"

    # --- objects ----------------------------------------------------------------------------------

    async def flavor(self, name: str = "f", **spec: Any) -> None:
        """Create a ResourceFlavor."""
        await self.create(self.kinds.resource_flavors, self.own(name), {"spec": spec})

    async def cluster_queue(
        self, name: str = "cq", *, cpu: int = 4, flavors: Any = ("f",), **spec: Any
    ) -> None:
        """Create a ClusterQueue with a quota of ``cpu`` CPUs in each flavor."""
        quotas = [
            {"name": self.own(flavor), "resources": [{"name": "cpu", "nominalQuota": cpu}]}
            for flavor in flavors
        ]
        await self.create(
            self.kinds.cluster_queues,
            self.own(name),
            {
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
                    **spec,
                }
            },
        )

    async def local_queue(self, name: str = "lq", *, cluster_queue: str = "cq") -> None:
        """Create a LocalQueue."""
        spec = {"clusterQueue": self.own(cluster_queue)}
        await self.create(self.kinds.local_queues, name, {"spec": spec})

    async def active_check(self, name: str) -> None:
        """Create an AdmissionCheck and set it Active, as its controller would."""
        checks, own = self.kinds.admission_checks, self.own(name)
        await self.create(checks, own, {"spec": {"controllerName": "example.com/c"}})
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        await self.change(checks, own, {"status": {"conditions": [active]}}, "status")

    async def queues(self, *, cpu: int = 4, **spec: Any) -> None:
        """Create a flavor, a ClusterQueue and a LocalQueue ``lq``."""
        await self.flavor()
        await self.cluster_queue(cpu=cpu, **spec)
        await self.local_queue()

    async def active_queues(self, *, cpu: int = 4, **spec: Any) -> None:
        """Create the same queues, and wait until they are active. So no job waits for them."""
        await self.queues(cpu=cpu, **spec)
        await self.until_active(self.kinds.local_queues, "lq")

    async def closed_queue(self) -> None:
        """Create a LocalQueue ``closed`` of a stopped ClusterQueue."""
        await self.cluster_queue("closed", stopPolicy="Hold")
        await self.local_queue("closed", cluster_queue="closed")

    async def job(
        self,
        name: str = "j",
        *,
        queue: str | None = "lq",
        pods: int = 1,
        cpu: Any = 1,
        seconds: float | None = None,
        labels: Any = None,
        metadata: Any = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a Job with a parallelism of ``pods``, each of which requests ``cpu``."""
        annotations = {} if seconds is None else {RUN_SECONDS: str(seconds)}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}
                ],
            },
        }
        marked = {**({self.names.queue_name: queue} if queue else {}), **(labels or {})}
        job = {
            "metadata": {"labels": marked, **(metadata or {})},
            "spec": {"parallelism": pods, "completions": pods, "template": template, **spec},
        }
        return await self.create(JOBS, name, job)

    async def create(self, resource: Resource, name: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Create an object of any kind."""
        metadata = {**obj.get("metadata", {}), "name": name}
        if resource.namespaced:
            metadata["namespace"] = self.namespace
        full = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return await self.client.create(resource, full)

    async def change(
        self, resource: Resource, name: str, patch: dict[str, Any], subresource: str | None = None
    ) -> dict[str, Any]:
        """Apply a merge patch to an object."""
        namespace = self.namespace if resource.namespaced else None
        return await self.client.merge_patch(resource, name, patch, namespace, subresource)

    async def apply_transition(
        self, workload: str, change_status: Callable[[StatusTransition], object]
    ) -> None:
        """Write a status transition of a Workload, as another controller would."""

        async def done() -> bool:
            change = StatusTransition(await self.get(self.kinds.workloads, workload), time.time_ns())
            change_status(change)
            if (patch := change.patch()) is not None:
                await self.change(self.kinds.workloads, workload, patch, "status")
            return True

        await eventually(done)

    # --- reading ----------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        """Read an object."""
        return await self.client.get(resource, name, self.namespace if resource.namespaced else None)

    async def workloads(self, job: str = "j") -> list[dict[str, Any]]:
        """The Workloads of a Job."""
        items, _ = await self.client.list(self.kinds.workloads, self.namespace)
        return [one for one in items if owner_of(one) == job]

    async def workload(self, job: str = "j") -> dict[str, Any]:
        """The one Workload of a Job.

        Raises:
            AssertionError: there is none, or more than one.
        """
        found = await self.workloads(job)
        assert len(found) == 1, f"{len(found)} Workloads of {job}"
        return found[0]

    async def condition(self, type_: str, job: str = "j") -> tuple[str, str, str] | None:
        """A condition of a Job's Workload."""
        return condition_of(await self.workload(job), type_)

    async def pods(self, job: str = "j") -> list[dict[str, Any]]:
        """The Pods of a Job."""
        items, _ = await self.client.list(PODS, self.namespace, label_selector=f"job-name={job}")
        return items

    async def events(self, kind: str, name: str) -> list[tuple[str, str]]:
        """Reasons and notes of admitq's events about an object, in order."""
        items, _ = await self.client.list(EVENTS, self.namespace)
        about = [one for one in items if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)]
        ordered = sorted(about, key=lambda one: one.get("eventTime") or "")
        ours = [one for one in ordered if one.get("reportingController", "").startswith(self.names.group)]
        return [(one["reason"], one["note"]) for one in ours]

    async def is_complete(self, job: str) -> bool:
        """Whether a Job has succeeded."""
        return condition_of(await self.get(JOBS, job), "Complete") is not None

    # --- waiting ----------------------------------------------------------------------------------

    async def until(
        self,
        read: Callable[[], Awaitable[Any]],
        expected: Any = True,
        *,
        what: str = "",
        timeout: float = 60.0,  # noqa: ASYNC109 a deadline for many reads
        interval: float | None = None,
    ) -> Any:
        """Wait until ``read`` returns the expected value."""

        async def equals_expected() -> bool:
            found = await read()
            assert found == expected, f"{found!r} is not {expected!r}"
            return True

        return await eventually(
            equals_expected, timeout=timeout, interval=interval, what=what or f"{expected!r}"
        )

    async def until_condition(self, type_: str, reason: str, job: str = "j") -> None:
        """Wait until a condition of a Job's Workload has this reason."""

        async def current_reason() -> Any:
            condition = await self.condition(type_, job)
            return condition and condition[1]

        await self.until(current_reason, reason, what=f"condition {type_} of {job} with reason {reason}")

    async def until_active(self, resource: Resource, name: str, *, active: bool = True) -> None:
        """Wait until the condition Active of a queue has the status ``active``."""

        async def status() -> str:
            return (condition_of(await self.get(resource, name), "Active") or ("",))[0]

        await self.until(status, str(active), what=f"{resource.kind} {name} is Active={active}")

    async def until_workload_exists(self, job: str = "j") -> None:
        """Wait until a Job has a Workload."""

        async def exists() -> bool:
            return bool(await self.workload(job))

        await self.until(exists, what=f"a Workload of {job}")

    async def until_event(self, kind: str, name: str, reason: str, note: str) -> None:
        """Wait for an event about an object."""

        async def is_recorded() -> bool:
            events = await self.events(kind, name)
            assert (reason, note) in events, events
            return True

        await eventually(is_recorded, timeout=EVENT_SECONDS, what=f"event {reason}: {note}")

    async def until_running(self, job: str = "j", *, running: bool = True) -> None:
        """Wait until a Job is unsuspended; with ``running=False`` until it is suspended and has no pods."""

        async def has_state() -> bool:
            one = await self.get(JOBS, job)
            suspended = value_at(one, ("spec", "suspend"), False)
            stopping = value_at(one, ("metadata", "annotations", self.names.stopping)) is not None
            return suspended is not running and not stopping

        await self.until(has_state, what=f"{job} to be {'running' if running else 'suspended'}")

    async def until_finished(self, job: str = "j") -> None:
        """Wait until a Job's Workload is finished and has no finalizer."""

        async def is_finished() -> bool:
            one = await self.workload(job)
            return condition_of(one, "Finished") is not None and not one["metadata"].get("finalizers")

        await self.until(is_finished, what=f"{job} to be finished")

    async def until_garbage_is_collected(self) -> None:
        """Wait until the garbage collector handles Workloads, up to half a minute after their CRD is created.

        Before that, a deletion with propagation ``Orphan`` leaves no orphans: the garbage collector does not
        remove the owner references, and deletes the Workloads later.
        """
        template = {"spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
        spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
        garbage = {"metadata": {"ownerReferences": [DELETED_OWNER]}, "spec": spec}
        await self.create(self.kinds.workloads, "garbage", garbage)
        await self.until_gone(self.kinds.workloads, "garbage")

    async def until_gone(self, resource: Resource, name: str) -> None:
        """Wait until an object does not exist."""

        async def is_gone() -> bool:
            try:
                await self.get(resource, name)
            except ApiError as error:
                return error.is_not_found
            return False

        await self.until(is_gone, what=f"{resource.kind} {name} to be gone")


async def until_next_second() -> None:
    """Wait until the clock shows the next full second: API timestamps have whole seconds."""
    start = int(time.time())

    async def is_later() -> bool:
        return int(time.time()) > start

    await eventually(is_later, what="the next second")


async def run_concurrently(**stories: Coroutine[Any, Any, None]) -> None:
    """Run independent stories concurrently.

    Raises:
        AssertionError: some stories failed; the message names each of them.
    """
    outcomes = await asyncio.gather(*stories.values(), return_exceptions=True)
    failures: list[str] = []
    for name, outcome in zip(stories, outcomes, strict=True):
        if isinstance(outcome, AssertionError | LookupError | ApiError):
            failures.append(f"{name}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
    assert not failures, "\n".join(failures)


def condition_of(obj: dict[str, Any], type_: str) -> tuple[str, str, str] | None:
    """A condition as (status, reason, message); None if the object does not have it."""
    for found in value_at(obj, ("status", "conditions"), []):
        if found["type"] == type_:
            return found["status"], found["reason"], found["message"]
    return None


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The merge patch between two versions of an object, without fields that change with every write."""
    return create_merge_patch(_stable(before), _stable(after))


def controlled_by(owner: dict[str, Any]) -> dict[str, Any]:
    """The metadata of an object that the controller of ``owner`` created."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {"ownerReferences": [reference]}


def _stable(obj: dict[str, Any]) -> dict[str, Any]:
    volatile = {"resourceVersion", "generation", "managedFields"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in volatile}
    return {**obj, "metadata": metadata}


def owner_of(obj: dict[str, Any]) -> str:
    """The name of the first owner; empty if there is none."""
    references = value_at(obj, ("metadata", "ownerReferences"), [])
    return references[0]["name"] if references else ""
