"""Measure reviews of ordinary jobs while objects with very many labels or variables are reviewed."""

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from admitq.serving.tls import client_context
from benchmarks.measures import percentile
from benchmarks.webhook_server import IN_PROCESS, QUEUE

P99_MS: Final = 100.0
"""The longest time that reviews of ordinary jobs may take at p99."""

LABELS: Final = 200_000
VARIABLES: Final = 250_000

_HOST: Final = "127.0.0.1"
_VERBS: Final = ("mutate", "validate")
_WARM_UP: Final = 50


@dataclass(frozen=True)
class Load:
    """The requests to the webhook.

    Attributes:
        seconds: length of each of the two measurements.
        rate: ordinary jobs a second; each is two reviews, as from the API server.
        large_rate: large objects a second; each is two reviews, unless the first is rejected.
        in_process: whether the serving process reviews large objects itself.
    """

    seconds: float = 30.0
    rate: float = 25.0
    large_rate: float = 5.0
    in_process: bool = False


class WebhookFailed(Exception):
    """The webhook gave a wrong answer, or no answer."""


@dataclass
class _Client:
    """Open connections to the webhook."""

    port: int
    context: ssl.SSLContext
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a review, and return the status and the body of the answer."""
        if self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection(
                _HOST, self.port, ssl=self.context, server_hostname="localhost"
            )
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        writer.write(body)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        answer = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            writer.close()
        else:
            self.idle.append((reader, writer))
        return int(status.split()[1]), answer


@dataclass(frozen=True)
class _Server:
    port: int
    certificate: bytes

    def client(self) -> _Client:
        return _Client(self.port, client_context(self.certificate, strict=True))


def run(load: Load) -> tuple[dict[str, Any], bool]:
    """Measure reviews of ordinary jobs alone, and beside large objects.

    Returns:
        The result, and whether p99 is within its bound.

    Raises:
        WebhookFailed: an ordinary job was not allowed, or the webhook did not start.
    """
    return asyncio.run(_run(load))


async def _run(load: Load) -> tuple[dict[str, Any], bool]:
    ordinary, loop = _review(_job()), asyncio.get_running_loop()
    # Another process sends large objects, so that its work does not count as time of ordinary reviews.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
        async with _server(in_process=load.in_process) as server:
            client = server.client()
            for _ in range(_WARM_UP):
                await _ordinary(client, ordinary, [])
            # The first large object starts the child.
            await loop.run_in_executor(pool, _send_large, server, 1.0, 1.0)
            alone: list[float] = []
            await _send(lambda _: _ordinary(client, ordinary, alone), load.rate, load.seconds)
            large = loop.run_in_executor(pool, _send_large, server, load.large_rate, load.seconds)
            beside: list[float] = []
            await _send(lambda _: _ordinary(client, ordinary, beside), load.rate, load.seconds)
            outcomes, sizes = await large
    p99 = _ms(beside, 0.99)
    result: dict[str, Any] = {
        "benchmark": "webhook",
        "ordinary_reviews": len(beside),
        "p50_alone_ms": _ms(alone, 0.5),
        "p99_alone_ms": _ms(alone, 0.99),
        "p50_ms": _ms(beside, 0.5),
        "p99_ms": p99,
        "max_ms": _ms(beside, 1.0),
        "large_bodies_mib": [round(size / 2**20, 1) for size in sizes],
        "large_reviews": outcomes,
    }
    return result, p99 <= P99_MS


@contextlib.asynccontextmanager
async def _server(*, in_process: bool) -> AsyncGenerator[_Server]:
    command = [sys.executable, "-m", "benchmarks.webhook_server", *([IN_PROCESS] if in_process else [])]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise WebhookFailed("the webhook has no pipes")
        try:
            port = int(await process.stdout.readuntil())
            certificate = await process.stdout.readuntil(b"-----END CERTIFICATE-----\n")
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise WebhookFailed("the webhook did not start") from error
        yield _Server(port, certificate)
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _send_large(server: _Server, rate: float, seconds: float) -> tuple[dict[str, int], list[int]]:
    """Send large objects, and return the results and the sizes of their reviews."""
    return asyncio.run(_sent_large(server, rate, seconds))


async def _sent_large(server: _Server, rate: float, seconds: float) -> tuple[dict[str, int], list[int]]:
    client, outcomes = server.client(), dict[str, int]()
    bodies = [_review(_with_labels(LABELS)), _review(_with_variables(VARIABLES))]
    await _send(lambda number: _large(client, bodies[number % len(bodies)], outcomes), rate, seconds)
    return outcomes, [len(body) for body in bodies]


async def _send(each: Callable[[int], Coroutine[Any, Any, None]], rate: float, seconds: float) -> None:
    """Start a task at even intervals, even if earlier tasks still run, and wait for all."""
    begin = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(round(seconds * rate)):
            await asyncio.sleep(begin + number / rate - time.monotonic())
            tasks.create_task(each(number))


async def _ordinary(client: _Client, body: bytes, seconds: list[float]) -> None:
    for verb in _VERBS:
        begin = time.monotonic()
        status, answer = await client.post(f"/{verb}-batch-v1-job", body)
        seconds.append(time.monotonic() - begin)
        if status != 200 or not orjson.loads(answer)["response"]["allowed"]:
            raise WebhookFailed(f"an ordinary job got {status} {answer[:500].decode()}")


async def _large(client: _Client, body: bytes, outcomes: dict[str, int]) -> None:
    for verb in _VERBS:
        status, answer = await client.post(f"/{verb}-batch-v1-job", body)
        response: dict[str, Any] = orjson.loads(answer)["response"] if status == 200 else {}
        allowed = bool(response.get("allowed"))
        outcome = "allowed" if allowed else str(response.get("status", {}).get("code", status))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if not allowed:
            return


def _review(job: dict[str, Any]) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
        "object": job,
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def _job() -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "work:1", "resources": {"requests": requests}}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", "namespace": "team", "labels": {"admitq.dev/queue-name": QUEUE}},
        "spec": {"parallelism": 4, "completions": 4, "suspend": True, "template": template},
    }


def _with_labels(count: int) -> dict[str, Any]:
    """Return a Job with labels, and with its field manager's record of them, as the API server sends it."""
    job = _job()
    names = [f"l{number:06}" for number in range(count)]
    job["metadata"]["labels"] |= dict.fromkeys(names, "")
    fields = {"f:metadata": {"f:labels": {f"f:{name}": {} for name in names}}}
    manager = {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    job["metadata"]["managedFields"] = [manager]
    return job


def _with_variables(count: int) -> dict[str, Any]:
    """Return a Job with environment variables, without managed fields, for which it would be too large."""
    job = _job()
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": f"E{i}"} for i in range(count)]
    return job


def _ms(seconds: list[float], fraction: float) -> float:
    return round((percentile(seconds, fraction) or 0.0) * 1000, 1)
