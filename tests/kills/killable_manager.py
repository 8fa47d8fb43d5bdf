"""A manager in this process that can be killed at any await, as SIGKILL would.

A crash leaves only the requests that reached the API server. So a kill makes a difference only at the awaits
of a request: **before** it is sent, and after it was answered, **unseen** by the manager. All other awaits
(queues, locks, timers, events of watches) are between two of these and send nothing. A kill there equals a
kill at the last request before it. ``hack/kills`` verifies that with kills at every task switch.

A killed manager sends nothing more: the client blocks all calls of its tasks while they unwind (``finally``,
``except``). Requests in flight end with their connections, as after the death of a process.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from admitq.app.manager import ManagerPart
from admitq.app.settings import ProcessSettings
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client, WatchEvent
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError

_MANAGERS_IN_MEMORY = 20
"""The number of killed managers in memory before garbage is collected."""


class KillPoint(StrEnum):
    """The awaits at which a manager is killed."""

    AT_REQUEST = "requests"
    AT_SWITCH = "switches"
    """At every switch of its tasks."""
    WITH_LATE_WRITE = "late"
    """Before a write, which is made later, while the next manager works."""


def is_before_write(what: str) -> bool:
    """Whether an await precedes a write."""
    return what.endswith(" before") and not what.startswith("GET ")


Request = tuple[str, Any, str, str, dict[str, Any]]
"""A call of a client: verb, resource, method, path and options."""


@dataclass
class ManagerRun:
    """One run of a manager: counts its awaits from ``count()`` on, and kills it at number ``ends_at``."""

    ends_at: int | None = None
    kill_point: KillPoint = KillPoint.AT_REQUEST
    left_behind: Request | None = None
    """The write that is made later."""
    writes: int = 0
    """The number of answered writes."""
    awaits: list[str] = field(default_factory=list[str])
    """A description of each await."""
    in_flight: int = 0
    """Writes that were sent and not answered yet."""
    wrote_at: float = 0.0
    """When the last write was sent or answered, by the clock of the event loop."""
    is_over: bool = False
    is_ready: bool = False
    """Whether the manager has synchronized its stores."""
    _counting: bool = False
    _end: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Note that the manager has synchronized its stores and acts."""
        self.is_ready = True
        self.wrote_at = asyncio.get_running_loop().time()

    def count(self) -> None:
        """Count awaits from now on: earlier ones do not belong to the history."""
        self._counting = True

    def on_end(self, end: Callable[[], object]) -> None:
        """Set the function that is called once at the end."""
        self._end = end

    def end(self) -> None:
        """End the run; no call passes any more."""
        if not self.is_over:
            self.is_over = True
            self._end()

    def passes(self, what: str, write: Request | None = None) -> None:
        """Count an await of a request, which may precede a write.

        Raises:
            CancelledError: the manager was killed before, or is killed here.
        """
        if self.kill_point is not KillPoint.AT_SWITCH:
            self._pass(what, write)
        elif self.is_over:
            raise asyncio.CancelledError

    def switched(self, what: str) -> None:
        """Count a switch of tasks if switches are counted.

        Raises:
            CancelledError: the manager was killed before, or is killed here.
        """
        if self.kill_point is KillPoint.AT_SWITCH:
            self._pass(what, None)

    def _pass(self, what: str, write: Request | None) -> None:
        if self.is_over:
            raise asyncio.CancelledError
        if not self._counting or (self.kill_point is KillPoint.WITH_LATE_WRITE and not is_before_write(what)):
            return
        self.awaits.append(what)
        if len(self.awaits) == self.ends_at:
            self.left_behind = write if self.kill_point is KillPoint.WITH_LATE_WRITE else None
            self.end()
            raise asyncio.CancelledError

    def quiet_for(self) -> float:
        """The seconds since the last write."""
        if self.in_flight or self.is_over or not self.is_ready:
            return 0.0
        return asyncio.get_running_loop().time() - self.wrote_at


_CURRENT_RUN: Final[ContextVar[ManagerRun | None]] = ContextVar("life", default=None)
"""The run that a task belongs to; its child tasks belong to it, too."""


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that counts each of its steps in its run."""

    def __init__(self, run: ManagerRun, inner: Any) -> None:
        self._manager_run = run
        self._inner = inner
        self._what = f"switch to {getattr(inner, '__qualname__', 'a task')}"

    def send(self, value: Any) -> Any:
        try:
            self._manager_run.switched(self._what)
        except asyncio.CancelledError as dead:
            return self._inner.throw(dead)
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._inner.__await__())


def _task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    run = _CURRENT_RUN.get()
    return asyncio.Task(work if run is None else _Counted(run, work), loop=loop, **options)


class KillableClient(Client):
    """A client that passes calls only while its run is not over."""

    def __init__(self, run: ManagerRun, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._manager_run = run

    async def _call(self, verb: str, resource: Any, method: str, path: str, **options: Any) -> Any:
        what, write = f"{method} {path}", method != "GET"
        self._manager_run.passes(f"{what} before", (verb, resource, method, path, options) if write else None)
        self._note(write)
        try:
            answer = await super()._call(verb, resource, method, path, **options)
        except ApiError as error:
            self._manager_run.passes(f"{what} unseen {error.status}")
            raise
        finally:
            self._note(-write)
        self._manager_run.passes(f"{what} unseen")
        return answer

    async def deliver(self, request: Request) -> None:
        """Make a write of a killed manager; no process gets the answer."""
        verb, resource, method, path, options = request
        with suppress(ApiError):
            await super()._call(verb, resource, method, path, **options)

    def _note(self, writes: int) -> None:
        if writes:
            self._manager_run.in_flight += writes
            self._manager_run.writes -= min(writes, 0)
            self._manager_run.wrote_at = asyncio.get_running_loop().time()

    async def watch(self, *args: Any, **options: Any) -> AsyncGenerator[WatchEvent]:
        if self._manager_run.is_over:
            raise asyncio.CancelledError
        async for event in super().watch(*args, **options):
            yield event


class KillableManager:
    """Runs managers of the same settings one after the other."""

    def __init__(self, settings: ProcessSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._ended = 0

    async def run(self, run: ManagerRun) -> None:
        """Run a manager until its run ends or this call is cancelled.

        Raises:
            Exception: the manager ended with an error of its own.
        """
        running = asyncio.create_task(self._run(run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            run.end()
            await running
            raise

    async def deliver(self, request: Request) -> None:
        """Make a write of a killed manager."""
        async with KillableClient(
            ManagerRun(), self._credentials, user_agent="admitq-killable", qps=-1
        ) as client:
            await client.deliver(request)

    async def _run(self, run: ManagerRun) -> None:
        if run.is_over:
            return
        clients: list[KillableClient] = []

        def open_client(*args: Any, **options: Any) -> Client:
            clients.append(KillableClient(run, *args, **options))
            return clients[-1]

        metrics = Metrics(self._settings.names.metric_prefix, role="standalone")
        thresholds = gc.get_threshold()
        part = ManagerPart(
            self._settings, self._credentials, metrics, "admitq-killable", lambda _: None, open_client
        )
        if run.kill_point is KillPoint.AT_SWITCH:
            asyncio.get_running_loop().set_task_factory(_task)
            _CURRENT_RUN.set(run)
        work = asyncio.create_task(self._work(part, run))
        run.on_end(work.cancel)
        try:
            with suppress(asyncio.CancelledError):
                await work
        finally:
            asyncio.get_running_loop().set_task_factory(None)
            # The manager's own stop would write events that it has not written yet.
            for client in clients:
                await client.__aexit__(None, None, None)
            gc.set_threshold(*thresholds)
            self._ended += 1
            if self._ended % _MANAGERS_IN_MEMORY == 0:
                gc.unfreeze()

    async def _work(self, part: ManagerPart, run: ManagerRun) -> None:
        async with asyncio.TaskGroup() as tasks:
            await part.start(tasks)
            run.begin()
