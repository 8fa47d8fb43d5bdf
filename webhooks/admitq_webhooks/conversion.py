"""Conversion reviews: the API server requests objects in another version.

One object that cannot be converted fails the whole review, and the answer names that object. Only an unknown
kind or version causes this: conversion accepts all contents of an object.
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
"""Recursion limit for nested values, more than an admission review accepts. So each admitted object can be
converted. An object that cannot be converted would make all lists that contain it unreadable."""


def conversion_handlers(names: Names, errors: UnexpectedErrors = LOG_ONLY) -> dict[str, Handler]:
    """Return the handler by the conversion path; nothing for an API group with one version.

    Args:
        names: the names of the API group.
        errors: reports unexpected exceptions. The API server gets a failed review.
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
                return text(400, f"send a {KIND} of {API_VERSION} with uid, desiredAPIVersion and objects")

    return {names.conversion_path: handle} if names.older_version is not None else {}


def _answer(
    uid: str, api_version: str, objects: list[Any], names: Names, errors: UnexpectedErrors
) -> dict[str, Any]:
    version = api_version.removeprefix(f"{names.group}/")
    converted: list[JsonObject] = []
    for place, obj in enumerate(objects):
        try:
            converted.append(convert(_object(obj), version, names))
        except ConversionError as error:
            return _failure(uid, f"{_name(obj, place)}: {error}")
        except Exception as error:  # noqa: BLE001 the API server must get an answer whatever the object contains
            errors.report(ErrorPart.REVIEW, error, _name(obj, place), names.conversion_path)
            return _failure(
                uid, f"{_name(obj, place)}: internal error; the log of the webhook has the traceback"
            )
    return {"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}}


def _object(obj: object) -> JsonObject:
    if not isinstance(obj, dict):
        raise ConversionError("not an object")
    return cast("JsonObject", obj)


def _failure(uid: str, message: str) -> dict[str, Any]:
    return {"uid": uid, "result": {"status": "Failure", "message": message}}


def _name(obj: object, place: int) -> str:
    """Return the kind, namespace and name of the object, or its index in the review if it has no name."""
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
        # The values are nested deeper than orjson supports; a pod template of a user may have such values.
        with _allow_deep_recursion():
            return json.dumps(review).encode()


@contextmanager
def _allow_deep_recursion() -> Generator[None]:
    """Raise the recursion limit of the interpreter, which limits the depth of the json module."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
