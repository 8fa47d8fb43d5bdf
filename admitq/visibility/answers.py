"""The answers of an aggregated API: JSON objects, and ``Status`` objects for errors."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson

from admitq.serving.http import JSON, HttpResponse

REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
"""The reason of a ``Status`` by its code, as the API server names it."""

RETRY_SECONDS: Final = 1
"""After how many seconds clients repeat a request that was rejected for a while."""


class RequestRejected(Exception):
    """A request that is answered with an error.

    Args:
        code: the HTTP status, one of `REASONS`.
        message: the problem, for users.
        details: the object that the error is about: ``name``, ``group``, ``kind``.
    """

    def __init__(self, code: int, message: str, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details or {}

    @property
    def response(self) -> HttpResponse:
        """The answer: a ``Status`` object."""
        details = {**self.details}
        headers: dict[str, str] = {}
        retry: dict[str, int] = {}
        if self.code in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            headers["Retry-After"] = str(RETRY_SECONDS)
            retry["retryAfterSeconds"] = RETRY_SECONDS
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": REASONS[self.code],
            "details": {**details, **retry},
            "code": self.code,
        }
        return HttpResponse(self.code, orjson.dumps(status), JSON, headers)


def json_response(value: Mapping[str, Any], code: int = HTTPStatus.OK) -> HttpResponse:
    """Return an answer with a JSON object."""
    return HttpResponse(code, orjson.dumps(value), JSON)
