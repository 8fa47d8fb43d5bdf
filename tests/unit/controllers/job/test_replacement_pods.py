"""Pods of a group that fail, are deleted and are replaced."""

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
    time,
    workload,
)
from tests.unit.controllers.job.pod_groups import EVICTED, GROUP, PodWorld, of_group, pair, pod

WAITING = condition("WaitingForReplacementPods", True, "PodsFailed", "Some Failed pods need replacement")


@pytest.mark.parametrize(
    ("made", "states", "reason", "status"),
    [
        (of_group(admitted), ["running", "failed"], "PodsFailed", "True"),
        (of_group(workload, EVICTED), ["going", "going"], "Preempted", "True"),
        (of_group(admitted, WAITING), ["running", "running"], "PodsReady", "False"),
        (of_group(workload, WAITING), ["held", "succeeded"], "PodsReady", "False"),
    ],
)
async def test_pod_replacement_is_reported(made: Any, states: list[str], reason: str, status: str) -> None:
    world = PodWorld()
    told = [condemned(one) if one["status"]["phase"] == "Running" else one for one in pair(*states)]
    world.put(PODS, *told)
    world.put(KINDS.workloads, made)
    await world.settle()
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found[:2] == (status, reason)


@pytest.mark.parametrize("make", [workload, reserved])
async def test_a4_waiting_for_replacement_pods_keeps_reason_and_message_of_its_eviction(make: Any) -> None:
    """Whatever another program writes over the eviction, its pods were lost to it."""
    over = condition("Evicted", False, "QuotaReserved", "Previously: m")
    waits = condition("WaitingForReplacementPods", True, "Preempted", "m")
    world = PodWorld()
    world.put(PODS, *pair("held", "failed"))
    world.put(KINDS.workloads, of_group(make, over, waits))
    await world.settle()
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found == ("True", "Preempted", "m")


async def test_a_condition_that_pods_alone_have_is_written_as_by_their_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, writers = PodWorld(), list[str]()
    patch = world.client.merge_patch

    async def noted(*what: Any, field_manager: str, **where: Any) -> dict[str, Any]:
        writers.append(field_manager)
        return await patch(*what, field_manager=field_manager, **where)

    monkeypatch.setattr(world.client, "merge_patch", noted)
    world.put(PODS, *(condemned(one) for one in pair("running", "failed")))
    world.put(KINDS.workloads, of_group(admitted))
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
async def test_a_group_that_ends_without_its_pods_says_first_that_it_lacks_them(
    states: list[str], waiting: Any
) -> None:
    world = PodWorld()
    world.put(PODS, *pair(*states, annotations={NAMES.retriable_in_group: "false"}))
    world.put(KINDS.workloads, of_group(admitted))
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "WaitingForReplacementPods") == waiting
    assert condition_of(ended, "Finished")[0] == "True"


async def test_ended_pod_group_waits_for_no_pod() -> None:
    world = PodWorld()
    world.put(PODS, *pair("failed", "going"))
    ended = of_group(admitted, condition("Finished", True, "Succeeded"))
    world.put(KINDS.workloads, ended)
    await world.settle()
    assert condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods") is None


async def test_deleted_workload_reports_missing_group_pods() -> None:
    world = PodWorld()
    world.put(PODS, *pair("running", "failed"))
    world.put(KINDS.workloads, of_group(admitted, metadata={"deletionTimestamp": time(9)}))
    await world.pods.reconcile(GROUP)
    found = condition_of(world.get(KINDS.workloads, "g"), "WaitingForReplacementPods")
    assert found[:2] == ("True", "PodsFailed")


def condemned(one: dict[str, Any]) -> dict[str, Any]:
    if "deletionTimestamp" not in one["metadata"]:
        return one
    ended = {"type": "TerminationTarget", "status": "True", "reason": "R"}
    return {**one, "status": {**one["status"], "conditions": [ended]}}


async def test_a_deleted_pod_is_looked_at_again_when_its_grace_ends() -> None:
    world = PodWorld()
    going = pod("a", group="g", state="going", deletion=time(40))
    world.put(PODS, going, pod("b", group="g", state="running"))
    world.put(KINDS.workloads, of_group(admitted, WAITING))
    again = await world.pods.reconcile(GROUP)
    assert again == pytest.approx(30.1)


async def test_a_fast_release_does_not_wait_for_pods_that_are_deleted() -> None:
    for fast, freed in ((False, False), (True, True)):
        world = PodWorld(fast_quota_release=fast)
        world.put(
            PODS,
            *(condemned(pod(name, group="g", state="going", deletion=time(40))) for name in "ab"),
        )
        world.put(KINDS.workloads, of_group(admitted, EVICTED))
        await world.settle()
        quota = condition_of(world.get(KINDS.workloads, "g"), "QuotaReserved")
        assert (quota[0] == "False") is freed


async def test_pod_group_missing_in_the_watch_is_listed() -> None:
    world = PodWorld()
    world.put(KINDS.workloads, of_group(admitted))
    world.client.api["pods", "a"] = pod("a", group="g")
    assert await world.pods.reconcile(GROUP) == 1.0
    world.client.api.clear()
    await world.settle()
    ended = world.get(KINDS.workloads, "g")
    assert condition_of(ended, "Finished")[1] == "OwnerNotFound"
    assert ended["metadata"]["finalizers"] == []
