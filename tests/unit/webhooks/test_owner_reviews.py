"""Controller references: which users may make a job or pod follow a queued owner."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.pod import POD
from tests.unit.webhooks.support import NAMES, QUEUE, Answer, FakeLookups, ask

KINDS = (JOB, JOBSET, POD)
CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
WARNING = (
    "metadata.ownerReferences: controller was removed, only the controller of the owner may set it; "
    "the {} is queued"
)
REFUSED = (
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
SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set"}
IN_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j"}


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


async def asked(
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
    known = FakeLookups(owners=OWNERS, permitted=permitted, plurals={"JobSet": "jobsets", "Job": "jobs"})
    return await ask(
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
        ("Job", SET, {"jobset-controller": True, "job-controller": False, "tenant": False, "": False}),
        ("Pod", IN_JOB, {"job-controller": True, "jobset-controller": False, "tenant": False, "admin": True}),
        ("Pod", IN_JOB, {"system:serviceaccount:admitq-system:manager": True}),
    ],
)
async def test_a_new_object_follows_a_queued_owner_only_if_its_controller_creates_it(
    kind: str, owner: dict[str, Any], users: dict[str, bool]
) -> None:
    for user, follows in users.items():
        answer = await asked("mutate", kind, controlled(kind, owner), user=user)
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


async def test_references_to_other_kinds_and_to_owners_that_are_not_queued_stay() -> None:
    other = {"apiVersion": "example.com/v1", "kind": "Robot", "name": "r", "uid": "uid-r"}
    answer = await asked("mutate", "Job", controlled("Job", other))
    assert answer.after["metadata"]["ownerReferences"] == [{**other, "controller": True}]
    lookups = FakeLookups(owners={"set": a_job_set(queue="")})
    answer = await asked("mutate", "Job", controlled("Job", SET), lookups=lookups)
    assert answer.after["metadata"]["ownerReferences"] == [{**SET, "controller": True}]
    assert lookups.accesses == []


@pytest.mark.parametrize(
    ("kind", "owner", "controller"), [("Job", SET, "jobset-controller"), ("Pod", IN_JOB, "job-controller")]
)
async def test_an_object_is_made_to_follow_later_by_the_same_accounts(
    kind: str, owner: dict[str, Any], controller: str
) -> None:
    alone, controlled_by_owner = child(kind), controlled(kind, owner)
    for user, may in {controller: True, "admin": True, "tenant": False}.items():
        answer = await asked("validate", kind, controlled_by_owner, alone, user=user)
        assert answer.allowed is may, user
        if not may:
            assert answer.message == REFUSED.format(kind)
    # Without its queue it was not reviewed when it was created.
    unqueued = {**controlled_by_owner, "metadata": {**controlled_by_owner["metadata"], "labels": {}}}
    assert not (await asked("validate", kind, controlled_by_owner, unqueued)).allowed
    assert (await asked("validate", kind, unqueued, unqueued)).allowed
    # A reference that stays, or goes, is no claim.
    assert (await asked("validate", kind, controlled_by_owner, controlled_by_owner)).allowed
    assert (await asked("validate", kind, alone, controlled_by_owner)).allowed


async def test_nothing_is_stored_while_the_rights_of_the_account_are_not_known() -> None:
    class Silent(FakeLookups):
        async def is_allowed(self, user: Any, access: Any) -> bool:
            self.broken = True
            return await super().is_allowed(user, access)

    lookups = Silent(owners=OWNERS, plurals={"JobSet": "jobsets"})
    answer = await asked("mutate", "Job", controlled("Job", SET), lookups=lookups)
    assert answer.response["status"]["code"] == 503


def raised(parallelism: int, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    """A Job of the JobSet with one pod."""
    obj = controlled("Job", SET)
    containers = [{**CONTAINERS[0], "resources": {"requests": {"cpu": cpu}}}]
    template = {"spec": {**TEMPLATE["spec"], "containers": containers}}
    spec = {"suspend": False, "parallelism": parallelism, "completions": parallelism, "template": template}
    return {**obj, "metadata": {**obj["metadata"], "labels": {}, **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("change", "difference"), [(raised(5), "number of pods"), (raised(1, "9"), "requests")]
)
async def test_child_of_a_queued_owner_is_raised_by_the_controller_of_the_owner_alone(
    change: dict[str, Any], difference: str
) -> None:
    for user, may in {"jobset-controller": True, "admin": True, "tenant": False}.items():
        answer = await asked("validate", "Job", change, raised(1), user=user)
        assert answer.allowed is may, user
        if not may:
            reason = (
                f"spec: Forbidden: this Job follows JobSet set, which was not charged for its {difference}"
            )
            assert answer.message == f"{reason}; change JobSet set"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(raised(1), raised(1), id="no raise"),
        pytest.param(raised(5), raised(1), id="lowered"),
        pytest.param(raised(1, "2"), raised(1, "3"), id="differed before, such as by a policy"),
        pytest.param(raised(1, ownerReferences=[]), raised(5, ownerReferences=[]), id="follows nothing"),
        pytest.param(
            raised(1, labels={QUEUE: "q"}), raised(5, labels={QUEUE: "q"}), id="queued for itself then"
        ),
    ],
)
async def test_other_changes_of_a_child_are_accepted(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert (await asked("validate", "Job", new, old)).allowed


async def test_child_is_raised_freely_when_its_owner_is_gone() -> None:
    assert (await asked("validate", "Job", raised(5), raised(1), lookups=FakeLookups())).allowed


async def test_pod_that_claims_a_parent_is_given_no_controller_by_its_user() -> None:
    held: dict[str, Any] = {"labels": {}, "annotations": {NAMES.pod_suspending_parent: "statefulset"}}
    old, new = child("Pod", **held), child("Pod", **held, ownerReferences=[{**IN_JOB, "controller": True}])
    answer = await asked("validate", "Pod", new, old)
    assert answer.message == REFUSED.format("Pod")
    assert (await asked("validate", "Pod", new, old, user="job-controller")).allowed
