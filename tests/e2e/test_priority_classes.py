"""The chart's policy restricts which users may use a priority class, wherever the class is named."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from admitq.integrations.registry import list_framework_names
from admitq_api.labels import names_for
from localcluster import LocalCluster, crds, processes
from tests.e2e.conftest import CHART

Helm = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., LocalCluster]

RBAC = "rbac.authorization.k8s.io"
FORBIDDEN = 403
LEAD, USER, CONTROLLER = "lead", "user", "system:serviceaccount:kube-system:cronjob-controller"
GROUPS_OF = {LEAD: ["leads"], USER: ["team"], CONTROLLER: ["system:serviceaccounts:kube-system"]}

VALUES = {
    "webhook.url": "https://127.0.0.1:1",
    "visibility.enabled": "false",
    "webhook.failurePolicy": "Ignore",
    "priorityClassPolicy.enabled": "true",
    "priorityClassPolicy.workloadPriorityClasses.urgent.groups[0]": "leads",
    "priorityClassPolicy.workloadPriorityClasses.never.users[0]": "unknown-user",
    "priorityClassPolicy.priorityClasses.critical.groups[0]": "leads",
    **{f"config.integrations.frameworks[{at}]": name for at, name in enumerate(list_framework_names())},
}


def template(label: str, **classes: str) -> dict[str, Any]:
    """A pod template that names classes: ``by_label`` and ``by_name``."""
    labels = {"app": "a", **({label: classes["by_label"]} if "by_label" in classes else {})}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    if "by_name" in classes:
        spec["priorityClassName"] = classes["by_name"]
    return {"metadata": {"labels": labels}, "spec": spec}


class Call(NamedTuple):
    """The creation of an object, or a change of a Job."""

    what: str
    user: str
    path: str
    body: dict[str, Any]
    is_allowed: bool
    method: str = "POST"


def job(name: str, pods: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"suspend": True, "template": pods}}


def rows(label: str) -> list[Call]:
    jobs = "/apis/batch/v1/namespaces/team/jobs"
    plain, classes = template(label), template(label, by_name="critical")
    cron = {"schedule": "@daily", "jobTemplate": job("", plain, **{label: "urgent"})}
    always = {**classes, "spec": {**classes["spec"], "restartPolicy": "Always"}}
    marked = template(label, by_label="urgent")
    marked["spec"]["restartPolicy"] = "Always"
    selector = {"matchLabels": {"app": "a"}}
    # Kinds of other projects need apiVersion and kind in the body.
    a_jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a"}}
    a_pytorchjob = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}}
    jobset = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": classes}}}]}
    replicas = {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": classes}}
    scheduling = {"schedulingPolicy": {"priorityClass": "critical"}}
    kubeflow, apps = "/apis/kubeflow.org/v1/namespaces/team", "/apis/apps/v1/namespaces/team"
    sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
    free = {"Worker": {**replicas["Worker"], "template": plain}}
    return [
        Call("a class of the lead", LEAD, jobs, job("a", plain, **{label: "urgent"}), True),
        Call("a class of the lead", USER, jobs, job("b", plain, **{label: "urgent"}), False),
        Call("a class without users", LEAD, jobs, job("c", plain, **{label: "never"}), False),
        Call("a free class", USER, jobs, job("d", plain, **{label: "low"}), True),
        Call("no class", USER, jobs, job("e", plain), True),
        Call("no labels", USER, jobs, {**job("f", plain), "metadata": {"name": "f"}}, True),
        Call(
            "adding a class", USER, f"{jobs}/e", {"metadata": {"labels": {label: "urgent"}}}, False, "PATCH"
        ),
        Call(
            "adding a free class", USER, f"{jobs}/e", {"metadata": {"labels": {label: "low"}}}, True, "PATCH"
        ),
        Call("another change", USER, f"{jobs}/a", {"metadata": {"labels": {"a": "b"}}}, True, "PATCH"),
        Call("removing a class", USER, f"{jobs}/a", {"metadata": {"labels": {label: None}}}, True, "PATCH"),
        Call(
            "taking it again", USER, f"{jobs}/a", {"metadata": {"labels": {label: "urgent"}}}, False, "PATCH"
        ),
        Call("a class of pods", USER, jobs, job("g", classes), False),
        Call("a class of pods", LEAD, jobs, job("g", classes), True),
        Call(
            "a CronJob",
            USER,
            "/apis/batch/v1/namespaces/team/cronjobs",
            {"metadata": {"name": "a"}, "spec": cron},
            False,
        ),
        Call("a Job of a controller", CONTROLLER, jobs, job("h", classes, **{label: "urgent"}), True),
        Call(
            "a pod",
            USER,
            "/api/v1/namespaces/team/pods",
            {**marked, "metadata": {**marked["metadata"], "name": "p"}},
            False,
        ),
        Call(
            "a Deployment",
            USER,
            f"{apps}/deployments",
            {"metadata": {"name": "a"}, "spec": {"selector": selector, "template": marked}},
            False,
        ),
        Call(
            "a Deployment's pods",
            USER,
            f"{apps}/deployments",
            {"metadata": {"name": "a"}, "spec": {"selector": selector, "template": always}},
            False,
        ),
        Call("a JobSet", USER, sets, {**a_jobset, "spec": jobset}, False),
        Call("a JobSet", LEAD, sets, {**a_jobset, "spec": jobset}, True),
        Call(
            "a PyTorchJob",
            USER,
            f"{kubeflow}/pytorchjobs",
            {**a_pytorchjob, "spec": {"pytorchReplicaSpecs": replicas}},
            False,
        ),
        Call(
            "a run policy",
            USER,
            f"{kubeflow}/pytorchjobs",
            {**a_pytorchjob, "spec": {"runPolicy": scheduling, "pytorchReplicaSpecs": free}},
            False,
        ),
        Call(
            "a free PyTorchJob",
            USER,
            f"{kubeflow}/pytorchjobs",
            {**a_pytorchjob, "spec": {"pytorchReplicaSpecs": free}},
            True,
        ),
    ]


@pytest.mark.core
def test_only_permitted_users_name_a_priority_class(
    api_group: str, helm: Helm, private_cluster: Start
) -> None:
    cluster = private_cluster(())
    crds.install_missing(cluster, ["jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org"])
    with cluster.api() as api:
        for namespace in ("admitq-system", "team"):
            api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        subjects = [{"kind": "User", "name": name, "apiGroup": RBAC} for name in GROUPS_OF]
        role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC}
        binding = {"metadata": {"name": "everyone"}, "subjects": subjects, "roleRef": role}
        api.request("POST", f"/apis/{RBAC}/v1/clusterrolebindings", binding)
        critical = {"metadata": {"name": "critical"}, "value": 1000}
        api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", critical)
        flags = [f"--set={key}={value}" for key, value in {**VALUES, "apiGroup": api_group}.items()]
        helm(
            "install", "admitq", str(CHART), "--namespace", "admitq-system", *flags, "--wait", cluster=cluster
        )
        label = names_for(api_group).priority_class
        probe = Call("", USER, "/apis/batch/v1/namespaces/team/jobs?dryRun=All", {}, False)
        probe = probe._replace(body=job("probe", template(label), **{label: "urgent"}))
        accounts = "/api/v1/namespaces/team/serviceaccounts"
        assert processes.wait(lambda: bool(api.request("GET", accounts)["items"]), timeout_s=30.0)
        assert processes.wait(lambda: call(cluster, probe)[0] == FORBIDDEN, timeout_s=30.0)
        problems = [
            f"{row.what} by {row.user}: {status} {message}"
            for row in rows(label)
            for status, message in (call(cluster, row),)
            if (status < 300) != row.is_allowed
            or (not row.is_allowed and f"{row.user} may not use priority class" not in message)
        ]
        assert not problems, "\n".join(problems)


def call(cluster: LocalCluster, request: Call) -> tuple[int, str]:
    """Make the call as a user; return the status of the answer, and its message."""
    pair, address = cluster.admin, urlsplit(cluster.server)
    context = ssl.create_default_context(cafile=str(cluster.authority))
    context.load_cert_chain(pair.certificate, pair.key)
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port, context=context, timeout=30
    )
    patches = request.method == "PATCH"
    connection.putrequest(request.method, request.path)
    for group in (*GROUPS_OF[request.user], "system:authenticated"):
        connection.putheader("Impersonate-Group", group)
    payload = json.dumps(request.body).encode()
    for header, value in {
        "Impersonate-User": request.user,
        "Content-Type": "application/merge-patch+json" if patches else "application/json",
        "Content-Length": str(len(payload)),
    }.items():
        connection.putheader(header, value)
    connection.endheaders(payload)
    answer = connection.getresponse()
    read = json.loads(answer.read())
    connection.close()
    return answer.status, str(read.get("message", ""))
