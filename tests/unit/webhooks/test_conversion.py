"""Conversion reviews: what is answered, also to what is none."""

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


async def answered(body: bytes) -> dict[str, Any]:
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest("POST", "/convert", body=body)
    )
    assert response.status == 200, response.body
    found = orjson.loads(response.body)
    assert (found["apiVersion"], found["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert found["response"]["uid"] == "u"
    return found["response"]


def queue(name: str = "one", **changed: Any) -> dict[str, Any]:
    return {
        "apiVersion": OLDER,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohort": "team"},
    } | changed


async def test_objects_are_answered_in_their_order() -> None:
    response = await answered(review(queue("one"), queue("two", apiVersion=NEWER), queue("three")))
    assert response["result"] == {"status": "Success"}
    found = response["convertedObjects"]
    assert [one["metadata"]["name"] for one in found] == ["one", "two", "three"]
    assert {one["apiVersion"] for one in found} == {NEWER}
    assert found[0]["spec"] == {"cohortName": "team"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (queue("bad", apiVersion="v1"), "ClusterQueue bad: 'v1' 'ClusterQueue' cannot be converted to"),
        (queue(kind="Pod", metadata={"name": "p", "namespace": "n"}), "Pod n/p: "),
        (queue(kind="Pod", metadata={}), "objects[1]: "),
        ("text", "objects[1]: not an object"),
    ],
)
async def test_one_that_cannot_be_converted_is_named(bad: Any, says: str) -> None:
    response = await answered(review(queue(), bad))
    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith(says)
    assert "convertedObjects" not in response


async def test_a_defect_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("spec")

    monkeypatch.setattr(under_test, "convert", fails)
    result = (await answered(review(queue())))["result"]
    assert result == {
        "status": "Failure",
        "message": "ClusterQueue one: internal error; the log of the webhook says more",
    }


@pytest.mark.parametrize("depth", [300, 1022])
async def test_an_object_that_goes_deep_is_converted_all_the_same(depth: int) -> None:
    """As deep as a review of admission lets it be, which holds it one level less deep."""
    deep = b'{"x":' * depth + b"1" + b"}" * depth
    body = review(queue(deep="here")).replace(b'"here"', deep)
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest("POST", "/convert", body=body)
    )
    assert response.status == 200, response.body
    assert deep in response.body.replace(b" ", b"")


async def test_there_is_an_end_to_how_deep_bodies_go() -> None:
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
async def test_what_is_no_review(method: str, body: bytes, status: int) -> None:
    response = await conversion_handlers(names_for(COMPAT_GROUP))["/convert"](
        HttpRequest(method, "/convert", body=body)
    )
    assert response.status == status


def test_a_group_with_one_version_converts_nothing() -> None:
    assert conversion_handlers(names_for(DEFAULT_GROUP)) == {}
