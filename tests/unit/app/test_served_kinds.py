"""Controllers of resources that come and go: nothing is asked about what is missing, and nothing is lost."""

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


def an_object(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}}


@dataclass
class Server:
    """Serves objects by resource, one page each; watches last until their resource goes."""

    objects: dict[Resource, list[dict[str, Any]]] = field(
        default_factory=dict[Resource, list[dict[str, Any]]]
    )
    broken: set[Resource] = field(default_factory=set[Resource])
    discovery_fails: bool = False
    asked: Counter[str] = field(default_factory=Counter[str])
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
        self.asked[path] += 1
        if self.discovery_fails:
            raise ApiError(503, "ServiceUnavailable", "down")
        if path == "/apis":
            groups = {(one.group, one.version) for one in self.objects}
            return {"groups": [{"name": name, "versions": [{"version": it}]} for name, it in groups]}
        offered = [one for one in self.objects if f"/apis/{one.api_version}" == path]
        return {"resources": [{"name": one.plural, "kind": one.kind, "namespaced": True} for one in offered]}

    async def pages(self, resource: Resource, *_: Any) -> AsyncGenerator[Page]:
        self.asked[f"list {resource}"] += 1
        if resource in self.broken:
            raise ApiError(500, "InternalError", "conversion webhook does not answer")
        if resource not in self.objects:
            raise NOT_SERVED
        yield Page(self.objects[resource], "5", True)

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncGenerator[WatchEvent]:
        self.asked[f"watch {resource}"] += 1
        async with self.changed:
            await self.changed.wait_for(lambda: resource not in self.objects)
        raise NOT_SERVED
        yield


@dataclass
class Stage:
    """Controllers of foxes, owls and ducks that write down what they look at."""

    server: Server
    metrics: Metrics
    part: ServedKindControllers
    leading: asyncio.Event
    stores: dict[Resource, Store]
    namespaces: Store
    looked_at: list[tuple[str, str]]
    quarantined: dict[str, str]

    def managed(self) -> set[str]:
        lines = self.metrics.exposition().decode().splitlines()
        found = [line for line in lines if line.startswith("admitq_managed_kinds") and line.endswith(" 1.0")]
        return {one for one in ("fox", "owl", "duck") for line in found if f'controller="{one}"' in line}


@asynccontextmanager
async def staged(
    server: Server,
    *,
    follows: tuple[Resource, ...] = (),
    wanting: str = "",
    look_seconds: float = 0.01,
    known: Callable[[], list[Key]] = lambda: [Key("ns", "known")],
) -> AsyncGenerator[Stage]:
    """Foxes are wanted only while there is the namespace ``wanting``, if that is given.

    A lookup of an object named ``sick`` fails.
    """
    looked_at: list[tuple[str, str]] = []
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

    def a_part(resource: Resource) -> WhenServed:
        name = resource.kind.lower()

        async def reconcile(key: Key) -> None:
            if key.name == "sick":
                raise RuntimeError(name)
            looked_at.append((name, key.name))

        spec = ControllerSpec(
            name,
            reconcile,
            (
                Watch(resource, lambda change: (change.key,)),
                Watch(NAMESPACES, lambda change: (Key("ns", f"in-{change.key.name}"),)),
                *(Watch(one, lambda change: (Key("ns", f"eats-{change.key.name}"),)) for one in of(resource)),
            ),
        )
        wanted = StartCondition(NAMESPACES, lambda: ("ns", wanting) in namespaces)
        return WhenServed(
            resource,
            {},
            spec,
            known=known,
            follows=tuple(map(FollowedResource, of(resource))),
            start_condition=wanted if wanting and resource is FOXES else None,
        )

    def of(resource: Resource) -> tuple[Resource, ...]:
        return follows if resource is FOXES else ()

    def on_quarantine(of: Controller[Key], key: Key) -> None:
        if (problem := of.quarantined.get(key)) is None:
            del quarantined[key.name]
        else:
            quarantined[key.name] = problem

    metrics = Metrics("admitq", role="standalone")
    leading = asyncio.Event()
    leading.set()
    part = ServedKindControllers(
        cast("Client", server),
        Stores(),
        [a_part(one) for one in (FOXES, OWLS, DUCKS)],
        controller=lambda spec: Controller(
            spec.name, spec.reconcile, on_quarantine=on_quarantine, quarantine_after=1
        ),
        leading=leading,
        metrics=metrics,
        on_watch=lambda *_: None,
        on_quarantine=lambda _: None,
        look_seconds=look_seconds,
    )
    running = asyncio.create_task(part.run())
    yield Stage(server, metrics, part, leading, stores, namespaces, looked_at, quarantined)
    running.cancel()
    await asyncio.wait([running])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_what_is_served_is_managed_and_the_rest_is_not_asked_for() -> None:
    server = Server({FOXES: [an_object("reynard")]})
    async with staged(server) as stage:
        assert await stage.part.ready() is not None
        await stage.part.settled(5)
        assert await stage.part.ready() is None
        await until(lambda: {("fox", "reynard"), ("fox", "known")} <= set(stage.looked_at))
        await until(lambda: server.asked["/apis"] > 5)
        assert stage.managed() == {"fox"}
        assert set(stage.stores) == {NAMESPACES, FOXES}
        # Of the group that is served it is asked whether owls are there by now; nothing else is.
        assert server.asked.keys() == {
            "/apis",
            "/apis/zoo.example/v1",
            f"list {FOXES}",
            f"watch {FOXES}",
        }
        assert server.asked[f"list {FOXES}"] == 1


async def test_a_kind_comes_goes_and_comes_again() -> None:
    server = Server()
    async with staged(server) as stage:
        await stage.part.settled(5)
        await server.serve(DUCKS, an_object("donald"))
        await until(lambda: ("duck", "donald") in stage.looked_at)
        assert stage.managed() == {"duck"}
        await server.stop_serving(DUCKS)
        await until(lambda: DUCKS not in stage.stores)
        assert stage.managed() == set()
        stage.namespaces.upsert(an_object("while-gone"))
        looks = server.asked["/apis"]
        await until(lambda: server.asked["/apis"] > looks + 5)
        assert server.asked[f"list {DUCKS}"] <= 2
        assert ("duck", "in-while-gone") not in stage.looked_at
        stage.looked_at.clear()
        await server.serve(DUCKS, an_object("daisy"))
        await until(lambda: {("duck", "daisy"), ("duck", "known")} <= set(stage.looked_at))
        stage.namespaces.upsert(an_object("later"))
        await until(lambda: ("duck", "in-later") in stage.looked_at)
        assert stage.looked_at.count(("duck", "in-later")) == 1


async def test_reports_of_a_kind_are_removed_with_it() -> None:
    server = Server({DUCKS: [an_object("donald"), an_object("sick")]})
    async with staged(server) as stage:
        await until(lambda: stage.quarantined == {"sick": "RuntimeError: duck"})
        await server.stop_serving(DUCKS)
        await until(lambda: not stage.quarantined)


async def test_nothing_is_asked_while_everything_is_there() -> None:
    server = Server({FOXES: [], OWLS: [], DUCKS: []})
    async with staged(server) as stage:
        await until(lambda: stage.managed() == {"fox", "owl", "duck"})
        asked = server.asked.total()
        await asyncio.sleep(0.1)
        assert server.asked.total() == asked


async def test_unreadable_kind_blocks_no_other() -> None:
    server = Server({FOXES: [an_object("reynard")], OWLS: []}, broken={OWLS})
    async with staged(server) as stage:
        await stage.part.settled(0.05)
        assert await stage.part.ready() is None
        await until(lambda: ("fox", "reynard") in stage.looked_at)
        assert stage.managed() == {"fox"}


async def test_resources_are_watched_once_they_are_needed() -> None:
    server = Server({FOXES: [an_object("reynard")], OWLS: []})
    async with staged(server, wanting="forest", look_seconds=3600) as stage:
        await stage.part.settled(5)
        await until(lambda: stage.managed() == {"owl"})
        stage.namespaces.upsert(an_object("meadow"))
        assert server.asked[f"list {FOXES}"] == 0
        stage.namespaces.upsert(an_object("forest"))
        await until(lambda: {("fox", "reynard"), ("fox", "known")} <= set(stage.looked_at))
        stage.namespaces.remove(an_object("forest", 2))
        stage.namespaces.upsert(an_object("forest", 3))
        assert server.asked[f"list {FOXES}"] == 1


async def test_what_was_needed_before_the_start_is_watched_from_the_start() -> None:
    server = Server({FOXES: [an_object("reynard")], OWLS: [], DUCKS: []})
    async with staged(server, wanting="forest", look_seconds=3600) as stage:
        stage.namespaces.upsert(an_object("forest"))
        await stage.part.settled(5)
        await until(lambda: stage.managed() == {"fox", "owl", "duck"})


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    server = Server({FOXES: [an_object("reynard")]}, discovery_fails=True)
    async with staged(server) as stage:
        await until(lambda: server.asked["/apis"] > 2)
        server.discovery_fails = False
        await until(lambda: ("fox", "reynard") in stage.looked_at)


async def test_process_without_lease_reads_and_does_not_act() -> None:
    server = Server({FOXES: [an_object("reynard")]})
    async with staged(server) as stage:
        stage.leading.clear()
        await until(lambda: stage.managed() == {"fox"})
        assert stage.looked_at == []
        stage.leading.set()
        await until(lambda: ("fox", "reynard") in stage.looked_at)


async def test_what_a_controller_follows_is_known_before_it_begins() -> None:
    server = Server({FOXES: [an_object("reynard")], EGGS: [an_object("brown")]})
    async with staged(server, follows=(EGGS,)) as stage:
        await until(lambda: {("fox", "reynard"), ("fox", "eats-brown")} <= set(stage.looked_at))
        assert stage.stores[EGGS].keys() == [Key("ns", "brown")]
        await server.stop_serving(FOXES)
        await until(lambda: EGGS not in stage.stores)
        await server.serve(FOXES, an_object("reynard"))
        await until(lambda: EGGS in stage.stores and len(stage.stores[EGGS]) == 1)


@pytest.mark.parametrize("broken", [set[Resource](), {EGGS}], ids=["not served", "not to be read"])
async def test_what_a_controller_follows_may_be_missing(broken: set[Resource]) -> None:
    server = Server({FOXES: [an_object("reynard")]}, broken=broken)
    async with staged(server, follows=(EGGS,)) as stage:
        await until(lambda: ("fox", "reynard") in stage.looked_at)
        assert len(stage.stores[EGGS]) == 0
