"""Moves of a tenant in a random history: one call each, which may be refused.

A move is an act on a subject. There are few subjects, so that several acts concern the same one: two jobs,
two pods, a group of two pods, a Deployment, a StatefulSet, and one pod that a controller created for each of
them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from hypothesis.vendor.pretty import RepresentationPrinter

from admitq.runtime.client import Propagation
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from tests.adversary.arena import Arena, container
from tests.adversary.calls import MERGE, STRATEGIC
from tests.controlplane.stage import RUN_SECONDS, controlled_by

JOB_NAMES: Final = ("j", "k")
POD_NAMES: Final = ("p", "q", "g0", "g1")
"""The last two are in a group."""
SERVING: Final[Mapping[str, Resource]] = {"d": DEPLOYMENTS, "s": STATEFUL_SETS}
_POD_OF: Final = "pod of "
CHILDREN: Final = tuple(f"{_POD_OF}{name}" for name in (*JOB_NAMES, *SERVING))
HOLD: Final = "example.com/hold"
"""A finalizer of the tenant."""
OWN_RESOURCES: Final = (JOBS, *SERVING.values(), REPLICA_SETS, PODS)
"""Resources of objects that a history may leave, owners first."""


@dataclass(frozen=True)
class Move:
    """An act on a subject.

    Attributes:
        act: a key of ``ACTS``.
        subject: one of those that the act is for.
        waits: whether the tenant waits until the queue is calm before the next move.
    """

    act: str
    subject: str
    waits: bool = False

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:
        """Print one line in a failing example of Hypothesis."""
        printer.text(repr(self))


@dataclass(frozen=True)
class Tenant:
    """A tenant with a queue; its moves are one history."""

    arena: Arena
    queue: str

    async def target(self, subject: str) -> tuple[Resource, str]:
        """The resource and name of a subject.

        Raises:
            LookupError: its controller has created no pod.
        """
        owner = owner_of(subject)
        if owner is None:
            resource = JOBS if subject in JOB_NAMES else SERVING.get(subject, PODS)
            return resource, f"{self.queue}-{subject}"
        pods = await self.arena.pods(f"{self.queue}-{owner}-")
        living = sorted(
            one["metadata"]["name"] for one in pods if not one["metadata"].get("deletionTimestamp")
        )
        if not living:
            raise LookupError(subject)
        return PODS, living[0]

    async def change(
        self, subject: str, patch: dict[str, Any], subresource: str | None = None, *, way: str = MERGE
    ) -> None:
        """Patch a subject."""
        resource, name = await self.target(subject)
        path = resource.path(self.arena.admin.namespace, name, subresource)
        await self.arena.tenant.client.request_json("PATCH", path, patch, content_type=way)

    async def get(self, subject: str) -> dict[str, Any]:
        """Read a subject."""
        return await self.arena.admin.get(*await self.target(subject))

    async def workload(self) -> str:
        """The name of a Workload of the queue.

        Raises:
            LookupError: there is none.
        """
        return (await self.arena.workloads(self.queue))[0]["metadata"]["name"]

    async def delete(self, subject: str, *, propagation: Propagation = "Background") -> None:
        """Delete a subject."""
        resource, name = await self.target(subject)
        client, namespace = self.arena.tenant.client, self.arena.admin.namespace
        await client.delete(resource, name, namespace, propagation=propagation)


Act = Callable[[Tenant, str], Awaitable[None]]


# --- creation -------------------------------------------------------------------------------------


def new_job(
    *,
    mark: str | None = None,
    value: str = "true",
    finalizers: Sequence[str] = (),
    termination: float = 0,
    **fields: Any,
) -> Act:
    """An act that creates a Job, optionally with an annotation of admitq."""

    async def act(tenant: Tenant, subject: str) -> None:
        grace: dict[str, Any] = {"terminationGracePeriodSeconds": 10} if termination else {}
        template = tenant.arena.pod_manifest(None, termination=termination, **grace)
        annotations = {getattr(tenant.arena.admin.names, mark): value} if mark else {}
        metadata = {"annotations": annotations, "finalizers": list(finalizers)}
        await create_job(tenant, subject, metadata, template=template, **fields)

    return act


async def create_job(tenant: Tenant, subject: str, metadata: dict[str, Any], **fields: Any) -> None:
    """Create a Job of the queue with six completions."""
    labels = {tenant.arena.admin.names.queue_name: tenant.queue, **metadata.get("labels", {})}
    name = f"{tenant.queue}-{subject}"
    given: dict[str, Any] = {"completions": 6, "backoffLimit": 100, **fields}
    await tenant.arena.tenant.job(name, metadata={**metadata, "labels": labels}, **given)


async def new_job_that_ends(tenant: Tenant, subject: str) -> None:
    """A Job of pods that succeed at once."""
    template = tenant.arena.pod_manifest(None, metadata={"annotations": {RUN_SECONDS: "0.3"}})
    await create_job(tenant, subject, {}, template=template)


async def new_job_with_marks(tenant: Tenant, subject: str) -> None:
    """A Job with the marks of an admitted Job in its template."""
    names = tenant.arena.admin.names
    marks = {
        "labels": {names.podset: "main", names.managed: "true"},
        "annotations": {names.workload: await tenant.workload()},
    }
    template = tenant.arena.pod_manifest(None, metadata=marks)
    await create_job(tenant, subject, {}, template=template, suspend=False)


async def new_job_with_prebuilt_workload(tenant: Tenant, subject: str) -> None:
    """A Job that names a Workload of the queue as its prebuilt Workload."""
    labels = {tenant.arena.admin.names.prebuilt_workload_name: await tenant.workload()}
    await create_job(tenant, subject, {"labels": labels})


async def new_job_of_another(tenant: Tenant, subject: str) -> None:
    """A Job with another Job as controller in its owner references."""
    [other] = set(JOB_NAMES) - {subject}
    metadata = controlled_by(await tenant.get(other))
    await create_job(tenant, subject, metadata, suspend=False)


def new_pod(*, role: str | None = None, **fields: Any) -> Act:
    """An act that creates a pod of the queue, in a group of two if its name says so."""

    async def act(tenant: Tenant, subject: str) -> None:
        metadata = {"annotations": {tenant.arena.admin.names.role_hash: role}} if role else {}
        group = {"group": f"{tenant.queue}-g", "total": 2} if subject.startswith("g") else {}
        await tenant.arena.pod(tenant.queue, subject, metadata=metadata, **group, **fields)

    return act


async def new_pod_of_a_job(tenant: Tenant, subject: str) -> None:
    """A pod with a Job as controller in its owner references."""
    metadata = controlled_by(await tenant.get(JOB_NAMES[0]))
    await tenant.arena.pod(tenant.queue, subject, metadata=metadata)


async def new_pod_with_labels_of_a_job(tenant: Tenant, subject: str) -> None:
    """A pod that the controller of a Job adopts, because it has the labels of the Job's pods."""
    job = await tenant.get(JOB_NAMES[0])
    labels = job["spec"]["template"]["metadata"]["labels"]
    await tenant.arena.pod(tenant.queue, subject, metadata={"labels": labels})


async def new_pod_with_marks(tenant: Tenant, subject: str) -> None:
    """A pod with the marks of a pod of a Job."""
    marks = (await tenant.get(CHILDREN[0]))["metadata"]
    brought = {key: marks[key] for key in ("labels", "annotations") if key in marks}
    await tenant.arena.pod(tenant.queue, subject, metadata=brought)


async def new_serving(tenant: Tenant, subject: str) -> None:
    """A Deployment or StatefulSet of one pod."""
    name = f"{tenant.queue}-{subject}"
    template = tenant.arena.pod_manifest(None, restartPolicy="Always")
    template["metadata"]["labels"] = {"app": name}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"labels": {tenant.arena.admin.names.queue_name: tenant.queue}}
    if subject == "s":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    await tenant.arena.tenant.create(SERVING[subject], name, {"metadata": metadata, "spec": spec})


# --- changes and deletions--------------------------------------------------------------------------


def patch(
    make: Callable[[Tenant], dict[str, Any]], subresource: str | None = None, *, way: str = MERGE
) -> Act:
    """An act that patches its subject."""

    async def act(tenant: Tenant, subject: str) -> None:
        await tenant.change(subject, make(tenant), subresource, way=way)

    return act


def metadata(field: str, name: str, value: str | None) -> Act:
    """An act that writes a label or annotation of admitq, or removes it with None."""
    return patch(lambda tenant: {"metadata": {field: {getattr(tenant.arena.admin.names, name): value}}})


def fixed(value: dict[str, Any], subresource: str | None = None, *, way: str = MERGE) -> Act:
    """An act that makes the same patch for all tenants."""
    return patch(lambda _: value, subresource, way=way)


def deletion(propagation: Propagation) -> Act:
    """An act that deletes its subject."""

    async def act(tenant: Tenant, subject: str) -> None:
        await tenant.delete(subject, propagation=propagation)

    return act


async def delete_at_once(tenant: Tenant, subject: str) -> None:
    """Delete a pod without a grace period."""
    resource, name = await tenant.target(subject)
    client, namespace = tenant.arena.tenant.client, tenant.arena.admin.namespace
    await client.delete(resource, name, namespace, grace_seconds=0)


async def evict(tenant: Tenant, subject: str) -> None:
    """Evict a pod."""
    _, name = await tenant.target(subject)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    client, namespace = tenant.arena.tenant.client, tenant.arena.admin.namespace
    await client.create(PODS, eviction, namespace, "eviction", name=name)


async def claim(tenant: Tenant, subject: str) -> None:
    """Make a Job the controller of the subject."""
    owner = await tenant.get(JOB_NAMES[1] if subject == JOB_NAMES[0] else JOB_NAMES[0])
    await tenant.change(subject, {"metadata": controlled_by(owner)})


OF_JOBS: Final[Mapping[str, Act]] = {
    "create": new_job(),
    "create for two": new_job(pods=2),
    "create for more than there is": new_job(pods=5),
    "create elastic": new_job(mark="elastic_job"),
    "create partial": new_job(pods=5, mark="job_min_parallelism", value="1"),
    "create with a finalizer": new_job(finalizers=[HOLD]),
    "create with pods that end slowly": new_job(termination=2),
    "create with pods that succeed": new_job_that_ends,
    "create with marks": new_job_with_marks,
    "create with a prebuilt Workload": new_job_with_prebuilt_workload,
    "create as of another Job": new_job_of_another,
    "suspend": fixed({"spec": {"suspend": True}}),
    "unsuspend": fixed({"spec": {"suspend": False}}),
    "raise parallelism": fixed({"spec": {"parallelism": 4}}),
    "raise parallelism and unsuspend": fixed({"spec": {"parallelism": 3, "suspend": False}}),
    "lower parallelism": fixed({"spec": {"parallelism": 1}}),
    "stop parallelism": fixed({"spec": {"parallelism": 0}}),
    "mark as elastic": metadata("annotations", "elastic_job", "true"),
    "mark as not elastic": metadata("annotations", "elastic_job", None),
    "mark as stopping": metadata("annotations", "stopping", "true"),
    "name a prebuilt Workload": metadata("labels", "prebuilt_workload_name", "forged"),
    "raise what the template asks for": fixed(
        {"spec": {"template": {"spec": {"containers": [container(3)]}}}}, way=STRATEGIC
    ),
}
OF_PODS: Final[Mapping[str, Act]] = {
    "create": new_pod(),
    "create with a role": new_pod(role="r"),
    "create with a role and ask for more": new_pod(role="r", cpu=2),
    "create with a slow end": new_pod(termination=2, terminationGracePeriodSeconds=10),
    "create as of a Job": new_pod_of_a_job,
    "create with the labels of a Job": new_pod_with_labels_of_a_job,
    "create with the marks of another": new_pod_with_marks,
}
OF_SERVING: Final[Mapping[str, Act]] = {
    "create": new_serving,
    "scale up": fixed({"spec": {"replicas": 3}}, "scale"),
    "scale down": fixed({"spec": {"replicas": 1}}, "scale"),
    "scale to none": fixed({"spec": {"replicas": 0}}, "scale"),
    "raise what the template asks for": fixed(
        {"spec": {"template": {"spec": {"containers": [container(2)]}}}}, way=STRATEGIC
    ),
}
OF_EVERY_POD: Final[Mapping[str, Act]] = {
    "remove managed": metadata("labels", "managed", None),
    "remove podset": metadata("labels", "podset", None),
    "remove workload": metadata("annotations", "workload", None),
    "change role": metadata("annotations", "role_hash", "other"),
    "change parent": metadata("annotations", "pod_suspending_parent", "statefulset"),
    "remove gates": fixed({"spec": {"schedulingGates": None}}),
    "remove labels of Jobs": fixed(
        {
            "metadata": {
                "labels": {
                    "job-name": None,
                    "controller-uid": None,
                    "batch.kubernetes.io/job-name": None,
                    "batch.kubernetes.io/controller-uid": None,
                }
            }
        }
    ),
    "remove owners": fixed({"metadata": {"ownerReferences": None}}),
    "ask for more in place": fixed({"spec": {"containers": [container(4)]}}, "resize", way=STRATEGIC),
    "delete at once": delete_at_once,
    "evict": evict,
}
OF_ALL: Final[Mapping[str, Act]] = {
    **{f"delete in the {one.lower()}": deletion(one) for one in get_args(Propagation) if one != "Orphan"},
    "delete and keep what it owns": deletion("Orphan"),
    "remove finalizers": fixed({"metadata": {"finalizers": None}}),
    "claim for a Job": claim,
}

OF_OWNERS: Final[Mapping[str, Act]] = {"add a finalizer": fixed({"metadata": {"finalizers": [HOLD]}})}
"""Not for pods: a kubelet stops a deleted pod that has a finalizer, and simulated nodes do not."""


def acts_of(subject: str) -> Mapping[str, Act]:
    """The acts on a subject, by name."""
    if subject in JOB_NAMES:
        return {**OF_JOBS, **OF_OWNERS, **OF_ALL}
    if subject in SERVING:
        return {**OF_SERVING, **OF_OWNERS, **OF_ALL}
    return {**(OF_PODS if subject in POD_NAMES else {}), **OF_EVERY_POD, **OF_ALL}


SUBJECTS: Final = (*JOB_NAMES, *POD_NAMES, *SERVING, *CHILDREN)


def owner_of(subject: str) -> str | None:
    """The subject for which a controller creates this one; None if the tenant creates it."""
    return subject.removeprefix(_POD_OF) if subject.startswith(_POD_OF) else None


async def make(tenant: Tenant, move: Move) -> str:
    """Make a move, which may be refused or find no object; return the result as text.

    Raises:
        ApiError: the call failed without being refused.
    """
    try:
        await acts_of(move.subject)[move.act](tenant, move.subject)
    except LookupError:
        return "no such object"
    except ApiError as error:
        if not (error.is_rejected or error.status in {404, 405, 409, 429}):
            raise
        return f"refused: {error.message}"
    return "done"
