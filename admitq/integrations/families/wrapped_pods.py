"""The pod templates, and the numbers of pods, in the objects that an AppWrapper wraps.

The AppWrapper declares them, or its controller knows them by the kind of the object.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from admitq.integrations.families.batch_jobs import count_parallel_pods
from admitq.integrations.job_fields import count_pods
from admitq.integrations.list_paths import get_element_path, list_element_indexes
from admitq_api.json_objects import FieldPath, JsonObject, object_at, objects_at, text_at, value_at
from admitq_api.path_notation import parse_path

_DECLARED_PATH: Final = re.compile(r"template((?:\.[^.\[\]]+|\[[0-9]{1,4}\])*)")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _KnownLocation:
    """The paths of a pod template and its number of pods in objects of a known kind."""

    template: FieldPath = ()
    replicas: FieldPath = ()
    """The path of the number of pods, or of Jobs. An empty path means one."""
    job: FieldPath = ()
    """The path of the spec of the Job that the pods belong to, if they belong to one."""

    def find(self, wrapped: JsonObject) -> Iterator[tuple[FieldPath, int]]:
        """Yield the path of each template in the object, and its number of pods."""
        for index in list_element_indexes(wrapped, self.template):
            template = get_element_path(self.template, index)
            if isinstance(value_at(wrapped, template), Mapping):
                replicas = (
                    value_at(wrapped, get_element_path(self.replicas, index)) if self.replicas else None
                )
                job = object_at(wrapped, get_element_path(self.job, index)) if self.job else {}
                yield template, count_pods(replicas) * count_parallel_pods(job)


def _create_location(
    holder: str, template: str = "template", replicas: str = "replicas", job: str = ""
) -> _KnownLocation:
    paths = (parse_path(f"{holder}.{path}") if path else () for path in (template, replicas, job))
    return _KnownLocation(*paths)


def _create_ray_locations(cluster: str) -> tuple[_KnownLocation, ...]:
    return _create_location(f"{cluster}.headGroupSpec", replicas=""), _create_location(
        f"{cluster}.workerGroupSpecs[]"
    )


_KNOWN_LOCATIONS: Final[Mapping[tuple[str, str], tuple[_KnownLocation, ...]]] = {
    ("v1", "Pod"): (_KnownLocation(),),
    ("apps/v1", "Deployment"): (_create_location("spec"),),
    ("apps/v1", "StatefulSet"): (_create_location("spec"),),
    ("batch/v1", "Job"): (_KnownLocation(parse_path("spec.template"), job=parse_path("spec")),),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): (
        _create_location("spec.replicatedJobs[]", template="template.spec.template", job="template.spec"),
    ),
    ("kubeflow.org/v1", "PyTorchJob"): (
        _create_location("spec.pytorchReplicaSpecs.Master"),
        _create_location("spec.pytorchReplicaSpecs.Worker"),
    ),
    ("ray.io/v1", "RayCluster"): _create_ray_locations("spec"),
    ("ray.io/v1", "RayJob"): _create_ray_locations("spec.rayClusterSpec"),
}
"""The kinds of pods that an AppWrapper need not declare."""


def find_pods(component: JsonObject) -> list[tuple[FieldPath, int]]:
    """Return the path of each template in the object of a component, and its number of pods."""
    declared = [
        (_parse_declared_path(text_at(pod_set, ("path",))), count_pods(pod_set.get("replicas")))
        for pod_set in objects_at(component, ("podSets",))
    ]
    wrapped = object_at(component, ("template",))
    kind = (text_at(wrapped, ("apiVersion",)), text_at(wrapped, ("kind",)))
    return declared or [pods for known in _KNOWN_LOCATIONS.get(kind, ()) for pods in known.find(wrapped)]


def _parse_declared_path(declared: str) -> FieldPath:
    match = _DECLARED_PATH.fullmatch(declared)
    if match is None:
        # An invalid path leads to an empty podset. A Workload must not have such a podset.
        return (declared,)
    return tuple(key or int(index) for key, index in _STEP.findall(match[1]))
