"""The manager of a process: watches, the core, the controllers, and leader election."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from admitq.app.components import LEASED_COMPONENTS, Component
from admitq.app.core_inputs import iterate_objects
from admitq.app.core_watches import CoreWatches
from admitq.app.served_kinds import ServedKindControllers, key_handler
from admitq.app.settings import ProcessSettings
from admitq.app.state_dump import StateDumper
from admitq.app.topology_watches import TopologyWatches
from admitq.controllers import controller_names, registry
from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec
from admitq.controllers.queues.controllers import cohort_path
from admitq.controllers.settings import settings_of
from admitq.core.model import LabelSelector, ObjectKey
from admitq.core.selectors import matches
from admitq.core.state import AdmissionState
from admitq.manager.manager import Manager, ManagerOptions
from admitq.metrics.measures.gauges import PendingWorkloads
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.queue_statuses import QueueStatuses
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.process.garbage_collection import exclude_current_objects, spare_loaded_objects
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.client import ApiCall, Client
from admitq.runtime.controller import Controller, ReconcileReport
from admitq.runtime.credentials import Credentials
from admitq.runtime.events import EventRecorder
from admitq.runtime.kinds import kinds_of, list_core_resources
from admitq.runtime.lease_claim import LeaseTiming
from admitq.runtime.leases import Elector, unique_identity
from admitq.runtime.resources import Resource
from admitq.runtime.second_part import ListParts
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher
from admitq.translate.read_options import configured_read_options
from admitq.translate.selectors import read_label_selector
from admitq.translate.settings import configured_core_settings, configured_pods_ready, unset_default_notices
from admitq_api.configuration import Configuration, LeaderElection
from admitq_api.feature_gates import Gate

log = logger(__name__)

SETTLING_SECONDS: Final = 10.0
"""The maximum time that controllers wait for kinds that are served but cannot be listed."""


class LiveStores:
    """The stores that watches fill, one for each resource. Resources are added and removed."""

    def __init__(self, stores: Iterable[Store]) -> None:
        self._stores = {store.resource: store for store in stores}

    def of(self, resource: Resource) -> Store:
        """Return the store of a resource.

        Raises:
            KeyError: the resource is not watched.
        """
        return self._stores[resource]

    def find(self, resource: Resource) -> Store | None:
        """Return the store of a resource; None if it is not watched."""
        return self._stores.get(resource)

    def add(self, store: Store) -> None:
        """Add the store of a resource."""
        self._stores[store.resource] = store

    def discard(self, store: Store) -> None:
        """Remove the store of a resource."""
        self._stores.pop(store.resource, None)

    def __iter__(self) -> Iterator[Store]:
        return iter(self._stores.values())


class ManagerPart:
    """The parts of a manager. They run once ``start`` is called.

    Args:
        settings: the settings of the process.
        credentials: the credentials for the API server.
        metrics: the registry of the process.
        user_agent: the User-Agent of requests.
        observe: receives each finished request.
        open_client: creates the client for everything but the lease. Tests that kill a manager pass a client
            that counts its calls.
        components: the components to run, of ``LEASED_COMPONENTS``. Without ``cycle`` the manager reserves no
            quota, and uses what another program reserves. Without ``core`` it writes no statuses. Without
            ``jobs`` it neither creates Workloads nor starts jobs. Without ``topology`` it gives pods no
            domain of a topology, and finds no failed nodes. With ``cycle`` alone it watches only what the
            core observes.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        credentials: Credentials,
        metrics: Metrics,
        user_agent: str,
        observe: Callable[[ApiCall], None],
        open_client: Callable[..., Client] = Client,
        components: Collection[Component] = LEASED_COMPONENTS,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        runs_core, runs_jobs, runs_cycles, runs_topology = (
            part in components
            for part in (Component.CORE, Component.JOBS, Component.CYCLE, Component.TOPOLOGY)
        )
        configuration, names = settings.configuration, settings.names
        self._kinds = kinds_of(names)
        identity = unique_identity()
        self._elector = (
            _elector(configuration, credentials, identity, user_agent, metrics.errors)
            if configuration.leader_election.leader_elect
            else None
        )
        self._has_decisive_objects = False
        """Whether the stores have all objects on which decisions depend."""
        self._open = AsyncExitStack()
        self._client = open_client(
            credentials,
            user_agent=user_agent,
            qps=configuration.client_connection.qps,
            burst=configuration.client_connection.burst,
            observe=observe,
            # The fence prevents writes when this process may have lost its lease.
            fence=self._elector.assert_leading if self._elector is not None else None,
        )
        metrics.update_on_scrape(self._set_write_metrics)
        self._stores = LiveStores(
            Store(
                resource,
                indexes=indexes,
                on_quarantine=self._on_objects_set_aside,
                errors=metrics.errors,
            )
            for resource, indexes in registry.stores_needed(names).items()
            if runs_core or runs_jobs or resource in list_core_resources(self._kinds)
        )
        self._recorder = EventRecorder(
            self._client,
            f"{names.group}/manager",
            identity,
            on_drop=lambda cause: log.debug("kubernetes event not recorded", cause=cause),
            errors=metrics.errors,
        )
        deciding = configured_core_settings(configuration, settings.gates)
        self._state = AdmissionState(deciding, cycles=runs_cycles)
        self._dumping = StateDumper(
            self._state, lambda: {str(store.resource): len(store) for store in self._stores}
        )
        self._measures = self._make_measures(configuration)
        self._controllers: dict[str, Controller[Key]] = {}
        ctx = Context(
            client=self._client,
            names=names,
            settings=settings_of(configuration, settings.gates, settings.integrations),
            recorder=self._recorder,
            clock=time.time_ns,
            stores=self._stores,
            metrics=self._measures.workloads,
            observe_write=self._observed,
        )
        table = registry.build_controllers(ctx, self._state.queries)
        self.manager = Manager(
            state=self._state,
            client=self._client,
            workload_resource=self._kinds.workloads,
            workloads=self._stores.of(self._kinds.workloads),
            names=names,
            recorder=self._recorder,
            metrics=metrics,
            measures=self._measures,
            clock=time.time_ns,
            store_answer=self._observed,
            start=table.start if runs_jobs else _left_to_its_controller,
            refresh=self,
            leading=self._is_leading,
            reading=configured_read_options(configuration, settings.gates),
            count_quarantined_in_store=self._set_aside,
            objects=self._decisive_objects,
            options=ManagerOptions(
                tracks_pods_ready=configured_pods_ready(configuration, settings.gates) is not None,
                has_detailed_reasons=settings.gates[Gate.UNADMITTED_WORKLOADS_OBSERVABILITY],
                reports_quarantined=runs_core or runs_cycles,
                reports_transitions=runs_core,
                merge_patches=settings.gates[Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH],
                by_hostname_prefix=settings.gates[Gate.TAS_ASSIGNMENTS_ENCODING_BY_HOSTNAME_PREFIX],
            ),
        )
        metrics.wait_for_cycle_end = self.manager.wait_for_cycle_end
        self._refused = table.refused
        self._leading = asyncio.Event()
        self._settled = asyncio.Event()
        """Set once all Workloads are listed, and jobs and pods as far as they are served."""
        self._served_kinds = ServedKindControllers(
            self._client,
            self._stores,
            (
                *(table.jobs_when_served if runs_jobs else ()),
                *(table.topology_when_served if runs_topology else ()),
                *(table.core_when_served if runs_core else ()),
            ),
            controller=self._controller,
            leading=self._leading,
            metrics=metrics,
            on_watch=self._on_watch,
            on_quarantine=self._on_objects_set_aside,
        )
        self._wire(table.specs if runs_core else ())
        unfinished_first = ListParts(first=f"!{names.finished}", second=names.finished)
        watchers = [
            Watcher(
                self._client,
                store.resource,
                store,
                observe=self._on_watch,
                parts=unfinished_first if store.resource == self._kinds.workloads else None,
                errors=metrics.errors,
            )
            for store in self._stores
        ]
        topology = TopologyWatches(
            self._client,
            self._stores.of(self._kinds.resource_flavors),
            names,
            is_enabled=(runs_cycles or runs_topology) and deciding.placement is not None,
            observe=self.manager.observe,
            on_watch=self._on_watch,
            on_quarantine=self._on_objects_set_aside,
            errors=metrics.errors,
        )
        for store in topology.stores:
            self._stores.add(store)
        self._watches = CoreWatches(watchers, topology)
        self.checks = {**self._watches.checks, "kinds": self._served_kinds.ready}

    # --- wiring -----------------------------------------------------------------------------------

    def _wire(self, specs: Sequence[ControllerSpec]) -> None:
        for resource in list_core_resources(self._kinds):
            self._stores.of(resource).subscribe(self._core_handler(resource))
        for spec in specs:
            controller = self._controllers[spec.name] = self._controller(self._between_cycles(spec))
            for watch in spec.watches:
                self._stores.of(watch.resource).subscribe(key_handler(controller, watch))

    def _controller(self, spec: ControllerSpec) -> Controller[Key]:
        return Controller(
            spec.name,
            spec.reconcile,
            workers=spec.workers,
            urgent_workers=spec.urgent_workers,
            refresh_interval=spec.refresh_interval,
            observe=self._on_reconciled,
            on_quarantine=self._on_quarantine,
            errors=self._metrics.errors,
            scheduler=self._client.scheduler,
        )

    def _between_cycles(self, spec: ControllerSpec) -> ControllerSpec:
        """Return a controller that reconciles between cycles, as it compares the core with the stores."""

        async def reconcile(key: Key) -> float | None:
            await self.manager.wait_for_cycle_end()
            return await spec.reconcile(key)

        return replace(spec, reconcile=reconcile)

    def _core_handler(self, resource: Resource) -> Callable[[ObjectChange], None]:
        return lambda change: self.manager.observe(resource, change)

    def _observed(self, resource: Resource, obj: dict[str, Any]) -> None:
        """Store the response of a write of this process, before the watch delivers it."""
        metadata = obj.get("metadata") or {}
        if obj.get("kind") == "Status":
            return
        store = self._stores.find(resource)
        if store is None:
            return
        is_kept = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not is_kept:
            store.remove(obj)
        else:
            store.upsert(obj)

    def _make_measures(self, configuration: Configuration) -> ManagerMeasures:
        queues = configuration.metrics.local_queue_metrics
        selector = read_label_selector(queues.local_queue_selector)
        enabled = self._settings.has_local_queue_metrics

        def of_local_queues(key: ObjectKey) -> bool:
            store = self._stores.of(self._kinds.local_queues)
            if not enabled or key not in store:
                return False
            return selector is None or _selects(selector, store.get(*key) or {})

        def cluster_queue_of(key: ObjectKey) -> str | None:
            queue = self._stores.of(self._kinds.local_queues).get(key.namespace, key.name)
            return None if queue is None else (queue.get("spec") or {}).get("clusterQueue")

        def cohorts_of(name: str) -> list[str]:
            queue = self._stores.of(self._kinds.cluster_queues).get("", name)
            cohort = "" if queue is None else (queue.get("spec") or {}).get("cohortName", "")
            return cohort_path(self._stores.of(self._kinds.cohorts), cohort) if cohort else []

        scope = MeasureScope(
            self._metrics,
            cluster_queue_of,
            cohorts_of=cohorts_of,
            has_local_queue_series=of_local_queues,
            has_resource_series=configuration.metrics.enable_cluster_queue_resources,
            has_cohort_series=self._settings.has_cohort_metrics,
        )
        queries = self._state.queries
        pending = PendingWorkloads(
            workloads=queries.pending_workloads,
            inadmissible_by_local_queue=queries.inadmissible_by_local_queue,
            count_scheduling_keys=queries.count_scheduling_keys,
            total_requests=queries.pending_requests,
        )
        cohorts = self._stores.of(self._kinds.cohorts)
        statuses = QueueStatuses(
            is_reporting=self._reports_statuses,
            cluster_queue=queries.cluster_queue_status,
            local_queue=queries.local_queue_status,
            cohort=queries.cohort_status,
            cohort_path=lambda name: cohort_path(cohorts, name),
        )
        return ManagerMeasures(scope, pending, statuses)

    def _reports_statuses(self) -> bool:
        return self._leading.is_set() and controller_names.CLUSTER_QUEUE in self._controllers

    # --- refresh instructions of the core ---------------------------------------------------------

    def cluster_queue(self, name: str) -> None:
        """Reconcile the status of a ClusterQueue."""
        self._measures.changed.cluster_queue_changed(name)
        is_deleted = self._is_cluster_queue_deleted(name)
        self._reconcile_status(controller_names.CLUSTER_QUEUE, Key("", name), at_once=is_deleted)

    def local_queue(self, key: ObjectKey) -> None:
        """Reconcile the status of a LocalQueue."""
        self._measures.changed.local_queue_changed(key)
        self._reconcile_status(controller_names.LOCAL_QUEUE, Key(*key))

    def cohort(self, name: str) -> None:
        """Reconcile the status of a cohort."""
        self._measures.changed.cohort_changed(name)
        self._reconcile_status(controller_names.COHORT, Key("", name))

    def _is_cluster_queue_deleted(self, name: str) -> bool:
        """Whether a ClusterQueue waits for its finalizer, the removal of which no report may delay."""
        # The core knows that a queue is active; the store would decode the object.
        if self._state.queries.is_cluster_queue_active(name):
            return False
        queue = self._stores.of(self._kinds.cluster_queues).get("", name)
        return queue is not None and "deletionTimestamp" in queue["metadata"]

    def _reconcile_status(self, controller: str, key: Key, *, at_once: bool = False) -> None:
        # Without the component core this process has no controllers of statuses.
        running = self._controllers.get(controller)
        if running is None:
            return
        if at_once:
            running.add(key)
        else:
            running.refresh(key)

    # --- running ----------------------------------------------------------------------------------

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Fill the stores, and take part in leader election; act once elected.

        Decisions begin when all objects but the finished Workloads are listed. No decision depends on these.
        Controllers begin when the finished Workloads are listed, too: they create a Workload for a job that
        has none in the store.

        Raises:
            TimeoutError: no more objects came to stores that are not complete.
        """
        for default in unset_default_notices(self._settings.configuration):
            log.warning("setting is not configured, default applies", setting=default)
        await self._open.enter_async_context(self._client)
        self._watches.start(tasks)
        patience = self._settings.configuration.controller.cache_sync_timeout.total_seconds()
        with spare_loaded_objects():
            await self._watches.wait_for_first_parts(patience)
        self._has_decisive_objects = True
        tasks.create_task(self.manager.run(), name="manager")
        tasks.create_task(self._lead(tasks), name="lead")
        await self._watches.wait_until_synced(patience)
        # No decision depends on jobs and pods, so cycles begin before these are listed.
        tasks.create_task(self._served_kinds.run(), name="kinds that come and go")
        await self._served_kinds.settled(min(patience, SETTLING_SECONDS))
        # The listed objects live long, so garbage collections need not traverse them.
        exclude_current_objects()
        self._settled.set()

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        if self._elector is not None:
            self._elector.start()
            await self._elector.wait_until_leading()
            with self._metrics.errors.contain(ErrorPart.METRICS):
                self._metrics.change_role("leader")
            self._served_kinds.report()
        log.info("started leading")
        tasks.create_task(self._recorder.run(), name="events")
        self.manager.lead()
        # Controllers conclude from absent jobs and pods that a Workload must end, and from an absent Workload
        # that a job needs one.
        await self._settled.wait()
        for name, controller in self._controllers.items():
            tasks.create_task(controller.run(), name=name)
        self._leading.set()

    async def stop(self) -> None:
        """Write the recorded events, release the lease, and close all connections."""
        if self._elector is None or self._elector.is_leader():
            await self._recorder.flush()
        if self._elector is not None:
            await self._elector.stop()
        await self._open.aclose()

    def dump(self) -> None:
        """Log a dump of the core's state, after the running cycle."""
        self.manager.run_between_cycles(self._dumping.begin)

    def _is_leading(self) -> bool:
        return self._has_decisive_objects and (self._elector is None or self._elector.is_leader())

    # --- metrics and reports ----------------------------------------------------------------------

    def _set_write_metrics(self) -> None:
        scheduler = self._client.scheduler
        self._metrics.set("api_server_slowness", scheduler.slowness)
        for write_class in scheduler.write_classes:
            labels = {"write_class": write_class.name.lower()}
            self._metrics.set("concurrent_writes_limit", scheduler.limit(write_class), **labels)
            self._metrics.set("waiting_writes", scheduler.count_waiting(write_class), **labels)

    def _on_watch(self, resource: Resource, outcome: Outcome) -> None:
        if outcome not in {Outcome.LISTED, Outcome.ENDED}:
            self._metrics.increment("watch_restarts_total", resource=str(resource), reason=outcome)

    def _on_reconciled(self, done: ReconcileReport) -> None:
        self._metrics.increment("reconciliations_total", controller=done.controller, result=done.result)

    def _on_quarantine(self, controller: Controller[Key], key: Key) -> None:
        self._metrics.set("quarantined_keys", len(controller.quarantined), controller=controller.name)
        queue = self._refused.update(controller.name, key, controller.quarantined.get(key))
        if queue is not None:
            self._reconcile_status(controller_names.LOCAL_QUEUE, queue)

    def _set_aside(self, resource: Resource) -> int:
        store = self._stores.find(resource)
        return 0 if store is None else len(store.quarantined)

    def _decisive_objects(self) -> Iterator[tuple[Resource, dict[str, Any]]]:
        """Yield all objects that the core observes."""
        observed = [self._stores.of(resource) for resource in list_core_resources(self._kinds)]
        return iterate_objects((*observed, *self._watches.topology.stores))

    def _on_objects_set_aside(self, resource: Resource) -> None:
        self.manager.update_quarantine_metric(resource)


async def _left_to_its_controller(_: dict[str, Any]) -> None:
    """Start no job: the process that runs the job controllers starts the jobs of admitted Workloads."""


def _selects(selector: LabelSelector, obj: dict[str, Any]) -> bool:
    return matches(selector, (obj.get("metadata") or {}).get("labels") or {})


def _elector(
    configuration: Configuration,
    credentials: Credentials,
    identity: str,
    user_agent: str,
    errors: UnexpectedErrors,
) -> Elector:
    election: LeaderElection = configuration.leader_election
    return Elector(
        credentials,
        namespace=election.resource_namespace or configuration.namespace,
        name=election.resource_name,
        identity=identity,
        user_agent=user_agent,
        timing=LeaseTiming(
            duration=election.lease_duration.total_seconds(),
            renew_deadline=election.renew_deadline.total_seconds(),
            retry=election.retry_period.total_seconds(),
        ),
        errors=errors,
    )
