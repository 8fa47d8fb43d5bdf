"""Dry runs: what the API server refuses, how it stores objects, and the objects to which jobs refer."""

from typing import Any, cast

import pytest

from admitq.manifests.documents import Document
from admitq.plugin.cluster_access import ClusterAccess
from admitq.plugin.dry_run import dry_run, read_referenced
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)
SERVED = {
    "/apis/batch/v1": [{"name": "jobs", "kind": "Job", "namespaced": True}],
    f"/apis/{NAMES.api_version}": [{"name": "localqueues", "kind": "LocalQueue", "namespaced": True}],
}
RUNTIME = {"metadata": {"name": "torch"}, "spec": {}}


class DryRunClient:
    """Accepts every dry run, or fails those of some methods. ``calls`` lists methods and namespaces."""

    def __init__(self, **errors: ApiError) -> None:
        self._errors = errors
        self.calls: list[tuple[str, str]] = []

    async def request_json(self, method: str, path: str) -> Any:
        assert method == "GET"
        if path not in SERVED:
            raise ApiError(404, "NotFound", "no")
        return {"resources": SERVED[path]}

    async def create(
        self, resource: Resource, obj: dict[str, Any], *, dry_run: bool, field_manager: str
    ) -> Any:
        return self._answer("create", obj, dry_run)

    async def apply(
        self, resource: Resource, obj: dict[str, Any], *, field_manager: str, dry_run: bool
    ) -> Any:
        return self._answer("apply", obj, dry_run)

    def _answer(self, method: str, obj: dict[str, Any], dry_run: bool) -> Any:
        assert dry_run
        self.calls.append((method, obj["metadata"].get("namespace", "")))
        if method in self._errors:
            raise self._errors[method]
        return {**obj, "spec": {"suspend": True}}

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Any:
        self.calls.append((f"get {resource} {name}", namespace or ""))
        if "get" in self._errors:
            raise self._errors["get"]
        return RUNTIME


def manifest(kind: str, api_version: str = "batch/v1", **parts: Any) -> Document:
    return Document("file", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "o"}, **parts})


def access(client: DryRunClient) -> ClusterAccess:
    return ClusterAccess(cast("Client", client), NAMES, "team", frozenset())


async def test_accepted_object_is_as_the_api_server_stores_it() -> None:
    client = DryRunClient()
    check = await dry_run(access(client), manifest("Job"))
    assert (check.problems, check.document.value["spec"]) == ((), {"suspend": True})
    assert (check.namespace, client.calls) == ("team", [("create", "team")])


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ApiError(422, "Invalid", "spec is invalid"), "spec is invalid"),
        (
            ApiError(403, "Forbidden", "admission webhook denied the request"),
            "admission webhook denied the request",
        ),
        (ApiError(409, "AlreadyExists", "exists already"), "exists already"),
    ],
)
async def test_rejected_job_is_refused_with_the_message(error: ApiError, problem: str) -> None:
    client = DryRunClient(create=error)
    assert (await dry_run(access(client), manifest("Job"))).problems == (problem,)
    assert client.calls == [("create", "team")]


async def test_kind_that_is_not_served_is_refused() -> None:
    check = await dry_run(access(DryRunClient()), manifest("Thing", "example.com/v1"))
    assert check.problems == ("the cluster serves no Thing of example.com/v1",)


async def test_queue_that_exists_would_be_changed() -> None:
    client = DryRunClient(create=ApiError(409, "AlreadyExists", "exists already"))
    check = await dry_run(access(client), manifest("LocalQueue", NAMES.api_version))
    assert (check.problems, client.calls) == ((), [("create", "team"), ("apply", "team")])


@pytest.mark.parametrize("status", [0, 401])
async def test_api_server_that_cannot_be_used_is_an_error(status: int) -> None:
    with pytest.raises(ApiError):
        await dry_run(access(DryRunClient(create=ApiError(status, "Failed", "no"))), manifest("Job"))


def train_job() -> JsonObject:
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"}
    return manifest("TrainJob", "trainer.kubeflow.org/v1alpha1", spec={"runtimeRef": runtime}).value


async def test_runtime_of_a_train_job_is_read() -> None:
    client = DryRunClient()
    others = [manifest(kind).value for kind in ("Job", "Thing")]
    (found,) = await read_referenced(access(client), [train_job(), *others])
    assert (found["kind"], found["metadata"]) == ("ClusterTrainingRuntime", {"name": "torch"})
    assert client.calls == [("get clustertrainingruntimes.trainer.kubeflow.org torch", "")]


async def test_runtime_that_two_jobs_name_is_read_once_and_only_if_it_is_no_manifest() -> None:
    client = DryRunClient()
    assert len(await read_referenced(access(client), [train_job(), train_job()])) == 1
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
    }
    assert await read_referenced(access(client), [train_job(), runtime]) == []
    assert len(client.calls) == 1


@pytest.mark.parametrize("status", [403, 404])
async def test_referenced_object_that_cannot_be_read_is_left_out(status: int) -> None:
    client = DryRunClient(get=ApiError(status, "Failed", "no"))
    assert await read_referenced(access(client), [train_job()]) == []
