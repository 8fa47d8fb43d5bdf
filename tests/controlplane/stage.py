"""A namespace with queues of its own beside a running admitq, and short words for what stories do there.

Objects without a namespace carry the namespace's name in theirs, so that stories do not meet.
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

GONE_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "deleted", "uid": "deleted"}
"""An owner that is gone: what it owns is garbage."""
RUN_SECONDS = "kwok.admitq.dev/run-seconds"
"""How long simulated pods run; without it they run until they are deleted."""


@dataclass(frozen=True)
class Stage:
    """The place of one story."""

    client: Client
    names: Names
    namespace: str

    @property
    def kinds(self) -> Kinds:
        """The resources of our own kinds."""
        return kinds_of(self.names)

    def own(self, name: str) -> str:
        """The name of an object without a namespace in this story."""
        return f"{name}-{self.namespace}"

    # --- objects ----------------------------------------------------------------------------------

    async def flavor(self, name: str = "f", **spec: Any) -> None:
        """Create a ResourceFlavor."""
        await self.create(self.kinds.resource_flavors, self.own(name), {"spec": spec})

    async def cluster_queue(
        self, name: str = "cq", *, cpu: int = 4, flavors: Any = ("f",), **spec: Any
    ) -> None:
        """Create a ClusterQueue with so much CPU in each flavor."""
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
        """Create an AdmissionCheck as its controller would leave it."""
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

    async def queues_closed(self) -> None:
        """Create a LocalQueue ``closed`` that admits nothing."""
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
        """Create a Job of so many pods at a time, each asking for so much CPU."""
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
        """Merge something into an object."""
        namespace = self.namespace if resource.namespaced else None
        return await self.client.merge_patch(resource, name, patch, namespace, subresource)

    async def transit(self, workload: str, what: Callable[[StatusTransition], object]) -> None:
        """Have something happen to a Workload, of which another controller would tell in its status."""

        async def done() -> bool:
            change = StatusTransition(await self.get(self.kinds.workloads, workload), time.time_ns())
            what(change)
            if (patch := change.patch()) is not None:
                await self.change(self.kinds.workloads, workload, patch, "status")
            return True

        await eventually(done)

    # --- looking ----------------------------------------------------------------------------------

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
        """Reasons and notes of what was told of an object, in order."""
        items, _ = await self.client.list(EVENTS, self.namespace)
        about = [one for one in items if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)]
        told = sorted(about, key=lambda one: one.get("eventTime") or "")
        ours = [one for one in told if one.get("reportingController", "").startswith(self.names.group)]
        return [(one["reason"], one["note"]) for one in ours]

    async def is_complete(self, job: str) -> bool:
        """Whether a Job has succeeded."""
        return condition_of(await self.get(JOBS, job), "Complete") is not None

    # --- waiting ----------------------------------------------------------------------------------

    async def until(
        self,
        look: Callable[[], Awaitable[Any]],
        wanted: Any = True,
        *,
        what: str = "",
        timeout: float = 60.0,  # noqa: ASYNC109 a deadline for many looks
        interval: float | None = None,
    ) -> Any:
        """Wait until what is seen is what is wanted."""

        async def seen() -> bool:
            found = await look()
            assert found == wanted, f"{found!r} is not {wanted!r}"
            return True

        return await eventually(seen, timeout=timeout, interval=interval, what=what or f"{wanted!r}")

    async def until_condition(self, type_: str, reason: str, job: str = "j") -> None:
        """Wait until a Job's Workload has a condition of this reason."""

        async def found() -> Any:
            condition = await self.condition(type_, job)
            return condition and condition[1]

        await self.until(found, reason, what=f"condition {type_} of {job} with reason {reason}")

    async def until_active(self, resource: Resource, name: str, *, active: bool = True) -> None:
        """Wait until a queue admits, or does no more."""

        async def found() -> str:
            return (condition_of(await self.get(resource, name), "Active") or ("",))[0]

        await self.until(found, str(active), what=f"{resource.kind} {name} is Active={active}")

    async def workload_exists(self, job: str = "j") -> None:
        """Wait until a Job has a Workload."""

        async def found() -> bool:
            return bool(await self.workload(job))

        await self.until(found, what=f"a Workload of {job}")

    async def until_told(self, kind: str, name: str, reason: str, note: str) -> None:
        """Wait for an event about an object."""

        async def found() -> bool:
            told = await self.events(kind, name)
            assert (reason, note) in told, told
            return True

        await self.until(found, what=f"event {reason}: {note}")

    async def until_running(self, job: str = "j", *, running: bool = True) -> None:
        """Wait until a Job is unsuspended, or suspended and without pods."""

        async def found() -> bool:
            one = await self.get(JOBS, job)
            suspended = value_at(one, ("spec", "suspend"), False)
            stopping = value_at(one, ("metadata", "annotations", self.names.stopping)) is not None
            return suspended is not running and not stopping

        await self.until(found, what=f"{job} to be {'running' if running else 'suspended'}")

    async def until_finished(self, job: str = "j") -> None:
        """Wait until a Job's Workload is finished and freed."""

        async def found() -> bool:
            one = await self.workload(job)
            return condition_of(one, "Finished") is not None and not one["metadata"].get("finalizers")

        await self.until(found, what=f"{job} to be finished")

    async def until_garbage_is_collected(self) -> None:
        """Wait until the garbage collector knows Workloads, within half a minute of their definition.

        Until then they cannot outlive their owners, whatever is asked for: it does not make orphans of them,
        and deletes them once it knows them.
        """
        template = {"spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
        spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
        garbage = {"metadata": {"ownerReferences": [GONE_OWNER]}, "spec": spec}
        await self.create(self.kinds.workloads, "garbage", garbage)
        await self.until_gone(self.kinds.workloads, "garbage")

    async def until_gone(self, resource: Resource, name: str) -> None:
        """Wait until an object does not exist."""

        async def found() -> bool:
            try:
                await self.get(resource, name)
            except ApiError as error:
                return error.is_not_found
            return False

        await self.until(found, what=f"{resource.kind} {name} to be gone")


async def until_next_second() -> None:
    """Wait until a second has begun that is later than any time that was written so far."""
    written = int(time.time())

    async def is_later() -> bool:
        return int(time.time()) > written

    await eventually(is_later, what="the next second")


async def at_once(**stories: Coroutine[Any, Any, None]) -> None:
    """Play stories at once that have nothing to do with each other.

    Raises:
        AssertionError: some went wrong; each of them is told of.
    """
    played = await asyncio.gather(*stories.values(), return_exceptions=True)
    wrong: list[str] = []
    for name, outcome in zip(stories, played, strict=True):
        if isinstance(outcome, AssertionError | LookupError | ApiError):
            wrong.append(f"{name}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
    assert not wrong, "\n".join(wrong)


def condition_of(obj: dict[str, Any], type_: str) -> tuple[str, str, str] | None:
    """A condition as (status, reason, message); None without it."""
    for found in value_at(obj, ("status", "conditions"), []):
        if found["type"] == type_:
            return found["status"], found["reason"], found["message"]
    return None


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs between two versions of an object, metadata of versions aside."""
    return create_merge_patch(_stable(before), _stable(after))


def controlled_by(owner: dict[str, Any]) -> dict[str, Any]:
    """What the metadata of an object says that is made by the controller of another."""
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
    """The name of the first owner; empty without one."""
    references = value_at(obj, ("metadata", "ownerReferences"), [])
    return references[0]["name"] if references else ""
