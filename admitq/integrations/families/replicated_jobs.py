"""The replicated jobs of a JobSet: their pods and their state. TrainJobs have them too.

``replicated`` is a list of entries with a ``name``, ``replicas`` and a ``template`` of a ``batch/v1`` Job.
The statuses of the entries count jobs, not pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import ChildDifference, PodIndexLabels, PodSetTemplate
from admitq.integrations.children import (
    PodsOfTemplate,
    compare_pods,
    find_first_difference,
    get_name,
    has_ordinal,
)
from admitq.integrations.families.batch_jobs import COMPLETION_INDEX_LABEL, count_parallel_pods
from admitq_api.json_objects import FieldPath, JsonObject, as_int, as_text, object_at, objects_at

_JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
_JOB_SPEC: FieldPath = ("template", "spec")
_POD_TEMPLATE: FieldPath = (*_JOB_SPEC, "template")
_UNLIMITED_RESTART: Final = "RestartJobSetAndIgnoreMaxRestarts"


def _enumerate_entries(replicated: Any) -> Iterator[tuple[int, JsonObject]]:
    listed: list[Any] = replicated if isinstance(replicated, list) else []
    for index, entry in enumerate(listed):
        if isinstance(entry, Mapping):
            yield index, entry


def count_replicas(entry: JsonObject) -> int:
    """Return how many jobs the controller creates for the entry."""
    return max(0, as_int(entry.get("replicas"), 1))


def count_pods_per_job(entry: JsonObject) -> int:
    """Return how many pods one job of the entry runs in parallel."""
    return count_parallel_pods(object_at(entry, _JOB_SPEC))


def list_pod_sets(replicated: Any, path: FieldPath) -> list[PodSetTemplate]:
    """Return one podset for each entry; ``path`` is the path of the list in the object."""
    return [
        PodSetTemplate(
            as_text(entry.get("name")).lower(),
            count_replicas(entry) * count_pods_per_job(entry),
            (*path, index, *_POD_TEMPLATE),
            index_labels=PodIndexLabels(COMPLETION_INDEX_LABEL, _JOB_INDEX_LABEL, count_replicas(entry)),
        )
        for index, entry in _enumerate_entries(replicated)
    ]


def compare_job(owner: JsonObject, replicated: Any, job: JsonObject) -> ChildDifference | None:
    """Return how a Job differs from those that the controller creates for the entries; None if it does not.

    Its name must be ``<owner>-<entry>-<ordinal>``, with an ordinal below the entry's replicas. It must not
    run more pods in parallel than the entry states, and not larger ones.
    """
    for _, entry in _enumerate_entries(replicated):
        stem = f"{get_name(owner)}-{as_text(entry.get('name'))}"
        if has_ordinal(get_name(job), stem, count_replicas(entry)):
            child = PodsOfTemplate(
                object_at(job, ("spec", "template")), count_parallel_pods(object_at(job, ("spec",)))
            )
            return compare_pods(
                child, PodsOfTemplate(object_at(entry, _POD_TEMPLATE), count_pods_per_job(entry))
            )
    return ChildDifference.IDENTITY


def compare_entries(replicated: Any, granted: Any) -> ChildDifference | None:
    """Return how the entries of a child exceed the granted entries of their names; None if they do not."""
    known = {
        as_text(entry.get("name")): PodsOfTemplate(
            object_at(entry, _POD_TEMPLATE), count_replicas(entry) * count_pods_per_job(entry)
        )
        for _, entry in _enumerate_entries(granted)
    }
    return find_first_difference(
        compare_pods(
            PodsOfTemplate(
                object_at(entry, _POD_TEMPLATE), count_replicas(entry) * count_pods_per_job(entry)
            ),
            known.pop(as_text(entry.get("name")), None),
        )
        for _, entry in _enumerate_entries(replicated)
    )


def is_active(statuses: Sequence[JsonObject]) -> bool:
    """Whether a job has pods that are pending or running."""
    return any(as_int(status.get("active")) > 0 for status in statuses)


def are_pods_ready(replicated: Any, statuses: Sequence[JsonObject]) -> bool:
    """Whether all jobs are ready or have succeeded."""
    ready_or_succeeded = sum(
        as_int(status.get("ready")) + as_int(status.get("succeeded")) for status in statuses
    )
    return ready_or_succeeded == sum(count_replicas(entry) for _, entry in _enumerate_entries(replicated))


def _can_restart(jobset_spec: Any) -> bool:
    """Whether the failure policy of a JobSet may start all of its jobs again, also those that succeeded."""
    policy = object_at(jobset_spec, ("failurePolicy",))
    return as_int(policy.get("maxRestarts")) > 0 or any(
        rule.get("action") == _UNLIMITED_RESTART for rule in objects_at(policy, ("rules",))
    )


def count_reclaimable_pods(
    jobset_spec: Any, replicated: Any, statuses: Sequence[JsonObject]
) -> dict[str, int]:
    """Return the numbers of pods of succeeded jobs, by entry.

    A JobSet that can restart has none, because its succeeded jobs may run again. That is decided by its
    policy alone: the status that reports its last restart still counts the jobs that succeeded before.
    """
    if _can_restart(jobset_spec):
        return {}
    succeeded = {as_text(status.get("name")): as_int(status.get("succeeded")) for status in statuses}
    counts = {
        as_text(entry.get("name")).lower(): succeeded.get(as_text(entry.get("name")), 0)
        * count_pods_per_job(entry)
        for _, entry in _enumerate_entries(replicated)
    }
    return {name: count for name, count in counts.items() if count > 0}
