"""Jobs in every state while their queues are stopped, deleted or changed.

In each world five jobs share a queue: one is finished, one runs, one is evicted and has not stopped yet, one
has quota and waits for a check, and one waits for quota. All worlds are played concurrently.

The pending job has a lower priority, so that it never precedes the job that waits for a check: creation times
have whole seconds, and the UID orders two jobs of one second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from admitq.core.model import CheckState
from admitq.runtime.resources import JOBS
from admitq.workloads.admission_check_reports import AdmissionCheckReport
from admitq_api.conditions import Reason
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.conftest import StartCheckController, controller_of
from tests.controlplane.example_check import ExampleCheck
from tests.controlplane.pods_of_jobs import set_pod_status
from tests.controlplane.recording import Record, record_versions
from tests.controlplane.stage import Stage, condition_of, owner_of, run_concurrently

POOL = "example.com/pool"
STEPS_WITHOUT_QUOTA = ("checked", "leaves", "waits")
"""Jobs without quota once the queue is stopped and the evicted job has left."""
LAST = "last"
"""The priority class of the pending job."""
HOLD = {"spec": {"stopPolicy": "Hold"}}
RESUME = {"spec": {"stopPolicy": "None"}}


@dataclass(frozen=True)
class World:
    """A LocalQueue ``name``, a ClusterQueue of that name with quota for three jobs, and a check."""

    stage: Stage
    record: Record
    name: str
    checked: set[str]
    """Jobs with a ready check, of all worlds."""
    controller: ExampleCheck

    @property
    def cluster_queue(self) -> str:
        """The name of the ClusterQueue."""
        return self.stage.own(self.name)

    def job(self, step: str) -> str:
        """The name of the job in a state: ``done``, ``runs``, ``leaves``, ``checked`` or ``waits``."""
        return f"{self.name}-{step}"

    async def open(self) -> None:
        """Create the queue, and bring each job into its state."""
        stage = self.stage
        await stage.flavor(self.name, nodeLabels={POOL: self.name})
        await self.create_cluster_queue(self.name)
        await stage.local_queue(self.name, cluster_queue=self.name)
        await self._submit("done")
        await stage.until_running(self.job("done"))
        # No node has the flavor's label: only the test changes the pods.
        await set_pod_status(stage, self.job("done"), phase="Succeeded")
        await stage.until_finished(self.job("done"))
        await self._submit("runs")
        await stage.until_running(self.job("runs"))
        await self._evict("leaves")
        await self._submit("checked")
        await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", self.job("checked"))
        await self._submit("waits")
        await stage.until_condition("QuotaReserved", "WaitingForQuota", self.job("waits"))

    async def create_cluster_queue(self, name: str) -> None:
        checks = {"admissionChecks": [{"name": self.stage.own("check")}]}
        await self.stage.cluster_queue(name, cpu=3, flavors=[self.name], admissionChecksStrategy=checks)

    async def _submit(self, step: str) -> None:
        if step in {"done", "runs"}:
            self.checked.add(self.job(step))
        labels = {self.stage.names.priority_class: self.stage.own(LAST)} if step == "waits" else {}
        await self.stage.job(self.job(step), queue=self.name, labels=labels)

    async def _evict(self, step: str) -> None:
        """Admit and evict a Workload without job; only the test can stop it."""
        stage, name = self.stage, self.job(step)
        self.checked.add(name)
        container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
        pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
        spec = {"queueName": self.name, "podSets": pod_sets}
        await stage.create(stage.kinds.workloads, name, {"spec": spec})

        async def admitted() -> Any:
            return condition_of(await self.workload(step), "Admitted")

        await stage.until(admitted, ("True", "Admitted", "The workload is admitted"))
        await stage.apply_transition(
            name, lambda change: change.evict(Reason.NODE_FAILURES, "its node is gone")
        )

    async def stop_evicted(self) -> None:
        """Check that the evicted Workload keeps its quota, and release it as a stopped job would."""
        workload = await self.workload("leaves")
        assert workload["status"]["admission"]["clusterQueue"] == self.cluster_queue
        assert condition_of(workload, "Evicted") == ("True", "NodeFailures", "its node is gone")
        assert condition_of(workload, "Requeued") is None
        await self.stage.apply_transition(
            self.job("leaves"), lambda change: change.requeue(Reason.PENDING_EVALUATION)
        )

    def set_check_ready(self, step: str) -> None:
        """Let the controller report the check of a job as ready."""
        self.checked.add(self.job(step))
        self.controller.requeue_workloads()

    # --- observations -----------------------------------------------------------------------------

    async def workload(self, step: str) -> dict[str, Any]:
        """The Workload of a job."""
        if step == "leaves":
            return await self.stage.get(self.stage.kinds.workloads, self.job(step))
        return await self.stage.workload(self.job(step))

    async def until(self, step: str, reason: str, message: str) -> None:
        """Wait until the condition QuotaReserved of a job is False with this reason and message."""

        async def quota() -> Any:
            return condition_of(await self.workload(step), "QuotaReserved")

        await self.stage.until(quota, ("False", reason, message))

    async def check_lost_quota(self, step: str, reason: str, message: str) -> None:
        """Check that a job lost its reservation with this reason and message, even if they changed since."""
        lost = await eventually(lambda: self.record.first_version(self.job(step), "QuotaReserved", reason))
        assert condition_of(lost, "QuotaReserved") == ("False", reason, message)
        assert "admission" not in lost["status"]

    async def until_reserved(self, step: str, cluster_queue: str) -> None:
        """Wait until a job has quota in a ClusterQueue."""

        async def reserved_in() -> Any:
            return value_at(await self.workload(step), ("status", "admission", "clusterQueue"), None)

        await self.stage.until(reserved_in, self.stage.own(cluster_queue), what=f"quota of {self.job(step)}")

    async def until_active(self, kind: str, *wanted: str) -> None:
        """Wait until the condition Active of a queue has this status, reason and message."""
        kinds = self.stage.kinds
        of = kinds.cluster_queues if kind == "ClusterQueue" else kinds.local_queues
        name = self.cluster_queue if kind == "ClusterQueue" else self.name

        async def active() -> Any:
            return condition_of(await self.stage.get(of, name), "Active")

        await self.stage.until(active, wanted)

    async def check_running_job(self) -> dict[str, Any]:
        """Check that the running job was never stopped, and that the finished one is unchanged."""
        runs, done = self.job("runs"), self.job("done")
        assert value_at(await self.stage.get(JOBS, runs), ("spec", "suspend"), False) is False
        assert self.record.condition_changes(runs, ("Evicted",)) == []
        assert self.record.condition_changes(done, ("Finished", "Admitted"))[-1][:3] == (
            "Finished",
            "True",
            "Succeeded",
        )
        return await self.stage.workload(runs)

    async def restart_running_job(self) -> None:
        """Stop the running job and admit it again."""
        name = (await self.stage.workload(self.job("runs")))["metadata"]["name"]
        workloads = self.stage.kinds.workloads
        await self.stage.change(workloads, name, {"spec": {"active": False}})
        await self.stage.until_condition("QuotaReserved", "Deactivated", self.job("runs"))
        await self.stage.change(workloads, name, {"spec": {"active": True}})

    async def until_flavor(self, step: str, flavor: str) -> None:
        """Wait until a job has quota of a flavor."""

        async def assigned() -> list[Any]:
            parts = value_at(await self.workload(step), ("status", "admission", "podSetAssignments"), [])
            return [part["flavors"] for part in parts]

        await self.stage.until(assigned, [{"cpu": self.stage.own(flavor)}])

    async def pool(self, step: str) -> Any:
        """The node selector that the flavor gave a job."""
        job = await self.stage.get(JOBS, self.job(step))
        return value_at(job, ("spec", "template", "spec", "nodeSelector", POOL), None)


async def _cluster_queue_held(world: World) -> None:
    queues, name = world.stage.kinds.cluster_queues, world.cluster_queue
    await world.stage.change(queues, name, HOLD)
    await world.check_lost_quota("checked", "Suspended", f"ClusterQueue {name} is stopped")
    await world.stop_evicted()
    for step in STEPS_WITHOUT_QUOTA:
        await world.until(step, "Suspended", f"ClusterQueue {name} is inactive")
    await world.until_active("ClusterQueue", "False", "Stopped", "Can't admit new workloads: is stopped.")
    await world.check_running_job()
    await world.stage.change(queues, name, RESUME)
    for step in ("checked", "leaves"):
        await world.until_reserved(step, world.name)
    await world.stage.until_condition("QuotaReserved", "WaitingForQuota", world.job("waits"))


async def _local_queue_held(world: World) -> None:
    queues, name = world.stage.kinds.local_queues, world.name
    await world.stage.change(queues, name, HOLD)
    await world.check_lost_quota("checked", "Suspended", f"LocalQueue {name} is stopped")
    await world.stop_evicted()
    for step in STEPS_WITHOUT_QUOTA:
        await world.until(step, "Suspended", f"LocalQueue {name} is inactive")
    await world.until_active("LocalQueue", "False", "Stopped", "LocalQueue is stopped")
    await world.check_running_job()
    await world.stage.change(queues, name, RESUME)
    for step in ("checked", "leaves"):
        await world.until_reserved(step, world.name)
    await world.stage.until_condition("QuotaReserved", "WaitingForQuota", world.job("waits"))


async def _cluster_queue_deleted(world: World) -> None:
    """The ClusterQueue is removed once no job holds its quota. A new one of the same name gets the jobs."""
    stage, queues, name = world.stage, world.stage.kinds.cluster_queues, world.cluster_queue
    await stage.client.delete(queues, name)
    await world.check_lost_quota("checked", "Misconfigured", f"ClusterQueue {name} is terminating or missing")
    for step in ("checked", "waits"):
        await world.until(step, "Suspended", f"ClusterQueue {name} is inactive")
    terminating = "Can't admit new workloads; clusterQueue is terminating"
    await world.until_active("ClusterQueue", "False", "Terminating", terminating)
    await world.check_running_job()
    await stage.client.delete(JOBS, world.job("runs"), stage.namespace, propagation="Background")
    await stage.until(lambda: stage.workloads(world.job("runs")), [])
    assert (await stage.get(queues, name))["metadata"]["finalizers"], "a job has not stopped yet"
    await world.stop_evicted()
    await stage.until_gone(queues, name)
    await world.until_active(
        "LocalQueue", "False", "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    )
    for step in STEPS_WITHOUT_QUOTA:
        await world.until(step, "Misconfigured", f"ClusterQueue {name} doesn't exist")
    await world.create_cluster_queue(world.name)
    for step in STEPS_WITHOUT_QUOTA:
        await world.until_reserved(step, world.name)
    world.set_check_ready("waits")
    await stage.until_running(world.job("waits"))


async def _local_queue_deleted(world: World) -> None:
    """The LocalQueue is removed at once. A new one of the same name may belong to another ClusterQueue."""
    stage, name = world.stage, world.name
    await stage.client.delete(stage.kinds.local_queues, name, stage.namespace)
    await world.check_lost_quota("checked", "Misconfigured", f"LocalQueue {name} is terminating or missing")
    await world.stop_evicted()
    for step in STEPS_WITHOUT_QUOTA:
        await world.until(step, "Misconfigured", f"LocalQueue {name} doesn't exist")
    await world.create_cluster_queue("elsewhere")
    await stage.local_queue(name, cluster_queue="elsewhere")
    for step in STEPS_WITHOUT_QUOTA:
        await world.until_reserved(step, "elsewhere")
    runs = await world.check_running_job()
    assert runs["status"]["admission"]["clusterQueue"] == world.cluster_queue, "it keeps its quota"
    world.set_check_ready("waits")
    await stage.until_running(world.job("waits"))
    await stage.client.delete(JOBS, world.job("checked"), stage.namespace, propagation="Background")
    await world.restart_running_job()
    await world.until_reserved("runs", "elsewhere")


async def _flavor_replaced(world: World) -> None:
    """Jobs with quota of a flavor keep it; later admissions use its replacement."""
    stage, queues, new = world.stage, world.stage.kinds.cluster_queues, f"new-{world.name}"
    await stage.flavor(new, nodeLabels={POOL: new})
    [group] = (await stage.get(queues, world.cluster_queue))["spec"]["resourceGroups"]
    flavors = [{**group["flavors"][0], "name": stage.own(new)}]
    patch = {"spec": {"resourceGroups": [{**group, "flavors": flavors}]}}
    await stage.change(queues, world.cluster_queue, patch)
    world.set_check_ready("waits")
    await stage.until_running(world.job("waits"))
    assert await world.pool("waits") == new
    await world.check_running_job()
    assert await world.pool("runs") == world.name
    world.set_check_ready("checked")
    await stage.until_running(world.job("checked"))
    assert await world.pool("checked") == world.name, "its quota was reserved there"
    await stage.client.delete(stage.kinds.resource_flavors, stage.own(world.name))
    await stage.until_gone(stage.kinds.resource_flavors, stage.own(world.name))
    await world.check_running_job()
    await world.stop_evicted()
    await world.until_flavor("leaves", new)
    await world.restart_running_job()
    await stage.until_running(world.job("runs"))
    assert await world.pool("runs") == new


WORLDS: Mapping[str, Callable[[World], Any]] = {
    "held": _cluster_queue_held,
    "locally-held": _local_queue_held,
    "deleted": _cluster_queue_deleted,
    "locally-deleted": _local_queue_deleted,
    "replaced": _flavor_replaced,
}


async def test_jobs_in_every_state_survive_stopped_deleted_and_changed_queues(
    stage: Stage, start_controller: StartCheckController
) -> None:
    checked = set[str]()

    def judge(workload: dict[str, Any], check: Any) -> AdmissionCheckReport | None:
        name = owner_of(workload) or workload["metadata"]["name"]
        return AdmissionCheckReport(check["name"], CheckState.READY) if name in checked else None

    controller = start_controller(judge)
    spec = {"controllerName": controller_of(stage)}
    await stage.create(stage.kinds.admission_checks, stage.own("check"), {"spec": spec})
    await stage.create(stage.kinds.workload_priority_classes, stage.own(LAST), {"value": -1})

    async def play(world: World, story: Callable[[World], Any]) -> None:
        await world.open()
        await story(world)

    async with record_versions(stage) as record:
        worlds = {name: World(stage, record, name, checked, controller) for name in WORLDS}
        await run_concurrently(**{name: play(worlds[name], story) for name, story in WORLDS.items()})
