"""The client of the Kubernetes API: raw JSON objects over aiohttp.

Every call has a deadline, waits for the rate limit, and sends the User-Agent of admitq. Before that, a
write waits for a slot (``write_scheduler``). After a 401 a call renews the token once. It waits as
Retry-After says, within its deadline. Every failure is an `ApiError`.
"""

import asyncio
import platform
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import orjson

from admitq.runtime.adaptive_limit import LimitBounds
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.line_splitter import LineTooLongError, split_lines
from admitq.runtime.rate_limit import CallPriority, TokenBucket
from admitq.runtime.resources import Resource
from admitq.runtime.transport import (
    JSON,
    ApiCall,
    ApiRequest,
    Transport,
    as_api_error,
    excerpt,
    from_status,
)
from admitq.runtime.write_scheduler import BOUNDS, WriteScheduler
from admitq_api.version import VERSION

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

PAGE_SIZE = 500
MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_LIST_RESTARTS = 3
LIST_PATIENCE = 3
"""The deadline of a page of a list is this multiple of the deadline of another call."""

Objects: TypeAlias = list[dict[str, Any]]
Propagation = Literal["Background", "Foreground", "Orphan"]
Operation = Mapping[str, Any]
"""One operation of a JSON patch: ``op``, ``path`` and its further fields."""


class WatchEvent(NamedTuple):
    """One event of a watch; ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]

    @property
    def ends_initial_events(self) -> bool:
        """Whether this bookmark comes after all objects that existed at the start of a watch."""
        metadata = self.object.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        return (
            self.type == "BOOKMARK"
            and isinstance(annotations, dict)
            and annotations.get(INITIAL_EVENTS_END) == "true"
        )


class Page(NamedTuple):
    """One page of a list. ``first`` is True for the first page, also after a 410 restarted the list."""

    items: list[dict[str, Any]]
    resource_version: str
    first: bool


def user_agent(component: str) -> str:
    """Return the User-Agent, which the API server's audit log and its flow control see."""
    return f"admitq/{VERSION} ({platform.system().lower()}/{platform.machine()}) {component}"


class Client:
    """A client for one API server. Use it as an async context manager, in one event loop.

    ``timeout`` (seconds) is the deadline of a call with all its retries, unless the call has its own.
    ``fence`` is called right before each write, and prevents the write by raising an exception. ``observe``
    is called for every finished request. ``compress`` requests gzip, for clients far from the server: it
    saves bytes and costs CPU time on both sides. ``field_validation`` is what the API server does about
    fields that it does not know; None leaves the choice to it. ``write_bounds`` are the bounds of concurrent
    writes by class; writes of other classes have no limit.

    Returned objects belong to the caller.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str,
        qps: float = 300,
        burst: int = 500,
        timeout: float = 10.0,
        observe: Callable[[ApiCall], None] | None = None,
        fence: Callable[[], None] | None = None,
        # By default, the API server parses a patch a second time to send warnings, which no code reads.
        field_validation: Literal["Ignore", "Warn", "Strict"] | None = "Ignore",
        compress: bool = False,
        connections: int = 100,
        write_bounds: Mapping[CallPriority, LimitBounds] = BOUNDS,
    ) -> None:
        self.scheduler = WriteScheduler(write_bounds)
        """When which writes are sent."""
        self._transport = Transport(
            credentials,
            user_agent=user_agent,
            bucket=TokenBucket(qps, burst),
            scheduler=self.scheduler,
            timeout=timeout,
            observe=observe,
            fence=fence,
            compress=compress,
            connections=connections,
        )
        self._field_validation = field_validation

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.close()

    # Reading

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> dict[str, Any]:
        """Read one object."""
        path = resource.path(namespace, name, subresource)
        return await self._call("get", resource, "GET", path, subresource=subresource)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """Read all objects at one resource version, and return them with it."""
        items: list[dict[str, Any]] = []
        resource_version = ""
        async for page in self.pages(resource, namespace, label_selector, field_selector):
            items = page.items if page.first else items + page.items
            resource_version = page.resource_version
        return items, resource_version

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        *,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Page]:
        """Read all objects page by page, so that a large list is never in memory as a whole.

        The API server encodes the next page while the caller handles a page. If the list expires between two
        pages, it restarts with larger pages, so that it finishes.
        """
        path = resource.path(namespace)
        query = _selectors(label_selector, field_selector)

        def request(size: int, token: str) -> "asyncio.Task[Any]":
            page_query = {**query, "limit": str(size), **({"continue": token} if token else {})}
            seconds = LIST_PATIENCE * self._transport.timeout
            return asyncio.create_task(
                self._call("list", resource, "GET", path, query=page_query, timeout=seconds)
            )

        token, first, restarts = "", True, 0
        answer = request(page_size, token)
        try:
            while True:
                try:
                    body = await answer
                except ApiError as error:
                    if not (error.is_gone and token) or restarts == MAX_LIST_RESTARTS:
                        raise
                    token, first = "", True
                    restarts += 1
                    page_size *= 4
                    answer = request(page_size, token)
                    continue
                items, metadata = _items_and_metadata(body, resource, path)
                token = metadata.get("continue") or ""
                if token:
                    answer = request(page_size, token)
                yield Page(items, str(metadata.get("resourceVersion") or ""), first)
                first = False
                if not token:
                    return
        finally:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # The event loop would log an error that nothing retrieves.

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int = 300,
        inactivity: float = 75.0,
        max_line_bytes: int = MAX_LINE_BYTES,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the events after a resource version.

        Return when the server ends the watch regularly. ``inactivity`` (seconds) is how long the server may
        be silent; it sends a bookmark about once a minute.

        With ``initial_events`` the watch begins with the addition of every object that exists. The resource
        version is then a lower bound; empty means the latest. A bookmark follows for which
        ``ends_initial_events`` is true. An API server before Kubernetes 1.34, or without the feature
        WatchList, may reject such a watch with 400 or 422.

        Raises:
            ApiError: the watch was rejected, ended by an ERROR event (usually 410), silent (``Timeout``), cut
                (``ConnectionFailed``, or ``Truncated`` within a line), or the answer was not a watch.
        """
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            "resourceVersion": resource_version,
        }
        if initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        request = ApiRequest("watch", str(resource), "GET", resource.path(namespace), query)
        what = f"watch {request.path}"
        response = await self._transport.stream(request, inactivity)
        try:
            with as_api_error(what, f"silent for {inactivity:g} s"):
                async for line in split_lines(response.content.iter_any(), max_line_bytes):
                    yield _event(line, request.path)
        except LineTooLongError as error:
            raise ApiError(0, "LineTooLong", f"{what}: {error}") from error
        except EOFError as error:
            raise ApiError(0, "Truncated", f"{what}: {error}") from error
        finally:
            response.close()  # The connection of an unfinished watch cannot be reused.

    # Writing

    async def create(
        self,
        resource: Resource,
        obj: dict[str, Any],
        namespace: str | None = None,
        subresource: str | None = None,
        *,
        name: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Create an object. With ``subresource`` (token, eviction…), create it below the object ``name``."""
        metadata: dict[str, Any] = obj.get("metadata") or {}
        if namespace is None and resource.namespaced:
            namespace = metadata.get("namespace")
        if subresource is not None:
            name = name or metadata.get("name")
        path = resource.path(namespace, name if subresource else None, subresource)
        query = self._options(dry_run=dry_run, field_manager=field_manager)
        return await self._call(
            "create", resource, "POST", path, subresource=subresource, body=obj, query=query, write=True
        )

    async def replace(
        self,
        resource: Resource,
        obj: dict[str, Any],
        subresource: str | None = None,
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Replace an object. If ``obj`` has a ``resourceVersion``, replace only that version."""
        metadata: dict[str, Any] = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        query = self._options(dry_run=dry_run, field_manager=field_manager)
        return await self._call(
            "update", resource, "PUT", path, subresource=subresource, body=obj, query=query, write=True
        )

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: dict[str, Any],
        namespace: str | None = None,
        subresource: str | None = None,
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Apply a merge patch. If it has ``metadata.resourceVersion``, patch only that version."""
        path = resource.path(namespace, name, subresource)
        query = self._options(dry_run=dry_run, field_manager=field_manager)
        return await self._call(
            "patch",
            resource,
            "PATCH",
            path,
            subresource=subresource,
            body=patch,
            query=query,
            content_type=MERGE_PATCH,
            write=True,
        )

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Operation],
        namespace: str | None = None,
        subresource: str | None = None,
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Apply a JSON patch. If a ``test`` operation fails, the server rejects the whole patch with 422."""
        path = resource.path(namespace, name, subresource)
        query = self._options(dry_run=dry_run, field_manager=field_manager)
        return await self._call(
            "patch",
            resource,
            "PATCH",
            path,
            subresource=subresource,
            body=operations,
            query=query,
            content_type=JSON_PATCH,
            write=True,
        )

    async def apply(
        self,
        resource: Resource,
        obj: dict[str, Any],
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Apply an object on the server. Afterwards, ``field_manager`` owns exactly the fields of ``obj``."""
        metadata: dict[str, Any] = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        query = self._options(dry_run=dry_run, field_manager=field_manager)
        query["force"] = "true" if force else "false"
        return await self._call(
            "apply",
            resource,
            "PATCH",
            path,
            subresource=subresource,
            body=obj,
            query=query,
            content_type=APPLY,
            write=True,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        *,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete an object. With ``uid`` or ``resource_version``, delete only that object or version.

        ``grace_seconds`` replaces the grace period of a pod. With 0 the pod is deleted without waiting for
        the node. Return a Status, or the object in its last state if the server returns that.
        """
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        present = {key: value for key, value in preconditions.items() if value is not None}
        if present:
            body["preconditions"] = present
        if propagation is not None:
            body["propagationPolicy"] = propagation
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            body["dryRun"] = ["All"]
        return await self._call(
            "delete", resource, "DELETE", resource.path(namespace, name), body=body, write=True
        )

    # Paths without a resource

    async def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - the deadline includes retries
    ) -> Any:
        """Call any path and read JSON. ``path`` must be percent-encoded already."""
        return await self._call(
            method.lower(),
            None,
            method,
            path,
            body=body,
            query=query,
            content_type=content_type,
            write=method not in {"GET", "HEAD"},
            timeout=timeout,
        )

    async def request_text(self, path: str, *, timeout: float | None = None) -> str:  # noqa: ASYNC109
        """Read a path with an answer that is not JSON (``/readyz``, ``/metrics``, a pod's log)."""
        request = ApiRequest("get", "", "GET", path, {}, accept="*/*")
        return (await self._transport.read(request, timeout)).decode("utf-8", "replace")

    # One call

    def _options(self, *, dry_run: bool, field_manager: str | None) -> dict[str, str]:
        query: dict[str, str] = {}
        if dry_run:
            query["dryRun"] = "All"
        if field_manager is not None:
            query["fieldManager"] = field_manager
        if self._field_validation is not None:
            query["fieldValidation"] = self._field_validation
        return query

    async def _call(
        self,
        verb: str,
        resource: Resource | None,
        method: str,
        path: str,
        *,
        subresource: str | None = None,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        write: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - covers all retries, not one await
    ) -> Any:
        request = ApiRequest(
            verb=verb,
            resource="/".join(map(str, filter(None, (resource, subresource)))),
            method=method,
            path=path,
            query=query or {},
            data=None if body is None else orjson.dumps(body),
            content_type=content_type,
            write=write,
        )
        raw = await self._transport.read(request, timeout)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise ApiError(0, "MalformedResponse", f"{request}: {error}") from error


def _items_and_metadata(body: Any, resource: Resource, path: str) -> tuple[Objects, dict[str, Any]]:
    """Return the objects and the metadata of a list.

    Raises:
        ApiError: the answer is not a list.
    """
    metadata = body.get("metadata")
    items = body.get("items")
    if not isinstance(metadata, dict) or not isinstance(items, list | None):
        raise ApiError(0, "MalformedResponse", f"{path}: the answer is not a list of objects")
    for item in items or ():
        # The API server omits these fields in lists of built-in kinds.
        if isinstance(item, dict):
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
    return items or [], metadata


def _selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in selectors.items() if value}


def _event(line: bytes, path: str) -> WatchEvent:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ApiError(0, "MalformedResponse", f"watch {path}: {error}: {excerpt(line)}") from error
    kind = event.get("type") if isinstance(event, dict) else None
    obj = event.get("object") if isinstance(event, dict) else None
    if kind == "ERROR" and isinstance(obj, dict):
        code = obj.get("code")
        raise from_status(obj, code if isinstance(code, int) else 500)
    if kind not in _EVENT_TYPES or not isinstance(obj, dict):
        raise ApiError(0, "MalformedResponse", f"watch {path}: not an event: {excerpt(line)}")
    return WatchEvent(kind, obj)


_EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
