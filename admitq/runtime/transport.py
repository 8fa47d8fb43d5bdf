"""Sends requests to the API server: deadlines, rate limit, credentials, retries, and errors as ApiError.

Watches have a connection pool of their own, so that they never occupy a connection of calls.
"""

import asyncio
import contextlib
import email.utils
import itertools
import random
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson
from yarl import URL

from admitq.runtime.connection_pool import ConnectionPool
from admitq.runtime.credentials import Credentials, CredentialsError
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, TokenBucket, current_priority
from admitq.runtime.write_scheduler import WriteScheduler, WriteSlot, slot_in_use

JSON: Final = "application/json"

MAX_ERROR_BYTES = 64 * 1024
MAX_RETRIES = 10

# Each call as a whole has a deadline. This timeout leaves time for a retry if an address does not answer.
_CALL_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A finished request, for metrics; ``status`` is 0 without a valid answer."""

    verb: str
    resource: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request; metrics use ``verb`` and ``resource`` as labels."""

    verb: str
    resource: str
    method: str
    path: str
    query: Mapping[str, str]
    data: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    write: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def default_priority(self) -> CallPriority:
        """The priority of the request if its sender sets none."""
        if self.write:
            return CallPriority.STATUS
        return CallPriority.WATCH if self.verb == "watch" else CallPriority.READ


class Transport:
    """A connection to one API server, in one event loop; see :class:`~admitq.runtime.client.Client`."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str,
        bucket: TokenBucket,
        scheduler: WriteScheduler,
        timeout: float,
        observe: Callable[[ApiCall], None] | None,
        fence: Callable[[], None] | None,
        compress: bool,
        connections: int,
    ) -> None:
        self.timeout = timeout
        self._credentials = credentials
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "gzip" if compress else "identity"}
        self._bucket = bucket
        self._scheduler = scheduler
        self._observe = observe
        self._fence = fence
        self._connections = connections
        self._calls: ConnectionPool | None = None
        self._streams: ConnectionPool | None = None

    def open(self) -> None:
        """Create the connection pools, without connecting."""
        self._calls = ConnectionPool(self._connections, self._headers)
        self._streams = ConnectionPool(0, self._headers)

    async def close(self) -> None:
        """Close all connections. Calls in progress fail."""
        for pool in (self._calls, self._streams):
            if pool is not None:
                await pool.close()

    async def read(self, request: ApiRequest, seconds: float | None = None) -> bytes:
        """Send a request and read the whole answer, within the deadline."""
        with as_api_error(request):
            async with asyncio.timeout(self.timeout if seconds is None else seconds) as deadline:
                async with await self._send_until_successful(
                    self._calls, request, deadline, _CALL_TIMEOUT
                ) as response:
                    return await response.read()

    async def stream(self, request: ApiRequest, inactivity: float) -> aiohttp.ClientResponse:
        """Send a request with an endless answer, and return the answer. The caller must close it.

        ``inactivity`` (seconds) is how long the server may be silent.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=inactivity)
        with as_api_error(request):
            async with asyncio.timeout(self.timeout) as deadline:
                return await self._send_until_successful(self._streams, request, deadline, limits)

    async def _send_until_successful(
        self,
        pool: ConnectionPool | None,
        request: ApiRequest,
        deadline: asyncio.Timeout,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's socket timeouts
    ) -> aiohttp.ClientResponse:
        """Send a request, with retries, and return the successful answer. The caller reads its body."""
        if pool is None:
            raise RuntimeError("the client is used outside its context")
        renewed = False
        for attempt in itertools.count():
            response = await self._send_in_slot(pool, request, deadline, timeout)
            failure = await _failure(response, request)
            if failure is None:
                return response
            if failure.status == 401 and not renewed:
                renewed = True
                await self._renew(failure)
            elif failure.status in {429, 503} and failure.retry_after is not None and attempt < MAX_RETRIES:
                with self._scheduler.retry_of(current_priority(request.default_priority)):
                    await _wait(failure, attempt, deadline)
            else:
                raise failure
        raise AssertionError("unreachable")

    async def _send_in_slot(
        self,
        pool: ConnectionPool,
        request: ApiRequest,
        deadline: asyncio.Timeout,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's socket timeouts
    ) -> aiohttp.ClientResponse:
        """Send a request. A write waits for a slot of its class first, which does not count as its time."""
        if not request.write:
            return await self._send(pool, request, None, timeout)
        if (enclosing := slot_in_use()) is not None:
            return await self._send(pool, request, enclosing, timeout)
        slot = await self._take_slot(current_priority(request.default_priority), deadline)
        try:
            return await self._send(pool, request, slot, timeout)
        finally:
            self._scheduler.release(slot)

    async def _take_slot(self, priority: CallPriority, deadline: asyncio.Timeout) -> WriteSlot:
        """Take a slot, and postpone the deadline by the time for which none was free."""
        slot = self._scheduler.take_free(priority)
        if slot is not None:
            return slot
        now, ends_at = asyncio.get_running_loop().time, deadline.when()
        began = now()
        deadline.reschedule(None)
        slot = await self._scheduler.take(priority)
        deadline.reschedule(None if ends_at is None else ends_at + now() - began)
        return slot

    async def _send(
        self,
        pool: ConnectionPool,
        request: ApiRequest,
        slot: WriteSlot | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's socket timeouts
    ) -> aiohttp.ClientResponse:
        await self._bucket.take(current_priority(request.default_priority))
        try:
            identity = await self._credentials.identity()
        except CredentialsError as error:
            raise ApiError(0, "Unauthenticated", str(error)) from error
        headers = {**identity.headers, "Accept": request.accept}
        if request.data is not None:
            headers["Content-Type"] = request.content_type
        if request.write and self._fence is not None:
            self._fence()
        started = time.monotonic()
        status = 0
        try:
            response = await pool.session.request(
                request.method,
                URL(self._credentials.server + request.path, encoded=True).with_query(request.query),
                data=request.data,
                headers=headers,
                ssl=identity.tls if identity.tls is not None else True,
                server_hostname=self._credentials.server_name,
                proxy=self._credentials.proxy,
                allow_redirects=False,
                timeout=timeout,
            )
            status = response.status
            return response
        finally:
            seconds = time.monotonic() - started
            if slot is not None:
                self._scheduler.record(slot, f"{request.verb} {request.resource}", seconds, status)
            if self._observe is not None:
                self._observe(ApiCall(request.verb, request.resource, status, seconds))

    async def _renew(self, failure: ApiError) -> None:
        try:
            await self._credentials.renew()
        except CredentialsError as error:
            raise failure from error


async def _wait(failure: ApiError, attempt: int, deadline: asyncio.Timeout) -> None:
    """Wait as long as the server asks. If the deadline comes first, raise the failure."""
    seconds = max(failure.retry_after or 0.0, 0.05 * 2**attempt) * random.uniform(1.0, 1.1)  # noqa: S311
    ends_at = deadline.when()
    if ends_at is not None and asyncio.get_running_loop().time() + seconds >= ends_at:
        raise failure
    await asyncio.sleep(seconds)


@contextlib.contextmanager
def as_api_error(what: object, timeout_text: str = "no answer in time") -> Generator[None]:
    """Turn exceptions of a connection into an ApiError."""
    try:
        yield
    except TimeoutError as error:  # Before OSError, since it is a subclass of it.
        raise ApiError(0, "Timeout", f"{what}: {timeout_text}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ApiError(0, "ConnectionFailed", f"{what}: {str(error) or type(error).__name__}") from error


async def _failure(response: aiohttp.ClientResponse, request: ApiRequest) -> ApiError | None:
    """Return the error of a failed answer, which is read and closed; None if the answer is successful."""
    is_json = response.content_type == JSON
    is_successful = 200 <= response.status < 300
    if is_successful and (is_json or request.accept != JSON):
        return None
    async with response:
        raw = b""
        while len(raw) < MAX_ERROR_BYTES and (chunk := await response.content.readany()):
            raw += chunk
    if is_successful:
        text = f"{request}: expected JSON, got {response.content_type}: {excerpt(raw)}"
        return ApiError(0, "MalformedResponse", text)
    status = _status_object(raw) if is_json else {}
    seconds = _retry_after(response.headers.get("Retry-After"))
    if not status:
        reason = _REASONS.get(response.status, "Unknown")
        return ApiError(response.status, reason, f"{request}: {excerpt(raw)}", retry_after=seconds)
    error = from_status(status, response.status)
    error.retry_after = seconds
    return error


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def excerpt(raw: bytes) -> str:
    """Return the beginning of an unexpected body, on one line."""
    return " ".join(raw[:200].decode("utf-8", "replace").split())


def _status_object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}


def from_status(status: dict[str, Any], code: int) -> ApiError:
    """Create an error from a Status object of the API."""
    reason = status.get("reason") or _REASONS.get(code, "Unknown")
    return ApiError(code, str(reason), str(status.get("message") or reason), body=status)


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of the header, which may also contain a date (some proxies write one)."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
