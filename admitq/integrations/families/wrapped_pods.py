"""Where pods stand in the objects that an AppWrapper wraps, and how many they are.

The AppWrapper declares it, or its controller knows the kind of the object.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from admitq.integrations.families.batch_jobs import pods_at_a_time
from admitq.integrations.job_fields import count_pods
from admitq.integrations.list_paths import elements, of_element
from admitq_api.json_objects import FieldPath, JsonObject, object_at, objects_at, text_at, value_at
from admitq_api.path_notation import steps

_DECLARED_PATH: Final = re.compile(r"template((?:\.[^.\[\]]+|\[[0-9]{1,4}\])*)")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _Pods:
    """Where the controller looks for pods in a kind of object that it knows; all lead through one list."""

    template: FieldPath = ()
    replicas: FieldPath = ()
    """The number of pods, or of Jobs; one without."""
    job: FieldPath = ()
    """The spec of the Job that the pods are of, if they are."""

    def found(self, wrapped: JsonObject) -> Iterator[tuple[FieldPath, int]]:
        """Path of each template in the object, and how many pods it is for."""
        for index in elements(wrapped, self.template):
            template = of_element(self.template, index)
            if isinstance(value_at(wrapped, template), Mapping):
                replicas = value_at(wrapped, of_element(self.replicas, index)) if self.replicas else None
                job = object_at(wrapped, of_element(self.job, index)) if self.job else {}
                yield template, count_pods(replicas) * pods_at_a_time(job)


def _pods(holder: str, template: str = "template", replicas: str = "replicas", job: str = "") -> _Pods:
    paths = (steps(f"{holder}.{one}") if one else () for one in (template, replicas, job))
    return _Pods(*paths)


def _of_ray(cluster: str) -> tuple[_Pods, ...]:
    return _pods(f"{cluster}.headGroupSpec", replicas=""), _pods(f"{cluster}.workerGroupSpecs[]")


_KNOWN: Final[Mapping[tuple[str, str], tuple[_Pods, ...]]] = {
    ("v1", "Pod"): (_Pods(),),
    ("apps/v1", "Deployment"): (_pods("spec"),),
    ("apps/v1", "StatefulSet"): (_pods("spec"),),
    ("batch/v1", "Job"): (_Pods(steps("spec.template"), job=steps("spec")),),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): (
        _pods("spec.replicatedJobs[]", template="template.spec.template", job="template.spec"),
    ),
    ("kubeflow.org/v1", "PyTorchJob"): (
        _pods("spec.pytorchReplicaSpecs.Master"),
        _pods("spec.pytorchReplicaSpecs.Worker"),
    ),
    ("ray.io/v1", "RayCluster"): _of_ray("spec"),
    ("ray.io/v1", "RayJob"): _of_ray("spec.rayClusterSpec"),
}
"""The kinds whose pods need not be declared."""


def pods_in(component: JsonObject) -> list[tuple[FieldPath, int]]:
    """Path of each template in the object that a component wraps, and how many pods it is for."""
    declared = [
        (_declared_path(text_at(one, ("path",))), count_pods(one.get("replicas")))
        for one in objects_at(component, ("podSets",))
    ]
    wrapped = object_at(component, ("template",))
    kind = (text_at(wrapped, ("apiVersion",)), text_at(wrapped, ("kind",)))
    return declared or [pods for known in _KNOWN.get(kind, ()) for pods in known.found(wrapped)]


def _declared_path(declared: str) -> FieldPath:
    match = _DECLARED_PATH.fullmatch(declared)
    if match is None:
        # What cannot be read leads nowhere, to a podset without containers, which its Workload may not have.
        return (declared,)
    return tuple(key or int(index) for key, index in _STEP.findall(match[1]))
