"""A manager in this process that can be killed at any await of the world, as SIGKILL would.

What a crash leaves behind is what the API server has: the requests that got there. So the awaits at which it
makes a difference are those of a request: **before** it leaves, and after it was answered, **unseen** by the
manager. Whatever else a manager awaits (its own queues, locks, timers, events of watches) lies between two
of these, sends nothing, and what it changes in memory dies with it: to be killed there is to be killed at
the last of these before it. ``hack/kills`` proves that by killing at every switch of tasks, too.

A killed manager sends nothing more: what its tasks still do while they are unwound (``finally``, ``except``)
finds a client that lets nothing through. Requests on their way are cut off with their connections, as the
kernel does it for a process that died.
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

_LIVES_IN_MEMORY = 20
"""How many dead managers may lie about before they are swept up."""


class Death(StrEnum):
    """Where a manager dies."""

    AT_REQUEST = "requests"
    AT_SWITCH = "switches"
    """Wherever its tasks are switched."""
    WITH_LATE_WRITE = "late"
    """Before a write leaves, which leaves all the same, and arrives when another manager is at work."""


def is_before_write(what: str) -> bool:
    """Whether an await is that before a write."""
    return what.endswith(" before") and not what.startswith("GET ")


Request = tuple[str, Any, str, str, dict[str, Any]]
"""What a client is asked to call: verb, resource, method, path and options."""


@dataclass
class Life:
    """Counts the awaits of one manager from when it is told to, and ends it at the ``ends_at``-th."""

    ends_at: int | None = None
    death: Death = Death.AT_REQUEST
    left_behind: Request | None = None
    """The write that is still to arrive."""
    writes: int = 0
    """How many were answered."""
    awaits: list[str] = field(default_factory=list[str])
    """What was awaited, one entry an await."""
    in_flight: int = 0
    """Writes that have left and were not answered yet."""
    wrote_at: float = 0.0
    """When the last write left or was answered, by the clock of the event loop."""
    is_over: bool = False
    is_ready: bool = False
    """The manager knows the world."""
    _counting: bool = False
    _end: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """The manager knows the world, and acts."""
        self.is_ready = True
        self.wrote_at = asyncio.get_running_loop().time()

    def count(self) -> None:
        """Count from now on: what comes before belongs to no history."""
        self._counting = True

    def on_end(self, end: Callable[[], object]) -> None:
        """Have this called, once, at the end."""
        self._end = end

    def end(self) -> None:
        """Let nothing through any more."""
        if not self.is_over:
            self.is_over = True
            self._end()

    def passes(self, what: str, write: Request | None = None) -> None:
        """Count an await of the world, which may be that before a write.

        Raises:
            CancelledError: the manager is dead, or dies here.
        """
        if self.death is not Death.AT_SWITCH:
            self._pass(what, write)
        elif self.is_over:
            raise asyncio.CancelledError

    def switched(self, what: str) -> None:
        """Count a switch of tasks, if that is what is counted.

        Raises:
            CancelledError: the manager is dead, or dies here.
        """
        if self.death is Death.AT_SWITCH:
            self._pass(what, None)

    def _pass(self, what: str, write: Request | None) -> None:
        if self.is_over:
            raise asyncio.CancelledError
        if not self._counting or (self.death is Death.WITH_LATE_WRITE and not is_before_write(what)):
            return
        self.awaits.append(what)
        if len(self.awaits) == self.ends_at:
            self.left_behind = write if self.death is Death.WITH_LATE_WRITE else None
            self.end()
            raise asyncio.CancelledError

    def quiet_for(self) -> float:
        """For how many seconds nothing has been written."""
        if self.in_flight or self.is_over or not self.is_ready:
            return 0.0
        return asyncio.get_running_loop().time() - self.wrote_at


_LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)
"""The life that a task belongs to; a task that is made in a life belongs to it, too."""


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that has its life count each time that it goes on."""

    def __init__(self, life: Life, inner: Any) -> None:
        self._life = life
        self._inner = inner
        self._what = f"switch to {getattr(inner, '__qualname__', 'a task')}"

    def send(self, value: Any) -> Any:
        try:
            self._life.switched(self._what)
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
    life = _LIFE.get()
    return asyncio.Task(work if life is None else _Counted(life, work), loop=loop, **options)


class MortalClient(Client):
    """A client that lets pass what its life lets pass."""

    def __init__(self, life: Life, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._life = life

    async def _call(self, verb: str, resource: Any, method: str, path: str, **options: Any) -> Any:
        what, write = f"{method} {path}", method != "GET"
        self._life.passes(f"{what} before", (verb, resource, method, path, options) if write else None)
        self._note(write)
        try:
            answer = await super()._call(verb, resource, method, path, **options)
        except ApiError as error:
            self._life.passes(f"{what} unseen {error.status}")
            raise
        finally:
            self._note(-write)
        self._life.passes(f"{what} unseen")
        return answer

    async def deliver(self, request: Request) -> None:
        """Have a write of a dead process arrive; no process gets the answer."""
        verb, resource, method, path, options = request
        with suppress(ApiError):
            await super()._call(verb, resource, method, path, **options)

    def _note(self, writes: int) -> None:
        if writes:
            self._life.in_flight += writes
            self._life.writes -= min(writes, 0)
            self._life.wrote_at = asyncio.get_running_loop().time()

    async def watch(self, *args: Any, **options: Any) -> AsyncGenerator[WatchEvent]:
        if self._life.is_over:
            raise asyncio.CancelledError
        async for event in super().watch(*args, **options):
            yield event


class Mortal:
    """Lives of managers of the same settings, one after the other."""

    def __init__(self, settings: ProcessSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._lives = 0

    async def live(self, life: Life) -> None:
        """Be a manager until the life ends, by itself or because this is cancelled.

        Raises:
            Exception: what the manager ended with, if not with its life.
        """
        running = asyncio.create_task(self._run(life))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            life.end()
            await running
            raise

    async def deliver(self, request: Request) -> None:
        """Have a write of a dead process arrive."""
        async with MortalClient(Life(), self._credentials, user_agent="admitq-mortal", qps=-1) as client:
            await client.deliver(request)

    async def _run(self, life: Life) -> None:
        if life.is_over:
            return
        clients: list[MortalClient] = []

        def open_client(*args: Any, **options: Any) -> Client:
            clients.append(MortalClient(life, *args, **options))
            return clients[-1]

        metrics = Metrics(self._settings.names.metric_prefix, role="standalone")
        thresholds = gc.get_threshold()
        part = ManagerPart(
            self._settings, self._credentials, metrics, "admitq-mortal", lambda _: None, open_client
        )
        if life.death is Death.AT_SWITCH:
            asyncio.get_running_loop().set_task_factory(_task)
            _LIFE.set(life)
        work = asyncio.create_task(self._work(part, life))
        life.on_end(work.cancel)
        try:
            with suppress(asyncio.CancelledError):
                await work
        finally:
            asyncio.get_running_loop().set_task_factory(None)
            # Not its own stop, which would write what is still to be told.
            for client in clients:
                await client.__aexit__(None, None, None)
            gc.set_threshold(*thresholds)
            self._lives += 1
            if self._lives % _LIVES_IN_MEMORY == 0:
                gc.unfreeze()

    async def _work(self, part: ManagerPart, life: Life) -> None:
        async with asyncio.TaskGroup() as tasks:
            await part.start(tasks)
            life.begin()
