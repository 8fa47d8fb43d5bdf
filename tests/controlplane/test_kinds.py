"""What every kind of jobs can do, on the real control plane: one story each, told for all kinds.

What a story needs to know of a kind stands in a YAML of that kind; ``kinds/README.md`` tells how.
"""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from admitq.controllers.indexes import resource_of
from admitq.integrations.base import Integration
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.ownership import controller_of
from admitq.integrations.paths import value_at
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from admitq.transitions import is_reserved
from admitq_api.labels import DEFAULT_GROUP
from localcluster.installation import Installation
from tests.controlplane.kind_cases import (
    CHECKED,
    EVERY_KIND,
    FOLDER,
    HELD,
    KINDS,
    KindCase,
    Mutation,
    PlayedJob,
    Rule,
    checked_queue,
    differences,
    file_of,
    has_finalizers,
    held_queue,
    kinds_with_cases,
    load,
    open_queues,
    path_of,
    queue_elsewhere,
    submit,
    with_changes,
)
from tests.controlplane.stage import Stage, changed, controlled_by
from tests.controlplane.tenants import tenant

LWS = resource_of(LEADER_WORKER_SET)

STORIES = ("run", "succeed", "fail", "stop", "change", "delete")
"""Stories of which a kind tells if it cannot live through them."""


def those(story: str) -> Any:
    """The kinds of which a story is told."""
    told: list[Any] = []
    for kind in kinds_with_cases():
        case = load(kind, DEFAULT_GROUP)
        optional = {"partial": case.partial, "child": case.child, "pod": case.pod}
        if story not in case.cannot and optional.get(story, True):
            told.append(pytest.param(kind, id=kind.framework))
    return pytest.mark.parametrize("kind", told)


@pytest.fixture
def case(kind: Integration, api_group: str, definitions: Callable[[Iterable[str]], None]) -> KindCase:
    """The cases of the kind under test, which is installed."""
    found = load(kind, api_group)
    definitions(found.definitions)
    return found


# --- the cases themselves ---------------------------------------------------------------------------


def test_every_kind_has_its_cases() -> None:
    files = {file_of(one) for one in KINDS}
    assert files | {EVERY_KIND} == set(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("kind", [pytest.param(one, id=one.framework) for one in kinds_with_cases()])
def test_cases_leave_out_only_stories_that_there_are_and_say_why(kind: Integration) -> None:
    case = load(kind, DEFAULT_GROUP)
    assert set(case.cannot) <= set(STORIES)
    assert all(case.cannot.values())
    assert (case.reclaimable is None) == ("reclaimable" not in case.play)
    assert ("change" in case.cannot) == (case.edit is None)
    played = kind.group not in ("", "apps", "batch")
    assert (case.pod is not None) == (played and ("", "Pod") in (kind.ownership.creates or ()))


# --- a life -----------------------------------------------------------------------------------------


@those("run")
async def test_a_job_waits_runs_and_ends_well(stage: Stage, case: KindCase) -> None:
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
        # Real pods are ready when they are: whether somebody looks in between is chance.
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
async def test_a_job_ends_badly(stage: Stage, case: KindCase) -> None:
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
async def test_a_job_is_stopped_restored_and_started_again(stage: Stage, case: KindCase) -> None:
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


# --- changes ----------------------------------------------------------------------------------------


@those("change")
async def test_what_is_changed_while_queued_reaches_the_workload(stage: Stage, case: KindCase) -> None:
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
    await stage.until(lambda: _priority(job), (2, stage.own("high")))
    assert (await job.workload())["metadata"]["uid"] == first["metadata"]["uid"]

    queue = case.queue(stage.names.group)
    await job.change({f"metadata.labels[{stage.names.queue_name}]": queue})
    await job.until_started()
    workload = await job.workload()
    assert workload["spec"]["queueName"] == queue
    assert workload["metadata"]["uid"] == first["metadata"]["uid"]
    await job.change({priority_label: stage.own("low")})
    await stage.until(lambda: _priority(job), (1, stage.own("low")))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.framework)
        for kind in kinds_with_cases()
        if "change" in load(kind, DEFAULT_GROUP).cannot
    ],
)
async def test_what_has_pods_queued_may_change_its_queue_and_leaves_nothing_held(
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


async def _priority(job: PlayedJob) -> tuple[int, str]:
    spec = (await job.workload())["spec"]
    return spec["priority"], spec["priorityClassRef"]["name"]


# --- the end before the end -------------------------------------------------------------------------


@those("delete")
async def test_a_job_deleted_in_any_state_leaves_nothing_held(stage: Stage, case: KindCase) -> None:
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


# --- abilities that not every kind has ----------------------------------------------------------------


@those("partial")
async def test_a_job_runs_with_fewer_pods_where_it_can(stage: Stage, case: KindCase) -> None:
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


@those("child")
async def test_what_a_queued_job_makes_is_not_queued_itself(stage: Stage, case: KindCase) -> None:
    """It runs when its parent does, and not before. What differs from it is queued for itself."""
    child_case = case.child
    assert child_case is not None
    await open_queues(stage, case)
    await held_queue(stage, case)
    parent, made = await submit(stage, case, queue=HELD)
    await parent.until_condition("QuotaReserved", "False", "Suspended")
    of_child = load(child_case.integration, stage.names.group)
    changes = {"metadata.ownerReferences": controlled_by(made)["ownerReferences"], **child_case.given}
    followed: list[str] = []
    for forgery, wrong in child_case.forgeries.items():
        name = wrong.get("metadata.name", child_case.name)
        given = {**changes, **wrong}
        _, forged = await submit(stage, of_child, name, changes=given, queue=HELD, dry_run=True)
        followed += [forgery] if differences(forged, of_child.suspended) else []
    assert followed == []
    changes["metadata.labels"] = None
    child, created = await submit(stage, of_child, child_case.name, changes=changes)
    assert controller_of(created) is not None
    assert differences(created, of_child.suspended) != [], "the webhook leaves it alone"
    await child.until_suspended()
    note = f"{stage.names.product} managed child job suspended"
    await stage.until_told(child_case.integration.kind, child.name, "Suspended", note)
    kinds = {controller_of(one)["kind"] for one in await stage.workloads(child.name)}  # pyright: ignore[reportOptionalSubscript]
    assert child_case.integration.kind not in kinds


@pytest.mark.parametrize(
    "change", [{"spec.parallelism": 5, "spec.completions": 5}, {"metadata.name": "mine"}]
)
async def test_t7_job_that_claims_to_be_of_a_jobset_and_differs_is_queued_for_itself(
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
    await stage.until_told("Job", name, "Stopped", "Not admitted by cluster queue")


async def test_t7_child_of_a_jobset_is_not_raised_beyond_it(
    stage: Stage, admitq_running: Installation, definitions: Callable[[Iterable[str]], None]
) -> None:
    """The webhook refuses it to a tenant. The controller stops what an administrator raises."""
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
    await child.until(of_child.play["running"].until)
    raised = {"spec": {"parallelism": 5}}
    async with tenant(stage, admitq_running.cluster) as others:
        with pytest.raises(ApiError, match="not charged for its number of pods"):
            await others.change(JOBS, child.name, raised)
        await others.change(JOBS, child.name, {"spec": {"parallelism": 2}})
        await others.change(JOBS, child.name, {"spec": {"parallelism": 3}})
    await stage.change(JOBS, child.name, raised)
    await child.until_suspended()
    note = f"{stage.names.product} managed child job suspended: its number of pods exceeds that of JobSet"
    await stage.until_told("Job", child.name, "Suspended", f"{note} {parent.name}")


async def test_pods_of_what_serves_follow_it_only_with_marks_of_admitq(
    stage: Stage, definitions: Callable[[Iterable[str]], None]
) -> None:
    """A pod that is stored without them, or forged, would run without quota."""
    definitions(["leaderworkersets.leaderworkerset.x-k8s.io"])
    await stage.queues_closed()
    queued = {"metadata": {"labels": {stage.names.queue_name: "closed"}}}
    template = {
        "metadata": {"labels": {"app": "s"}},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    await stage.create(DEPLOYMENTS, "d", {**queued, "spec": spec})
    owner = await stage.create(STATEFUL_SETS, "s", {**queued, "spec": {**spec, "serviceName": "s"}})
    group = {"size": 1, "workerTemplate": template}
    large = {"replicas": 1, "leaderWorkerTemplate": group}
    leaders = await stage.create(LWS, "l", {**queued, "spec": large})

    async def sets() -> list[Any]:
        listed, _ = await stage.client.list(REPLICA_SETS, stage.namespace)
        return listed

    async def is_created() -> bool:
        return bool(await sets())

    await stage.until(is_created)
    (between,) = await sets()
    for by, name in ((between, f"{between['metadata']['name']}-x7k2p"), (owner, "s-0")):
        labels = {**queued["metadata"]["labels"], **between["metadata"]["labels"]}
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


@those("pod")
async def test_what_a_queued_job_makes_is_no_pod_of_its_own(stage: Stage, case: KindCase) -> None:
    """Not even with the labels of the job; but a pod that only says it were one of its is held."""
    _, job = await submit(stage, case, queue=HELD)
    metadata = {"labels": {stage.names.queue_name: HELD, **case.podLabels}, **controlled_by(job)}
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    assert case.pod is not None
    names = [case.pod, "an-impostor"]
    made = await asyncio.gather(*(stage.create(PODS, name, pod) for name in names))
    held = [name for name, one in zip(names, made, strict=True) if value_at(one, ("spec", "schedulingGates"))]
    assert held == ([] if case.integration.makes(job, made[1]) else ["an-impostor"])


async def test_a_kind_by_configuration_has_holds_and_classes_where_it_says(
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
        assert await _priority(job) == (7, name)
        await job.change({"spec.draft": False})
        started = await job.until_started()
        assert value_at(started, ("spec", "managedBy")) is None
    finally:
        await stage.client.delete(PRIORITY_CLASSES, name)


# --- what is refused, what is added ---------------------------------------------------------------


@those("validation")
async def test_requests_are_accepted_refused_and_completed_by_the_rules(stage: Stage, case: KindCase) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    await queue_elsewhere(stage)
    assert case.queue(stage.names.group) == "default", "who names no queue gets it"
    bases: dict[str, PlayedJob] = {}
    wrong: list[str] = []
    for rule in case.validation:
        if rule.when == "creation":
            wrong += [f"{rule.rule}: {one}" for one in await _judged_new(stage, case, rule)]
        else:
            key = json.dumps([rule.when, rule.given], sort_keys=True)
            if key not in bases:
                bases[key] = await _existing(stage, case, rule, f"job-{len(bases)}")
            wrong += [f"{rule.rule}: {one}" for one in await _judged_change(bases[key], rule)]
    assert wrong == []
    queue_label = f"metadata.labels[{stage.names.queue_name}]"
    nobodys = dataclasses.replace(stage, namespace="default")
    _, left_alone = await submit(nobodys, case, changes={queue_label: None}, dry_run=True)
    assert not case.suspended or differences(left_alone, case.suspended), "nobody queues it there"
    for mutation in case.mutation:
        await stage.until(partial(_becomes, stage, case, mutation), [], what=mutation.rule)


async def _becomes(stage: Stage, case: KindCase, mutation: Mutation) -> list[str]:
    """Where a new job is not what it is to become; the webhook may yet have to hear of a queue."""
    _, created = await submit(stage, case, changes=mutation.given, dry_run=True)
    return differences(created, {**case.suspended, **mutation.becomes})


async def _existing(stage: Stage, case: KindCase, rule: Rule, name: str) -> PlayedJob:
    """A job that is in the state in which a rule applies."""
    queue = {"queued": HELD, "running": case.queue(stage.names.group)}[rule.when]
    job, _ = await submit(stage, case, name, changes=rule.given, queue=queue)
    if rule.when == "running":
        await job.until_started()
        await job.play("started")
    return job


async def _judged_new(stage: Stage, case: KindCase, rule: Rule) -> list[str]:
    async def request(changes: Mapping[str, Any]) -> Any:
        _, created = await submit(stage, case, changes={**rule.given, **changes}, dry_run=True)
        return created

    return [*await _not_refused(request, rule), *await _not_accepted(request, rule)]


async def _judged_change(job: PlayedJob, rule: Rule) -> list[str]:
    async def request(changes: Mapping[str, Any]) -> Any:
        return await job.change(changes, dry_run=True)

    return [*await _not_refused(request, rule), *await _not_accepted(request, rule)]


async def _not_refused(request: Any, rule: Rule) -> list[str]:
    try:
        await request(rule.refused)
    except ApiError as error:
        if not (error.is_invalid or error.is_forbidden):
            raise
        fits = f"{rule.field}: " in error.message and rule.message in error.message
        return [] if fits else [f"refused with {error.message!r}"]
    return [f"{dict(rule.refused)} is not refused"]


async def _not_accepted(request: Any, rule: Rule) -> list[str]:
    try:
        answer = await request(rule.accepted)
    except ApiError as error:
        return [f"{dict(rule.accepted)} is refused with {error.message!r}"]
    return differences(answer, rule.accepted)
