"""A server on loopback with its own certificates, and clients for tests of serving."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from admitq.serving.certificates import KeyPair, create_authority, create_leaf
from admitq.serving.http import Handler, HttpRequest, HttpResponse
from admitq.serving.server import Server, ServerLimits
from admitq.serving.tls import LiveCertificate, TlsSettings, client_context

HOSTS = ("localhost", "127.0.0.1")


async def echo_size(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, f"{len(request.body)}".encode())


def authority() -> KeyPair:
    return create_authority(time.time_ns(), name="test")


def leaf_of(ca: KeyPair, *names: str) -> KeyPair:
    return create_leaf(ca, time.time_ns(), names=names or HOSTS, name="test")


@dataclass
class RunningServer:
    """A running server, and the reasons of the connections that it dropped."""

    server: Server
    port: int
    live: LiveCertificate
    ca: KeyPair
    drops: list[str] = field(default_factory=list)

    async def connect(self, *, plain: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = None if plain else client_context(self.ca.certificate, strict=True)
        host = None if plain else "localhost"
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=host)


@contextlib.asynccontextmanager
async def running_server(
    handler: Handler = echo_size, limits: ServerLimits | None = None, *, tls: TlsSettings | None = None
) -> AsyncGenerator[RunningServer]:
    ca = authority()
    live = LiveCertificate(tls)
    live.use(leaf_of(ca))
    drops: list[str] = []
    server = Server(handler, tls=live.context, limits=limits, on_drop=drops.append)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield RunningServer(server, port, live, ca, drops)
    finally:
        await server.stop(linger=0, grace=1)


REQUEST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(status.split()[1]), headers, body


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[int, dict[str, str], bytes]:
    writer.write(REQUEST)
    return await answer_of(reader)


async def is_closed(reader: asyncio.StreamReader, within: float = 60.0) -> bool:
    """Wait until the peer closes the connection."""
    try:
        async with asyncio.timeout(within):
            while await reader.read(65536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def until(condition: Callable[[], bool], within: float = 60.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
