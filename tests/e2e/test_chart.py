"""The chart on a real control plane: installed, upgraded and uninstalled by helm.

Each test has a control plane of its own, because webhooks without a server stop all Jobs.
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
"""Namespace and resource of what the processes of Kubernetes hold."""

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
    """What the names of its objects begin with."""

    def arguments(self, verb: str, **values: Any) -> list[str]:
        """The command line of helm install or upgrade with these values."""
        settings = {"apiGroup": self.group, "webhook.url": NOWHERE, **values}
        flags = [f"--set={key}={value}" for key, value in settings.items()]
        return [verb, self.name, str(CHART), "--namespace", self.namespace, *flags]

    @property
    def mutating(self) -> str:
        """The path of its MutatingWebhookConfiguration."""
        kind = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        return f"{kind}/{self.prefix}-mutating-webhook-configuration"

    @property
    def secret(self) -> str:
        """The path of the Secret of its webhooks."""
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.prefix}-webhook-server-cert"

    @property
    def lease(self) -> str:
        """The path of the Lease of its managers."""
        name = names_for(self.group).lease_name
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"


USUAL = Release("admitq", "admitq-system", DEFAULT_GROUP, "admitq")
RELEASES = {
    "the usual one": USUAL,
    "another name and namespace": Release("q", "queues", DEFAULT_GROUP, "q-admitq"),
    "the other API group": Release("admitq", "admitq-system", COMPAT_GROUP, "kueue"),
}


def make_namespace(api: Api, name: str, **labels: str) -> None:
    labelled = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labelled}})


def inventory(api: Api) -> set[Key]:
    """Everything that the API server holds, by resource, namespace and name; events left out."""
    versions = ["/api/v1"]
    versions += [
        f"/apis/{group['preferredVersion']['groupVersion']}"
        for group in api.request("GET", "/apis")["groups"]
        # Events come and go by themselves, and every CRD brings an APIService with it.
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
                # Kubernetes' own, which come when it gets to it: into new namespaces, and for its processes.
                if name not in {"default", "kube-root-ca.crt"} and (namespace, resource["name"]) != LEASES:
                    found.add((path, namespace, name))
    return found


def read(api: Api, path: str) -> Any:
    """Read, also where the API server is still busy with a kind that is new to it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return api.request("GET", path)
        except ApiFailure as failure:
            if failure.status != 429 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def write_as_processes_do(api: Api, release: Release, bundle: str) -> None:
    """Leave what manager and webhook leave behind: certificates, a lease, the CA in each webhook."""
    api.request("PATCH", release.secret, {"stringData": {"ca.crt": "theirs"}}, content_type=MERGE)
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

        def only_crds_are_left() -> bool:
            assert inventory(api) - before == crd_keys(release.group)
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
        # Helm waits until all replicas are ready: none could be if the standard refused them.
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

# User, verb, resource (group/plural/subresource), and whether it is allowed in a tenant's namespace.
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


@pytest.mark.parametrize("group", [DEFAULT_GROUP, COMPAT_GROUP])
async def test_release_of_another_name_admits_jobs_and_is_uninstalled_completely(
    group: str, private_cluster: Start
) -> None:
    cluster = private_cluster()
    release = Installation(cluster, release="other-admitq", namespace="queues")
    api_version = names_for(group).api_version
    objects: dict[str, dict[str, Any]] = {
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
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    labelled = job("one")
    labelled["metadata"]["labels"] = {names_for(group).queue_name: "main"}
    with cluster.api() as api:
        make_namespace(api, "queues")
        before = inventory(api)
        release.install(api_group=group)
        release.start()
        for path, given in objects.items():
            api.request("POST", f"/apis/{api_version}/{path}", {"apiVersion": api_version, **given})
        api.request("POST", jobs, labelled)
        await eventually(lambda: not api.request("GET", f"{jobs}/one")["spec"]["suspend"])

        api.request("DELETE", f"{jobs}/one?propagationPolicy=Background")
        # Kubernetes would get to it as well, half a minute after it first sees a new kind.
        api.request("DELETE", f"/apis/{api_version}/namespaces/default/workloads")
        for path, given in reversed(objects.items()):
            api.request("DELETE", f"/apis/{api_version}/{path}/{given['metadata']['name']}")

        def only_the_release_is_left() -> bool:
            left = {path for path, _, _ in inventory(api) - before}
            assert not {
                path for path in left if path.startswith((f"/apis/{group}", "/apis/batch", "/api/v1/pods"))
            }
            return True

        await eventually(only_the_release_is_left)
        release.uninstall()

        def only_crds_are_left() -> bool:
            assert inventory(api) - before == crd_keys(group)
            return True

        await eventually(only_crds_are_left)


async def test_roles_allow_exactly_what_the_access_table_says(helm: Helm, private_cluster: Start) -> None:
    cluster = private_cluster()
    with cluster.api() as api:
        make_namespace(api, USUAL.namespace)
        sweep = {"group": "example.com", "version": "v1", "kind": "Sweep", "plural": "sweeps"}
        told = {f"extraKinds[0].{field}": value for field, value in sweep.items()}
        helm(*USUAL.arguments("install", **told), "--wait", cluster=cluster)
        for role in (ADMIN, USER, VIEWER):
            subject = {"kind": "User", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            api.request(
                "POST",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
                {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference},
            )

        def wrong() -> list[Any]:
            return [row for row in ACCESS if is_allowed(api, *row[:3]) != row[3]]

        # Kubernetes gathers the rules of aggregated roles in the background.
        try:
            await eventually(lambda: not wrong())
        except AssertionError:
            assert wrong() == []  # names the rows
