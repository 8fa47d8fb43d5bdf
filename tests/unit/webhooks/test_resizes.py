"""Resizes of pods: which requests a pod may have after an in-place change."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq_api.labels import COMPAT_GROUP, names_for
from tests.unit.webhooks.support import NAMES, Answer, FakeLookups, call_webhook

REJECTION = (
    "spec: Forbidden: the pod would request more {} than was admitted; create the pod, or its job, again "
    "with these requests"
)
JOB_POD: dict[str, Any] = {
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
    lookups = FakeLookups(objects={workload["metadata"]["name"]: workload for workload in workloads})
    return await call_webhook(
        "/validate--v1-pod-resize",
        new,
        old,
        lookups=options.pop("lookups", lookups),
        gvk=("", "v1", "Pod"),
        request={"subResource": "resize"},
        **options,
    )


@pytest.mark.parametrize(
    ("before", "after", "workload", "resource"),
    [
        pytest.param((2,), (1,), a_workload(), "", id="decrease"),
        pytest.param((1,), (2,), a_workload(), "", id="increase to the podset's requests"),
        pytest.param((1,), ("2001m",), a_workload(), "cpu", id="increase beyond the podset's requests"),
        pytest.param((2,), (3,), a_workload(usage=9), "", id="within charged usage"),
        pytest.param((2,), (3,), a_workload(reserved=False), "cpu", id="without reservation"),
        pytest.param((2,), (1, "2Gi"), a_workload(), "memory", id="increase of other resource"),
        pytest.param((5,), (4,), a_workload(), "", id="decrease that still exceeds the requests"),
        pytest.param(
            (5, "2Gi"), (5, "1Gi"), a_workload(), "", id="decrease of memory while CPU exceeds the requests"
        ),
    ],
)
async def test_resize_of_job_pod_beyond_admitted_requests_is_rejected(
    before: tuple[Any, ...], after: tuple[Any, ...], workload: Any, resource: str
) -> None:
    answer = await resize(a_pod(*before, **JOB_POD), a_pod(*after, **JOB_POD), workload)
    assert answer.allowed is not bool(resource)
    assert not resource or answer.message == REJECTION.format(resource)


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
async def test_resize_up_of_marked_pod_without_workload_is_rejected(
    metadata: dict[str, Any], allowed: bool
) -> None:
    assert (await resize(a_pod(1, **metadata), a_pod(2, **metadata))).allowed is allowed
    assert (await resize(a_pod(2, **metadata), a_pod(1, **metadata))).allowed


@pytest.mark.parametrize("uid", ["other", "p-uid", "job-uid", "set-uid"])
async def test_resize_is_checked_against_workload_of_pod_or_its_owners(uid: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"uid": "job-uid", "ownerReferences": [a_reference("JobSet", "set-uid")]},
    }
    objects = {"j": job, "set": {"metadata": {"uid": "set-uid"}}, "admitted": a_workload(uid=uid)}
    lookups = FakeLookups(objects=objects)
    old, new = (a_pod(cpu, **{**JOB_POD, "uid": "p-uid"}) for cpu in (1, 2))
    answer = await resize(old, new, lookups=lookups, integrations=(JOB, JOBSET))
    assert answer.allowed is (uid != "other")


def a_reference(kind: str, uid: str) -> dict[str, Any]:
    version = {"JobSet": "jobset.x-k8s.io/v1alpha2", "Job": "batch/v1"}.get(kind, "example.com/v1")
    return {"apiVersion": version, "kind": kind, "name": "set", "uid": uid, "controller": True}


@pytest.mark.parametrize(
    ("kind", "queue", "allowed"), [("Job", "q", False), ("Job", "", True), ("Fox", "q", True)]
)
async def test_resize_up_of_unmarked_pod_of_queued_job_is_rejected(
    kind: str, queue: str, allowed: bool
) -> None:
    job = {"metadata": {"uid": "u", "labels": {NAMES.queue_name: queue}}}
    old, new = (
        {"apiVersion": "v1", "kind": "Pod", **a_pod(cpu, ownerReferences=[a_reference(kind, "u")])}
        for cpu in (1, 2)
    )
    assert (await resize(old, new, lookups=FakeLookups(objects={"set": job}))).allowed is allowed
    assert (await resize(new, old, lookups=FakeLookups(unavailable=True))).response["status"]["code"] == 503


async def test_resize_uses_marks_of_stored_pod() -> None:
    assert not (await resize(a_pod(1, **JOB_POD), a_pod(3), a_workload())).allowed


@pytest.mark.parametrize("namespace", ["kube-system", "admitq-system", "unknown"])
async def test_resize_of_pod_in_unmanaged_namespace_is_accepted(namespace: str) -> None:
    old, new = a_pod(1, **JOB_POD), a_pod(3, **JOB_POD)
    assert (await resize(old, new, a_workload(), namespace=namespace)).allowed


async def test_resize_fails_while_workload_cannot_be_read() -> None:
    old, new = a_pod(1, **JOB_POD), a_pod(3, **JOB_POD)
    answer = await resize(old, new, lookups=FakeLookups(unavailable=True))
    assert (answer.allowed, answer.response["status"]["code"]) == (False, 503)


async def test_resize_ignores_marks_of_other_api_group() -> None:
    other_names = names_for(COMPAT_GROUP)
    metadata = {"labels": {other_names.podset: "workers"}}
    assert (await resize(a_pod(1, **metadata), a_pod(3, **metadata))).allowed
