"""Stories of Workloads and queues without evictions and admission checks."""

import time
from typing import Any

from admitq.runtime.resources import JOBS, PODS
from admitq.workloads.transitions import NOT_ALL_PODS_READY, condition_since
from admitq_api.conditions import SECOND, ConditionType
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.pods_of_jobs import set_pod_status, until_pods_exist
from tests.controlplane.recording import Record, record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of, run_concurrently

GATE_CLEARED = ("AdmissionGateCleared", "Admission gate cleared, workload is now admissible")


async def with_check(stage: Stage) -> None:
    await stage.active_check("check")
    strategy = {"admissionChecks": [{"name": stage.own("check")}]}
    await stage.queues(admissionChecksStrategy=strategy)


# --- gated, orphaned, prebuilt and time-limited jobs -----------------------------------------------


async def test_gated_orphaned_prebuilt_and_time_limited_jobs_follow_their_workloads(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.flavor()
    await stage.active_check("check")
    async with record_versions(stage) as record:
        await run_concurrently(
            gated=_job_runs_when_its_gates_are_removed(stage),
            opened=_job_runs_when_gates_of_its_workload_are_removed(stage),
            orphaned=_orphaned_workloads_release_quota(stage, record),
            prebuilt=_job_follows_its_prebuilt_workload(stage),
            limited=_execution_time_of_all_admissions_is_limited(stage, record),
            recovers=_pods_recover_in_time(stage, record, admitq_running),
        )


async def _queue(stage: Stage, name: str, *, cpu: int = 4, **spec: Any) -> None:
    """Create a LocalQueue with its own ClusterQueue."""
    await stage.cluster_queue(name, cpu=cpu, **spec)
    await stage.local_queue(name, cluster_queue=name)


async def _until_gated(stage: Stage, job: str, gates: str) -> None:
    wanted = ("False", "AdmissionGated", f"Admission is gated by: {gates}")
    await stage.until(lambda: stage.condition("QuotaReserved", job), wanted)


async def _job_runs_when_its_gates_are_removed(stage: Stage) -> None:
    """A user removes the gates of the job one by one."""
    await _queue(stage, "gated")
    key, both = stage.names.admission_gated_by, "example.com/budget,example.com/data"
    await stage.job("gated", queue="gated", metadata={"annotations": {key: both}})
    await _until_gated(stage, "gated", both)
    name = (await stage.workload("gated"))["metadata"]["name"]
    await stage.until_event("Workload", name, "AdmissionGated", f"Workload admission is gated by: {both}")
    await stage.change(JOBS, "gated", {"metadata": {"annotations": {key: "example.com/data"}}})
    await _until_gated(stage, "gated", "example.com/data")
    queue = stage.own("gated")
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "Hold"}})
    held = ("False", "Suspended", f"ClusterQueue {queue} is inactive")
    await stage.until(lambda: stage.condition("QuotaReserved", "gated"), held)
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "None"}})
    await _until_gated(stage, "gated", "example.com/data")
    await stage.change(JOBS, "gated", {"metadata": {"annotations": {key: None}}})
    await stage.until_running("gated")
    await stage.until_event("Workload", name, *GATE_CLEARED)


async def _job_runs_when_gates_of_its_workload_are_removed(stage: Stage) -> None:
    """A user removes the gates of the Workload, and the job controller does not restore them."""
    await _queue(stage, "opened")
    key = stage.names.admission_gated_by
    await stage.job("opened", queue="opened", metadata={"annotations": {key: "example.com/budget"}})
    await _until_gated(stage, "opened", "example.com/budget")
    name = (await stage.workload("opened"))["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"metadata": {"annotations": {key: None}}})
    await stage.until_running("opened")
    await stage.until_event("Workload", name, *GATE_CLEARED)


async def _orphaned_workloads_release_quota(stage: Stage, record: Record) -> None:
    """A job with a running pod and one that waits for a check are deleted with propagation Orphan."""
    checks = {"admissionChecks": [{"name": stage.own("check")}]}
    await _queue(stage, "running", cpu=1)
    await _queue(stage, "checked", cpu=1, admissionChecksStrategy=checks)
    for name in ("running", "checked"):
        await stage.job(f"{name}-first", queue=name)
    await stage.until_running("running-first")
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", "checked-first")
    await stage.until_garbage_is_collected()
    for name in ("running", "checked"):
        await stage.job(f"{name}-second", queue=name)
        await stage.until_condition("QuotaReserved", "WaitingForQuota", f"{name}-second")
        await stage.client.delete(JOBS, f"{name}-first", stage.namespace, propagation="Orphan")
    await stage.until_condition("Admitted", "UnsatisfiedAdmissionChecks", "checked-second")
    [pod] = await until_pods_exist(stage, "running-first")
    name = record.versions_of("running-first")[0]["metadata"]["name"]

    async def pods_outlive_job() -> Any:
        return condition_of(await stage.get(stage.kinds.workloads, name), "PodsOutliveJob")

    await eventually(pods_outlive_job, what="the pod to keep the quota of running-first")
    await stage.client.delete(PODS, pod["metadata"]["name"], stage.namespace)
    await stage.until_running("running-second")
    uids = {record.versions_of(f"{name}-first")[0]["metadata"]["uid"] for name in ("running", "checked")}

    async def finished_and_finalizers() -> list[tuple[Any, Any]]:
        orphans = [one for one in await _all_workloads(stage) if one["metadata"]["uid"] in uids]
        return [(condition_of(one, "Finished"), one["metadata"].get("finalizers")) for one in orphans]

    ended = ("True", "OwnerNotFound", "The workload's owner no longer exists")
    await stage.until(finished_and_finalizers, [(ended, None)] * 2)


async def _all_workloads(stage: Stage) -> list[dict[str, Any]]:
    items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    return items


async def _job_follows_its_prebuilt_workload(stage: Stage) -> None:
    """A job runs while the prebuilt Workload that it names is admitted, and stops when it is deleted."""
    await _queue(stage, "prebuilt")
    labels = {stage.names.prebuilt_workload_name: "mine"}
    job = await stage.job("prebuilt", queue="prebuilt", labels=labels)
    pods = job["spec"]["template"]["spec"]
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": {**pods, "restartPolicy": "Never"}}}]
    mine = {"spec": {"queueName": "prebuilt", "podSets": pod_sets}}

    async def create_and_check_adoption() -> None:
        await stage.create(stage.kinds.workloads, "mine", mine)
        await stage.until_running("prebuilt")
        owned = await stage.workload("prebuilt")
        assert owned["metadata"]["name"] == "mine"
        assert owned["metadata"]["labels"][stage.names.job_uid] == job["metadata"]["uid"]

    assert job["spec"]["suspend"] is True
    await create_and_check_adoption()
    await stage.change(stage.kinds.workloads, "mine", {"spec": {"active": False}})
    await stage.until_condition("QuotaReserved", "Deactivated", "prebuilt")
    await stage.until_running("prebuilt", running=False)
    assert (await stage.get(JOBS, "prebuilt"))["spec"]["template"] == job["spec"]["template"]
    await stage.change(stage.kinds.workloads, "mine", {"spec": {"active": True}})
    await stage.until_running("prebuilt")
    await stage.client.delete(stage.kinds.workloads, "mine", stage.namespace)
    await stage.until_gone(stage.kinds.workloads, "mine")
    await stage.until_running("prebuilt", running=False)
    await create_and_check_adoption()


async def _execution_time_of_all_admissions_is_limited(stage: Stage, record: Record) -> None:
    """Time before an eviction counts, and the limit can be changed while the job waits."""
    await _queue(stage, "limited")
    await stage.job("limited", queue="limited", labels={stage.names.max_exec_time: "3600"})
    await stage.until_running("limited")
    admitted = condition_since(await stage.workload("limited"), ConditionType.ADMITTED)
    assert admitted is not None
    await eventually(lambda: time.time_ns() > admitted + 2 * SECOND)
    queue = stage.own("limited")
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    evicted = await eventually(lambda: record.first_version("limited", "Requeued", "ClusterQueueStopped"))
    used = evicted["status"]["accumulatedPastExecutionTimeSeconds"]
    assert used >= 2
    await stage.until_running("limited", running=False)
    # The test adds an hour to the used time.
    name = evicted["metadata"]["name"]
    hour_more = {"status": {"accumulatedPastExecutionTimeSeconds": 3600 + used}}
    await stage.change(stage.kinds.workloads, name, hour_more, "status")
    labels = {"metadata": {"labels": {stage.names.max_exec_time: str(3601 + used)}}}
    await stage.change(JOBS, "limited", labels)

    async def limit() -> int:
        return (await stage.workload("limited"))["spec"]["maximumExecutionTimeSeconds"]

    await stage.until(limit, 3601 + used)
    await stage.change(stage.kinds.cluster_queues, queue, {"spec": {"stopPolicy": "None"}})
    await stage.until_condition("QuotaReserved", "Deactivated", "limited")
    note = f"The maximum execution time ({3601 + used}s) exceeded"
    await stage.until_event("Workload", name, "MaximumExecutionTimeExceeded", note)
    assert "accumulatedPastExecutionTimeSeconds" not in (await stage.workload("limited"))["status"]


async def _pods_recover_in_time(stage: Stage, record: Record, admitq: Installation) -> None:
    """Pods that become unready and ready again cause no eviction; readiness is counted once."""
    await _queue(stage, "recovers")
    await stage.job("recovers", queue="recovers")
    for ready, reason in ((True, "Started"), (False, "WaitForRecovery"), (True, "Recovered")):
        await stage.until_running("recovers")
        await until_pods_exist(stage, "recovers")
        await set_pod_status(stage, "recovers", ready=ready)
        await stage.until_condition("PodsReady", reason, "recovers")
    changes = [
        ("PodsReady", "False", "WaitForStart", NOT_ALL_PODS_READY),
        ("PodsReady", "True", "Started", "All pods reached readiness and the workload is running"),
        ("PodsReady", "False", "WaitForRecovery", "At least one pod has failed, waiting for recovery"),
        ("PodsReady", "True", "Recovered", "All pods reached readiness and the workload is running"),
    ]
    await record.until_condition_changes("recovers", ("PodsReady", "Evicted"), changes)
    for series in ("ready_wait_time_seconds_count", "admitted_until_ready_wait_time_seconds_count"):
        assert await sum_of_series(admitq, series, cluster_queue=stage.own("recovers")) == 1


# --- objects in use -------------------------------------------------------------------------------


async def test_deleted_flavor_and_check_remain_while_a_cluster_queue_references_them(stage: Stage) -> None:
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


async def test_deleted_topology_remains_while_a_flavor_references_it(stage: Stage) -> None:
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


async def test_queue_statuses_report_workload_counts_and_usage(stage: Stage) -> None:
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


async def test_cluster_queue_is_inactive_until_its_flavor_exists(stage: Stage) -> None:
    await stage.cluster_queue()

    async def active() -> Any:
        return condition_of(await stage.get(stage.kinds.cluster_queues, stage.own("cq")), "Active")

    missing = f"Can't admit new workloads: references missing ResourceFlavor(s): {stage.own('f')}."
    await stage.until(active, ("False", "FlavorNotFound", missing))
    await stage.flavor()
    await stage.until(active, ("True", "Ready", "Can admit new workloads"))
