"""An unexpected exception ends only one item of work: it is counted, and the next item is processed."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import orjson
import pytest
from structlog.testing import capture_logs

from admitq.app import endpoints
from admitq.app.settings import load_settings
from admitq.app.shadow import ShadowPart, ShadowSettings
from admitq.core.instructions import Instruction, RefreshClusterQueue, ReportPending, ReserveQuota
from admitq.core.model import ObjectKey
from admitq.core.refusals import NamespaceMismatch
from admitq.manager import guarded_writes
from admitq.manager.manager import Manager
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime import leases
from admitq.runtime.client import Client
from admitq.runtime.controller import Controller
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.events import EventRecorder
from admitq.runtime.kinds import kinds_of
from admitq.runtime.lease_claim import LeaseTiming
from admitq.runtime.leases import Elector
from admitq.runtime.resources import CONFIG_MAPS
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.runtime.watcher import Watcher
from admitq.serving import certificates
from admitq.serving.http import HttpRequest
from admitq.serving.rotation import FileCertificates
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq.shadow.findings import Agreement
from admitq.translate import messages
from admitq_api.labels import names_for
from admitq_webhooks import conversion, routes
from admitq_webhooks.validate import cluster_queue
from localcluster.waiting import eventually
from tests.unit.app import test_served_kinds as kinds
from tests.unit.manager import test_admission_writer as reports
from tests.unit.manager import test_guarded_writes as reservations
from tests.unit.manager import test_preemption_writer as preemptions
from tests.unit.runtime.test_watcher import OBJECT, QUICK, FakeClient
from tests.unit.serving import support
from tests.unit.serving import test_rotation as rotation
from tests.unit.webhooks import support as webhooks

OUR_KINDS = kinds_of(names_for())
KEY, OTHER = ObjectKey("team", "w"), ObjectKey("team", "other")
REFUSED = ApiError(422, "Invalid", "refused")


class FailsOnce:
    """Raises in the first call. Each later call calls a function."""

    def __init__(
        self, function: Callable[..., Any] = lambda *_, **__: None, error: Exception | None = None
    ) -> None:
        self.function = function
        self.error = error or RuntimeError("bug")
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append(arguments)
        if len(self.calls) == 1:
            raise self.error
        return self.function(*arguments, **named)


@dataclass
class Setup:
    """Monkeypatch and temporary folder of one row of the table."""

    patch: pytest.MonkeyPatch
    folder: Path

    def fails_once(self, owner: Any, name: str) -> FailsOnce:
        """Make a function of a module or an object fail once."""
        failing = FailsOnce(getattr(owner, name))
        self.patch.setattr(owner, name, failing)
        return failing


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run a task until the end of the block, and check that it does not end before."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


def until(holds: Callable[[], object]) -> Awaitable[object]:
    return eventually(holds, timeout=20, interval=0.001)


def errors_by_part(metrics: Metrics) -> dict[str, float]:
    """Return the number of unexpected errors by part."""
    series = re.findall(
        r'^admitq_unexpected_errors_total\{part="(\w+)",.*\} (\S+)$', metrics.render().decode(), re.MULTILINE
    )
    return {part: float(value) for part, value in series if float(value)}


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

    def instructions(self) -> list[Instruction]:
        decided, self.decided = self.decided, []
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


# --- the lease, certificates and servers --------------------------------------------------------------


async def lease_is_not_read(setup: Setup) -> Metrics:
    class Api:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def get(self, *_: Any) -> dict[str, Any]:
            raise ApiError(404, "NotFound", "no lease")

        async def create(self, _: Any, lease: dict[str, Any]) -> dict[str, Any]:
            return lease

    setup.fails_once(Api, "get")
    setup.patch.setattr(leases, "Client", Api)
    metrics = Metrics()
    elector = Elector(
        Credentials("http://127.0.0.1:9"),
        namespace="ns",
        name="lease",
        identity="me",
        user_agent="test",
        timing=LeaseTiming(duration=60, renew_deadline=40, retry=0.01),
        on_lost=lambda _: None,
        errors=metrics.errors,
    )
    elector.start()
    try:
        await asyncio.wait_for(elector.wait_until_leading(), 20)
    finally:
        await elector.stop()
    return metrics


async def certificate_authority_is_not_read(setup: Setup) -> Metrics:
    metrics, api = Metrics(), rotation.api_with_objects()
    setup.fails_once(api, "get_secret")
    replica = rotation.create_replica(api, rotation.Clock(), period=0.01, errors=metrics.errors)
    async with running(replica.run()):
        await asyncio.wait_for(replica.first.wait(), 20)
    return metrics


async def expiry_of_files_is_not_reported(setup: Setup) -> Metrics:
    metrics, on_expiry, authority = Metrics(), FailsOnce(), support.authority()
    rotation.write_files(setup.folder, authority, support.leaf_of(authority))
    files = FileCertificates(
        setup.folder, LiveCertificate(), on_expiry=on_expiry, period=0.01, errors=metrics.errors
    )
    async with running(files.run()):
        await until(lambda: len(on_expiry.calls) == 2)
    return metrics


async def certificate_of_metrics_is_not_checked(setup: Setup) -> Metrics:
    metrics, live = Metrics(), LiveCertificate()
    setup.patch.setattr(endpoints, "CERTIFICATE_PERIOD", 0.001)

    async def maintain() -> None:
        async with asyncio.TaskGroup() as tasks:
            await endpoints.maintain_certificate(load_settings(None), live, metrics.errors, tasks)
            failing.append(setup.fails_once(certificates, "validity"))

    failing: list[FailsOnce] = []
    async with running(maintain()):
        await until(lambda: failing and len(failing[0].calls) > 1)
    return metrics


async def connection_is_not_admitted(setup: Setup) -> Metrics:
    metrics = Metrics()
    server = Server(support.echo_size, tls=None, errors=metrics.errors)
    setup.fails_once(server.connections, "admit")
    address = await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(*address)
        assert await support.is_closed(reader)
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        status, _, _ = await support.exchange(reader, writer)
        assert status == 200
        writer.close()
    finally:
        await server.stop(linger=0, grace=1)
    return metrics


# --- webhooks -----------------------------------------------------------------------------------------


async def object_is_not_reviewed(setup: Setup) -> Metrics:
    setup.fails_once(cluster_queue, "validate_create")
    return await _reviews()


async def answer_is_not_written(setup: Setup) -> Metrics:
    setup.fails_once(routes, "encode_verdict")
    return await _reviews()


async def _reviews() -> Metrics:
    metrics, gvk = Metrics(), (names_for().group, names_for().version, "ClusterQueue")
    path = names_for().webhook_path("validate", *gvk)
    handlers = routes.review_handlers(webhooks.policy(), webhooks.FakeLookups(), (), errors=metrics.errors)
    body = webhooks.review({"metadata": {"name": "a"}, "spec": {}}, gvk=gvk)
    for code in (500, 200):
        answer = await handlers[path](HttpRequest("POST", path, body=orjson.dumps(body)))
        response = orjson.loads(answer.body)["response"]
        assert response.get("status", {}).get("code", 200) == code
    assert _route_with_error(metrics) == path
    return metrics


async def object_is_not_converted(setup: Setup) -> Metrics:
    metrics, names = Metrics(), names_for("kueue.x-k8s.io")
    setup.fails_once(conversion, "convert")
    queue = {
        "apiVersion": f"{names.group}/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "a"},
        "spec": {},
    }
    request = {"uid": "u", "desiredAPIVersion": f"{names.group}/{names.version}", "objects": [queue]}
    body = orjson.dumps({"apiVersion": conversion.API_VERSION, "kind": conversion.KIND, "request": request})
    ((path, handler),) = conversion.conversion_handlers(names, metrics.errors).items()
    for status in ("Failure", "Success"):
        answer = await handler(HttpRequest("POST", path, body=body))
        assert orjson.loads(answer.body)["response"]["result"]["status"] == status
    assert _route_with_error(metrics) == path
    return metrics


def _route_with_error(metrics: Metrics) -> str:
    """Return the path of the webhook in which errors were counted."""
    (route,) = re.findall(
        r'^admitq_unexpected_errors_total\{.*route="(.+)"\} 1.0', metrics.render().decode(), re.MULTILINE
    )
    return route


@pytest.mark.parametrize(
    ("part", "work"),
    [
        (ErrorPart.REPORT, refusal_is_not_explained),
        (ErrorPart.REPORT, refusal_is_not_checked),
        (ErrorPart.REPORT, reservation_has_no_event),
        (ErrorPart.REPORT, preemption_has_no_event),
        (ErrorPart.REPORT, quarantine_is_not_reported),
        (ErrorPart.REPORT, status_is_not_refreshed),
        (ErrorPart.REPORT, finding_is_not_reported),
        (ErrorPart.EVENT, event_is_not_written),
        (ErrorPart.EVENT, dropped_event_is_not_counted),
        (ErrorPart.EVENT, event_has_no_object),
        (ErrorPart.WATCH, list_is_not_read),
        (ErrorPart.OBSERVATION, change_is_not_handled),
        (ErrorPart.METRICS, watch_is_not_observed),
        (ErrorPart.METRICS, malformed_object_is_not_counted),
        (ErrorPart.METRICS, reconciliation_is_not_counted),
        (ErrorPart.METRICS, cycle_is_not_counted),
        (ErrorPart.METRICS, queue_is_not_measured),
        (ErrorPart.METRICS, metric_is_not_counted),
        (ErrorPart.WRITE, job_is_not_started),
        (ErrorPart.KIND, discovery_is_not_read),
        (ErrorPart.KIND, kind_does_not_start),
        (ErrorPart.LEASE, lease_is_not_read),
        (ErrorPart.CERTIFICATES, certificate_authority_is_not_read),
        (ErrorPart.CERTIFICATES, expiry_of_files_is_not_reported),
        (ErrorPart.CERTIFICATES, certificate_of_metrics_is_not_checked),
        (ErrorPart.SERVER, connection_is_not_admitted),
        (ErrorPart.REVIEW, object_is_not_reviewed),
        (ErrorPart.REVIEW, answer_is_not_written),
        (ErrorPart.REVIEW, object_is_not_converted),
    ],
)
async def test_unexpected_error_is_counted_and_next_item_is_processed(
    part: ErrorPart,
    work: Callable[[Setup], Awaitable[Metrics]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)
    with capture_logs() as lines:
        metrics = await work(Setup(monkeypatch, tmp_path))
    assert errors_by_part(metrics) == {part: 1}
    [line] = [line for line in lines if line["event"] == "unexpected error"]
    assert (line["log_level"], line["part"]) == ("error", part)
    assert isinstance(line["exc_info"], Exception)


def test_cancellation_is_not_counted_as_unexpected_error() -> None:
    metrics = Metrics()
    with pytest.raises(asyncio.CancelledError), metrics.errors.contain(ErrorPart.REPORT):
        raise asyncio.CancelledError
    assert errors_by_part(metrics) == {}


def test_unexpected_error_counters_are_exposed_before_first_error() -> None:
    metrics = Metrics(role="follower")
    metrics.add_webhook_routes(["/review"])
    metrics.change_role("leader")
    exposed = metrics.render().decode()
    for part in ErrorPart:
        route = "/review" if part is ErrorPart.REVIEW else ""
        labels = f'part="{part}",replica_role="leader",route="{route}"'
        assert f"unexpected_errors_total{{{labels}}} 0.0" in exposed
