"""Stories of pod groups: admitted as a whole, replaced, preempted, deleted and rejected.

The real scheduler places the pods, and simulated nodes run them.
"""

from typing import Any

import pytest

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.pods import (
    EXIT_CODE,
    get_workload,
    group,
    phases,
    pod,
    until_phases,
    until_released,
    until_workload,
)
from tests.controlplane.stage import Stage, condition_of

# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.core
async def test_pod_group_is_admitted_as_a_whole_once_it_is_complete(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    await pod(stage, "g-0", group="g", total=3, seconds=2)
    await pod(stage, "g-1", group="g", total=3, seconds=2)
    note = "'g' group has fewer runnable pods than expected"
    await stage.until_event("Pod", "g-0", "ErrWorkloadCompose", note)
    await until_phases(stage, g_0="held", g_1="held")
    await pod(stage, "g-2", group="g", total=3, cpu=2, seconds=2)
    await until_workload(stage, "g", "Finished", "Succeeded")
    workload = await get_workload(stage, "g")
    assert workload["metadata"]["annotations"][names.is_group_workload] == "true"
    owners = workload["metadata"]["ownerReferences"]
    assert sorted(one["name"] for one in owners) == ["g-0", "g-1", "g-2"]
    assert not any(one.get("controller") for one in owners)
    assert sorted(one["count"] for one in workload["spec"]["podSets"]) == [1, 2]
    assert condition_of(workload, "Finished") == ("True", "Succeeded", "Pods succeeded: 3/3.")

    await until_released(stage, PODS, "g-0", "g-1", "g-2")


@pytest.mark.core
async def test_failed_pod_of_a_group_is_replaced(stage: Stage) -> None:
    await stage.queues(cpu=2)
    await pod(stage, "g-0", group="g", total=2)
    await pod(stage, "g-1", group="g", total=2, seconds=1, annotations={EXIT_CODE: "1"})
    await until_workload(stage, "g", "WaitingForReplacementPods", "PodsFailed", "True")
    assert (await stage.get(PODS, "g-1"))["metadata"]["finalizers"]
    await pod(stage, "g-2", group="g", total=2, seconds=1)
    await until_phases(stage, g_0="Running", g_1="Failed", g_2="Succeeded")
    await until_workload(stage, "g", "WaitingForReplacementPods", "PodsReady", "False")
    await until_released(stage, PODS, "g-1")
    owners = (await get_workload(stage, "g"))["metadata"]["ownerReferences"]
    assert sorted(one["name"] for one in owners) == ["g-0", "g-1", "g-2"]
    await stage.until_event("Workload", "g", "OwnerReferencesAdded", "Added 1 owner reference(s)")

    async def reclaimable() -> Any:
        return [
            one["count"]
            for one in value_at(await get_workload(stage, "g"), ("status", "reclaimablePods"), [])
        ]

    await stage.until(reclaimable, [1])


async def test_preempted_pod_group_is_readmitted_with_replacement_pods(stage: Stage) -> None:
    await stage.queues(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    classes, high = stage.kinds.workload_priority_classes, stage.own("high")
    await stage.create(classes, high, {"value": 100})
    await group(stage, "low", 2)
    await until_phases(stage, low_0="Running", low_1="Running")
    await pod(stage, "high", cpu=2, labels={stage.names.priority_class: high})
    await until_phases(stage, low_0="going", low_1="going", high="Running")
    victim = await stage.get(PODS, "low-0")
    ended = condition_of(victim, "TerminationTarget") or ("", "", "")
    assert ended[:2] == ("True", "WorkloadEvictedDueToPreempted")
    await until_workload(stage, "low", "WaitingForReplacementPods", "Preempted", "True")
    await until_workload(stage, "low", "Requeued", "Preempted", "True")
    await pod(stage, "low-2", group="low", total=2)
    await pod(stage, "low-3", group="low", total=2)
    await until_phases(stage, low_0="gone", low_1="gone", low_2="held", low_3="held")
    await until_workload(stage, "low", "WaitingForReplacementPods", "PodsReady", "False")
    await stage.client.delete(PODS, "high", stage.namespace)
    await until_phases(stage, low_2="Running", low_3="Running")


async def test_pod_group_with_fast_admission_starts_before_all_its_pods_exist(stage: Stage) -> None:
    fast = {stage.names.pod_group_fast_admission: "true"}
    await stage.queues()
    await pod(stage, "g-0", group="g", total=3, annotations=fast)
    await until_phases(stage, g_0="Running")
    assert [one["count"] for one in (await get_workload(stage, "g"))["spec"]["podSets"]] == [3]
    await pod(stage, "g-1", group="g", total=3, annotations=fast)
    await until_phases(stage, g_1="Running")


async def test_excess_pods_of_a_group_are_deleted(stage: Stage) -> None:
    await stage.queues()
    await group(stage, "g", 2)
    await until_phases(stage, g_0="Running", g_1="Running")
    await until_workload(stage, "g", "PodsReady", "Started")
    await pod(stage, "g-2", group="g", total=2)
    await until_phases(stage, g_0="Running", g_1="Running", g_2="gone")
    await stage.until_event("Pod", "g-2", "ExcessPodDeleted", "Excess pod deleted")


async def test_non_retriable_pod_group_finishes_when_its_pods_end(stage: Stage) -> None:
    not_retriable = {stage.names.retriable_in_group: "false"}
    await stage.queues()
    await pod(stage, "g-0", group="g", total=2, seconds=1)
    await pod(stage, "g-1", group="g", total=2, seconds=1, annotations={EXIT_CODE: "1", **not_retriable})
    await until_workload(stage, "g", "Finished", "Failed")
    assert condition_of(await get_workload(stage, "g"), "Finished") == (
        "True",
        "Failed",
        "Pods succeeded: 1/2.",
    )


async def test_serving_pod_group_does_not_finish_when_its_pods_succeed(stage: Stage) -> None:
    serving = {stage.names.pod_group_serving: "true"}
    await stage.queues()
    await group(stage, "g", 2, seconds=1, annotations=serving)
    await until_phases(stage, g_0="Succeeded", g_1="Succeeded")
    workload = await get_workload(stage, "g")
    assert condition_of(workload, "Finished") is None
    assert value_at(workload, ("status", "reclaimablePods"), []) == []


async def test_pod_group_with_two_queue_names_reports_an_event(stage: Stage) -> None:
    await stage.queues()
    await stage.local_queue("other")
    await pod(stage, "g-0", group="g", total=2)
    await pod(stage, "g-1", group="g", total=2, queue="other")
    note = "pods of group 'g' name different queues: 'lq', 'other'"
    # Events about a group are recorded on its oldest pod. In a new version of that, an event starts a series.
    await stage.change(PODS, "g-0", {"metadata": {"annotations": {"example.com/changed": "true"}}})
    await stage.until_event("Pod", "g-0", "ErrWorkloadCompose", note)
    await until_phases(stage, g_0="held", g_1="held")


@pytest.mark.parametrize("state", ["incomplete", "waiting", "running"])
async def test_pod_group_deleted_pod_by_pod_releases_its_quota(stage: Stage, state: str) -> None:
    await stage.queues(cpu=2)
    await group(stage, "g", 2, total=3 if state == "incomplete" else 2, cpu=2 if state == "waiting" else 1)
    if state == "running":
        await until_phases(stage, g_0="Running", g_1="Running")
    elif state == "waiting":
        await until_workload(stage, "g", "QuotaReserved", "ExceedsMaxQuota")
    await stage.client.delete(PODS, "g-0", stage.namespace)
    if state == "running":
        await until_workload(stage, "g", "WaitingForReplacementPods", "PodsFailed", "True")
    await stage.client.delete(PODS, "g-1", stage.namespace)
    await until_phases(stage, g_0="gone", g_1="gone")
    await stage.until_gone(stage.kinds.workloads, "g")
    await pod(stage, "next", cpu=2)
    await until_phases(stage, next="Running")


async def test_all_pods_of_a_group_are_deleted_when_its_workload_is_deleted(stage: Stage) -> None:
    await stage.queues()
    await group(stage, "g", 2)
    await until_phases(stage, g_0="Running", g_1="Running")
    await stage.client.delete(stage.kinds.workloads, "g", stage.namespace)
    await until_phases(stage, g_0="gone", g_1="gone")
    await stage.until_gone(stage.kinds.workloads, "g")


async def test_d22_group_named_like_the_workload_of_a_job_is_not_admitted(stage: Stage) -> None:
    await stage.queues()
    await stage.job()
    name = (await eventually(stage.workload, what="the Job's Workload"))["metadata"]["name"]
    await group(stage, name, 2)
    note = (
        f'A Workload named "{name}" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    await stage.until_event("Pod", f"{name}-0", "WorkloadNameConflict", note)
    assert await phases(stage, [f"{name}-0"]) == ["held"]
    assert len((await get_workload(stage, name))["metadata"]["ownerReferences"]) == 1


async def test_pod_group_adopts_its_prebuilt_workload_and_a_pending_group_moves_to_another_queue(
    stage: Stage,
) -> None:
    await stage.queues(cpu=4)
    await stage.closed_queue()
    await group(stage, "model", 2, queue="closed")
    await until_workload(stage, "model", "QuotaReserved", "Suspended")
    spec = {"queueName": "lq", "podSets": (await get_workload(stage, "model"))["spec"]["podSets"]}
    await stage.create(stage.kinds.workloads, "mine", {"spec": spec})
    await group(stage, "mine", 2, labels={stage.names.prebuilt_workload_name: "mine"})
    await until_phases(stage, mine_0="Running", mine_1="Running")
    assert len((await get_workload(stage, "mine"))["metadata"]["ownerReferences"]) == 2
    # A pending group moves to another queue when the labels of its pods change one by one.
    for number in range(2):
        queue = {stage.names.queue_name: "lq"}
        await stage.change(PODS, f"model-{number}", {"metadata": {"labels": queue}})
    await until_phases(stage, model_0="Running", model_1="Running")


async def test_b8_and_b9_prebuilt_group_workload_adopts_pods_that_name_its_podset(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"queueName": "lq", "podSets": [{"name": "workers", "count": 2, "template": template}]}
    metadata = {"annotations": {names.is_group_workload: "true"}}
    await stage.create(stage.kinds.workloads, "g", {"metadata": metadata, "spec": spec})
    await until_workload(stage, "g", "Admitted", "Admitted", "True")
    brought = {names.role_hash: "workers"}
    await group(stage, "g", 2, labels={names.prebuilt_workload_name: "g"}, annotations=brought)
    await until_phases(stage, g_0="Running", g_1="Running")
    assert (await stage.get(PODS, "g-0"))["metadata"]["annotations"][names.role_hash] == "workers"
    workload = await get_workload(stage, "g")
    assert condition_of(workload, "Finished") is None
    assert len(workload["metadata"]["ownerReferences"]) == 2


# --- rejected requests --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ({"group": "g"}, "pod-group-total-count' annotation and the '"),
        ({"total": 2}, "pod-group-name' label should be set"),
        ({"group": "g", "total": 0}, "must be a whole number, at least 1"),
        ({"group": "G", "total": 1}, "pod-group-name"),
        ({"labels": {"managed": "yes"}, "queue": None}, 'can only be \\"true\\"'),
        ({"labels": {"prebuilt-workload-name": "other"}, "group": "g", "total": 1}, "should be equal"),
    ],
)
async def test_pod_with_invalid_group_metadata_is_rejected(stage: Stage, marks: Any, message: str) -> None:
    labels = {f"{stage.names.group}/{key}": value for key, value in marks.pop("labels", {}).items()}
    with pytest.raises(ApiError) as refused:
        await pod(stage, "p", labels=labels, **marks)
    assert message.replace("\\", "") in refused.value.message


async def test_group_metadata_of_a_pod_is_immutable(stage: Stage) -> None:
    names = stage.names
    await stage.queues()
    await pod(stage, "g-0", group="g", total=2, annotations={names.retriable_in_group: "false"})
    for change, message in (
        ({"labels": {names.pod_group_name: "other"}}, "field is immutable"),
        ({"annotations": {names.retriable_in_group: "true"}}, "can't be converted to retriable"),
    ):
        with pytest.raises(ApiError) as refused:
            await stage.change(PODS, "g-0", {"metadata": change})
        assert message in refused.value.message
