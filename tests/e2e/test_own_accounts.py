"""A stolen token of admitq can change neither images nor objects in kube-system.

The test calls an API server that has the chart's policy, with tokens of the chart's ServiceAccounts.
"""

import http.client
import json
import ssl
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from admitq.integrations.base import Integration
from admitq.integrations.registry import BUILT_IN_KINDS, list_framework_names
from admitq.integrations.written_fields import SPEC_FIELDS
from admitq_api.json_objects import create_merge_patch, with_value
from admitq_api.labels import DEFAULT_GROUP, names_for
from localcluster import LocalCluster, crds
from localcluster.api import Api
from localcluster.waiting import eventually
from tests.e2e.conftest import CHART
from tests.unit.integrations.examples import RUNTIME, guide_manifests
from tests.unit.integrations.test_every_kind import injected, paths_of

Helm = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., LocalCluster]

OWN = "admitq-system"
TEAM = "team"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"

KINDS = [
    one
    for one in BUILT_IN_KINDS
    if one.framework in SPEC_FIELDS and one.framework not in {"pod", "batch/job"}
]

VALUES = {
    # No server listens there: the calls of this test reach no webhook.
    "webhook.url": "https://127.0.0.1:1",
    "visibility.enabled": "false",
    "webhook.failurePolicy": "Ignore",
    "config.featureGates.FailureRecoveryPolicy": "true",
    **{f"config.integrations.frameworks[{at}]": name for at, name in enumerate(list_framework_names())},
}

IMAGE = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
REPLACE_IMAGE = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}, "finalizers": ["example.com/other"]},
        "spec": {"containers": [container], "automountServiceAccountToken": False, **spec},
    }


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


class Thief:
    """Calls the API server with the token of a ServiceAccount."""

    def __init__(self, cluster: LocalCluster, account: str) -> None:
        path = f"/api/v1/namespaces/{OWN}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        with cluster.api() as api:
            self._token = api.request("POST", path, request)["status"]["token"]
        self._address = urlsplit(cluster.server)
        self._context = ssl.create_default_context(cafile=str(cluster.authority))

    def call(self, method: str, path: str, body: Any = None, content_type: str = MERGE) -> tuple[int, str]:
        """Return the status of the answer, and its message."""
        connection = http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port, context=self._context, timeout=30.0
        )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        read = json.loads(answer.read())
        connection.close()
        return answer.status, str(read.get("message", ""))


def rows(group: str) -> list[tuple[str, str, str, Any, str, bool]]:
    """Calls (name, method, path, body, content type), and whether each is allowed."""
    names = names_for(group)
    pods, jobs = f"/api/v1/namespaces/{TEAM}/pods", f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    of_system = "/api/v1/namespaces/kube-system/pods"
    jobs_of_system = "/apis/batch/v1/namespaces/kube-system/jobs"
    mark = {"metadata": {"labels": {names.podset: "main"}}}
    label = {"metadata": {"labels": {"app": "other"}}}
    inject = {
        "metadata": {"labels": {names.podset: "main", "pool": "a"}, "annotations": {names.workload: "w"}},
        "spec": {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
    }
    start = {"spec": {"suspend": False, "parallelism": 1, "template": inject}}
    ungate = {**inject, "spec": {**inject["spec"], "schedulingGates": []}}
    no_start_time = {"status": {"startTime": None}}
    condition = {"type": "TerminationTarget", "status": "True", "reason": "r", "message": "m"}
    failed = {"status": {"phase": "Failed", "conditions": [condition]}}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    owned = {"metadata": {"ownerReferences": [owner]}}
    return [
        # No object in kube-system can be changed.
        ("an image in kube-system", "PATCH", f"{of_system}/system", REPLACE_IMAGE, JSON, False),
        ("a mark in kube-system", "PATCH", f"{of_system}/system", mark, MERGE, False),
        ("a status in kube-system", "PATCH", f"{of_system}/system/status", failed, MERGE, False),
        ("deleting a pod of kube-system", "DELETE", f"{of_system}/system", None, MERGE, False),
        ("starting a job of kube-system", "PATCH", f"{jobs_of_system}/system", start, MERGE, False),
        ("deleting a job of kube-system", "DELETE", f"{jobs_of_system}/system", None, MERGE, False),
        # In other namespaces, only the writes of the manager are allowed.
        ("an image of a pod", "PATCH", f"{pods}/web", REPLACE_IMAGE, JSON, False),
        ("a label of a pod", "PATCH", f"{pods}/web", label, MERGE, False),
        (
            "an annotation of a pod",
            "PATCH",
            f"{pods}/web",
            {"metadata": {"annotations": {"a": "b"}}},
            MERGE,
            False,
        ),
        ("an owner of a pod", "PATCH", f"{pods}/web", owned, MERGE, False),
        ("a finalizer of others", "PATCH", f"{pods}/web", {"metadata": {"finalizers": None}}, MERGE, False),
        ("a mark of a pod", "PATCH", f"{pods}/web", mark, MERGE, True),
        ("the label of a pod by its status", "PATCH", f"{pods}/web/status", label, MERGE, False),
        (
            "the address of a pod",
            "PATCH",
            f"{pods}/web/status",
            {"status": {"podIP": "1.2.3.4"}},
            MERGE,
            False,
        ),
        ("a condition of a pod", "PATCH", f"{pods}/web/status", failed, MERGE, True),
        (
            "another gate of a pod",
            "PATCH",
            f"{pods}/gated",
            IMAGE,
            "application/strategic-merge-patch+json",
            False,
        ),
        ("letting a pod go", "PATCH", f"{pods}/gated", ungate, MERGE, True),
        ("a label of a job", "PATCH", f"{jobs}/train", label, MERGE, False),
        ("an owner of a job", "PATCH", f"{jobs}/train", owned, MERGE, False),
        (
            "a deadline of a job",
            "PATCH",
            f"{jobs}/train",
            {"spec": {"activeDeadlineSeconds": 1}},
            MERGE,
            False,
        ),
        ("a result of a job", "PATCH", f"{jobs}/train/status", {"status": {"succeeded": 2}}, MERGE, False),
        ("the start time of a job", "PATCH", f"{jobs}/train/status", no_start_time, MERGE, True),
        ("starting a job", "PATCH", f"{jobs}/train", start, MERGE, True),
        ("stopping a job of many parts", "PATCH", f"{jobs}/large", {"spec": {"suspend": False}}, MERGE, True),
        ("deleting a job", "DELETE", f"{jobs}/train", None, MERGE, True),
    ]


def queue_rows(group: str) -> list[tuple[str, str, str, Any, str, bool]]:
    """Calls on kinds that administrators write, as in `rows`."""
    names = names_for(group)
    root = f"/apis/{group}/{names.version}"
    quota = {"spec": {"cohortName": "rich"}}
    labels = {"spec": {"nodeLabels": {"pool": "stolen"}}}
    held = {"metadata": {"finalizers": [names.finalizer]}}
    return [
        ("the cohort of a queue", "PATCH", f"{root}/clusterqueues/cq", quota, MERGE, False),
        (
            "a label of a queue",
            "PATCH",
            f"{root}/clusterqueues/cq",
            {"metadata": {"labels": {"a": "b"}}},
            MERGE,
            False,
        ),
        ("the nodes of a flavor", "PATCH", f"{root}/resourceflavors/default", labels, MERGE, False),
        (
            "a finalizer of others",
            "PATCH",
            f"{root}/clusterqueues/cq",
            {"metadata": {"finalizers": ["a.b/c"]}},
            MERGE,
            False,
        ),
        ("holding a queue", "PATCH", f"{root}/clusterqueues/cq", held, MERGE, True),
        (
            "letting a queue go",
            "PATCH",
            f"{root}/clusterqueues/cq",
            {"metadata": {"finalizers": None}},
            MERGE,
            True,
        ),
        (
            "the status of a queue",
            "PATCH",
            f"{root}/clusterqueues/cq/status",
            {"status": {"pendingWorkloads": 1}},
            MERGE,
            True,
        ),
    ]


def beyond_roles(group: str) -> list[tuple[str, str, Any]]:
    """Calls that no role of the chart allows: method, path, body."""
    core, own, batch = f"/api/v1/namespaces/{TEAM}", f"/apis/{group}", f"/apis/batch/v1/namespaces/{TEAM}"
    version = names_for(group).version
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "node"}}
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    return [
        ("POST", f"{core}/pods/web/exec?command=sh", None),
        ("POST", f"{core}/pods/web/attach", None),
        ("POST", f"{core}/pods/web/portforward", None),
        ("GET", f"{core}/pods/web/log", None),
        ("PATCH", f"{core}/pods/web/ephemeralcontainers", IMAGE),
        ("PATCH", f"{core}/pods/web/resize", IMAGE),
        ("POST", f"{core}/pods/web/eviction", eviction),
        ("POST", f"{core}/pods/web/binding", binding),
        ("POST", f"{core}/pods", pod("new")),
        ("DELETE", f"{core}/pods", None),
        ("PUT", f"{core}/pods/web", pod("web")),
        ("POST", f"{batch}/jobs", job("new")),
        ("PUT", f"{batch}/jobs/train", job("train")),
        ("POST", f"{core}/serviceaccounts/default/token", token),
        ("POST", f"/api/v1/namespaces/{OWN}/serviceaccounts/default/token", token),
        ("GET", f"{core}/secrets", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("GET", f"{core}/configmaps", None),
        ("DELETE", f"{own}/{version}/clusterqueues/cq", None),
        ("POST", f"{own}/{version}/clusterqueues", {"metadata": {"name": "new"}}),
        ("POST", f"{own}/{version}/namespaces/{TEAM}/localqueues", {"metadata": {"name": "new"}}),
        ("DELETE", configurations, None),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"metadata": {"name": "new"}}),
        ("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/other", {}),
        ("PATCH", "/api/v1/nodes/node", {"spec": {"unschedulable": True}}),
    ]


def takes_pods(api: Api, namespace: str) -> bool:
    """Whether the namespace has the ServiceAccount that pods get by default."""
    accounts = api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts")["items"]
    return "default" in {one["metadata"]["name"] for one in accounts}


def prepare(api: Api, group: str) -> None:
    # These pods are never scheduled.
    nowhere = {"nodeSelector": {"nowhere": "true"}, "serviceAccountName": "default"}
    gates = {"schedulingGates": [{"name": names_for(group).admission_gate}]}
    large = job("large")
    large["spec"]["template"]["metadata"] = {"labels": {f"l{at}": "" for at in range(20_000)}}
    large["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": f"E{at}", "value": "x"} for at in range(5_000)
    ]
    for namespace, plural, one in (
        ("kube-system", "pods", pod("system", **nowhere)),
        ("kube-system", "jobs", job("system")),
        (TEAM, "pods", pod("web", **nowhere)),
        (TEAM, "pods", pod("gated", **gates)),
        (TEAM, "jobs", job("train")),
        (TEAM, "jobs", large),
    ):
        root = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        api.request("POST", f"{root}/namespaces/{namespace}/{plural}", one)


def tried_on(kind: Integration, api: Api, thief: Thief, group: str) -> list[str]:
    """Start and stop a job of a kind as the manager does, and change its image; return unexpected answers."""
    root = f"/apis/{kind.api_version}/namespaces/{TEAM}/{kind.plural}"
    given = next(one for one in guide_manifests() if is_of(one, kind))
    stored = api.request("POST", root, kind.with_suspend(in_group(group, given), True))
    stored = kind.templates.resolve(stored, dict.fromkeys(kind.templates.list_references(stored), RUNTIME))
    path, names = f"{root}/{stored['metadata']['name']}", names_for(group)
    started = kind.with_suspend(in_group(group, injected(kind, stored)), False)
    patches = [
        (step.patch, True)
        for job, steps in (
            (stored, kind.lifecycle.plan_start(stored, started, names)),
            (started, kind.lifecycle.plan_stop(started, stored, names)),
        )
        for step in steps
        if step.subresource is None and job
    ]
    images = (place for place in paths_of(stored["spec"]) if place[-1] == "image")
    # A TrainJob has the images of its runtime, unless it names its own.
    changed = with_value(stored["spec"], next(images, ("trainer", "image")), "evil")
    patches.append(({"spec": create_merge_patch(stored["spec"], changed)}, False))
    if "runtimePatches" in SPEC_FIELDS[kind.framework]:
        patches.append(({"spec": {"runtimePatches": [evil_patch(names.trainjob_manager)]}}, False))
    problems: list[str] = []
    for patch, is_allowed in patches:
        status, message = thief.call("PATCH", path, patch)
        # Immutable fields are refused before any policy.
        by_policy = "own-accounts" in message or "field is immutable" in message
        if (status < 300) != is_allowed or by_policy == is_allowed:
            problems.append(f"{kind.kind}: {patch}: {status} {message}")
    return problems


def evil_patch(manager: str) -> dict[str, Any]:
    """A runtime patch of the manager that also changes an image."""
    spec = {"nodeSelector": {"a": "b"}, "containers": [{"name": "node", "image": "evil"}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": spec}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def is_of(manifest: Any, kind: Integration) -> bool:
    return (manifest.get("apiVersion"), manifest.get("kind")) == (kind.api_version, kind.kind)


def in_group(group: str, manifest: Any) -> Any:
    return json.loads(json.dumps(manifest).replace(DEFAULT_GROUP, group))


def tried(rows: list[tuple[str, str, str, Any, str, bool]], thief: Thief, prefix: str) -> list[str]:
    """Make the calls, and return unexpected answers."""
    problems: list[str] = []
    for what, method, path, body, kind, is_allowed in rows:
        status, message = thief.call(method, path, body, kind)
        by_policy = f"ValidatingAdmissionPolicy '{prefix}-own-accounts'" in message and "denied" in message
        if (status < 300) != is_allowed or by_policy == is_allowed:
            problems.append(f"{what}: {status} {message}")
    return problems


@pytest.mark.slow
async def test_stolen_token_changes_only_fields_that_the_manager_writes(
    api_group: str, helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster(())
    prefix = names_for(api_group).installation or "admitq"
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/" + f"{prefix}-own-accounts"
    with cluster.api() as api:
        for namespace in (OWN, TEAM):
            api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for namespace in ("kube-system", TEAM):
            await eventually(lambda at=namespace: takes_pods(api, at))
        prepare(api, api_group)
        crds.install_missing(cluster, [f"{one.plural}.{one.group}" for one in KINDS])
        flags = [f"--set={key}={value}" for key, value in {**VALUES, "apiGroup": api_group}.items()]
        helm("install", "admitq", str(CHART), "--namespace", OWN, *flags, "--wait", cluster=cluster)
        thief = Thief(cluster, f"{prefix}-manager")
        victim = "/api/v1/namespaces/kube-system/pods/system?dryRun=All"
        await eventually(
            lambda: "denied" in thief.call("PATCH", victim, {"metadata": {"labels": {"a": "b"}}})[1]
        )
        own = f"{api_group}/{names_for(api_group).version}"
        for kind, name in (("ClusterQueue", "cq"), ("ResourceFlavor", "default")):
            one = {"apiVersion": own, "kind": kind, "metadata": {"name": name}, "spec": {}}
            api.request("POST", f"/apis/{own}/{kind.lower()}s", one)
        problems = tried(rows(api_group) + queue_rows(api_group), thief, prefix)
        webhook = Thief(cluster, f"{prefix}-webhook")
        for account, caller in (("manager", thief), ("webhook", webhook)):
            for method, path, body in beyond_roles(api_group):
                status, message = caller.call(method, path, body)
                if status != 403 or "cannot" not in message:
                    problems.append(f"{method} {path} by the {account}: {status} {message}")
        problems += [line for kind in KINDS for line in tried_on(kind, api, thief, api_group)]
        assert not problems, "\n".join(problems)

        def is_checked() -> bool:
            checked = api.request("GET", policy)["status"]["typeChecking"]
            assert "expressionWarnings" not in checked, checked
            return True

        await eventually(is_checked)
