"""The shadow of a process: watches and the comparison. It never writes to the API server."""

import asyncio
import re
import time
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from admitq.app.core_inputs import iterate_objects
from admitq.app.core_watches import CoreWatches
from admitq.app.settings import ProcessSettings
from admitq.app.state_dump import StateDumper
from admitq.app.topology_watches import TopologyWatches
from admitq.core import events as happened
from admitq.core.model import SECOND, ObjectKey
from admitq.manager.quarantine import Quarantine
from admitq.manager.recovery import CYCLE, Recovery
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import ApiCall, Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.kinds import kinds_of, list_core_resources
from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher
from admitq.shadow.comparison import ComparisonFailed, Shadow
from admitq.shadow.findings import Disagreement, Preempted
from admitq.shadow.log_fields import make_log_fields
from admitq.translate.observations import READ_ERRORS, observations
from admitq.translate.read_options import configured_read_options
from admitq.translate.settings import configured_core_settings
from admitq_api import conditions
from admitq_api.conditions import ConditionType, Reason

log = logger(__name__)

METRIC_PREFIX: Final = "admitq"
"""The prefix of the shadow's metrics, under any API group: the manager in charge may use the other prefix."""

LEEWAY_SECONDS: Final = 2.0
"""Changes within this time may be observed in any order, because watches and writes have shorter delays."""

PAUSE_SECONDS: Final = 0.05
"""The shortest time between two evaluations."""

_PREEMPTOR: Final = re.compile(r"\(UID: ([^,)]+)")
"""The preemptor in the message of an eviction (semantics, Events)."""


class WritesNothingError(RuntimeError):
    """A shadow tried to write."""


def refuse_writes() -> None:
    """Refuse a write: the fence of a shadow's client.

    Raises:
        WritesNothingError: always.
    """
    raise WritesNothingError("a shadow writes nothing")


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """The settings of the comparison.

    The manager in charge has ``patience`` seconds to do what is expected of it.
    """

    patience: float


class ShadowPart:
    """The parts of a shadow. They run once ``start`` is called.

    Args:
        settings: the settings of the process.
        credentials: the credentials for the API server.
        metrics: the registry of the process.
        user_agent: the User-Agent of requests.
        observe: receives each finished request.
        how: the settings of the comparison.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        credentials: Credentials,
        metrics: Metrics,
        user_agent: str,
        observe: Callable[[ApiCall], None],
        how: ShadowSettings,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._kinds = kinds_of(settings.names)
        self._open = AsyncExitStack()
        connection = settings.configuration.client_connection
        self._client = Client(
            credentials,
            user_agent=user_agent,
            qps=connection.qps,
            burst=connection.burst,
            observe=observe,
            fence=refuse_writes,
        )
        deciding = configured_core_settings(settings.configuration, settings.gates)
        self._shadow = Shadow(
            deciding,
            patience=round(how.patience * SECOND),
            leeway=round(LEEWAY_SECONDS * SECOND),
        )
        self._malformed = Quarantine(metrics, lambda resource: len(self._stores[resource].quarantined))
        self._recovery = Recovery(
            state=self._shadow,
            observations=observations(
                settings.names, configured_read_options(settings.configuration, settings.gates)
            ),
            objects=lambda: iterate_objects(self._stores.values()),
            quarantine=self._malformed,
            metrics=metrics,
            clock=time.time_ns,
            cluster_queues=self._kinds.cluster_queues,
        )
        self._stores = {
            resource: Store(resource, on_quarantine=self._malformed.update_metric, errors=metrics.errors)
            for resource in list_core_resources(self._kinds)
        }
        for store in self._stores.values():
            store.subscribe(self._handler(store.resource))
        self._dumping = StateDumper(
            self._shadow.state,
            lambda: {str(resource): len(store) for resource, store in self._stores.items()},
        )
        watchers = [
            Watcher(self._client, store.resource, store, observe=self._on_watch, errors=metrics.errors)
            for store in self._stores.values()
        ]
        topology = TopologyWatches(
            self._client,
            self._stores[self._kinds.resource_flavors],
            settings.names,
            is_enabled=deciding.placement is not None,
            observe=self._observe,
            on_watch=self._on_watch,
            on_quarantine=self._malformed.update_metric,
            errors=metrics.errors,
        )
        self._stores |= {store.resource: store for store in topology.stores}
        self._watches = CoreWatches(watchers, topology)
        self._wake = asyncio.Event()
        self.checks = self._watches.checks

    def _handler(self, resource: Resource) -> Callable[[ObjectChange], None]:
        return lambda change: self._observe(resource, change)

    # --- running ----------------------------------------------------------------------------------

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Fill the stores, then compare with the manager in charge.

        Raises:
            TimeoutError: no more objects came to stores that are not complete.
        """
        await self._open.enter_async_context(self._client)
        self._watches.start(tasks)
        patience = self._settings.configuration.controller.cache_sync_timeout.total_seconds()
        await self._watches.wait_until_synced(patience)
        log.info("shadow started comparing decisions")
        tasks.create_task(self._run(), name="shadow")

    async def stop(self) -> None:
        """Close all connections."""
        await self._open.aclose()

    def dump(self) -> None:
        """Log a dump of the core's state, in the background."""
        self._dumping.begin()

    async def _run(self) -> None:
        """Compare until cancelled.

        After an exception of the core, the state is rebuilt from the stores. What the manager in charge does
        until then is not compared.
        """
        while True:
            self._wake.clear()
            if self._recovery.is_rebuild_due:
                await self._recovery.rebuild_state()
            idle = self._evaluate_due()
            self._tell()
            # Decide at once after observations; evaluations of differences may wait.
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(idle):
                    await self._wake.wait()

    def _evaluate_due(self) -> float | None:
        """Evaluate what is due. Return the seconds until the next evaluation; None if it needs an event."""
        idle: float | None = 0.0
        with self._guard(CYCLE, None):
            now, before = time.time_ns(), self._shadow.state.queries.cycles_run
            if not self._shadow.is_following:
                self._shadow.follow(now)
            self._shadow.evaluate_due(now)
            due = self._shadow.next_evaluation(now)
            idle = None if due is None else max(0.0, (due - now) / SECOND)
            if self._shadow.state.queries.cycles_run > before:
                self._recovery.record_cycle()
            if (search := self._recovery.continue_search()) is not None:
                idle = search if idle is None else min(idle, search)
        return idle

    @contextmanager
    def _guard(self, during: str, culprit: tuple[Resource, dict[str, Any]] | None) -> Generator[None]:
        """Return a context manager that handles exceptions as failures of the core, caused by the culprit."""
        with self._recovery.contain_failures(during, culprit):
            try:
                yield
            except ComparisonFailed as failure:
                self._recovery.record_failure(failure.during, self._workload(failure.workload), failure.error)

    def _workload(self, key: ObjectKey | None) -> tuple[Resource, dict[str, Any]] | None:
        resource = self._kinds.workloads
        obj = None if key is None else self._stores[resource].get(*key)
        return None if obj is None else (resource, obj)

    def _tell(self) -> None:
        for finding in self._shadow.findings():
            with self._metrics.errors.contain(ErrorPart.REPORT, finding.cluster_queue):
                self._metrics.increment("shadow_decisions_total", cluster_queue=finding.cluster_queue)
                if isinstance(finding, Disagreement):
                    self._metrics.increment(
                        "shadow_disagreements_total", cluster_queue=finding.cluster_queue, kind=finding.kind
                    )
                    log.warning("manager decided differently than shadow", **make_log_fields(finding))

    # --- observations in --------------------------------------------------------------------------

    def _observe(self, resource: Resource, change: ObjectChange) -> None:
        """Observe a change from a watch. Never raises."""
        obj, preemption = change.object, None
        if change.new is None:
            event, culprit = self._recovery.forget_deleted(resource, obj), None
        else:
            (event, is_whole), culprit = self._recovery.read_changed(resource, obj), (resource, obj)
            if event is None:
                return
            if is_whole and resource == self._kinds.workloads:
                with suppress(*READ_ERRORS):
                    preemption = preemption_of(obj)
        with self._guard(type(event).__name__, culprit):
            self._recovery.observing_state.observe(event, now=time.time_ns(), preemption=preemption)
        if isinstance(event, happened.ClusterQueueDeleted) and culprit is None:
            with self._metrics.errors.contain(ErrorPart.METRICS, event.name):
                self._metrics.forget_cluster_queue(event.name)
        self._wake.set()

    def _on_watch(self, resource: Resource, outcome: Outcome) -> None:
        if outcome not in {Outcome.LISTED, Outcome.ENDED}:
            self._metrics.increment("watch_restarts_total", resource=str(resource), reason=outcome)


def preemption_of(workload: dict[str, Any]) -> Preempted | None:
    """Return the preemption that a Workload's condition reports; None if no preemption evicted it."""
    stated = (workload.get("status") or {}).get("conditions")
    evicted = conditions.find_condition(stated, ConditionType.EVICTED)
    if evicted is None or evicted.get("status") != "True" or evicted.get("reason") != Reason.PREEMPTED:
        return None
    message = str(evicted.get("message", ""))
    preemptor = _PREEMPTOR.search(message)
    return Preempted("" if preemptor is None else preemptor[1], message)
