"""Responses to ConversionReviews and to bodies that are no ConversionReview."""

from typing import Any, Final

import orjson
import pytest

from admitq.serving.http import HttpRequest
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from admitq_webhooks import conversion as under_test
from admitq_webhooks.conversion import conversion_handlers

OLDER: Final = f"{COMPAT_GROUP}/v1beta1"
NEWER: Final = f"{COMPAT_GROUP}/v1beta2"


def review(*objects: Any, **changed: Any) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": NEWER, "objects": list(objects)} | changed
    return orjson.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    )


async def convert_review(body: bytes) -> dict[str, Any]:
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest("POST", "/convert", body=body)
    )
    assert response.status == 200, response.body
    answer = orjson.loads(response.body)
    assert (answer["apiVersion"], answer["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert answer["response"]["uid"] == "u"
    return answer["response"]


def queue(name: str = "one", **changed: Any) -> dict[str, Any]:
    return {
        "apiVersion": OLDER,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohort": "team"},
    } | changed


async def test_objects_are_converted_in_order_of_request() -> None:
    response = await convert_review(review(queue("one"), queue("two", apiVersion=NEWER), queue("three")))
    assert response["result"] == {"status": "Success"}
    converted = response["convertedObjects"]
    assert [obj["metadata"]["name"] for obj in converted] == ["one", "two", "three"]
    assert {obj["apiVersion"] for obj in converted} == {NEWER}
    assert converted[0]["spec"] == {"cohortName": "team"}


@pytest.mark.parametrize(
    ("unconvertible", "message"),
    [
        (queue("bad", apiVersion="v1"), "ClusterQueue bad: 'v1' 'ClusterQueue' cannot be converted to"),
        (queue(kind="Pod", metadata={"name": "p", "namespace": "n"}), "Pod n/p: "),
        (queue(kind="Pod", metadata={}), "objects[1]: "),
        ("text", "objects[1]: not an object"),
    ],
)
async def test_object_that_cannot_be_converted_is_named_in_failure(unconvertible: Any, message: str) -> None:
    response = await convert_review(review(queue(), unconvertible))
    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith(message)
    assert "convertedObjects" not in response


async def test_internal_error_is_answered_as_conversion_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("spec")

    monkeypatch.setattr(under_test, "convert", fail)
    result = (await convert_review(review(queue())))["result"]
    assert result == {
        "status": "Failure",
        "message": "ClusterQueue one: internal error; the log of the webhook has the traceback",
    }


@pytest.mark.parametrize("depth", [300, 1022])
async def test_deeply_nested_object_is_converted(depth: int) -> None:
    """1022 levels are the maximum in an admission review, which nests the object one level less deep."""
    deep = b'{"x":' * depth + b"1" + b"}" * depth
    body = review(queue(deep="here")).replace(b'"here"', deep)
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest("POST", "/convert", body=body)
    )
    assert response.status == 200, response.body
    assert deep in response.body.replace(b" ", b"")


async def test_body_nested_too_deeply_is_answered_with_400() -> None:
    handle = conversion_handlers(names_for(COMPAT_GROUP))["/convert"]
    response = await handle(HttpRequest("POST", "/convert", body=b"[" * 100_000))
    assert response.status == 400


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("GET", b"", 405),
        ("POST", b"{", 400),
        ("POST", b"[]", 400),
        ("POST", b"{}", 400),
        ("POST", review(uid=5), 400),
        ("POST", review(objects={}), 400),
        ("POST", review().replace(b"extensions.k8s.io/v1", b"extensions.k8s.io/v1beta1"), 400),
    ],
)
async def test_invalid_conversion_request_is_answered_with_client_error(
    method: str, body: bytes, status: int
) -> None:
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest(method, "/convert", body=body)
    )
    assert response.status == status


def test_group_with_one_version_has_no_conversion_handler() -> None:
    assert conversion_handlers(names_for(DEFAULT_GROUP)) == {}
