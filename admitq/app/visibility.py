"""The visibility API of a process: watches, a core that only observes, and the HTTPS server.

It writes its certificates and reviews of callers, and nothing else. Questions run in child processes.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from admitq.app.certificates import OwnCertificate, check_certificates, serving_certificates
from admitq.app.core_inputs import iterate_objects
from admitq.app.core_watches import CoreWatches
from admitq.app.front_proxy import FrontProxyFollower
from admitq.app.settings import ProcessSettings
from admitq.app.shadow import refuse_writes
from admitq.app.state_dump import StateDumper
from admitq.app.topology_watches import TopologyWatches
from admitq.app.visibility_questions import VisibilityQuestions
from admitq.core.events import CyclesRequested
from admitq.core.model import ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager.quarantine import Quarantine
from admitq.manager.recovery import CYCLE, Recovery
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.runtime.client import ApiCall, Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.kinds import kinds_of, list_core_resources
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher
from admitq.serving.access_reviews import AccessReviews
from admitq.serving.authorization import TokenAuthenticator
from admitq.serving.front_proxy import FrontProxyUsers
from admitq.serving.health import Check
from admitq.serving.rotation import BundleTarget
from admitq.serving.server import MEBIBYTE, Server, ServerLimits
from admitq.serving.tls import LiveCertificate
from admitq.translate.observations import observations
from admitq.translate.read_options import configured_read_options
from admitq.translate.settings import configured_core_settings
from admitq.visibility.handler import VisibilityHandler
from admitq.visibility.pending_workloads import list_pending_workloads
from admitq.visibility.queue_lists import QueueLists
from admitq.visibility.routes import list_versions
from admitq_api.json_objects import JsonObject
from admitq_webhooks.live_lookups import ServingCalls

log = logger(__name__)

LIMITS: Final = ServerLimits(
    body_bytes=MEBIBYTE,
    connections=200,
    connections_per_peer=150,
    answer_seconds=30.0,
    write_seconds=30.0,
)
"""Answers may have a hundred thousand workloads. The API server waits for a minute."""

TICK_SECONDS: Final = 1.0
"""The longest time between two moments at which the core does what is due, such as samples of past usage."""


def list_visibility_hosts(settings: ProcessSettings) -> tuple[str, ...]:
    """Return the host names by which an API server calls the visibility API; the first is the usual one."""
    service, namespace = (
        settings.configuration.visibility_server.service_name,
        settings.configuration.namespace,
    )
    inside = f"{service}.{namespace}.svc"
    return (inside, f"{service}.{namespace}", f"{inside}.cluster.local", service)


class VisibilityPart:
    """The visibility API. It listens once ``start`` is called.

    Args:
        settings: the settings of the process.
        credentials: the credentials for the API server.
        client: a client for reviews and certificates.
        metrics: the registry of the process.
        user_agent: the User-Agent of requests.
        observe: receives each finished request of the watches.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        credentials: Credentials,
        client: Client,
        metrics: Metrics,
        user_agent: str,
        observe: Callable[[ApiCall], None],
    ) -> None:
        configuration = settings.configuration
        self._settings = settings
        self._metrics = metrics
        self._kinds = kinds_of(settings.names)
        self._open = AsyncExitStack()
        self._reader = Client(
            credentials,
            user_agent=user_agent,
            qps=configuration.client_connection.qps,
            burst=configuration.client_connection.burst,
            observe=observe,
            fence=refuse_writes,
        )
        deciding = configured_core_settings(configuration, settings.gates)
        self._state = AdmissionState(deciding, statuses=False, cycles=False)
        self._version = 0
        self._unreadable = Quarantine(metrics, lambda resource: len(self._stores[resource].quarantined))
        self._recovery = Recovery(
            state=self._state,
            observations=observations(settings.names, configured_read_options(configuration, settings.gates)),
            objects=lambda: iterate_objects(self._stores.values()),
            quarantine=self._unreadable,
            metrics=metrics,
            clock=time.time_ns,
            cluster_queues=self._kinds.cluster_queues,
        )
        self._stores = {
            resource: Store(resource, on_quarantine=self._unreadable.update_metric, errors=metrics.errors)
            for resource in list_core_resources(self._kinds)
        }
        for store in self._stores.values():
            store.subscribe(self._handler(store.resource))
        watchers = [
            Watcher(self._reader, store.resource, store, observe=self._on_watch, errors=metrics.errors)
            for store in self._stores.values()
        ]
        topology = TopologyWatches(
            self._reader,
            self._stores[self._kinds.resource_flavors],
            settings.names,
            is_enabled=deciding.placement is not None,
            observe=self._observe,
            on_watch=self._on_watch,
            on_quarantine=self._unreadable.update_metric,
            errors=metrics.errors,
        )
        # Questions do not change pods on nodes.
        stores = (*self._stores.values(), topology.nodes)
        self._questions = VisibilityQuestions(
            settings, self._state, stores, self._reader, metrics, self._on_watch
        )
        self._stores |= {store.resource: store for store in topology.stores}
        self._stores[self._kinds.workloads].subscribe(self._questions.observe_workload)
        self._watches = CoreWatches((*watchers, *self._questions.watchers), topology)
        self._dumping = StateDumper(
            self._state, lambda: {str(resource): len(store) for resource, store in self._stores.items()}
        )
        self._wake = asyncio.Event()
        self._is_synced = False
        self._build_server(client)

    def _build_server(self, client: Client) -> None:
        """Build the server with what it needs."""
        settings, metrics = self._settings, self._metrics
        names, reviews, users = settings.names, ServingCalls(client), FrontProxyUsers()
        live = LiveCertificate(settings.tls)
        self._certificates = serving_certificates(
            settings,
            client,
            live,
            metrics,
            OwnCertificate(
                name="admitq visibility",
                secret=settings.configuration.visibility_server.secret_name,
                targets=tuple(
                    BundleTarget("apiservices", f"{version}.{names.visibility_group}")
                    for version in list_versions(names)
                ),
                hosts=list_visibility_hosts(settings),
            ),
        )
        lists = QueueLists(self._state.queries, lambda: self._version, self._get_workload)
        self.checks: dict[str, Check] = {
            "certificates": check_certificates(self._certificates),
            **self._watches.checks,
            "serving": self._check_serving,
        }
        handler = VisibilityHandler(
            names=names,
            routes=(*list_pending_workloads(lists, names.visibility_group), *self._questions.routes()),
            front_proxy=users,
            tokens=TokenAuthenticator(reviews),
            access=AccessReviews(reviews),
            checks=self.checks,
            is_synced=lambda: self._is_synced and not self._recovery.is_rebuild_due,
        )
        self._server = Server(handler.handle, tls=lambda: live.context, limits=LIMITS, errors=metrics.errors)
        self._front_proxy = FrontProxyFollower(client, live, self._server, users, metrics.errors)
        self.checks["front proxy"] = self._front_proxy.check

    def _handler(self, resource: Resource) -> Callable[[ObjectChange], None]:
        return lambda change: self._observe(resource, change)

    def _get_workload(self, key: ObjectKey) -> JsonObject | None:
        return self._stores[self._kinds.workloads].get(*key)

    # --- running ----------------------------------------------------------------------------------

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Listen, and fill the stores.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
            TimeoutError: no more objects came to stores that are not complete.
        """
        await self._open.enter_async_context(self._reader)
        self._watches.start(tasks)
        for watcher in self._questions.optional_watchers:
            tasks.create_task(watcher.run(), name=f"watch {watcher.resource}")
        tasks.create_task(self._certificates.run(), name="certificates")
        tasks.create_task(self._front_proxy.run(), name="front proxy")
        address = self._settings.configuration.visibility_server
        await self._server.start(address.bind_address, address.bind_port)
        patience = self._settings.configuration.controller.cache_sync_timeout.total_seconds()
        await self._watches.wait_until_synced(patience)
        self._is_synced = True
        tasks.create_task(self._run(), name="visibility")
        tasks.create_task(self._questions.load(), name="load manifests")
        tasks.create_task(self._questions.forecast_trees(), name="cohort tree forecasts")

    async def stop(self) -> None:
        """Answer the requests that were sent, and close the port."""
        await self._server.stop()

    async def close(self) -> None:
        """Close all connections to the API server."""
        await self._open.aclose()

    def dump(self) -> None:
        """Log a dump of the core's state, in the background."""
        self._dumping.begin()

    async def _check_serving(self) -> str | None:
        return "stopping" if self._server.is_draining else None

    async def _run(self) -> None:
        """Let the core do what is due, until cancelled. After a failure of the core, rebuild its state."""
        while True:
            if self._recovery.is_rebuild_due:
                self._questions.forget_forecasts()
                await self._recovery.rebuild_state()
                self._version += 1
            with self._recovery.contain_failures(CYCLE, None):
                self._do_due_work(time.time_ns())
            self._wake.clear()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _do_due_work(self, now: int) -> None:
        due = self._state.next_wakeup(now)
        if due is not None and due <= now:
            self._state.observe(CyclesRequested(), now=now)
            self._version += 1
        # Nothing follows from the instructions here, but the core keeps them until they are taken.
        self._state.instructions()
        self._recovery.record_cycle()

    # --- observations in --------------------------------------------------------------------------

    def _observe(self, resource: Resource, change: ObjectChange) -> None:
        """Observe a change from a watch. Never raises."""
        obj = change.object
        culprit: tuple[Resource, dict[str, Any]] | None = None
        if change.new is None:
            event = self._recovery.forget_deleted(resource, obj)
        else:
            event, _ = self._recovery.read_changed(resource, obj)
            if event is None:
                return
            culprit = (resource, obj)
        with self._recovery.contain_failures(type(event).__name__, culprit):
            self._recovery.observing_state.observe(event, now=time.time_ns())
        self._version += 1
        if self._recovery.is_rebuild_due:
            self._wake.set()

    def _on_watch(self, resource: Resource, outcome: Outcome) -> None:
        if outcome not in {Outcome.LISTED, Outcome.ENDED}:
            self._metrics.increment("watch_restarts_total", resource=str(resource), reason=outcome)
