"""Watches of nodes, and of the pods on them, for the placement of pods in topologies.

A large cluster has many times more pods than workloads, and most clusters have no topology. So these watches
begin when the first flavor with a topology is observed.

Pods are listed before nodes. Without nodes a topology has no room, so no workload is placed before all is
known that takes room.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from admitq.app.caches import wait_until_synced
from admitq.controllers.indexes import BY_HOST, host_of_node
from admitq.process.unexpected_errors import UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.kinds import TOPOLOGY_NODES, TOPOLOGY_PODS
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher
from admitq.translate.nodes import trim_node
from admitq.translate.pods_of_others import PODS_ON_NODES, trim_pod
from admitq.translate.resource_flavors import TOPOLOGY_OF_FLAVOR
from admitq_api.json_objects import text_at
from admitq_api.labels import Names


class _Step:
    """One of the watches that begin one after the other.

    Args:
        store: what the watch fills.
        create: creates the watcher, which counts from then on how long no object came.
    """

    def __init__(self, store: Store, create: Callable[[], Watcher]) -> None:
        self.store = store
        self._create = create
        self._watcher: Watcher | None = None
        self._has_begun = asyncio.Event()

    @property
    def is_synced(self) -> bool:
        """Whether all objects were listed."""
        return self._watcher is not None and self._watcher.synced.is_set()

    def begin(self) -> Watcher:
        """Create the watcher."""
        self._watcher = self._create()
        self._has_begun.set()
        return self._watcher

    async def watcher(self) -> Watcher:
        """Wait until the watch begins, and return its watcher."""
        await self._has_begun.wait()
        if self._watcher is None:
            raise RuntimeError("the watch has begun without a watcher")
        return self._watcher


class TopologyWatches:
    """Fills the stores of nodes and of the pods on them, once a flavor has a topology.

    Args:
        client: lists and watches.
        flavors: the store of ResourceFlavors.
        names: the names of the API group.
        is_enabled: whether pods are placed in topologies at all.
        observe: receives each change of a node or pod.
        on_watch: receives the outcome of each watch.
        on_quarantine: receives a resource when its number of quarantined objects changes.
        errors: handles unexpected exceptions.

    Attributes:
        stores: the stores, which are empty before the first flavor with a topology.
        nodes: the store of nodes, one of them.
    """

    def __init__(
        self,
        client: Client,
        flavors: Store,
        names: Names,
        *,
        is_enabled: bool,
        observe: Callable[[Resource, ObjectChange], None],
        on_watch: Callable[[Resource, Outcome], None],
        on_quarantine: Callable[[Resource], None],
        errors: UnexpectedErrors,
    ) -> None:
        pods = Store(
            TOPOLOGY_PODS,
            transform=partial(trim_pod, names=names),
            on_quarantine=on_quarantine,
            errors=errors,
        )
        nodes = Store(
            TOPOLOGY_NODES,
            transform=trim_node,
            indexes={BY_HOST: host_of_node},
            on_quarantine=on_quarantine,
            errors=errors,
        )
        self.nodes = nodes
        self.stores = (pods, nodes)
        watch = partial(Watcher, client, observe=on_watch, errors=errors)
        self._steps = (
            _Step(pods, lambda: watch(TOPOLOGY_PODS, pods, field_selector=PODS_ON_NODES)),
            _Step(nodes, lambda: watch(TOPOLOGY_NODES, nodes)),
        )
        for store in self.stores:
            store.subscribe(partial(observe, store.resource))
        self._are_needed = asyncio.Event()
        if is_enabled:
            flavors.subscribe(self._observe_flavor)

    async def run(self) -> None:
        """Wait until a flavor has a topology, then watch until cancelled."""
        await self._are_needed.wait()
        async with asyncio.TaskGroup() as tasks:
            for step in self._steps:
                watcher = step.begin()
                tasks.create_task(watcher.run(), name=f"watch {watcher.resource}")
                await watcher.synced.wait()

    async def wait_until_synced(self, seconds: float) -> None:
        """Wait until all is listed; do not wait if no observed flavor has a topology.

        Raises:
            TimeoutError: no object of an incomplete list came for this many seconds.
        """
        if self._are_needed.is_set():
            for step in self._steps:
                await wait_until_synced((await step.watcher(),), seconds)

    async def check(self) -> str | None:
        """Return the problem for the readiness check: lists that are needed and not complete."""
        unread = [str(step.store.resource) for step in self._steps if not step.is_synced]
        return f"not read yet: {', '.join(unread)}" if unread and self._are_needed.is_set() else None

    def _observe_flavor(self, change: ObjectChange) -> None:
        if text_at(change.new, TOPOLOGY_OF_FLAVOR):
            self._are_needed.set()
