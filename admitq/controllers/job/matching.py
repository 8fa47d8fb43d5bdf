"""Matches a job with its Workloads, and finds where a job requests more than it was admitted with."""

from collections.abc import Sequence
from typing import NamedTuple

from admitq.controllers.job import reclaimable_pods
from admitq.controllers.job.case import JobCase
from admitq.integrations import ownership
from admitq.workloads.job_workloads import has_same_pods, maximum_execution_seconds, workload_pod_sets
from admitq.workloads.request_increases import RequestIncrease, find_request_increases
from admitq.workloads.transitions import is_admitted, is_reserved
from admitq_api.json_objects import JsonObject, value_at


class WorkloadMatch(NamedTuple):
    """The Workload that matches the job, if any, and the other Workloads of the job."""

    workload: JsonObject | None
    others: list[JsonObject]


def prebuilt_name(case: JobCase) -> str:
    """Return the name of the prebuilt Workload that the job uses; empty if a Workload is created for it."""
    if not case.integration.delegation.adopts_prebuilt_workload:
        return ""
    return ownership.get_prebuilt_name(
        case.job or {}, case.names, by_annotation=case.settings.names_by_annotation
    )


def match_workload(case: JobCase) -> WorkloadMatch:
    """Find the Workload that matches the job.

    A job that has ended is not compared; its first Workload matches. A job with unknown pods keeps the
    Workload that it has.
    """
    matching = next((workload for workload in case.owned if is_equivalent(case, workload)), None)
    if matching is None and case.owned and not is_comparable(case):
        matching = case.owned[0]
    return WorkloadMatch(matching, [workload for workload in case.owned if workload is not matching])


def is_comparable(case: JobCase) -> bool:
    """Whether the pods of the job are known and the job has not ended."""
    return not case.missing and case.integration.find_outcome(case.job or {}) is None


def is_equivalent(case: JobCase, workload: JsonObject) -> bool:
    """Whether the Workload requests what the job requests.

    An admitted or running job has the assigned pod counts and the injected tolerations. A suspended job may
    have its original counts and tolerations.
    """
    spec = value_at(workload, ("spec",), {})
    if spec.get("maximumExecutionTimeSeconds") != maximum_execution_seconds(case):
        return False
    job: JsonObject = case.job or {}
    if case.composition is not None:
        equivalent = case.composition.is_equivalent(job, spec.get("podSets") or [])
        if equivalent is not None:
            return equivalent
    expected, listed = workload_pod_sets(case), spec.get("podSets") or []
    if len(expected) != len(listed):
        return False
    if not is_reserved(workload):
        return _equal(case, expected, listed, running=False)
    suspended, admitted = (
        case.integration.is_suspended(job, case.names),
        is_admitted(workload),
    )
    running = _as_assigned(workload, expected)
    if (admitted or not suspended) and _equal(case, expected, running, running=True):
        return True
    return suspended and _equal(case, expected, listed, running=admitted)


def find_increases(case: JobCase, workload: JsonObject) -> list[RequestIncrease]:
    """Return the podsets of a job that request more than is reserved for its Workload."""
    if not is_reserved(workload):
        return []
    current = workload_pod_sets(case)
    return find_request_increases(current, _as_assigned(workload, current))


def _as_assigned(workload: JsonObject, current: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the podsets of a Workload with their assigned counts.

    An assignment does not count pods that had ended before it. The controller of most kinds does not start
    such pods again, so the podset of the job keeps its count.
    """
    assigned = {
        assignment.get("name", "main"): assignment.get("count")
        for assignment in value_at(workload, ("status", "admission", "podSetAssignments"), [])
    }
    requested = {pod_set.get("name", "main"): pod_set.get("count") for pod_set in current}
    ended = reclaimable_pods.reported_counts(workload)
    pod_sets: list[JsonObject] = []
    for pod_set in value_at(workload, ("spec", "podSets"), []):
        name, full = pod_set.get("name", "main"), pod_set.get("count", 1)
        count = assigned.get(name)
        is_partial = pod_set.get("minCount") is not None
        is_covered = count is not None and not is_partial and count + ended.get(name, 0) >= full
        is_unchanged = count is None or (is_covered and requested.get(name) == full)
        pod_sets.append(pod_set if is_unchanged else {**pod_set, "count": count})
    return pod_sets


def _equal(
    case: JobCase, expected: Sequence[JsonObject], listed: Sequence[JsonObject], *, running: bool
) -> bool:
    return all(
        pod_set.get("count") == other.get("count", 1)
        and (running or pod_set.get("minCount") == other.get("minCount"))
        and has_same_pods(case, pod_set, other, tolerations=not running)
        for pod_set, other in zip(expected, listed, strict=True)
    )
