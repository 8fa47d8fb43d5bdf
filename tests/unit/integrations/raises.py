"""Raises of a running job of every kind: more pods, or larger requests of a pod."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.integrations.base import Integration
from admitq.integrations.registry import load_integrations
from admitq_api.json_objects import with_value
from tests.unit.integrations.examples import custom_kinds, examples_of

_NODE: dict[str, Any] = {
    "containers": [{"name": "node", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
}
_LARGE: dict[str, Any] = {"requests": {"cpu": "99", "memory": "200Mi"}}
_SUBMITTER: dict[str, Any] = {
    "containers": [{"name": "ray-job-submitter", "image": "i", "resources": _LARGE}]
}
_STEP: dict[str, Any] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
_NODES: dict[str, Any] = {
    "name": "node",
    "template": {"metadata": _STEP, "spec": {"template": {"spec": _NODE}}},
}
TRAIN_JOB: Final[dict[str, Any]] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "t"},
    "spec": {
        "runtimeRef": {"name": "r"},
        "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
    },
    "resolvedRuntime": {
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [_NODES]}}}
    },
}
"""A TrainJob with its runtime, which is another object in the guide."""


@dataclass(frozen=True)
class Raise:
    """A change by which a running job requests more.

    Attributes:
        framework: name of the kind in the configuration file.
        path: path of the field; dots separate the steps.
        value: new value of the field.
        says: message of the webhook and the event.
        also: further fields to write, by path.
    """

    framework: str
    path: str
    value: Any
    says: str
    also: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def kind(self) -> Integration:
        """Return the kind of the job."""
        return next(kind for kind in KINDS if kind.framework == self.framework)

    def of(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the job with the change."""
        result = job
        for path, value in {**self.also, self.path: self.value}.items():
            steps = tuple(int(step) if step.isdigit() else step for step in path.split("."))
            result = with_value(result, steps, value)
        return dict(result)


KINDS: Final = tuple(
    kind
    for kind in (*load_integrations(), *custom_kinds())
    if kind.composition is None and kind.serving is None
)
"""All job kinds that are suspended and stopped as a whole."""


def job_of(kind: Integration) -> dict[str, Any]:
    """Return the first example job of the kind, without its status."""
    job = TRAIN_JOB if kind.kind == "TrainJob" else examples_of(kind.api_version, kind.kind)[0]
    return {key: value for key, value in copy.deepcopy(job).items() if key != "status"}


def _count(
    framework: str, path: str, pod_set: str, count: int, before: int, value: int | None = None, **also: int
) -> Raise:
    """Return a raise of the number of pods; ``also`` sets further fields with the same parent."""
    message = f"podset {pod_set} requests {count} pods, {before} admitted"
    siblings = {f"{path.rpartition('.')[0]}.{name}": sibling for name, sibling in also.items()}
    return Raise(framework, path, count if value is None else value, message, siblings)


def _requests(framework: str, path: str, pod_set: str, value: Any = "99", resource: str = "cpu") -> Raise:
    return Raise(
        framework, path, value, f"pods of podset {pod_set} request more {resource} than was admitted"
    )


def _template(framework: str, path: str, pod_set: str) -> Raise:
    return _requests(framework, f"{path}.spec.containers.0.resources.requests.cpu", pod_set)


def _list_kubeflow_raises(framework: str, field: str) -> list[Raise]:
    worker = f"spec.{field}.Worker"
    return [
        _count(framework, f"{worker}.replicas", "worker", 9, 2),
        _template(framework, f"{worker}.template", "worker"),
    ]


def _list_ray_raises(framework: str, cluster: str, group: str, before: int) -> list[Raise]:
    first = f"{cluster}.workerGroupSpecs.0"
    return [
        _count(framework, f"{first}.replicas", group, 9, before, maxReplicas=9),
        _count(framework, f"{first}.minReplicas", group, 9, before),
        _count(framework, f"{first}.numOfHosts", group, 4 * before, before, value=4),
        _template(framework, f"{first}.template", group),
        _template(framework, f"{cluster}.headGroupSpec.template", "head"),
    ]


_JOB, _JOBSET, _TRAINJOB = "batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"
_WRAPPER, _SPARK = "workload.codeflare.dev/appwrapper", "sparkoperator.k8s.io/sparkapplication"
_WORKERS = "spec.replicatedJobs.1"
_WRAPPED = "spec.components.2"

RAISES: Final = (
    _count(_JOB, "spec.parallelism", "main", 9, 2),
    _template(_JOB, "spec.template", "main"),
    _requests(_JOB, "spec.template.spec.overhead", "main", {"cpu": "99"}),
    _requests(
        _JOB,
        "spec.template.spec.initContainers",
        "main",
        [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "99"}}}],
    ),
    _requests(_JOB, "spec.template.spec.resources", "main", {"requests": {"cpu": "99"}}),
    _count(_JOBSET, f"{_WORKERS}.replicas", "workers", 27, 6, value=9),
    _count(_JOBSET, f"{_WORKERS}.template.spec.parallelism", "workers", 18, 6, value=9, completions=9),
    _template(_JOBSET, f"{_WORKERS}.template.spec.template", "workers"),
    _count("kubeflow.org/mpijob", "spec.mpiReplicaSpecs.Worker.replicas", "worker", 9, 2),
    _template("kubeflow.org/mpijob", "spec.mpiReplicaSpecs.Launcher.template", "launcher"),
    *_list_kubeflow_raises("kubeflow.org/pytorchjob", "pytorchReplicaSpecs"),
    *_list_kubeflow_raises("kubeflow.org/tfjob", "tfReplicaSpecs"),
    *_list_kubeflow_raises("kubeflow.org/xgboostjob", "xgbReplicaSpecs"),
    *_list_kubeflow_raises("kubeflow.org/paddlejob", "paddleReplicaSpecs"),
    *_list_kubeflow_raises("kubeflow.org/jaxjob", "jaxReplicaSpecs"),
    *_list_ray_raises("ray.io/rayjob", "spec.rayClusterSpec", "workers", 3),
    _requests("ray.io/rayjob", "spec.submitterPodTemplate", "submitter", {"spec": _SUBMITTER}),
    *_list_ray_raises("ray.io/raycluster", "spec", "small", 2),
    *_list_ray_raises("ray.io/rayservice", "spec.rayClusterConfig", "replicas", 2),
    _count(_TRAINJOB, "spec.trainer.numNodes", "node", 9, 2),
    _requests(_TRAINJOB, "spec.trainer.resourcesPerNode.requests.cpu", "node"),
    _count(_WRAPPER, f"{_WRAPPED}.podSets.0.replicas", "train-and-serve-1", 9, 2),
    _template(_WRAPPER, f"{_WRAPPED}.template.spec.template", "train-and-serve-1"),
    _count(_WRAPPER, "spec.components.1.template.spec.replicas", "train-and-serve-0", 9, 1),
    _count(_SPARK, "spec.executor.instances", "executor", 9, 2),
    _requests(_SPARK, "spec.driver.coreRequest", "driver"),
    _requests(_SPARK, "spec.driver.memoryOverhead", "driver", "99g", "memory"),
    _requests(_SPARK, "spec.executor.memory", "executor", "99g", "memory"),
    _count("example.com/training", "spec.workers.replicas", "workers", 9, 3),
    _template("example.com/training", "spec.workers.template", "workers"),
    _count("tasks.example.com/job", "spec.tasks.1.replicas", "workers", 9, 4),
    _template("tasks.example.com/job", "spec.tasks.1.template", "workers"),
)

ELASTIC: Final = tuple(
    next(change for change in RAISES if change.framework == kind.framework)
    for kind in KINDS
    if kind.scaling.can_be_elastic
)
"""One raise of the number of pods for each kind that can be elastic."""
