"""Stories of Workloads and queues on the real control plane: evicted, deactivated, checked, drained, held."""

from typing import Any

from admitq.integrations.paths import value_at
from admitq.runtime.resources import JOBS
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, condition_of

HOLD = {"spec": {"stopPolicy": "Hold"}}
DRAIN = {"spec": {"stopPolicy": "HoldAndDrain"}}
GO_ON = {"spec": {"stopPolicy": "None"}}


async def decide(stage: Stage, check: str, state: str, **fields: Any) -> None:
    """Set a check's state in the Workload of ``j``, as its controller would once quota is reserved."""
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks")

    async def decided() -> bool:
        workload = await stage.workload()
        checks = value_at(workload, ("status", "admissionChecks"), [])
        assert stage.own(check) in {one["name"] for one in checks}
        new = [
            {**one, "state": state, "message": "m", **fields} if one["name"] == stage.own(check) else one
            for one in checks
        ]
        patch = {
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"admissionChecks": new},
        }
        await stage.change(stage.kinds.workloads, workload["metadata"]["name"], patch, "status")
        return True

    await eventually(decided)


async def with_check(stage: Stage) -> None:
    await stage.active_check("check")
    strategy = {"admissionChecks": [{"name": stage.own("check")}]}
    await stage.queues(admissionChecksStrategy=strategy)


# --- stop policies --------------------------------------------------------------------------------


async def test_a_held_queue_lets_run_and_lets_nothing_in(stage: Stage) -> None:
    await stage.queues()
    await stage.job("runs")
    await stage.until_running("runs")
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), HOLD)

    async def active() -> Any:
        return condition_of(await stage.get(stage.kinds.cluster_queues, stage.own("cq")), "Active")

    await stage.until(active, ("False", "Stopped", "Can't admit new workloads: is stopped."))
    await stage.job("waits")
    await stage.until_condition("QuotaReserved", "Suspended", "waits")
    message = f"ClusterQueue {stage.own('cq')} is inactive"
    assert await stage.condition("QuotaReserved", "waits") == ("False", "Suspended", message)
    assert value_at(await stage.get(JOBS, "runs"), ("spec", "suspend"), False) is False
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), GO_ON)
    await stage.until_running("waits")


# --- activity -------------------------------------------------------------------------------------


async def test_a_gated_job_waits_until_its_gates_are_gone(stage: Stage) -> None:
    await stage.queues()
    key = stage.names.admission_gated_by
    await stage.job(metadata={"annotations": {key: "example.com/budget"}})
    await stage.until_condition("QuotaReserved", "AdmissionGated")
    workload = await stage.workload()
    message = "Admission is gated by: example.com/budget"
    assert condition_of(workload, "QuotaReserved") == ("False", "AdmissionGated", message)
    await stage.change(
        stage.kinds.workloads, workload["metadata"]["name"], {"metadata": {"annotations": {key: None}}}
    )
    await stage.until_running()


# --- admission checks -----------------------------------------------------------------------------


async def test_a_checked_job_starts_when_its_check_is_ready(stage: Stage) -> None:
    await with_check(stage)
    await stage.job()
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks")
    assert (await stage.condition("QuotaReserved") or ("",))[0] == "True"
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is True
    update = {"name": "main", "nodeSelector": {"example.com/added": "yes"}, "labels": {"by": "check"}}
    await decide(stage, "check", "Ready", podSetUpdates=[update])
    await stage.until_running()
    template = (await stage.get(JOBS, "j"))["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"example.com/added": "yes"}
    assert template["metadata"]["labels"]["by"] == "check"


async def test_a_reservation_is_given_back_when_the_queue_is_held(stage: Stage) -> None:
    await with_check(stage)
    await stage.job()
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks")
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), HOLD)
    await stage.until_condition("QuotaReserved", "Suspended")
    assert "admission" not in (await stage.workload())["status"]


# --- objects in use -------------------------------------------------------------------------------


async def test_a_deleted_cluster_queue_waits_for_what_runs(stage: Stage) -> None:
    await stage.queues()
    await stage.job()
    await stage.until_running()
    queues, name = stage.kinds.cluster_queues, stage.own("cq")
    await stage.client.delete(queues, name)

    async def active() -> Any:
        return condition_of(await stage.get(queues, name), "Active")

    message = "Can't admit new workloads; clusterQueue is terminating"
    await stage.until(active, ("False", "Terminating", message))
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend"), False) is False
    await stage.client.delete(JOBS, "j", stage.namespace, propagation="Background")
    await stage.until_gone(queues, name)

    async def local() -> Any:
        return condition_of(await stage.get(stage.kinds.local_queues, "lq"), "Active")

    await stage.until(
        local, ("False", "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
    )


async def test_flavors_and_checks_are_held_while_a_cluster_queue_names_them(stage: Stage) -> None:
    await with_check(stage)
    held = [
        (stage.kinds.resource_flavors, stage.own("f")),
        (stage.kinds.admission_checks, stage.own("check")),
    ]
    for resource, name in held:

        async def is_held() -> bool:
            obj = await stage.get(resource, name)  # noqa: B023 awaited within the loop
            return stage.names.finalizer in obj["metadata"].get("finalizers", [])

        await stage.until(is_held)
        await stage.client.delete(resource, name)
        assert (await stage.get(resource, name))["metadata"]["deletionTimestamp"]
    await stage.client.delete(stage.kinds.cluster_queues, stage.own("cq"))
    for resource, name in held:
        await stage.until_gone(resource, name)


async def test_a_topology_is_held_while_a_flavor_names_it(stage: Stage) -> None:
    topologies, name = stage.kinds.topologies, stage.own("t")
    await stage.create(topologies, name, {"spec": {"levels": [{"nodeLabel": "example.com/rack"}]}})
    await stage.flavor(topologyName=name, nodeLabels={"example.com/pool": "p"})

    async def is_held() -> bool:
        return stage.names.finalizer in (await stage.get(topologies, name))["metadata"].get("finalizers", [])

    await stage.until(is_held)
    await stage.client.delete(topologies, name)
    await stage.client.delete(stage.kinds.resource_flavors, stage.own("f"))
    await stage.until_gone(topologies, name)


# --- statuses -------------------------------------------------------------------------------------


async def test_queues_tell_their_numbers(stage: Stage) -> None:
    await stage.flavor()
    await stage.cluster_queue("cq", cpu=2, cohortName=stage.own("team"))
    await stage.cluster_queue("lender", cpu=1, cohortName=stage.own("team"))
    await stage.local_queue()
    await stage.job("big", pods=3)
    await stage.until_running("big")
    await stage.job("more", pods=1)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "more")
    fields = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads", "flavorsUsage")

    async def cluster_queue() -> list[Any]:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq"))).get("status", {})
        return [status.get(field) for field in fields]

    async def local_queue() -> list[Any]:
        status = (await stage.get(stage.kinds.local_queues, "lq")).get("status", {})
        return [status.get(field) for field in fields]

    flavor = stage.own("f")
    used = [{"name": flavor, "resources": [{"name": "cpu", "total": "3", "borrowed": "1"}]}]
    await stage.until(cluster_queue, [1, 1, 1, used])
    await stage.until(
        local_queue, [1, 1, 1, [{"name": flavor, "resources": [{"name": "cpu", "total": "3"}]}]]
    )
    active = condition_of(await stage.get(stage.kinds.local_queues, "lq"), "Active")
    assert active == ("True", "Ready", "Can submit new workloads to localQueue")


async def test_a_cluster_queue_without_its_flavor_says_so(stage: Stage) -> None:
    await stage.cluster_queue()

    async def active() -> Any:
        return condition_of(await stage.get(stage.kinds.cluster_queues, stage.own("cq")), "Active")

    missing = f"Can't admit new workloads: references missing ResourceFlavor(s): {stage.own('f')}."
    await stage.until(active, ("False", "FlavorNotFound", missing))
    await stage.flavor()
    await stage.until(active, ("True", "Ready", "Can admit new workloads"))
