"""A defect of the core costs the failing object its turn, and no other object anything."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from admitq.app.core_inputs import list_core_resources
from admitq.core import cycle
from admitq.core import events as happened
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
from admitq.runtime.store import Change
from admitq.workloads.transitions import is_reserved
from localcluster.waiting import eventually
from tests.unit.controllers.builders import KINDS, NAMES, condition_of, workload
from tests.unit.controllers.builders import RESERVED as QUOTA_RESERVED
from tests.unit.controllers.world import World, cluster_scoped

BAD = "bad"

soon = partial(eventually, timeout=20)


class Defect(Exception):
    """What the core raises in these tests."""


class _Nothing:
    """Whatever is asked of it is not done."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_named: None


class Answer:
    """An answer of the API server that does not come before it may."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_come = asyncio.Event()


class Cluster:
    """Objects in stores, and what is counted about them."""

    def __init__(self) -> None:
        self.world = World()
        self.metrics = Metrics()

    def follow(self, handler: Callable[[Resource, Change], None]) -> None:
        """Have a handler called with every change, and with what is there already."""
        for resource in list_core_resources(KINDS):
            self.world.stores.of(resource).subscribe(
                lambda change, resource=resource: handler(resource, change)
            )
        for namespace in tuple(self.world.stores.of(NAMESPACES).list()):
            self.put(NAMESPACES, {**namespace, "metadata": {**namespace["metadata"], "resourceVersion": "2"}})

    def put(self, resource: Resource, *objects: dict[str, Any]) -> None:
        self.world.put(resource, *objects)

    def queues(
        self, cpu: int = 4, name: str = "", *, preempts: bool = False, cohort: str = "", version: int = 0
    ) -> None:
        """A ClusterQueue with so many CPUs, a LocalQueue, and their flavor."""
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
        """A Workload that asks for a CPU for each of its pods, or has quota."""
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
        """Take an object out of its store, as a watch does."""
        self.world.stores.of(resource).remove(version(obj, 2_000))

    def count(self, series: str) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((series + "{", series + " "))
        )


class Running(Cluster):
    """A manager that runs, the stores that it follows, and an API server that takes every write."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AdmissionState()
        self._then: dict[str, Callable[[], None]] = {}
        nothing: Any = _Nothing()
        recorder: Any = self.world.recorder

        async def start(_: dict[str, Any]) -> None:
            """Jobs are not looked at here."""

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
            refresh=nothing,
            leading=lambda: True,
            objects=self._objects,
        )
        self.follow(self.manager.observe)

    def _objects(self) -> Iterable[tuple[Resource, dict[str, Any]]]:
        for resource in list_core_resources(KINDS):
            for obj in tuple(self.world.stores.of(resource).list()):
                if (then := self._then.pop(obj["metadata"]["name"], None)) is not None:
                    asyncio.get_running_loop().call_soon(then)
                yield resource, dict(obj)

    def on_reading(self, name: str, then: Callable[[], None]) -> None:
        """Have something happen as soon as an object was read for a new state."""
        self._then[name] = then

    def hold_back(self, call: str, name: str) -> "Answer":
        """Keep calls of one kind about an object waiting."""
        answer, function = Answer(), getattr(self.world.client, call)

        async def waiting(resource: Resource, obj: dict[str, Any], **named: Any) -> dict[str, Any]:
            if obj["metadata"]["name"] == name:
                answer.is_asked.set()
                await answer.may_come.wait()
            return await function(resource, obj, **named)

        setattr(self.world.client, call, waiting)
        return answer

    def is_reserved(self, name: str) -> bool:
        return is_reserved(self.world.get(KINDS.workloads, name))

    @property
    def reasons(self) -> set[str]:
        """The reasons of the events about the bad object."""
        return {reason for name, reason, _ in self.world.recorder.events if name == BAD}


@asynccontextmanager
async def running() -> AsyncGenerator[Running]:
    """A manager that runs until the end of the block, and not less."""
    made = Running()
    task = asyncio.create_task(made.manager.run())
    try:
        yield made
        assert not task.done()
        made.state.validate()
    finally:
        task.cancel()


def fail(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, concerns: Callable[..., bool], *, after: bool
) -> list[bool]:
    """Have a function raise for the bad object, before or after it has done its work.

    Returns:
        Items of which there are any while the defect exists; to mend it, empty the list.
    """
    failing, exists = _failing(getattr(owner, name), name, concerns, after=after)
    monkeypatch.setattr(owner, name, failing)
    return exists


def fail_to_handle(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], concerns: Callable[..., bool], *, after: bool
) -> list[bool]:
    """As ``fail``, for the handler of a type of event."""
    failing, exists = _failing(HANDLERS[event], event.__name__, concerns, after=after)
    monkeypatch.setitem(HANDLERS, event, failing)
    return exists


def _failing(
    function: Callable[..., Any], name: str, concerns: Callable[..., bool], *, after: bool
) -> tuple[Callable[..., Any], list[bool]]:
    """The function with a defect, and items of which there are any while the defect exists.

    The work of a generator is done when it is exhausted.
    """
    exists = [True]

    def failing_at_end(result: Generator[None]) -> Generator[None]:
        yield from result
        raise Defect(name)

    def failing(*arguments: Any, **named: Any) -> Any:
        is_bad = bool(exists) and concerns(*arguments)
        if is_bad and not after:
            raise Defect(name)
        result = function(*arguments, **named)
        if is_bad and isinstance(result, Generator):
            return failing_at_end(result)
        if is_bad:
            raise Defect(name)
        return result

    return failing, exists


def is_bad_event(_world: Any, event: Any, _now: Any) -> bool:
    return BAD in repr(event)


def namespaced(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"metadata": metadata, "spec": spec}


OBJECTS: dict[type[Any], tuple[Resource, dict[str, Any]]] = {
    happened.ResourceFlavorChanged: (KINDS.resource_flavors, cluster_scoped(BAD, spec={})),
    happened.AdmissionCheckChanged: (
        KINDS.admission_checks,
        cluster_scoped(BAD, spec={"controllerName": "c/d"}),
    ),
    happened.TopologyChanged: (KINDS.topologies, cluster_scoped(BAD, spec={"levels": [{"nodeLabel": "a"}]})),
    happened.CohortChanged: (KINDS.cohorts, cluster_scoped(BAD, spec={})),
    happened.ClusterQueueChanged: (KINDS.cluster_queues, cluster_scoped(BAD, spec={"namespaceSelector": {}})),
    happened.LocalQueueChanged: (KINDS.local_queues, namespaced(BAD, {"clusterQueue": "cq"})),
    happened.NamespaceChanged: (NAMESPACES, cluster_scoped(BAD)),
    happened.LimitRangeChanged: (LIMIT_RANGES, namespaced(BAD, {"limits": []})),
    happened.RuntimeClassChanged: (RUNTIME_CLASSES, cluster_scoped(BAD, handler="h")),
}
DELETIONS = {
    happened.ResourceFlavorChanged: happened.ResourceFlavorDeleted,
    happened.AdmissionCheckChanged: happened.AdmissionCheckDeleted,
    happened.TopologyChanged: happened.TopologyDeleted,
    happened.CohortChanged: happened.CohortDeleted,
    happened.ClusterQueueChanged: happened.ClusterQueueDeleted,
    happened.LocalQueueChanged: happened.LocalQueueDeleted,
    happened.NamespaceChanged: happened.NamespaceDeleted,
    happened.LimitRangeChanged: happened.LimitRangeDeleted,
    happened.RuntimeClassChanged: happened.RuntimeClassDeleted,
}


def test_every_event_about_an_object_is_in_the_tables() -> None:
    others = {
        happened.WorkloadChanged,
        happened.WorkloadDeleted,
        happened.ReservationFailed,
        happened.ReservationDiscarded,
        happened.PreemptionFailed,
        happened.CyclesRequested,
    }
    listed = {*OBJECTS, *DELETIONS.values(), *others}
    assert listed == set(HANDLERS)


def version(obj: dict[str, Any], number: int, **metadata: Any) -> dict[str, Any]:
    """An object as it is in a later version."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number), **metadata}}


CHANGED: dict[type[Any], Any] = {
    happened.ResourceFlavorChanged: {"spec": {"nodeLabels": {"a": "b"}}},
    happened.AdmissionCheckChanged: {"spec": {"controllerName": "c/e"}},
    happened.CohortChanged: {"spec": {"parentName": "above"}},
    happened.ClusterQueueChanged: {"spec": {"namespaceSelector": {}, "cohortName": "team"}},
    happened.LocalQueueChanged: {"spec": {"clusterQueue": "another"}},
    happened.LimitRangeChanged: {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    happened.RuntimeClassChanged: {"overhead": {"podFixed": {"cpu": "1"}}},
}
"""What changes of the bad object. Of a namespace there are labels alone.

Of a Topology the core knows nothing but that it exists.
"""


def failures_over(event: type[Any]) -> int:
    """How often the core fails on an object: of a ClusterQueue, it is to count cohort and quota then."""
    return 2 if event is happened.ClusterQueueChanged else 1


@pytest.mark.parametrize("after", [False, True], ids=["at once", "when all is done"])
@pytest.mark.parametrize("event", OBJECTS, ids=lambda one: one.__name__)
async def test_object_that_the_core_fails_on_is_left_out_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    exists = fail_to_handle(monkeypatch, event, is_bad_event, after=after)
    async with running() as here:
        here.queues()
        resource, obj = OBJECTS[event]
        here.put(resource, obj)
        here.submit("good")
        await soon(lambda: here.is_reserved("good"))
        assert here.count("admitq_core_failures_total") == failures_over(event)
        assert here.count("admitq_malformed_objects") == 1
        assert "InternalError" in here.reasons
        exists.clear()
        here.put(resource, version(obj, 1_000))
        assert here.count("admitq_malformed_objects") == 1, "nothing that the core reads has changed"
        if event is happened.NamespaceChanged:
            here.put(resource, version(obj, 1_001, labels={"a": "b"}))
        elif event in CHANGED:
            here.put(resource, version({**obj, **CHANGED[event]}, 1_001))
        else:
            here.delete(resource, obj)
        assert here.count("admitq_malformed_objects") == 0
        here.submit("another")
        await soon(lambda: here.is_reserved("another"))


@pytest.mark.parametrize("after", [False, True], ids=["at once", "when all is done"])
@pytest.mark.parametrize("event", DELETIONS, ids=lambda one: one.__name__)
async def test_object_is_gone_although_the_core_fails_on_its_deletion(
    monkeypatch: pytest.MonkeyPatch, event: type[Any], after: bool
) -> None:
    fail_to_handle(monkeypatch, DELETIONS[event], is_bad_event, after=after)
    async with running() as here:
        here.queues()
        resource, obj = OBJECTS[event]
        here.put(resource, obj)
        here.delete(resource, obj)
        here.submit("good")
        await soon(lambda: here.is_reserved("good"))
        assert here.count("admitq_core_failures_total") == 1
        assert here.count("admitq_malformed_objects") == 0


@pytest.mark.parametrize("after", [False, True], ids=["at once", "when all is done"])
async def test_workload_that_the_core_fails_on_keeps_its_quota(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    def is_bad(_world: Any, event: Any, _now: Any) -> bool:
        # What is left of a Workload that is left out has no podsets.
        return BAD in repr(event) and bool(event.workload.pod_sets)

    exists = fail_to_handle(monkeypatch, happened.WorkloadChanged, is_bad, after=after)
    async with running() as here:
        here.queues(cpu=4)
        usage = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
        here.submit(BAD, pods=3, assignment=usage)
        here.submit("large", pods=2)
        here.submit("small")
        await soon(lambda: here.is_reserved("small"))
        assert not here.is_reserved("large")
        assert here.state.queries.usage_of_workload(ObjectKey("ns", BAD)) != ()
        assert "InternalError" in here.reasons
        exists.clear()
        here.delete(KINDS.workloads, here.world.get(KINDS.workloads, BAD))
        await soon(lambda: here.is_reserved("large"))


async def _fits(here: Running) -> None:
    """There is room for the bad workload."""
    here.submit(BAD)


async def _is_too_large(here: Running) -> None:
    """The bad workload asks for more than there is."""
    here.submit(BAD, pods=9)


async def _preempts(here: Running) -> None:
    """The bad workload may have another one preempted."""
    here.queues(name="-1", preempts=True)
    here.submit("victim", pods=4, queue="-1")
    await soon(lambda: here.is_reserved("victim"))
    here.submit(BAD, pods=2, priority=9, queue="-1")


async def _waits_while_quota_is_returned(here: Running) -> None:
    """The refusal of the bad workload is refreshed."""
    here.submit("ended")
    await soon(lambda: here.is_reserved("ended"))
    here.submit(BAD, pods=9)
    await soon(lambda: condition_of(here.world.get(KINDS.workloads, BAD), "QuotaReserved"))
    here.delete(KINDS.workloads, here.world.get(KINDS.workloads, "ended"))


_REQUEUE = import_module("admitq.core.cycle.requeue")
STEPS: list[tuple[Any, str, Callable[[Running], Awaitable[None]]]] = [
    (cycle, "nominate", _fits),
    (cycle, "refusal_of", _fits),
    *((process, one.__name__, _fits) for one in process.STEPS_IF_FITTING),
    (cycle, "reserve", _fits),
    (cycle, "requeue", _is_too_large),
    (_REQUEUE, "_park", _is_too_large),
    (cycle, "note_needs", _is_too_large),
    *((process, one.__name__, _preempts) for one in process.STEPS),
    (_REQUEUE, "_requeue_or_stand", _preempts),
    (import_module("admitq.core.cycle.outdated_refusals"), "inadmissibility", _waits_while_quota_is_returned),
]
"""Functions of a cycle, and how the bad workload comes to them."""


@pytest.mark.parametrize("after", [False, True], ids=["at once", "when all is done"])
@pytest.mark.parametrize(
    ("owner", "name", "begin"), STEPS, ids=lambda one: getattr(one, "__name__", str(one))
)
async def test_head_that_a_cycle_fails_on_is_left_out_until_it_changes(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    begin: Callable[[Running], Awaitable[None]],
    after: bool,
) -> None:
    def is_bad(*arguments: Any) -> bool:
        heads = [getattr(one, "workload", one) for one in arguments]
        return any(getattr(getattr(one, "key", None), "name", None) == BAD for one in heads)

    function = getattr(owner, name)
    exists = fail(monkeypatch, owner, name, is_bad, after=after)
    for steps in ("STEPS", "STEPS_IF_FITTING"):
        replaced = tuple(getattr(owner, name) if one is function else one for one in getattr(process, steps))
        monkeypatch.setattr(process, steps, replaced)
    async with running() as here:
        here.queues()
        here.queues(name="-2")
        await begin(here)
        await soon(lambda: here.count("admitq_core_failures_total") == 1)
        here.submit("good", queue="-2")
        await soon(lambda: here.is_reserved("good"))
        assert here.count("admitq_core_failures_total") == 1
        assert "InternalError" in here.reasons

        def told() -> bool:
            seen = condition_of(here.world.get(KINDS.workloads, BAD), "QuotaReserved") or ()
            return seen[:2] == ("False", "Misconfigured")

        await soon(told)
        exists.clear()
        here.world.client.version += 1
        here.submit(BAD, queue="-2", version=here.world.client.version)
        await soon(lambda: here.is_reserved(BAD))
        assert here.count("admitq_malformed_objects") == 0


async def test_reservation_that_is_being_written_is_counted_by_the_state_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, happened.ResourceFlavorChanged, is_bad_event, after=False)
    async with running() as here:
        here.queues(cpu=4)
        answer = here.hold_back("apply", "first")
        here.submit("first", pods=3)
        await soon(answer.is_asked.is_set)
        here.put(*OBJECTS[happened.ResourceFlavorChanged])
        here.submit("second", pods=3)
        here.submit("third", pods=1)
        await soon(lambda: here.is_reserved("third"))
        assert not here.is_reserved("second")
        answer.may_come.set()
        await soon(lambda: here.is_reserved("first"))
        assert here.count("admitq_core_failures_total") == 1


async def test_object_that_goes_while_the_new_state_is_made_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_to_handle(monkeypatch, happened.ResourceFlavorChanged, is_bad_event, after=False)
    monkeypatch.setattr(recovery, "_OBJECTS_PER_TURN", 1)
    async with running() as here:
        here.queues(cpu=4)
        usage = {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}}
        here.submit("gone", pods=4, assignment=usage)
        here.on_reading("gone", lambda: here.delete(KINDS.workloads, here.world.get(KINDS.workloads, "gone")))
        here.put(*OBJECTS[happened.ResourceFlavorChanged])
        here.submit("good", pods=4)
        await soon(lambda: here.is_reserved("good"))


async def test_failure_that_no_object_is_known_for_stops_no_other_work_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exists = fail(monkeypatch, cycle_handler, "take_heads", lambda _world: True, after=False)
    async with running() as here:
        here.queues()
        here.submit("good")
        await soon(lambda: here.count("admitq_core_failures_total") >= 3)
        exists.clear()
        await soon(lambda: here.is_reserved("good"))
        assert here.count("admitq_core_failures_total") < 20
        assert here.count("admitq_malformed_objects") == 0


def _queue_is_bad(_world: Any, of: Iterable[tuple[Any, Any]], _now: Any) -> bool:
    return any(queue.spec.name == f"cq-{BAD}" for queue, _ in of)


@pytest.mark.parametrize("after", [False, True], ids=["before the cycle", "after the cycle"])
@pytest.mark.parametrize("cohorts", [("", ""), ("team", "team"), ("", "team")], ids=repr)
async def test_cluster_queue_that_cycles_fail_with_is_left_out_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, cohorts: tuple[str, str], after: bool
) -> None:
    exists = fail(monkeypatch, cycle_handler, "run_cycle", _queue_is_bad, after=after)
    async with running() as here:
        for name in ("-1", "-2", "-3"):
            here.queues(name=name, cohort=cohorts[0])
        here.queues(name=f"-{BAD}", cohort=cohorts[1])
        here.submit(BAD, queue=f"-{BAD}")
        await soon(lambda: here.count("admitq_core_failures_total") >= 3)
        for name in ("-1", "-2"):
            here.submit(f"good{name}", queue=name)
            await soon(lambda name=name: here.is_reserved(f"good{name}"))
        await soon(lambda: here.count("admitq_malformed_objects") == 1)
        assert (f"cq-{BAD}", "InternalError") in {event[:2] for event in here.world.recorder.events}
        assert not here.is_reserved(BAD)
        failures = here.count("admitq_core_failures_total")
        here.submit("good-3", queue="-3")
        await soon(lambda: here.is_reserved("good-3"))
        assert here.count("admitq_core_failures_total") == failures
        exists.clear()
        here.queues(cpu=5, name=f"-{BAD}", cohort=cohorts[1], version=1_000)
        await soon(lambda: here.is_reserved(BAD))
        assert here.count("admitq_malformed_objects") == 0


async def test_no_cluster_queue_is_left_out_while_every_cycle_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    exists = fail(monkeypatch, cycle_handler, "run_cycle", lambda *_: True, after=True)
    async with running() as here:
        for name in ("-1", "-2", "-3"):
            here.queues(name=name)
            here.submit(f"good{name}", queue=name)
        await soon(lambda: here.count("admitq_core_failures_total") >= 5)
        exists.clear()
        for name in ("-1", "-2", "-3"):
            await soon(lambda name=name: here.is_reserved(f"good{name}"))
        assert here.count("admitq_malformed_objects") == 0


# --- never more than the quota --------------------------------------------------------------------------


def _is_of(kind: str, name: str, *, also_quarantined: bool) -> Callable[..., bool]:
    """Whether an event is about an object, and is all of it unless what is quarantined counts as well."""

    def concerns(_world: Any, event: Any, _now: Any) -> bool:
        value = getattr(event, kind, None)
        if value is None or getattr(value, "name", None) != name:
            return False
        return also_quarantined or not getattr(value, "quarantined", False)

    return concerns


async def _cycles_fail(here: Running, patch: pytest.MonkeyPatch) -> list[bool]:
    exists = fail(patch, cycle_handler, "run_cycle", _queue_is_bad, after=True)
    here.submit("waits", queue=f"-{BAD}")
    await soon(lambda: here.count("admitq_core_failures_total") >= 3)
    here.submit("probe", queue="-apart")
    await soon(lambda: here.is_reserved("probe"))
    return exists


async def _observation_fails(here: Running, patch: pytest.MonkeyPatch) -> list[bool]:
    concerns = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=False)
    exists = fail_to_handle(patch, happened.ClusterQueueChanged, concerns, after=True)
    here.queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return exists


async def _nothing_can_be_observed(here: Running, patch: pytest.MonkeyPatch) -> list[bool]:
    concerns = _is_of("cluster_queue", f"cq-{BAD}", also_quarantined=True)
    exists = fail_to_handle(patch, happened.ClusterQueueChanged, concerns, after=False)
    here.queues(name=f"-{BAD}", cohort="team", preempts=True, version=900)
    return exists


async def _cohort_fails(here: Running, patch: pytest.MonkeyPatch) -> list[bool]:
    exists = fail_to_handle(
        patch,
        happened.CohortChanged,
        _is_of("cohort", "team", also_quarantined=True),
        after=True,
    )
    here.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "above"}), 900))
    return exists


async def _holder_cannot_be_observed(here: Running, patch: pytest.MonkeyPatch) -> list[bool]:
    def concerns(_world: Any, event: Any, _now: Any) -> bool:
        return event.workload.key.name == "borrower"

    exists = fail_to_handle(patch, happened.WorkloadChanged, concerns, after=False)
    borrower = here.world.get(KINDS.workloads, "borrower")
    here.put(KINDS.workloads, version(borrower, 900, labels={"a": "b"}))
    return exists


def _spoil(here: Running, change: Callable[[dict[str, Any]], None]) -> None:
    queue = deepcopy(here.world.get(KINDS.cluster_queues, f"cq-{BAD}"))
    change(queue["spec"])
    here.put(KINDS.cluster_queues, version(queue, 900))


async def _policy_is_unreadable(here: Running, _patch: pytest.MonkeyPatch) -> list[bool]:
    _spoil(here, lambda spec: spec["preemption"].update(withinClusterQueue="Sometimes"))
    return []


async def _quota_is_unreadable(here: Running, _patch: pytest.MonkeyPatch) -> list[bool]:
    _spoil(
        here, lambda spec: spec["resourceGroups"][0]["flavors"][0]["resources"][0].update(nominalQuota="x")
    )
    return []


QUARANTINES = [
    pytest.param(_cycles_fail, 2, id="cycles fail with the ClusterQueue"),
    pytest.param(_observation_fails, 2, id="the ClusterQueue cannot be observed"),
    pytest.param(_nothing_can_be_observed, 0, id="its cohort and quota cannot be observed either"),
    pytest.param(_cohort_fails, 0, id="its cohort cannot be observed"),
    pytest.param(_holder_cannot_be_observed, 0, id="a workload that borrowed cannot be observed"),
    pytest.param(_policy_is_unreadable, 2, id="the ClusterQueue is unreadable but for its quota"),
    pytest.param(_quota_is_unreadable, 0, id="its quota is unreadable"),
]


@pytest.mark.parametrize(("quarantine", "left"), QUARANTINES)
async def test_cohort_admits_no_more_than_its_quota_while_an_object_is_quarantined(
    monkeypatch: pytest.MonkeyPatch,
    quarantine: Callable[[Running, pytest.MonkeyPatch], Awaitable[list[bool]]],
    left: int,
) -> None:
    """Two ClusterQueues of 4 CPUs, of which one has borrowed 2; the other has ``left`` of its quota."""
    async with running() as here:
        here.put(KINDS.cohorts, cluster_scoped("team", spec={"parentName": "above"}))
        here.queues(name=f"-{BAD}", cohort="team")
        here.queues(name="-other", cohort="above" if quarantine is _cohort_fails else "team")
        here.queues(name="-apart")
        here.submit("borrower", pods=6, queue=f"-{BAD}")
        await soon(lambda: here.is_reserved("borrower"))
        exists = await quarantine(here, monkeypatch)
        await soon(lambda: here.count("admitq_malformed_objects") == 1)

        for number in range(3):
            here.submit(f"small{number}", queue="-other")
        here.submit("apart", queue="-apart")
        await soon(lambda: here.is_reserved("apart"))
        await soon(lambda: sum(here.is_reserved(f"small{number}") for number in range(3)) == left)
        here.submit("further", queue="-apart")
        await soon(lambda: here.is_reserved("further"))
        assert sum(here.is_reserved(f"small{number}") for number in range(3)) == left

        exists.clear()
        for name in ("borrower", "waits"):
            if (found := here.world.stores.of(KINDS.workloads).get("ns", name)) is not None:
                here.delete(KINDS.workloads, dict(found))
        here.put(KINDS.cohorts, version(cluster_scoped("team", spec={"parentName": "top"}), 1_000))
        here.queues(name=f"-{BAD}", cohort="team", cpu=5, version=1_000)
        here.submit("last", queue=f"-{BAD}")
        await soon(lambda: all(here.is_reserved(name) for name in ("small0", "small1", "small2", "last")))
        assert here.count("admitq_malformed_objects") == 0
