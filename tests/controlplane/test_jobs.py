"""Stories of Jobs on the real control plane: queued, started, stopped, finished, changed and deleted."""

from typing import Any

import pytest

from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS, PRIORITY_CLASSES
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from tests.controlplane.pods import group, until_phases
from tests.controlplane.pods_of_jobs import succeed_pods, until_pods_exist
from tests.controlplane.recording import list_series, sum_of_series
from tests.controlplane.stage import EVENT_SECONDS, Stage, changes_between, condition_of, controlled_by
from tests.unit.metrics.metric_table import PROMISED

SPOT = {
    "nodeLabels": {"example.com/pool": "spot"},
    "nodeTaints": [{"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}],
    "tolerations": [{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
}


# --- main path ------------------------------------------------------------------------------------


COUNTED = (
    "quota_reserved_workloads_total",
    "quota_reserved_wait_time_seconds_count",
    "admitted_workloads_total",
    "admission_wait_time_seconds_count",
    "admission_checks_wait_time_seconds_count",
    "finished_workloads_total",
    "execution_time_seconds_count",
)
"""Metrics that count each job exactly once."""


@pytest.mark.core
async def test_job_is_admitted_runs_finishes_and_releases_its_quota(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.active_queues()
    created = await stage.job(seconds=1)
    assert created["spec"]["suspend"] is True
    await stage.until_finished()
    workload = await stage.workload()
    queue, name = stage.own("cq"), workload["metadata"]["name"]
    assert condition_of(workload, "QuotaReserved") == (
        "True",
        "QuotaReserved",
        f"Quota reserved in ClusterQueue {queue}",
    )
    assert condition_of(workload, "Admitted") == ("True", "Admitted", "The workload is admitted")
    assert (condition_of(workload, "Finished") or ())[:2] == ("True", "Succeeded")
    assert workload["metadata"]["labels"][stage.names.job_uid] == created["metadata"]["uid"]

    async def events() -> list[tuple[str, str]]:
        return await stage.events("Job", "j")

    await stage.until(
        events,
        [
            ("CreatedWorkload", f"Created Workload: {stage.namespace}/{name}"),
            ("Started", f"Admitted by clusterQueue {queue}"),
            ("FinishedWorkload", f"Workload '{stage.namespace}/{name}' is declared finished"),
        ],
        timeout=EVENT_SECONDS,
    )
    # Earlier events may report a queue that the manager observed after the job.
    reasons = [reason for reason, _ in await stage.events("Workload", name)]
    assert reasons[-2:] == ["QuotaReserved", "Admitted"]

    async def counters() -> list[float]:
        return [await sum_of_series(admitq_running, series, cluster_queue=queue) for series in COUNTED]

    await stage.until(counters, [1.0] * len(COUNTED))
    assert (
        await sum_of_series(admitq_running, "workload_creation_latency_seconds_count", job_kind="Job.batch")
        >= 1
    )
    for series, labels in await list_series(admitq_running):
        row = PROMISED.get(series) or PROMISED.get(series.rpartition("_")[0])
        if row is not None:
            assert labels.keys() - {"le"} == {*row.labels.split(), "replica_role"}, series


async def test_workload_of_a_failed_job_finishes_as_failed(stage: Stage) -> None:
    await stage.queues()
    await stage.job(activeDeadlineSeconds=1)
    await stage.until_finished()
    assert (condition_of(await stage.workload(), "Finished") or ())[:2] == ("True", "Failed")


async def test_job_that_does_not_fit_waits_until_quota_is_free(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await stage.job("first", pods=2)
    await stage.until_running("first")
    await stage.job("second", seconds=1)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    _, _, message = await stage.condition("QuotaReserved", "second") or ("", "", "")
    assert "insufficient unused quota for cpu" in message
    assert value_at(await stage.get(JOBS, "second"), ("spec", "suspend")) is True
    await succeed_pods(stage, "first")
    await stage.until_finished("second")


@pytest.mark.core
async def test_evicted_job_loses_all_that_its_admission_injected(stage: Stage) -> None:
    await stage.flavor("spot", **SPOT)
    await stage.cluster_queue(flavors=["spot"])
    await stage.local_queue()
    await stage.cluster_queue("closed", flavors=["spot"], stopPolicy="Hold")
    await stage.local_queue("closed", cluster_queue="closed")
    before = await stage.job(queue="closed", pods=2)
    await stage.until_workload_exists()
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.queue_name: "lq"}}})
    await stage.until_running()
    running = await stage.get(JOBS, "j")
    template = running["spec"]["template"]
    assert template["spec"]["nodeSelector"] == SPOT["nodeLabels"]
    assert template["spec"]["tolerations"] == SPOT["tolerations"]
    labels = template["metadata"]["labels"]
    assert labels[stage.names.podset] == "main"
    assert labels[stage.names.local_queue_name] == "lq"
    assert labels[stage.names.cluster_queue_name] == stage.own("cq")
    workload = await stage.workload()
    assert template["metadata"]["annotations"][stage.names.workload] == workload["metadata"]["name"]
    pods = await until_pods_exist(stage)
    assert pods[0]["spec"]["nodeSelector"] == SPOT["nodeLabels"]

    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.until_condition("Requeued", "ClusterQueueStopped")
    await stage.until_running(running=False)
    stopped = await stage.get(JOBS, "j")
    assert "startTime" not in stopped["status"]
    difference = changes_between(before, stopped)
    difference.pop("status", None)
    assert difference == {"metadata": {"labels": {stage.names.queue_name: "lq"}}}


async def test_job_with_a_conflicting_podset_label_fails_to_start(stage: Stage) -> None:
    await stage.flavor("spot", nodeLabels={"a.example/x": "1", "b.example/y": "2"})
    await stage.cluster_queue(flavors=["spot"])
    await stage.local_queue()
    template = {
        "metadata": {"labels": {stage.names.podset: "mine"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/c:1"}]},
    }
    await stage.job(template=template)
    await stage.until_condition("Finished", "FailedToStart")
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is True


async def test_quota_of_succeeded_pods_is_reclaimed_while_their_job_runs(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await stage.job("long", pods=2, completions=2)
    await stage.until_running("long")
    await stage.job("next")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "next")
    await succeed_pods(stage, "long", count=1)

    async def reclaimable() -> Any:
        return value_at(await stage.workload("long"), ("status", "reclaimablePods"))

    await stage.until(reclaimable, [{"name": "main", "count": 1}])
    await stage.until_running("next")


# --- changes --------------------------------------------------------------------------------------


async def test_pending_job_keeps_its_workload_when_it_is_edited(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await stage.job(pods=4)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    before = await stage.workload()
    await stage.change(JOBS, "j", {"spec": {"parallelism": 2}})
    await stage.until_running()
    after = await stage.workload()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["podSets"][0]["count"] == 2
    note = f"Updated not matching Workload for suspended job: {stage.namespace}/{after['metadata']['name']}"
    await stage.until_event("Job", "j", "UpdatedWorkload", note)


async def test_pending_workload_moves_to_the_new_queue_of_its_job(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await stage.cluster_queue("other", cpu=4)
    await stage.local_queue("other", cluster_queue="other")
    await stage.job(pods=2)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.queue_name: "other"}}})
    await stage.until_running()
    assert (await stage.workload())["spec"]["queueName"] == "other"


async def test_workload_is_deleted_when_its_pending_job_loses_its_queue_name(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await stage.job(pods=2)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.queue_name: None}}})
    await stage.until(stage.workloads, [])


async def test_pending_workload_is_recreated_when_it_is_deleted(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await stage.job(pods=2)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    before = await stage.workload()
    await stage.client.delete(stage.kinds.workloads, before["metadata"]["name"], stage.namespace)

    async def is_recreated() -> bool:
        return (await stage.workload())["metadata"]["uid"] != before["metadata"]["uid"]

    await stage.until(is_recreated)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")


async def test_running_job_is_stopped_and_readmitted_when_its_workload_is_deleted(stage: Stage) -> None:
    await stage.queues()
    await stage.job()
    await stage.until_running()
    before = await stage.workload()
    await until_pods_exist(stage)
    await stage.client.delete(stage.kinds.workloads, before["metadata"]["name"], stage.namespace)

    async def is_recreated() -> bool:
        workload = await stage.workload()
        return workload["metadata"]["uid"] != before["metadata"]["uid"]

    await stage.until(is_recreated)
    await stage.until_running()
    await stage.until_event("Job", "j", "Stopped", "Workload is deleted")


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_workload_is_deleted_or_finished_when_its_pending_job_is_deleted(
    stage: Stage, propagation: Any
) -> None:
    await stage.queues(cpu=1)
    await stage.job(pods=2)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    if propagation == "Orphan":
        await stage.until_garbage_is_collected()
    await stage.client.delete(JOBS, "j", stage.namespace, propagation=propagation)
    await stage.until_gone(JOBS, "j")
    if propagation == "Orphan":

        async def finished_reasons() -> list[Any]:
            items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
            return [(condition_of(one, "Finished") or ("", ""))[1] for one in items]

        await stage.until(finished_reasons, ["OwnerNotFound"])
    else:
        await stage.until(stage.workloads, [])


async def test_quota_is_released_when_a_running_job_is_deleted(stage: Stage) -> None:
    await stage.queues(cpu=1)
    await stage.job("first")
    await stage.until_running("first")
    await stage.job("second")
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "second")
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    await stage.until_running("second")
    await stage.until(lambda: stage.workloads("first"), [])


async def test_job_recreated_under_the_same_name_gets_a_new_workload(stage: Stage) -> None:
    await stage.queues()
    await stage.job()
    await stage.until_running()
    first = await stage.workload()
    await stage.client.delete(JOBS, "j", stage.namespace, propagation="Background")
    await stage.until_gone(JOBS, "j")
    await stage.job()

    async def has_new_workload() -> bool:
        return (await stage.workload())["metadata"]["name"] != first["metadata"]["name"]

    await stage.until(has_new_workload)
    await stage.until_running()


# --- permission to run ----------------------------------------------------------------------------


async def test_job_without_a_queue_name_runs_unmanaged(stage: Stage) -> None:
    created = await stage.job(queue=None, seconds=1)
    assert created["spec"]["suspend"] is False
    await stage.until(lambda: stage.is_complete("j"))
    assert await stage.workloads() == []


async def test_pending_job_is_stopped_again_when_a_user_unsuspends_it(
    stage: Stage, admitq_running: Installation
) -> None:
    await stage.queues(cpu=1)
    await stage.job(pods=2)
    await stage.until_condition("QuotaReserved", "ExceedsMaxQuota")
    await stage.change(JOBS, "j", {"spec": {"suspend": False}})
    await stage.until_event("Job", "j", "Stopped", "Not admitted by cluster queue")
    await stage.until_running(running=False)

    async def pods() -> int:
        return len([one for one in await stage.pods() if "deletionTimestamp" not in one["metadata"]])

    await stage.until(pods, 0)

    async def excess_pods() -> float:
        labels = {"cluster_queue": stage.own("cq"), "job_kind": "Job.batch"}
        return await sum_of_series(admitq_running, "excess_pods_total", **labels)

    await stage.until(excess_pods, 2.0)


async def test_d22_podset_of_a_job_carries_its_index_label_without_a_topology(stage: Stage) -> None:
    await stage.closed_queue()
    await stage.job(queue="closed")
    await stage.until_workload_exists()
    [pod_set] = (await stage.workload())["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}


@pytest.mark.parametrize("uid", ["right", "forged"])
async def test_job_stays_queued_when_it_copies_or_forges_an_owner_reference(stage: Stage, uid: str) -> None:
    await stage.queues(cpu=1)
    parent = await stage.job("parent")
    await stage.until_running("parent")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "parent",
        "uid": parent["metadata"]["uid"] if uid == "right" else uid,
        "controller": True,
    }
    child = await stage.job("child", metadata={"ownerReferences": [owner]})
    assert child["spec"]["suspend"] is True
    if uid == "right":  # the garbage collector deletes a child with another UID
        await stage.until_condition("QuotaReserved", "WaitingForQuota", "child")


async def test_prebuilt_workload_that_differs_from_the_job_is_left_unchanged(stage: Stage) -> None:
    await stage.queues(cpu=4)
    await stage.closed_queue()
    await stage.job("model", queue="closed", pods=2)
    await stage.until_workload_exists("model")
    model = await stage.workload("model")
    await stage.create(
        stage.kinds.workloads,
        "mine",
        {"spec": {"queueName": "closed", "podSets": model["spec"]["podSets"]}},
    )
    await stage.job(labels={stage.names.prebuilt_workload_name: "mine"})
    note = "The prebuilt workload is out of sync with its user job"
    await stage.until_event("Job", "j", "ErrWorkloadCompose", note)
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is True
    left = await stage.get(stage.kinds.workloads, "mine")
    assert condition_of(left, "Finished") is None
    assert "ownerReferences" not in left["metadata"]


async def test_t9_job_that_names_the_workload_of_a_pod_group_gets_an_event_and_pods_keep_running(
    stage: Stage,
) -> None:
    await stage.queues(cpu=4)
    await group(stage, "victim", 2)
    await until_phases(stage, victim_0="Running", victim_1="Running")
    before = await stage.get(stage.kinds.workloads, "victim")
    await stage.job(labels={stage.names.prebuilt_workload_name: "victim"})
    note = "Workload victim exists already and belongs to something else"
    await stage.until_event("Job", "j", "ErrWorkloadCompose", note)
    after = await stage.get(stage.kinds.workloads, "victim")
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    assert condition_of(after, "Finished") is None
    await until_phases(stage, victim_0="Running", victim_1="Running")
    assert value_at(await stage.get(JOBS, "j"), ("spec", "suspend")) is True


async def test_t6_pod_forged_as_a_pod_of_a_job_replaces_another_pod_of_that_job(stage: Stage) -> None:
    """An administrator creates the pod; the webhook refuses it to tenants. The Job controller counts it."""
    await stage.queues(cpu=1)
    await stage.job(completions=9)

    async def pod_count() -> int:
        found, _ = await stage.client.list(PODS, stage.namespace)
        return sum("deletionTimestamp" not in one["metadata"] for one in found)

    await stage.until(pod_count, 1)
    owner = await stage.get(JOBS, "j")
    uid = {"batch.kubernetes.io/controller-uid": owner["metadata"]["uid"]}
    metadata = {"labels": {**uid, stage.names.queue_name: "lq"}, **controlled_by(owner)}
    spec = owner["spec"]["template"]["spec"]
    forged = await stage.create(PODS, "j-x7k2p", {"metadata": metadata, "spec": spec})
    assert "schedulingGates" not in forged["spec"]
    await stage.until(pod_count, 1)
    assert [one["spec"]["podSets"][0]["count"] for one in await stage.workloads()] == [1]


# --- priority -------------------------------------------------------------------------------------


@pytest.mark.core
async def test_workload_priority_follows_the_priority_class_of_its_job(stage: Stage) -> None:
    await stage.queues(cpu=1)
    classes, name = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.job(pods=2, labels={stage.names.priority_class: name})
    missing = f'WorkloadPriorityClass "{name}" not found'
    await stage.until_event("Job", "j", "WorkloadPriorityClassNotFound", missing)
    assert await stage.workloads() == []
    await stage.create(classes, name, {"value": 100})

    async def priority() -> Any:
        spec = (await stage.workload())["spec"]
        return spec["priority"], spec["priorityClassRef"]["name"]

    await stage.until(priority, (100, name))
    await stage.change(classes, name, {"value": 200})
    await stage.until(priority, (200, name))
    other = stage.own("low")
    await stage.create(classes, other, {"value": 5})
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.priority_class: other}}})
    await stage.until(priority, (5, other))


async def test_workload_priority_changes_when_a_running_job_changes_its_priority_class(stage: Stage) -> None:
    await stage.queues()
    classes = stage.kinds.workload_priority_classes
    for name, value in (("low", 1), ("high", 2)):
        await stage.create(classes, stage.own(name), {"value": value})
    await stage.job(labels={stage.names.priority_class: stage.own("low")})
    await stage.until_running()
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.priority_class: stage.own("high")}}})

    async def priority() -> int:
        return (await stage.workload())["spec"]["priority"]

    await stage.until(priority, 2)
    name = (await stage.workload())["metadata"]["name"]
    note = f"Updated workload priority class: {stage.namespace}/{name}"
    await stage.until_event("Job", "j", "UpdatedWorkload", note)


async def test_workload_gets_the_priority_class_of_the_pod_template(stage: Stage) -> None:
    await stage.queues()
    name = stage.own("pods")
    await stage.create(PRIORITY_CLASSES, name, {"value": 7, "preemptionPolicy": "Never"})
    try:
        template = {
            "spec": {
                "restartPolicy": "Never",
                "priorityClassName": name,
                "containers": [{"name": "c", "image": "example.com/c:1"}],
            }
        }
        await stage.job(template=template)
        await stage.until_workload_exists()
        spec = (await stage.workload())["spec"]
        assert spec["priority"] == 7
        assert spec["priorityClassRef"] == {
            "group": "scheduling.k8s.io",
            "kind": "PriorityClass",
            "name": name,
        }
    finally:
        await stage.client.delete(PRIORITY_CLASSES, name)


# --- unusual input---------------------------------------------------------------------------------


async def test_job_reports_missing_queues_and_runs_once_they_exist(stage: Stage) -> None:
    await stage.job()
    await stage.until_condition("QuotaReserved", "Misconfigured")
    assert await stage.condition("QuotaReserved") == ("False", "Misconfigured", "LocalQueue lq doesn't exist")
    await stage.flavor()
    await stage.local_queue()

    async def message() -> str:
        return (await stage.condition("QuotaReserved") or ("", "", ""))[2]

    await stage.until(message, f"ClusterQueue {stage.own('cq')} doesn't exist")
    await stage.cluster_queue()
    await stage.until_running()


async def test_job_with_duplicate_variables_and_fractional_quantities_runs(stage: Stage) -> None:
    await stage.queues()
    container = {
        "name": "c",
        "image": "example.com/c:1",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1.5}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "initContainers": [{**container, "name": "i"}],
    }
    await stage.job(template={"spec": spec})
    await stage.until_running()
    workload = await stage.workload()
    kept = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert kept["env"] == [{"name": "A", "value": "2"}]
    assert workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "1500m"}


async def test_job_with_a_name_of_63_characters_runs(stage: Stage) -> None:
    await stage.queues()
    name = "j" * 63
    await stage.job(name, seconds=1)
    await stage.until_finished(name)


async def test_jobs_of_equal_names_in_two_namespaces_are_independent(
    stage: Stage, other_stage: Stage
) -> None:
    await stage.queues(cpu=1)
    await other_stage.queues(cpu=1)
    await stage.job()
    await other_stage.job()
    await stage.until_running()
    await other_stage.until_running()
    await stage.client.delete(JOBS, "j", stage.namespace, propagation="Background")
    await stage.until(stage.workloads, [])
    assert condition_of(await other_stage.workload(), "Admitted") is not None


async def test_job_with_a_resource_that_no_flavor_covers_reports_no_matching_flavor(stage: Stage) -> None:
    await stage.queues()
    container = {"name": "c", "image": "i", "resources": {"limits": {"example.com/pods": "1"}}}
    await stage.job(template={"spec": {"restartPolicy": "Never", "containers": [container]}})
    await stage.until_condition("QuotaReserved", "NoMatchingFlavor")


async def test_job_with_a_negative_maximum_execution_time_is_rejected(stage: Stage) -> None:
    with pytest.raises(ApiError, match="must be"):
        await stage.job(labels={stage.names.max_exec_time: "-5"})


async def test_workload_name_taken_by_a_foreign_object_is_reported_on_the_job(stage: Stage) -> None:
    await stage.queues()
    job = await stage.job(queue=None, suspend=True)
    taken = create_workload_name("Job", "batch", "j", job["metadata"]["uid"])
    template = job["spec"]["template"]["spec"]
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": template["containers"]}}}
    await stage.create(stage.kinds.workloads, taken, {"spec": {"queueName": "other", "podSets": [pods]}})
    await stage.change(JOBS, "j", {"metadata": {"labels": {stage.names.queue_name: "lq"}}})
    note = f"Workload {taken} exists already and belongs to something else"
    await stage.until_event("Job", "j", "ErrWorkloadCompose", note)
