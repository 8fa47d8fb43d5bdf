"""Create Workloads through the API server, and play their jobs, until a manager has written their statuses.

Copies of such samples can then be stored in any number.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from admitq.controllers.json_patches import workload_release
from admitq.runtime.client import Client
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import CONFIG_MAPS
from admitq_api.conditions import Reason, find_condition, is_true
from admitq_api.labels import Names
from benchmarks import stored_workloads
from benchmarks.stored_workloads import USUAL_SIZE, Queue, WorkloadSize
from localcluster.waiting import eventually

_JOB_MANAGER: Final = "admitq-job"
"""The field manager of job controllers."""


class SampleWorkloads:
    """Creates queues and samples, and changes samples as a job controller would.

    Args:
        client: a client with all permissions.
        names: the names of the API group.
    """

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._kinds: Kinds = kinds_of(names)

    async def create_queues(
        self, queues: Sequence[Queue], quota: int, preemption: Mapping[str, str] | None = None
    ) -> None:
        """Create the flavor and the objects of all queues; see `stored_workloads.objects_of`."""
        await self._client.create(self._kinds.resource_flavors, stored_workloads.flavor(self._names))
        for queue in queues:
            for resource, obj in stored_workloads.objects_of(queue, self._names, quota, preemption):
                await eventually(lambda resource=resource, obj=obj: self._client.create(resource, obj))

    async def create(self, queue: Queue, name: str, size: WorkloadSize = USUAL_SIZE) -> None:
        """Create a Workload."""
        owner = await self.owner_uid(queue)
        obj = stored_workloads.workload(queue, name, owner, self._names, size)
        await self._client.create(self._kinds.workloads, obj, field_manager=_JOB_MANAGER)

    async def create_running(self, queue: Queue, size: WorkloadSize = USUAL_SIZE) -> None:
        """Create the Workload of a queue that runs as long as the load."""
        await self.create(queue, stored_workloads.RUNNING, size)
        await self.until_admitted(queue, stored_workloads.RUNNING)
        await self.add_condition(queue, stored_workloads.RUNNING, "PodsReady", "Started")

    async def create_waiting(self, queue: Queue, name: str, size: WorkloadSize = USUAL_SIZE) -> None:
        """Create a Workload that waits behind an equal one, which is also created.

        A manager evaluates the first, and not the second. Most Workloads of a long queue wait like the
        second.
        """
        for created in (f"{name}-head", name):
            await self.create(queue, created, size)
        for created in (f"{name}-head", name):
            await eventually(lambda created=created: self._is_waiting(queue, created))

    async def create_finished(self, queue: Queue, name: str) -> None:
        """Create a Workload that runs and finishes."""
        await self.create(queue, name)
        await self.until_admitted(queue, name)
        await self.finish(queue, name)

    async def until_admitted(self, queue: Queue, name: str) -> None:
        """Wait until a Workload is admitted."""
        await eventually(lambda: self._is_admitted(queue, name))

    async def finish(self, queue: Queue, name: str) -> None:
        """Finish a Workload, and release it by the write of a job controller after the end of its job."""
        await self.add_condition(queue, name, "Finished", "Succeeded")
        obj = await self._client.get(self._kinds.workloads, name, queue.namespace)
        await self._client.json_patch(
            self._kinds.workloads,
            name,
            workload_release(obj, self._names, self._names.finalizer, None),
            queue.namespace,
            field_manager=self._names.field_manager("finalizer"),
        )

    async def add_condition(self, queue: Queue, name: str, condition: str, reason: str) -> None:
        """Set a condition of a Workload to True."""

        async def add() -> bool:
            obj = await self._client.get(self._kinds.workloads, name, queue.namespace)
            now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            added = {"type": condition, "status": "True", "reason": reason, "message": reason}
            others = [entry for entry in obj["status"]["conditions"] if entry["type"] != condition]
            patch = {
                "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
                "status": {"conditions": [*others, {**added, "lastTransitionTime": now}]},
            }
            await self._client.merge_patch(
                self._kinds.workloads, name, patch, queue.namespace, "status", field_manager=_JOB_MANAGER
            )
            return True

        await eventually(add)

    async def owner_uid(self, queue: Queue) -> str:
        """Return the uid of the owner of the Workloads of a queue."""
        owner = await self._client.get(CONFIG_MAPS, stored_workloads.OWNER, queue.namespace)
        return str(owner["metadata"]["uid"])

    async def _conditions(self, queue: Queue, name: str) -> list[Any]:
        obj = await self._client.get(self._kinds.workloads, name, queue.namespace)
        return obj.get("status", {}).get("conditions", [])

    async def _is_admitted(self, queue: Queue, name: str) -> bool:
        return is_true(await self._conditions(queue, name), "Admitted")

    async def _is_waiting(self, queue: Queue, name: str) -> bool:
        reserved = find_condition(await self._conditions(queue, name), "QuotaReserved")
        return reserved is not None and reserved.get("reason") == Reason.WAITING_FOR_QUOTA
