"""Lookups read stores of watched objects, or the API server where a store lacks the object."""

from collections.abc import Callable
from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import NAMESPACES
from admitq.serving.access_reviews import Access
from admitq.serving.authorization import ReviewFailed, User
from admitq.serving.rotation import BundleTarget, CertificateApiError
from admitq_api.labels import names_for
from admitq_webhooks.live_lookups import LiveLookups, ServingCalls, select_lookup_fields, watched_lookups
from admitq_webhooks.lookups import LookupFailed

KINDS = kinds_of(names_for())
NOT_FOUND = ApiError(404, "NotFound", "gone")
DOWN = ApiError(503, "ServiceUnavailable", "down")
EXISTS = ApiError(409, "AlreadyExists", "there")
CONFLICT = ApiError(409, "Conflict", "changed")
FORBIDDEN = ApiError(403, "Forbidden", "no")


class SameResultClient:
    """API client with the same result for every call."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

        return call


def an_object(
    resource: Any, name: str, namespace: str = "", spec: Any = None, **metadata: Any
) -> dict[str, Any]:
    namespaced = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **namespaced, "uid": name, "resourceVersion": "1", **metadata},
        "spec": {"large": "thing", **(spec or {})},
    }


def create_lookups(client: Any) -> LiveLookups:
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}, {"name": "unknown"}]}}
    controller = {"controllerName": "x/y"}
    objects = [
        (KINDS.local_queues, an_object(KINDS.local_queues, "default", "team", spec={"clusterQueue": "cq"})),
        (KINDS.workload_priority_classes, an_object(KINDS.workload_priority_classes, "high")),
        (KINDS.cluster_queues, an_object(KINDS.cluster_queues, "cq", spec=checks)),
        (KINDS.admission_checks, an_object(KINDS.admission_checks, "elsewhere", spec=controller)),
        (NAMESPACES, an_object(NAMESPACES, "team", labels={"a": "b"})),
    ]
    lookups, watchers = watched_lookups(client, names_for(), (JOB,))
    stores = {watcher.resource: watcher.store for watcher in watchers}
    for resource, obj in objects:
        stores[resource].upsert(obj)
    return lookups


def test_stores_keep_only_fields_that_lookups_need() -> None:
    obj = an_object(NAMESPACES, "team", annotations={"large": "thing"}, labels={"a": "b"})
    trimmed = select_lookup_fields()(obj)
    assert trimmed["metadata"] == {
        "name": "team",
        "uid": "team",
        "resourceVersion": "1",
        "labels": {"a": "b"},
    }
    assert "spec" not in trimmed
    assert select_lookup_fields("small")({**obj, "spec": {"large": "thing", "small": 1}})["spec"] == {
        "small": 1
    }


async def test_lookup_of_stored_object_sends_no_request() -> None:
    client = SameResultClient(DOWN)
    lookups = create_lookups(client)
    assert lookups.has_local_queue("team", "default")
    assert not lookups.has_local_queue("other", "default")
    assert lookups.has_priority_class("high")
    assert not lookups.has_priority_class("low")
    assert await lookups.namespace_labels("team") == {"a": "b"}
    assert lookups.admission_check_controllers("team", "default") == {"x/y"}
    assert lookups.admission_check_controllers("team", "no-such-queue") == frozenset()
    assert client.calls == []


async def test_namespace_missing_from_store_is_read_from_api_server() -> None:
    lookups = create_lookups(SameResultClient(an_object(NAMESPACES, "new", labels={"c": "d"})))
    assert await lookups.namespace_labels("new") == {"c": "d"}
    assert await create_lookups(SameResultClient(NOT_FOUND)).namespace_labels("gone") is None
    assert await create_lookups(SameResultClient(ValueError("not a segment"))).namespace_labels("..") is None
    with pytest.raises(LookupFailed):
        await create_lookups(SameResultClient(DOWN)).namespace_labels("new")


async def test_owner_of_known_kind_is_read_from_api_server() -> None:
    client = SameResultClient({"metadata": {"uid": "u"}})
    owner = await create_lookups(client).get_object("batch", "v1", "Job", "team", "parent")
    assert owner == {"metadata": {"uid": "u"}}
    assert [(name, str(resource), *rest) for name, resource, *rest in client.calls] == [
        ("get", "jobs.batch", "parent", "team")
    ]
    assert (
        await create_lookups(SameResultClient(NOT_FOUND)).get_object("batch", "v1", "Job", "team", "gone")
        is None
    )
    assert await create_lookups(client).get_object("batch", "v1", "Job", "team", "") is None
    with pytest.raises(LookupFailed):
        await create_lookups(SameResultClient(DOWN)).get_object("batch", "v1", "Job", "team", "parent")


async def test_plural_of_unknown_kind_is_discovered_once() -> None:
    discovery = {
        "resources": [
            {"name": "foxes/status", "kind": "Fox", "namespaced": True},
            {"name": "foxes", "kind": "Fox", "namespaced": False},
        ]
    }
    client = SameResultClient(discovery)
    lookups = create_lookups(client)
    for _ in range(2):
        await lookups.get_object("zoo.example.com", "v1", "Fox", "team", "reynard")
    assert [call[:1] + tuple(map(str, call[1:])) for call in client.calls] == [
        ("request_json", "GET", "/apis/zoo.example.com/v1"),
        ("get", "foxes.zoo.example.com", "reynard", "None"),
        ("get", "foxes.zoo.example.com", "reynard", "None"),
    ]
    assert await lookups.get_object("zoo.example.com", "v1", "Wolf", "team", "x") is None
    assert (
        await create_lookups(SameResultClient(NOT_FOUND)).get_object("no.such", "v1", "X", "team", "x")
        is None
    )
    with pytest.raises(LookupFailed):
        await create_lookups(SameResultClient(DOWN)).get_object("zoo.example.com", "v1", "Fox", "team", "x")


async def test_group_and_version_of_owner_are_escaped_in_request_path() -> None:
    client = SameResultClient(NOT_FOUND)
    await create_lookups(client).get_object("../api", "v1/secrets", "X", "team", "x")
    assert client.calls == [("request_json", "GET", "/apis/..%2Fapi/v1%2Fsecrets")]


TARGET = BundleTarget("mutatingwebhookconfigurations", "x")


@pytest.mark.parametrize(
    ("outcome", "call", "expected"),
    [
        ({"a": 1}, lambda calls: calls.get_secret("ns", "n"), {"a": 1}),
        (NOT_FOUND, lambda calls: calls.get_secret("ns", "n"), None),
        (FORBIDDEN, lambda calls: calls.get_secret("ns", "n"), CertificateApiError),
        ({}, lambda calls: calls.create_secret({}), True),
        (EXISTS, lambda calls: calls.create_secret({}), False),
        (FORBIDDEN, lambda calls: calls.create_secret({}), CertificateApiError),
        ({}, lambda calls: calls.replace_secret({}), True),
        (CONFLICT, lambda calls: calls.replace_secret({}), False),
        (NOT_FOUND, lambda calls: calls.replace_secret({}), False),
        (DOWN, lambda calls: calls.replace_secret({}), CertificateApiError),
        ({"a": 1}, lambda calls: calls.get_configuration(TARGET), {"a": 1}),
        (NOT_FOUND, lambda calls: calls.get_configuration(TARGET), None),
        (DOWN, lambda calls: calls.get_configuration(TARGET), CertificateApiError),
        ({}, lambda calls: calls.patch_configuration(TARGET, []), None),
        (CONFLICT, lambda calls: calls.patch_configuration(TARGET, []), CertificateApiError),
        ({"a": 1}, lambda calls: calls.create_token_review({}), {"a": 1}),
        (DOWN, lambda calls: calls.create_token_review({}), ReviewFailed),
        (DOWN, lambda calls: calls.create_subject_access_review({}), ReviewFailed),
    ],
)
async def test_serving_calls_distinguish_absent_object_from_failed_request(
    outcome: Any, call: Any, expected: Any
) -> None:
    calls = ServingCalls(SameResultClient(outcome))  # pyright: ignore[reportArgumentType]
    if isinstance(expected, type):
        with pytest.raises(expected):
            await call(calls)
    else:
        assert await call(calls) == expected


async def test_access_review_is_sent_to_api_server_and_fails_without_answer() -> None:
    user, access = User("anna", "", (), ()), Access("update", "batch", "jobs", "status", "team")
    client = SameResultClient({"status": {"allowed": True}})
    assert await create_lookups(client).is_allowed(user, access)
    assert [(name, str(resource)) for name, resource, *_ in client.calls] == [
        ("create", "subjectaccessreviews.authorization.k8s.io")
    ]
    with pytest.raises(LookupFailed, match=r"whether 'anna' may update jobs\.batch/status is not known"):
        await create_lookups(SameResultClient(DOWN)).is_allowed(user, access)


async def test_plural_of_kind_is_known_or_discovered() -> None:
    served = SameResultClient({"resources": [{"name": "foxes", "kind": "Fox", "namespaced": True}]})
    assert await create_lookups(SameResultClient(DOWN)).plural("batch", "v1", "Job") == "jobs"
    assert await create_lookups(served).plural("zoo.example.com", "v1", "Fox") == "foxes"
    assert await create_lookups(SameResultClient(NOT_FOUND)).plural("zoo.example.com", "v1", "Fox") is None
    with pytest.raises(LookupFailed):
        await create_lookups(SameResultClient(DOWN)).plural("zoo.example.com", "v1", "Fox")
