"""A manager whose core fails on the object ``bad``."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import pytest

from admitq.core import events
from admitq.core.handlers import HANDLERS
from admitq.core.state import AdmissionState
from admitq.manager import cycle_rest
from admitq.manager.manager import Manager
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.runtime.kinds import TOPOLOGY_NODES, TOPOLOGY_PODS, list_core_resources
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.workloads.transitions import is_reserved
from localcluster.waiting import eventually
from tests.unit.controllers.builders import KINDS, NAMES, workload
from tests.unit.controllers.builders import RESERVED as QUOTA_RESERVED
from tests.unit.controllers.world import World, cluster_scoped

BAD = "bad"
OBSERVED = (*list_core_resources(KINDS), TOPOLOGY_PODS, TOPOLOGY_NODES)

wait_until = partial(eventually, timeout=20)


class Defect(Exception):
    """An error that the core raises in these tests."""


class _AcceptsEveryCall:
    """Has every method, and each does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_named: None


class HeldCall:
    """A call that the API server answers only once it is released."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.released = asyncio.Event()


class Cluster:
    """Objects in stores, and metrics."""

    def __init__(self) -> None:
        self.world = World()
        for resource in (TOPOLOGY_PODS, TOPOLOGY_NODES):
            self.world.stores.stores[resource] = Store(resource)
        self.metrics = Metrics()

    def follow(self, handler: Callable[[Resource, ObjectChange], None]) -> None:
        """Call a handler with every change, and with the objects that exist."""
        for resource in OBSERVED:
            self.world.stores.of(resource).subscribe(
                lambda change, resource=resource: handler(resource, change)
            )
        for namespace in tuple(self.world.stores.of(NAMESPACES).list()):
            self.put(NAMESPACES, {**namespace, "metadata": {**namespace["metadata"], "resourceVersion": "2"}})

    def put(self, resource: Resource, *objects: dict[str, Any]) -> None:
        self.world.put(resource, *objects)

    def put_queues(
        self, cpu: int = 4, name: str = "", *, preempts: bool = False, cohort: str = "", version: int = 0
    ) -> None:
        """Put a ClusterQueue with a quota of CPUs, a LocalQueue, and their flavor."""
        flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "preemption": {"withinClusterQueue": "LowerPriority" if preempts else "Never"},
            "cohortName": cohort,
        }
        queue = cluster_scoped(f"cq{name}", spec=spec)
        if version:
            queue["metadata"]["resourceVersion"] = str(version)
        self.put(KINDS.resource_flavors, cluster_scoped("f", spec={}))
        self.put(KINDS.cluster_queues, queue)
        self.put(KINDS.local_queues, namespaced(f"lq{name}", {"clusterQueue": f"cq{name}"}))

    def submit(
        self,
        name: str,
        *,
        pods: int = 1,
        priority: int = 0,
        queue: str = "",
        version: int = 7,
        assignment: dict[str, Any] | None = None,
    ) -> None:
        """Put a Workload that requests a CPU for each of its pods. With an assignment, it has quota."""
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        spec = {
            "queueName": f"lq{queue}",
            "priority": priority,
            "podSets": [{"name": "main", "count": pods, "template": template}],
        }
        metadata = {"uid": f"uid-{name}", "resourceVersion": str(version)}
        conditions = (QUOTA_RESERVED,) if assignment else ()
        parts: dict[str, Any] = {}
        if assignment:
            parts["admission"] = {"clusterQueue": f"cq{queue}", "podSetAssignments": [assignment]}
        self.put(KINDS.workloads, workload(*conditions, name=name, metadata=metadata, spec=spec, **parts))

    def delete(self, resource: Resource, obj: dict[str, Any]) -> None:
        """Remove an object from its store, as a watch does."""
        self.world.stores.of(resource).remove(version(obj, 2_000))

    def count(self, series: str) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((series + "{", series + " "))
        )


class RunningManager(Cluster):
    """A manager, the stores that it follows, and an API server that accepts every write."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AdmissionState()
        self._on_read: dict[str, Callable[[], None]] = {}
        refresh: Any = _AcceptsEveryCall()
        recorder: Any = self.world.recorder

        async def start(_: dict[str, Any]) -> None:
            """Start no job."""

        self.manager = Manager(
            state=self.state,
            client=self.world.ctx.client,
            workload_resource=KINDS.workloads,
            workloads=self.world.stores.of(KINDS.workloads),
            names=NAMES,
            recorder=recorder,
            metrics=self.metrics,
            measures=ManagerMeasures(MeasureScope(self.metrics, lambda _: None)),
            clock=lambda: self.world.now,
            store_answer=self.world.put,
            start=start,
            refresh=refresh,
            leading=lambda: True,
            objects=self._objects,
        )
        self.follow(self.manager.observe)

    def _objects(self) -> Iterable[tuple[Resource, dict[str, Any]]]:
        for resource in OBSERVED:
            for obj in tuple(self.world.stores.of(resource).list()):
                if (callback := self._on_read.pop(obj["metadata"]["name"], None)) is not None:
                    asyncio.get_running_loop().call_soon(callback)
                yield resource, dict(obj)

    def call_after_read(self, name: str, callback: Callable[[], None]) -> None:
        """Call a function as soon as the manager has read an object for a new state."""
        self._on_read[name] = callback

    def hold_calls(self, call: str, name: str) -> "HeldCall":
        """Hold calls of one function for an object."""
        held, function = HeldCall(), getattr(self.world.client, call)

        async def wait_for_release(resource: Resource, obj: dict[str, Any], **named: Any) -> dict[str, Any]:
            if obj["metadata"]["name"] == name:
                held.started.set()
                await held.released.wait()
            return await function(resource, obj, **named)

        setattr(self.world.client, call, wait_for_release)
        return held

    def is_reserved(self, name: str) -> bool:
        return is_reserved(self.world.get(KINDS.workloads, name))

    @property
    def reasons(self) -> set[str]:
        """Return the reasons of the events about the bad object."""
        return {reason for name, reason, _ in self.world.recorder.events if name == BAD}


@asynccontextmanager
async def running_manager(*, rests: bool = False) -> AsyncGenerator[RunningManager]:
    """Run a manager until the end of the block, and check that it did not stop before.

    Args:
        rests: whether it rests after cycles. During a rest, the core has instructions that were not returned.
    """
    cluster = RunningManager()
    with nullcontext() if rests else mock.patch.object(cycle_rest, "rest_after_cycle", return_value=0.0):
        task = asyncio.create_task(cluster.manager.run())
        try:
            yield cluster
            assert not task.done()
            if not rests:
                cluster.state.validate()
        finally:
            task.cancel()


def fail(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_bad: Callable[..., bool], *, after: bool
) -> list[bool]:
    """Make a function raise for the bad object, before or after its work.

    Returns:
        A list that is not empty while there is a defect. Clear it to repair the defect.
    """
    failing, defect = _failing(getattr(owner, name), name, is_bad, after=after)
    monkeypatch.setattr(owner, name, failing)
    return defect


def fail_to_handle(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], is_bad: Callable[..., bool], *, after: bool
) -> list[bool]:
    """Make the handler of a type of event raise, as ``fail`` does."""
    failing, defect = _failing(HANDLERS[event], event.__name__, is_bad, after=after)
    monkeypatch.setitem(HANDLERS, event, failing)
    return defect


def _failing(
    function: Callable[..., Any], name: str, is_bad: Callable[..., bool], *, after: bool
) -> tuple[Callable[..., Any], list[bool]]:
    """Return the function with a defect, and the list of ``fail``.

    The work of a generator is done when it is exhausted.
    """
    defect = [True]

    def failing_at_end(result: Generator[None]) -> Generator[None]:
        yield from result
        raise Defect(name)

    def failing(*arguments: Any, **named: Any) -> Any:
        raises = bool(defect) and is_bad(*arguments)
        if raises and not after:
            raise Defect(name)
        result = function(*arguments, **named)
        if raises and isinstance(result, Generator):
            return failing_at_end(result)
        if raises:
            raise Defect(name)
        return result

    return failing, defect


def is_bad_event(_world: Any, event: Any, _now: Any) -> bool:
    return BAD in repr(event)


def namespaced(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"metadata": metadata, "spec": spec}


OBJECTS: dict[type[Any], tuple[Resource, dict[str, Any]]] = {
    events.ResourceFlavorChanged: (KINDS.resource_flavors, cluster_scoped(BAD, spec={})),
    events.AdmissionCheckChanged: (
        KINDS.admission_checks,
        cluster_scoped(BAD, spec={"controllerName": "c/d"}),
    ),
    events.TopologyChanged: (KINDS.topologies, cluster_scoped(BAD, spec={"levels": [{"nodeLabel": "a"}]})),
    events.CohortChanged: (KINDS.cohorts, cluster_scoped(BAD, spec={})),
    events.ClusterQueueChanged: (KINDS.cluster_queues, cluster_scoped(BAD, spec={"namespaceSelector": {}})),
    events.LocalQueueChanged: (KINDS.local_queues, namespaced(BAD, {"clusterQueue": "cq"})),
    events.NodeChanged: (TOPOLOGY_NODES, cluster_scoped(BAD, spec={}, status={})),
    events.PodOfOthersChanged: (TOPOLOGY_PODS, namespaced(BAD, {"nodeName": "n"})),
    events.NamespaceChanged: (NAMESPACES, cluster_scoped(BAD)),
    events.LimitRangeChanged: (LIMIT_RANGES, namespaced(BAD, {"limits": []})),
    events.RuntimeClassChanged: (RUNTIME_CLASSES, cluster_scoped(BAD, handler="h")),
}


def version(obj: dict[str, Any], number: int, **metadata: Any) -> dict[str, Any]:
    """Return a version of an object."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number), **metadata}}


CHANGED: dict[type[Any], Any] = {
    events.ResourceFlavorChanged: {"spec": {"nodeLabels": {"a": "b"}}},
    events.AdmissionCheckChanged: {"spec": {"controllerName": "c/e"}},
    events.TopologyChanged: {"spec": {"levels": [{"nodeLabel": "b"}]}},
    events.NodeChanged: {"spec": {"unschedulable": True}},
    events.PodOfOthersChanged: {"spec": {"nodeName": "another"}},
    events.CohortChanged: {"spec": {"parentName": "above"}},
    events.ClusterQueueChanged: {"spec": {"namespaceSelector": {}, "cohortName": "team"}},
    events.LocalQueueChanged: {"spec": {"clusterQueue": "another"}},
    events.LimitRangeChanged: {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    events.RuntimeClassChanged: {"overhead": {"podFixed": {"cpu": "1"}}},
}
"""The changed parts of the bad object. Of a namespace, the core reads only labels."""


def expected_failures(event: type[Any]) -> int:
    """Return how often the core fails on an object.

    For a ClusterQueue, it fails again when it observes only the cohort and the quota.
    """
    return 2 if event is events.ClusterQueueChanged else 1


def has_bad_queue(_world: Any, heads: Iterable[tuple[Any, Any]], _now: Any) -> bool:
    return any(queue.spec.name == f"cq-{BAD}" for queue, _ in heads)
