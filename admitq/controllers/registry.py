"""The table of all controllers, and the resources that they always watch.

The process that runs the controllers needs no knowledge of kinds. It fills a store for each resource in
``stores_needed``. It calls ``keys`` of each watch with every change of its resource, and puts the keys
into the work queue of the controller. Controllers of resources that a cluster may lack run while those
are served.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from admitq.controllers.context import Context, CoreView
from admitq.controllers.controller_specs import ControllerSpec, WhenServed
from admitq.controllers.in_use_watches import in_use_controllers
from admitq.controllers.indexes import indexes
from admitq.controllers.job.controller import JobController, start_admitted
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.job.watches import job_controller
from admitq.controllers.pods.elastic_pods import ElasticPodsController
from admitq.controllers.pods.failure_recovery import FailureRecoveryController
from admitq.controllers.pods.node_failures import NodeFailureController
from admitq.controllers.pods.topology_ungater import TopologyUngater
from admitq.controllers.priority_classes import priority_class_controller
from admitq.controllers.provisioning.watches import provisioning_controller
from admitq.controllers.queues.refused_jobs import RefusedJobs
from admitq.controllers.queues.watches import queue_controllers
from admitq.controllers.serving.controller import ServingController
from admitq.controllers.workload.watches import workload_controller
from admitq.integrations.references import OwnerKind
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import Index
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class Controllers:
    """All controllers.

    ``specs`` always run. The others run while their resource is served. ``jobs_when_served`` are the job
    controllers, and ``topology_when_served`` those of pods with a topology assignment. These may run in
    processes of their own.
    """

    specs: tuple[ControllerSpec, ...]
    core_when_served: tuple[WhenServed, ...]
    jobs_when_served: tuple[WhenServed, ...]
    topology_when_served: tuple[WhenServed, ...]
    jobs: Mapping[OwnerKind, JobController]
    refused: RefusedJobs

    @property
    def when_served(self) -> tuple[WhenServed, ...]:
        """All controllers that run while their resource is served."""
        return (*self.jobs_when_served, *self.topology_when_served, *self.core_when_served)

    async def start(self, workload: JsonObject) -> None:
        """Start the job of a Workload after the write of its admission.

        Raises:
            ApiError: a write failed; the job controller will retry.
        """
        await start_admitted(self.jobs, workload)


def stores_needed(names: Names) -> Mapping[Resource, Mapping[str, Index]]:
    """Return every resource that is always watched, with the indexes of its store."""
    kinds = kinds_of(names)
    unindexed: tuple[Resource, ...] = (
        NAMESPACES,
        PRIORITY_CLASSES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        kinds.cohorts,
        kinds.provisioning_request_configs,
        kinds.topologies,
        kinds.workload_priority_classes,
    )
    return {**{resource: {} for resource in unindexed}, **indexes(names)}


def _elastic_pods_controller(ctx: Context) -> Iterator[WhenServed]:
    """Yield the controller of pods of elastic jobs, if jobs may be elastic."""
    if ctx.settings.elastic_jobs and any(
        integration.scaling.can_be_elastic for integration in ctx.settings.integrations
    ):
        yield ElasticPodsController(ctx).when_served()


def _topology_controllers(ctx: Context) -> Iterator[WhenServed]:
    """Yield the controllers of pods with a topology assignment, if a start injects their gate."""
    failures = ctx.settings.node_failures
    if ctx.settings.jobs.marks.topology:
        beside = () if failures is None else (NodeFailureController(ctx, failures).spec(),)
        yield TopologyUngater(ctx).when_served(*beside)


def _failure_recovery_controller(ctx: Context) -> Iterator[WhenServed]:
    """Yield the controller of failure recovery, if it is enabled."""
    if (delay := ctx.settings.force_delete_after) is not None:
        yield FailureRecoveryController(ctx, delay).when_served()


def build_controllers(ctx: Context, core: CoreView) -> Controllers:
    """Build all controllers for the integrations in the settings."""
    integrations = ctx.settings.integrations
    owners = OwnerLookup(ctx)
    refused = RefusedJobs(ctx.stores, integrations, ctx.names)
    jobs = [
        JobController(ctx, integration, owners) for integration in integrations if integration.serving is None
    ]
    serving = [
        ServingController(ctx, integration, integration.serving)
        for integration in integrations
        if integration.serving is not None and integration.serving.list_groups is not None
    ]
    return Controllers(
        specs=(
            workload_controller(ctx, core),
            *queue_controllers(ctx, core, refused),
            priority_class_controller(ctx),
            *in_use_controllers(ctx),
        ),
        core_when_served=(provisioning_controller(ctx), *_failure_recovery_controller(ctx)),
        jobs_when_served=(
            *(job_controller(ctx, job) for job in jobs),
            # After the controller of pods, because these read its store.
            *(controller.when_served() for controller in serving),
            *_elastic_pods_controller(ctx),
        ),
        topology_when_served=tuple(_topology_controllers(ctx)),
        jobs={
            OwnerKind(job.integration.group, job.integration.version, job.integration.kind): job
            for job in jobs
        },
        refused=refused,
    )
