"""Controller references: which users may make a job or pod follow a queued owner."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from tests.unit.ray_objects import ray_object
from tests.unit.webhooks.support import NAMES, QUEUE, Answer, FakeLookups, call_webhook

KINDS = (JOB, JOBSET, POD)
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
WARNING = (
    "metadata.ownerReferences: controller was removed, only the controller of the owner may set it; "
    "the {} is queued"
)
REJECTION = (
    "metadata.ownerReferences: Forbidden: only the controller of the owner and administrators may make this "
    "{} follow it; remove the controller reference"
)


def a_job_set(queue: str = "q") -> dict[str, Any]:
    jobs = {"name": "workers", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}
    metadata = {"name": "set", "namespace": "team", "uid": "uid-set", "labels": {QUEUE: queue}}
    gvk = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**gvk, "metadata": metadata, "spec": {"replicatedJobs": [jobs]}}


def a_job() -> dict[str, Any]:
    return {"metadata": {"name": "j", "uid": "uid-j", "labels": {QUEUE: "q"}}, "spec": {"template": TEMPLATE}}


OWNERS = {"set": a_job_set(), "j": a_job()}
JOB_SET_OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set"}
JOB_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j"}


def child(kind: str, **metadata: Any) -> dict[str, Any]:
    name = "set-workers-0" if kind == "Job" else "j-x7k2p"
    named = {"name": name, "namespace": "team", "uid": "u", "labels": {QUEUE: "q"}, **metadata}
    spec = {"suspend": False, "template": TEMPLATE} if kind == "Job" else TEMPLATE["spec"]
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "v1",
        "kind": kind,
        "metadata": named,
        "spec": spec,
    }


def controlled(kind: str, owner: dict[str, Any]) -> dict[str, Any]:
    return child(kind, ownerReferences=[{**owner, "controller": True}])


async def send_review(
    verb: str,
    kind: str,
    obj: Any,
    old: Any = None,
    *,
    user: str = "tenant",
    lookups: FakeLookups | None = None,
) -> Answer:
    path, gvk = {
        "Job": (f"/{verb}-batch-v1-job", ("batch", "v1", "Job")),
        "Pod": (f"/{verb}--v1-pod", ("", "v1", "Pod")),
    }[kind]
    permitted = {
        ("jobset-controller", "update jobsets.jobset.x-k8s.io/status", "team"),
        ("job-controller", "update jobs.batch/status", "team"),
        ("admin", f"update workloads.{NAMES.group}/status", "team"),
    }
    known = FakeLookups(objects=OWNERS, permitted=permitted, plurals={"JobSet": "jobsets", "Job": "jobs"})
    return await call_webhook(
        path,
        obj,
        old,
        lookups=lookups or known,
        gvk=gvk,
        request={"userInfo": {"username": user}},
        registered=KINDS,
        integrations=KINDS,
    )


@pytest.mark.parametrize(
    ("kind", "owner", "users"),
    [
        (
            "Job",
            JOB_SET_OWNER,
            {"jobset-controller": True, "job-controller": False, "tenant": False, "": False},
        ),
        (
            "Pod",
            JOB_OWNER,
            {"job-controller": True, "jobset-controller": False, "tenant": False, "admin": True},
        ),
        ("Pod", JOB_OWNER, {"system:serviceaccount:admitq-system:manager": True}),
    ],
)
async def test_new_object_keeps_reference_to_queued_owner_only_if_created_by_its_controller(
    kind: str, owner: dict[str, Any], users: dict[str, bool]
) -> None:
    for user, follows in users.items():
        answer = await send_review("mutate", kind, controlled(kind, owner), user=user)
        assert answer.allowed
        if follows:
            assert answer.patch is None, user
            continue
        assert answer.response["warnings"] == [WARNING.format(kind)]
        assert answer.after["metadata"]["ownerReferences"] == [owner]
        if kind == "Job":
            assert answer.after["spec"]["suspend"] is True
        else:
            assert answer.after["metadata"]["labels"][NAMES.managed] == "true"


async def test_reference_to_other_kind_or_unqueued_owner_is_kept() -> None:
    other = {"apiVersion": "example.com/v1", "kind": "Robot", "name": "r", "uid": "uid-r"}
    answer = await send_review("mutate", "Job", controlled("Job", other))
    assert answer.after["metadata"]["ownerReferences"] == [{**other, "controller": True}]
    lookups = FakeLookups(objects={"set": a_job_set(queue="")})
    answer = await send_review("mutate", "Job", controlled("Job", JOB_SET_OWNER), lookups=lookups)
    assert answer.after["metadata"]["ownerReferences"] == [{**JOB_SET_OWNER, "controller": True}]
    assert lookups.accesses == []


@pytest.mark.parametrize(
    ("kind", "owner", "controller"),
    [("Job", JOB_SET_OWNER, "jobset-controller"), ("Pod", JOB_OWNER, "job-controller")],
)
async def test_reference_to_queued_owner_is_added_only_by_its_controller_or_administrator(
    kind: str, owner: dict[str, Any], controller: str
) -> None:
    without_controller, controlled_by_owner = child(kind), controlled(kind, owner)
    for user, is_allowed in {controller: True, "admin": True, "tenant": False}.items():
        answer = await send_review("validate", kind, controlled_by_owner, without_controller, user=user)
        assert answer.allowed is is_allowed, user
        if not is_allowed:
            assert answer.message == REJECTION.format(kind)
    # The webhook did not review the unqueued object at its creation, so the reference is a new claim.
    unqueued = {**controlled_by_owner, "metadata": {**controlled_by_owner["metadata"], "labels": {}}}
    assert not (await send_review("validate", kind, controlled_by_owner, unqueued)).allowed
    assert (await send_review("validate", kind, unqueued, unqueued)).allowed
    # An update that keeps or removes the reference is no claim.
    assert (await send_review("validate", kind, controlled_by_owner, controlled_by_owner)).allowed
    assert (await send_review("validate", kind, without_controller, controlled_by_owner)).allowed


async def test_create_fails_while_access_of_user_is_unknown() -> None:
    class WithoutAccessReviews(FakeLookups):
        async def is_allowed(self, user: Any, access: Any) -> bool:
            self.unavailable = True
            return await super().is_allowed(user, access)

    lookups = WithoutAccessReviews(objects=OWNERS, plurals={"JobSet": "jobsets"})
    answer = await send_review("mutate", "Job", controlled("Job", JOB_SET_OWNER), lookups=lookups)
    assert answer.response["status"]["code"] == 503


def job_of_set(parallelism: int, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    """Return a Job of the JobSet, which declares one pod for each Job."""
    obj = controlled("Job", JOB_SET_OWNER)
    containers = [{**CONTAINERS[0], "resources": {"requests": {"cpu": cpu}}}]
    template = {"spec": {**TEMPLATE["spec"], "containers": containers}}
    spec = {"suspend": False, "parallelism": parallelism, "completions": parallelism, "template": template}
    return {**obj, "metadata": {**obj["metadata"], "labels": {}, **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("change", "difference"), [(job_of_set(5), "number of pods"), (job_of_set(1, "9"), "requests")]
)
async def test_increase_of_queued_owners_child_is_accepted_only_from_controller_or_administrator(
    change: dict[str, Any], difference: str
) -> None:
    for user, is_allowed in {"jobset-controller": True, "admin": True, "tenant": False}.items():
        answer = await send_review("validate", "Job", change, job_of_set(1), user=user)
        assert answer.allowed is is_allowed, user
        if not is_allowed:
            reason = (
                f"spec: Forbidden: this Job follows JobSet set, which was not charged for its {difference}"
            )
            assert answer.message == f"{reason}; change JobSet set"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(job_of_set(1), job_of_set(1), id="no increase"),
        pytest.param(job_of_set(5), job_of_set(1), id="decrease"),
        pytest.param(
            job_of_set(1, "2"), job_of_set(1, "3"), id="increase of a template that differed before"
        ),
        pytest.param(job_of_set(1, ownerReferences=[]), job_of_set(5, ownerReferences=[]), id="no owner"),
        pytest.param(
            job_of_set(1, labels={QUEUE: "q"}), job_of_set(5, labels={QUEUE: "q"}), id="queued itself"
        ),
    ],
)
async def test_child_change_without_new_increase_is_accepted(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert (await send_review("validate", "Job", new, old)).allowed


async def test_child_increase_is_accepted_if_owner_does_not_exist() -> None:
    assert (await send_review("validate", "Job", job_of_set(5), job_of_set(1), lookups=FakeLookups())).allowed


async def test_user_cannot_add_controller_to_pod_with_suspending_parent() -> None:
    metadata: dict[str, Any] = {"labels": {}, "annotations": {NAMES.pod_suspending_parent: "statefulset"}}
    old = child("Pod", **metadata)
    new = child("Pod", **metadata, ownerReferences=[{**JOB_OWNER, "controller": True}])
    answer = await send_review("validate", "Pod", new, old)
    assert answer.message == REJECTION.format("Pod")
    assert (await send_review("validate", "Pod", new, old, user="job-controller")).allowed


@pytest.mark.parametrize(
    ("service", "cluster", "is_allowed"),
    [
        ({"suspend": True}, {}, False),
        ({"suspend": True}, {"suspend": True}, True),
        ({"suspend": False}, {}, True),
        ({"suspend": True, "labels": {}}, {}, True),
        ({"suspend": True, "uid": "uid-of-another"}, {}, True),
    ],
    ids=["suspended", "both suspended", "running", "not queued", "another service of that name"],
)
async def test_running_cluster_of_suspended_service_is_refused(
    service: dict[str, Any], cluster: dict[str, Any], is_allowed: bool
) -> None:
    suspend = service.pop("suspend")
    metadata = {"labels": {QUEUE: "q"}, **service}
    owner = ray_object("RayService", "s", {"rayClusterConfig": {"suspend": suspend}}, **metadata)
    reference = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "s", "uid": "uid-s"}
    head = {"headGroupSpec": {"template": {"spec": {"containers": CONTAINERS}}}}
    obj = ray_object(
        "RayCluster", "s-x7k2p", {**head, **cluster}, ownerReferences=[{**reference, "controller": True}]
    )
    kinds = (RAY_SERVICE, RAY_CLUSTER)
    answer = await call_webhook(
        "/validate-ray-io-v1-raycluster",
        obj,
        lookups=FakeLookups(objects={"RayService/s": owner}),
        gvk=("ray.io", "v1", "RayCluster"),
        registered=kinds,
        integrations=kinds,
    )
    assert answer.allowed is is_allowed
    if not is_allowed:
        assert answer.message == (
            "spec.suspend: Invalid value: false: must be true while RayService s is suspended; "
            "wait until the RayService is admitted"
        )
