"""The manager recovers from a failure of the core: it quarantines the failing object and continues."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from admitq.app.core_inputs import list_core_resources
from admitq.core import cycle, events
from admitq.core.cycle import process
from admitq.core.handlers import HANDLERS
from admitq.core.handlers import cycles as cycle_handler
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager import recovery
from admitq.manager.manager import Manager
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import ObjectChange
from admitq.workloads.transitions import is_reserved
from localcluster.waiting import eventually
from tests.unit.controllers.builders import KINDS, NAMES, condition_of, workload
from tests.unit.controllers.builders import RESERVED as QUOTA_RESERVED
from tests.unit.controllers.world import World, cluster_scoped

BAD = "bad"

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
        self.metrics = Metrics()

    def follow(self, handler: Callable[[Resource, ObjectChange], None]) -> None:
        """Call a handler with every change, and with the objects that exist."""
        for resource in list_core_resources(KINDS):
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
        for resource in list_core_resources(KINDS):
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
async def running_manager() -> AsyncGenerator[RunningManager]:
    """Run a manager until the end of the block, and check that it did not stop before."""
    cluster = RunningManager()
    task = asyncio.create_task(cluster.manager.run())
    try:
        yield cluster
        assert not task.done()
        cluster.state.validate()
    finally:
        task.cancel()


def fail(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_bad: Callable[..., bool], *, after: bool
) -> list[bool]:
    """Make a function raise for the bad object, before or after its work.

    Returns:
        A list that is not empty while the defect defect. Clear it to repair the defect.
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
    events.NamespaceChanged: (NAMESPACES, cluster_scoped(BAD)),
    events.LimitRangeChanged: (LIMIT_RANGES, namespaced(BAD, {"limits": []})),
    events.RuntimeClassChanged: (RUNTIME_CLASSES, cluster_scoped(BAD, handler="h")),
}
DELETIONS = {
    events.ResourceFlavorChanged: events.ResourceFlavorDeleted,
    events.AdmissionCheckChanged: events.AdmissionCheckDeleted,
    events.TopologyChanged: events.TopologyDeleted,
    events.CohortChanged: events.CohortDeleted,
    events.ClusterQueueChanged: events.ClusterQueueDeleted,
    events.LocalQueueChanged: events.LocalQueueDeleted,
    events.NamespaceChanged: events.NamespaceDeleted,
    events.LimitRangeChanged: events.LimitRangeDeleted,
    events.RuntimeClassChanged: events.RuntimeClassDeleted,
}


def test_every_event_of_an_object_is_in_tables() -> None:
    others = {
        events.WorkloadChanged,
        events.WorkloadDeleted,
        events.ReservationFailed,
        events.ReservationDiscarded,
        events.PreemptionFailed,
        events.CyclesRequested,
    }
    listed = {*OBJECTS, *DELETIONS.values(), *others}
    assert listed == set(HANDLERS)


def version(obj: dict[str, Any], number: int, **metadata: Any) -> dict[str, Any]:
    """Return a version of an object."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number), **metadata}}


CHANGED: dict[type[Any], Any] = {
    events.ResourceFlavorChanged: {"spec": {"nodeLabels": {"a": "b"}}},
    events.AdmissionCheckChanged: {"spec": {"controllerName": "c/e"}},
    events.CohortChanged: {"spec": {"parentName": "above"}},
    events.ClusterQueueChanged: {"spec": {"namespaceSelector": {}, "cohortName": "team"}},
    events.LocalQueueChanged: {"spec": {"clusterQueue": "another"}},
    events.LimitRangeChanged: {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    events.RuntimeClassChanged: {"overhead": {"podFixed": {"cpu": "1"}}},
}
"""The changed parts of the bad object. Of a namespace, the core reads only labels.

Of a Topology, the core knows only that it exists.
"""


def expected_failures(event: type[Any]) -> int:
    """Return how often the core fails on an object.

    For a ClusterQueue, it fails again when it observes only the cohort and the quota.
    """
    return 2 if event is events.ClusterQueueChanged else 1


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", OBJECTS, ids=lambda event: event.__name__)
async def test_object_that_core_fails_on_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    defect = fail_to_handle(monkeypatch, event, is_bad_event, after=after)
    async with running_manager() as cluster:
        cluster.put_queues()
        resource, obj = OBJECTS[event]
        cluster.put(resource, obj)
        cluster.submit("good")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == expected_failures(event)
        assert cluster.count("admitq_malformed_objects") == 1
        assert "InternalError" in cluster.reasons
        defect.clear()
        cluster.put(resource, version(obj, 1_000))
        assert cluster.count("admitq_malformed_objects") == 1, "the core reads nothing that changed"
        if event is events.NamespaceChanged:
            cluster.put(resource, version(obj, 1_001, labels={"a": "b"}))
        elif event in CHANGED:
            cluster.put(resource, version({**obj, **CHANGED[event]}, 1_001))
        else:
            cluster.delete(resource, obj)
        assert cluster.count("admitq_malformed_objects") == 0
        cluster.submit("another")
        await wait_until(lambda: cluster.is_reserved("another"))


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("event", DELETIONS, ids=lambda event: event.__name__)
async def test_object_is_removed_although_core_fails_on_its_deletion(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    fail_to_handle(monkeypatch, DELETIONS[event], is_bad_event, after=after)
    async with running_manager() as cluster:
        cluster.put_queues()
        resource, obj = OBJECTS[event]
        cluster.put(resource, obj)
        cluster.delete(resource, obj)
        cluster.submit("good")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == 1
        assert cluster.count("admitq_malformed_objects") == 0


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
async def test_workload_that_core_fails_on_keeps_its_quota(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        # The core observes a quarantined Workload without its podsets.
        return BAD in repr(event) and bool(event.workload.pod_sets)

    defect = fail_to_handle(monkeypatch, events.WorkloadChanged, is_bad, after=after)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        usage = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
        cluster.submit(BAD, pods=3, assignment=usage)
        cluster.submit("large", pods=2)
        cluster.submit("small")
        await wait_until(lambda: cluster.is_reserved("small"))
        assert not cluster.is_reserved("large")
        assert cluster.state.queries.usage_of_workload(ObjectKey("ns", BAD)) != ()
        assert "InternalError" in cluster.reasons
        defect.clear()
        cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, BAD))
        await wait_until(lambda: cluster.is_reserved("large"))


async def _submit_fitting(cluster: RunningManager) -> None:
    """Submit the bad workload, which fits."""
    cluster.submit(BAD)


async def _submit_too_large(cluster: RunningManager) -> None:
    """Submit the bad workload, which exceeds the quota."""
    cluster.submit(BAD, pods=9)


async def _submit_preemptor(cluster: RunningManager) -> None:
    """Submit the bad workload, which may preempt another one."""
    cluster.put_queues(name="-1", preempts=True)
    cluster.submit("victim", pods=4, queue="-1")
    await wait_until(lambda: cluster.is_reserved("victim"))
    cluster.submit(BAD, pods=2, priority=9, queue="-1")


async def _submit_too_large_and_free_quota(cluster: RunningManager) -> None:
    """Have the refusal of the bad workload refreshed."""
    cluster.submit("ended")
    await wait_until(lambda: cluster.is_reserved("ended"))
    cluster.submit(BAD, pods=9)
    await wait_until(lambda: condition_of(cluster.world.get(KINDS.workloads, BAD), "QuotaReserved"))
    cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, "ended"))


_REQUEUE = import_module("admitq.core.cycle.requeue")
STEPS: list[tuple[Any, str, Callable[[RunningManager], Awaitable[None]]]] = [
    (cycle, "nominate", _submit_fitting),
    (cycle, "refusal_of", _submit_fitting),
    *((process, step.__name__, _submit_fitting) for step in process.STEPS_IF_FITTING),
    (cycle, "reserve", _submit_fitting),
    (cycle, "requeue", _submit_too_large),
    (_REQUEUE, "_park", _submit_too_large),
    (cycle, "note_needs", _submit_too_large),
    *((process, step.__name__, _submit_preemptor) for step in process.STEPS),
    (_REQUEUE, "_requeue_or_block", _submit_preemptor),
    (
        import_module("admitq.core.cycle.outdated_refusals"),
        "inadmissibility",
        _submit_too_large_and_free_quota,
    ),
]
"""Functions of a cycle, and a function that submits the bad workload so that the cycle calls them."""


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize(
    ("owner", "name", "submit_bad"), STEPS, ids=lambda value: getattr(value, "__name__", str(value))
)
async def test_head_that_cycle_fails_on_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    submit_bad: Callable[[RunningManager], Awaitable[None]],
    after: bool,
) -> None:
    def is_bad(*arguments: Any) -> bool:
        workloads = [getattr(argument, "workload", argument) for argument in arguments]
        keys = [getattr(workload, "key", None) for workload in workloads]
        return any(getattr(key, "name", None) == BAD for key in keys)

    function = getattr(owner, name)
    defect = fail(monkeypatch, owner, name, is_bad, after=after)
    for steps in ("STEPS", "STEPS_IF_FITTING"):
        replaced = tuple(
            getattr(owner, name) if step is function else step for step in getattr(process, steps)
        )
        monkeypatch.setattr(process, steps, replaced)
    async with running_manager() as cluster:
        cluster.put_queues()
        cluster.put_queues(name="-2")
        await submit_bad(cluster)
        await wait_until(lambda: cluster.count("admitq_core_failures_total") == 1)
        cluster.submit("good", queue="-2")
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") == 1
        assert "InternalError" in cluster.reasons

        def is_reported() -> bool:
            quota = condition_of(cluster.world.get(KINDS.workloads, BAD), "QuotaReserved") or ()
            return quota[:2] == ("False", "Misconfigured")

        await wait_until(is_reported)
        defect.clear()
        cluster.world.client.version += 1
        cluster.submit(BAD, queue="-2", version=cluster.world.client.version)
        await wait_until(lambda: cluster.is_reserved(BAD))
        assert cluster.count("admitq_malformed_objects") == 0


async def test_reservation_in_progress_is_counted_by_rebuilt_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, events.ResourceFlavorChanged, is_bad_event, after=False)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        held = cluster.hold_calls("apply", "first")
        cluster.submit("first", pods=3)
        await wait_until(held.started.is_set)
        cluster.put(*OBJECTS[events.ResourceFlavorChanged])
        cluster.submit("second", pods=3)
        cluster.submit("third", pods=1)
        await wait_until(lambda: cluster.is_reserved("third"))
        assert not cluster.is_reserved("second")
        held.released.set()
        await wait_until(lambda: cluster.is_reserved("first"))
        assert cluster.count("admitq_core_failures_total") == 1


async def test_object_deleted_during_rebuild_is_not_in_rebuilt_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, events.ResourceFlavorChanged, is_bad_event, after=False)
    monkeypatch.setattr(recovery, "_OBJECTS_PER_TURN", 1)
    async with running_manager() as cluster:
        cluster.put_queues(cpu=4)
        usage = {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}}
        cluster.submit("deleted", pods=4, assignment=usage)
        cluster.call_after_read(
            "deleted", lambda: cluster.delete(KINDS.workloads, cluster.world.get(KINDS.workloads, "deleted"))
        )
        cluster.put(*OBJECTS[events.ResourceFlavorChanged])
        cluster.submit("good", pods=4)
        await wait_until(lambda: cluster.is_reserved("good"))


async def test_core_failure_without_known_object_is_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = fail(monkeypatch, cycle_handler, "take_heads", lambda _world: True, after=False)
    async with running_manager() as cluster:
        cluster.put_queues()
        cluster.submit("good")
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
        defect.clear()
        await wait_until(lambda: cluster.is_reserved("good"))
        assert cluster.count("admitq_core_failures_total") < 20
        assert cluster.count("admitq_malformed_objects") == 0


def _has_bad_queue(_world: Any, heads: Iterable[tuple[Any, Any]], _now: Any) -> bool:
    return any(queue.spec.name == f"cq-{BAD}" for queue, _ in heads)


@pytest.mark.parametrize("after", [False, True], ids=["before the cycle", "after the cycle"])
@pytest.mark.parametrize("cohorts", [("", ""), ("team", "team"), ("", "team")], ids=repr)
async def test_cluster_queue_that_cycles_fail_with_is_quarantined_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, cohorts: tuple[str, str], after: bool
) -> None:
    defect = fail(monkeypatch, cycle_handler, "run_cycle", _has_bad_queue, after=after)
    async with running_manager() as cluster:
        for name in ("-1", "-2", "-3"):
            cluster.put_queues(name=name, cohort=cohorts[0])
        cluster.put_queues(name=f"-{BAD}", cohort=cohorts[1])
        cluster.submit(BAD, queue=f"-{BAD}")
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
        for name in ("-1", "-2"):
            cluster.submit(f"good{name}", queue=name)
            await wait_until(lambda name=name: cluster.is_reserved(f"good{name}"))
        await wait_until(lambda: cluster.count("admitq_malformed_objects") == 1)
        assert (f"cq-{BAD}", "InternalError") in {event[:2] for event in cluster.world.recorder.events}
        assert not cluster.is_reserved(BAD)
        failures = cluster.count("admitq_core_failures_total")
        cluster.submit("good-3", queue="-3")
        await wait_until(lambda: cluster.is_reserved("good-3"))
        assert cluster.count("admitq_core_failures_total") == failures
        defect.clear()
        cluster.put_queues(cpu=5, name=f"-{BAD}", cohort=cohorts[1], version=1_000)
        await wait_until(lambda: cluster.is_reserved(BAD))
        assert cluster.count("admitq_malformed_objects") == 0


async def test_no_cluster_queue_is_quarantined_while_every_cycle_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect = fail(monkeypatch, cycle_handler, "run_cycle", lambda *_: True, after=True)
    async with running_manager() as cluster:
        for name in ("-1", "-2", "-3"):
            cluster.put_queues(name=name)
            cluster.submit(f"good{name}", queue=name)
        await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 5)
        defect.clear()
        for name in ("-1", "-2", "-3"):
            await wait_until(lambda name=name: cluster.is_reserved(f"good{name}"))
        assert cluster.count("admitq_malformed_objects") == 0


# --- never more than the quota --------------------------------------------------------------------------


def _is_of(kind: str, name: str, *, also_quarantined: bool) -> Callable[..., bool]:
    """Whether an event is about an object. Events of a quarantined object count only if also_quarantined."""

    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        value = getattr(event, kind, None)
        if value is None or getattr(value, "name", None) != name:
            return False
        return also_quarantined or not getattr(value, "quarantined", False)

    return is_bad


async def _fail_cycles(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    defect = fail(patch, cycle_handler, "run_cycle", _has_bad_queue, after=True)
    cluster.submit("waits", queue=f"-{BAD}")
    await wait_until(lambda: cluster.count("admitq_core_failures_total") >= 3)
    cluster.submit("probe", queue="-apart")
    await wait_until(lambda: cluster.is_reserved("probe"))
    return defect


async def _fail_observation(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    is_bad = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=False)
    defect = fail_to_handle(patch, events.ClusterQueueChanged, is_bad, after=True)
    cluster.put_queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return defect


async def _fail_observation_of_quota(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    is_bad = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=True)
    defect = fail_to_handle(patch, events.ClusterQueueChanged, is_bad, after=False)
    cluster.put_queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return defect


async def _fail_observation_of_cohort(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    defect = fail_to_handle(
        patch,
        events.CohortChanged,
        _is_of("cohort", "team", also_quarantined=True),
        after=True,
    )
    cluster.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "above"}), 900))
    return defect


async def _fail_observation_of_holder(cluster: RunningManager, patch: pytest.MonkeyPatch) -> list[bool]:
    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        return event.workload.key.name == "borrower"

    defect = fail_to_handle(patch, events.WorkloadChanged, is_bad, after=False)
    borrower = cluster.world.get(KINDS.workloads, "borrower")
    cluster.put(KINDS.workloads, version(borrower, 900, labels={"a": "b"}))
    return defect


def _change_bad_queue(cluster: RunningManager, change: Callable[[dict[str, Any]], None]) -> None:
    queue = deepcopy(cluster.world.get(KINDS.cluster_queues, f"cq-{BAD}"))
    change(queue["spec"])
    cluster.put(KINDS.cluster_queues, version(queue, 900))


async def _make_policy_unreadable(cluster: RunningManager, _patch: pytest.MonkeyPatch) -> list[bool]:
    _change_bad_queue(cluster, lambda spec: spec["preemption"].update(withinClusterQueue="Sometimes"))
    return []


async def _make_quota_unreadable(cluster: RunningManager, _patch: pytest.MonkeyPatch) -> list[bool]:
    _change_bad_queue(
        cluster, lambda spec: spec["resourceGroups"][0]["flavors"][0]["resources"][0].update(nominalQuota="x")
    )
    return []


QUARANTINES = [
    pytest.param(_fail_cycles, 2, id="cycles fail with ClusterQueue"),
    pytest.param(_fail_observation, 2, id="ClusterQueue cannot be observed"),
    pytest.param(_fail_observation_of_quota, 0, id="cohort and quota of ClusterQueue cannot be observed"),
    pytest.param(_fail_observation_of_cohort, 0, id="cohort cannot be observed"),
    pytest.param(_fail_observation_of_holder, 0, id="borrower cannot be observed"),
    pytest.param(_make_policy_unreadable, 2, id="only quota of ClusterQueue is readable"),
    pytest.param(_make_quota_unreadable, 0, id="quota of ClusterQueue is unreadable"),
]


@pytest.mark.parametrize(("quarantine", "available"), QUARANTINES)
async def test_cohort_admits_no_more_than_its_quota_while_object_is_quarantined(
    monkeypatch: pytest.MonkeyPatch,
    quarantine: Callable[[RunningManager, pytest.MonkeyPatch], Awaitable[list[bool]]],
    available: int,
) -> None:
    """Two ClusterQueues have 4 CPUs each. One borrows 2; ``available`` CPUs are left to the other."""
    async with running_manager() as cluster:
        cluster.put(KINDS.cohorts, cluster_scoped("team", spec={"parentName": "above"}))
        cluster.put_queues(name=f"-{BAD}", cohort="team")
        cluster.put_queues(
            name="-other", cohort="above" if quarantine is _fail_observation_of_cohort else "team"
        )
        cluster.put_queues(name="-apart")
        cluster.submit("borrower", pods=6, queue=f"-{BAD}")
        await wait_until(lambda: cluster.is_reserved("borrower"))
        # Quarantine an object.
        defect = await quarantine(cluster, monkeypatch)
        await wait_until(lambda: cluster.count("admitq_malformed_objects") == 1)

        # The other ClusterQueue admits only as many workloads as its quota allows.
        for number in range(3):
            cluster.submit(f"small{number}", queue="-other")
        cluster.submit("apart", queue="-apart")
        await wait_until(lambda: cluster.is_reserved("apart"))
        await wait_until(
            lambda: sum(cluster.is_reserved(f"small{number}") for number in range(3)) == available
        )
        cluster.submit("further", queue="-apart")
        await wait_until(lambda: cluster.is_reserved("further"))
        assert sum(cluster.is_reserved(f"small{number}") for number in range(3)) == available

        # The cohort admits all workloads again after the repair.
        defect.clear()
        for name in ("borrower", "waits"):
            if (stored := cluster.world.stores.of(KINDS.workloads).get("ns", name)) is not None:
                cluster.delete(KINDS.workloads, dict(stored))
        cluster.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "top"}), 1_000))
        cluster.put_queues(name=f"-{BAD}", cohort="team", cpu=5, version=1_000)
        cluster.submit("last", queue=f"-{BAD}")
        await wait_until(
            lambda: all(cluster.is_reserved(name) for name in ("small0", "small1", "small2", "last"))
        )
        assert cluster.count("admitq_malformed_objects") == 0
