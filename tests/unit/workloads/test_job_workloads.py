"""The podsets of Workloads of jobs."""

from typing import Any

import pytest

from admitq.controllers.settings import settings_of
from admitq.integrations.base import Integration
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.workloads.job_workloads import workload_pod_sets
from admitq_api.configuration import Configuration
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.labels import names_for
from tests.unit.workloads.sources import Source, lookups

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
COMPLETION = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
IN_JOBSET = {**COMPLETION, "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index"}
REPLICA = {"podIndexLabel": "training.kubeflow.org/replica-index"}
WORKER = {"podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index"}

REPLICATED = {"name": "w", "replicas": 3, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}
RUNTIME = {"spec": {"template": {"spec": {"replicatedJobs": [REPLICATED]}}}}
TRAINED = {"metadata": {"namespace": "ns"}, "spec": {"runtimeRef": {"name": "r"}}}
[REFERENCE] = TRAIN_JOB.templates.list_references(TRAINED)
ROLES = {"Launcher": {"template": TEMPLATE}, "Worker": {"template": TEMPLATE}}
GROUP = {"size": 2, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}

INDEX_LABELS: list[Any] = [
    (JOB, {"spec": {"template": TEMPLATE}}, {"main": COMPLETION}),
    (JOBSET, {"spec": {"replicatedJobs": [REPLICATED]}}, {"w": {**IN_JOBSET, "subGroupCount": 3}}),
    (
        TRAIN_JOB,
        TRAIN_JOB.templates.resolve(TRAINED, {REFERENCE: RUNTIME}),
        {"w": {**IN_JOBSET, "subGroupCount": 3}},
    ),
    (MPI_JOB, {"spec": {"mpiReplicaSpecs": ROLES}}, {"launcher": REPLICA, "worker": REPLICA}),
    (LEADER_WORKER_SET, {"spec": {"leaderWorkerTemplate": GROUP}}, {"leader": WORKER, "worker": WORKER}),
    (POD, {"metadata": {"name": "p"}, **TEMPLATE}, {"main": None}),
    (RAY_CLUSTER, {"spec": {"headGroupSpec": {"template": TEMPLATE}}}, {"head": None}),
]


def topology_requests(kind: Integration, obj: Any, *, gate: bool = True) -> dict[str, Any]:
    gates = FeatureGates({Gate.TOPOLOGY_AWARE_SCHEDULING: gate})
    conventions = settings_of(Configuration(), gates, (kind,)).conventions
    source = Source(kind, names_for(), obj, conventions, lookups())
    return {pod_set["name"]: pod_set.get("topologyRequest") for pod_set in workload_pod_sets(source)}


@pytest.mark.parametrize(
    ("kind", "obj", "expected"), INDEX_LABELS, ids=[case[0].kind for case in INDEX_LABELS]
)
def test_d22_podsets_have_index_labels_without_topology_request(
    kind: Integration, obj: Any, expected: Any
) -> None:
    assert topology_requests(kind, obj) == expected


def test_d22_podsets_have_no_index_labels_without_topology_aware_scheduling() -> None:
    assert topology_requests(JOB, {"spec": {"template": TEMPLATE}}, gate=False) == {"main": None}
