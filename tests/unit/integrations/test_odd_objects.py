"""Whatever stands at any place of an object, no function of its kind raises."""

from collections.abc import Iterator
from typing import Any

import pytest

from admitq.integrations.base import Integration, Rules
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.integrations.paths import Path, with_value
from admitq_api.feature_gates import FeatureGates
from admitq_api.labels import names_for

NAMES = names_for()
RULES = Rules(NAMES, FeatureGates())
ODD: tuple[Any, ...] = (None, -1, 2**70, 1.5, True, "", "x", [], [None], ["x"], {}, {"x": None}, [[]], [{}])

POD = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
}
CLUSTER = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"image": "a", "resources": {"requests": {"cpu": 1}}},
    "gcsFaultToleranceOptions": {"redisAddress": "r"},
    "headGroupSpec": {"template": POD},
    "workerGroupSpecs": [
        {"groupName": "g", "replicas": 1, "minReplicas": 1, "numOfHosts": 1, "template": POD}
    ],
}
METADATA = {"name": "n", "namespace": "ns", "labels": {}, "annotations": {NAMES.elastic_job: "true"}}
CONDITIONS = [{"type": "Ready", "status": "True", "message": "m"}]
PATCH = {
    "manager": NAMES.trainjob_manager,
    "trainingRuntimeSpec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": []}}}}}
                ]
            }
        }
    },
}
RUNTIME = {
    "spec": {
        "mlPolicy": {"numNodes": 1, "mpi": {"runLauncherAsNode": True}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "replicas": 1,
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {"parallelism": 1, "template": POD},
                        },
                    }
                ]
            }
        },
    }
}
OBJECTS: dict[str, tuple[Integration, Any]] = {
    "RayJob": (
        RAY_JOB,
        {
            "metadata": METADATA,
            "spec": {
                "suspend": True,
                "submissionMode": "K8sJobMode",
                "clusterSelector": {},
                "submitterPodTemplate": POD,
                "rayClusterSpec": CLUSTER,
            },
            "status": {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
        },
    ),
    "RayCluster": (
        RAY_CLUSTER,
        {"metadata": METADATA, "spec": CLUSTER, "status": {"state": "ready", "conditions": CONDITIONS}},
    ),
    "RayService": (
        RAY_SERVICE,
        {"metadata": METADATA, "spec": {"rayClusterConfig": CLUSTER}, "status": {"conditions": CONDITIONS}},
    ),
    "TrainJob": (
        TRAIN_JOB,
        {
            "metadata": METADATA,
            "spec": {
                "suspend": False,
                "runtimeRef": {"name": "r", "kind": "ClusterTrainingRuntime", "apiGroup": "g"},
                "trainer": {
                    "numNodes": 1,
                    "image": "i",
                    "env": [{"name": "e"}],
                    "resourcesPerNode": {"requests": {"cpu": 1}, "limits": {}},
                },
                "initializer": {"dataset": {"storageUri": "u", "env": []}},
                "runtimePatches": [PATCH],
            },
            "status": {
                "conditions": CONDITIONS,
                "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 1, "active": 1}],
            },
            "resolvedRuntime": RUNTIME,
        },
    ),
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def ask_everything(kind: Integration, job: Any) -> list[Any]:
    """All that a kind answers about a job."""
    references = kind.references(job)
    suspended = kind.with_suspend(job, True)
    result = suspended
    for pod_set in kind.pod_sets(job, NAMES):
        result = kind.with_template(result, pod_set, pod_set.template_in(job), NAMES)
    about_the_job = (
        kind.finished,
        kind.is_active,
        kind.pods_ready,
        kind.reclaimable,
        kind.is_on_hold,
        kind.is_skipped,
        kind.is_cleaning_up,
        kind.priority_class,
    )
    return [
        *(ask(job) for ask in about_the_job),
        kind.is_suspended(job, NAMES),
        kind.resolved(job, dict.fromkeys(references, RUNTIME)),
        kind.validate_create(job, RULES),
        kind.validate_update(job, job, RULES),
        kind.mutate(job, RULES),
        kind.start(job, result, NAMES),
        kind.stop(job, result, NAMES),
    ]


@pytest.mark.parametrize("name", OBJECTS)
def test_no_odd_value_at_any_place_raises(name: str) -> None:
    kind, job = OBJECTS[name]
    asked = 0
    for path in places(job):
        for odd in ODD:
            if path or isinstance(odd, dict):
                ask_everything(kind, with_value(job, path, odd))
                asked += 1
    assert asked > 500
