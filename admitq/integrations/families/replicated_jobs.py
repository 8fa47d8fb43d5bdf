"""Jobs that are repeated under one object, as JobSets have them: what pods they make and how they stand.

``replicated`` is a list of entries with a ``name``, ``replicas`` and a ``template`` of a ``batch/v1`` Job.
The statuses of the entries count jobs, not pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.base import Difference, PodIndexes, PodSetTemplate
from admitq.integrations.children import Pods, differing_pods, first_difference, has_ordinal, name_of
from admitq.integrations.families.batch_jobs import COMPLETION_INDEX, pods_at_a_time
from admitq_api.json_objects import FieldPath, JsonObject, as_int, as_text, object_at

_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_JOB_SPEC: FieldPath = ("template", "spec")
_POD_TEMPLATE: FieldPath = (*_JOB_SPEC, "template")


def _entries(replicated: Any) -> Iterator[tuple[int, JsonObject]]:
    listed: list[Any] = replicated if isinstance(replicated, list) else []
    for index, entry in enumerate(listed):
        if isinstance(entry, Mapping):
            yield index, entry


def replicas_of(entry: JsonObject) -> int:
    """How many jobs the entry makes."""
    return max(0, as_int(entry.get("replicas"), 1))


def pods_of_a_job(entry: JsonObject) -> int:
    """Pods that one job of the entry runs at a time."""
    return pods_at_a_time(object_at(entry, _JOB_SPEC))


def pod_sets(replicated: Any, path: FieldPath) -> list[PodSetTemplate]:
    """One podset for each entry; ``path`` is where the list stands in the object."""
    return [
        PodSetTemplate(
            as_text(entry.get("name")).lower(),
            replicas_of(entry) * pods_of_a_job(entry),
            (*path, index, *_POD_TEMPLATE),
            indexes=PodIndexes(COMPLETION_INDEX, _JOB_INDEX, replicas_of(entry)),
        )
        for index, entry in _entries(replicated)
    ]


def differing_job(owner: JsonObject, replicated: Any, job: JsonObject) -> Difference | None:
    """In what a Job differs from those that the controller creates for the entries; None if in nothing.

    Its name must be ``<owner>-<entry>-<ordinal>`` with an ordinal below the entry's replicas. It must not run
    more pods at a time than the entry says, nor larger ones.
    """
    for _, entry in _entries(replicated):
        stem = f"{name_of(owner)}-{as_text(entry.get('name'))}"
        if has_ordinal(name_of(job), stem, replicas_of(entry)):
            child = Pods(object_at(job, ("spec", "template")), pods_at_a_time(object_at(job, ("spec",))))
            return differing_pods(child, Pods(object_at(entry, _POD_TEMPLATE), pods_of_a_job(entry)))
    return Difference.IDENTITY


def differing_entries(replicated: Any, granted: Any) -> Difference | None:
    """In what the entries of a child have more or larger pods than those of the same names in ``granted``."""
    known = {
        as_text(entry.get("name")): Pods(
            object_at(entry, _POD_TEMPLATE), replicas_of(entry) * pods_of_a_job(entry)
        )
        for _, entry in _entries(granted)
    }
    return first_difference(
        differing_pods(
            Pods(object_at(entry, _POD_TEMPLATE), replicas_of(entry) * pods_of_a_job(entry)),
            known.pop(as_text(entry.get("name")), None),
        )
        for _, entry in _entries(replicated)
    )


def is_active(statuses: Sequence[JsonObject]) -> bool:
    """Whether a job has pods that are pending or running."""
    return any(as_int(status.get("active")) > 0 for status in statuses)


def pods_ready(replicated: Any, statuses: Sequence[JsonObject]) -> bool:
    """Whether all jobs have their pods ready, or have succeeded."""
    done = sum(as_int(status.get("ready")) + as_int(status.get("succeeded")) for status in statuses)
    return done == sum(replicas_of(entry) for _, entry in _entries(replicated))


def reclaimable(replicated: Any, statuses: Sequence[JsonObject]) -> dict[str, int]:
    """Pods of jobs that succeeded, by entry: such a job is not run again."""
    succeeded = {as_text(status.get("name")): as_int(status.get("succeeded")) for status in statuses}
    counts = {
        as_text(entry.get("name")).lower(): succeeded.get(as_text(entry.get("name")), 0)
        * pods_of_a_job(entry)
        for _, entry in _entries(replicated)
    }
    return {name: count for name, count in counts.items() if count > 0}
