"""An arena: a namespace with a tenant and queues, in which the law is sampled."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.jobset import JOBSET
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import DEPLOYMENTS, JOBS, PODS, STATEFUL_SETS
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.adversary.calls import Target
from tests.adversary.law import sampled, uses_node
from tests.controlplane.leader_worker_sets import LWS, create_group_pods
from tests.controlplane.stage import Stage, condition_of
from tests.controlplane.tenants import tenant

TERMINATION = "kwok.admitq.dev/termination-seconds"


@dataclass(frozen=True)
class Arena:
    """A namespace of an attack.

    Attributes:
        admin: the namespace with the rights of the cluster administrator.
        tenant: the namespace with the ClusterRole ``edit`` and the chart's role for batch users.
        other: another namespace, in which the tenant has no rights.
    """

    admin: Stage
    tenant: Stage
    other: Stage

    async def queue(self, name: str, *, cpu: int = 1, **spec: Any) -> str:
        """Create a ClusterQueue and a LocalQueue of this name, which names of its objects begin with."""
        await self.admin.cluster_queue(name, cpu=cpu, **spec)
        await self.admin.local_queue(name, cluster_queue=name)
        return name

    async def pod(self, queue: str, name: str = "p", *, as_: Stage | None = None, **fields: Any) -> Target:
        """Create a pod of a queue as the tenant, and return it."""
        full = f"{queue}-{name}"
        await (as_ or self.tenant).create(PODS, full, self.pod_manifest(queue, **fields))
        return Target(PODS, full, self.admin.namespace)

    def pod_manifest(
        self,
        queue: str | None,
        *,
        cpu: Any = 1,
        group: str | None = None,
        total: int | None = None,
        metadata: dict[str, Any] | None = None,
        termination: float = 0,
        **spec: Any,
    ) -> dict[str, Any]:
        """A pod as a tenant writes it."""
        names = self.admin.names
        labels = {names.queue_name: queue} if queue else {}
        annotations = {TERMINATION: str(termination)}
        if group:
            labels[names.pod_group_name] = group
            annotations[names.pod_group_total_count] = str(total)
        more = metadata or {}
        return {
            "metadata": {
                **more,
                "labels": {**labels, **more.get("labels", {})},
                "annotations": {**annotations, **more.get("annotations", {})},
            },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container(cpu)],
                **spec,
            },
        }

    async def job(self, queue: str, name: str = "j", *, pods: int = 1, **fields: Any) -> Target:
        """Create a Job of a queue as the tenant, and return it."""
        full = f"{queue}-{name}"
        await self.tenant.job(full, queue=queue, pods=pods, **fields)
        return Target(JOBS, full, self.admin.namespace)

    async def deployment(self, queue: str, name: str = "d") -> Target:
        """Create a Deployment of one pod as the tenant, and return it."""
        full = f"{queue}-{name}"
        labels = {self.admin.names.queue_name: queue}
        template = self.pod_manifest(None, restartPolicy="Always")
        template["metadata"]["labels"] = {"app": full}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": full}}, "template": template}
        await self.tenant.create(DEPLOYMENTS, full, {"metadata": {"labels": labels}, "spec": spec})
        return Target(DEPLOYMENTS, full, self.admin.namespace)

    async def stateful_set(self, queue: str, name: str = "s") -> Target:
        """Create a StatefulSet of one pod as the tenant, and return it."""
        full = f"{queue}-{name}"
        labels = {self.admin.names.queue_name: queue}
        template = self.pod_manifest(None, restartPolicy="Always", metadata={"labels": {"app": full}})
        selector = {"matchLabels": {"app": full}}
        spec = {"replicas": 1, "serviceName": full, "selector": selector, "template": template}
        await self.tenant.create(STATEFUL_SETS, full, {"metadata": {"labels": labels}, "spec": spec})
        return Target(STATEFUL_SETS, full, self.admin.namespace)

    async def leader_worker_set(self, queue: str, name: str = "l") -> Target:
        """Create a LeaderWorkerSet of one group of two as the tenant, and its pods; return it."""
        full = f"{queue}-{name}"
        template = self.pod_manifest(None, restartPolicy="Always")
        group = {"size": 2, "leaderTemplate": template, "workerTemplate": template}
        metadata = {"labels": {self.admin.names.queue_name: queue}}
        spec = {"replicas": 1, "leaderWorkerTemplate": group}
        created = await self.tenant.create(LWS, full, {"metadata": metadata, "spec": spec})
        await create_group_pods(self.admin, created, 0)
        return Target(LWS, full, self.admin.namespace)

    async def job_set(self, queue: str, name: str = "set") -> Target:
        """Create a JobSet of one Job of one pod as the tenant, and return it; its controller does not run."""
        full, resource = f"{queue}-{name}", resource_of(JOBSET)
        template = {"spec": {"parallelism": 1, "completions": 1, "template": self.pod_manifest(None)}}
        spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]}
        metadata = {"labels": {self.admin.names.queue_name: queue}}
        await self.tenant.create(resource, full, {"metadata": metadata, "spec": spec})
        return Target(resource, full, self.admin.namespace)

    # --- observations ------------------------------------------------------------------------------

    async def pods(self, prefix: str) -> list[dict[str, Any]]:
        """Return the pods with a name prefix."""
        items, _ = await self.admin.client.list(PODS, self.admin.namespace)
        return [one for one in items if one["metadata"]["name"].startswith(prefix)]

    async def running(self, prefix: str) -> list[str]:
        """The names of the pods that are on a node and have not ended.

        A kubelet deletes a pod without grace period once its containers have ended. The pod then exists
        without a phase that tells its end, until its finalizer is removed.
        """
        return [
            one["metadata"]["name"]
            for one in await self.pods(prefix)
            if uses_node(one) and one["metadata"].get("deletionGracePeriodSeconds") != 0
        ]

    async def until_runs(self, prefix: str, count: int = 1, *, seconds: float = 60.0) -> list[str]:
        """Wait until exactly ``count`` pods with a name prefix run."""

        async def running_pods() -> list[str]:
            running = await self.running(prefix)
            assert len(running) == count, f"running: {running}"
            phases = {one["metadata"]["name"]: one["status"]["phase"] for one in await self.pods(prefix)}
            assert {phases[name] for name in running} <= {"Running"}, phases
            return running or ["none"]

        return await eventually(running_pods, what=f"{count} running pods of {prefix}", timeout=seconds)

    async def workloads(self, queue: str) -> list[dict[str, Any]]:
        """The Workloads of a queue."""
        items, _ = await self.admin.client.list(self.admin.kinds.workloads, self.admin.namespace)
        return [one for one in items if one["spec"].get("queueName") == queue]

    async def waiting(self, queue: str) -> list[dict[str, Any]]:
        """The Workloads of a queue that were evaluated and have no quota."""
        return [
            one
            for one in await self.workloads(queue)
            if (condition_of(one, "QuotaReserved") or ("",))[0] == "False"
        ]

    async def until_waits(self, queue: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until exactly ``count`` Workloads of a queue were evaluated and have no quota."""

        async def waiting_workloads() -> list[dict[str, Any]]:
            waiting = await self.waiting(queue)
            assert len(waiting) == count, f"{len(waiting)} wait"
            return waiting

        return await eventually(waiting_workloads, what=f"{count} waiting Workloads of {queue}")

    async def until_event(self, kind: str, name: str, reason: str, text: str = "") -> str:
        """Wait for an event about an object with this reason and text."""

        async def matching_note() -> str:
            events = await self.admin.events(kind, name)
            matching = [note for one, note in events if one == reason and text in note]
            assert matching, events
            return matching[0]

        return await eventually(matching_note, what=f"event {reason} of {name}")

    async def refused(self, call: Awaitable[Any], code: int, *texts: str) -> None:
        """Assert that the API server refuses a call with this code and message."""
        assert_refused(await attempt(call), code, *texts)


async def attempt(call: Awaitable[Any]) -> ApiError | None:
    """Make a call and return the API server's refusal; None where it accepted the call."""
    try:
        await call
    except ApiError as error:
        return error
    return None


def assert_refused(answer: ApiError | None, code: int, *texts: str) -> None:
    """Assert that the answer to an attempt is a refusal with this code and message."""
    assert answer is not None, "the API server accepted the call"
    assert answer.status == code, f"{answer.status}, not {code}: {answer.message}"
    missing = [text for text in texts if text not in answer.message]
    assert not missing, f"{missing} not in {answer.message!r}"


def container(cpu: Any) -> dict[str, Any]:
    """A container with a CPU request."""
    return {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}


@asynccontextmanager
async def arena(stage: Stage, other: Stage, installation: Installation) -> AsyncGenerator[Arena]:
    """Open an arena in a fresh namespace and sample the law in it.

    Raises:
        AssertionError: at the end, if the law was broken.
    """
    roles = ("edit", f"{installation.prefix}-batch-user-role")
    await stage.flavor()
    async with tenant(stage, installation.cluster, *roles) as as_tenant:
        await eventually(lambda: _has_rights(as_tenant), what="the rights of the tenant")
        opened = Arena(stage, as_tenant, other)
        group, version = stage.names.group, stage.names.version
        async with sampled(stage.client, stage.namespace, group, version, f"-{stage.namespace}"):
            yield opened


async def _has_rights(stage: Stage) -> bool:
    """Whether the API server has seen the role bindings: they take effect a moment after they are written."""
    try:
        await stage.client.list(PODS, stage.namespace)
        await stage.client.list(stage.kinds.workloads, stage.namespace)
    except ApiError:
        return False
    return True
