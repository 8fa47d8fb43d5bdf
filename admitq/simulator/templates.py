"""Templates of workloads: translated once, then copied for each submission with another name and time.

A class of the scenario or a row of a trace becomes a Job. The function that converts Jobs to Workloads is
that of the manager. So a simulated workload equals the Workload of the same manifest on a cluster.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from admitq.core.model import ObjectKey, Workload
from admitq.integrations.base import Integration, PodSetTemplate, RuleContext
from admitq.integrations.references import ObjectReference
from admitq.integrations.workload_names import MAX_NAME_LENGTH
from admitq.metrics.custom_labels import MetadataKey
from admitq.simulator.documents import FieldPath, field_path
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_workload
from admitq.workloads.job_workloads import NoPodSets, PriorityClasses, PriorityClassMissing, new_workload
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField

SECOND: Final = 1_000_000_000
_CREATED: Final = "1970-01-01T00:00:00Z"
_POD_SETS: Final = ("spec", "podSets")

ErrorFactory = Callable[[FieldPath, str], Exception]
"""Returns the error for a field of the Job or Workload and its remedy."""


@dataclass(frozen=True, slots=True)
class _Conventions:
    partial_admission: bool
    topology_requests: bool = False
    longest_workload_name: int = MAX_NAME_LENGTH
    label_keys_to_copy: tuple[str, ...] = ()
    metric_values_to_copy: tuple[MetadataKey, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """A Job and the other inputs of its Workload."""

    integration: Integration
    names: Names
    job: JsonObject
    conventions: _Conventions
    lookups: PriorityClasses


class Parallelism(NamedTuple):
    """The pods that a workload must complete, and the pods that run in parallel."""

    completions: int
    parallel: int


@dataclass(slots=True, eq=False)
class Template:
    """A workload that is copied for each submission.

    ``deadline`` is the maximum run time in nanoseconds. A workload with one podset runs pod by pod, a
    workload with several podsets as a whole.
    """

    workload: Workload
    names: Names
    deadline: int | None = None
    integration: Integration | None = None
    job: JsonObject | None = None
    _running: dict[int, Parallelism] = field(default_factory=dict[int, Parallelism])
    _reclaimable: dict[tuple[int, int], tuple[tuple[str, int], ...]] = field(
        default_factory=dict[tuple[int, int], tuple[tuple[str, int], ...]]
    )

    @property
    def has_pods(self) -> bool:
        """Whether its pods run one by one."""
        return len(self.workload.pod_sets) == 1

    @property
    def pods(self) -> int:
        """The number of requested pods."""
        return sum(pod_set.count for pod_set in self.workload.pod_sets)

    def running(self, count: int) -> Parallelism:
        """Return its pods to complete and its parallel pods, for a number of admitted pods."""
        parallelism = self._running.get(count)
        if parallelism is None:
            job = self._with_count(count)
            completions = None if job is None else value_at(job, ("spec", "completions"))
            parallelism = Parallelism(completions if isinstance(completions, int) else count, count)
            if not self.has_pods:
                parallelism = Parallelism(1, 1)
            self._running[count] = parallelism
        return parallelism

    def reclaimable(self, count: int, ended: int) -> tuple[tuple[str, int], ...]:
        """Return its reclaimable pods, for a number of ended pods."""
        reclaimable_pods = self._reclaimable.get((count, ended))
        if reclaimable_pods is None:
            reclaimable_pods = self._reclaimable[(count, ended)] = self._ask_reclaimable(count, ended)
        return reclaimable_pods

    def _ask_reclaimable(self, count: int, ended: int) -> tuple[tuple[str, int], ...]:
        job = self._with_count(count)
        if job is None or self.integration is None or not ended:
            return ()
        indexes = f"0-{ended - 1}" if ended > 1 else "0"
        reported = with_value(job, ("status",), {"succeeded": ended, "completedIndexes": indexes})
        return tuple(sorted((self.integration.scaling.count_reclaimable_pods(reported) or {}).items()))

    def _with_count(self, count: int) -> JsonObject | None:
        job, integration = self.job, self.integration
        if (
            job is None
            or integration is None
            or integration.scaling.with_pod_counts is None
            or not self.has_pods
        ):
            return job
        pod_set = self.workload.pod_sets[0]
        if count == pod_set.count:
            return job
        return integration.scaling.with_pod_counts(job, {pod_set.name: count}, self.names)


def job_manifest(
    names: Names,
    queue: ObjectKey,
    *,
    name: str,
    pods: int,
    requests: Iterable[tuple[str, str | int]],
    priority_class: str = "",
    min_pods: int | None = None,
) -> JsonObject:
    """Return a Job with equal pods."""
    labels = {names.queue_name: queue.name}
    if priority_class:
        labels[names.priority_class] = priority_class
    metadata: dict[str, Any] = {"name": name, "namespace": queue.namespace, "labels": labels}
    if min_pods is not None:
        metadata["annotations"] = {names.job_min_parallelism: str(min_pods)}
    container = {"name": "main", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


@dataclass(frozen=True, slots=True)
class Translation:
    """Creates templates of Jobs and Workloads.

    Args:
        names: the names of the API group.
        integration_of: returns the job kind of an object.
        lookups: returns priority classes.
        referenced: returns other objects that define pods of jobs.
        how: the options for parsing Workloads.
        partial_admission: whether Jobs with a minimum of pods may run with fewer pods.
    """

    names: Names
    integration_of: Callable[[JsonObject], Integration | None]
    lookups: PriorityClasses
    referenced: Callable[[ObjectReference], JsonObject | None]
    how: ReadOptions
    partial_admission: bool = True

    def template(self, obj: JsonObject, blame: ErrorFactory) -> Template:
        """Return the template of a Job or Workload; ``blame`` creates the error of an invalid field."""
        integration = self.integration_of(obj)
        if integration is None:
            return Template(self._translated(with_value(obj, ("status",), None), (), blame), self.names)
        job = integration.webhook.mutate(
            with_value(obj, ("metadata", "uid"), "template"), RuleContext(self.names)
        )
        objects: dict[ObjectReference, JsonObject] = {}
        for reference in filter(integration.is_required, integration.templates.list_references(job)):
            referenced = self.referenced(reference)
            if referenced is None:
                raise blame(("spec",), f"{reference} is not among the manifests: add it")
            objects[reference] = referenced
        job = integration.templates.resolve(job, objects)
        source = _Source(integration, self.names, job, _Conventions(self.partial_admission), self.lookups)
        try:
            raw = new_workload(source)
        except PriorityClassMissing as error:
            raise blame(("metadata", "labels", self.names.priority_class), f"{error}") from None
        except NoPodSets as error:
            raise blame(("spec",), f"{error}") from None
        workload = self._translated(raw, integration.list_pod_sets(job, self.names), blame)
        deadline = value_at(job, ("spec", "activeDeadlineSeconds"))
        return Template(
            workload,
            self.names,
            deadline * SECOND if isinstance(deadline, int) else None,
            integration,
            job,
        )

    def _translated(
        self, raw: JsonObject, pod_sets: Iterable[PodSetTemplate], blame: ErrorFactory
    ) -> Workload:
        paths = [pod_set.template_path for pod_set in pod_sets]
        metadata: Mapping[str, Any] = raw.get("metadata") or {}
        stored = {
            **raw,
            "metadata": {
                **metadata,
                "name": metadata.get("name", ""),
                "uid": "",
                "creationTimestamp": _CREATED,
            },
        }
        try:
            workload = read_workload(stored, self.names, self.how)
        except MalformedField as error:
            raise blame(_in_job(error.field, paths), error.remedy) from None
        for problem in workload.resource_problems:
            raise blame(_in_job(problem.field, paths), problem.detail)
        if not workload.queue_name:
            where = ("metadata", "labels", self.names.queue_name) if paths else ("spec", "queueName")
            raise blame(where, "is required: name the LocalQueue")
        return workload


def _in_job(name: str, templates: list[tuple[str | int, ...]]) -> FieldPath:
    """Return the field of the job that determines a field of its Workload."""
    path = field_path(name)
    if path[:2] == _POD_SETS and len(path) > 3 and path[3] == "template" and isinstance(path[2], int):
        index = path[2]
        if index < len(templates):
            return (*templates[index], *path[4:])
    return path
