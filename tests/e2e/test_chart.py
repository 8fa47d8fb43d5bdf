"""The chart on a real control plane: installed, upgraded and uninstalled by helm.

Each test has its own control plane, because webhooks without a server block all Jobs.
"""

import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from admitq_api.crds import create_crds
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from localcluster import LocalCluster
from localcluster.api import Api, ApiFailure
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.e2e.conftest import CHART

Helm = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., LocalCluster]
Key = tuple[str, str, str]

LEASES = ("kube-system", "leases")
"""Namespace and resource of the leases that the processes of Kubernetes hold."""

NOWHERE = "https://127.0.0.1:1"
"""A webhook URL without a server."""

MERGE = "application/merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Release:
    """One way to install the chart."""

    name: str
    namespace: str
    group: str
    prefix: str
    """Prefix of the names of its objects."""

    def arguments(self, verb: str, **values: Any) -> list[str]:
        """The command line of helm install or upgrade with these values."""
        settings = {"apiGroup": self.group, "webhook.url": NOWHERE, "visibility.enabled": "false", **values}
        flags = [f"--set={key}={value}" for key, value in settings.items()]
        return [verb, self.name, str(CHART), "--namespace", self.namespace, *flags]

    @property
    def mutating(self) -> str:
        """The path of its MutatingWebhookConfiguration."""
        kind = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        return f"{kind}/{self.prefix}-mutating-webhook-configuration"

    @property
    def secret(self) -> str:
        """The path of the Secret with the certificates of its webhooks."""
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.prefix}-webhook-server-cert"

    @property
    def lease(self) -> str:
        """The path of the Lease of its managers."""
        name = names_for(self.group).lease_name
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"


USUAL = Release("admitq", "admitq-system", DEFAULT_GROUP, "admitq")
RELEASES = {
    "default names": USUAL,
    "other release name and namespace": Release("q", "queues", DEFAULT_GROUP, "q-admitq"),
    "other API group": Release("admitq", "admitq-system", COMPAT_GROUP, "kueue"),
}


def make_namespace(api: Api, name: str, **labels: str) -> None:
    labelled = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labelled}})


def inventory(api: Api) -> set[Key]:
    """All objects that the API server stores except events, by resource, namespace and name."""
    versions = ["/api/v1"]
    versions += [
        f"/apis/{group['preferredVersion']['groupVersion']}"
        for group in api.request("GET", "/apis")["groups"]
        # Events expire by themselves, and every CRD creates an APIService.
        if group["name"] not in {"events.k8s.io", "apiregistration.k8s.io"}
    ]
    found: set[Key] = set()
    for version in versions:
        for resource in api.request("GET", version)["resources"]:
            if "list" not in resource["verbs"] or resource["name"] in {"events", "componentstatuses"}:
                continue
            path = f"{version}/{resource['name']}"
            for one in read(api, path)["items"]:
                namespace, name = one["metadata"].get("namespace", ""), one["metadata"]["name"]
                # Kubernetes creates these at any time: in new namespaces, and for its own processes.
                if name not in {"default", "kube-root-ca.crt"} and (namespace, resource["name"]) != LEASES:
                    found.add((path, namespace, name))
    return found


def read(api: Api, path: str) -> Any:
    """Read a path, and retry while the API server initializes a new kind and answers 429."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return api.request("GET", path)
        except ApiFailure as failure:
            if failure.status != 429 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def write_as_processes_do(api: Api, release: Release, bundle: str) -> None:
    """Write what manager and webhook write: certificates, a lease, the CA bundle of each webhook."""
    api.request("PATCH", release.secret, {"stringData": {"ca.crt": "of-the-process"}}, content_type=MERGE)
    api.request("PATCH", release.lease, {"spec": {"holderIdentity": "another"}}, content_type=MERGE)
    webhooks = api.request("GET", release.mutating)["webhooks"]
    for webhook in webhooks:
        webhook["clientConfig"]["caBundle"] = bundle
    api.request("PATCH", release.mutating, {"webhooks": webhooks}, content_type=MERGE)


def crd_keys(group: str) -> set[Key]:
    return {(CRDS, "", definition["metadata"]["name"]) for definition in create_crds(group)}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
async def test_upgrade_keeps_what_processes_wrote_and_uninstall_leaves_only_crds(
    release: Release, helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster()
    bundle = b64encode(cluster.authority.read_bytes()).decode()
    with cluster.api() as api:
        make_namespace(api, release.namespace)
        before = inventory(api)
        helm(*release.arguments("install"), "--wait", cluster=cluster)
        installed = {one["metadata"]["name"] for one in api.request("GET", CRDS)["items"]}
        assert installed == {name for _, _, name in crd_keys(release.group)}
        write_as_processes_do(api, release, bundle)

        helm(*release.arguments("upgrade", **{"webhook.timeoutSeconds": 5}), cluster=cluster)
        webhooks = api.request("GET", release.mutating)["webhooks"]
        assert {webhook["timeoutSeconds"] for webhook in webhooks} == {5}
        assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {bundle}
        assert api.request("GET", release.secret)["data"].keys() == {"ca.crt"}
        assert api.request("GET", release.lease)["spec"]["holderIdentity"] == "another"

        helm("uninstall", release.name, "--namespace", release.namespace, "--wait", cluster=cluster)

        await until_only_crds_are_left(api, release.group, before)


async def until_only_crds_are_left(api: Api, group: str, before: set[Key]) -> None:
    def only_crds_are_left() -> bool:
        assert inventory(api) - before == crd_keys(group)
        return True

    await eventually(only_crds_are_left)


def test_objects_survive_uninstall_and_are_served_by_the_next_release(
    helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster()
    flavors = f"/apis/{names_for().api_version}/resourceflavors"
    flavor = {"apiVersion": names_for().api_version, "kind": "ResourceFlavor", "metadata": {"name": "spot"}}
    with cluster.api() as api:
        make_namespace(api, USUAL.namespace)
        helm(*USUAL.arguments("install"), "--wait", cluster=cluster)
        helm("uninstall", USUAL.name, "--namespace", USUAL.namespace, "--wait", cluster=cluster)
        api.request("POST", flavors, flavor)
        helm(*USUAL.arguments("install"), "--wait", cluster=cluster)
        assert [one["metadata"]["name"] for one in api.request("GET", flavors)["items"]] == ["spot"]


def test_pods_of_the_chart_are_accepted_under_restricted_pod_security(
    helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster()
    with cluster.api() as api:
        make_namespace(api, USUAL.namespace, enforce="restricted")
        # Helm waits until all replicas are ready, which the standard would prevent if it refused the pods.
        helm(*USUAL.arguments("install", **{"webhook.url": ""}), "--wait", "--timeout=120s", cluster=cluster)
        pods = api.request("GET", f"/api/v1/namespaces/{USUAL.namespace}/pods")["items"]
        assert len(pods) == 4


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": template},
    }


async def test_jobs_are_blocked_only_in_managed_namespaces_when_webhooks_do_not_answer(
    helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster()
    with cluster.api() as api:
        make_namespace(api, USUAL.namespace)
        helm(*USUAL.arguments("install"), "--wait", cluster=cluster)
        for namespace in ("kube-system", USUAL.namespace):
            api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job("system"))

        def is_refused() -> bool:
            try:
                api.request("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All", job("users"))
            except ApiFailure as refusal:
                return 'failed calling webhook "mjob.admitq.dev"' in str(refusal)
            return False

        # The API server takes a moment to notice new webhook configurations.
        await eventually(is_refused)
        pod = {"metadata": {"name": "alone"}, "spec": job("x")["spec"]["template"]["spec"]}
        api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)


ADMIN, USER, VIEWER = "admitq-batch-admin-role", "admitq-batch-user-role", "view"
MANAGER = "system:serviceaccount:admitq-system:admitq-manager"
WEBHOOK = "system:serviceaccount:admitq-system:admitq-webhook"

# User, verb, resource (group/plural/subresource), and whether the call is allowed in a tenant's namespace.
ACCESS = [
    (USER, "create", "batch/jobs", True),
    (USER, "get", "admitq.dev/workloads", True),
    (USER, "get", "admitq.dev/workloads/status", True),
    (USER, "patch", "admitq.dev/workloads", False),
    (USER, "patch", "admitq.dev/workloads/status", False),
    (USER, "list", "admitq.dev/localqueues", True),
    (USER, "create", "admitq.dev/localqueues", False),
    (USER, "create", "admitq.dev/clusterqueues", False),
    (VIEWER, "list", "admitq.dev/workloads", True),
    (VIEWER, "list", "admitq.dev/localqueues", True),
    (VIEWER, "create", "admitq.dev/localqueues", False),
    (ADMIN, "create", "admitq.dev/localqueues", True),
    (ADMIN, "patch", "admitq.dev/workloads", True),
    (ADMIN, "patch", "admitq.dev/workloads/status", False),
    (ADMIN, "patch", "batch/jobs/status", False),
    (USER, "create", "example.com/sweeps", True),
    (USER, "get", "example.com/sweeps/status", True),
    (USER, "patch", "example.com/sweeps/status", False),
    (ADMIN, "delete", "example.com/sweeps", True),
    (VIEWER, "list", "example.com/sweeps", False),
    (MANAGER, "patch", "admitq.dev/workloads/status", True),
    (MANAGER, "create", "batch/jobs", False),
    (MANAGER, "create", "/pods", False),
    (MANAGER, "get", "/secrets", False),
    (MANAGER, "list", "/secrets", False),
    (WEBHOOK, "get", "/secrets", False),
    (WEBHOOK, "list", "/secrets", False),
    (WEBHOOK, "patch", "admitq.dev/workloads", False),
    (WEBHOOK, "patch", "batch/jobs", False),
]


def is_allowed(api: Api, user: str, verb: str, resource: str) -> bool:
    group, plural, *subresource = resource.split("/")
    attributes = {
        "namespace": "default",
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": "".join(subresource),
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = api.request("POST", path, {"spec": {"user": user, "resourceAttributes": attributes}})
    return bool(answer["status"]["allowed"])


QUEUE_OBJECTS: dict[str, dict[str, Any]] = {
    "resourceflavors": {"kind": "ResourceFlavor", "metadata": {"name": "any"}},
    "clusterqueues": {
        "kind": "ClusterQueue",
        "metadata": {"name": "all"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["pods"],
                    "flavors": [{"name": "any", "resources": [{"name": "pods", "nominalQuota": 1}]}],
                }
            ],
        },
    },
    "namespaces/default/localqueues": {
        "kind": "LocalQueue",
        "metadata": {"name": "main"},
        "spec": {"clusterQueue": "all"},
    },
}
"""A queue with quota for one pod, by the path of each object."""
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.mark.parametrize("group", [DEFAULT_GROUP, COMPAT_GROUP])
async def test_release_of_another_name_admits_jobs_and_is_uninstalled_completely(
    group: str, private_cluster: Start
) -> None:
    cluster = private_cluster()
    release = Installation(cluster, release="other-admitq", namespace="queues")
    with cluster.api() as api:
        make_namespace(api, "queues")
        before = inventory(api)
        release.install(api_group=group)
        release.start()
        await run_job_in_queue(api, group)
        await delete_job_and_queue(api, group, before)
        release.uninstall()
        await until_only_crds_are_left(api, group, before)


async def run_job_in_queue(api: Api, group: str) -> None:
    """Create a queue and a Job, and wait until the Job is admitted."""
    api_version = names_for(group).api_version
    for path, obj in QUEUE_OBJECTS.items():
        api.request("POST", f"/apis/{api_version}/{path}", {"apiVersion": api_version, **obj})
    queued = job("one")
    queued["metadata"]["labels"] = {names_for(group).queue_name: "main"}
    api.request("POST", JOBS, queued)
    await eventually(lambda: not api.request("GET", f"{JOBS}/one")["spec"]["suspend"])


async def delete_job_and_queue(api: Api, group: str, before: set[Key]) -> None:
    """Delete the Job and the queue, and wait until none of their objects is left."""
    api_version = names_for(group).api_version
    api.request("DELETE", f"{JOBS}/one?propagationPolicy=Background")
    # The garbage collector would delete Workloads as well, but up to half a minute later.
    api.request("DELETE", f"/apis/{api_version}/namespaces/default/workloads")
    for path, obj in reversed(QUEUE_OBJECTS.items()):
        api.request("DELETE", f"/apis/{api_version}/{path}/{obj['metadata']['name']}")

    def are_deleted() -> bool:
        left = {path for path, _, _ in inventory(api) - before}
        assert not {
            path for path in left if path.startswith((f"/apis/{group}", "/apis/batch", "/api/v1/pods"))
        }
        return True

    await eventually(are_deleted)


async def test_roles_allow_exactly_what_the_access_table_says(helm: Helm, private_cluster: Start) -> None:
    cluster = private_cluster()
    with cluster.api() as api:
        make_namespace(api, USUAL.namespace)
        sweep = {"group": "example.com", "version": "v1", "kind": "Sweep", "plural": "sweeps"}
        extra_kind = {f"extraKinds[0].{field}": value for field, value in sweep.items()}
        helm(*USUAL.arguments("install", **extra_kind), "--wait", cluster=cluster)
        for role in (ADMIN, USER, VIEWER):
            subject = {"kind": "User", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            api.request(
                "POST",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
                {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference},
            )

        def unexpected() -> list[Any]:
            return [row for row in ACCESS if is_allowed(api, *row[:3]) != row[3]]

        # Kubernetes aggregates the rules of roles asynchronously.
        try:
            await eventually(lambda: not unexpected())
        except AssertionError:
            assert unexpected() == []  # names the rows
