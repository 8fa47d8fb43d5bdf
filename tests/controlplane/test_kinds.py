"""What every kind of jobs can do, on the real control plane: one story each, for all kinds.

The YAML of a kind has what a story must know of it; ``kinds/README.md`` describes it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from admitq.integrations.base import Integration
from admitq.integrations.kinds.pod import POD
from admitq.workloads.transitions import is_reserved
from admitq_api.json_objects import value_at
from admitq_api.labels import DEFAULT_GROUP
from tests.controlplane.kind_cases import (
    CHECKED,
    EVERY_KIND,
    FOLDER,
    HELD,
    KINDS,
    KindCase,
    PlayedJob,
    checked_queue,
    differences,
    file_of,
    has_finalizers,
    held_queue,
    kinds_with_cases,
    load,
    open_queues,
    submit,
    with_changes,
)
from tests.controlplane.kind_stories import priority_of, those
from tests.controlplane.stage import Stage, changed

STORIES = ("run", "succeed", "fail", "stop", "change", "delete")
"""Stories of which a kind tells if it cannot live through them."""


def test_every_kind_has_a_case_file() -> None:
    files = {file_of(one) for one in KINDS}
    assert files | {EVERY_KIND} == set(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("kind", [pytest.param(one, id=one.framework) for one in kinds_with_cases()])
def test_case_file_skips_only_existing_stories_and_gives_a_reason(kind: Integration) -> None:
    case = load(kind, DEFAULT_GROUP)
    assert set(case.cannot) <= set(STORIES)
    assert all(case.cannot.values())
    assert (case.reclaimable is None) == ("reclaimable" not in case.play)
    assert ("change" in case.cannot) == (case.edit is None)
    played = kind.group not in ("", "apps", "batch")
    assert (case.pod is not None) == (played and ("", "Pod") in (kind.ownership.created_kinds or ()))


@those("run")
async def test_job_of_kind_is_admitted_runs_and_succeeds(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    job, created = await submit(stage, case)
    assert differences(created, case.suspended) == []
    started = await job.until_started()
    workload = await job.workload()
    assert await job.pod_sets() == {one.name: one.count for one in case.podSets}
    assert job.not_injected(started, workload) == []
    name = workload["metadata"]["name"]
    kind = case.integration.kind
    await stage.until_told(kind, job.name, "CreatedWorkload", f"Created Workload: {stage.namespace}/{name}")
    await stage.until_told(kind, job.name, "Started", f"Admitted by clusterQueue {stage.own('cq')}")

    await job.play("running")
    if not case.has_real_pods:
        # The time at which real pods become ready is chance, and so is a look in between.
        await job.until_condition("PodsReady", "False", "WaitForStart")
    await job.play("ready")
    await job.until_condition("PodsReady", "True", "Started")
    if case.reclaimable is not None:
        await job.play("reclaimable")

        async def reclaimable() -> Any:
            listed = value_at(await job.workload(), ("status", "reclaimablePods"), [])
            return {one["name"]: one["count"] for one in listed}

        await stage.until(reclaimable, dict(case.reclaimable))
    if "succeed" not in case.cannot:
        await job.play("succeeded")
        await _until_finished(job, "Succeeded", case.messages["succeeded"])


@those("fail")
async def test_workload_of_a_failed_job_of_kind_finishes_as_failed(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    job, _ = await submit(stage, case)
    await job.until_started()
    await job.play("running")
    await job.play("failed")
    await _until_finished(job, "Failed", case.messages["failed"])


async def _until_finished(job: PlayedJob, reason: str, message: str) -> None:
    await job.until_condition("Finished", "True", reason, message)

    async def finalizers() -> list[str]:
        return (await job.workload())["metadata"].get("finalizers", [])

    await job.stage.until(finalizers, [])
    name = (await job.workload())["metadata"]["name"]
    note = f"Workload '{job.stage.namespace}/{name}' is declared finished"
    await job.stage.until_told(job.case.integration.kind, job.name, "FinishedWorkload", note)


@those("stop")
async def test_job_of_kind_is_stopped_restored_and_restarted(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    job, _ = await submit(stage, case, queue=HELD)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    before = await job.get()
    label = f"metadata.labels[{stage.names.queue_name}]"
    queue = case.queue(stage.names.group)
    await job.change({label: queue})
    await job.until_started()
    await job.play("running")

    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    if "inactive" in case.play:
        assert is_reserved(await job.workload()), "quota is kept while there are pods"
        await job.play("inactive")
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    await job.until_condition("Evicted", "True", "Deactivated", "The workload is deactivated")
    kind = case.integration.kind
    await stage.until_told(kind, job.name, "Stopped", "The workload is deactivated")
    await _until_restored(job, before, {label: queue, **case.restored})

    await job.change_workload({"spec": {"active": True}})
    started = await job.until_started()
    assert job.not_injected(started, await job.workload()) == []


async def _until_restored(job: PlayedJob, before: Any, but: Mapping[str, Any]) -> None:
    """Wait until the job is as before, but for these fields and what its controller writes."""

    async def difference() -> bool:
        now = await job.get()
        found = changed(before, now)
        found.pop("status", None)
        expected = changed(before, with_changes(before, but))
        assert found == expected, found
        return True

    await job.stage.until(difference, what=f"{job.case} {job.name} to be restored")


@those("change")
async def test_changes_of_a_queued_job_of_kind_reach_its_workload(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    classes = stage.kinds.workload_priority_classes
    for name, value in (("low", 1), ("high", 2)):
        await stage.create(classes, stage.own(name), {"value": value})
    priority_label = f"metadata.labels[{stage.names.priority_class}]"

    job, _ = await submit(stage, case, changes={priority_label: stage.own("low")}, queue=HELD)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    first = await job.workload()
    assert first["spec"]["priority"] == 1
    assert case.edit is not None
    await job.change(case.edit.change)
    await stage.until(job.pod_sets, dict(case.edit.podSets))
    await job.change({priority_label: stage.own("high")})
    await stage.until(lambda: priority_of(job), (2, stage.own("high")))
    assert (await job.workload())["metadata"]["uid"] == first["metadata"]["uid"]

    queue = case.queue(stage.names.group)
    await job.change({f"metadata.labels[{stage.names.queue_name}]": queue})
    await job.until_started()
    workload = await job.workload()
    assert workload["spec"]["queueName"] == queue
    assert workload["metadata"]["uid"] == first["metadata"]["uid"]
    await job.change({priority_label: stage.own("low")})
    await stage.until(lambda: priority_of(job), (1, stage.own("low")))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.framework)
        for kind in kinds_with_cases()
        if "change" in load(kind, DEFAULT_GROUP).cannot
    ],
)
async def test_object_with_queued_pods_changes_its_queue_and_releases_quota_when_deleted(
    stage: Stage, case: KindCase
) -> None:
    """Of kinds of which nothing else can be changed: they have one Workload or more, or their pods have.

    One waits and one has quota when they are deleted. Something else keeps them for a while, and others are
    admitted meanwhile.
    """
    await open_queues(stage, case)
    await held_queue(stage, case)
    for name, value in (("low", 1), ("high", 2)):
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})
    label = f"metadata.labels[{stage.names.priority_class}]"
    # What keeps a pod is tried with other bad inputs.
    kept = {} if case.integration is POD else {"metadata.finalizers": ["example.com/hold"]}
    low = {label: stage.own("low"), **kept}
    job, _ = await submit(stage, case, changes=low, queue=HELD)
    waits, _ = await submit(stage, case, "waits", changes=low, queue=HELD)

    async def priorities() -> set[tuple[int, str]]:
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return {(one["spec"]["priority"], one["spec"]["priorityClassRef"]["name"]) for one in listed}

    await stage.until(priorities, {(1, stage.own("low"))})
    await job.change({label: stage.own("high")})

    async def is_changed() -> bool:
        return (2, stage.own("high")) in await priorities()

    await stage.until(is_changed)
    queue = case.queue(stage.names.group)
    await job.change({f"metadata.labels[{stage.names.queue_name}]": queue})

    async def reserved() -> list[Any]:
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return [one for one in listed if is_reserved(one)]

    async def queues() -> set[str]:
        return {one["spec"]["queueName"] for one in await reserved()}

    await stage.until(queues, {queue})
    for one in (job, waits):
        await stage.client.delete(case.resource, one.name, stage.namespace, propagation="Background")
    other, _ = await submit(stage, case, "other")

    async def is_admitted() -> bool:
        return any("-other" in one["metadata"]["name"] for one in await reserved())

    await stage.until(is_admitted, what="another one to get quota")
    await stage.client.delete(case.resource, other.name, stage.namespace, propagation="Background")
    if kept:
        await asyncio.gather(*(one.change({"metadata.finalizers": None}) for one in (job, waits)))

    async def held() -> list[str]:
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return [one["metadata"]["name"] for one in listed if has_finalizers(one)]

    await stage.until(held, [], what="Workloads to be released")
    await stage.until(lambda: _reserving(stage, "cq"), 0)


@those("delete")
async def test_job_of_kind_deleted_in_any_state_releases_quota_and_finalizers(
    stage: Stage, case: KindCase
) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    await checked_queue(stage, case)
    pending, _ = await submit(stage, case, "pending", queue=HELD)
    reserved, _ = await submit(stage, case, "reserved", queue=CHECKED)
    running, _ = await submit(stage, case, "running")
    evicted, _ = await submit(stage, case, "evicted")
    for job in (running, evicted):
        await job.until_started()
        await job.play("running")
    await pending.until_condition("QuotaReserved", "False", "Suspended")
    await reserved.until_condition("Admitted", "False", "UnsatisfiedAdmissionChecks")
    await running.until_condition("Admitted", "True")
    await evicted.change_workload({"spec": {"active": False}})
    await evicted.until_condition("Evicted", "True", "Deactivated")

    every = (pending, reserved, running, evicted)
    for job in every:
        await stage.client.delete(case.resource, job.name, stage.namespace, propagation="Background")

    async def left() -> list[str]:
        return [job.name for job in every if not await job.is_gone_for_good()]

    await stage.until(left, [], what="all jobs to be gone, and their Workloads released")
    for queue in ("cq", CHECKED):
        await stage.until(lambda queue=queue: _reserving(stage, queue), 0)


async def _reserving(stage: Stage, queue: str) -> Any:
    found = await stage.get(stage.kinds.cluster_queues, stage.own(queue))
    return value_at(found, ("status", "reservingWorkloads"), 0)
