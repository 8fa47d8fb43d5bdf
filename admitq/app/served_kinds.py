"""Controllers of resources that come and go: each runs while the API server serves its resource.

Asked is discovery, every few seconds and only while something is missing: every account may, it costs one
small answer, and it tells of what is served, of built-in and aggregated kinds too. A watch of the
definitions would be a right to read all of them, some of which are megabytes, and would still have to wait
until what they define is served. That a resource is gone is told by its own watch, which then ends.

What is known of a resource that goes is dropped without telling anybody: its objects were not deleted as far
as we know, so that nothing that depends on them is brought to an end.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Protocol

from admitq.controllers.controller_specs import ControllerSpec, Followed, Watch, WhenServed
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.controller import Controller
from admitq.runtime.discovery import find_served
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.runtime.store import Change, Key, Store
from admitq.runtime.watcher import Outcome, Watcher

log = logger(__name__)

DISCOVERY_PERIOD_SECONDS: Final = 5.0
"""Between two looks at what is served, give or take a fifth."""


class Stores(Protocol):
    """Where stores are found."""

    def of(self, resource: Resource) -> Store:
        """The store of a resource that is watched."""
        ...

    def add(self, store: Store) -> None:
        """Have a store found."""
        ...

    def discard(self, store: Store) -> None:
        """Have a store found no more."""
        ...


class ServedKindControllers:
    """Runs each of some controllers while its resource is served.

    Args:
        client: for discovery and watches.
        stores: where the stores of the resources are found while they are served.
        parts: the controllers.
        controller: makes one ready to run.
        leading: set once this process may act.
        metrics: where it is told which of them run, and where unexpected exceptions are counted. After one,
            the controller starts again as if its resource had come back.
        on_watch: told of the ends of watches.
        on_quarantine: told when another number of a resource's objects cannot be read.
        look_seconds: between two looks at what is served.
    """

    def __init__(
        self,
        client: Client,
        stores: Stores,
        parts: Sequence[WhenServed],
        *,
        controller: Callable[[ControllerSpec], Controller[Key]],
        leading: asyncio.Event,
        metrics: Metrics,
        on_watch: Callable[[Resource, Outcome], None],
        on_quarantine: Callable[[Resource], None],
        look_seconds: float = DISCOVERY_PERIOD_SECONDS,
    ) -> None:
        self._client = client
        self._stores = stores
        self._parts = tuple(parts)
        self._controller = controller
        self._leading = leading
        self._metrics = metrics
        self._errors = metrics.errors
        self._on_watch = on_watch
        self._on_quarantine = on_quarantine
        self._look_seconds = look_seconds
        self._served: dict[Resource, asyncio.Event] = {}
        """Those that are; the event tells that the first list is complete, or was not to be had."""
        self._running: set[Resource] = set()
        self._looked = asyncio.Event()
        self._missing = asyncio.Event()
        self._awaited = {part.resource: part.wanted for part in parts if part.wanted is not None}
        """What is not wanted yet."""
        self._newly_wanted = asyncio.Event()
        self._is_settled = False

    async def run(self) -> None:
        """Look for what is missing, for ever."""
        self.report()
        for resource, wanted in list(self._awaited.items()):
            self._stores.of(wanted.resource).subscribe(lambda _, one=resource: self._want(one))
            with self._errors.contain(ErrorPart.KIND, resource):
                self._want(resource)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._newly_wanted.clear()
                not_looked_for = {*self._served, *self._awaited}
                missing = [part for part in self._parts if part.resource not in not_looked_for]
                if missing:
                    with self._errors.contain(ErrorPart.KIND):
                        await self._look_for(missing, tasks)
                else:
                    self._missing.clear()
                    await self._missing.wait()
                spread = random.uniform(0.8, 1.2)  # noqa: S311 - spreads clients, guards nothing
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_seconds * spread):
                        await self._newly_wanted.wait()

    def _want(self, resource: Resource) -> None:
        """Look for a resource from now on, and at once, if it is wanted by now."""
        wanted = self._awaited.get(resource)
        if wanted is not None and wanted.is_so():
            del self._awaited[resource]
            self._missing.set()
            self._newly_wanted.set()

    async def settled(self, seconds: float) -> None:
        """Wait until it is known what is served and that has been read, but not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._looked.wait()
                for event in list(self._served.values()):
                    await event.wait()
        self._is_settled = True

    async def ready(self) -> str | None:
        """The readiness check: what is served has had time to be read; what is missing is not waited for."""
        return None if self._is_settled else "not known yet which kinds are served"

    def report(self) -> None:
        """Tell metrics which controllers run and which wait for their resource."""
        with self._errors.contain(ErrorPart.METRICS):
            for part in self._parts:
                is_running = part.resource in self._running
                self._metrics.set("managed_kinds", int(is_running), controller=part.spec.name)

    async def _look_for(self, missing: Sequence[WhenServed], tasks: asyncio.TaskGroup) -> None:
        try:
            served = await find_served(self._client, [part.resource for part in missing])
        except ApiError as error:
            log.info("discovery failed, retrying", error=str(error))
            return
        for part in missing:
            if part.resource in served:
                self._served[part.resource] = asyncio.Event()
                tasks.create_task(self._while_served(part), name=part.spec.name)
        if not self._looked.is_set():
            self._looked.set()
            waiting = {
                part.spec.name: f"{part.resource.api_version} {part.resource.kind} is not served"
                for part in missing
                if part.resource not in served
            }
            log.info("waiting for missing kinds", waiting=waiting)

    async def _while_served(self, part: WhenServed) -> None:
        resource = part.resource
        store = Store(
            resource,
            transform=part.transform,
            indexes=part.indexes,
            on_quarantine=self._on_quarantine,
            errors=self._errors,
        )
        watcher = Watcher(
            self._client,
            resource,
            store,
            label_selector=part.label_selector,
            field_selector=part.field_selector,
            observe=self._on_watch,
            ends_when_missing=True,
            errors=self._errors,
        )
        followed = [
            _Followed(self._client, one, self._on_watch, self._on_quarantine, self._errors)
            for one in part.follows
        ]
        controller = self._controller(part.spec)
        with self._errors.contain(ErrorPart.KIND, part.spec.name), ExitStack() as at_end:
            at_end.callback(self._no_longer_served, resource)
            for one in (store, *(one.store for one in followed)):
                self._stores.add(one)
                at_end.callback(self._stores.discard, one)
            for watch in part.spec.watches:
                watched, handler = self._stores.of(watch.resource), key_handler(controller, watch)
                watched.subscribe(handler)
                at_end.callback(watched.unsubscribe, handler)
            async with asyncio.TaskGroup() as tasks:
                work = self._work(part, watcher, followed, controller)
                beside = [
                    tasks.create_task(work, name=part.spec.name),
                    *(
                        tasks.create_task(one.watcher.run(), name=f"watch {one.store.resource}")
                        for one in followed
                    ),
                ]
                await watcher.run()
                for task in beside:
                    task.cancel()
        with self._errors.contain(ErrorPart.KIND, part.spec.name):
            self._forget(part, store, controller)

    def _no_longer_served(self, resource: Resource) -> None:
        self._served.pop(resource).set()
        self._missing.set()

    async def _work(
        self,
        part: WhenServed,
        watcher: Watcher,
        followed: Sequence["_Followed"],
        controller: Controller[Key],
    ) -> None:
        await watcher.synced.wait()
        for one in followed:
            await one.looked.wait()
        self._served[part.resource].set()
        self._running.add(part.resource)
        self.report()
        log.info("kind is managed", name=part.spec.name)
        await self._leading.wait()
        for key in part.known():
            controller.add(key)
        await controller.run()

    def _forget(self, part: WhenServed, store: Store, controller: Controller[Key]) -> None:
        if store.quarantined:
            self._on_quarantine(part.resource)
        for key in tuple(controller.quarantined):
            controller.end_quarantine(key)
        if part.resource in self._running:
            self._running.discard(part.resource)
            self.report()
            log.warning(
                "kind is no longer served",
                name=part.spec.name,
                awaited=f"{part.resource.api_version} {part.resource.kind}",
            )


class _Followed:
    """What is read of a resource that another one's controller follows; it may be missing."""

    def __init__(
        self,
        client: Client,
        followed: Followed,
        on_watch: Callable[[Resource, Outcome], None],
        on_quarantine: Callable[[Resource], None],
        errors: UnexpectedErrors,
    ) -> None:
        self.looked = asyncio.Event()
        """Set once its objects are known, or that they are not to be had for now."""
        resource = followed.resource
        self.store = Store(resource, transform=followed.transform, on_quarantine=on_quarantine, errors=errors)
        self.watcher = Watcher(client, resource, self.store, observe=self._observe, errors=errors)
        self._on_watch = on_watch

    def _observe(self, resource: Resource, outcome: Outcome) -> None:
        self.looked.set()
        self._on_watch(resource, outcome)


def key_handler(controller: Controller[Key], watch: Watch) -> Callable[[Change], None]:
    """What puts the keys that a change concerns into a controller's queue."""

    def handle(change: Change) -> None:
        urgent = watch.urgent(change)
        for key in watch.keys(change):
            controller.add(key, urgent=urgent)

    return handle
