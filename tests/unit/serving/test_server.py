"""The server keeps serving, whatever its peers do."""

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
    Running,
    answer_of,
    authority,
    close,
    echo_size,
    exchange,
    is_closed,
    leaf_of,
    running,
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
"""Deadlines that no busy machine exceeds: a test shortens the one that it waits for."""
SHORT = 0.2
"""Seconds."""


# --- what it answers --------------------------------------------------------------------------------


async def test_a_connection_serves_many_requests() -> None:
    async with running() as served:
        reader, writer = await served.connect()
        for _ in range(3):
            status, _, body = await exchange(reader, writer)
            assert (status, body) == (200, b"2")
        await close(writer)


async def test_a_handler_gets_the_request_as_values() -> None:
    seen: list[HttpRequest] = []

    async def note(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(201, b"made", "application/json", {"X-Extra": "yes"})

    async with running(note) as served:
        reader, writer = await served.connect()
        writer.write(b"PUT /a%20b?c=d&c=e HTTP/1.1\r\nHost: x\r\nX-Thing: 1\r\nContent-Length: 3\r\n\r\nabc")
        status, headers, body = await answer_of(reader)
        await close(writer)
    assert (status, body, headers["content-type"], headers["x-extra"]) == (
        201,
        b"made",
        "application/json",
        "yes",
    )
    asked = seen[0]
    assert (asked.method, asked.path, dict(asked.query), asked.body) == ("PUT", "/a b", {"c": "d"}, b"abc")
    assert (asked.headers["x-thing"], asked.peer) == ("1", "127.0.0.1")


async def test_a_handler_that_fails_is_answered_with_500_and_the_connection_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("secret detail")

    async with running(fail) as served:
        reader, writer = await served.connect()
        for _ in range(2):
            status, _, body = await exchange(reader, writer)
            assert status == 500
            assert b"secret" not in body
        await close(writer)
    assert "unexpected error" in caplog.text


async def test_a_handler_that_hangs_is_answered_with_504() -> None:
    async def hang(request: HttpRequest) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse()

    async with running(hang, replace(PATIENT, answer_seconds=SHORT)) as served:
        reader, writer = await served.connect()
        status, _, _ = await exchange(reader, writer)
        assert status == 504
        await close(writer)


async def test_answers_are_reported_with_their_status() -> None:
    told: list[tuple[str, int]] = []
    server = Server(echo_size, tls=None, on_answer=lambda path, status, _seconds: told.append((path, status)))
    _, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await exchange(reader, writer)
    await close(writer)
    await server.stop(linger=0)
    assert told == [("/x", 200)]


# --- bodies -----------------------------------------------------------------------------------------


async def test_a_body_up_to_the_limit_is_taken() -> None:
    async with running(limits=PATIENT) as served:
        reader, writer = await served.connect()
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
async def test_a_body_that_is_too_large_too_slow_or_packed_is_refused(
    head: bytes, body: bytes, status: int
) -> None:
    limits = replace(PATIENT, body_seconds=SHORT if status == 408 else 30)
    async with running(limits=limits) as served:
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + body)
        assert (await answer_of(reader))[0] == status
        assert await is_closed(reader)
        await close(writer)


async def test_a_body_that_trickles_is_refused_however_steady() -> None:
    async with running(limits=replace(PATIENT, body_seconds=SHORT)) as served:
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n")

        async def trickle() -> None:
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        assert (await answer_of(reader))[0] == 408
        task.cancel()
        await close(writer)


async def test_bodies_together_have_a_limit_too() -> None:
    async with running(limits=replace(PATIENT, bodies_bytes=1500)) as served:
        first, holding = await served.connect()
        holding.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 999)
        await until(lambda: served.server.held_bytes == 999)
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + b"a" * 900)
        assert (await answer_of(reader))[0] == 503
        holding.write(b"a")
        assert (await answer_of(first))[2] == b"1000"
        await until(lambda: served.server.held_bytes == 0)
        await close(writer, holding)


async def test_client_that_expects_100_continue_gets_it() -> None:
    async with running(limits=PATIENT) as served:
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert (await answer_of(reader))[0] == 200
        await close(writer)


# --- peers that wear a server out -------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"POST / HT", id="half a request line"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", id="half a header"),
    ],
)
async def test_a_peer_without_a_complete_header_is_dropped(said: bytes) -> None:
    async with running(limits=replace(PATIENT, header_seconds=SHORT)) as served:
        reader, writer = await served.connect()
        writer.write(said)
        assert await is_closed(reader)
        assert "header_deadline" in served.drops
        await close(writer)


async def test_a_header_that_trickles_is_dropped_however_steady() -> None:
    async with running(limits=replace(PATIENT, header_seconds=SHORT)) as served:
        reader, writer = await served.connect()

        async def trickle() -> None:
            writer.write(b"POST / HTTP/1.1\r\n")
            while True:
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        assert await is_closed(reader)
        task.cancel()
        await close(writer)


async def test_the_second_request_of_a_connection_has_the_same_deadline() -> None:
    async with running(limits=replace(PATIENT, header_seconds=1)) as served:
        reader, writer = await served.connect()
        await exchange(reader, writer)
        writer.write(b"POST / HTTP/1.1\r\n")
        assert await is_closed(reader)
        assert served.drops == ["header_deadline"]
        await close(writer)


async def test_a_connection_that_was_opened_for_later_is_there_then() -> None:
    """What a client sends on a connection that was never used, and that is ended just then, is lost."""
    async with running(limits=replace(PATIENT, header_seconds=SHORT)) as served:
        reader, writer = await served.connect()
        late_reader, late_writer = await served.connect()
        late_writer.write(b"POST / HT")
        assert await is_closed(late_reader)
        await exchange(reader, writer)
        await close(writer, late_writer)


@pytest.mark.parametrize("used", [True, False])
async def test_an_idle_connection_is_ended(used: bool) -> None:
    async with running(limits=replace(PATIENT, idle_seconds=SHORT)) as served:
        started = time.monotonic()
        reader, writer = await served.connect()
        if used:
            await exchange(reader, writer)
        assert await is_closed(reader)
        assert time.monotonic() - started >= SHORT
        await close(writer)


async def test_a_peer_that_connects_and_never_shakes_hands_is_dropped() -> None:
    async with running(limits=replace(PATIENT, handshake_seconds=SHORT)) as served:
        reader, writer = await served.connect(plain=True)
        assert await is_closed(reader)
        await until(lambda: len(served.server.connections) == 0)
        await close(writer)


async def test_what_is_no_tls_is_dropped() -> None:
    async with running(limits=PATIENT) as served:
        reader, writer = await served.connect(plain=True)
        writer.write(REQUEST)
        assert await is_closed(reader)
        assert served.drops == ["handshake"]
        await close(writer)


async def test_a_peer_that_does_not_take_its_answer_is_dropped() -> None:
    async def much(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"a" * 50_000_000)

    async with running(much, replace(PATIENT, write_seconds=SHORT)) as served:
        _, writer = await served.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REQUEST)
        await until(lambda: "write_deadline" in served.drops)
        await until(lambda: len(served.server.connections) == 0)
        await close(writer)


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_with_400_and_ended(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(limits=PATIENT) as served:
        reader, writer = await served.connect()
        writer.write(said)
        assert (await answer_of(reader))[0] == 400
        assert await is_closed(reader)
        assert served.drops == ["malformed"]
        await close(writer)
    assert not caplog.records


# --- caps -------------------------------------------------------------------------------------------


async def test_unused_connections_make_room_and_those_in_use_do_not() -> None:
    release = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await release.wait()
        return HttpResponse()

    limits = replace(PATIENT, connections=3, connections_per_peer=3)
    async with running(wait, limits) as served:
        busy = [await served.connect() for _ in range(2)]
        for _, writer in busy:
            writer.write(REQUEST)
        await until(lambda: served.server.requests_in_progress == 2)
        unused, _ = loiterer = await served.connect()
        newcomer = await served.connect()
        assert await is_closed(unused)
        assert served.drops == ["made_room"]
        newcomer[1].write(REQUEST)
        await until(lambda: served.server.requests_in_progress == 3)
        with contextlib.suppress(OSError):
            turned_away = await served.connect()
            assert await is_closed(turned_away[0])
            await close(turned_away[1])
        await until(lambda: "full" in served.drops)
        release.set()
        for reader, _ in (*busy, newcomer):
            assert (await answer_of(reader))[0] == 200
        await close(*(writer for _, writer in (*busy, newcomer, loiterer)))


async def test_handshakes_that_never_end_count_and_make_room() -> None:
    limits = replace(PATIENT, connections=5, connections_per_peer=5)
    async with running(limits=limits) as served:
        idlers = [await served.connect(plain=True) for _ in range(20)]
        await until(lambda: len(served.server.connections) == 5 and len(served.drops) == 15)
        reader, writer = await served.connect()
        assert (await exchange(reader, writer))[0] == 200
        await close(writer, *(idler for _, idler in idlers))


async def test_one_peer_cannot_take_the_place_of_others() -> None:
    limits = replace(PATIENT, connections=100, connections_per_peer=2)
    async with running(limits=limits) as served:
        many = [await served.connect() for _ in range(6)]
        await until(lambda: len(served.server.connections) == 2)
        await close(*(writer for _, writer in many))


# --- where it listens -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1", "example.com"])  # noqa: S104
async def test_without_tls_only_loopback_is_served(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        await Server(echo_size, tls=None).start(host, 0)


async def test_answers_that_need_no_protection_may_be_served_everywhere() -> None:
    server = Server(echo_size, tls=None, plain_anywhere=True)
    _, port = await server.start("", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await exchange(reader, writer))[0] == 200
    await close(writer)
    await server.stop(linger=0)


# --- the end ----------------------------------------------------------------------------------------


async def test_a_stop_loses_no_request() -> None:
    release = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await release.wait()
        return HttpResponse(200, b"done")

    async with running(wait) as served:
        reader, writer = await served.connect()
        writer.write(REQUEST)
        await until(lambda: served.server.requests_in_progress == 1)
        stopping = asyncio.create_task(served.server.stop(linger=0, grace=10))
        await asyncio.sleep(0)
        assert served.server.is_draining
        release.set()
        status, headers, body = await answer_of(reader)
        assert (status, headers["connection"], body) == (200, "close", b"done")
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await served.connect()
        await close(writer)


async def refused(served: Running) -> None:
    """Connect until that is refused; connections in the listener's queue are reset when it closes."""
    while True:
        try:
            _, writer = await served.connect()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue
        await close(writer)


async def test_stopping_server_closes_its_port_and_answers_open_connections() -> None:
    async with running() as served:
        kept, keeping = await served.connect()
        await exchange(kept, keeping)
        idle, idling = await served.connect()
        stopping = asyncio.create_task(served.server.stop(linger=60, grace=60))
        await until(lambda: served.server.is_draining)
        async with asyncio.timeout(30):
            await refused(served)
        another = Server(echo_size, tls=None)
        await another.start("127.0.0.1", served.port)
        await another.stop(linger=0)
        status, headers, _ = await exchange(kept, keeping)
        assert (status, headers["connection"]) == (200, "close")
        await close(keeping, idling)
        # No connection is left.
        await stopping
        assert await is_closed(idle)


async def test_a_server_ends_connections_that_are_idle_when_it_has_waited_for_them() -> None:
    async with running() as served:
        reader, writer = await served.connect()
        await exchange(reader, writer)
        await served.server.stop(linger=0.05, grace=60)
        assert await is_closed(reader)
        await close(writer)


async def test_a_request_that_never_ends_does_not_stop_the_stop() -> None:
    async def hang(request: HttpRequest) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse()

    async with running(hang) as served:
        reader, writer = await served.connect()
        writer.write(REQUEST)
        await until(lambda: served.server.requests_in_progress == 1)
        async with asyncio.timeout(30):
            await served.server.stop(linger=0, grace=0.05)
        assert await is_closed(reader)
        await close(writer)


# --- TLS --------------------------------------------------------------------------------------------


def offering(served: Running, maximum: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    context = client_context(served.ca.certificate)
    context.maximum_version = maximum
    if ciphers:
        context.set_ciphers(ciphers)
    return context


REFUSED = (ssl.SSLError, ConnectionResetError)
"""A server that refuses a handshake may hang up before its alert is read."""


async def shake_hands(served: Running, context: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection(
        "127.0.0.1", served.port, ssl=context, server_hostname="localhost"
    )
    version = writer.get_extra_info("ssl_object").version()
    await close(writer)
    return version


async def test_tls_1_3_is_the_default_and_older_ones_are_refused() -> None:
    async with running() as served:
        assert await shake_hands(served, client_context(served.ca.certificate)) == "TLSv1.3"
        with pytest.raises(REFUSED):
            await shake_hands(served, offering(served, ssl.TLSVersion.TLSv1_2))


async def test_tls_1_2_is_spoken_where_it_is_allowed_with_strong_ciphers_only() -> None:
    tls = TlsSettings("VersionTLS12", ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",))
    async with running(tls=tls) as served:
        good = offering(served, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256")
        assert await shake_hands(served, good) == "TLSv1.2"
        weak = offering(served, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA384:AES128-SHA")
        with pytest.raises(REFUSED):
            await shake_hands(served, weak)


async def test_without_a_suite_of_tls_1_2_that_is_not_spoken() -> None:
    async with running(tls=TlsSettings("VersionTLS12", ("TLS_AES_128_GCM_SHA256",))) as served:
        assert await shake_hands(served, client_context(served.ca.certificate)) == "TLSv1.3"
        with pytest.raises(REFUSED):
            await shake_hands(served, offering(served, ssl.TLSVersion.TLSv1_2))


async def test_only_the_first_of_the_chosen_curves_is_used() -> None:
    async with running(tls=TlsSettings(curves=("CurveP384", "CurveP256"))) as served:
        context = client_context(served.ca.certificate)
        context.set_ecdh_curve("prime256v1")
        with pytest.raises(REFUSED):
            await shake_hands(served, context)
        context.set_ecdh_curve("secp384r1")
        assert await shake_hands(served, context) == "TLSv1.3"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"minimum": "VersionTLS11"}, "tls.minVersion"),
        ({"cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)}, "VersionTLS13"),
        ({"minimum": "VersionTLS12", "cipher_suites": ("TLS_RSA_WITH_RC4_128_SHA",)}, "not supported"),
        ({"curves": ("CurveP192",)}, "not supported"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TlsSettings(**settings)


async def test_a_certificate_of_another_authority_or_name_is_not_trusted() -> None:
    async with running() as served:
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake_hands(served, client_context(authority().certificate))
        served.live.use(leaf_of(served.ca, "other.example.com"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake_hands(served, client_context(served.ca.certificate))


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on() -> None:
    async with running() as served:
        reader, writer = await served.connect()
        await exchange(reader, writer)
        following = authority()
        assert served.live.use(leaf_of(following))
        assert (await exchange(reader, writer))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await served.connect()
        served.ca = following
        newcomer, new_writer = await served.connect()
        assert (await exchange(newcomer, new_writer))[0] == 200
        await close(writer, new_writer)


def test_what_cannot_be_used_leaves_the_certificate_that_was() -> None:
    ca = authority()
    good, other = leaf_of(ca), leaf_of(ca)
    live = LiveCertificate()
    assert live.use(good)
    assert not live.use(good)
    for bad in (
        KeyPair(good.certificate, other.key),
        KeyPair(b"", b""),
        KeyPair(good.certificate, b"no key"),
        KeyPair(b"no certificate", good.key),
    ):
        with pytest.raises(InvalidCertificate):
            live.use(bad)
        assert live.certificate == good.certificate
