"""Abilities of some job kinds: partial admission, children, holds and priority classes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.ownership import get_controller
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from tests.controlplane.kind_cases import KINDS, KindCase, differences, load, path_of
from tests.controlplane.kind_stories import for_kinds_with, priority_of
from tests.controlplane.played_jobs import HELD, held_queue, open_queues, submit
from tests.controlplane.stage import Stage, controlled_by
from tests.controlplane.tenants import tenant

LWS = resource_of(LEADER_WORKER_SET)


@for_kinds_with("partial")
async def test_job_is_admitted_with_fewer_pods_and_restored_when_it_stops(
    stage: Stage, case: KindCase
) -> None:
    partial = case.partial
    assert partial is not None
    await open_queues(stage, case, quota=partial.quota)
    job, created = await submit(stage, case, changes=partial.given)
    started = await job.until_started()
    assert differences(started, partial.started) == []
    admission = (await job.workload())["status"]["admission"]
    assert {one["name"]: one["count"] for one in admission["podSetAssignments"]} == dict(partial.counts)

    await job.change_workload({"spec": {"active": False}})
    await job.until_suspended()
    await job.play("inactive")
    await job.until_condition("QuotaReserved", "False", "Deactivated")
    as_before = {text: value_at(created, path_of(text)) for text in partial.started}
    await job.until(as_before)
    assert await job.pod_sets() == {one.name: one.count for one in case.podSets}


@for_kinds_with("child")
async def test_child_of_a_queued_job_is_not_queued_and_a_forged_child_is(
    stage: Stage, case: KindCase
) -> None:
    """The child runs only while its parent does. A child that the parent could not create is queued.

    If the controller of the parent would not stop the child, the child is refused.
    """
    child_case = case.child
    assert child_case is not None
    await open_queues(stage, case)
    await held_queue(stage, case)
    parent, made = await submit(stage, case, queue=HELD)
    await parent.until_condition("QuotaReserved", "False", "Suspended")
    of_child = load(child_case.integration, stage.names.group)
    changes = {"metadata.ownerReferences": controlled_by(made)["ownerReferences"], **child_case.given}
    not_queued: list[str] = []
    for forgery, wrong in child_case.forgeries.items():
        name = wrong.get("metadata.name", child_case.name)
        given = {**changes, **wrong}
        _, forged = await submit(stage, of_child, name, changes=given, queue=HELD, dry_run=True)
        not_queued += [forgery] if differences(forged, of_child.suspended) else []
    assert not_queued == []
    changes["metadata.labels"] = None
    if case.integration.ownership.keeps_children:
        refusal = f"must be true while {case.integration.kind} {parent.name} is suspended"
        with pytest.raises(ApiError, match=refusal):
            await submit(stage, of_child, child_case.name, changes=changes)
        return
    child, created = await submit(stage, of_child, child_case.name, changes=changes)
    assert get_controller(created) is not None
    assert differences(created, of_child.suspended) != [], "the webhook does not suspend it"
    await child.until_suspended()
    note = f"{stage.names.product} managed child job suspended"
    await stage.until_event(child_case.integration.kind, child.name, "Suspended", note)
    kinds = {get_controller(one)["kind"] for one in await stage.workloads(child.name)}  # pyright: ignore[reportOptionalSubscript]
    assert child_case.integration.kind not in kinds


@pytest.mark.parametrize(
    "change", [{"spec.parallelism": 5, "spec.completions": 5}, {"metadata.name": "mine"}]
)
async def test_t7_job_that_falsely_claims_a_jobset_as_owner_is_queued_itself(
    stage: Stage, definitions: Callable[[Iterable[str]], None], change: Mapping[str, Any]
) -> None:
    case = load(JOBSET, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    parent, made = await submit(stage, case)
    await parent.until_started()
    await held_queue(stage, case)
    assert case.child is not None
    of_child = load(case.child.integration, stage.names.group)
    owned = {"metadata.ownerReferences": controlled_by(made)["ownerReferences"]}
    name = change.get("metadata.name", case.child.name)
    spec = {path: value for path, value in change.items() if path != "metadata.name"}
    child, created = await submit(
        stage, of_child, name, queue=HELD, changes={**owned, **case.child.given, **spec}
    )
    assert value_at(created, ("spec", "suspend")) is True
    await child.until_condition("QuotaReserved", "False", "Suspended")
    await stage.change(JOBS, name, {"spec": {"suspend": False}})
    await stage.until_event("Job", name, "Stopped", "Not admitted by cluster queue")


async def test_t7_child_of_a_jobset_is_not_scaled_beyond_the_jobset(
    stage: Stage, admitq_running: Installation, definitions: Callable[[Iterable[str]], None]
) -> None:
    """The webhook refuses the change of a tenant. If an administrator makes it, the child is suspended."""
    case = load(JOBSET, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    parent, made = await submit(stage, case)
    await parent.until_started()
    assert case.child is not None
    of_child = load(case.child.integration, stage.names.group)
    owned = {"metadata.labels": None, "metadata.ownerReferences": controlled_by(made)["ownerReferences"]}
    given = {**owned, **case.child.given, "spec.completions": 5}
    child, _ = await submit(stage, of_child, case.child.name, changes=given)
    (step,) = of_child.play["running"]
    await child.until(step.until)
    raised = {"spec": {"parallelism": 5}}
    async with tenant(stage, admitq_running.cluster) as tenant_stage:
        with pytest.raises(ApiError, match="not charged for its number of pods"):
            await tenant_stage.change(JOBS, child.name, raised)
        await tenant_stage.change(JOBS, child.name, {"spec": {"parallelism": 2}})
        await tenant_stage.change(JOBS, child.name, {"spec": {"parallelism": 3}})
    await stage.change(JOBS, child.name, raised)
    await child.until_suspended()
    note = f"{stage.names.product} managed child job suspended: its number of pods exceeds that of JobSet"
    await stage.until_event("Job", child.name, "Suspended", f"{note} {parent.name}")


async def test_pods_of_serving_objects_without_marks_of_admitq_are_gated(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    """Without this, a pod that is stored without marks, or a forged pod, would run without quota."""
    definitions(["leaderworkersets.leaderworkerset.x-k8s.io"])
    await stage.closed_queue()
    queued = {"metadata": {"labels": {stage.names.queue_name: "closed"}}}
    template = {
        "metadata": {"labels": {"app": "s"}},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    await stage.create(DEPLOYMENTS, "d", {**queued, "spec": spec})
    owner = await stage.create(STATEFUL_SETS, "s", {**queued, "spec": {**spec, "serviceName": "s"}})
    group = {"size": 1, "workerTemplate": template}
    lws_spec = {"replicas": 1, "leaderWorkerTemplate": group}
    leaders = await stage.create(LWS, "l", {**queued, "spec": lws_spec})

    async def sets() -> list[Any]:
        listed, _ = await stage.client.list(REPLICA_SETS, stage.namespace)
        return listed

    async def is_created() -> bool:
        return bool(await sets())

    await stage.until(is_created)
    (replica_set,) = await sets()
    for by, name in ((replica_set, f"{replica_set['metadata']['name']}-x7k2p"), (owner, "s-0")):
        labels = {**queued["metadata"]["labels"], **replica_set["metadata"]["labels"]}
        pod = {"metadata": {"labels": labels, **controlled_by(by)}, "spec": template["spec"]}
        held = await stage.create(PODS, name, pod)
        assert value_at(held, ("spec", "schedulingGates")), name
    key = stage.names.pod_suspending_parent
    for name, is_queued in {"l": False, "mine": True}.items():
        metadata = {**queued["metadata"], **controlled_by(leaders), "name": name}
        metadata["namespace"] = stage.namespace
        one = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata}
        one["spec"] = {**spec, "serviceName": name}
        created = await stage.client.create(STATEFUL_SETS, one, dry_run=True)
        marks = value_at(created, ("spec", "template", "metadata", "annotations"), {})
        assert (marks.get(key) == "statefulset") is is_queued, name


@for_kinds_with("pod")
async def test_pod_of_a_queued_job_is_not_gated_and_an_impostor_is(stage: Stage, case: KindCase) -> None:
    """A pod of the job is not gated, even with the labels of the job; one that only claims to be is gated."""
    _, job = await submit(stage, case, queue=HELD)
    metadata = {"labels": {stage.names.queue_name: HELD, **case.podLabels}, **controlled_by(job)}
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    assert case.pod is not None
    names = [case.pod, "an-impostor"]
    made = await asyncio.gather(*(stage.create(PODS, name, pod) for name in names))
    held = [name for name, one in zip(names, made, strict=True) if value_at(one, ("spec", "schedulingGates"))]
    assert held == ([] if case.integration.may_have_created(job, made[1]) else ["an-impostor"])


async def test_custom_kind_reads_hold_and_priority_class_from_configured_fields(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    (training,) = (one for one in KINDS if one.framework == "example.com/training")
    case = load(training, stage.names.group)
    definitions(case.definitions)
    await open_queues(stage, case)
    name = stage.own("own")
    await stage.create(PRIORITY_CLASSES, name, {"value": 7, "preemptionPolicy": "Never"})
    try:
        fields = {"spec.draft": True, "spec.priorityClassName": name}
        job, _ = await submit(stage, case, changes=fields)
        await job.until_condition("QuotaReserved", "False", "OnHold", "Job is on hold")
        await job.until_suspended()
        assert await priority_of(job) == (7, name)
        await job.change({"spec.draft": False})
        started = await job.until_started()
        assert value_at(started, ("spec", "managedBy")) is None
    finally:
        await stage.client.delete(PRIORITY_CLASSES, name)
