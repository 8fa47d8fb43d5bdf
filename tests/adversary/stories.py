"""Attempts of a tenant with more than one call, while the law is sampled.

A story gets an arena and the name of its own queue. Its docstring says what must happen. It first checks
which pods run after the attempt, and then the answer to the attempt: if the product accepts the attempt, the
check of the running pods fails.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.ownership import get_controller
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import DEPLOYMENTS, JOBS, PODS
from localcluster.waiting import eventually
from tests.adversary.arena import Arena, assert_refused, attempt
from tests.adversary.calls import MERGE, Target
from tests.adversary.steps import (
    delete,
    expect_at_most,
    expect_running,
    filled,
    longer_than_a_reaction,
    suspended,
    until,
    until_next_runs_alone,
    until_outlived,
)
from tests.controlplane.stage import controlled_by

Story = Callable[[Arena, str], Coroutine[Any, Any, None]]


# --- held ------------------------------------------------------------------------------


async def job_is_unsuspended_again_and_again(arena: Arena, queue: str) -> None:
    """Admitq suspends the Job each time."""
    await arena.queue(queue)
    job = await arena.job(queue, pods=2)
    await arena.until_waits(queue)
    for _ in range(5):
        await arena.tenant.change(JOBS, job.name, {"spec": {"suspend": False}})
        await arena.admin.until(lambda: suspended(arena, job))
        # A tenant that repeats at once would start pods for one reaction each time.
        await arena.admin.until(lambda: arena.running(queue), [])


async def running_pod_is_detached_from_its_job(arena: Arena, queue: str) -> None:
    """The pod keeps label and owner reference of its Job, and the Job creates no second pod."""
    await arena.queue(queue)
    await arena.job(queue, completions=9)
    [name] = await arena.until_runs(f"{queue}-j-")
    metadata = (await arena.admin.get(PODS, name))["metadata"]
    uid = "batch.kubernetes.io/controller-uid"
    for patch, field in (
        ({"ownerReferences": None}, "metadata.ownerReferences"),
        ({"labels": {uid: None}}, f"metadata.labels[{uid}]"),
        ({"labels": {uid: "other"}}, f"metadata.labels[{uid}]"),
        ({"labels": None, "ownerReferences": None}, f"metadata.labels[{uid}]"),
    ):
        call = arena.tenant.change(PODS, name, {"metadata": patch})
        await arena.refused(call, 403, f"{field}: Forbidden: this field protects quota")
    await arena.tenant.change(PODS, name, {"metadata": {"labels": {"mine": "yes"}}})
    await longer_than_a_reaction()
    found = (await arena.admin.get(PODS, name))["metadata"]
    assert found["ownerReferences"] == metadata["ownerReferences"]
    await expect_running(arena, queue, [name])


async def pod_names_an_owner_that_never_was(arena: Arena, queue: str) -> None:
    """The pod does not run: its owner does not exist under this UID."""
    job = await filled(arena, queue)
    owner = await arena.admin.get(JOBS, job.name)
    forged = {**owner, "metadata": {**owner["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    await arena.pod(queue, "forged", metadata=controlled_by(forged))
    await longer_than_a_reaction()
    await expect_running(arena, f"{queue}-forged", [])


async def pod_names_an_owner_of_another_namespace(arena: Arena, queue: str) -> None:
    """The pod is refused: owners are in the same namespace."""
    await filled(arena, queue)
    foreign = await arena.other.job(queue, queue=None)
    call = arena.pod(queue, "forged", metadata=controlled_by(foreign))
    await arena.refused(call, 403, "metadata.ownerReferences", "the owner was not found")


async def pod_is_created_with_the_marks_of_an_admitted_pod(arena: Arena, queue: str) -> None:
    """Admitq gates the pod, whatever marks it has."""
    names = arena.admin.names
    await arena.queue(queue)
    first = await arena.pod(queue, "first")
    await arena.until_runs(queue)
    marks = (await arena.admin.get(PODS, first.name))["metadata"]
    brought = {key: marks[key] for key in ("labels", "annotations")}
    await arena.pod(queue, "second", metadata=brought)
    await longer_than_a_reaction()
    [second] = await arena.pods(f"{queue}-second")
    assert {"name": names.admission_gate} in second["spec"]["schedulingGates"]


async def pod_of_a_queue_names_its_node(arena: Arena, queue: str) -> None:
    """The pod is not created: a pod with a gate cannot have a node."""
    await filled(arena, queue)
    try:
        await arena.pod(queue, "placed", nodeName="node-0")
    except ApiError as error:
        assert error.status in {403, 422}, error  # noqa: PT017 - either end is right, as long as nothing runs
    await longer_than_a_reaction()
    await expect_running(arena, f"{queue}-placed", [])


async def pod_claims_to_be_managed_already(arena: Arena, queue: str) -> None:
    """A pod is gated even if it is created with the label of managed pods."""
    names = arena.admin.names
    await filled(arena, queue)
    await arena.pod(queue, "forged", metadata={"labels": {names.managed: "true"}})
    await longer_than_a_reaction()
    await expect_running(arena, f"{queue}-forged", [])


async def pod_joins_an_admitted_group(arena: Arena, queue: str) -> None:
    """The third pod of a group of two does not run beside the others."""
    await arena.queue(queue, cpu=2)
    for number in range(2):
        await arena.pod(queue, f"p{number}", group=f"{queue}-g", total=2)
    await arena.until_runs(queue, 2)
    await arena.pod(queue, "p2", group=f"{queue}-g", total=2)
    await longer_than_a_reaction()
    assert len(await arena.running(queue)) <= 2


async def waiting_pod_is_bound_by_hand(arena: Arena, queue: str) -> None:
    """The roles of tenants do not allow to bind pods."""
    await arena.queue(queue)
    pod = await arena.pod(queue, cpu=2)
    node = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
    binding = {"metadata": {"name": pod.name}, "target": node}
    call = arena.tenant.client.create(PODS, binding, arena.admin.namespace, "binding", name=pod.name)
    await arena.refused(call, 403, "cannot")


async def running_pod_is_evicted(arena: Arena, queue: str) -> None:
    """The pod ends, its quota is released, and the waiting pod runs."""
    await arena.queue(queue)
    first = await arena.pod(queue, "first")
    await arena.until_runs(f"{queue}-first")
    await arena.pod(queue, "second")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first.name}}
    await arena.tenant.client.create(PODS, eviction, arena.admin.namespace, "eviction", name=first.name)
    await arena.until_runs(f"{queue}-second")


async def tenant_creates_objects_of_the_administrator(arena: Arena, queue: str) -> None:
    """The roles of tenants allow to create or delete neither Workloads nor queues."""
    await filled(arena, queue)
    [workload] = await arena.workloads(queue)
    kinds, name = arena.admin.kinds, workload["metadata"]["name"]
    copy = {"spec": workload["spec"], "status": workload["status"]}
    tenant = arena.tenant
    for resource, spec in (
        (kinds.workloads, copy),
        (kinds.local_queues, {"spec": {"clusterQueue": arena.admin.own(queue)}}),
        (kinds.cluster_queues, {"spec": {}}),
        (kinds.resource_flavors, {"spec": {}}),
        (kinds.cohorts, {"spec": {}}),
        (kinds.admission_checks, {"spec": {}}),
        (kinds.topologies, {"spec": {}}),
        (kinds.workload_priority_classes, {"value": 10}),
    ):
        await arena.refused(tenant.create(resource, f"{queue}-forged", spec), 403, "cannot create")
    for resource, own in ((kinds.workloads, name), (kinds.local_queues, queue)):
        call = tenant.client.delete(resource, own, arena.admin.namespace)
        await arena.refused(call, 403, "cannot delete")
    call = tenant.client.delete(kinds.cluster_queues, arena.admin.own(queue))
    await arena.refused(call, 403, "cannot delete")


async def deployment_grows(arena: Arena, queue: str) -> None:
    """Pods beyond the quota wait at their gates."""
    await arena.queue(queue)
    deployment = await arena.deployment(queue)
    await arena.until_runs(queue)
    path = deployment.path("scale")
    await arena.tenant.client.request_json("PATCH", path, {"spec": {"replicas": 4}}, content_type=MERGE)
    await arena.until_waits(queue, 3)
    await longer_than_a_reaction()
    assert len(await arena.running(queue)) == 1


async def deployment_loses_its_queue(arena: Arena, queue: str) -> None:
    """The pod that runs stays charged until it ends."""
    await arena.queue(queue)
    deployment = await arena.deployment(queue)
    [name] = await arena.until_runs(queue)
    try:
        await arena.tenant.change(
            DEPLOYMENTS, deployment.name, {"metadata": {"labels": {arena.admin.names.queue_name: None}}}
        )
    except ApiError as error:
        assert error.status == 403, error  # noqa: PT017 - refused or charged: the law is what counts
    await longer_than_a_reaction()
    assert name in await arena.running(queue)


async def waiting_job_grows_and_is_unsuspended(arena: Arena, queue: str) -> None:
    """The Job is stopped within one reaction, whatever it requests."""
    await arena.queue(queue)
    job = await arena.job(queue, pods=2)
    await arena.until_waits(queue)
    await arena.tenant.change(JOBS, job.name, {"spec": {"parallelism": 3, "suspend": False}})
    await arena.admin.until(lambda: suspended(arena, job))


async def job_loses_its_queue_while_it_waits(arena: Arena, queue: str) -> None:
    """The Job stays suspended."""
    await arena.queue(queue)
    job = await arena.job(queue, pods=2)
    await arena.until_waits(queue)
    await arena.tenant.change(JOBS, job.name, {"metadata": {"labels": {arena.admin.names.queue_name: None}}})
    await longer_than_a_reaction()
    assert await suspended(arena, job)


async def running_job_is_suspended_and_resumed(arena: Arena, queue: str) -> None:
    """A Job that its user suspends and resumes never runs without quota."""
    job = await filled(arena, queue)
    for value in (True, False, True, False):
        await arena.tenant.change(JOBS, job.name, {"spec": {"suspend": value}})
    await longer_than_a_reaction()


async def job_is_replaced_by_one_of_the_same_name(arena: Arena, queue: str) -> None:
    """The second Job of the same name is queued itself: it requests more than the quota, and waits."""
    job = await filled(arena, queue)
    await delete(arena, job, "Background")
    await arena.admin.until_gone(JOBS, job.name)
    await arena.job(queue, pods=3)
    await arena.admin.until(lambda: arena.running(queue), [])
    await longer_than_a_reaction()
    await expect_running(arena, queue, [])


async def finalizer_of_admitq_is_removed_from_a_running_pod(arena: Arena, queue: str) -> None:
    """The pod keeps running and stays charged."""
    await arena.queue(queue)
    pod = await arena.pod(queue, "first")
    await arena.until_runs(queue)
    await arena.tenant.change(PODS, pod.name, {"metadata": {"finalizers": None}})
    await arena.pod(queue, "second")
    await longer_than_a_reaction()
    await expect_running(arena, queue, [pod.name])


HELD: Final[tuple[Story, ...]] = (
    job_is_unsuspended_again_and_again,
    running_pod_is_detached_from_its_job,
    pod_names_an_owner_that_never_was,
    pod_names_an_owner_of_another_namespace,
    pod_is_created_with_the_marks_of_an_admitted_pod,
    pod_of_a_queue_names_its_node,
    pod_claims_to_be_managed_already,
    pod_joins_an_admitted_group,
    waiting_pod_is_bound_by_hand,
    running_pod_is_evicted,
    tenant_creates_objects_of_the_administrator,
    deployment_grows,
    deployment_loses_its_queue,
    waiting_job_grows_and_is_unsuspended,
    job_loses_its_queue_while_it_waits,
    running_job_is_suspended_and_resumed,
    job_is_replaced_by_one_of_the_same_name,
    finalizer_of_admitq_is_removed_from_a_running_pod,
)


# --- T1, T2, T3: marks -----------------------------------------------------------------------------


async def t1_waiting_pod_drops_its_label_and_its_gates(arena: Arena, queue: str) -> None:
    """The patch is refused, and the pod still waits."""
    names = arena.admin.names
    await arena.queue(queue)
    pod = await arena.pod(queue, cpu=2)
    await arena.until_waits(queue)
    both = {"metadata": {"labels": {names.managed: None}}, "spec": {"schedulingGates": None}}
    answer = await attempt(arena.tenant.change(PODS, pod.name, both))
    await longer_than_a_reaction()
    await expect_running(arena, queue, [])
    label, gate = f"metadata.labels[{names.managed}]", f"spec.schedulingGates[{names.admission_gate}]"
    assert_refused(answer, 403, label, gate)


async def t2_running_pod_drops_what_charges_it(arena: Arena, queue: str) -> None:
    """The patches are refused, and the next pod waits."""
    names = arena.admin.names
    await arena.queue(queue)
    pod = await arena.pod(queue, "first", group=f"{queue}-g", total=1)
    await arena.until_runs(queue)
    marks = (("labels", names.managed), ("annotations", names.role_hash))
    answers = [
        await attempt(arena.tenant.change(PODS, pod.name, {"metadata": {place: {name: None}}}))
        for place, name in marks
    ]
    second = await arena.pod(queue, "second")
    await until(
        lambda: arena.waiting(queue),
        f"{second.name} waits",
        meanwhile=lambda: expect_running(arena, queue, [pod.name]),
    )
    await longer_than_a_reaction()
    await expect_running(arena, queue, [pod.name])
    for answer, (place, name) in zip(answers, marks, strict=True):
        assert_refused(answer, 403, f"metadata.{place}[{name}]")


async def t3_big_pod_of_a_group_takes_the_role_of_a_small_one(arena: Arena, queue: str) -> None:
    """The patches are refused, whether the pod drops its label first or not; the group waits as a whole."""
    names = arena.admin.names
    await arena.queue(queue, cpu=3)
    pods = [
        await arena.pod(queue, f"p{number}", cpu=cpu, group=f"{queue}-g", total=3)
        for number, cpu in enumerate((1, 30, 1))
    ]
    await arena.until_waits(queue)
    small = (await arena.admin.get(PODS, pods[0].name))["metadata"]["annotations"][names.role_hash]
    steps = (("labels", names.managed, None), ("annotations", names.role_hash, small))
    answers = [
        await attempt(arena.tenant.change(PODS, pods[1].name, {"metadata": {place: {name: value}}}))
        for place, name, value in (*steps, ("labels", names.managed, "true"))
    ]
    await longer_than_a_reaction()
    await expect_running(arena, queue, [])
    for answer, (place, name, _) in zip(answers, steps, strict=False):
        assert_refused(answer, 403, f"metadata.{place}[{name}]")


MARKS: Final[tuple[Story, ...]] = (
    t1_waiting_pod_drops_its_label_and_its_gates,
    t2_running_pod_drops_what_charges_it,
    t3_big_pod_of_a_group_takes_the_role_of_a_small_one,
)


# --- T4, T5: pods that outlive their job ----------------------------------------------------------


async def t4_job_is_deleted_and_its_pods_are_orphans(arena: Arena, queue: str) -> None:
    """The next Job waits until the orphan has ended."""
    await arena.admin.until_garbage_is_collected()
    job = await filled(arena, queue)
    [workload] = await arena.workloads(queue)
    await delete(arena, job, "Orphan")
    await arena.admin.until_gone(JOBS, job.name)
    await arena.job(queue, "next")
    await until_outlived(arena, queue, workload["metadata"]["name"])
    await longer_than_a_reaction()
    await expect_running(arena, f"{queue}-next", [])
    [name] = await arena.running(f"{queue}-j")
    await delete(arena, Target(PODS, name, arena.admin.namespace))
    await arena.until_runs(f"{queue}-next")


async def t5_job_with_a_finalizer_of_the_tenant_is_deleted(arena: Arena, queue: str) -> None:
    """The next Job waits until the pods of the first have ended."""
    await arena.queue(queue)
    job = await arena.job(queue, completions=9, metadata={"finalizers": ["example.com/mine"]})
    await arena.until_runs(f"{queue}-j-")
    [workload] = await arena.workloads(queue)
    await delete(arena, job, "Background")
    await arena.job(queue, "next")
    await until_outlived(arena, queue, workload["metadata"]["name"])
    await longer_than_a_reaction()
    await expect_running(arena, f"{queue}-next", [])
    await arena.tenant.change(JOBS, job.name, {"metadata": {"finalizers": None}})
    await arena.until_runs(f"{queue}-next")


async def t5_job_is_suspended_and_deleted_at_once(arena: Arena, queue: str) -> None:
    """Pods that take long to end stay charged.

    If the job controller sees the deletion together with the suspension, it lets the pod run on.
    """
    await arena.queue(queue)
    template = arena.pod_manifest(None, termination=4, terminationGracePeriodSeconds=10)
    job = await arena.job(queue, template=template)
    await arena.until_runs(f"{queue}-j-")
    [pod] = await arena.running(f"{queue}-j-")
    await arena.tenant.change(JOBS, job.name, {"spec": {"suspend": True}})
    await delete(arena, job, "Orphan")
    await arena.job(queue, "next")
    await arena.admin.until_gone(JOBS, job.name)
    answer = await attempt(delete(arena, Target(PODS, pod, arena.admin.namespace)))
    assert answer is None or answer.is_not_found, answer
    await until_next_runs_alone(arena, queue, "next")


async def deleted_pod_takes_its_time_to_end(arena: Arena, queue: str) -> None:
    """A pod keeps its quota for its grace period, however long that is."""
    await arena.queue(queue)
    first = await arena.pod(queue, "first", termination=3, terminationGracePeriodSeconds=60)
    await arena.until_runs(f"{queue}-first")
    await delete(arena, first)
    await arena.pod(queue, "second")
    await until_next_runs_alone(arena, queue, "second")


OUTLIVE: Final[tuple[Story, ...]] = (
    t4_job_is_deleted_and_its_pods_are_orphans,
    t5_job_with_a_finalizer_of_the_tenant_is_deleted,
    t5_job_is_suspended_and_deleted_at_once,
    deleted_pod_takes_its_time_to_end,
)


# --- T6, T7, T9: ownership ------------------------------------------------------------------------


async def t6_pod_names_an_admitted_job_as_its_controller(arena: Arena, queue: str) -> None:
    """The pod is queued itself and waits. The Job never becomes its controller."""
    job = await filled(arena, queue)
    owner = await arena.admin.get(JOBS, job.name)
    forged = await arena.pod(queue, "forged", metadata=controlled_by(owner))
    await longer_than_a_reaction()
    await expect_running(arena, forged.name, [])

    async def is_without_controller() -> bool:
        # If the Job could have created the pod, the webhook stores the reference as a plain owner reference.
        # Otherwise the Job controller removes it.
        return get_controller(await arena.admin.get(PODS, forged.name)) is None

    await arena.admin.until(is_without_controller)
    later = arena.tenant.change(PODS, forged.name, {"metadata": controlled_by(owner)})
    await arena.refused(later, 403, "follow it; remove the controller reference")


async def t7_job_claims_to_be_of_an_admitted_jobset(arena: Arena, queue: str) -> None:
    """The Job waits for its own quota, even if its creator may set a controller reference."""
    await arena.queue(queue)
    jobset = await arena.job_set(queue)
    await arena.admin.until(lambda: suspended(arena, jobset), expected=False)
    owner = controlled_by(await arena.admin.get(jobset.resource, jobset.name))
    for creator, name in ((arena.tenant, f"{queue}-mine"), (arena.admin, f"{jobset.name}-workers-0")):
        await creator.job(name, queue=queue, pods=5, metadata=owner, suspend=False)
    await longer_than_a_reaction()
    await expect_running(arena, queue, [])
    await arena.until_waits(queue, 2)
    await expect_running(arena, queue, [])


async def t9_job_names_the_workload_of_a_pod_group_as_prebuilt(arena: Arena, queue: str) -> None:
    """The Job waits and gets an event; the pods of the group keep running."""
    await arena.queue(queue)
    victim = await arena.pod(queue, "p", as_=arena.admin, group=f"{queue}-g", total=1)
    await arena.until_runs(queue)
    uid = (await arena.admin.get(PODS, victim.name))["metadata"]["uid"]
    prebuilt = {arena.admin.names.prebuilt_workload_name: f"{queue}-g"}
    job = await arena.job(queue, labels=prebuilt)

    async def is_reported() -> bool:
        return any(reason == "ErrWorkloadCompose" for reason, _ in await arena.admin.events("Job", job.name))

    async def victim_runs() -> None:
        await expect_running(arena, queue, [victim.name])

    await until(is_reported, f"event ErrWorkloadCompose of {job.name}", meanwhile=victim_runs)
    await longer_than_a_reaction()
    await expect_running(arena, queue, [victim.name])
    assert (await arena.admin.get(PODS, victim.name))["metadata"]["uid"] == uid
    assert await suspended(arena, job)


OWNERSHIP: Final[tuple[Story, ...]] = (
    t6_pod_names_an_admitted_job_as_its_controller,
    t7_job_claims_to_be_of_an_admitted_jobset,
    t9_job_names_the_workload_of_a_pod_group_as_prebuilt,
)


# --- T8, T10: grants ------------------------------------------------------------------------------


async def t8_elastic_job_grows_and_its_gates_are_removed(arena: Arena, queue: str) -> None:
    """The gates of further pods cannot be removed."""
    names = arena.admin.names
    await arena.queue(queue)
    job = await arena.job(
        queue,
        completions=9,
        metadata={"labels": {names.queue_name: queue}, "annotations": {names.elastic_job: "true"}},
    )
    await arena.until_runs(queue)
    await arena.tenant.change(JOBS, job.name, {"spec": {"parallelism": 5}})

    async def gated() -> list[str]:
        return [
            one["metadata"]["name"] for one in await arena.pods(queue) if one["spec"].get("schedulingGates")
        ]

    without_gates = {"spec": {"schedulingGates": None}}
    answers = [
        await attempt(arena.tenant.change(PODS, name, without_gates))
        for name in await eventually(gated, what="gated pods")
    ]
    await longer_than_a_reaction()
    await expect_at_most(arena, queue, 1)
    for answer in answers:
        assert_refused(answer, 403, "this field protects quota")


async def t10_parallelism_of_an_admitted_job_rises(arena: Arena, queue: str) -> None:
    """The Job is stopped and requeued. ``tests/controlplane/test_raises.py`` tests fifty pods."""
    await arena.queue(queue)
    job = await arena.job(queue, completions=20)
    await arena.until_runs(f"{queue}-j-")
    await arena.tenant.change(JOBS, job.name, {"spec": {"parallelism": 6}})
    await arena.admin.until(lambda: suspended(arena, job))
    await arena.admin.until(lambda: arena.running(queue), [])
    assert await suspended(arena, job)


GRANTS: Final[tuple[Story, ...]] = (
    t8_elastic_job_grows_and_its_gates_are_removed,
    t10_parallelism_of_an_admitted_job_rises,
)

STORIES: Final[Mapping[str, tuple[Story, ...]]] = {
    "held": HELD,
    "marks": MARKS,
    "outlive": OUTLIVE,
    "ownership": OWNERSHIP,
    "grants": GRANTS,
}

DEFINITIONS: Final[Mapping[str, Sequence[str]]] = {"ownership": ("jobsets.jobset.x-k8s.io",)}
"""CRDs of other projects that the stories of a chapter need."""
