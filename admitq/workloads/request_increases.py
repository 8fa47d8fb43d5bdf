"""Where a job asks for more than it was granted: more pods of a podset, or larger pods. Pure functions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from admitq.core.requests import pod_requests
from admitq.translate.pod_sets import read_pod_set
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import MalformedField


class RequestIncrease(NamedTuple):
    """A podset of a job that asks for more than it was granted: more pods, or more of a resource for each.

    ``resource`` is empty where the requests of a pod are not larger.
    """

    pod_set: str
    requested_count: int
    granted_count: int
    resource: str

    @property
    def additional_pods(self) -> int:
        """How many pods the job asks for beyond those that were granted."""
        return max(0, self.requested_count - self.granted_count)

    def __str__(self) -> str:
        """Tell what is asked for and what was granted."""
        if self.additional_pods:
            return (
                f"podset {self.pod_set} asks for {self.requested_count} pods, {self.granted_count} admitted"
            )
        return f"pods of podset {self.pod_set} ask for more {self.resource} than was admitted"


def find_request_increases(
    wanted: Sequence[JsonObject], granted: Sequence[JsonObject]
) -> list[RequestIncrease]:
    """Compare podsets of a job, by name, with what it was granted; returns those that ask for more.

    Both are podsets as a Workload lists them. The webhook compares a job with what it was before.
    """
    before = {one.get("name", "main"): one for one in granted}
    found: list[RequestIncrease] = []
    for one in wanted:
        name = one.get("name", "main")
        other = before.get(name)
        allowed = 0 if other is None else other.get("count", 1)
        resource = "" if other is None else _larger_request(one, other)
        if one.get("count", 1) > allowed or resource:
            found.append(RequestIncrease(name, one.get("count", 1), allowed, resource))
    return found


def _larger_request(one: JsonObject, other: JsonObject) -> str:
    """The first resource of which a pod requests more than before, or less than before; empty if none."""
    now, before = _requests(one), _requests(other)
    return next((name for name, value in sorted(now.items()) if value > before.get(name, 0)), "")


def _requests(pod_set: JsonObject) -> Mapping[str, Fraction]:
    try:
        return dict(pod_requests(read_pod_set(pod_set, "", []).template))
    except MalformedField:
        return {}
