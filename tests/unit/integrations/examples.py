"""Objects of many kinds, from the guides and from here, with statuses as their controllers write them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from admitq.integrations.base import Integration
from admitq.integrations.custom import create_integrations
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_api.configuration.custom_kinds import CustomKind
from admitq_api.labels import names_for
from localcluster.custom_kinds import configured

NAMES = names_for()

GUIDES = Path(__file__).parents[3] / "docs" / "guides"

STATUS: dict[str, Any] = {
    "phase": "Running",
    "conditions": [
        {"type": "Running", "status": "True", "message": "it runs"},
        {"type": "Complete", "status": "True", "message": "done"},
        {"type": "Failed", "status": "True", "message": "no"},
        {"type": "QuotaReserved", "status": "False"},
    ],
    "active": 1,
    "ready": 1,
    "succeeded": 1,
    "completedIndexes": "0,2-3",
    "uncountedTerminatedPods": {"succeeded": ["uid"]},
    "replicaStatuses": {"Worker": {"active": 2}, "Master": {"active": 1}},
    "applicationState": {"state": "RUNNING", "errorMessage": "no"},
    "executorState": {"executor-1": "RUNNING"},
    "submissionAttempts": 1,
    "workers": {"active": 1, "succeeded": 1},
    "state": {"phase": "Completed", "message": "done"},
    "running": 3,
    "taskStatusCount": {"workers": {"phase": {"Succeeded": 1}}},
}
"""One status with all fields that any of the kinds reads."""

CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "example.com/main:1",
    "env": [{"name": "A", "value": "1"}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"example.com/gpu": 1}},
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"example.com/note": "b"}},
    "spec": {
        "containers": [CONTAINER],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "own", "operator": "Exists"}],
        "priorityClassName": "high",
    },
}

APP_WRAPPER: dict[str, Any] = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "metadata": {"name": "w"},
    "spec": {
        "components": [
            {
                "podSets": [
                    {"path": "template.tasks[0].pod", "replicas": 2},
                    {"path": "template.tasks[1].pod"},
                ],
                "podSetInfos": [
                    {},
                    {"labels": {"app": "a", "given": "x"}, "tolerations": [{"key": "given"}]},
                ],
                "template": {
                    "apiVersion": "example.com/v1",
                    "kind": "Thing",
                    "metadata": {"name": "t"},
                    "tasks": [{"pod": TEMPLATE}, {"pod": TEMPLATE}],
                },
            },
            {
                "template": {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    "metadata": {"name": "s"},
                    "spec": {
                        "replicatedJobs": [
                            {"name": "a", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}
                        ]
                    },
                }
            },
        ]
    },
}

SPARK_ROLE: dict[str, Any] = {
    "cores": 2,
    "coreLimit": "3",
    "memory": "2g",
    "memoryOverhead": "1g",
    "memoryLimit": "4g",
    "gpu": {"name": "example.com/gpu", "quantity": 1},
    "labels": {"app": "a", "own": "l"},
    "annotations": {"own": "n"},
    "tolerations": [{"key": "own", "operator": "Exists"}, {"key": "more", "operator": "Exists"}],
    "sidecars": [{"name": "side", "resources": {"requests": {"cpu": "1"}}}],
    "initContainers": [{"name": "first"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "low",
}
SPARK_APPLICATIONS: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "s"},
        "spec": {
            "type": "Python",
            "sparkVersion": "3.5.1",
            "restartPolicy": {"type": "OnFailure", "onSubmissionFailureRetries": 3},
            "driver": {**SPARK_ROLE, "template": TEMPLATE, "nodeSelector": {"disk": "slow"}},
            "executor": {**SPARK_ROLE, "instances": 3},
            "sparkConf": {
                "spark.kubernetes.node.selector.all": "1",
                "spark.kubernetes.driver.node.selector.one": "2",
                "spark.executor.resource.fpga.amount": "2",
                "spark.executor.resource.fpga.vendor": "example.com",
                "spark.memory.offHeap.enabled": "true",
                "spark.memory.offHeap.size": "1g",
            },
        },
    },
    {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "s"},
        "spec": {
            "sparkVersion": "4.0.0",
            "memoryOverheadFactor": "0.3",
            "dynamicAllocation": {"enabled": True, "minExecutors": 1},
            "nodeSelector": {"disk": "fast"},
            "driver": {**SPARK_ROLE, "template": TEMPLATE},
            "executor": {"instances": 3},
            "sparkConf": {"spark.kubernetes.executor.node.selector.one": "2", "spark.ui.port": "1"},
        },
    },
)

# Objects of Ray and of Kubeflow's trainer with all fields that their kinds read.
POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
}
RAY_CLUSTER_SPEC: dict[str, Any] = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"image": "a", "resources": {"requests": {"cpu": 1}}},
    "gcsFaultToleranceOptions": {"redisAddress": "r"},
    "headGroupSpec": {"template": POD},
    "workerGroupSpecs": [
        {"groupName": "g", "replicas": 1, "minReplicas": 1, "numOfHosts": 1, "template": POD}
    ],
}
METADATA: dict[str, Any] = {
    "name": "n",
    "namespace": "ns",
    "labels": {},
    "annotations": {NAMES.elastic_job: "true"},
}
CONDITIONS = [{"type": "Ready", "status": "True", "message": "m"}]
RUNTIME_PATCH: dict[str, Any] = {
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
RUNTIME: dict[str, Any] = {
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
RAY_JOB: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": METADATA,
    "spec": {
        "suspend": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": POD,
        "rayClusterSpec": RAY_CLUSTER_SPEC,
    },
    "status": {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
}
RAY_CLUSTER: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": METADATA,
    "spec": RAY_CLUSTER_SPEC,
    "status": {"state": "ready", "conditions": CONDITIONS},
}
RAY_SERVICE: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayService",
    "metadata": METADATA,
    "spec": {"rayClusterConfig": RAY_CLUSTER_SPEC},
    "status": {"conditions": CONDITIONS},
}
TRAIN_JOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
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
        "runtimePatches": [RUNTIME_PATCH],
    },
    "status": {
        "conditions": CONDITIONS,
        "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 1, "active": 1}],
    },
    "resolvedRuntime": RUNTIME,
}


@cache
def guide_manifests() -> tuple[Any, ...]:
    """Return every manifest in the guides."""
    manifests: list[Any] = []
    for page in sorted(GUIDES.rglob("*.md")):
        for block in page.read_text().split("```yaml\n")[1:]:
            documents = yaml.load_all(block.split("```")[0], Loader=yaml.CSafeLoader)
            manifests.extend(document for document in documents if isinstance(document, dict))
    return tuple(manifests)


def custom_kinds() -> tuple[Integration, ...]:
    """Return the kinds that the configuration of a guide defines."""
    definitions = [CustomKind.model_validate_json(json.dumps(definition)) for definition in configured()]
    return create_integrations(definitions, BUILT_IN_KINDS)


def examples_of(api_version: str, kind: str, *, started: bool = False) -> list[dict[str, Any]]:
    """Return objects of a kind, each with a status; an object without spec if there is no other.

    With `started`, some objects have injected fields that are not in their templates.
    """
    written = (APP_WRAPPER, *SPARK_APPLICATIONS, RAY_JOB, RAY_CLUSTER, RAY_SERVICE)
    objects = (*guide_manifests(), *written, *((TRAIN_JOB,) if started else ()))
    of_kind = [obj for obj in objects if (obj.get("apiVersion"), obj.get("kind")) == (api_version, kind)]
    without_spec = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "j"}, "spec": {}}
    return [{"status": STATUS, **obj} for obj in of_kind or [without_spec]]
