"""Stories that are the same for all job kinds, on the real control plane.

The case file of a kind has what differs; ``kinds/README.md`` describes it.
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
    EVERY_KIND,
    FOLDER,
    KINDS,
    KindCase,
    default_cases,
    differences,
    file_of,
    kinds_with_cases,
    load,
    with_changes,
)
from tests.controlplane.kind_stories import for_kinds_with, priority_of
from tests.controlplane.played_jobs import (
    CHECKED,
    HELD,
    PlayedJob,
    checked_queue,
    has_finalizers,
    held_queue,
    open_queues,
    submit,
)
from tests.controlplane.stage import Stage, changes_between

STORIES = ("run", "succeed", "fail", "stop", "change", "delete")
"""Stories that a case file may exclude, with a reason."""


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


@for_kinds_with("run")
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
    await stage.until_event(kind, job.name, "CreatedWorkload", f"Created Workload: {stage.namespace}/{name}")
    await stage.until_event(kind, job.name, "Started", f"Admitted by clusterQueue {stage.own('cq')}")

    await job.play("running")
    if not case.has_real_pods:
        # Real pods become ready at any time: the state before may not be observable.
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


@for_kinds_with("fail")
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
    await job.stage.until_event(job.case.integration.kind, job.name, "FinishedWorkload", note)


@for_kinds_with("stop")
async def test_job_of_kind_is_stopped_restored_and_restarted(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    job, _ = await submit(stage, case, queue=HELD)
    await job.until_condition("QuotaReserved", "False", "Suspended")
    await job.play("waiting")
    before = await job.get()
    label = f"metadata.labels[{stage.names.queue_name}]"
    queue = case.queue(stage.names.group)
    await job.change({label: queue})
    await job.until_started()
    await job.play("running")
    if "inactive" in case.play:
        await job.play("ready")

    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    if "inactive" in case.play:
        assert is_reserved(await job.workload()), "quota is kept while there are pods"
        await job.play("inactive")
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    await job.until_condition("Evicted", "True", "Deactivated", "The workload is deactivated")
    kind = case.integration.kind
    await stage.until_event(kind, job.name, "Stopped", "The workload is deactivated")
    await _until_restored(job, before, {label: queue, **case.restored})

    await job.change_workload({"spec": {"active": True}})
    started = await job.until_started()
    assert job.not_injected(started, await job.workload()) == []


async def _until_restored(job: PlayedJob, before: Any, expected_changes: Mapping[str, Any]) -> None:
    """Wait until the job differs from before only in these fields and in its status."""

    async def is_restored() -> bool:
        now = await job.get()
        found = changes_between(before, now)
        found.pop("status", None)
        expected = changes_between(before, with_changes(before, expected_changes))
        assert found == expected, found
        return True

    await job.stage.until(is_restored, what=f"{job.case} {job.name} to be restored")


@for_kinds_with("change")
async def test_changes_of_a_queued_job_of_kind_reach_its_workload(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    await create_priority_classes(stage)
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
        if "change" in default_cases()[kind.framework].cannot
    ],
)
async def test_object_with_queued_pods_changes_its_queue_and_releases_quota_when_deleted(
    stage: Stage, case: KindCase
) -> None:
    """Nothing else of these kinds can change: their pods are queued, or they have several Workloads.

    One object waits and one has quota when both are deleted. A finalizer of another program keeps them.
    Others are admitted meanwhile.
    """
    await open_queues(stage, case)
    await held_queue(stage, case)
    await create_priority_classes(stage)
    label = f"metadata.labels[{stage.names.priority_class}]"
    # Finalizers of pods are tested with other bad inputs.
    kept = {} if case.integration is POD else {"metadata.finalizers": ["example.com/hold"]}
    low = {label: stage.own("low"), **kept}
    job, _ = await submit(stage, case, changes=low, queue=HELD)
    waits, _ = await submit(stage, case, "waits", changes=low, queue=HELD)
    await until_priorities_include(stage, "low", only=True)
    await job.change({label: stage.own("high")})
    await until_priorities_include(stage, "high")

    queue = case.queue(stage.names.group)
    await job.change({f"metadata.labels[{stage.names.queue_name}]": queue})
    await until_reserved_in(stage, queue)
    for one in (job, waits):
        await stage.client.delete(case.resource, one.name, stage.namespace, propagation="Background")
    await admit_another(stage, case)
    if kept:
        await asyncio.gather(*(one.change({"metadata.finalizers": None}) for one in (job, waits)))
    await until_workloads_are_released(stage)
    await stage.until(lambda: _reserving(stage, "cq"), 0)


PRIORITIES = {"low": 1, "high": 2}


async def create_priority_classes(stage: Stage) -> None:
    for name, value in PRIORITIES.items():
        await stage.create(stage.kinds.workload_priority_classes, stage.own(name), {"value": value})


async def until_priorities_include(stage: Stage, name: str, *, only: bool = False) -> None:
    """Wait until a Workload has the priority of a class; with ``only`` until all Workloads have it."""
    expected = (PRIORITIES[name], stage.own(name))

    async def is_included() -> bool:
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        found = {(one["spec"]["priority"], one["spec"]["priorityClassRef"]["name"]) for one in listed}
        assert found == {expected} if only else expected in found, found
        return True

    await stage.until(is_included, what=f"a Workload of priority class {name}")


async def reserved_workloads(stage: Stage) -> list[Any]:
    listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
    return [one for one in listed if is_reserved(one)]


async def until_reserved_in(stage: Stage, queue: str) -> None:
    """Wait until Workloads of this LocalQueue hold quota, and no others do."""

    async def queues() -> set[str]:
        return {one["spec"]["queueName"] for one in await reserved_workloads(stage)}

    await stage.until(queues, {queue})


async def admit_another(stage: Stage, case: KindCase) -> None:
    """Create another object, wait until it has quota, and delete it."""
    other, _ = await submit(stage, case, "other")

    async def has_quota() -> bool:
        return any("-other" in one["metadata"]["name"] for one in await reserved_workloads(stage))

    await stage.until(has_quota, what="another object to get quota")
    await stage.client.delete(case.resource, other.name, stage.namespace, propagation="Background")


async def until_workloads_are_released(stage: Stage) -> None:
    """Wait until no Workload has a finalizer."""

    async def unreleased() -> list[str]:
        listed, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return [one["metadata"]["name"] for one in listed if has_finalizers(one)]

    await stage.until(unreleased, [], what="Workloads to be released")


@for_kinds_with("delete")
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

    jobs = (pending, reserved, running, evicted)
    for job in jobs:
        await stage.client.delete(case.resource, job.name, stage.namespace, propagation="Background")

    async def not_gone() -> list[str]:
        return [job.name for job in jobs if not await job.is_gone_for_good()]

    await stage.until(not_gone, [], what="all jobs to be gone, and their Workloads released")
    for queue in ("cq", CHECKED):
        await stage.until(lambda queue=queue: _reserving(stage, queue), 0)


async def _reserving(stage: Stage, queue: str) -> Any:
    """The number of Workloads that a ClusterQueue reports as reserving."""
    found = await stage.get(stage.kinds.cluster_queues, stage.own(queue))
    return value_at(found, ("status", "reservingWorkloads"), 0)
