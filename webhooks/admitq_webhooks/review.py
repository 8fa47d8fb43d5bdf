"""Decodes AdmissionReview requests, and encodes verdicts as responses.

Each request gets a valid review with its uid, or status 400 if it has no uid. A review never ends in a server
error, which the API server would treat as an outage of the webhook.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from admitq.serving.authorization import User
from admitq_api.field_errors import FieldError, join_errors
from admitq_api.json_objects import JsonObject, object_at, text_at
from admitq_api.json_patch import create_json_patch

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

_LONGEST_UID: Final = 128
_LONGEST_MESSAGE: Final = 16 * 1024
_LONGEST_WARNING: Final = 120
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")


class InvalidReview(ValueError):
    """The body is not a valid AdmissionReview.

    Attributes:
        uid: the uid of the request; empty if it could not be read.
    """

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


NO_USER: Final = User("", "", (), ())
"""The user of a review without a user; it has no permissions."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The request of an AdmissionReview.

    Attributes:
        uid: of the request, not of the object; repeated in the answer.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        group: of the kind, as this webhook gets it.
        version: of the kind.
        kind: of the object.
        namespace: of the object; empty for cluster-scoped kinds.
        subresource: ``status`` and so on; empty for the object itself.
        dry_run: whether the object will not be stored; the answer does not depend on it.
        obj: the new object; empty on DELETE.
        old: the stored object; empty on CREATE.
        user: the account that sends the request; without a name if the review has none.
    """

    uid: str
    operation: str
    group: str
    version: str
    kind: str
    namespace: str
    subresource: str
    dry_run: bool
    obj: JsonObject
    old: JsonObject
    user: User = NO_USER


@dataclass(frozen=True, slots=True)
class Allowed:
    """The object may be stored.

    Attributes:
        changed: the object to store instead; None leaves the object as it is.
        warnings: warnings for the user.
    """

    changed: JsonObject | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The object may not be stored because of these errors."""

    errors: tuple[FieldError, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """No verdict could be reached; the same request may succeed later."""

    message: str
    code: int = 500
    reason: str = "InternalError"


Verdict = Allowed | Rejected | Failed


def parse_review(body: bytes) -> AdmissionRequest:
    """Read a review.

    Raises:
        InvalidReview: it is not JSON, not an AdmissionReview of version v1, or has no valid request.
    """
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidReview(f"the body is not JSON: {error}") from error
    request = object_at(review, ("request",))
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid or len(uid) > _LONGEST_UID:
        raise InvalidReview(f"the body is not an {KIND} with a request.uid")
    if review.get("apiVersion") != API_VERSION or review.get("kind") != KIND:
        raise InvalidReview(f"only {KIND} of {API_VERSION} is supported", uid)
    operation = request.get("operation")
    if operation not in _OPERATIONS:
        raise InvalidReview(f"request.operation must be one of {', '.join(_OPERATIONS)}", uid)
    kind = object_at(request, ("kind",))
    obj = object_at(request, ("object",))
    if operation in ("CREATE", "UPDATE") and not obj:
        raise InvalidReview(f"request.object must be an object on {operation}", uid)
    return AdmissionRequest(
        uid=uid,
        operation=operation,
        group=text_at(kind, ("group",)),
        version=text_at(kind, ("version",)),
        kind=text_at(kind, ("kind",)),
        namespace=text_at(request, ("namespace",)),
        subresource=text_at(request, ("subResource",)),
        dry_run=request.get("dryRun") is True,
        obj=obj,
        old=object_at(request, ("oldObject",)),
        user=_user(object_at(request, ("userInfo",))),
    )


def _user(info: JsonObject) -> User:
    return User(
        text_at(info, ("username",)),
        text_at(info, ("uid",)),
        _texts(info.get("groups")),
        tuple((key, _texts(values)) for key, values in object_at(info, ("extra",)).items()),
    )


def _texts(values: object) -> tuple[str, ...]:
    listed = cast("list[object]", values) if isinstance(values, list) else []
    return tuple(value for value in listed if isinstance(value, str))


def encode_verdict(request: AdmissionRequest, verdict: Verdict) -> bytes:
    """Return the body of the review with the verdict."""
    match verdict:
        case Allowed(changed, warnings):
            response: dict[str, Any] = {"uid": request.uid, "allowed": True}
            operations = create_json_patch(request.obj, changed) if changed is not None else []
            if operations:
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
            if warnings:
                response["warnings"] = [warning[:_LONGEST_WARNING] for warning in warnings]
            return _encode_review(response)
        case Rejected(errors):
            status = {
                "code": 403,
                "reason": "Forbidden",
                "message": _shorten(join_errors(errors)),
                "details": {
                    "causes": [
                        {"reason": str(error.type), "field": error.path, "message": _shorten(error.message)}
                        for error in errors[:32]
                    ]
                },
            }
            return _encode_review({"uid": request.uid, "allowed": False, "status": status})
        case Failed(message, code, reason):
            return encode_rejection(request.uid, message, code, reason)


def encode_rejection(uid: str, message: str, code: int, reason: str) -> bytes:
    """Return the body of a review that rejects a request for another reason than its object."""
    status = {"code": code, "reason": reason, "message": _shorten(message)}
    return _encode_review({"uid": uid, "allowed": False, "status": status})


def _encode_review(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _shorten(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
