"""Controllers of kinds that need not be installed: each runs while the API server serves its resource.

While a resource is missing, discovery is called every few seconds. Every account may call discovery. It is
one small request, and covers built-in and aggregated kinds too. A watch of CustomResourceDefinitions would
need the permission to read all of them, and some have megabytes. It would also not show when the API server
begins to serve a kind. The watch of a resource ends when the API server no longer serves it.

The store of such a resource is dropped without events of deletion: its objects may still exist, so their
workloads must not be ended.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Protocol

from admitq.controllers.controller_specs import ControllerSpec, FollowedResource, Watch, WhenServed
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.controller import Controller
from admitq.runtime.discovery import find_served
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher

log = logger(__name__)

DISCOVERY_PERIOD_SECONDS: Final = 5.0
"""Seconds between two discovery calls, plus or minus a fifth."""


class Stores(Protocol):
    """The stores of the watched resources."""

    def of(self, resource: Resource) -> Store:
        """Return the store of a watched resource."""
        ...

    def add(self, store: Store) -> None:
        """Add the store of a resource."""
        ...

    def discard(self, store: Store) -> None:
        """Remove the store of a resource."""
        ...


class ServedKindControllers:
    """Runs controllers, each while the API server serves its resource.

    Args:
        client: for discovery and watches.
        stores: holds the stores of the resources while they are served.
        parts: the controllers.
        controller: creates a controller from its specification.
        leading: set once this process may act.
        metrics: the registry, for running controllers and unexpected exceptions. After an unexpected
            exception the controller starts again as if its resource were newly served.
        on_watch: receives the outcome of each watch.
        on_quarantine: receives a resource when its number of quarantined objects changes.
        look_seconds: seconds between two discovery calls.
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
        """The served resources. The event is set once the first list is complete or has failed."""
        self._running: set[Resource] = set()
        self._looked = asyncio.Event()
        self._missing = asyncio.Event()
        self._awaited = {
            part.resource: part.start_condition for part in parts if part.start_condition is not None
        }
        """The resources that nothing needs yet."""
        self._newly_wanted = asyncio.Event()
        self._is_settled = False

    async def run(self) -> None:
        """Call discovery while resources are missing, and run the controllers of those that are served."""
        self.report()
        for resource, is_wanted in list(self._awaited.items()):
            self._stores.of(is_wanted.resource).subscribe(lambda _, needed=resource: self._want(needed))
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
        """Include a resource in discovery at once, if it is needed now."""
        is_wanted = self._awaited.get(resource)
        if is_wanted is not None and is_wanted.is_met():
            del self._awaited[resource]
            self._missing.set()
            self._newly_wanted.set()

    async def settled(self, seconds: float) -> None:
        """Wait until discovery succeeded and the served resources are listed, at most for these seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._looked.wait()
                for event in list(self._served.values()):
                    await event.wait()
        self._is_settled = True

    async def ready(self) -> str | None:
        """Return the problem for the readiness check: served resources that have not been listed yet."""
        return None if self._is_settled else "discovery of served kinds has not succeeded yet"

    def report(self) -> None:
        """Set the metric that shows which controllers run."""
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
            log.info("kinds not installed, waiting for CRDs", waiting=waiting)

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
            _Followed(self._client, resource, self._on_watch, self._on_quarantine, self._errors)
            for resource in part.follows
        ]
        controllers = [self._controller(spec) for spec in part.specs]
        with self._errors.contain(ErrorPart.KIND, part.spec.name), ExitStack() as at_end:
            at_end.callback(self._no_longer_served, resource)
            for followed_store in (store, *(followed_store.store for followed_store in followed)):
                self._stores.add(followed_store)
                at_end.callback(self._stores.discard, followed_store)
            for spec, controller in zip(part.specs, controllers, strict=True):
                for watch in spec.watches:
                    watched, handler = self._stores.of(watch.resource), key_handler(controller, watch)
                    watched.subscribe(handler)
                    at_end.callback(watched.unsubscribe, handler)
            async with asyncio.TaskGroup() as tasks:
                work = self._work(part, watcher, followed, controllers)
                beside = [
                    tasks.create_task(work, name=part.spec.name),
                    *(
                        tasks.create_task(kind.watcher.run(), name=f"watch {kind.store.resource}")
                        for kind in followed
                    ),
                ]
                await watcher.run()
                for task in beside:
                    task.cancel()
        with self._errors.contain(ErrorPart.KIND, part.spec.name):
            self._forget(part, store, controllers)

    def _no_longer_served(self, resource: Resource) -> None:
        self._served.pop(resource).set()
        self._missing.set()

    async def _work(
        self,
        part: WhenServed,
        watcher: Watcher,
        followed: Sequence["_Followed"],
        controllers: Sequence[Controller[Key]],
    ) -> None:
        await watcher.synced.wait()
        for kind in followed:
            await kind.looked.wait()
        self._served[part.resource].set()
        self._running.add(part.resource)
        self.report()
        log.info("controller started", name=part.spec.name)
        await self._leading.wait()
        for key in part.known():
            for controller in controllers:
                controller.add(key)
        async with asyncio.TaskGroup() as tasks:
            for spec, controller in zip(part.specs, controllers, strict=True):
                tasks.create_task(controller.run(), name=spec.name)

    def _forget(self, part: WhenServed, store: Store, controllers: Sequence[Controller[Key]]) -> None:
        if store.quarantined:
            self._on_quarantine(part.resource)
        for controller in controllers:
            for key in tuple(controller.quarantined):
                controller.end_quarantine(key)
        if part.resource in self._running:
            self._running.discard(part.resource)
            self.report()
            log.warning(
                "kind is no longer served",
                name=part.spec.name,
                waiting=f"{part.resource.api_version} {part.resource.kind}",
            )


class _Followed:
    """The watch of a resource, which may be missing, that the controller of another resource also needs."""

    def __init__(
        self,
        client: Client,
        followed: FollowedResource,
        on_watch: Callable[[Resource, Outcome], None],
        on_quarantine: Callable[[Resource], None],
        errors: UnexpectedErrors,
    ) -> None:
        self.looked = asyncio.Event()
        """Set once its objects are listed, or the first attempt has failed."""
        resource = followed.resource
        self.store = Store(resource, transform=followed.transform, on_quarantine=on_quarantine, errors=errors)
        self.watcher = Watcher(client, resource, self.store, observe=self._observe, errors=errors)
        self._on_watch = on_watch

    def _observe(self, resource: Resource, outcome: Outcome) -> None:
        self.looked.set()
        self._on_watch(resource, outcome)


def key_handler(controller: Controller[Key], watch: Watch) -> Callable[[ObjectChange], None]:
    """Return a handler that adds the keys that a change concerns to the queue of a controller."""

    def handle(change: ObjectChange) -> None:
        if watch.refreshes(change):
            for key in watch.keys(change):
                controller.refresh(key)
            return
        urgent = watch.urgent(change)
        for key in watch.keys(change):
            controller.add(key, urgent=urgent)

    return handle
