from typing import Any

import pytest

from admitq.integrations.base import JobOutcome
from admitq.integrations.kinds.appwrapper import APP_WRAPPER
from admitq.workloads import template_injection
from admitq.workloads.template_injection import PodSetInfo
from admitq_api.field_errors import ErrorPath
from admitq_api.labels import names_for
from admitq_api.syntax import check_dns_label

NAMES = names_for()
PODS = {"spec": {"containers": [{"name": "c"}]}}


def wrapper(*components: Any, status: Any = None, name: str = "w") -> Any:
    return {"metadata": {"name": name}, "spec": {"components": list(components)}, "status": status or {}}


def component(api_version: str, kind: str, spec: Any, **fields: Any) -> Any:
    template = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "t"}, "spec": spec}
    return {"template": template, **fields}


JOB = component("batch/v1", "Job", {"parallelism": 3, "completions": 2, "template": PODS})
RAY = {
    "headGroupSpec": {"template": PODS},
    "workerGroupSpecs": [{"replicas": 4, "template": PODS}, {}, {"template": PODS}],
}


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (component("v1", "Pod", PODS["spec"]), [(1, "")]),
        (component("v1", "Service", {}), []),
        (component("apps/v1", "Deployment", {"replicas": 3, "template": PODS}), [(3, ".spec.template")]),
        (component("apps/v1", "StatefulSet", {"template": PODS}), [(1, ".spec.template")]),
        (component("apps/v1", "Deployment", {"replicas": 3}), []),
        (JOB, [(2, ".spec.template")]),
        (component("batch/v1", "Job", {"template": PODS}), [(1, ".spec.template")]),
        (component("batch/v1", "Job", {"completions": 5, "template": PODS}), [(1, ".spec.template")]),
        (component("batch/v2", "Job", {"template": PODS}), []),
        (
            component(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                {
                    "replicatedJobs": [
                        {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": PODS}}},
                        {"template": {"spec": {"template": PODS}}},
                        {"replicas": 2},
                    ]
                },
            ),
            [
                (6, ".spec.replicatedJobs[0].template.spec.template"),
                (1, ".spec.replicatedJobs[1].template.spec.template"),
            ],
        ),
        (
            component(
                "kubeflow.org/v1",
                "PyTorchJob",
                {
                    "pytorchReplicaSpecs": {
                        "Worker": {"replicas": 5, "template": PODS},
                        "Master": {"template": PODS},
                    }
                },
            ),
            [
                (1, ".spec.pytorchReplicaSpecs.Master.template"),
                (5, ".spec.pytorchReplicaSpecs.Worker.template"),
            ],
        ),
        (
            component("ray.io/v1", "RayCluster", RAY),
            [
                (1, ".spec.headGroupSpec.template"),
                (4, ".spec.workerGroupSpecs[0].template"),
                (1, ".spec.workerGroupSpecs[2].template"),
            ],
        ),
        (
            component("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}),
            [
                (1, ".spec.rayClusterSpec.headGroupSpec.template"),
                (4, ".spec.rayClusterSpec.workerGroupSpecs[0].template"),
                (1, ".spec.rayClusterSpec.workerGroupSpecs[2].template"),
            ],
        ),
        (
            component(
                "example.com/v1",
                "Thing",
                {"tasks": [{"pod": PODS}, {"pod": PODS}]},
                podSets=[
                    {"path": "template.spec.tasks[1].pod", "replicas": 7},
                    {"path": "template.spec.tasks[0].pod"},
                ],
            ),
            [(7, ".spec.tasks[1].pod"), (1, ".spec.tasks[0].pod")],
        ),
    ],
)
def test_appwrapper_podsets_are_declared_paths_or_templates_of_known_kinds(
    wrapped: Any, expected: Any
) -> None:
    job = wrapper(wrapped)
    pod_sets = APP_WRAPPER.list_pod_sets(job, NAMES)
    paths = [(pod_set.count, str(ErrorPath().at(*pod_set.template_path))) for pod_set in pod_sets]
    assert paths == [(count, f"spec.components[0].template{path}") for count, path in expected]
    assert [pod_set.get_template(job)["spec"] for pod_set in pod_sets] == [PODS["spec"]] * len(expected)


def test_appwrapper_podsets_are_numbered_across_components() -> None:
    pod_sets = APP_WRAPPER.list_pod_sets(wrapper(JOB, component("v1", "Service", {}), JOB), NAMES)
    assert [pod_set.name for pod_set in pod_sets] == ["w-0", "w-1"]


@pytest.mark.parametrize("name", ["a.b", "a" * 253, "a" * 60 + "-.b", "1"])
def test_appwrapper_podset_name_is_a_valid_label(name: Any) -> None:
    [pod_set] = APP_WRAPPER.list_pod_sets(wrapper(JOB, name=name), NAMES)
    assert check_dns_label(pod_set.name) is None


@pytest.mark.parametrize(
    "path", ["", "template.spec[", "spec.template", "template.spec.nothing", "template[99999]"]
)
def test_appwrapper_podset_with_invalid_path_has_empty_template(path: Any) -> None:
    job = wrapper({**JOB, "podSets": [{"path": path, "replicas": 3}]})
    [pod_set] = APP_WRAPPER.list_pod_sets(job, NAMES)
    assert (pod_set.count, pod_set.get_template(job)) == (3, {})


POD_SET_INFO = PodSetInfo(
    "",
    1,
    node_selector={"pool": "spot"},
    tolerations=({"key": "spot", "operator": "Exists"},),
    labels={"own": "l"},
    annotations={"own": "a"},
    scheduling_gates=("gate",),
)


def test_appwrapper_injection_writes_podset_infos_and_keeps_component() -> None:
    job = wrapper(component("v1", "Service", {}), component("ray.io/v1", "RayCluster", RAY))
    worker = APP_WRAPPER.list_pod_sets(job, NAMES)[1]
    running = APP_WRAPPER.templates.with_template(
        job, worker, template_injection.inject_into_template(worker.get_template(job), POD_SET_INFO), NAMES
    )
    service, cluster = running["spec"]["components"]
    assert service == job["spec"]["components"][0]
    assert cluster["template"] == job["spec"]["components"][1]["template"]
    assert cluster["podSetInfos"] == [
        {},
        {
            "labels": {"own": "l"},
            "annotations": {"own": "a"},
            "nodeSelector": {"pool": "spot"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "schedulingGates": [{"name": "gate"}],
        },
        {},
    ]
    worker = APP_WRAPPER.list_pod_sets(running, NAMES)[1]
    assert APP_WRAPPER.templates.with_template(running, worker, PODS, NAMES) == job


def test_appwrapper_podset_infos_of_user_survive_restore() -> None:
    own = {"labels": {"team": "a"}, "tolerations": [{"key": "own"}]}
    job = wrapper({**JOB, "podSetInfos": [own]})
    [pod_set] = APP_WRAPPER.list_pod_sets(job, NAMES)
    original = pod_set.get_template(job)
    assert original["metadata"]["labels"] == {"team": "a"}
    running = APP_WRAPPER.templates.with_template(
        job, pod_set, template_injection.inject_into_template(original, POD_SET_INFO), NAMES
    )
    assert APP_WRAPPER.templates.with_template(running, pod_set, original, NAMES) == job


def conditions(**statuses: str) -> list[dict[str, str]]:
    return [{"type": name, "status": status} for name, status in statuses.items()]


@pytest.mark.parametrize(
    ("status", "outcome", "active", "ready"),
    [
        ({}, None, False, False),
        ({"phase": "Suspended", "conditions": conditions(QuotaReserved="False")}, None, False, False),
        (
            {"phase": "Resuming", "conditions": conditions(QuotaReserved="True", PodsReady="False")},
            None,
            True,
            False,
        ),
        (
            {"phase": "Running", "conditions": conditions(QuotaReserved="True", PodsReady="True")},
            None,
            True,
            True,
        ),
        ({"phase": "Suspending", "conditions": conditions(QuotaReserved="True")}, None, True, False),
        (
            {"phase": "Succeeded", "conditions": conditions(QuotaReserved="False", ResourcesDeployed="True")},
            JobOutcome(True, "AppWrapper finished successfully"),
            False,
            False,
        ),
        (
            {"phase": "Failed", "conditions": conditions(QuotaReserved="True", ResourcesDeployed="True")},
            None,
            True,
            False,
        ),
        (
            {"phase": "Failed", "conditions": conditions(QuotaReserved="False", ResourcesDeployed="False")},
            JobOutcome(False, "AppWrapper failed"),
            False,
            False,
        ),
    ],
)
def test_appwrapper_state_follows_phase_and_conditions(
    status: Any, outcome: Any, active: Any, ready: Any
) -> None:
    job = wrapper(JOB, status=status)
    assert APP_WRAPPER.find_outcome(job) == outcome
    assert APP_WRAPPER.is_active(job) is active
    assert APP_WRAPPER.are_pods_ready(job) is ready


@pytest.mark.parametrize(
    ("child", "is_child"),
    [
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t"}}, True),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged"}}, False),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}}, False),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t"}}, False),
        ({}, False),
    ],
)
def test_appwrapper_creates_only_its_components(child: Any, is_child: Any) -> None:
    assert APP_WRAPPER.may_have_created(wrapper(JOB), child) is is_child


def test_appwrapper_component_with_generated_name_is_recognized() -> None:
    wrapped = {"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "t-"}}}
    child = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t-x", "generateName": "t-"}}
    assert APP_WRAPPER.may_have_created(wrapper(wrapped), child)
