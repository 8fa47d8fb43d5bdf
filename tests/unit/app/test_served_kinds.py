"""Controllers of resources that the API server starts and stops serving."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from admitq.app.served_kinds import ServedKindControllers
from admitq.controllers.controller_specs import (
    ControllerSpec,
    FollowedResource,
    StartCondition,
    Watch,
    WhenServed,
)
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client, Page, WatchEvent
from admitq.runtime.controller import Controller
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import NAMESPACES, Resource
from admitq.runtime.store import Key, Store

FOXES = Resource("zoo.example", "v1", "foxes", "Fox", namespaced=True)
OWLS = Resource("zoo.example", "v1", "owls", "Owl", namespaced=True)
EGGS = Resource("egg.example", "v1", "eggs", "Egg", namespaced=True)
DUCKS = Resource("pond.example", "v1", "ducks", "Duck", namespaced=True)
NOT_SERVED = ApiError(404, "NotFound", "page not found")


def object_named(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}}


@dataclass
class Server:
    """Serves objects by resource, in one page. A watch ends when the resource is no longer served."""

    objects: dict[Resource, list[dict[str, Any]]] = field(
        default_factory=dict[Resource, list[dict[str, Any]]]
    )
    broken: set[Resource] = field(default_factory=set[Resource])
    discovery_fails: bool = False
    requests: Counter[str] = field(default_factory=Counter[str])
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, resource: Resource, *objects: dict[str, Any]) -> None:
        async with self.changed:
            self.objects[resource] = list(objects)
            self.changed.notify_all()

    async def stop_serving(self, resource: Resource) -> None:
        async with self.changed:
            del self.objects[resource]
            self.changed.notify_all()

    async def request_json(self, _method: str, path: str) -> Any:
        self.requests[path] += 1
        if self.discovery_fails:
            raise ApiError(503, "ServiceUnavailable", "down")
        if path == "/apis":
            groups = {(resource.group, resource.version) for resource in self.objects}
            return {
                "groups": [{"name": name, "versions": [{"version": version}]} for name, version in groups]
            }
        served = [resource for resource in self.objects if f"/apis/{resource.api_version}" == path]
        return {
            "resources": [
                {"name": resource.plural, "kind": resource.kind, "namespaced": True} for resource in served
            ]
        }

    async def pages(self, resource: Resource, *_: Any) -> AsyncGenerator[Page]:
        self.requests[f"list {resource}"] += 1
        if resource in self.broken:
            raise ApiError(500, "InternalError", "conversion webhook does not answer")
        if resource not in self.objects:
            raise NOT_SERVED
        yield Page(self.objects[resource], "5", True)

    async def watch(self, resource: Resource, *_: Any, **options: Any) -> AsyncGenerator[WatchEvent]:
        if options["initial_events"]:
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")
        self.requests[f"watch {resource}"] += 1
        async with self.changed:
            await self.changed.wait_for(lambda: resource not in self.objects)
        raise NOT_SERVED
        yield


@dataclass
class Stage:
    """Controllers of foxes, owls and ducks that record which objects they reconcile."""

    server: Server
    metrics: Metrics
    controllers: ServedKindControllers
    leading: asyncio.Event
    stores: dict[Resource, Store]
    namespaces: Store
    reconciled: list[tuple[str, str]]
    quarantined: dict[str, str]

    def managed(self) -> set[str]:
        lines = self.metrics.exposition().decode().splitlines()
        managed = [
            line for line in lines if line.startswith("admitq_managed_kinds") and line.endswith(" 1.0")
        ]
        return {kind for kind in ("fox", "owl", "duck") for line in managed if f'controller="{kind}"' in line}


@asynccontextmanager
async def staged(
    server: Server,
    *,
    followed: tuple[Resource, ...] = (),
    required_namespace: str = "",
    discovery_seconds: float = 0.01,
    known: Callable[[], list[Key]] = lambda: [Key("ns", "known")],
) -> AsyncGenerator[Stage]:
    """Run the controllers. Reconciling an object with the name ``sick`` fails.

    With ``required_namespace``, foxes are watched only from the time when that namespace exists.
    """
    reconciled: list[tuple[str, str]] = []
    quarantined: dict[str, str] = {}
    namespaces = Store(NAMESPACES)
    stores = {NAMESPACES: namespaces}

    class Stores:
        def of(self, resource: Resource) -> Store:
            return stores[resource]

        def add(self, store: Store) -> None:
            stores[store.resource] = store

        def discard(self, store: Store) -> None:
            del stores[store.resource]

    def when_served(resource: Resource) -> WhenServed:
        name = resource.kind.lower()

        async def reconcile(key: Key) -> None:
            if key.name == "sick":
                raise RuntimeError(name)
            reconciled.append((name, key.name))

        spec = ControllerSpec(
            name,
            reconcile,
            (
                Watch(resource, lambda change: (change.key,)),
                Watch(NAMESPACES, lambda change: (Key("ns", f"in-{change.key.name}"),)),
                *(
                    Watch(other, lambda change: (Key("ns", f"eats-{change.key.name}"),))
                    for other in followed_by(resource)
                ),
            ),
        )
        namespace_exists = StartCondition(NAMESPACES, lambda: ("ns", required_namespace) in namespaces)
        return WhenServed(
            resource,
            {},
            spec,
            known=known,
            follows=tuple(map(FollowedResource, followed_by(resource))),
            start_condition=namespace_exists if required_namespace and resource is FOXES else None,
        )

    def followed_by(resource: Resource) -> tuple[Resource, ...]:
        return followed if resource is FOXES else ()

    def on_quarantine(controller: Controller[Key], key: Key) -> None:
        if (problem := controller.quarantined.get(key)) is None:
            del quarantined[key.name]
        else:
            quarantined[key.name] = problem

    metrics = Metrics("admitq", role="standalone")
    leading = asyncio.Event()
    leading.set()
    controllers = ServedKindControllers(
        cast("Client", server),
        Stores(),
        [when_served(resource) for resource in (FOXES, OWLS, DUCKS)],
        controller=lambda spec: Controller(
            spec.name, spec.reconcile, on_quarantine=on_quarantine, quarantine_after=1
        ),
        leading=leading,
        metrics=metrics,
        on_watch=lambda *_: None,
        on_quarantine=lambda _: None,
        look_seconds=discovery_seconds,
    )
    running = asyncio.create_task(controllers.run())
    yield Stage(server, metrics, controllers, leading, stores, namespaces, reconciled, quarantined)
    running.cancel()
    await asyncio.wait([running])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_served_resources_are_managed_and_others_are_not_requested() -> None:
    server = Server({FOXES: [object_named("reynard")]})
    async with staged(server) as stage:
        assert await stage.controllers.ready() is not None
        await stage.controllers.settled(5)
        assert await stage.controllers.ready() is None
        await until(lambda: {("fox", "reynard"), ("fox", "known")} <= set(stage.reconciled))
        await until(lambda: server.requests["/apis"] > 5)
        assert stage.managed() == {"fox"}
        assert set(stage.stores) == {NAMESPACES, FOXES}
        # Discovery requests only the served group, which may serve owls later.
        assert server.requests.keys() == {
            "/apis",
            "/apis/zoo.example/v1",
            f"list {FOXES}",
            f"watch {FOXES}",
        }
        assert server.requests[f"list {FOXES}"] == 1


async def test_controller_follows_whether_its_resource_is_served() -> None:
    server = Server()
    async with staged(server) as stage:
        await stage.controllers.settled(5)
        # The resource is served.
        await server.serve(DUCKS, object_named("donald"))
        await until(lambda: ("duck", "donald") in stage.reconciled)
        assert stage.managed() == {"duck"}
        # The resource is no longer served.
        await server.stop_serving(DUCKS)
        await until(lambda: DUCKS not in stage.stores)
        assert stage.managed() == set()
        stage.namespaces.upsert(object_named("while-not-served"))
        before = server.requests["/apis"]
        await until(lambda: server.requests["/apis"] > before + 5)
        assert server.requests[f"list {DUCKS}"] <= 2
        assert ("duck", "in-while-not-served") not in stage.reconciled
        # The resource is served again.
        stage.reconciled.clear()
        await server.serve(DUCKS, object_named("daisy"))
        await until(lambda: {("duck", "daisy"), ("duck", "known")} <= set(stage.reconciled))
        stage.namespaces.upsert(object_named("later"))
        await until(lambda: ("duck", "in-later") in stage.reconciled)
        assert stage.reconciled.count(("duck", "in-later")) == 1


async def test_quarantines_of_resource_are_removed_when_it_is_no_longer_served() -> None:
    server = Server({DUCKS: [object_named("donald"), object_named("sick")]})
    async with staged(server) as stage:
        await until(lambda: stage.quarantined == {"sick": "RuntimeError: duck"})
        await server.stop_serving(DUCKS)
        await until(lambda: not stage.quarantined)


async def test_discovery_requests_nothing_while_all_resources_are_served() -> None:
    server = Server({FOXES: [], OWLS: [], DUCKS: []})
    async with staged(server) as stage:
        await until(lambda: stage.managed() == {"fox", "owl", "duck"})
        before = server.requests.total()
        await asyncio.sleep(0.1)
        assert server.requests.total() == before


async def test_unreadable_resource_does_not_block_others() -> None:
    server = Server({FOXES: [object_named("reynard")], OWLS: []}, broken={OWLS})
    async with staged(server) as stage:
        await stage.controllers.settled(0.05)
        assert await stage.controllers.ready() is None
        await until(lambda: ("fox", "reynard") in stage.reconciled)
        assert stage.managed() == {"fox"}


async def test_resource_is_watched_once_its_start_condition_holds() -> None:
    server = Server({FOXES: [object_named("reynard")], OWLS: []})
    async with staged(server, required_namespace="forest", discovery_seconds=3600) as stage:
        await stage.controllers.settled(5)
        await until(lambda: stage.managed() == {"owl"})
        stage.namespaces.upsert(object_named("meadow"))
        assert server.requests[f"list {FOXES}"] == 0
        stage.namespaces.upsert(object_named("forest"))
        await until(lambda: {("fox", "reynard"), ("fox", "known")} <= set(stage.reconciled))
        stage.namespaces.remove(object_named("forest", 2))
        stage.namespaces.upsert(object_named("forest", 3))
        assert server.requests[f"list {FOXES}"] == 1


async def test_resource_is_watched_from_the_start_if_its_start_condition_holds() -> None:
    server = Server({FOXES: [object_named("reynard")], OWLS: [], DUCKS: []})
    async with staged(server, required_namespace="forest", discovery_seconds=3600) as stage:
        stage.namespaces.upsert(object_named("forest"))
        await stage.controllers.settled(5)
        await until(lambda: stage.managed() == {"fox", "owl", "duck"})


async def test_failed_discovery_is_retried() -> None:
    server = Server({FOXES: [object_named("reynard")]}, discovery_fails=True)
    async with staged(server) as stage:
        await until(lambda: server.requests["/apis"] > 2)
        server.discovery_fails = False
        await until(lambda: ("fox", "reynard") in stage.reconciled)


async def test_process_without_lease_reads_objects_and_does_not_reconcile() -> None:
    server = Server({FOXES: [object_named("reynard")]})
    async with staged(server) as stage:
        stage.leading.clear()
        await until(lambda: stage.managed() == {"fox"})
        assert stage.reconciled == []
        stage.leading.set()
        await until(lambda: ("fox", "reynard") in stage.reconciled)


async def test_followed_resource_is_read_before_controller_starts() -> None:
    server = Server({FOXES: [object_named("reynard")], EGGS: [object_named("brown")]})
    async with staged(server, followed=(EGGS,)) as stage:
        await until(lambda: {("fox", "reynard"), ("fox", "eats-brown")} <= set(stage.reconciled))
        assert stage.stores[EGGS].keys() == [Key("ns", "brown")]
        await server.stop_serving(FOXES)
        await until(lambda: EGGS not in stage.stores)
        await server.serve(FOXES, object_named("reynard"))
        await until(lambda: EGGS in stage.stores and len(stage.stores[EGGS]) == 1)


@pytest.mark.parametrize("broken", [set[Resource](), {EGGS}], ids=["not served", "unreadable"])
async def test_controller_starts_without_unavailable_followed_resource(broken: set[Resource]) -> None:
    server = Server({FOXES: [object_named("reynard")]}, broken=broken)
    async with staged(server, followed=(EGGS,)) as stage:
        await until(lambda: ("fox", "reynard") in stage.reconciled)
        assert len(stage.stores[EGGS]) == 0
