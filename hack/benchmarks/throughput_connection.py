"""The harness's calls of the API server.

Not admitq's client: a change of its rate limits or retries must not change the load.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from admitq.runtime.connection_pool import ConnectionPool
from admitq.runtime.line_splitter import split_lines
from benchmarks.api_calls import ApiCallKey
from localcluster.cluster import LocalCluster

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
JSON: Final = "application/json"

_METHODS: Final = {"create": "POST", "patch": "PATCH", "list": "GET"}
_DEADLINE_S: Final = 120.0
_WATCH_S: Final = 3600
_RETRY_AFTER_S: Final = 0.5
_PAGE: Final = 500
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024


class ThroughputFailed(RuntimeError):
    """The run has no result. The message has the cause."""


class LoadAnswer(NamedTuple):
    """The answer to a call; `status` is 0 if there was none."""

    status: int
    body: bytes

    @property
    def excerpt(self) -> str:
        """The beginning of the body."""
        return self.body[:300].decode(errors="replace")

    @property
    def is_temporary(self) -> bool:
        """Whether the call may succeed later."""
        return self.status in {0, 429} or self.status >= 500


class LoadConnection:
    """A pool of connections to the API server, as administrator.

    Args:
        cluster: a running cluster.
        user_agent: the name of the caller.
        connections: the number of calls in progress at once.
    """

    def __init__(self, cluster: LocalCluster, *, user_agent: str, connections: int) -> None:
        self.calls: Counter[ApiCallKey] = Counter()
        self.watch_bytes = 0
        self._server = cluster.server
        self._tls = ssl.create_default_context(cafile=str(cluster.authority))
        self._token = cluster.admin_token
        self._user_agent = user_agent
        self._connections = connections
        self._pool: ConnectionPool | None = None

    async def __aenter__(self) -> Self:
        self._pool = ConnectionPool(
            self._connections,
            {
                "Authorization": f"Bearer {self._token}",
                "User-Agent": self._user_agent,
                "Accept-Encoding": "identity",
            },
            self._tls,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open_pool().close()

    async def call(
        self, verb: str, resource: str, path: str, body: Any = None, content_type: str = JSON
    ) -> LoadAnswer:
        """Send one call.

        Args:
            verb: create, patch or list.
            resource: the resource with its group and subresource, for the count of calls.
            path: the path, and the query.
            body: the body as JSON objects, or None.
            content_type: the type of the body.
        """
        answer = LoadAnswer(0, b"")
        headers = None if body is None else {"Content-Type": content_type}
        try:
            async with self._open_pool().session.request(
                _METHODS[verb],
                URL(self._server + path, encoded=True),
                data=None if body is None else orjson.dumps(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_DEADLINE_S),
            ) as response:
                answer = LoadAnswer(response.status, await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        self.calls[ApiCallKey(verb, resource, str(answer.status))] += 1
        return answer

    async def watch(
        self, resource: str, path: str, version: str, *, fields: str = ""
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a watch until it ends.

        Args:
            resource: the resource with its group, for the count of calls.
            path: the path of the collection.
            version: the resourceVersion after which the watch begins.
            fields: a field selector; empty for all objects.
        """
        query = (
            f"watch=true&allowWatchBookmarks=true&timeoutSeconds={_WATCH_S}&resourceVersion={version}"
            f"&{_selection(fields)}"
        )
        status = 0
        try:
            async with self._open_pool().session.get(
                URL(f"{self._server}{path}?{query}", encoded=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            ) as response:
                status = response.status
                if status == 200:
                    async for line in split_lines(response.content.iter_any(), _MAX_LINE_BYTES):
                        self.watch_bytes += len(line) + 1
                        yield orjson.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError, EOFError):
            pass
        finally:
            self.calls[ApiCallKey("watch", resource, str(status))] += 1

    def _open_pool(self) -> ConnectionPool:
        if self._pool is None:
            raise RuntimeError("the connection is used outside its context")
        return self._pool


async def until_answered(
    connection: LoadConnection,
    verb: str,
    resource: str,
    path: str,
    body: dict[str, Any],
    content_type: str = JSON,
) -> float:
    """Repeat a call while it fails with temporary errors, and return the monotonic time of its answer.

    Raises:
        ThroughputFailed: it fails for another reason.
    """
    while True:
        answer = await connection.call(verb, resource, path, body, content_type)
        # 409: the object exists, because the answer to an earlier attempt was lost.
        if 200 <= answer.status < 300 or answer.status == 409:
            return time.monotonic()
        if not answer.is_temporary:
            raise ThroughputFailed(f"{verb} {path}: {answer.status} {answer.excerpt}")
        await asyncio.sleep(_RETRY_AFTER_S)


async def list_all(
    connection: LoadConnection, resource: str, path: str, *, fields: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """Return all objects of a collection that a field selector chooses, and the resourceVersion of the list.

    Raises:
        ThroughputFailed: the API server refused the call.
    """
    items: list[dict[str, Any]] = []
    first = query = f"limit={_PAGE}&{_selection(fields)}"
    while True:
        answer = await connection.call("list", resource, f"{path}?{query}")
        if answer.is_temporary:
            await asyncio.sleep(_RETRY_AFTER_S)
            continue
        if answer.status != 200:
            raise ThroughputFailed(f"list {path}: {answer.status} {answer.excerpt}")
        page = orjson.loads(answer.body)
        items += page["items"]
        if not (token := page["metadata"].get("continue")):
            return items, page["metadata"]["resourceVersion"]
        query = f"{first}&continue={token}"


def _selection(fields: str) -> str:
    return urlencode({"fieldSelector": fields})
