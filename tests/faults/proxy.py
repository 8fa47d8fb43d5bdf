"""A proxy between a client and a real kube-apiserver, which injects faults into the real traffic.

The client uses plain HTTP. The proxy uses TLS and its own credentials for the server. Without a fault, all
traffic passes unchanged. A fault applies to the requests that it matches, a limited number of times. The
first matching fault of the list is used. Injected answers are those of servers, load balancers and networks.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from admitq.runtime.credentials import Credentials, Identity


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as the proxy saw it."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and not self.is_watch and "limit" in self.query

    @property
    def is_write(self) -> bool:
        return self.method not in {"GET", "HEAD"}


@dataclass(slots=True)
class Exchange:
    """One request to the proxy; a fault decides which answer the client gets."""

    request: SeenRequest
    client: asyncio.StreamWriter
    _forward: Callable[[], Awaitable[tuple[int, dict[str, str], AsyncIterator[bytes]]]]
    _chunked: bool = False

    async def forward(self) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Forward the request to the server; return status, headers, and the body as a stream."""
        return await self._forward()

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a complete answer."""
        await self.begin(status, {**headers, "Content-Length": str(len(body))})
        await self.send(body)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer; the body is chunked unless its length is given."""
        chunked = "Content-Length" not in headers
        framing = {"Transfer-Encoding": "chunked"} if chunked else {}
        sent = {**headers, **framing, "Connection": "close"}
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{key}: {value}" for key, value in sent.items())]
        self.client.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._chunked = chunked

    async def send(self, data: bytes) -> None:
        self.client.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data)
        await self.client.drain()

    def end(self) -> None:
        """End the answer properly."""
        if self._chunked:
            self.client.write(b"0\r\n\r\n")
        self._chunked = False

    def drop(self) -> None:
        """Close the connection within the answer: FIN before the announced end."""
        self._chunked = False

    def reset(self) -> None:
        """Reset the connection as after a crash: RST instead of FIN."""
        self._chunked = False
        raw: socket.socket = self.client.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.transport.abort()


Action = Callable[[Exchange], Awaitable[None]]


@dataclass(slots=True)
class Fault:
    """An action, the requests that it applies to, and how often."""

    action: Action
    matches: Callable[[SeenRequest], bool] = lambda _: True
    times: int = 1
    hits: int = 0


@dataclass(slots=True)
class Proxy:
    """An async context manager that serves on a free loopback port."""

    upstream: Credentials
    faults: list[Fault] = field(default_factory=list[Fault])
    seen: list[SeenRequest] = field(default_factory=list[SeenRequest])
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def credentials(self) -> Credentials:
        """The credentials of a client that uses the proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return Credentials(server=f"http://127.0.0.1:{port}")

    def fault(
        self, action: Action, matches: Callable[[SeenRequest], bool] = lambda _: True, times: int = 1
    ) -> Fault:
        """Add a fault and return it; it counts the requests that it applied to."""
        added = Fault(action, matches, times)
        self.faults.append(added)
        return added

    @property
    def open_connections(self) -> int:
        """The number of open client connections."""
        return len(self._tasks)

    def count(self, matches: Callable[[SeenRequest], bool]) -> int:
        """The number of requests that matched."""
        return sum(1 for request in self.seen if matches(request))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()
        await self._server.wait_closed()

    async def cut(self) -> None:
        """Close all connections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # the client has disconnected, or the test has ended
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection, which keeps faults apart; stop when the client disconnects."""
        request, target = await self._read(reader)
        self.seen.append(request)
        serving = asyncio.create_task(self._answer(request, target, writer))
        disconnected = asyncio.create_task(reader.read())
        try:
            await asyncio.wait({serving, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected.cancel()
            serving.cancel()
            results = await asyncio.gather(serving, disconnected, return_exceptions=True)
        if isinstance(results[0], BaseException):
            raise results[0]

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> tuple[SeenRequest, str]:
        method, target, headers = await _head(reader)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        return SeenRequest(method, url.path, query, headers, body), target

    async def _answer(self, request: SeenRequest, target: str, writer: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as stack:
            exchange = Exchange(request, writer, lambda: self._ask(stack, request, target))
            for fault in self.faults:
                if fault.hits < fault.times and fault.matches(request):
                    fault.hits += 1
                    await fault.action(exchange)
                    break
            else:
                await pass_through(exchange)
            exchange.end()

    async def _ask(
        self,
        stack: contextlib.AsyncExitStack,
        request: SeenRequest,
        target: str,
    ) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        url = urlsplit(self.upstream.server)
        identity: Identity = await self.upstream.identity()
        reader, writer = await asyncio.open_connection(
            url.hostname,
            url.port,
            ssl=identity.tls,
            server_hostname=self.upstream.server_name or url.hostname,
            limit=16 * 1024 * 1024,
        )
        stack.callback(lambda: writer.transport.abort())  # noqa: PLW0108 - keeps the writer alive
        kept = {key: value for key, value in request.headers.items() if key not in {"connection", "host"}}
        sent = {**kept, "Host": url.netloc, "Connection": "close", **identity.headers}
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{key}: {value}" for key, value in sent.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + request.body)
        await writer.drain()
        status_line = (await reader.readline()).split()
        got = await _headers(reader)
        if got.pop("transfer-encoding", "") == "chunked":
            return int(status_line[1]), got, _chunks(reader)
        got.pop("content-length", None)
        return int(status_line[1]), got, _rest(reader)


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    line = (await reader.readline()).decode()
    if not line:
        raise asyncio.IncompleteReadError(b"", None)
    method, target, _ = line.split()
    return method, target, await _headers(reader)


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        key, _, value = line.partition(":")
        headers[key.strip().lower()] = value.strip()
    return headers


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).strip() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(65536):
        yield data


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = b""
    async for chunk in chunks:
        *whole, held = (held + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if held:
        yield held


# Actions


async def pass_through(exchange: Exchange) -> None:
    """Forward request and answer unchanged."""
    status, headers, body = await exchange.forward()
    await exchange.begin(status, headers)
    async for data in body:
        await exchange.send(data)


def answer_with(status: int, body: bytes, **headers: str) -> Action:
    """Answer without forwarding the request."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}

    async def act(exchange: Exchange) -> None:
        await exchange.answer(status, {"Content-Type": "application/json", **named}, body)

    return act


def refuse_with(status: int, reason: str, **headers: str) -> Action:
    """Answer with a Status object without forwarding the request."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"injected {reason}",
        "reason": reason,
        "code": status,
    }
    return answer_with(status, json.dumps(body).encode(), **headers)


BAD_GATEWAY = answer_with(502, b"<html><h1>502 Bad Gateway</h1></html>", Content_Type="text/html")


async def never_answer(exchange: Exchange) -> None:
    """Never answer; the request is not forwarded."""
    await asyncio.Event().wait()


async def execute_and_never_answer(exchange: Exchange) -> None:
    """Forward the request, and never send the answer."""
    await _whole(exchange)
    await asyncio.Event().wait()


async def execute_and_reset(exchange: Exchange) -> None:
    """Forward the request, and reset the connection instead of sending the answer."""
    await _whole(exchange)
    exchange.reset()


async def reset_before_forwarding(exchange: Exchange) -> None:
    """Reset the connection; the request is not forwarded."""
    exchange.reset()


async def close_after_half_the_body(exchange: Exchange) -> None:
    """Announce the whole answer and send half of it."""
    status, headers, body = await _whole(exchange)
    await exchange.begin(status, {**headers, "Content-Length": str(len(body))})
    await exchange.send(body[: len(body) // 2])


async def answer_half_a_document(exchange: Exchange) -> None:
    """Send half of the answer as if it were complete."""
    status, headers, body = await _whole(exchange)
    await exchange.answer(status, headers, body[: len(body) // 2])


def with_content_type(content_type: str) -> Action:
    """Send the server's answer with another content type."""

    async def act(exchange: Exchange) -> None:
        status, headers, body = await _whole(exchange)
        await exchange.answer(status, {**headers, "content-type": content_type}, body)

    return act


def with_document(change: Callable[[Any], Any]) -> Action:
    """Change the JSON that the server answers."""

    async def act(exchange: Exchange) -> None:
        status, headers, body = await _whole(exchange)
        await exchange.answer(status, headers, json.dumps(change(json.loads(body))).encode())

    return act


def with_lines(change: Callable[[int, bytes], bytes | None], *, then: Action | None = None) -> Action:
    """Change the lines of a watch by number, drop them (None), or end the stream there (empty)."""

    async def act(exchange: Exchange) -> None:
        status, headers, body = await exchange.forward()
        await exchange.begin(status, headers)
        number = 0
        async for line in _lines(body):
            changed = change(number, line)
            number += 1
            if changed == b"":
                break
            if changed is not None:
                await exchange.send(changed)
        if then is not None:
            await then(exchange)

    return act


async def _whole(exchange: Exchange) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = await exchange.forward()
    return status, headers, b"".join([data async for data in body])
