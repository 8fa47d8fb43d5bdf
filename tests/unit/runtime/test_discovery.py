"""What the API server serves is read from its answers, whatever their shape."""

from dataclasses import replace
from typing import Any, cast

import pytest

from admitq.runtime.client import Client
from admitq.runtime.discovery import find_resource_of_kind, find_served, list_group_versions, list_resources
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS, Resource

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)


class Answers:
    """A client that answers by path; any other path is not served."""

    def __init__(self, by_path: dict[str, Any]) -> None:
        self.by_path = by_path

    async def request_json(self, _method: str, path: str) -> Any:
        answer = self.by_path.get(path, ApiError(404, "NotFound", "page not found"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def answering(by_path: dict[str, Any]) -> Client:
    return cast("Client", Answers(by_path))


def offering(*resources: Any) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": list(resources)}


async def test_groups_are_listed_with_all_versions() -> None:
    groups = [
        {"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]},
        {"name": "two.example", "versions": [{"version": "v1"}, {"version": "v2"}]},
    ]
    served = await list_group_versions(answering({"/apis": {"groups": groups}}))
    assert served == {("batch", "v1"), ("two.example", "v1"), ("two.example", "v2")}


@pytest.mark.parametrize("answer", [{}, {"groups": None}, {"groups": [None, {"versions": 3}]}, None, []])
async def test_answer_of_another_shape_has_no_resources(answer: Any) -> None:
    client = answering({"/apis": answer, "/apis/batch/v1": answer})
    assert await list_group_versions(client) == frozenset()
    assert await list_resources(client, "batch", "v1") == ()


async def test_subresources_are_left_out_and_kinds_are_found() -> None:
    client = answering(
        {
            "/api/v1": offering({"name": "pods", "kind": "Pod", "namespaced": True}),
            "/apis/batch/v1": offering(
                {"name": "jobs/status", "kind": "Job", "namespaced": True},
                {"name": "jobs", "kind": "Job", "namespaced": True},
                {"kind": "Nameless"},
            ),
        }
    )
    assert await list_resources(client, "", "v1") == (PODS,)
    assert await find_resource_of_kind(client, "batch", "v1", "Job") == JOBS
    assert await find_resource_of_kind(client, "batch", "v1", "CronJob") is None


async def test_what_is_watched_in_parts_is_served_in_each() -> None:
    offered = offering({"name": "pods", "kind": "Pod", "namespaced": True})
    client = answering({"/apis": {}, "/api/v1": offered})
    view, other = replace(PODS, view="of mine"), replace(PODS, plural="pets")
    assert await find_served(client, [PODS, view, other]) == {PODS, view}


async def test_unserved_groups_have_no_resources_and_failures_differ() -> None:
    assert await list_resources(answering({}), JOB_SETS.group, JOB_SETS.version) == ()
    down = ApiError(503, "ServiceUnavailable", "down")
    broken = answering({"/apis": down, "/apis/batch/v1": down})
    for asked in (list_group_versions(broken), list_resources(broken, "batch", "v1")):
        with pytest.raises(ApiError):
            await asked
