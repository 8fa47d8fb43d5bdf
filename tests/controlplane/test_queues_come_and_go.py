"""Jobs at every step of their lives while their queues are stopped, deleted or changed.

In each world five jobs share a queue: one is done, one runs, one is evicted and has not stopped yet, one
holds quota and waits for a check, and one waits for quota. All worlds are played at once.

The pending job has a lower priority, so that it never comes before the one that waits for a check:
timestamps of creation have whole seconds, and uids order two jobs of one second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from admitq.core.model import AdmissionCheckState
from admitq.runtime.resources import JOBS
from admitq.workloads.admission_check_states import AdmissionCheckReport
from admitq_api.conditions import Reason
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.conftest import StartCheckController, controller_of
from tests.controlplane.example_check import ExampleCheck
from tests.controlplane.pods_of_jobs import set_pod_status
from tests.controlplane.recording import Record, record_versions
from tests.controlplane.stage import Stage, condition_of, owner_of, run_concurrently

POOL = "example.com/pool"
STEPS_BACK = ("checked", "leaves", "waits")
"""Jobs without quota once the queue is stopped and the evicted job has left."""
LAST = "last"
"""The priority class of the pending job."""
HOLD = {"spec": {"stopPolicy": "Hold"}}
GO_ON = {"spec": {"stopPolicy": "None"}}


@dataclass(frozen=True)
class World:
    """A LocalQueue ``name``, a ClusterQueue of that name with room for three of its jobs, and a check."""

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
        """The job that has come to a step: it is done, runs, leaves, is checked, or waits."""
        return f"{self.name}-{step}"

    async def open(self) -> None:
        """Have each job come to its step."""
        stage = self.stage
        await stage.flavor(self.name, nodeLabels={POOL: self.name})
        await self.create_cluster_queue(self.name)
        await stage.local_queue(self.name, cluster_queue=self.name)
        await self._submit("done")
        await stage.until_running(self.job("done"))
        # No node is of the flavor's pool: only the test changes its pods.
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
        """Evict a Workload without job, which only the test stops."""
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

    async def left(self) -> None:
        """Check that the evicted job keeps its quota until it has stopped, and stop it."""
        workload = await self.workload("leaves")
        assert workload["status"]["admission"]["clusterQueue"] == self.cluster_queue
        assert condition_of(workload, "Evicted") == ("True", "NodeFailures", "its node is gone")
        assert condition_of(workload, "Requeued") is None
        await self.stage.apply_transition(
            self.job("leaves"), lambda change: change.requeue(Reason.PENDING_EVALUATION)
        )

    def check(self, step: str) -> None:
        """The check of a job is ready from now on."""
        self.checked.add(self.job(step))
        self.controller.requeue_workloads()

    # --- what is seen -----------------------------------------------------------------------------

    async def workload(self, step: str) -> dict[str, Any]:
        """The Workload of a job."""
        if step == "leaves":
            return await self.stage.get(self.stage.kinds.workloads, self.job(step))
        return await self.stage.workload(self.job(step))

    async def until(self, step: str, reason: str, message: str) -> None:
        """Wait until a job says that it holds no quota, and why."""

        async def quota() -> Any:
            return condition_of(await self.workload(step), "QuotaReserved")

        await self.stage.until(quota, ("False", reason, message))

    async def had(self, step: str, reason: str, message: str) -> None:
        """See that a job lost its reservation, and was told why, whatever it was told since."""
        lost = await eventually(lambda: self.record.first_version(self.job(step), "QuotaReserved", reason))
        assert condition_of(lost, "QuotaReserved") == ("False", reason, message)
        assert "admission" not in lost["status"]

    async def until_reserved(self, step: str, cluster_queue: str) -> None:
        """Wait until a job holds quota in a ClusterQueue."""

        async def found() -> Any:
            return value_at(await self.workload(step), ("status", "admission", "clusterQueue"), None)

        await self.stage.until(found, self.stage.own(cluster_queue), what=f"quota of {self.job(step)}")

    async def until_active(self, kind: str, *wanted: str) -> None:
        """Wait until a queue says whether it admits."""
        kinds = self.stage.kinds
        of = kinds.cluster_queues if kind == "ClusterQueue" else kinds.local_queues
        name = self.cluster_queue if kind == "ClusterQueue" else self.name

        async def active() -> Any:
            return condition_of(await self.stage.get(of, name), "Active")

        await self.stage.until(active, wanted)

    async def runs_on(self) -> dict[str, Any]:
        """Check that the running job was never stopped, and the finished one is unchanged."""
        runs, done = self.job("runs"), self.job("done")
        assert value_at(await self.stage.get(JOBS, runs), ("spec", "suspend"), False) is False
        assert self.record.condition_changes(runs, ("Evicted",)) == []
        assert self.record.condition_changes(done, ("Finished", "Admitted"))[-1][:3] == (
            "Finished",
            "True",
            "Succeeded",
        )
        return await self.stage.workload(runs)

    async def start_again(self) -> None:
        """Stop the running job and admit it again."""
        name = (await self.stage.workload(self.job("runs")))["metadata"]["name"]
        workloads = self.stage.kinds.workloads
        await self.stage.change(workloads, name, {"spec": {"active": False}})
        await self.stage.until_condition("QuotaReserved", "Deactivated", self.job("runs"))
        await self.stage.change(workloads, name, {"spec": {"active": True}})

    async def until_flavor(self, step: str, flavor: str) -> None:
        """Wait until a job holds quota of a flavor."""

        async def assigned() -> list[Any]:
            parts = value_at(await self.workload(step), ("status", "admission", "podSetAssignments"), [])
            return [part["flavors"] for part in parts]

        await self.stage.until(assigned, [{"cpu": self.stage.own(flavor)}])

    async def pool(self, step: str) -> Any:
        """The nodes that a job is started on."""
        job = await self.stage.get(JOBS, self.job(step))
        return value_at(job, ("spec", "template", "spec", "nodeSelector", POOL), None)


async def _cluster_queue_held(world: World) -> None:
    queues, name = world.stage.kinds.cluster_queues, world.cluster_queue
    await world.stage.change(queues, name, HOLD)
    await world.had("checked", "Suspended", f"ClusterQueue {name} is stopped")
    await world.left()
    for step in STEPS_BACK:
        await world.until(step, "Suspended", f"ClusterQueue {name} is inactive")
    await world.until_active("ClusterQueue", "False", "Stopped", "Can't admit new workloads: is stopped.")
    await world.runs_on()
    await world.stage.change(queues, name, GO_ON)
    for step in ("checked", "leaves"):
        await world.until_reserved(step, world.name)
    await world.stage.until_condition("QuotaReserved", "WaitingForQuota", world.job("waits"))


async def _local_queue_held(world: World) -> None:
    queues, name = world.stage.kinds.local_queues, world.name
    await world.stage.change(queues, name, HOLD)
    await world.had("checked", "Suspended", f"LocalQueue {name} is stopped")
    await world.left()
    for step in STEPS_BACK:
        await world.until(step, "Suspended", f"LocalQueue {name} is inactive")
    await world.until_active("LocalQueue", "False", "Stopped", "LocalQueue is stopped")
    await world.runs_on()
    await world.stage.change(queues, name, GO_ON)
    for step in ("checked", "leaves"):
        await world.until_reserved(step, world.name)
    await world.stage.until_condition("QuotaReserved", "WaitingForQuota", world.job("waits"))


async def _cluster_queue_deleted(world: World) -> None:
    """It goes when nothing runs in it any more; one of its name then has the queue."""
    stage, queues, name = world.stage, world.stage.kinds.cluster_queues, world.cluster_queue
    await stage.client.delete(queues, name)
    await world.had("checked", "Misconfigured", f"ClusterQueue {name} is terminating or missing")
    for step in ("checked", "waits"):
        await world.until(step, "Suspended", f"ClusterQueue {name} is inactive")
    terminating = "Can't admit new workloads; clusterQueue is terminating"
    await world.until_active("ClusterQueue", "False", "Terminating", terminating)
    await world.runs_on()
    await stage.client.delete(JOBS, world.job("runs"), stage.namespace, propagation="Background")
    await stage.until(lambda: stage.workloads(world.job("runs")), [])
    assert (await stage.get(queues, name))["metadata"]["finalizers"], "a job has not stopped yet"
    await world.left()
    await stage.until_gone(queues, name)
    await world.until_active(
        "LocalQueue", "False", "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    )
    for step in STEPS_BACK:
        await world.until(step, "Misconfigured", f"ClusterQueue {name} doesn't exist")
    await world.create_cluster_queue(world.name)
    for step in STEPS_BACK:
        await world.until_reserved(step, world.name)
    world.check("waits")
    await stage.until_running(world.job("waits"))


async def _local_queue_deleted(world: World) -> None:
    """It goes at once; one of its name may lead to another ClusterQueue."""
    stage, name = world.stage, world.name
    await stage.client.delete(stage.kinds.local_queues, name, stage.namespace)
    await world.had("checked", "Misconfigured", f"LocalQueue {name} is terminating or missing")
    await world.left()
    for step in STEPS_BACK:
        await world.until(step, "Misconfigured", f"LocalQueue {name} doesn't exist")
    await world.create_cluster_queue("elsewhere")
    await stage.local_queue(name, cluster_queue="elsewhere")
    for step in STEPS_BACK:
        await world.until_reserved(step, "elsewhere")
    runs = await world.runs_on()
    assert runs["status"]["admission"]["clusterQueue"] == world.cluster_queue, "it keeps what it holds"
    world.check("waits")
    await stage.until_running(world.job("waits"))
    await stage.client.delete(JOBS, world.job("checked"), stage.namespace, propagation="Background")
    await world.start_again()
    await world.until_reserved("runs", "elsewhere")


async def _flavor_replaced(world: World) -> None:
    """Jobs that hold quota of a flavor keep it, and are admitted to its replacement afterwards."""
    stage, queues, new = world.stage, world.stage.kinds.cluster_queues, f"new-{world.name}"
    await stage.flavor(new, nodeLabels={POOL: new})
    [group] = (await stage.get(queues, world.cluster_queue))["spec"]["resourceGroups"]
    flavors = [{**group["flavors"][0], "name": stage.own(new)}]
    patch = {"spec": {"resourceGroups": [{**group, "flavors": flavors}]}}
    await stage.change(queues, world.cluster_queue, patch)
    world.check("waits")
    await stage.until_running(world.job("waits"))
    assert await world.pool("waits") == new
    await world.runs_on()
    assert await world.pool("runs") == world.name
    world.check("checked")
    await stage.until_running(world.job("checked"))
    assert await world.pool("checked") == world.name, "it was reserved there"
    await stage.client.delete(stage.kinds.resource_flavors, stage.own(world.name))
    await stage.until_gone(stage.kinds.resource_flavors, stage.own(world.name))
    await world.runs_on()
    await world.left()
    await world.until_flavor("leaves", new)
    await world.start_again()
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
        return AdmissionCheckReport(check["name"], AdmissionCheckState.READY) if name in checked else None

    controller = start_controller(judge)
    spec = {"controllerName": controller_of(stage)}
    await stage.create(stage.kinds.admission_checks, stage.own("check"), {"spec": spec})
    await stage.create(stage.kinds.workload_priority_classes, stage.own(LAST), {"value": -1})

    async def told(world: World, story: Callable[[World], Any]) -> None:
        await world.open()
        await story(world)

    async with record_versions(stage) as record:
        worlds = {name: World(stage, record, name, checked, controller) for name in WORLDS}
        await run_concurrently(**{name: told(worlds[name], story) for name, story in WORLDS.items()})
