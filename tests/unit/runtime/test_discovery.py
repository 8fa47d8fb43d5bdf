"""Discovery reads the served groups and resources from answers of the API server."""

from dataclasses import replace
from typing import Any, cast

import pytest

from admitq.runtime.client import Client
from admitq.runtime.discovery import find_resource_of_kind, find_served, list_group_versions, list_resources
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS, Resource

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)


class AnsweringClient:
    """A client that answers by path. Other paths are not served."""

    def __init__(self, by_path: dict[str, Any]) -> None:
        self.by_path = by_path

    async def request_json(self, _method: str, path: str) -> Any:
        answer = self.by_path.get(path, ApiError(404, "NotFound", "page not found"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def client_with_answers(by_path: dict[str, Any]) -> Client:
    return cast("Client", AnsweringClient(by_path))


def resource_list(*resources: Any) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": list(resources)}


async def test_groups_are_listed_with_all_versions() -> None:
    groups = [
        {"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]},
        {"name": "two.example", "versions": [{"version": "v1"}, {"version": "v2"}]},
    ]
    served = await list_group_versions(client_with_answers({"/apis": {"groups": groups}}))
    assert served == {("batch", "v1"), ("two.example", "v1"), ("two.example", "v2")}


@pytest.mark.parametrize("answer", [{}, {"groups": None}, {"groups": [None, {"versions": 3}]}, None, []])
async def test_malformed_discovery_answer_has_no_groups_and_resources(answer: Any) -> None:
    client = client_with_answers({"/apis": answer, "/apis/batch/v1": answer})
    assert await list_group_versions(client) == frozenset()
    assert await list_resources(client, "batch", "v1") == ()


async def test_resources_are_found_by_kind_without_subresources() -> None:
    client = client_with_answers(
        {
            "/api/v1": resource_list({"name": "pods", "kind": "Pod", "namespaced": True}),
            "/apis/batch/v1": resource_list(
                {"name": "jobs/status", "kind": "Job", "namespaced": True},
                {"name": "jobs", "kind": "Job", "namespaced": True},
                {"kind": "Nameless"},
            ),
        }
    )
    assert await list_resources(client, "", "v1") == (PODS,)
    assert await find_resource_of_kind(client, "batch", "v1", "Job") == JOBS
    assert await find_resource_of_kind(client, "batch", "v1", "CronJob") is None


async def test_every_view_of_served_resource_is_served() -> None:
    resources = resource_list({"name": "pods", "kind": "Pod", "namespaced": True})
    client = client_with_answers({"/apis": {}, "/api/v1": resources})
    view, other = replace(PODS, view="of mine"), replace(PODS, plural="pets")
    assert await find_served(client, [PODS, view, other]) == {PODS, view}


async def test_unserved_group_has_no_resources() -> None:
    assert await list_resources(client_with_answers({}), JOB_SETS.group, JOB_SETS.version) == ()


async def test_failed_discovery_raises_error() -> None:
    down = ApiError(503, "ServiceUnavailable", "down")
    failing = client_with_answers({"/apis": down, "/apis/batch/v1": down})
    for request in (list_group_versions(failing), list_resources(failing, "batch", "v1")):
        with pytest.raises(ApiError):
            await request
