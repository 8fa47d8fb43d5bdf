"""Topology requests of Workloads from the annotations of pod templates."""

from typing import Any

import pytest

from admitq.controllers.settings import WorkloadConventions, settings_of
from admitq.integrations.base import CompositionOptions, Integration
from admitq.integrations.kinds.appwrapper import APP_WRAPPER
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.kubeflow import PYTORCH_JOB
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.workloads.job_workloads import InvalidTopologyRequest, new_workload
from admitq.workloads.topology_annotations import TopologyRules, create_topology_request
from admitq_api.configuration import Configuration
from admitq_api.feature_gates import FeatureGates
from admitq_api.labels import names_for
from tests.unit.workloads.sources import Source, lookups

NAMES = names_for()
REQUIRED, PREFERRED = NAMES.podset_required_topology, NAMES.podset_preferred_topology
UNCONSTRAINED, GROUP = NAMES.podset_unconstrained_topology, NAMES.podset_group_name
SLICE, SIZE = NAMES.podset_slice_required_topology, NAMES.podset_slice_size
CONSTRAINTS = NAMES.podset_slice_required_topology_constraints

LAYERS = '[{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]'
LAYER_REQUEST = {
    "podsetSliceRequiredTopologyConstraints": [
        {"topology": "block", "size": 4},
        {"topology": "rack", "size": 2},
    ]
}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {}),
        ({"example.com/other": "x", NAMES.pod_index_offset: "1"}, {}),
        ({REQUIRED: "cloud.example.com/rack"}, {"required": "cloud.example.com/rack"}),
        ({PREFERRED: "rack"}, {"preferred": "rack"}),
        ({UNCONSTRAINED: "true"}, {"unconstrained": True}),
        ({UNCONSTRAINED: "1"}, {"unconstrained": True}),
        ({UNCONSTRAINED: "False"}, {"unconstrained": False}),
        ({SLICE: "rack", SIZE: "2"}, {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}),
        (
            {REQUIRED: "block", SLICE: "rack", SIZE: "02"},
            {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
        ),
        ({CONSTRAINTS: LAYERS}, LAYER_REQUEST),
        ({PREFERRED: "block", CONSTRAINTS: LAYERS}, {"preferred": "block", **LAYER_REQUEST}),
        ({PREFERRED: "rack", GROUP: "g"}, {"preferred": "rack", "podSetGroupName": "g"}),
        ({UNCONSTRAINED: "perhaps", SIZE: "two", CONSTRAINTS: "{}", REQUIRED: ["rack"]}, {}),
    ],
)
def test_topology_request_has_fields_of_annotations(annotations: Any, expected: dict[str, Any]) -> None:
    assert create_topology_request(annotations, NAMES, TopologyRules()) == expected


def test_layers_of_slices_are_ignored_without_feature_gate() -> None:
    rules = TopologyRules(has_layers=False)
    assert create_topology_request({CONSTRAINTS: LAYERS}, NAMES, rules) == {}


# --- kinds ----------------------------------------------------------------------------------------------


def template(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


IN_RACK = template(**{REQUIRED: "rack"})
NEAR = template(**{PREFERRED: "block"})
SPREAD = template(**{UNCONSTRAINED: "true"})
GROUPED = template(**{REQUIRED: "rack", GROUP: "g"})

RACK: dict[str, Any] = {"required": "rack"}
BLOCK: dict[str, Any] = {"preferred": "block"}
ANYWHERE: dict[str, Any] = {"unconstrained": True}
RACK_OF_GROUP: dict[str, Any] = {"required": "rack", "podSetGroupName": "g"}

COMPLETION = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
REPLICA = {"podIndexLabel": "training.kubeflow.org/replica-index"}
WORKER = {"podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index"}
IN_JOBSET = {**COMPLETION, "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index"}


def replicated(name: str, pods: Any, replicas: int = 1) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 2, "template": pods}}}


def trained(pods: Any) -> Any:
    job = {"metadata": {"namespace": "ns"}, "spec": {"runtimeRef": {"name": "r"}}}
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": [replicated("node", pods)]}}}}
    [reference] = TRAIN_JOB.templates.list_references(job)
    return TRAIN_JOB.templates.resolve(job, {reference: runtime})


def ray_cluster(head: Any, worker: Any) -> dict[str, Any]:
    return {
        "headGroupSpec": {"template": head},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": worker}],
    }


def pod_group(*pods: dict[str, Any]) -> Any:
    assert POD.composition is not None
    members = [
        {
            **pod,
            "metadata": {
                "name": f"p{index}",
                "namespace": "ns",
                "uid": f"u{index}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {NAMES.pod_group_name: "g", NAMES.managed: "true"},
                "annotations": {
                    NAMES.pod_group_total_count: str(len(pods)),
                    NAMES.role_hash: f"r{index}",
                    **pod["metadata"]["annotations"],
                },
            },
            "status": {"phase": "Pending"},
        }
        for index, pod in enumerate(pods)
    ]
    return POD.composition.compose(members, NAMES, CompositionOptions(0))


OF_KINDS: list[Any] = [
    (JOB, {"spec": {"template": IN_RACK}}, {"main": {**COMPLETION, **RACK}}),
    (
        JOBSET,
        {"spec": {"replicatedJobs": [replicated("a", IN_RACK), replicated("b", NEAR, 3)]}},
        {
            "a": {**IN_JOBSET, "subGroupCount": 1, **RACK},
            "b": {**IN_JOBSET, "subGroupCount": 3, **BLOCK},
        },
    ),
    (
        MPI_JOB,
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": GROUPED}, "Worker": {"template": GROUPED}}}},
        {"launcher": {**REPLICA, **RACK_OF_GROUP}, "worker": {**REPLICA, **RACK_OF_GROUP}},
    ),
    (
        PYTORCH_JOB,
        {"spec": {"pytorchReplicaSpecs": {"Master": {"template": NEAR}, "Worker": {"template": IN_RACK}}}},
        {"master": {**REPLICA, **BLOCK}, "worker": {**REPLICA, **RACK}},
    ),
    (RAY_CLUSTER, {"spec": ray_cluster(NEAR, IN_RACK)}, {"head": BLOCK, "w": RACK}),
    (
        RAY_JOB,
        {
            "spec": {
                "rayClusterSpec": ray_cluster(NEAR, IN_RACK),
                "submitterPodTemplate": SPREAD,
            }
        },
        {"head": BLOCK, "w": RACK, "submitter": ANYWHERE},
    ),
    (RAY_SERVICE, {"spec": {"rayClusterConfig": ray_cluster(NEAR, IN_RACK)}}, {"head": BLOCK, "w": RACK}),
    (
        APP_WRAPPER,
        {
            "metadata": {"name": "a"},
            "spec": {
                "components": [
                    {"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": IN_RACK}}},
                    {"template": {"apiVersion": "v1", "kind": "Pod", **NEAR}},
                ]
            },
        },
        {"a-0": RACK, "a-1": BLOCK},
    ),
    (TRAIN_JOB, trained(IN_RACK), {"node": {**IN_JOBSET, "subGroupCount": 1, **RACK}}),
    (
        SPARK_APPLICATION,
        {
            "spec": {
                "driver": {"annotations": {PREFERRED: "block"}},
                "executor": {"annotations": {REQUIRED: "rack"}},
            }
        },
        {"driver": BLOCK, "executor": RACK},
    ),
    (POD, IN_RACK, {"main": RACK}),
    (
        POD,
        pod_group(GROUPED, GROUPED),
        {key: {"podIndexLabel": NAMES.pod_group_pod_index, **RACK_OF_GROUP} for key in ("r0", "r1")},
    ),
    (
        STATEFUL_SET,
        {"spec": {"template": IN_RACK}},
        {"main": {"podIndexLabel": "apps.kubernetes.io/pod-index", **RACK}},
    ),
    (
        LEADER_WORKER_SET,
        {"spec": {"leaderWorkerTemplate": {"size": 3, "leaderTemplate": GROUPED, "workerTemplate": GROUPED}}},
        {"leader": {**WORKER, **RACK_OF_GROUP}, "worker": {**WORKER, **RACK_OF_GROUP}},
    ),
    (
        LEADER_WORKER_SET,
        {"spec": {"leaderWorkerTemplate": {"size": 3, "workerTemplate": NEAR}}},
        {"main": {**WORKER, **BLOCK}},
    ),
]


def conventions(**gates: bool) -> WorkloadConventions:
    return settings_of(Configuration(), FeatureGates.from_mapping(gates), (JOB,)).conventions


def source(kind: Integration, obj: Any, **gates: bool) -> Source:
    metadata = {"name": "j", "namespace": "ns", "uid": "u", **obj.get("metadata", {})}
    return Source(kind, NAMES, {**obj, "metadata": metadata}, conventions(**gates), lookups())


def requests_of(kind: Integration, obj: Any, **gates: bool) -> dict[str, Any]:
    pod_sets = new_workload(source(kind, obj, **gates))["spec"]["podSets"]
    return {pod_set["name"]: pod_set.get("topologyRequest") for pod_set in pod_sets}


@pytest.mark.parametrize(("kind", "obj", "expected"), OF_KINDS, ids=[case[0].kind for case in OF_KINDS])
def test_workload_of_kind_has_topology_request_of_each_template(
    kind: Integration, obj: Any, expected: Any
) -> None:
    assert requests_of(kind, obj) == expected
    without_gate = requests_of(kind, obj, TopologyAwareScheduling=False)
    assert without_gate == dict.fromkeys(expected)


INVALID: list[Any] = [
    (
        JOB,
        {"spec": {"template": template(**{SLICE: "rack", SIZE: "2"})}},
        (
            f"spec.template.metadata.annotations[{SIZE}]: Invalid value: "
            f'"2": must not be greater than pod set count 1'
        ),
    ),
    (
        JOBSET,
        {"spec": {"replicatedJobs": [replicated("a", NEAR), replicated("b", GROUPED)]}},
        (
            "spec.replicatedJobs[1].template.spec.template.metadata.annotations"
            f'[{GROUP}]: Invalid value: "g": a group must have exactly 2 pod sets, this one has 1'
        ),
    ),
    (
        JOB,
        {
            "metadata": {"annotations": {NAMES.elastic_job: "true"}},
            "spec": {"template": IN_RACK},
        },
        f"spec.template.metadata.annotations[{REQUIRED}]: Forbidden: cannot be used with elastic jobs",
    ),
    (
        POD,
        pod_group(GROUPED, NEAR, GROUPED, GROUPED),
        (
            f'metadata.annotations[{GROUP}]: Invalid value: "g": '
            "a group must have exactly 2 pod sets, this one has 3"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "obj", "message"), INVALID, ids=[case[0].kind for case in INVALID])
def test_job_with_invalid_topology_annotation_has_no_workload(
    kind: Integration, obj: Any, message: str
) -> None:
    with pytest.raises(InvalidTopologyRequest) as error:
        new_workload(source(kind, obj))
    assert str(error.value) == message
    assert new_workload(source(kind, obj, TopologyAwareScheduling=False))["spec"]["podSets"]
