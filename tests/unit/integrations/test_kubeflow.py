"""TFJob, PyTorchJob, XGBoostJob, PaddleJob, JAXJob and MPIJob, which share most of their code."""

from typing import Any

import pytest

from admitq.integrations.base import Integration, JobOutcome, RuleContext
from admitq.integrations.kinds.kubeflow import JAX_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.field_errors import ErrorPath
from admitq_api.labels import names_for

NAMES = names_for()

SPECS = {
    "tfjobs": "tfReplicaSpecs",
    "pytorchjobs": "pytorchReplicaSpecs",
    "xgboostjobs": "xgbReplicaSpecs",
    "paddlejobs": "paddleReplicaSpecs",
    "jaxjobs": "jaxReplicaSpecs",
    "mpijobs": "mpiReplicaSpecs",
}
KINDS = (TF_JOB, PYTORCH_JOB, XGBOOST_JOB, PADDLE_JOB, JAX_JOB, MPI_JOB)


def job(kind: Integration, roles: Any, status: Any = None, policy: Any = None) -> Any:
    return {
        "metadata": {"name": "j"},
        "spec": {SPECS[kind.plural]: roles, "runPolicy": policy or {}},
        "status": status or {},
    }


def pods(priority_class: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c"}]}
    return {"template": {"spec": {**spec, "priorityClassName": priority_class} if priority_class else spec}}


@pytest.mark.parametrize(
    ("kind", "framework", "version", "controller", "adopts"),
    [
        (TF_JOB, "kubeflow.org/tfjob", "v1", "kubeflow.org/training-operator", True),
        (PYTORCH_JOB, "kubeflow.org/pytorchjob", "v1", "kubeflow.org/training-operator", True),
        (XGBOOST_JOB, "kubeflow.org/xgboostjob", "v1", "kubeflow.org/training-operator", True),
        (PADDLE_JOB, "kubeflow.org/paddlejob", "v1", "kubeflow.org/training-operator", True),
        (JAX_JOB, "kubeflow.org/jaxjob", "v1", "kubeflow.org/training-operator", False),
        (MPI_JOB, "kubeflow.org/mpijob", "v2beta1", "kubeflow.org/mpi-operator", True),
    ],
)
def test_kubeflow_kind_declares_framework_version_and_controller(
    kind: Any, framework: Any, version: Any, controller: Any, adopts: Any
) -> None:
    assert (kind.framework, kind.group, kind.version) == (framework, "kubeflow.org", version)
    assert (kind.delegation.own_controller, kind.delegation.adopts_prebuilt_workload) == (controller, adopts)
    assert kind.delegation.managed_by_path == ("spec", "runPolicy", "managedBy")
    suspended = kind.with_suspend({}, True)
    assert suspended == {"spec": {"runPolicy": {"suspend": True}}}
    assert kind.is_suspended(suspended, NAMES)


@pytest.mark.parametrize(
    ("kind", "roles", "pod_sets"),
    [
        (
            TF_JOB,
            ["Evaluator", "Worker", "PS", "Master", "Chief"],
            ["chief", "master", "ps", "worker", "evaluator"],
        ),
        (PYTORCH_JOB, ["Worker", "Master"], ["master", "worker"]),
        (XGBOOST_JOB, ["Worker", "Master"], ["master", "worker"]),
        (PADDLE_JOB, ["Worker", "Master"], ["master", "worker"]),
        (JAX_JOB, ["Worker"], ["worker"]),
        (JAX_JOB, ["Worker", "Master"], ["worker"]),
        (MPI_JOB, ["Worker", "Launcher"], ["launcher", "worker"]),
        (MPI_JOB, ["Launcher"], ["launcher"]),
        (PYTORCH_JOB, ["worker", "MASTER"], ["master", "worker"]),
        (MPI_JOB, ["Launcher", "worker"], ["launcher"]),
        (PYTORCH_JOB, [], []),
    ],
)
def test_kubeflow_podsets_are_existing_roles_in_order_of_the_kind(
    kind: Any, roles: Any, pod_sets: Any
) -> None:
    kubeflow_job = job(kind, {role: pods() for role in roles})
    listed = kind.list_pod_sets(kubeflow_job, NAMES)
    assert [pod_set.name for pod_set in listed] == pod_sets
    assert all(pod_set.get_template(kubeflow_job) for pod_set in listed)


@pytest.mark.parametrize(("replicas", "count"), [(3, 3), (0, 0), (None, 1), ("3", 1), (-1, 0)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_kubeflow_podset_count_is_replicas_or_one(kind: Any, replicas: Any, count: Any) -> None:
    [worker] = kind.list_pod_sets(job(kind, {"Worker": {"replicas": replicas, **pods()}}), NAMES)
    assert worker.count == count


def test_kubeflow_template_path_names_the_role() -> None:
    [worker] = PYTORCH_JOB.list_pod_sets(job(PYTORCH_JOB, {"Worker": pods()}), NAMES)
    assert str(ErrorPath().at(*worker.template_path)) == "spec.pytorchReplicaSpecs[Worker].template"


def condition(condition_type: str, status: str = "True", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": condition_type, "status": status, "message": message}]}


@pytest.mark.parametrize(
    ("status", "outcome", "ready"),
    [
        ({}, None, False),
        (condition("Created"), None, False),
        (condition("Running"), None, True),
        (condition("Running", "False"), None, False),
        (condition("Restarting"), None, False),
        (condition("Suspended"), None, False),
        (condition("Succeeded", message="done"), JobOutcome(True, "done"), False),
        (condition("Succeeded", "False"), None, False),
        (condition("Failed", message="no"), JobOutcome(False, "no"), False),
    ],
)
def test_kubeflow_outcome_and_readiness_follow_conditions(status: Any, outcome: Any, ready: Any) -> None:
    kubeflow_job = job(PYTORCH_JOB, {"Worker": pods()}, status)
    assert PYTORCH_JOB.find_outcome(kubeflow_job) == outcome
    assert PYTORCH_JOB.are_pods_ready(kubeflow_job) is ready


@pytest.mark.parametrize(
    ("statuses", "active"),
    [
        ({}, False),
        ({"Worker": {}}, False),
        ({"Worker": {"active": 0, "succeeded": 2}}, False),
        ({"Launcher": {"active": 1}, "Worker": {"active": 0}}, True),
        ({"Worker": {"active": "1"}}, False),
        (None, False),
    ],
)
def test_kubeflow_job_is_active_while_any_role_has_active_pods(statuses: Any, active: Any) -> None:
    assert MPI_JOB.is_active(job(MPI_JOB, {}, {"replicaStatuses": statuses})) is active


@pytest.mark.parametrize(
    ("policy", "launcher", "worker", "expected"),
    [
        ({"schedulingPolicy": {"priorityClass": "policy"}}, "launcher", "worker", "policy"),
        ({"schedulingPolicy": {}}, "launcher", "worker", "launcher"),
        ({}, "", "worker", "worker"),
        ({}, "", "", None),
        ({"schedulingPolicy": {"priorityClass": 7}}, "", "worker", "worker"),
    ],
)
def test_kubeflow_priority_class_comes_from_policy_then_from_first_role(
    policy: Any, launcher: Any, worker: Any, expected: Any
) -> None:
    roles = {"Worker": pods(worker), "Launcher": pods(launcher)}
    assert MPI_JOB.templates.find_priority_class(job(MPI_JOB, roles, policy=policy)) == expected


OFFSET = {NAMES.pod_index_offset: "1"}


@pytest.mark.parametrize(
    ("is_launcher_worker", "gate", "roles", "annotations"),
    [
        (True, True, ("Launcher", "Worker"), OFFSET),
        (True, False, ("Launcher", "Worker"), {}),
        (False, True, ("Launcher", "Worker"), {}),
        (None, True, ("Launcher", "Worker"), {}),
        (True, True, ("Launcher",), {}),
    ],
)
def test_mpijob_workers_get_index_offset_if_launcher_is_a_worker(
    is_launcher_worker: Any, gate: Any, roles: Any, annotations: Any
) -> None:
    before = job(MPI_JOB, {role: pods() for role in roles})
    before["spec"]["runLauncherAsWorker"] = is_launcher_worker
    rules = RuleContext(NAMES, FeatureGates({Gate.TOPOLOGY_AWARE_SCHEDULING: gate}))
    after = MPI_JOB.webhook.mutate(before, rules)
    metadata = after["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("template", {}).get("metadata", {})
    assert metadata.get("annotations", {}) == annotations
    assert MPI_JOB.webhook.mutate(after, rules) == after


def test_only_mpijob_among_kubeflow_kinds_may_create_jobs() -> None:
    child = {"apiVersion": "batch/v1", "kind": "Job"}
    pod = {"apiVersion": "v1", "kind": "Pod"}
    assert [kind.kind for kind in KINDS if kind.may_create_kind_of(child)] == ["MPIJob"]
    assert all(kind.may_create_kind_of(pod) for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "child", "name", "is_child"),
    [
        (PYTORCH_JOB, "Pod", "j-worker-0", True),
        (PYTORCH_JOB, "Pod", "j-worker-1", True),
        (PYTORCH_JOB, "Pod", "j-worker-2", False),
        (PYTORCH_JOB, "Pod", "j-worker-", False),
        (PYTORCH_JOB, "Pod", "j-worker-x", False),
        (PYTORCH_JOB, "Pod", "j-master-0", False),
        (PYTORCH_JOB, "Pod", "k-worker-0", False),
        (PYTORCH_JOB, "Pod", None, False),
        (MPI_JOB, "Pod", "j-worker-1", True),
        (MPI_JOB, "Pod", "forged", False),
        (MPI_JOB, "Job", "j-launcher", True),
        (MPI_JOB, "Job", "j-worker-1", False),
    ],
)
def test_kubeflow_child_must_have_the_name_of_a_replica(
    kind: Any, child: Any, name: Any, is_child: Any
) -> None:
    owner = job(kind, {"Launcher": {**pods()}, "Worker": {"replicas": 2, **pods()}})
    assert kind.may_have_created(owner, {"kind": child, "metadata": {"name": name}}) is is_child
