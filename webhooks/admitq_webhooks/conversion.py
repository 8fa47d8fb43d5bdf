"""Conversion reviews: the API server asks for objects in another version.

A review is answered as a whole. So one object that cannot be converted fails it, and the answer names that
object: nothing short of a foreign kind or version does that, since conversion takes whatever an object holds.
"""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import orjson

from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.serving.http import JSON, Handler, HttpRequest, HttpResponse, text
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names
from admitq_api.v1beta1.conversion import ConversionError, convert

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"
_LONGEST_NAME: Final = 253
_DEEPEST: Final = 2000
"""How deep values within values may go, about. That is more than reviews of admission may hold: no object
that was admitted may be one that cannot be converted, for no list that it is in could be read then."""


def conversion_handlers(names: Names, errors: UnexpectedErrors = LOG_ONLY) -> dict[str, Handler]:
    """Return the handler of the path of conversion; none for a group with one version.

    Args:
        names: the names of the API group.
        errors: takes the exceptions that no conversion should raise. The API server gets a failed review, and
            answers the request that needed it with an error.
    """

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return HttpResponse(405, b"send a ConversionReview by POST\n", headers={"Allow": "POST"})
        try:
            review = _decode(request.body)
        except (ValueError, RecursionError) as error:
            return text(400, f"the body is not JSON: {error}")
        match review:
            case {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "ConversionReview",
                "request": {"uid": str(uid), "desiredAPIVersion": str(version), "objects": [*objects]},
            }:
                return HttpResponse(200, _encode(_answer(uid, version, objects, names, errors)), JSON)
            case _:
                return text(400, f"the body is not a {KIND} of {API_VERSION} with uid, version and objects")

    return {names.conversion_path: handle} if names.older_version is not None else {}


def _answer(
    uid: str, wanted: str, objects: list[Any], names: Names, errors: UnexpectedErrors
) -> dict[str, Any]:
    version = wanted.removeprefix(f"{names.group}/")
    done: list[JsonObject] = []
    for place, obj in enumerate(objects):
        try:
            done.append(convert(_object(obj), version, names))
        except ConversionError as error:
            return _failure(uid, f"{_name(obj, place)}: {error}")
        except Exception as error:  # noqa: BLE001 whatever the object holds, the API server gets its answer
            errors.report(ErrorPart.REVIEW, error, _name(obj, place), names.conversion_path)
            return _failure(uid, f"{_name(obj, place)}: internal error; the log of the webhook says more")
    return {"uid": uid, "convertedObjects": done, "result": {"status": "Success"}}


def _object(obj: object) -> JsonObject:
    if not isinstance(obj, dict):
        raise ConversionError("not an object")
    return cast("JsonObject", obj)


def _failure(uid: str, message: str) -> dict[str, Any]:
    return {"uid": uid, "result": {"status": "Failure", "message": message}}


def _name(obj: object, place: int) -> str:
    """What people find the object by: its kind, namespace and name, or its place if it has none."""
    match obj:
        case {"kind": str(kind), "metadata": {"name": str(name), **rest}}:
            namespace = rest.get("namespace")
            where = f"{namespace}/" if isinstance(namespace, str) and namespace else ""
            return f"{kind} {where}{name}"[:_LONGEST_NAME]
        case _:
            return f"objects[{place}]"


def _decode(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        with _allow_deep_recursion():
            return json.loads(body)


def _encode(response: dict[str, Any]) -> bytes:
    review = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    try:
        return orjson.dumps(review)
    except orjson.JSONEncodeError:
        # Objects within objects, deeper than it goes; a user's pod template may hold such.
        with _allow_deep_recursion():
            return json.dumps(review).encode()


@contextmanager
def _allow_deep_recursion() -> Generator[None]:
    """Let the slower reader and writer go as deep as they have to: they heed the limit of the interpreter."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
