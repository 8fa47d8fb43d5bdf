"""Work of writers, watches, controllers and the manager, in which one item fails."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from admitq.app.settings import load_settings
from admitq.app.shadow import ShadowPart, ShadowSettings
from admitq.core.instructions import Instruction, RefreshClusterQueue, ReportPending, ReserveQuota
from admitq.core.model import ObjectKey
from admitq.core.refusals import NamespaceMismatch
from admitq.manager.manager import Manager
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client
from admitq.runtime.controller import Controller
from admitq.runtime.credentials import Credentials
from admitq.runtime.events import EventRecorder
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.runtime.watcher import Watcher
from admitq.shadow.findings import Agreement
from admitq.translate import messages
from admitq_api.labels import names_for
from tests.unit.app import test_served_kinds as kinds
from tests.unit.manager import test_admission_writer as reports
from tests.unit.manager import test_guarded_writes as reservations
from tests.unit.manager import test_preemption_writer as preemptions
from tests.unit.manager.errors_once import (
    KEY,
    OTHER,
    OUR_KINDS,
    REFUSED,
    FailsOnce,
    Setup,
    errors_by_part,
    running,
    until,
)
from tests.unit.runtime.test_watcher import OBJECT, QUICK, FakeClient

# --- writers ------------------------------------------------------------------------------------------


async def refusal_is_not_explained(setup: Setup) -> Metrics:
    setup.fails_once(messages, "pending_condition")
    return await _refusals()


async def refusal_is_not_checked(_: Setup) -> Metrics:
    return await _refusals(waits=FailsOnce(lambda _: True))


async def _refusals(waits: Callable[[ObjectKey], bool] = lambda _: True) -> Metrics:
    metrics, writes = Metrics(), reports.FakeWrites()
    reporting = reports.running_writer(
        writes, reports.FakeRecorder(), is_pending=waits, errors=metrics.errors
    )
    async with reporting as writer:
        writer.schedule_report(ReportPending(KEY, "uid", NamespaceMismatch(), ()))
        writer.schedule_report(ReportPending(OTHER, "uid", NamespaceMismatch(), ()))
        await asyncio.wait_for(writes.written, 20)
    return metrics


async def reservation_has_no_event(setup: Setup) -> Metrics:
    setup.fails_once(messages, "flavors_considered")
    metrics, server = Metrics(), reservations.Server(reservations.workload())
    writes = cast("reports.FakeWrites", server.writes)
    async with reports.running_writer(writes, reports.FakeRecorder(), errors=metrics.errors) as writer:
        instruction = ReserveQuota(KEY, "u", reservations.ADMISSION, admit=True)
        assert await writer.reserve(instruction) == server.stored
    return metrics


async def preemption_has_no_event(setup: Setup) -> Metrics:
    setup.fails_once(messages, "priorities_message")
    world = preemptions.World(preemptions.victim())
    assert await world.writer.preempt(preemptions.PREEMPTION)
    return world.metrics


# --- events -------------------------------------------------------------------------------------------


async def event_is_not_written(_: Setup) -> Metrics:
    return await _events(FailsOnce(_create))


async def dropped_event_is_not_counted(_: Setup) -> Metrics:
    return await _events(FailsOnce(_create, error=REFUSED), on_drop=FailsOnce())


async def event_has_no_object(_: Setup) -> Metrics:
    return await _events(_create, first={})


async def _create(*_: Any) -> None:
    pass


async def _events(create: Callable[..., Any], first: dict[str, Any] = OBJECT, **options: Any) -> Metrics:
    metrics, created = Metrics(), list[str]()

    class Api:
        async def create(self, _: Any, body: dict[str, Any]) -> None:
            await create()
            created.append(body["reason"])

    recorder = EventRecorder(cast("Client", Api()), "test", "test", errors=metrics.errors, **options)
    async with running(recorder.run()):
        recorder.event(first, "Normal", "First", "note")
        recorder.event(OBJECT, "Normal", "Second", "note")
        await until(lambda: created == ["Second"])
    return metrics


# --- watches and controllers --------------------------------------------------------------------------


async def list_is_not_read(setup: Setup) -> Metrics:
    client = FakeClient(1000)
    setup.fails_once(client, "pages")
    return await _watch(client)


async def watch_is_not_observed(_: Setup) -> Metrics:
    return await _watch(FakeClient(1000), observe=FailsOnce())


async def _watch(client: FakeClient, **options: Any) -> Metrics:
    metrics, store = Metrics(), Store(CONFIG_MAPS)
    watcher = Watcher(
        cast("Client", client), CONFIG_MAPS, store, timing=QUICK, errors=metrics.errors, **options
    )
    async with running(watcher.run()):
        await until(lambda: client.list_requests >= 2 and len(store) == 1)
    return metrics


async def change_is_not_handled(_: Setup) -> Metrics:
    metrics, changes = Metrics(), list[ObjectChange]()
    store = Store(CONFIG_MAPS, errors=metrics.errors)
    store.subscribe(FailsOnce())
    store.subscribe(changes.append)
    store.upsert(OBJECT)
    assert len(changes) == 1
    return metrics


async def malformed_object_is_not_counted(_: Setup) -> Metrics:
    metrics = Metrics()
    store = Store(CONFIG_MAPS, on_quarantine=FailsOnce(), errors=metrics.errors)
    store.upsert({"metadata": {"name": "no version"}})
    store.upsert(OBJECT)
    assert len(store) == len(store.quarantined) == 1
    return metrics


async def reconciliation_is_not_counted(_: Setup) -> Metrics:
    return await _reconcile(observe=FailsOnce())


async def quarantine_is_not_reported(_: Setup) -> Metrics:
    return await _reconcile(on_quarantine=FailsOnce(), quarantine_after=1)


async def _reconcile(**options: Any) -> Metrics:
    metrics, done = Metrics(), list[str]()

    async def reconcile(key: str) -> None:
        if key == "bad":
            raise ValueError(key)
        done.append(key)

    controller = Controller("test", reconcile, errors=metrics.errors, **options)
    async with running(controller.run()):
        controller.add("bad")
        controller.add("good")
        await until(lambda: done == ["good"])
    return metrics


async def discovery_is_not_read(setup: Setup) -> Metrics:
    server = kinds.Server({kinds.FOXES: [kinds.object_named("reynard")]})
    setup.fails_once(server, "request_json")
    async with kinds.staged(server) as staged:
        await until(lambda: ("fox", "reynard") in staged.reconciled)
        return staged.metrics


async def kind_does_not_start(_: Setup) -> Metrics:
    server = kinds.Server({kinds.FOXES: [kinds.object_named("reynard")]})
    async with kinds.staged(server, known=FailsOnce(lambda: [Key("ns", "known")])) as staged:
        await until(lambda: {("fox", "reynard"), ("fox", "known")} <= set(staged.reconciled))
        assert staged.managed() == {"fox"}
        return staged.metrics


# --- the manager and the shadow -----------------------------------------------------------------------


class Core:
    """Returns some instructions in the first cycle, and keeps the events that it observes."""

    def __init__(self, *instructions: Instruction) -> None:
        self.arguments = list(instructions)
        self.decided: list[Instruction] = []
        self.queries = SimpleNamespace(cycles_run=0, retry_delay=lambda _key: 0)
        self.observed: list[object] = []

    def instructions(self, *, refreshes: bool = True) -> list[Instruction]:
        decided = [item for item in self.decided if refreshes or not isinstance(item, RefreshClusterQueue)]
        self.decided = [item for item in self.decided if item not in decided]
        return decided

    def next_wakeup(self, now: int) -> int | None:
        return now if self.arguments else None

    def cycle_steps(self, _: object, *, now: int) -> Iterator[None]:
        assert now
        self.queries.cycles_run += 1
        self.decided, self.arguments = self.arguments, []
        yield

    def observe(self, event: object, *, now: int) -> None:
        assert now
        self.observed.append(event)


class Refresh:
    """Keeps the names of ClusterQueues to refresh."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def cluster_queue(self, name: str) -> None:
        self.names.append(name)


def create_manager(core: Core, **parts: Any) -> Manager:
    nothing: Any = None
    metrics = Metrics()
    arguments: dict[str, Any] = {
        "state": core,
        "client": nothing,
        "workload_resource": reservations.WORKLOADS,
        "workloads": Store(reservations.WORKLOADS),
        "names": names_for(),
        "recorder": reports.FakeRecorder(),
        "metrics": metrics,
        "measures": ManagerMeasures(MeasureScope(metrics, lambda _: None)),
        "clock": lambda: reports.NOW,
        "store_answer": lambda *_: nothing,
        "start": nothing,
        "refresh": Refresh(),
        "leading": lambda: True,
        **parts,
    }
    return Manager(**arguments)


async def status_is_not_refreshed(setup: Setup) -> Metrics:
    refresh = Refresh()
    setup.fails_once(refresh, "cluster_queue")
    manager = create_manager(Core(RefreshClusterQueue("a"), RefreshClusterQueue("b")), refresh=refresh)
    async with running(manager.run()):
        await until(lambda: refresh.names == ["b"])
    return manager.metrics


async def cycle_is_not_counted(setup: Setup) -> Metrics:
    refresh = Refresh()
    manager = create_manager(Core(RefreshClusterQueue("a")), refresh=refresh)
    setup.fails_once(manager.metrics, "observe")
    async with running(manager.run()):
        await until(lambda: refresh.names == ["a"])
    return manager.metrics


async def job_is_not_started(_: Setup) -> Metrics:
    server, start = reservations.Server(reservations.workload()), FailsOnce()
    manager = create_manager(
        Core(ReserveQuota(KEY, "u", reservations.ADMISSION, admit=True)),
        client=server,
        workloads=server.store,
        start=start,
    )
    async with running(manager.run()):
        await until(lambda: errors_by_part(manager.metrics))
    assert start.calls == [(server.stored,)]
    return manager.metrics


async def queue_is_not_measured(setup: Setup) -> Metrics:
    core = Core()
    manager = create_manager(core)
    setup.fails_once(manager.measures.queues, "cluster_queue_observed")
    _observe_queues(manager)
    assert len(core.observed) == 2
    return manager.metrics


def _observe_queues(manager: Manager) -> None:
    store = Store(OUR_KINDS.cluster_queues, errors=manager.metrics.errors)
    store.subscribe(lambda change: manager.observe(OUR_KINDS.cluster_queues, change))
    for name in ("a", "b"):
        store.upsert({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}})


async def finding_is_not_reported(setup: Setup) -> Metrics:
    metrics = Metrics()
    part = ShadowPart(
        load_settings(None),
        Credentials("http://127.0.0.1:9"),
        metrics,
        "test",
        lambda _: None,
        ShadowSettings(1),
    )
    shadow: Any = part._shadow  # pyright: ignore[reportPrivateUsage]
    setup.patch.setattr(shadow, "findings", lambda: [Agreement("a"), Agreement("b")])
    increment = setup.fails_once(metrics, "increment")
    part._tell()  # pyright: ignore[reportPrivateUsage]
    assert increment.calls.count(("shadow_decisions_total",)) == 2
    return metrics


async def metric_is_not_counted(_: Setup) -> Metrics:
    metrics, counts = Metrics(), list[int]()
    metrics.update_on_scrape(FailsOnce())
    metrics.update_on_scrape(lambda: counts.append(1))
    metrics.run_scrape_updates()
    assert counts == [1]
    return metrics
