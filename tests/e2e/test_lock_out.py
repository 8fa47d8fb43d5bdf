"""No lock-out: while no webhook answers, a cluster can be repaired, whichever namespaces are managed.

The webhook of the releases here has no replicas.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from os import environ
from typing import Any

import pytest

from admitq.integrations.base import MAX_POD_SETS
from admitq_api.labels import GROUPS, names_for
from admitq_webhooks.match_conditions.expressions import MOST_ENTRIES
from localcluster import LocalCluster
from localcluster.api import Api, ApiFailure
from localcluster.waiting import eventually
from tests.e2e.conftest import CHART, REPOSITORY

Helm = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., LocalCluster]

OWN = "admitq-system"
NOT_MANAGED = "platform"
MANAGED = "team"
RUN_SECONDS = "kwok.admitq.dev/run-seconds"
MERGE = "application/merge-patch+json"
PAGE = REPOSITORY / "docs" / "guides" / "break-glass.md"

VALUES = {
    "webhook.timeoutSeconds": 2,
    "config.integrations.frameworks[0]": "pod",
    "config.integrations.frameworks[1]": "batch/job",
    # All namespaces but one. kube-system and the namespace of admitq are always excluded.
    "config.managedJobsNamespaceSelector.matchExpressions[0].key": "kubernetes.io/metadata.name",
    "config.managedJobsNamespaceSelector.matchExpressions[0].operator": "NotIn",
    "config.managedJobsNamespaceSelector.matchExpressions[0].values[0]": NOT_MANAGED,
}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def job(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"annotations": {RUN_SECONDS: "0"}}, "spec": pod("")["spec"]}},
    }


@dataclass(frozen=True)
class UnansweredCluster:
    """A cluster with a release. Its webhooks do not answer."""

    local: LocalCluster
    api: Api
    group: str

    def create(self, resource: str, namespace: str, given: dict[str, Any]) -> Any:
        root = "/apis/batch/v1" if resource == "jobs" else "/api/v1"
        return self.api.request("POST", f"{root}/namespaces/{namespace}/{resource}", given)

    def merge(self, path: str, patch: dict[str, Any]) -> Any:
        return self.api.request("PATCH", path, patch, content_type=MERGE)

    def is_refused(self, call: Callable[..., Any], *given: Any) -> bool:
        try:
            call(*given)
        except ApiFailure as failure:
            return "failed calling webhook" in str(failure)
        return False


@pytest.fixture
async def unanswered(api_group: str, helm: Helm, private_cluster: Start) -> Any:
    cluster = private_cluster()
    with cluster.api() as api:
        for namespace in (OWN, NOT_MANAGED, MANAGED):
            api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for namespace in ("kube-system", OWN, NOT_MANAGED, MANAGED):
            await eventually(
                lambda at=namespace: exists(api, f"/api/v1/namespaces/{at}/serviceaccounts/default")
            )
        state = UnansweredCluster(cluster, api, api_group)
        # A Job and two pods from before the installation: only one pod has a mark of admitq.
        state.create("jobs", MANAGED, job("existing"))
        mark = {names_for(api_group).managed: "true"}
        state.create("pods", MANAGED, pod("unmarked"))
        state.create("pods", MANAGED, pod("marked", labels=mark))
        flags = [f"--set={key}={value}" for key, value in {**VALUES, "apiGroup": api_group}.items()]
        helm("install", "admitq", str(CHART), "--namespace", OWN, *flags, "--wait", cluster=cluster)
        scale = f"/apis/apps/v1/namespaces/{OWN}/deployments/{prefix(api_group)}-webhook/scale"
        state.merge(scale, {"spec": {"replicas": 0}})
        await eventually(lambda: state.is_refused(state.create, "pods", MANAGED, pod("new")))
        yield state


def prefix(group: str) -> str:
    """The prefix of the names of the release's objects."""
    return names_for(group).installation or "admitq"


def exists(api: Api, path: str) -> bool:
    try:
        return bool(api.request("GET", path))
    except ApiFailure:
        return False


async def test_unmanaged_namespaces_jobs_and_nodes_work_when_webhooks_do_not_answer(
    unanswered: UnansweredCluster,
) -> None:
    for namespace in ("kube-system", OWN, NOT_MANAGED):
        unanswered.create("pods", namespace, pod("repair"))
    assert unanswered.is_refused(unanswered.create, "pods", MANAGED, pod("new"))
    assert unanswered.is_refused(unanswered.create, "jobs", MANAGED, job("new"))
    await jobs_are_tracked(unanswered)
    nodes_report(unanswered)
    await pods_without_marks_can_be_updated(unanswered)
    jobs_can_be_stopped_and_started(unanswered)
    largest_workloads_that_are_not_reviewed_can_be_admitted(unanswered)


def jobs_can_be_stopped_and_started(unanswered: UnansweredCluster) -> None:
    """In a managed namespace, updates of a Job are reviewed only if they do more than that."""
    path = f"/apis/batch/v1/namespaces/{MANAGED}/jobs/existing"
    for suspend in (True, False):
        assert unanswered.merge(path, {"spec": {"suspend": suspend}})["spec"]["suspend"] is suspend
    labels = {"metadata": {"labels": {names_for(unanswered.group).queue_name: "q"}}}
    assert unanswered.is_refused(unanswered.merge, path, labels)
    assert unanswered.is_refused(unanswered.merge, path, {"spec": {"parallelism": 2, "suspend": True}})


async def jobs_are_tracked(unanswered: UnansweredCluster) -> None:
    """The Job controller creates pods, counts finished ones and removes its finalizers."""
    unanswered.create("jobs", NOT_MANAGED, job("nightly"))
    root = f"/apis/batch/v1/namespaces/{NOT_MANAGED}/jobs/nightly"

    def is_complete() -> bool:
        conditions = unanswered.api.request("GET", root)["status"].get("conditions", ())
        return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)

    await eventually(is_complete)
    selector = "labelSelector=batch.kubernetes.io/job-name%3Dnightly"
    pods = unanswered.api.request("GET", f"/api/v1/namespaces/{NOT_MANAGED}/pods?{selector}")["items"]
    assert [one["metadata"].get("finalizers") for one in pods] == [None]


def nodes_report(unanswered: UnansweredCluster) -> None:
    """A node renews its Lease and writes its status."""
    name = unanswered.api.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if exists(unanswered.api, lease):
        unanswered.merge(lease, {"spec": {"renewTime": now}})
    else:
        given = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": now}}
        unanswered.api.request("POST", lease.rpartition("/")[0], given)
    images = {"status": {"images": [{"names": ["pulled"], "sizeBytes": 1}]}}
    assert unanswered.merge(f"/api/v1/nodes/{name}/status", images)["status"]["images"]


async def pods_without_marks_can_be_updated(unanswered: UnansweredCluster) -> None:
    """In a managed namespace, updates are reviewed only for pods with a label or annotation of admitq."""
    root = f"/api/v1/namespaces/{MANAGED}/pods"
    finalizers = {"metadata": {"finalizers": ["example.com/tracking"]}}
    assert unanswered.merge(f"{root}/unmarked", finalizers)["metadata"]["finalizers"]
    assert (
        "finalizers"
        not in unanswered.merge(f"{root}/unmarked", {"metadata": {"finalizers": None}})["metadata"]
    )
    names = names_for(unanswered.group)
    assert unanswered.is_refused(unanswered.merge, f"{root}/marked", {"metadata": {"labels": {"a": "b"}}})
    assert unanswered.is_refused(
        unanswered.merge, f"{root}/marked", {"metadata": {"labels": {names.managed: None}}}
    )
    assert unanswered.is_refused(
        unanswered.merge, f"{root}/unmarked", {"metadata": {"labels": {names.managed: "true"}}}
    )
    # A condition that evaluated each of these labels would exceed the cost limit of the API server.
    many = {f"l{number}": "" for number in range(20_000)}
    assert unanswered.merge(f"{root}/unmarked", {"metadata": {"labels": many}})
    assert unanswered.merge(f"{root}/unmarked", {"metadata": {"annotations": {"a": "b"}}})


def largest_workloads_that_are_not_reviewed_can_be_admitted(unanswered: UnansweredCluster) -> None:
    """The API server rejects a request if the evaluation of a match condition exceeds its cost limit."""
    names = names_for(unanswered.group)
    root = f"/apis/{names.api_version}/namespaces/{MANAGED}/workloads"
    amounts = {f"example.com/{number}": "1" for number in range(MOST_ENTRIES)}
    pod_sets = [
        {"name": f"p-{number}", "count": 1, "template": large_template(amounts)}
        for number in range(MAX_POD_SETS)
    ]
    workload = {"apiVersion": names.api_version, "kind": "Workload", "metadata": {"name": "large"}}
    unanswered.api.request("POST", root, {**workload, "spec": {"podSets": pod_sets}})
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    reserved["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assignments = [{"name": each["name"], "count": 1, "resourceUsage": amounts} for each in pod_sets]
    admission = {"clusterQueue": "q", "podSetAssignments": assignments}
    unanswered.merge(f"{root}/large/status", {"status": {"conditions": [reserved], "admission": admission}})
    pod_sets[-1]["template"] = large_template({**amounts, "example.com/further": "1"})
    reviewed = {**workload, "metadata": {"name": "reviewed"}, "spec": {"podSets": pod_sets}}
    assert unanswered.is_refused(unanswered.api.request, "POST", root, reviewed)


def large_template(amounts: dict[str, str]) -> dict[str, Any]:
    """A pod template with as many containers, labels and annotations as may not be reviewed."""
    values = {f"example.com/{number:048}": "v" * 63 for number in range(MOST_ENTRIES)}
    resources = {"requests": amounts, "limits": amounts}
    containers = [
        {"name": f"c-{number}", "image": "i", "resources": resources} for number in range(MOST_ENTRIES)
    ]
    spec = {"restartPolicy": "Never", "containers": containers, "initContainers": containers}
    return {"metadata": {"labels": values, "annotations": values}, "spec": spec}


def commands() -> Iterator[list[str]]:
    """The commands of the break-glass page, in order."""
    for text in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for line in text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


async def test_commands_of_the_break_glass_page_let_jobs_through_and_restore_the_webhooks(
    unanswered: UnansweredCluster,
) -> None:
    if unanswered.group != GROUPS[0]:
        pytest.skip("the page is written for admitq's own group")
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    executed: list[str] = []
    created_jobs = 0
    for words in commands():
        run(words, unanswered)
        executed.append(" ".join(words))
        if "failurePolicy=Ignore" in executed[-1] or words[:2] == ["kubectl", "delete"]:
            name = f"through-{created_jobs}"
            await eventually(
                lambda at=name: not unanswered.is_refused(unanswered.create, "jobs", MANAGED, job(at))
            )
            created_jobs += 1
        elif "failurePolicy=Fail" in executed[-1]:
            assert unanswered.api.request("GET", configurations)["items"]
            await eventually(lambda: unanswered.is_refused(unanswered.create, "jobs", MANAGED, job("late")))
    assert created_jobs >= 2, executed


def run(words: list[str], unanswered: UnansweredCluster) -> None:
    program = str(unanswered.local.program(words[0]))
    done = subprocess.run(
        [program, *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**environ, **unanswered.local.environment()},
        timeout=60,
    )
    assert done.returncode == 0, (words, done.stderr)
