"""Failed, deleted and replaced pods of a group."""

from typing import Any

import pytest

from admitq.runtime.resources import PODS
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    admitted,
    condition,
    condition_of,
    reserved,
    timestamp,
    workload,
)
from tests.unit.controllers.job.pod_groups import EVICTED, GROUP, PodWorld, group_workload, pod, pods_of_group

WAITING = condition("WaitingForReplacementPods", True, "PodsFailed", "Some Failed pods need replacement")


@pytest.mark.parametrize(
    ("existing", "states", "reason", "status"),
    [
        (group_workload(admitted), ["running", "failed"], "PodsFailed", "True"),
        (group_workload(workload, EVICTED), ["deleted", "deleted"], "Preempted", "True"),
        (group_workload(admitted, WAITING), ["running", "running"], "PodsReady", "False"),
        (group_workload(workload, WAITING), ["held", "succeeded"], "PodsReady", "False"),
    ],
)
async def test_workload_reports_whether_group_waits_for_replacement_pods(
    existing: Any, states: list[str], reason: str, status: str
) -> None:
    world = PodWorld()
    world.put(
        PODS,
        *(
            disrupted(pod_) if pod_["status"]["phase"] == "Running" else pod_
            for pod_ in pods_of_group(*states)
        ),
    )
    world.put(KINDS.workloads, existing)
    await world.settle()
    waiting_condition = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert waiting_condition[:2] == (status, reason)


@pytest.mark.parametrize("make", [workload, reserved])
async def test_a4_waiting_for_replacement_pods_keeps_reason_and_message_of_its_eviction(make: Any) -> None:
    """Another program may overwrite the Evicted condition; the pods were still lost by the eviction."""
    answered = condition("Evicted", False, "QuotaReserved", "Previously: m")
    waiting = condition("WaitingForReplacementPods", True, "Preempted", "m")
    world = PodWorld()
    world.put(PODS, *pods_of_group("held", "failed"))
    world.put(KINDS.workloads, group_workload(make, answered, waiting))
    await world.settle()
    waiting_condition = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert waiting_condition == ("True", "Preempted", "m")


async def test_waiting_for_replacement_pods_is_written_with_field_manager_of_pod_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, writers = PodWorld(), list[str]()
    patch = world.client.merge_patch

    async def recording_patch(*what: Any, field_manager: str, **where: Any) -> dict[str, Any]:
        writers.append(field_manager)
        return await patch(*what, field_manager=field_manager, **where)

    monkeypatch.setattr(world.client, "merge_patch", recording_patch)
    world.put(PODS, *(disrupted(pod_) for pod_ in pods_of_group("running", "failed")))
    world.put(KINDS.workloads, group_workload(admitted))
    await world.pods.reconcile(GROUP)
    assert writers == ["admitq-pod-controller"]


@pytest.mark.parametrize(
    ("states", "waiting"),
    [
        (["failed", "failed"], ("True", "PodsFailed", "Some Failed pods need replacement")),
        (["succeeded", "failed"], ("True", "PodsFailed", "Some Failed pods need replacement")),
        (["succeeded", "succeeded"], None),
    ],
)
async def test_group_with_failed_pods_reports_missing_replacements_when_it_is_finished(
    states: list[str], waiting: Any
) -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group(*states, annotations={NAMES.retriable_in_group: "false"}))
    world.put(KINDS.workloads, group_workload(admitted))
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "WaitingForReplacementPods") == waiting
    assert condition_of(ended, "Finished")[0] == "True"


async def test_finished_pod_group_does_not_wait_for_replacement_pods() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("failed", "deleted"))
    ended = group_workload(admitted, condition("Finished", True, "Succeeded"))
    world.put(KINDS.workloads, ended)
    await world.settle()
    assert condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods") is None


async def test_deleted_workload_reports_missing_replacement_pods() -> None:
    world = PodWorld()
    world.put(PODS, *pods_of_group("running", "failed"))
    world.put(KINDS.workloads, group_workload(admitted, metadata={"deletionTimestamp": timestamp(9)}))
    await world.pods.reconcile(GROUP)
    waiting_condition = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert waiting_condition[:2] == ("True", "PodsFailed")


def disrupted(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with condition TerminationTarget if it is deleted."""
    if "deletionTimestamp" not in obj["metadata"]:
        return obj
    target = {"type": "TerminationTarget", "status": "True", "reason": "R"}
    return {**obj, "status": {**obj["status"], "conditions": [target]}}


async def test_group_with_deleted_pod_is_reconciled_again_when_grace_period_ends() -> None:
    world = PodWorld()
    deleted = pod("a", group="g", state="deleted", deletion=timestamp(40))
    world.put(PODS, deleted, pod("b", group="g", state="running"))
    world.put(KINDS.workloads, group_workload(admitted, WAITING))
    requeue_after = await world.pods.reconcile(GROUP)
    assert requeue_after == pytest.approx(30.1)


@pytest.mark.parametrize("is_fast", [False, True])
async def test_fast_quota_release_does_not_wait_for_deleted_pods(is_fast: bool) -> None:
    world = PodWorld(fast_quota_release=is_fast)
    world.put(
        PODS,
        *(disrupted(pod(name, group="g", state="deleted", deletion=timestamp(40))) for name in "ab"),
    )
    world.put(KINDS.workloads, group_workload(admitted, EVICTED))
    await world.settle()
    quota = condition_of(world.get(KINDS.workloads, "g"), "QuotaReserved")
    assert (quota[0] == "False") is is_fast


async def test_pod_group_missing_from_watch_is_listed_before_its_workload_is_finished() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, group_workload(admitted))
    world.client.api["pods", "a"] = pod("a", group="g")
    assert await world.pods.reconcile(GROUP) == 1.0
    world.client.api.clear()
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []
