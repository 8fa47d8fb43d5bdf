"""Templates of workloads: translated once, then copied for each submission with another name and time.

A class of the scenario or a row of a trace becomes a Job.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from admitq.core.model import ObjectKey, Workload
from admitq.integrations.base import Integration
from admitq.manifests.jobs import ErrorFactory, JobTranslation
from admitq.simulator.schema import TopologyRequest
from admitq_api.json_objects import JsonObject, value_at, with_value
from admitq_api.labels import Names

SECOND: Final = 1_000_000_000


class Parallelism(NamedTuple):
    """The pods that a workload must complete, and the pods that run in parallel.

    A workload that ``runs_as_a_whole`` counts as one pod.
    """

    completions: int
    parallel: int
    runs_as_a_whole: bool = False


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
                parallelism = Parallelism(1, 1, runs_as_a_whole=True)
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
    topology_request: TopologyRequest | None = None,
) -> JsonObject:
    """Return a Job with equal pods."""
    labels = {names.queue_name: queue.name}
    if priority_class:
        labels[names.priority_class] = priority_class
    metadata: dict[str, Any] = {"name": name, "namespace": queue.namespace, "labels": labels}
    if min_pods is not None:
        metadata["annotations"] = {names.job_min_parallelism: str(min_pods)}
    container = {"name": "main", "resources": {"requests": dict(requests)}}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if topology_request is not None:
        template["metadata"] = {"annotations": _annotations(topology_request, names)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def _annotations(request: TopologyRequest, names: Names) -> dict[str, str]:
    """Return the annotations of a pod template that request a topology."""
    layers = request.podset_slice_required_topology_constraints
    annotations = {
        names.podset_required_topology: request.required,
        names.podset_preferred_topology: request.preferred,
        names.podset_unconstrained_topology: (
            None if request.unconstrained is None else str(request.unconstrained).lower()
        ),
        names.podset_slice_required_topology: request.pod_set_slice_required_topology,
        names.podset_slice_size: (
            None if request.pod_set_slice_size is None else str(request.pod_set_slice_size)
        ),
        names.podset_slice_required_topology_constraints: (
            None if layers is None else orjson.dumps([layer.model_dump() for layer in layers]).decode()
        ),
    }
    return {key: value for key, value in annotations.items() if value is not None}


def read_template(translation: JobTranslation, obj: JsonObject, blame: ErrorFactory) -> Template:
    """Return the template of a Job or Workload; ``blame`` creates the error of an invalid field."""
    translated = translation.translate(obj, blame)
    job = translated.job
    deadline = value_at(job, ("spec", "activeDeadlineSeconds"))
    return Template(
        translated.workload,
        translation.names,
        deadline * SECOND if isinstance(deadline, int) else None,
        translated.integration,
        job,
    )
