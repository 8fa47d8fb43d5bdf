"""Sends reviews at a constant rate over kept-alive TLS connections, as an API server does.

The load is open: reviews become due at even intervals, whatever earlier answers take. The latency of a review
counts from the time at which it was due. It thus includes the wait for a connection and for this process.

An API server calls webhooks by HTTP/1.1, so that a connection has one review at a time. It keeps 25 idle
connections for each webhook, and opens another connection if none is idle.
"""

import asyncio
import math
import signal
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, cast

import orjson
import uvloop

from admitq.serving.tls import client_context
from benchmarks.webhook_objects import BODIES

MAX_IN_PROGRESS: Final = 200
"""Reviews in progress at once: an API server's default limit of requests that change objects."""
IDLE_CONNECTIONS: Final = 25
"""Idle connections that an API server keeps for each webhook."""
GRACE_SECONDS: Final = 15.0
"""How long to wait for answers after the last review; longer than an API server waits."""

PATHS: Final = ("/mutate-batch-v1-job", "/validate-batch-v1-job")

_HOST: Final = "127.0.0.1"
_ALLOWED: Final = b'"allowed":true'
_HEAD_END: Final = b"\r\n\r\n"


@dataclass(frozen=True)
class ReplicaAddress:
    """The port of a webhook on loopback, and the authority of its certificate."""

    port: int
    authority: bytes


@dataclass(frozen=True)
class ReviewLoad:
    """Reviews to send.

    Attributes:
        replicas: where to send them. Connections are distributed evenly, as a Service does.
        kind: the kind of bodies, a key of `BODIES`.
        rate: reviews a second; they alternate between mutation and validation.
        seconds: length of the measurement.
        warm_up_seconds: time before the measurement in which reviews are sent and not counted.
    """

    replicas: tuple[ReplicaAddress, ...]
    kind: str
    rate: float
    seconds: float
    warm_up_seconds: float = 1.0


@dataclass
class SentReviews:
    """The result of a load, without its warm-up.

    Attributes:
        latencies: seconds from the time at which each answered review was due until its answer.
        lateness: seconds from the time at which each review was due until this process handled it. Answers
            wait in this process no longer than timers do, so this shows how much of the latency is its own.
        outcomes: answers by ``allowed``, or by the code of the rejection.
        answered: all answers, also in the warm-up.
        unanswered: reviews without an answer.
        seconds: length of the measurement.
        connections: connections opened, also in the warm-up.
    """

    latencies: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter[str])
    answered: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    connections: int = 0


@dataclass(frozen=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: the HTTP status.
        body: the body.
        is_last: whether the server closes the connection.
        size: bytes of the answer with its header.
    """

    status: int
    body: bytes
    is_last: bool
    size: int


def parse_answer(received: bytes | bytearray) -> Answer | None:
    """Return the answer at the beginning of the received bytes; None if it is not complete."""
    end = received.find(_HEAD_END)
    if end < 0:
        return None
    status, *lines = received[:end].decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    begin = end + len(_HEAD_END)
    size = begin + int(headers["content-length"])
    if len(received) < size:
        return None
    body = bytes(received[begin:size])
    return Answer(int(status.split()[1]), body, headers.get("connection") == "close", size)


def outcome_of(answer: Answer) -> str:
    """Return ``allowed``, or the code of a rejection or of an HTTP error."""
    if answer.status != 200:
        return str(answer.status)
    if _ALLOWED in answer.body:
        return "allowed"
    return str(orjson.loads(answer.body)["response"]["status"]["code"])


def encode_request(path: str, body: bytes) -> bytes:
    """Return the HTTP request of a review, with the headers of an API server."""
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\n"
        "Host: admitq-webhook-service.admitq-system.svc:443\r\n"
        "User-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Accept: application/json, */*\r\n"
        "Content-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


class EvenArrivals:
    """Numbers of reviews by the time at which they are due, at even intervals.

    Args:
        begin: when the first review is due, in seconds of any clock.
        rate: reviews a second.
        count: number of reviews.
    """

    def __init__(self, begin: float, rate: float, count: int) -> None:
        self._begin = begin
        self._rate = rate
        self._count = count
        self._next = 0

    def due_at(self, number: int) -> float:
        """Return when a review is due."""
        return self._begin + number / self._rate

    def take_due(self, now: float) -> range:
        """Return the reviews that became due since the last call."""
        first = self._next
        self._next = min(self._count, max(first, math.floor((now - self._begin) * self._rate) + 1))
        return range(first, self._next)

    @property
    def next_due_at(self) -> float | None:
        """When the next review is due; None if all reviews have become due."""
        return None if self._next == self._count else self.due_at(self._next)


@dataclass(eq=False)
class _Webhook:
    """One webhook of the API server, which has its own connections."""

    requests: list[bytes]
    waiting: deque[int] = field(default_factory=deque[int])
    idle: list["_Connection"] = field(default_factory=list["_Connection"])
    opening: int = 0


class _Connection(asyncio.Protocol):
    """A connection with at most one review in progress."""

    def __init__(self, sender: "_Sender", webhook: _Webhook) -> None:
        self.webhook = webhook
        self.review: int | None = None
        self._sender = sender
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sender.connections.add(self)

    def send(self, review: int, request: bytes) -> None:
        self.review = review
        if self._transport is not None:
            self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._received += data
        answer = parse_answer(self._received)
        if answer is not None:
            del self._received[: answer.size]
            self._sender.answered(self, answer, now)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._sender.lost(self)


class _Sender:
    """Sends the reviews of one load."""

    def __init__(self, load: ReviewLoad) -> None:
        self._loop = asyncio.get_running_loop()
        self._replicas = [
            (replica.port, client_context(replica.authority, strict=True)) for replica in load.replicas
        ]
        for _, context in self._replicas:
            context.set_alpn_protocols(["http/1.1"])
        bodies = BODIES[load.kind]()
        self._webhooks = [_Webhook([encode_request(path, body) for body in bodies]) for path in PATHS]
        self._skipped = round(load.rate * load.warm_up_seconds)
        count = self._skipped + max(1, round(load.rate * load.seconds))
        self._arrivals = EvenArrivals(time.monotonic() + 0.1, load.rate, count)
        self._remaining = count
        self._in_progress = 0
        self._opened: set[asyncio.Task[None]] = set()
        self.connections: set[_Connection] = set()
        self._finished = asyncio.Event()
        self.result = SentReviews(seconds=load.seconds)

    async def run(self, seconds: float) -> None:
        """Send all reviews, and wait for the answers for at most these seconds."""
        # Timers of the event loop have a resolution of a millisecond.
        self._loop.add_signal_handler(signal.SIGALRM, self._send_due)
        self._set_timer()
        try:
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        except TimeoutError:
            self.result.unanswered = self._remaining
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._loop.remove_signal_handler(signal.SIGALRM)
        self.result.connections = len(self._opened)
        for task in self._opened:
            task.cancel()
        await asyncio.gather(*self._opened, return_exceptions=True)
        for connection in self.connections:
            connection.close()

    def answered(self, connection: _Connection, answer: Answer, now: float) -> None:
        """Record an answer, and use the connection for the next review."""
        review, connection.review = connection.review, None
        self.result.answered += 1
        if review is not None and review >= self._skipped:
            self.result.latencies.append(now - self._arrivals.due_at(review))
            self.result.outcomes[outcome_of(answer)] += 1
        webhook = connection.webhook
        if answer.is_last or (not webhook.waiting and len(webhook.idle) >= IDLE_CONNECTIONS):
            connection.close()
        else:
            webhook.idle.append(connection)
        self._end_review()

    def lost(self, connection: _Connection) -> None:
        """Record that a connection was closed, perhaps without an answer to its review."""
        self.connections.discard(connection)
        webhook = connection.webhook
        if connection in webhook.idle:
            webhook.idle.remove(connection)
        if connection.review is None:
            return
        if connection.review >= self._skipped:
            self.result.outcomes["connection lost"] += 1
        self._end_review()

    def _send_due(self) -> None:
        now = time.monotonic()
        for review in self._arrivals.take_due(now):
            if review >= self._skipped:
                self.result.lateness.append(now - self._arrivals.due_at(review))
            self._webhooks[review % len(self._webhooks)].waiting.append(review)
        self._send_waiting()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._arrivals.next_due_at
        if due is not None:
            # 0 would stop the timer.
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, due - time.monotonic()))

    def _end_review(self) -> None:
        self._in_progress -= 1
        self._remaining -= 1
        if self._remaining == 0:
            self._finished.set()
        self._send_waiting()

    def _send_waiting(self) -> None:
        for webhook in self._webhooks:
            while webhook.waiting and webhook.idle and self._in_progress < MAX_IN_PROGRESS:
                review = webhook.waiting.popleft()
                self._in_progress += 1
                request = webhook.requests[review // len(self._webhooks) % len(webhook.requests)]
                # The connection that became idle last, as Go's client does.
                webhook.idle.pop().send(review, request)
            while len(webhook.waiting) > webhook.opening and self._has_room():
                webhook.opening += 1
                self._opened.add(self._loop.create_task(self._open(webhook)))

    def _has_room(self) -> bool:
        return self._in_progress + sum(webhook.opening for webhook in self._webhooks) < MAX_IN_PROGRESS

    async def _open(self, webhook: _Webhook) -> None:
        port, context = self._replicas[len(self._opened) % len(self._replicas)]
        try:
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self, webhook), _HOST, port, ssl=context, server_hostname="localhost"
            )
            webhook.idle.append(connection)
        except OSError:
            # The reviews wait for another connection, and their latency shows it.
            await asyncio.sleep(0.05)
        finally:
            webhook.opening -= 1
        self._send_waiting()


def send_reviews(load: ReviewLoad) -> SentReviews:
    """Send reviews from this process, and return what happened. Call it in the main thread."""
    return uvloop.run(send(load))


async def send(load: ReviewLoad) -> SentReviews:
    """Send reviews from this event loop, which must run in the main thread; return what happened."""
    sender = _Sender(load)
    await sender.run(load.warm_up_seconds + load.seconds + GRACE_SECONDS)
    return sender.result
