"""Podsets of a job that request more than the job was granted: more pods, or larger pods. Pure functions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from admitq.core.requests import pod_requests
from admitq.translate.pod_sets import read_pod_set
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import MalformedField


class RequestIncrease(NamedTuple):
    """A podset that requests more than it was granted: more pods, or more of a resource for each pod.

    ``resource`` is empty if the requests of a pod are not larger.
    """

    pod_set: str
    requested_count: int
    granted_count: int
    resource: str

    @property
    def additional_pods(self) -> int:
        """Number of pods beyond the granted ones."""
        return max(0, self.requested_count - self.granted_count)

    def __str__(self) -> str:
        """Return the requested and the granted amount as text."""
        if self.additional_pods:
            return (
                f"podset {self.pod_set} requests {self.requested_count} pods, {self.granted_count} admitted"
            )
        return f"pods of podset {self.pod_set} request more {self.resource} than was admitted"


def find_request_increases(
    current: Sequence[JsonObject], granted: Sequence[JsonObject]
) -> list[RequestIncrease]:
    """Return the podsets that request more than the granted podsets of the same names.

    Both arguments are podsets as a Workload lists them. The webhook compares a changed job with the stored
    one.
    """
    before = {pod_set.get("name", "main"): pod_set for pod_set in granted}
    increases: list[RequestIncrease] = []
    for pod_set in current:
        name = pod_set.get("name", "main")
        other = before.get(name)
        allowed = 0 if other is None else other.get("count", 1)
        resource = "" if other is None else _larger_request(pod_set, other)
        if pod_set.get("count", 1) > allowed or resource:
            increases.append(RequestIncrease(name, pod_set.get("count", 1), allowed, resource))
    return increases


def _larger_request(current: JsonObject, other: JsonObject) -> str:
    """Return the first resource, by name, of which a pod requests more than before; empty if none."""
    now, before = _requests(current), _requests(other)
    return next((name for name, value in sorted(now.items()) if value > before.get(name, 0)), "")


def _requests(pod_set: JsonObject) -> Mapping[str, Fraction]:
    try:
        return dict(pod_requests(read_pod_set(pod_set, "", []).template))
    except MalformedField:
        return {}
