"""The cluster of one history: its objects, other writers, and the steps of the history.

This module plays the controllers of jobs, always in the same way, so that two plays of a history differ only
by the manager: a Job names another controller in ``managedBy``, and no node runs its pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import EVENTS, JOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import value_at
from admitq_api.labels import Names
from tests.controlplane.stage import Stage, condition_of
from tests.kills.chronicle import Chronicle, Step

PLAYED: Final = "example.com/played"
"""The controller of Jobs in these tests."""

_TIME: Final = "2030-01-01T00:00:00Z"


@dataclass
class World:
    """One namespace with its objects, and cluster-scoped objects with its name as suffix."""

    stage: Stage
    chronicle: Chronicle
    unready: set[str] = field(default_factory=set[str])
    """Jobs with pods that do not become ready."""
    tasks: list["asyncio.Task[None]"] = field(default_factory=list["asyncio.Task[None]"])
    """Tasks that run beside the history."""

    # --- opening and closing ----------------------------------------------------------------------

    @classmethod
    async def open(cls, client: Client, names: Names, namespace: str, kinds: Iterable[Resource]) -> "World":
        """Create a namespace and record its objects."""
        metadata = {"name": namespace}
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        stage = Stage(client, names, namespace)
        own = stage.kinds
        followed = (
            own.workloads,
            own.local_queues,
            own.cluster_queues,
            own.resource_flavors,
            own.topologies,
            own.admission_checks,
            own.provisioning_request_configs,
            own.workload_priority_classes,
            JOBS,
            PODS,
            *kinds,
        )
        made = cls(stage, Chronicle(client, followed, namespace))
        made.chronicle.subscribe(made._play)
        await made.chronicle.open()
        return made

    async def close(self) -> None:
        """Delete all objects and their finalizers: no manager runs that would remove them."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for (kind, name), obj in list(self.chronicle.now.items()):
            resource = self.chronicle.resource_of(kind)
            namespace = self.stage.namespace if resource.namespaced else None
            try:
                if obj["metadata"].get("finalizers"):
                    await self.stage.change(resource, name, {"metadata": {"finalizers": None}})
                await self.stage.client.delete(resource, name, namespace, propagation="Background")
            except ApiError as error:
                if not error.is_not_found:
                    raise
        await self.chronicle.close()

    # --- reading ----------------------------------------------------------------------------------

    def is_collected(self) -> bool:
        """Whether the garbage collector has deleted all objects without existing owner."""
        deleted = {step.uid for step in self.chronicle.steps if step.obj is None}
        owners = (
            {one["uid"] for one in value_at(obj, ("metadata", "ownerReferences"), [])}
            for obj in self.chronicle.now.values()
        )
        return not any(uids and uids <= deleted for uids in owners)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An existing object.

        Raises:
            KeyError: it does not exist.
        """
        return self.chronicle.now[kind, name]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """All objects of a kind, by name."""
        return {place[1]: obj for place, obj in self.chronicle.now.items() if place[0] == kind}

    def workload(self, owner: str = "j", *, finished: bool = False) -> dict[str, Any]:
        """The only unfinished or finished Workload of an owner, or of a pod group.

        Raises:
            LookupError: there is none, or there are several.
        """
        found = [
            obj
            for name, obj in self.of_kind("Workload").items()
            if is_condition_true(obj, ConditionType.FINISHED) is finished
            and owner in (name, *(one["name"] for one in value_at(obj, ("metadata", "ownerReferences"), [])))
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} Workloads of {owner}")
        return found[0]

    def condition(self, type_: str, owner: str = "j", *, finished: bool = False) -> tuple[str, str]:
        """Status and reason of a condition of a Workload; empty if it does not exist."""
        return (condition_of(self.workload(owner, finished=finished), type_) or ("", "", ""))[:2]

    async def until(self, look: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Wait until ``look`` returns a true value, and return it."""
        return await self.chronicle.until(look, what, seconds)

    async def until_condition(
        self, type_: str, *wanted: str, owner: str = "j", finished: bool = False
    ) -> None:
        """Wait until a condition of a Workload has a status, and a reason if one is given."""
        await self.until(
            lambda: self.condition(type_, owner, finished=finished)[: len(wanted)] == wanted,
            f"{type_} {wanted} of {owner}",
        )

    async def until_started(self, name: str, kind: str = "Job") -> None:
        """Wait until a job is started."""
        await self.until(
            lambda: value_at(self.get(kind, name), ("spec", "suspend")) is False, f"{name} to be started"
        )

    async def until_running(self, name: str = "j") -> None:
        """Wait until a Job is started and its Workload reports ready pods."""
        await self.until_started(name)
        await self.until_condition("PodsReady", "True", owner=name)

    async def until_finished(self, name: str = "j") -> None:
        """Wait until the Workload of an owner is finished and has no finalizer."""
        await self.until(
            lambda: not self.workload(name, finished=True)["metadata"].get("finalizers"), f"end of {name}"
        )

    # --- writing ----------------------------------------------------------------------------------

    async def job(self, name: str = "j", **fields: Any) -> dict[str, Any]:
        """Create a Job. This module plays its controller."""
        return await self.stage.job(name, managedBy=PLAYED, **fields)

    async def end_job(self, name: str = "j") -> None:
        """Set the status of a Job after all its pods succeeded."""
        pods = value_at(self.get("Job", name), ("spec", "completions"), 1)
        conditions = [
            {"type": type_, "status": "True", "reason": "CompletionsReached", "message": "done"}
            | {"lastTransitionTime": _TIME, "lastProbeTime": _TIME}
            for type_ in ("SuccessCriteriaMet", "Complete")
        ]
        await self.set_status(
            JOBS,
            name,
            {"active": 0, "ready": 0, "succeeded": pods, "completionTime": _TIME, "conditions": conditions},
        )

    async def set_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        """Set fields of a status."""
        await self.stage.change(resource, name, {"status": status}, "status")

    async def account(self) -> None:
        """Create the ServiceAccount without which no pod can be created."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        try:
            await self.stage.create(SERVICE_ACCOUNTS, "default", account)
        except ApiError as error:
            if not error.is_already_exists:
                raise

    async def events(self) -> list[dict[str, Any]]:
        """All events of the manager."""
        items, _ = await self.stage.client.list(EVENTS, self.stage.namespace)
        return [one for one in items if one.get("reportingController", "").startswith(self.stage.names.group)]

    # --- Job controller-------------------------------------------------------------------------------

    def beside(self, work: Awaitable[None]) -> None:
        """Run a task beside the history."""
        task = asyncio.ensure_future(work)
        self.tasks.append(task)

    def _play(self, step: Step) -> None:
        if step.place[0] == "Job" and step.obj is not None and self._is_due(step.obj):
            self.beside(self._play_job(step.place[1]))

    def _is_due(self, job: dict[str, Any]) -> bool:
        if value_at(job, ("spec", "managedBy")) != PLAYED or value_at(job, ("status", "conditions"), []):
            return False
        return self._wanted(job) != {key: value_at(job, ("status", key), 0) for key in ("active", "ready")}

    def _wanted(self, job: dict[str, Any]) -> dict[str, int]:
        if value_at(job, ("spec", "suspend")):
            return {"active": 0, "ready": 0}
        pods = value_at(job, ("spec", "parallelism"), 1)
        return {"active": pods, "ready": 0 if job["metadata"]["name"] in self.unready else pods}

    async def _play_job(self, name: str) -> None:
        """Write the status of a Job as the Job controller would when it creates or deletes pods."""
        job = self.chronicle.now.get(("Job", name))
        if job is None or not self._is_due(job):
            return
        status: dict[str, Any] = self._wanted(job)
        if status["active"] and value_at(job, ("status", "startTime")) is None:
            status["startTime"] = _TIME
        version = {"resourceVersion": job["metadata"]["resourceVersion"]}
        try:
            await self.stage.change(JOBS, name, {"metadata": version, "status": status}, "status")
        except ApiError as error:
            # The newer version of the Job is handled by its own step.
            if not error.is_conflict:
                raise
