"""Which of its Workloads stands for a job as it is now, and where a job asks for more than it was granted."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from admitq import translate
from admitq.controllers.job.case import JobCase
from admitq.core.requests import pod_requests
from admitq.integrations import ownership
from admitq.integrations.ownership import controller_of
from admitq.integrations.paths import Object, value_at
from admitq.job_workloads import has_same_pods, longest_execution, pod_sets_of
from admitq.transitions import is_admitted, is_reserved


class Match(NamedTuple):
    """The Workload that stands for the job, if any, and those of the job that do not."""

    workload: Object | None
    others: list[Object]


def prebuilt_name(case: JobCase) -> str:
    """Name of the Workload that the job adopts; empty if one is created for it."""
    if not case.integration.adopts_prebuilt_workload:
        return ""
    return ownership.prebuilt_name(
        case.job or {}, case.names, by_annotation=case.settings.names_by_annotation
    )


def prebuilt_workload(case: JobCase) -> Object | None:
    """The Workload that the job is to adopt: there, and not controlled by anybody else."""
    found = case.lookups.workload(prebuilt_name(case))
    if found is None:
        return None
    controller = controller_of(found)
    # A group, which many own, controls nothing.
    mine = controller is None or controller.get("uid") == value_at(case.job, ("metadata", "uid"))
    return found if mine else None


def match_of(case: JobCase) -> Match:
    """Find the Workload that stands for the job.

    A prebuilt one is taken as it is; whether it is equivalent is another question. A job that has ended is
    not compared any more: its first Workload is the one that ended with it. Nor is one whose pods cannot be
    told just now: what it has stays.
    """
    if prebuilt_name(case):
        prebuilt = prebuilt_workload(case)
        name = None if prebuilt is None else prebuilt["metadata"]["name"]
        return Match(prebuilt, [one for one in case.owned if one["metadata"]["name"] != name])
    found = next((one for one in case.owned if is_equivalent(case, one)), None)
    if found is None and case.owned and not is_comparable(case):
        found = case.owned[0]
    return Match(found, [one for one in case.owned if one is not found])


def is_comparable(case: JobCase) -> bool:
    """Whether what the job runs can be told, and still matters."""
    return not case.missing and case.integration.finished(case.job or {}) is None


def is_equivalent(case: JobCase, workload: Object) -> bool:
    """Whether the Workload asks for what the job asks for.

    Once admitted, or while it runs, a job has the counts that were assigned and tolerations that were
    injected; one that is suspended may have its own ones still, or again.
    """
    spec = value_at(workload, ("spec",), {})
    if spec.get("maximumExecutionTimeSeconds") != longest_execution(case):
        return False
    job: Object = case.job or {}
    if case.composition is not None:
        equivalent = case.composition.is_equivalent(job, spec.get("podSets") or [])
        if equivalent is not None:
            return equivalent
    wanted, listed = pod_sets_of(case), spec.get("podSets") or []
    if len(wanted) != len(listed):
        return False
    if not is_reserved(workload):
        return _equal(case, wanted, listed, running=False)
    suspended, admitted = (
        case.integration.is_suspended(job, case.names),
        is_admitted(workload),
    )
    running = [_as_assigned(workload, pod_set) for pod_set in listed]
    if (admitted or not suspended) and _equal(case, wanted, running, running=True):
        return True
    return suspended and _equal(case, wanted, listed, running=admitted)


class Raise(NamedTuple):
    """A podset of a job that asks for more than it was granted: more pods, or more of a resource for each.

    ``resource`` is empty where the requests of a pod are not larger.
    """

    pod_set: str
    wanted: int
    granted: int
    resource: str

    @property
    def pods(self) -> int:
        """How many pods the job asks for beyond those that were granted."""
        return max(0, self.wanted - self.granted)

    def __str__(self) -> str:
        """Tell what is asked for and what was granted."""
        if self.pods:
            return f"podset {self.pod_set} asks for {self.wanted} pods, {self.granted} admitted"
        return f"pods of podset {self.pod_set} ask for more {self.resource} than was admitted"


def raises(wanted: Sequence[Object], granted: Sequence[Object]) -> list[Raise]:
    """Compare podsets of a job, by name, with what it was granted; returns those that ask for more.

    Both are podsets as a Workload lists them. The webhook compares a job with what it was before.
    """
    before = {one.get("name", "main"): one for one in granted}
    found: list[Raise] = []
    for one in wanted:
        name = one.get("name", "main")
        other = before.get(name)
        allowed = 0 if other is None else other.get("count", 1)
        resource = "" if other is None else _larger_request(one, other)
        if one.get("count", 1) > allowed or resource:
            found.append(Raise(name, one.get("count", 1), allowed, resource))
    return found


def raises_over(case: JobCase, workload: Object) -> list[Raise]:
    """The podsets of a job that ask for more than is reserved for its Workload."""
    if not is_reserved(workload):
        return []
    listed = value_at(workload, ("spec", "podSets"), [])
    return raises(pod_sets_of(case), [_as_assigned(workload, one) for one in listed])


def _larger_request(one: Object, other: Object) -> str:
    """The first resource of which a pod requests more than before, or less than before; empty if none."""
    now, before = _requests(one), _requests(other)
    return next((name for name, value in sorted(now.items()) if value > before.get(name, 0)), "")


def _requests(pod_set: Object) -> Mapping[str, Fraction]:
    try:
        return dict(pod_requests(translate.pod_set(pod_set, "", []).template))
    except translate.Malformed:
        return {}


def _as_assigned(workload: Object, pod_set: Object) -> Object:
    for assignment in value_at(workload, ("status", "admission", "podSetAssignments"), []):
        if assignment.get("name", "main") == pod_set.get("name", "main"):
            return {**pod_set, "count": assignment.get("count", pod_set.get("count"))}
    return pod_set


def _equal(case: JobCase, wanted: Sequence[Object], listed: Sequence[Object], *, running: bool) -> bool:
    return all(
        one.get("count") == other.get("count", 1)
        and (running or one.get("minCount") == other.get("minCount"))
        and has_same_pods(case, one, other, tolerations=not running)
        for one, other in zip(wanted, listed, strict=True)
    )
