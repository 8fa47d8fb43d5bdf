"""HTTP requests and responses as plain values, without a web framework."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with its complete body.

    Attributes:
        method: GET, POST and so on.
        path: decoded, without the query.
        query: the first value of each parameter.
        headers: by lower-case name.
        body: the bytes of the body; never more than the server's limit.
        peer: the address of the other end, without its port.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers requests. The server answers an exception with status 500, and logs it."""


def text(status: int, message: str) -> HttpResponse:
    """Answer with a line of text."""
    return HttpResponse(status, message.encode() + b"\n")


def route_by_path(routes: Mapping[str, Handler]) -> Handler:
    """Answer each path with its own handler, and every other path with 404."""

    async def handle(request: HttpRequest) -> HttpResponse:
        handler = routes.get(request.path)
        if handler is None:
            return text(404, f"nothing is served at {request.path[:200]}")
        return await handler(request)

    return handle
