"""An HTTP server with a deadline for every wait, and a limit for every resource.

aiohttp parses HTTP. This module adds deadlines for the handshake, the header, the body and the answer, limits
on connections and on the memory of bodies, and a stop that loses no request.
"""

import asyncio
import errno
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

# Importing aiohttp.web would load the framework for applications, too.
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response as AiohttpResponse
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server as AiohttpServer

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.serving.connections import Connection, ConnectionPhase, Connections
from admitq.serving.http import Handler, HttpRequest, HttpResponse, text

log = logger(__name__)

MEBIBYTE: Final = 2**20
_PIECE: Final = 2**16

LINGER_SECONDS: Final = 0.5
"""How long a stopping server answers new requests on open connections."""
GRACE_SECONDS: Final = 1.0
"""How long requests in progress may take after the stop began."""
_UNWINDING_SECONDS: Final = 0.05
"""How long handlers of closed connections may take to end; for aiohttp, 0 means without limit."""

_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How long a peer may take, in seconds, and how much memory it may use.

    Each request in progress has its own connection. An API server may have 200 of them (its default for
    mutating requests), which is below the limit for one peer. All connections with their buffers (TLS takes a
    quarter of a mebibyte each) and all bodies fit into half a gibibyte.

    Connections may be idle for longer than API servers keep them (90 s), so that the API servers close them.
    """

    handshake_seconds: float = 5.0
    header_seconds: float = 10.0
    body_seconds: float = 5.0
    answer_seconds: float = 8.0
    write_seconds: float = 5.0
    idle_seconds: float = 120.0
    body_bytes: int = 8 * MEBIBYTE
    bodies_bytes: int = 64 * MEBIBYTE
    connections: int = 1000
    connections_per_peer: int = 400

    @property
    def request_seconds(self) -> float:
        """The longest time from a complete header to the last byte of the answer."""
        return self.body_seconds + self.answer_seconds + self.write_seconds


def _phase_seconds(limits: ServerLimits) -> dict[ConnectionPhase, float]:
    """Return the longest time in each phase of a connection after its handshake."""
    return {
        ConnectionPhase.HEADER: limits.header_seconds,
        # aiohttp closes idle connections with a handshake. This deadline is for peers that do not answer it.
        ConnectionPhase.IDLE: limits.idle_seconds + 5,
        ConnectionPhase.BODY: limits.request_seconds + 5,
        ConnectionPhase.BUSY: limits.request_seconds + 5,
    }


class _BodyRefused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.response = text(status, message)


class _Protocol(RequestHandler):
    """One connection: aiohttp's protocol with deadlines."""

    def __init__(self, server: "Server", manager: AiohttpServer, connection: Connection) -> None:
        limits = server.limits
        options: dict[str, Any] = {
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": min(2.0, limits.body_seconds),
            "access_log": None,
            # No decompression: the size of a decompressed body would have no limit.
            "auto_decompress": False,
        }
        super().__init__(manager, loop=asyncio.get_running_loop(), **options)
        self._server = server
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.drop = cast("asyncio.Transport", transport).abort
        super().connection_made(transport)
        # Clients also open connections in advance. A connection must not be closed during its first request,
        # because clients do not retry it.
        self.enter(ConnectionPhase.IDLE)

    def data_received(self, data: bytes) -> None:
        if self._connection.phase is ConnectionPhase.IDLE:
            self.enter(ConnectionPhase.HEADER)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.released(self._connection)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer a malformed request without a log line, because any peer can send one."""
        del request, exc, message
        self._server.dropped("malformed")
        answer = AiohttpResponse(status=status, text="not an HTTP request\n")
        answer.force_close()
        return answer

    def enter(self, phase: ConnectionPhase) -> None:
        """Begin a phase and its deadline."""
        self._server.connections.enter(self._connection, phase)
        # A timer for each of the four phases of a request would cost more than to parse the request. A timer
        # that is due before the deadline of the phase is set again.
        deadline = self._get_deadline()
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def _get_deadline(self) -> float:
        return self._connection.since + self._server.phase_seconds[self._connection.phase]

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, at - time.monotonic()), self._check_deadline)

    def _check_deadline(self) -> None:
        deadline = self._get_deadline()
        if time.monotonic() < deadline:
            self._set_timer(deadline)
        else:
            self._server.dropped(f"{self._connection.phase.name.lower()}_deadline")
            self._connection.drop()


class Server:
    """Answers HTTP requests, over TLS or, on loopback, without it.

    Args:
        handler: answers the requests.
        tls: context with the certificate; None to serve without TLS. A server that verifies certificates of
            clients has a function in its place: the context changes with the authorities that it trusts.
        limits: deadlines and memory limits.
        plain_anywhere: whether a server without TLS may listen beyond loopback. Only for answers that need no
            protection, such as health probes.
        on_answer: called for each answer with path, status and seconds.
        on_drop: called for each connection that a limit closed, with the reason.
        errors: receives unexpected exceptions.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None,
        limits: ServerLimits | None = None,
        plain_anywhere: bool = False,
        on_answer: Callable[[str, int, float], None] | None = None,
        on_drop: Callable[[str], None] | None = None,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.limits = limits or ServerLimits()
        self.connections = Connections(
            total=self.limits.connections,
            per_peer=self.limits.connections_per_peer,
            clock=time.monotonic,
            on_made_room=lambda: self.dropped("made_room"),
        )
        self.phase_seconds = _phase_seconds(self.limits)
        self.is_draining = False
        self._too_large = f"the body is larger than {self.limits.body_bytes} bytes"
        self._handler = handler
        self._tls = tls
        self._plain_anywhere = plain_anywhere
        self._on_answer = on_answer
        self._on_drop = on_drop
        self._errors = errors
        self._manager: AiohttpServer | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self.held_bytes = 0
        self.requests_in_progress = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._empty = asyncio.Event()
        """Set when the server stops and has no connections."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address and the port (port 0 takes a free one).

        Args:
            host: an address; empty for all of them.
            port: the port.

        Raises:
            ValueError: without TLS, the host is not a loopback address.
            OSError: the address is in use or does not exist here.
        """
        if self._tls is None and not self._plain_anywhere and not is_loopback(host):
            raise ValueError(
                f"{host or 'all addresses'}: without TLS only loopback may be served; "
                "listen on 127.0.0.1 or set TLS up"
            )
        self._manager = AiohttpServer(self._serve)
        self._listener = _listen(host, port)
        self._accepting = asyncio.create_task(self._accept(self._listener), name=f"accept {host}:{port}")
        address = self._listener.getsockname()
        return str(address[0]), int(address[1])

    async def stop(self, *, linger: float = LINGER_SECONDS, grace: float = GRACE_SECONDS) -> None:
        """Close the port at once, and answer all requests that were sent.

        The server accepts no new connections. On open connections it answers requests for ``linger`` seconds,
        and finishes those in progress until ``grace`` seconds are over. Each answer asks the peer to use
        another connection. In a cluster, the pod must be removed from its Service before (``preStop``).
        """
        self.is_draining = True
        if self._accepting is None or self._listener is None:
            return
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting
        self._listener.close()
        self._look_whether_empty()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                with suppress(TimeoutError):
                    async with asyncio.timeout(linger):
                        await self._empty.wait()
                await self._quiet.wait()
        for handshake in self._handshakes:
            handshake.cancel()
        for connection in self.connections.all():
            connection.drop()
        if self._manager is not None:
            await self._manager.shutdown(_UNWINDING_SECONDS)
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def close_idle(self) -> None:
        """Close idle connections, so that their clients connect again, with a new handshake."""
        for connection in self.connections.all():
            if connection.phase is ConnectionPhase.IDLE:
                connection.drop()

    def released(self, connection: Connection) -> None:
        """Release a connection that ended."""
        self.connections.release(connection)
        self._look_whether_empty()

    def _look_whether_empty(self) -> None:
        if self.is_draining and not len(self.connections):
            self._empty.set()

    def dropped(self, reason: str) -> None:
        """Report that a limit closed a connection."""
        if self._on_drop is not None:
            self._on_drop(reason)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    with self._errors.contain(ErrorPart.SERVER):
                        self.dropped("out_of_resources")
                        self.connections.make_room()
                # Without a pause, the loop would be busy while the error lasts.
                await asyncio.sleep(0.05)
                continue
            peer = _peer(address)
            try:
                self._admit(accepted, peer)
            except Exception as error:  # noqa: BLE001 one connection must not block all later ones
                self._errors.report(ErrorPart.SERVER, error, peer)
                accepted.close()

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection = self.connections.admit(peer, accepted.close)
        if connection is None:
            self.dropped("full")
            accepted.close()
            return
        handshake = asyncio.create_task(self._establish(accepted, connection))
        self._handshakes.add(handshake)

        def cancel() -> None:
            handshake.cancel()

        def end(task: asyncio.Task[None]) -> None:
            self._handshakes.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._errors.report(ErrorPart.SERVER, error, peer)
            if error is not None or task.cancelled():
                self.released(connection)
                accepted.close()

        connection.drop = cancel
        handshake.add_done_callback(end)

    async def _establish(self, accepted: socket.socket, connection: Connection) -> None:
        manager = self._manager
        if manager is None:
            return
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {
                "ssl": self._tls() if callable(self._tls) else self._tls,
                "ssl_handshake_timeout": self.limits.handshake_seconds,
                "ssl_shutdown_timeout": min(5.0, self.limits.handshake_seconds),
            }
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Protocol(self, manager, connection), accepted, **options
            )
        except OSError:
            # Failed handshakes of port scanners, or of peers that do not trust the certificate, are counted
            # and not logged.
            self.dropped("handshake")
            self.released(connection)

    async def _serve(self, request: BaseRequest) -> StreamResponse:
        protocol = cast("_Protocol", request.protocol)
        protocol.enter(ConnectionPhase.BODY)
        self.requests_in_progress += 1
        self._quiet.clear()
        started = time.monotonic()
        try:
            response, keep = await self._respond(request)
            answer = _create_answer(response, is_head=request.method == "HEAD")
            if not keep or self.is_draining or self._is_outdated(request.transport):
                answer.force_close()
            try:
                async with asyncio.timeout(self.limits.write_seconds):
                    await _send(answer, request, response.body)
            except TimeoutError:
                self.dropped("write_deadline")
                if request.transport is not None:
                    request.transport.abort()
            finally:
                if response.on_sent is not None:
                    response.on_sent()
            if self._on_answer is not None:
                self._on_answer(request.path, response.status, time.monotonic() - started)
            return answer
        finally:
            self.requests_in_progress -= 1
            if self.requests_in_progress == 0:
                self._quiet.set()
            if request.transport is not None:
                protocol.enter(ConnectionPhase.IDLE)

    async def _respond(self, request: BaseRequest) -> tuple[HttpResponse, bool]:
        """Read the body and answer; return the answer and whether the connection may be used again."""
        held_bytes = _Held()
        try:
            body = await self._read(request, held_bytes)
            cast("_Protocol", request.protocol).enter(ConnectionPhase.BUSY)
            return await self._handle(request, body), True
        except _BodyRefused as refused:
            self.dropped(f"body_{refused.response.status}")
            return refused.response, False
        finally:
            self.held_bytes -= held_bytes.size

    async def _handle(self, request: BaseRequest, body: bytes) -> HttpResponse:
        received = HttpRequest(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
            peer=_peer(request.transport.get_extra_info("peername") if request.transport else None),
            header_lines=request.headers.items(),
            client_certificate=self._get_client_certificate(request.transport),
        )
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                return await self._handler(received)
        except TimeoutError:
            log.error("handler exceeded deadline", path=received.path)  # noqa: TRY400 - no bug to trace
            return text(504, "no answer in time, try again")
        except Exception as error:  # noqa: BLE001 a failing request must not end the connection of others
            self._errors.report(ErrorPart.SERVER, error, received.path)
            return text(500, "internal error, see the log of the server")

    def _is_outdated(self, transport: asyncio.Transport | None) -> bool:
        """Whether the authorities of clients have changed since the handshake of the connection."""
        if transport is None or not callable(self._tls):
            return False
        return transport.get_extra_info("sslcontext") is not self._tls()

    def _get_client_certificate(self, transport: asyncio.Transport | None) -> bytes | None:
        if transport is None or not callable(self._tls) or self._is_outdated(transport):
            return None
        session = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        return None if session is None else session.getpeercert(binary_form=True)

    async def _read(self, request: BaseRequest, held_bytes: "_Held") -> bytes:
        if (request.content_length or 0) > self.limits.body_bytes:
            raise _BodyRefused(413, self._too_large)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _BodyRefused(415, "compressed bodies are not supported: send it uncompressed")
        if not request.body_exists:
            return b""
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if request.content.is_eof():
                # Most bodies are complete when their request begins, and need no deadline.
                return self._hold(request.content.read_nowait(), held_bytes)
            chunks: list[bytes] = []
            async with asyncio.timeout(self.limits.body_seconds):
                while chunk := await request.content.readany():
                    chunks.append(self._hold(chunk, held_bytes))
            return b"".join(chunks)
        except TimeoutError:
            raise _BodyRefused(408, f"no complete body within {self.limits.body_seconds:g} s") from None
        except RequestPayloadError as error:
            raise _BodyRefused(400, f"malformed body: {error}") from None

    def _hold(self, chunk: bytes, held_bytes: "_Held") -> bytes:
        """Count a part of a body, which the caller keeps."""
        held_bytes.size += len(chunk)
        self.held_bytes += len(chunk)
        if held_bytes.size > self.limits.body_bytes:
            raise _BodyRefused(413, self._too_large)
        if self.held_bytes > self.limits.bodies_bytes:
            raise _BodyRefused(503, "too many bodies at once, try again")
        return chunk


def _create_answer(response: HttpResponse, *, is_head: bool) -> StreamResponse:
    headers = {**response.headers, "Content-Type": response.content_type}
    if len(response.body) <= _PIECE and not is_head:
        # aiohttp sends such an answer with its header in one write.
        return AiohttpResponse(status=response.status, headers=headers, body=response.body)
    answer = StreamResponse(status=response.status, headers=headers)
    answer.content_length = len(response.body)
    return answer


async def _send(answer: StreamResponse, request: BaseRequest, body: bytes) -> None:
    """Send the answer in pieces: TLS accepts any amount at once, but blocks the next until it is sent."""
    await answer.prepare(request)
    if not isinstance(answer, AiohttpResponse) and request.method != "HEAD":
        for start in range(0, len(body), _PIECE):
            await answer.write(body[start : start + _PIECE])
    await answer.write_eof()


@dataclass(slots=True)
class _Held:
    """How many bytes of its body one request holds."""

    size: int = 0


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    elif socket.has_dualstack_ipv6():
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    else:
        listener = socket.create_server(("", port), backlog=1024)
    listener.setblocking(False)
    return listener


def _peer(address: Any) -> str:
    host = str(address[0]) if isinstance(address, tuple) else ""
    return host.removeprefix("::ffff:")
