"""Resizes of pods: what a pod may ask for after an in-place change of its requests."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq_api.labels import COMPAT_GROUP, names_for
from tests.unit.webhooks.support import NAMES, Answer, FakeLookups, ask

REFUSED = (
    "spec: Forbidden: the pod would ask for more {} than was admitted; create the pod, or its job, again "
    "with these requests"
)
OF_A_JOB: dict[str, Any] = {
    "labels": {NAMES.podset: "workers"},
    "annotations": {NAMES.workload: "admitted"},
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    ],
}


def a_pod(cpu: Any, memory: Any = "1Gi", **metadata: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    return {"metadata": {"name": "p", "namespace": "team", **metadata}, "spec": spec}


def a_workload(
    cpu: Any = 2, *, count: int = 3, usage: Any = 6, reserved: bool = True, uid: str = "job-uid"
) -> dict[str, Any]:
    template = {"spec": a_pod(cpu)["spec"]}
    assignment = {"name": "workers", "count": count, "resourceUsage": {"cpu": usage}}
    condition = {"type": "QuotaReserved", "status": "True" if reserved else "False", "reason": "r"}
    return {
        "metadata": {"name": "admitted", "namespace": "team", "labels": {NAMES.job_uid: uid}},
        "spec": {"podSets": [{"name": "workers", "count": count, "template": template}]},
        "status": {"conditions": [condition], "admission": {"podSetAssignments": [assignment]}},
    }


async def resize(old: Any, new: Any, *workloads: Any, **options: Any) -> Answer:
    lookups = FakeLookups(owners={one["metadata"]["name"]: one for one in workloads})
    return await ask(
        "/validate--v1-pod-resize",
        new,
        old,
        lookups=options.pop("lookups", lookups),
        gvk=("", "v1", "Pod"),
        request={"subResource": "resize"},
        **options,
    )


@pytest.mark.parametrize(
    ("before", "after", "workload", "beyond"),
    [
        pytest.param((2,), (1,), a_workload(), "", id="less"),
        pytest.param((1,), (2,), a_workload(), "", id="back to the podset's requests"),
        pytest.param((1,), ("2001m",), a_workload(), "cpu", id="beyond the podset's requests"),
        pytest.param((2,), (3,), a_workload(usage=9), "", id="within what was charged"),
        pytest.param((2,), (3,), a_workload(reserved=False), "cpu", id="without quota"),
        pytest.param((2,), (1, "2Gi"), a_workload(), "memory", id="another resource"),
        pytest.param((5,), (4,), a_workload(), "", id="less, though still too much"),
        pytest.param((5, "2Gi"), (5, "1Gi"), a_workload(), "", id="less memory, the CPU too much before"),
    ],
)
async def test_a_pod_of_a_job_asks_for_no_more_than_was_admitted(
    before: tuple[Any, ...], after: tuple[Any, ...], workload: Any, beyond: str
) -> None:
    answer = await resize(a_pod(*before, **OF_A_JOB), a_pod(*after, **OF_A_JOB), workload)
    assert answer.allowed is not bool(beyond)
    assert not beyond or answer.message == REFUSED.format(beyond)


@pytest.mark.parametrize(
    ("metadata", "allowed"),
    [
        ({}, True),
        ({"labels": {"app": "a"}}, True),
        ({"labels": {NAMES.managed: "true"}}, False),
        ({"labels": {NAMES.podset: "workers"}}, False),
        ({"annotations": {NAMES.workload: "gone"}}, False),
        ({"annotations": {NAMES.workload_slice_name: "gone"}}, False),
    ],
)
async def test_requests_are_not_raised_where_no_workload_is_found(
    metadata: dict[str, Any], allowed: bool
) -> None:
    assert (await resize(a_pod(1, **metadata), a_pod(2, **metadata))).allowed is allowed
    assert (await resize(a_pod(2, **metadata), a_pod(1, **metadata))).allowed


@pytest.mark.parametrize("uid", ["other", "p-uid", "job-uid", "set-uid"])
async def test_a_workload_counts_if_it_is_that_of_the_pod_or_of_what_it_follows(uid: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"uid": "job-uid", "ownerReferences": [a_reference("JobSet", "set-uid")]},
    }
    owners = {"j": job, "set": {"metadata": {"uid": "set-uid"}}, "admitted": a_workload(uid=uid)}
    lookups = FakeLookups(owners=owners)
    old, new = (a_pod(cpu, **{**OF_A_JOB, "uid": "p-uid"}) for cpu in (1, 2))
    answer = await resize(old, new, lookups=lookups, integrations=(JOB, JOBSET))
    assert answer.allowed is (uid != "other")


def a_reference(kind: str, uid: str) -> dict[str, Any]:
    version = {"JobSet": "jobset.x-k8s.io/v1alpha2", "Job": "batch/v1"}.get(kind, "example.com/v1")
    return {"apiVersion": version, "kind": kind, "name": "set", "uid": uid, "controller": True}


@pytest.mark.parametrize(
    ("kind", "queue", "allowed"), [("Job", "q", False), ("Job", "", True), ("Fox", "q", True)]
)
async def test_a_pod_that_lost_its_marks_and_follows_a_queued_job_asks_for_no_more(
    kind: str, queue: str, allowed: bool
) -> None:
    job = {"metadata": {"uid": "u", "labels": {NAMES.queue_name: queue}}}
    old, new = (
        {"apiVersion": "v1", "kind": "Pod", **a_pod(cpu, ownerReferences=[a_reference(kind, "u")])}
        for cpu in (1, 2)
    )
    assert (await resize(old, new, lookups=FakeLookups(owners={"set": job}))).allowed is allowed
    assert (await resize(new, old, lookups=FakeLookups(broken=True))).response["status"]["code"] == 503


async def test_marks_are_those_of_the_stored_pod() -> None:
    assert not (await resize(a_pod(1, **OF_A_JOB), a_pod(3), a_workload())).allowed


@pytest.mark.parametrize("namespace", ["kube-system", "admitq-system", "unknown"])
async def test_pods_of_namespaces_that_are_not_managed_are_resized_freely(namespace: str) -> None:
    old, new = a_pod(1, **OF_A_JOB), a_pod(3, **OF_A_JOB)
    assert (await resize(old, new, a_workload(), namespace=namespace)).allowed


async def test_nothing_is_raised_while_the_workload_cannot_be_read() -> None:
    old, new = a_pod(1, **OF_A_JOB), a_pod(3, **OF_A_JOB)
    answer = await resize(old, new, lookups=FakeLookups(broken=True))
    assert (answer.allowed, answer.response["status"]["code"]) == (False, 503)


async def test_marks_of_the_other_group_are_not_ours() -> None:
    theirs = names_for(COMPAT_GROUP)
    metadata = {"labels": {theirs.podset: "workers"}}
    assert (await resize(a_pod(1, **metadata), a_pod(3, **metadata))).allowed
