"""HTTP requests and responses as plain values, without a web framework."""

from collections.abc import Awaitable, Callable, Collection, Mapping
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
        headers: by lower-case name; of a header that is sent several times, the last value.
        body: the bytes of the body; never more than the server's limit.
        peer: the address of the other end, without its port.
        header_lines: the headers as sent, with all values.
        client_certificate: the certificate that the client has proved to own, as DER; None without one. Only
            servers that verify certificates of clients set it.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    header_lines: Collection[tuple[str, str]] = ()
    client_certificate: bytes | None = None

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return all values of a header, in the order in which they were sent."""
        wanted = name.lower()
        return tuple(value for line, value in self.header_lines if line.lower() == wanted)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. ``on_sent`` is called when it was sent, or could not be sent."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    on_sent: Callable[[], None] | None = None


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
