"""Reviews are answered while peers attack the server, certificates change, and the server stops."""

import asyncio
import contextlib
import io
import os
import statistics
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from admitq.core.model import LabelSelector
from admitq.integrations.registry import load_integrations
from admitq.serving.certificates import KeyPair, create_authority, create_leaf
from admitq.serving.http import route_by_path
from admitq.serving.server import Server, ServerLimits
from admitq.serving.tls import LiveCertificate, client_context
from admitq_api.labels import names_for
from admitq_webhooks.policy import Policy
from admitq_webhooks.routes import review_handlers
from localcluster.waiting import eventually
from tests.unit.webhooks.support import FakeLookups

NAMES = names_for()
PATH = "/mutate-batch-v1-job"
LIMITS = ServerLimits(
    handshake_seconds=2,
    header_seconds=2,
    body_seconds=2,
    idle_seconds=5,
    connections=300,
    connections_per_peer=200,
)


def a_review(padding: int = 0) -> bytes:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": {NAMES.queue_name: "q"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "args": ["a" * padding]}]}}},
    }
    request = {
        "uid": "u",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "namespace": "team",
        "operation": "CREATE",
        "object": job,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


@dataclass
class Webhook:
    """A webhook server on loopback."""

    server: Server
    port: int
    live: LiveCertificate
    authority: KeyPair
    drops: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}{PATH}"

    def change_leaf(self) -> None:
        self.live.use(create_leaf(self.authority, time.time_ns(), names=("localhost",), name="test"))

    @contextlib.asynccontextmanager
    async def session(self, **options: Any) -> AsyncGenerator[aiohttp.ClientSession]:
        """A client that trusts the server, as the API server would."""
        connector = aiohttp.TCPConnector(ssl=client_context(self.authority.certificate), **options)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield session

    async def attacker(self, data: bytes, *, tls: bool = True) -> asyncio.StreamWriter | None:
        """Connect, send some data, and keep the connection open."""
        context = client_context(self.authority.certificate) if tls else None
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, server_hostname="localhost" if tls else None
            )
        except OSError:
            return None
        writer.write(data)
        return writer


@pytest.fixture
async def webhook() -> AsyncGenerator[Webhook]:
    """A webhook server with short deadlines."""
    policy = Policy(names=NAMES, integrations=load_integrations(), namespace_selector=LabelSelector())
    live = LiveCertificate()
    drops: list[str] = []
    handler = route_by_path(review_handlers(policy, FakeLookups(), load_integrations()))
    server = Server(handler, tls=live.context, limits=LIMITS, on_drop=drops.append)
    _, port = await server.start("127.0.0.1", 0)
    started = Webhook(server, port, live, create_authority(time.time_ns(), name="test"), drops)
    started.change_leaf()
    yield started
    await server.stop(linger=0, grace=1)


async def review(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    """Send a review, check the answer, and return its duration in seconds."""
    started = time.monotonic()
    async with session.post(url, data=io.BytesIO(body)) as response:
        answer = orjson.loads(await response.read())
    assert response.status == 200
    assert answer["response"]["uid"] == "u"
    assert answer["response"]["patch"]
    return time.monotonic() - started


async def review_on_any_connection(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    """Send a review, and send it again if the idle connection was closed meanwhile, as an API server does."""
    with contextlib.suppress(aiohttp.ClientOSError):
        return await review(session, url, body)
    return await review(session, url, body)


async def disconnect(writers: list[asyncio.StreamWriter | None]) -> None:
    for writer in writers:
        if writer is not None:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


HEADER = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n".encode()


@pytest.mark.parametrize(
    ("data", "tls"),
    [
        pytest.param(HEADER, True, id="half a header"),
        pytest.param(HEADER + b"Content-Length: 5000\r\n\r\n{", True, id="half a body"),
        pytest.param(b"", True, id="nothing"),
        pytest.param(b"", False, id="no handshake"),
    ],
)
async def test_idle_attackers_neither_block_nor_slow_down_reviews(
    webhook: Webhook, data: bytes, tls: bool
) -> None:
    before = open_files()
    body = a_review()
    async with webhook.session() as session:
        await review(session, webhook.url, body)
        # Twice the limit of one peer, in batches, because attackers and server share the machine.
        attackers: list[asyncio.StreamWriter | None] = []
        times: list[float] = []
        for _ in range(20):
            attackers += await asyncio.gather(*(webhook.attacker(data, tls=tls) for _ in range(20)))
            times += [await review_on_any_connection(session, webhook.url, body) for _ in range(5)]
            assert len(webhook.server.connections) <= LIMITS.connections_per_peer
        async with webhook.session() as newcomer:
            await review(newcomer, webhook.url, body)
        assert statistics.median(times) < 1.0
        await eventually(lambda: len(webhook.server.connections) <= 2)
        await disconnect(attackers)
    assert webhook.drops
    await eventually(lambda: open_files() <= before + 5)


async def test_incomplete_large_bodies_do_not_fill_the_memory(webhook: Webhook) -> None:
    before = resident_bytes()
    huge = HEADER + b"Content-Length: 8000000\r\n\r\n" + b"{" * 60_000
    attackers = await asyncio.gather(*(webhook.attacker(huge) for _ in range(150)))
    async with webhook.session() as session:
        await review(session, webhook.url, a_review())
    # The announced bodies have 1.2 GB. Both ends of each connection and their buffers are in this process.
    assert resident_bytes() - before < 250 * 2**20
    await disconnect(list(attackers))


async def test_oversized_bodies_are_refused_without_being_buffered(webhook: Webhook) -> None:
    before = resident_bytes()
    async with webhook.session() as session:
        for size in (10, 100):
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(webhook.url, data=pieces(size)) as response:
                    assert response.status == 413
        await review(session, webhook.url, a_review(7_900_000))
    assert "body_413" in webhook.drops
    assert resident_bytes() - before < 200 * 2**20


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def pieces(mebibytes: int) -> AsyncGenerator[bytes]:
    for _ in range(mebibytes * 16):
        yield b"a" * 65536


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_no_review_fails_while_certificates_change(webhook: Webhook) -> None:
    stop = asyncio.Event()
    answered = 0

    async def keep_reviewing(*, reuse: bool) -> None:
        nonlocal answered
        async with webhook.session(force_close=not reuse) as session:
            while not stop.is_set():
                await review(session, webhook.url, a_review())
                answered += 1

    workers = [asyncio.create_task(keep_reviewing(reuse=reuse)) for reuse in (True, True, False, False)]
    for _ in range(200):
        webhook.change_leaf()
        before = answered
        await eventually(lambda before=before: answered >= before + 2, interval=0)
    stop.set()
    await asyncio.gather(*workers)
    assert answered >= 400


async def test_no_review_fails_while_a_replica_stops(webhook: Webhook) -> None:
    policy = Policy(names=NAMES, integrations=load_integrations(), namespace_selector=LabelSelector())
    other = Server(
        route_by_path(review_handlers(policy, FakeLookups(), load_integrations())), tls=webhook.live.context
    )
    _, other_port = await other.start("127.0.0.1", 0)
    ports = [webhook.port, other_port]
    stop = asyncio.Event()
    answered = 0

    async def keep_reviewing() -> None:
        nonlocal answered
        async with webhook.session() as session:
            while not stop.is_set():
                for port in tuple(ports):
                    await review(session, f"https://localhost:{port}{PATH}", a_review())
                    answered += 1

    workers = [asyncio.create_task(keep_reviewing()) for _ in range(4)]
    await eventually(lambda: answered >= 50)
    # A pod that stops gets no new connections; open ones finish.
    ports.remove(webhook.port)
    await webhook.server.stop()
    before = answered
    await eventually(lambda: answered >= before + 50)
    stop.set()
    await asyncio.gather(*workers)
    await other.stop(linger=0)
