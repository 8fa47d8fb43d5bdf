"""All versions of the objects of one history, in the order in which the API server stored them.

Resource versions of one API server are ordered over all kinds. So events of watches of several kinds can be
ordered, and ``laws.py`` can check each step against the state of all objects at that step.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from admitq.runtime.client import Client
from admitq.runtime.resources import Resource

T = TypeVar("T")
Place = tuple[str, str]
"""Kind and name of an object of the history."""


@dataclass(frozen=True)
class Step:
    """One version of an object; None after its deletion."""

    version: int
    place: Place
    uid: str
    obj: dict[str, Any] | None


class Chronicle:
    """Watches the objects of a namespace, and cluster-scoped ones with its name as suffix."""

    def __init__(self, client: Client, resources: Iterable[Resource], namespace: str) -> None:
        self._client = client
        self._resources = tuple(resources)
        self._namespace = namespace
        self._steps: list[Step] = []
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._handlers: list[Callable[[Step], None]] = []
        self.now: dict[Place, dict[str, Any]] = {}
        """All existing objects."""

    @property
    def steps(self) -> list[Step]:
        """All steps so far, in order."""
        return sorted(self._steps, key=lambda step: step.version)

    def resource_of(self, kind: str) -> Resource:
        """The resource of a recorded kind."""
        return next(one for one in self._resources if one.kind == kind)

    def subscribe(self, handler: Callable[[Step], None]) -> None:
        """Call a function with each step."""
        self._handlers.append(handler)

    async def open(self) -> None:
        """Start to record; no object of the history exists yet."""
        for resource in self._resources:
            namespace = self._namespace if resource.namespaced else None
            _, version = await self._client.list(resource, namespace)
            self._tasks.append(asyncio.create_task(self._follow(resource, version)))

    async def close(self) -> None:
        """Stop to record."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, look: Callable[[], T], what: str, seconds: float = 60.0) -> T:
        """Wait until ``look`` returns a true value, and return it; a missing object counts as false.

        Raises:
            AssertionError: it did not in time.
        """
        seen: object = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    try:
                        if seen := look():
                            return seen
                    except (LookupError, TypeError, ValueError, AssertionError) as error:
                        seen = error
                    await self._news.wait()
        except TimeoutError as error:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen!r}") from error

    async def _follow(self, resource: Resource, version: str) -> None:
        namespace = self._namespace if resource.namespaced else None
        async for event in self._client.watch(resource, version, namespace=namespace, timeout_seconds=3600):
            metadata = event.object["metadata"]
            if event.type == "BOOKMARK" or not (namespace or metadata["name"].endswith(self._namespace)):
                continue
            place = (resource.kind, metadata["name"])
            gone = event.type == "DELETED"
            step = Step(
                int(metadata["resourceVersion"]), place, metadata["uid"], None if gone else event.object
            )
            self._steps.append(step)
            if step.obj is None:
                self.now.pop(place, None)
            else:
                self.now[place] = step.obj
            for handler in self._handlers:
                handler(step)
            self._news.set()
