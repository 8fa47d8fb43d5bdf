"""No connection outlives its pool."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
import uvloop

from admitq.runtime.connection_pool import ConnectionPool
from tests.unit.serving.support import HOSTS, authority, leaf_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin"


@contextlib.contextmanager
def silent_server(folder: Path) -> Generator[tuple[str, ssl.SSLContext]]:
    """A server that begins an answer, and never answers the end of TLS."""
    ca = authority()
    leaf = leaf_of(ca, *HOSTS)
    certificate, key = folder / "certificate", folder / "key"
    certificate.write_bytes(leaf.certificate)
    key.write_bytes(leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with context.wrap_socket(connection, server_side=True) as accepted:
                accepted.recv(10_000)
                accepted.sendall(HEAD)
                ended.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield (
                f"https://127.0.0.1:{listening.getsockname()[1]}",
                ssl.create_default_context(cadata=ca.certificate.decode()),
            )
        finally:
            ended.set()
            thread.join()


async def abandon_an_answer(address: str, tls: ssl.SSLContext) -> None:
    pool = ConnectionPool(1, {}, tls)
    try:
        answer = await pool.session.get(address)
        await answer.content.readany()
        answer.close()
    finally:
        await pool.close()


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_event_loop_closes_after_an_abandoned_answer(tmp_path: Path, loop: type[asyncio.AbstractEventLoop]):
    with silent_server(tmp_path) as (address, tls), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(abandon_an_answer(address, tls))
