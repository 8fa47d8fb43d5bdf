"""The HTTP server answers requests, and limits slow, large and malformed ones."""

import asyncio
import contextlib
import ssl
import time
from dataclasses import replace
from typing import Any

import pytest

from admitq.serving.certificates import InvalidCertificate, KeyPair
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.serving.server import Server, ServerLimits
from admitq.serving.tls import LiveCertificate, TlsSettings, client_context
from tests.unit.serving.support import (
    REQUEST,
    RunningServer,
    answer_of,
    authority,
    close,
    echo_size,
    exchange,
    is_closed,
    leaf_of,
    running_server,
    until,
)

PATIENT = ServerLimits(
    handshake_seconds=30,
    header_seconds=30,
    body_seconds=30,
    answer_seconds=30,
    write_seconds=30,
    idle_seconds=30,
    body_bytes=1000,
    connections=20,
    connections_per_peer=20,
)
"""Deadlines that even a busy machine does not reach. Each test shortens the deadline that it waits for."""
SHORT = 0.2
"""Seconds."""


# --- answers ----------------------------------------------------------------------------------------


async def test_connection_serves_many_requests() -> None:
    async with running_server() as running:
        reader, writer = await running.connect()
        for _ in range(3):
            status, _, body = await exchange(reader, writer)
            assert (status, body) == (200, b"2")
        await close(writer)


async def test_handler_gets_parsed_request_and_its_response_is_sent() -> None:
    requests: list[HttpRequest] = []

    async def record(request: HttpRequest) -> HttpResponse:
        requests.append(request)
        return HttpResponse(201, b"made", "application/json", {"X-Extra": "yes"})

    async with running_server(record) as running:
        reader, writer = await running.connect()
        writer.write(b"PUT /a%20b?c=d&c=e HTTP/1.1\r\nHost: x\r\nX-Thing: 1\r\nContent-Length: 3\r\n\r\nabc")
        status, headers, body = await answer_of(reader)
        await close(writer)
    assert (status, body, headers["content-type"], headers["x-extra"]) == (
        201,
        b"made",
        "application/json",
        "yes",
    )
    [request] = requests
    assert (request.method, request.path, dict(request.query)) == ("PUT", "/a b", {"c": "d"})
    assert request.body == b"abc"
    assert (request.headers["x-thing"], request.peer) == ("1", "127.0.0.1")


async def test_failing_handler_is_answered_with_500_and_connection_stays_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("secret detail")

    async with running_server(fail) as running:
        reader, writer = await running.connect()
        for _ in range(2):
            status, _, body = await exchange(reader, writer)
            assert status == 500
            assert b"secret" not in body
        await close(writer)
    assert "unexpected error" in caplog.text


async def test_hanging_handler_is_answered_with_504() -> None:
    async def hang(request: HttpRequest) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse()

    async with running_server(hang, replace(PATIENT, answer_seconds=SHORT)) as running:
        reader, writer = await running.connect()
        status, _, _ = await exchange(reader, writer)
        assert status == 504
        await close(writer)


async def test_answers_are_reported_with_path_and_status() -> None:
    answers: list[tuple[str, int]] = []
    server = Server(
        echo_size, tls=None, on_answer=lambda path, status, _seconds: answers.append((path, status))
    )
    _, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await exchange(reader, writer)
    await close(writer)
    await server.stop(linger=0)
    assert answers == [("/x", 200)]


# --- bodies -----------------------------------------------------------------------------------------


async def test_body_up_to_the_limit_is_accepted() -> None:
    async with running_server(limits=PATIENT) as running:
        reader, writer = await running.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 1000)
        assert (await answer_of(reader))[2] == b"1000"
        await close(writer)


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (b"Content-Length: 1001\r\n", b"a" * 1001, 413),
        (b"Content-Length: 1000000000000\r\n", b"a", 413),
        (b"Transfer-Encoding: chunked\r\n", b"3e9\r\n" + b"a" * 1001 + b"\r\n0\r\n\r\n", 413),
        (b"Content-Length: 10\r\n", b"a", 408),
        (b"Transfer-Encoding: chunked\r\n", b"5\r\nab", 408),
        (b"Content-Encoding: gzip\r\nContent-Length: 2\r\n", b"ab", 415),
        (b"Content-Encoding: deflate\r\nContent-Length: 2\r\n", b"ab", 415),
        (b"Transfer-Encoding: chunked\r\n", b"zz\r\nab\r\n", 400),
        (b"Content-Length: -1\r\n", b"", 400),
        (b"Content-Length: 1\r\nContent-Length: 2\r\n", b"ab", 400),
    ],
)
async def test_too_large_slow_compressed_or_malformed_body_is_refused(
    head: bytes, body: bytes, status: int
) -> None:
    limits = replace(PATIENT, body_seconds=SHORT if status == 408 else 30)
    async with running_server(limits=limits) as running:
        reader, writer = await running.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + body)
        assert (await answer_of(reader))[0] == status
        assert await is_closed(reader)
        await close(writer)


async def test_steady_but_slow_body_is_refused_after_deadline() -> None:
    async with running_server(limits=replace(PATIENT, body_seconds=SHORT)) as running:
        reader, writer = await running.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n")

        async def trickle() -> None:
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        assert (await answer_of(reader))[0] == 408
        task.cancel()
        await close(writer)


async def test_bodies_of_all_requests_together_are_limited() -> None:
    async with running_server(limits=replace(PATIENT, bodies_bytes=1500)) as running:
        first_reader, first_writer = await running.connect()
        first_writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 999)
        await until(lambda: running.server.held_bytes == 999)
        reader, writer = await running.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + b"a" * 900)
        assert (await answer_of(reader))[0] == 503
        first_writer.write(b"a")
        assert (await answer_of(first_reader))[2] == b"1000"
        await until(lambda: running.server.held_bytes == 0)
        await close(writer, first_writer)


async def test_client_that_expects_100_continue_gets_it() -> None:
    async with running_server(limits=PATIENT) as running:
        reader, writer = await running.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert (await answer_of(reader))[0] == 200
        await close(writer)


# --- slow and malformed peers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"POST / HT", id="half a request line"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", id="half a header"),
    ],
)
async def test_connection_without_complete_header_is_dropped_after_deadline(sent: bytes) -> None:
    async with running_server(limits=replace(PATIENT, header_seconds=SHORT)) as running:
        reader, writer = await running.connect()
        writer.write(sent)
        assert await is_closed(reader)
        assert "header_deadline" in running.drops
        await close(writer)


async def test_connection_with_steady_but_slow_header_is_dropped_after_deadline() -> None:
    async with running_server(limits=replace(PATIENT, header_seconds=SHORT)) as running:
        reader, writer = await running.connect()

        async def trickle() -> None:
            writer.write(b"POST / HTTP/1.1\r\n")
            while True:
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        assert await is_closed(reader)
        task.cancel()
        await close(writer)


async def test_second_request_of_connection_has_header_deadline() -> None:
    async with running_server(limits=replace(PATIENT, header_seconds=1)) as running:
        reader, writer = await running.connect()
        await exchange(reader, writer)
        writer.write(b"POST / HTTP/1.1\r\n")
        assert await is_closed(reader)
        assert running.drops == ["header_deadline"]
        await close(writer)


@pytest.mark.parametrize("used", [True, False])
async def test_idle_connection_has_no_header_deadline(used: bool) -> None:
    """If the server closed the connection while the client sends, the request would be lost."""
    async with running_server(limits=replace(PATIENT, header_seconds=SHORT)) as running:
        reader, writer = await running.connect()
        if used:
            await exchange(reader, writer)
        late_reader, late_writer = await running.connect()
        late_writer.write(b"POST / HT")
        assert await is_closed(late_reader)
        await exchange(reader, writer)
        await close(writer, late_writer)


@pytest.mark.parametrize("used", [True, False])
async def test_idle_connection_is_closed_after_deadline(used: bool) -> None:
    async with running_server(limits=replace(PATIENT, idle_seconds=SHORT)) as running:
        started = time.monotonic()
        reader, writer = await running.connect()
        if used:
            await exchange(reader, writer)
        assert await is_closed(reader)
        assert time.monotonic() - started >= SHORT
        await close(writer)


async def test_connection_without_handshake_is_dropped_after_deadline() -> None:
    async with running_server(limits=replace(PATIENT, handshake_seconds=SHORT)) as running:
        reader, writer = await running.connect(plain=True)
        assert await is_closed(reader)
        await until(lambda: len(running.server.connections) == 0)
        await close(writer)


async def test_connection_without_tls_is_dropped() -> None:
    async with running_server(limits=PATIENT) as running:
        reader, writer = await running.connect(plain=True)
        writer.write(REQUEST)
        assert await is_closed(reader)
        assert running.drops == ["handshake"]
        await close(writer)


async def test_connection_that_does_not_read_its_answer_is_dropped() -> None:
    async def send_large_answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"a" * 50_000_000)

    async with running_server(send_large_answer, replace(PATIENT, write_seconds=SHORT)) as running:
        _, writer = await running.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST)
        await until(lambda: "write_deadline" in running.drops)
        await until(lambda: len(running.server.connections) == 0)
        await close(writer)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_malformed_request_is_answered_with_400_and_connection_closed(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(limits=PATIENT) as running:
        reader, writer = await running.connect()
        writer.write(sent)
        assert (await answer_of(reader))[0] == 400
        assert await is_closed(reader)
        assert running.drops == ["malformed"]
        await close(writer)
    assert not caplog.records


# --- limits of connections --------------------------------------------------------------------------


async def test_full_server_closes_unused_connections_and_keeps_used_ones() -> None:
    release = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await release.wait()
        return HttpResponse()

    limits = replace(PATIENT, connections=3, connections_per_peer=3)
    async with running_server(wait, limits) as running:
        busy = [await running.connect() for _ in range(2)]
        for _, writer in busy:
            writer.write(REQUEST)
        await until(lambda: running.server.requests_in_progress == 2)
        unused = await running.connect()
        new_connection = await running.connect()
        assert await is_closed(unused[0])
        assert running.drops == ["made_room"]
        new_connection[1].write(REQUEST)
        await until(lambda: running.server.requests_in_progress == 3)
        with contextlib.suppress(OSError):
            rejected = await running.connect()
            assert await is_closed(rejected[0])
            await close(rejected[1])
        await until(lambda: "full" in running.drops)
        release.set()
        for reader, _ in (*busy, new_connection):
            assert (await answer_of(reader))[0] == 200
        await close(*(writer for _, writer in (*busy, new_connection, unused)))


async def test_full_server_closes_connections_with_unfinished_handshake() -> None:
    limits = replace(PATIENT, connections=5, connections_per_peer=5)
    async with running_server(limits=limits) as running:
        unfinished = [await running.connect(plain=True) for _ in range(20)]
        await until(lambda: len(running.server.connections) == 5 and len(running.drops) == 15)
        reader, writer = await running.connect()
        assert (await exchange(reader, writer))[0] == 200
        await close(writer, *(writer for _, writer in unfinished))


async def test_connections_of_one_peer_are_limited() -> None:
    limits = replace(PATIENT, connections=100, connections_per_peer=2)
    async with running_server(limits=limits) as running:
        many = [await running.connect() for _ in range(6)]
        await until(lambda: len(running.server.connections) == 2)
        await close(*(writer for _, writer in many))


# --- addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "example.com"])  # noqa: S104
async def test_server_without_tls_listens_only_on_loopback(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        await Server(echo_size, tls=None).start(host, 0)


async def test_server_without_tls_may_listen_everywhere_if_configured() -> None:
    server = Server(echo_size, tls=None, plain_anywhere=True)
    _, port = await server.start("", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await exchange(reader, writer))[0] == 200
    await close(writer)
    await server.stop(linger=0)


# --- stopping ---------------------------------------------------------------------------------------


async def test_stopping_server_answers_running_requests() -> None:
    release = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await release.wait()
        return HttpResponse(200, b"done")

    async with running_server(wait) as running:
        reader, writer = await running.connect()
        writer.write(REQUEST)
        await until(lambda: running.server.requests_in_progress == 1)
        stopping = asyncio.create_task(running.server.stop(linger=0, grace=10))
        await asyncio.sleep(0)
        assert running.server.is_draining
        release.set()
        status, headers, body = await answer_of(reader)
        assert (status, headers["connection"], body) == (200, "close", b"done")
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await running.connect()
        await close(writer)


async def wait_until_refused(running: RunningServer) -> None:
    """Connect until the connection is refused. A closing listener resets the connections in its queue."""
    while True:
        try:
            _, writer = await running.connect()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue
        await close(writer)


async def test_stopping_server_closes_port_and_answers_open_connections() -> None:
    async with running_server() as running:
        used_reader, used_writer = await running.connect()
        await exchange(used_reader, used_writer)
        idle_reader, idle_writer = await running.connect()
        stopping = asyncio.create_task(running.server.stop(linger=60, grace=60))
        await until(lambda: running.server.is_draining)
        async with asyncio.timeout(30):
            await wait_until_refused(running)
        another = Server(echo_size, tls=None)
        await another.start("127.0.0.1", running.port)
        await another.stop(linger=0)
        status, headers, _ = await exchange(used_reader, used_writer)
        assert (status, headers["connection"]) == (200, "close")
        await close(used_writer, idle_writer)
        # No connection is left.
        await stopping
        assert await is_closed(idle_reader)


async def test_stopping_server_closes_idle_connections_after_linger() -> None:
    async with running_server() as running:
        reader, writer = await running.connect()
        await exchange(reader, writer)
        await running.server.stop(linger=0.05, grace=60)
        assert await is_closed(reader)
        await close(writer)


async def test_stopping_server_ends_hanging_requests_after_grace() -> None:
    async def hang(request: HttpRequest) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse()

    async with running_server(hang) as running:
        reader, writer = await running.connect()
        writer.write(REQUEST)
        await until(lambda: running.server.requests_in_progress == 1)
        async with asyncio.timeout(30):
            await running.server.stop(linger=0, grace=0.05)
        assert await is_closed(reader)
        await close(writer)


# --- TLS --------------------------------------------------------------------------------------------


def client_with_maximum_version(
    running: RunningServer, maximum: ssl.TLSVersion, ciphers: str = ""
) -> ssl.SSLContext:
    context = client_context(running.ca.certificate)
    context.maximum_version = maximum
    if ciphers:
        context.set_ciphers(ciphers)
    return context


REFUSED = (ssl.SSLError, ConnectionResetError)
"""A server that refuses a handshake may close the connection before the client reads its alert."""


async def connect_with(running: RunningServer, context: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection(
        "127.0.0.1", running.port, ssl=context, server_hostname="localhost"
    )
    version = writer.get_extra_info("ssl_object").version()
    await close(writer)
    return version


async def test_tls_1_3_is_the_default_and_tls_1_2_is_refused() -> None:
    async with running_server() as running:
        assert await connect_with(running, client_context(running.ca.certificate)) == "TLSv1.3"
        with pytest.raises(REFUSED):
            await connect_with(running, client_with_maximum_version(running, ssl.TLSVersion.TLSv1_2))


async def test_tls_1_2_is_accepted_if_configured_only_with_configured_ciphers() -> None:
    tls = TlsSettings("VersionTLS12", ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",))
    async with running_server(tls=tls) as running:
        valid = client_with_maximum_version(running, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256")
        assert await connect_with(running, valid) == "TLSv1.2"
        weak = client_with_maximum_version(
            running, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA384:AES128-SHA"
        )
        with pytest.raises(REFUSED):
            await connect_with(running, weak)


async def test_tls_1_2_is_refused_if_no_configured_cipher_supports_it() -> None:
    async with running_server(tls=TlsSettings("VersionTLS12", ("TLS_AES_128_GCM_SHA256",))) as running:
        assert await connect_with(running, client_context(running.ca.certificate)) == "TLSv1.3"
        with pytest.raises(REFUSED):
            await connect_with(running, client_with_maximum_version(running, ssl.TLSVersion.TLSv1_2))


async def test_only_first_configured_curve_is_accepted() -> None:
    async with running_server(tls=TlsSettings(curves=("CurveP384", "CurveP256"))) as running:
        context = client_context(running.ca.certificate)
        context.set_ecdh_curve("prime256v1")
        with pytest.raises(REFUSED):
            await connect_with(running, context)
        context.set_ecdh_curve("secp384r1")
        assert await connect_with(running, context) == "TLSv1.3"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimum": "VersionTLS11"}, "tls.minVersion"),
        ({"cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)}, "VersionTLS13"),
        ({"minimum": "VersionTLS12", "cipher_suites": ("TLS_RSA_WITH_RC4_128_SHA",)}, "not supported"),
        ({"curves": ("CurveP192",)}, "not supported"),
    ],
)
def test_unsupported_tls_settings_raise_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TlsSettings(**settings)


async def test_certificate_of_other_authority_or_name_is_not_trusted() -> None:
    async with running_server() as running:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect_with(running, client_context(authority().certificate))
        running.live.use(leaf_of(running.ca, "other.example.com"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect_with(running, client_context(running.ca.certificate))


async def test_new_certificate_is_served_to_new_connections_and_old_ones_stay_open() -> None:
    async with running_server() as running:
        reader, writer = await running.connect()
        await exchange(reader, writer)
        new_authority = authority()
        assert running.live.use(leaf_of(new_authority))
        assert (await exchange(reader, writer))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await running.connect()
        running.ca = new_authority
        new_reader, new_writer = await running.connect()
        assert (await exchange(new_reader, new_writer))[0] == 200
        await close(writer, new_writer)


def test_invalid_certificate_is_rejected_and_last_one_is_kept() -> None:
    ca = authority()
    valid, other = leaf_of(ca), leaf_of(ca)
    live = LiveCertificate()
    assert live.use(valid)
    assert not live.use(valid)
    for invalid in (
        KeyPair(valid.certificate, other.key),
        KeyPair(b"", b""),
        KeyPair(valid.certificate, b"no key"),
        KeyPair(b"no certificate", valid.key),
    ):
        with pytest.raises(InvalidCertificate):
            live.use(invalid)
        assert live.certificate == valid.certificate
