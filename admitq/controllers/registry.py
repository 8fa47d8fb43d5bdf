"""All controllers: what each watches, and which keys a change makes it reconcile.

The process that runs the controllers needs no knowledge of kinds. It fills a store for each resource in
``stores_needed``. It calls ``keys`` of each watch with every change of its resource, and puts the keys
into the work queue of the controller. Controllers of resources that a cluster may lack run while those
are served.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admitq.controllers import priority_classes
from admitq.controllers.context import Context, CoreView
from admitq.controllers.controller_specs import ControllerSpec, FollowedResource, MapToKeys, Watch, WhenServed
from admitq.controllers.in_use_protection import InUseProtectionController
from admitq.controllers.indexes import (
    BY_CHECK,
    BY_CLUSTER_QUEUE,
    BY_FLAVOR,
    BY_GROUP,
    BY_NAMESPACE,
    BY_OWNER,
    BY_PREBUILT_WORKLOAD,
    BY_PRIORITY_CLASS,
    BY_QUEUE,
    BY_REFERENCE,
    BY_TOPOLOGY,
    checks_of,
    flavors_of,
    followed_resource,
    group_key_name,
    indexes,
    job_indexes,
    namespaced_index_value,
    owner_index_value,
    owner_keys,
    priority_class_index_value,
    reference_index_value,
    resource_of,
    topologies_of,
)
from admitq.controllers.job.controller import JobController, start_admitted
from admitq.controllers.job.owner_lookup import OwnerLookup
from admitq.controllers.pods.elastic_pods import ElasticPodsController
from admitq.controllers.pods.failure_recovery import FailureRecoveryController
from admitq.controllers.provisioning.watches import provisioning_controller
from admitq.controllers.queues.controllers import (
    ClusterQueueController,
    CohortController,
    LocalQueueController,
)
from admitq.controllers.queues.refused_jobs import RefusedJobs
from admitq.controllers.serving.controller import ServingController
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.base import Integration, OwnerKind, ReferencedKind
from admitq.integrations.ownership import MAX_OWNER_DEPTH, get_controller, is_group_workload
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, RUNTIME_CLASSES, Resource
from admitq.runtime.store import Index, Key, ObjectChange
from admitq.workloads.transitions import is_admitted, is_condition_true
from admitq_api.conditions import ConditionType, find_condition
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

CLUSTER_QUEUE: Final = "clusterqueue"
LOCAL_QUEUE: Final = "localqueue"
COHORT: Final = "cohort"
WORKLOAD: Final = "workload"
"""Names of controllers that also get keys from the core, when their numbers change."""

PRIORITY_CLASS: Final = "workloadpriorityclass"

WORKERS_OF_JOBS: Final = 16
URGENT_WORKERS_OF_JOBS: Final = 16
"""As many as other workers: each mostly waits for the API server, and many jobs may be urgent at once."""
WORKERS_OF_WORKLOADS: Final = 8


@dataclass(frozen=True, slots=True)
class Controllers:
    """All controllers.

    ``specs`` always run. The others run while their resource is served. ``jobs_when_served`` are the job
    controllers, which may run in a process of their own.
    """

    specs: tuple[ControllerSpec, ...]
    core_when_served: tuple[WhenServed, ...]
    jobs_when_served: tuple[WhenServed, ...]
    jobs: Mapping[OwnerKind, JobController]
    refused: RefusedJobs

    @property
    def when_served(self) -> tuple[WhenServed, ...]:
        """All controllers that run while their resource is served."""
        return (*self.jobs_when_served, *self.core_when_served)

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


# --- from changes to keys -------------------------------------------------------------------------


def _itself(change: ObjectChange) -> tuple[Key, ...]:
    return (change.key,)


def _both(change: ObjectChange) -> Iterator[JsonObject]:
    for obj in (change.old, change.new):
        if obj is not None:
            yield obj


def _named_by(of: Callable[[JsonObject], Iterable[str]]) -> MapToKeys:
    """Map a change to the cluster-scoped objects that it adds to or removes from the names."""

    def keys(change: ObjectChange) -> Iterable[Key]:
        named = [set(of(obj)) for obj in _both(change)]
        changed = named[0] ^ named[1] if len(named) > 1 else named[0]
        return {Key("", name) for name in changed}

    return keys


def _differs(change: ObjectChange, *paths: tuple[str, ...]) -> bool:
    """Whether the object was created or deleted, or differs at one of these paths."""
    if change.old is None or change.new is None:
        return True
    return any(value_at(change.old, path) != value_at(change.new, path) for path in paths)


_SPEC: Final = ("spec",)
_DELETION: Final = ("metadata", "deletionTimestamp")
_GENERATION: Final = ("metadata", "generation")
_LABELS: Final = ("metadata", "labels")


def _activity(queue: JsonObject | None) -> str | None:
    active = find_condition(value_at(queue, ("status", "conditions"), []), ConditionType.ACTIVE)
    return None if active is None else active.get("status")


def _run_permission(workload: JsonObject | None) -> Sequence[object] | None:
    """Return what decides whether objects inside the Workload's job may run; None without a Workload."""
    if workload is None:
        return None
    ends = (ConditionType.FINISHED, ConditionType.EVICTED)
    return [
        get_controller(workload),
        is_admitted(workload),
        *(is_condition_true(workload, one) for one in ends),
    ]


class _WorkloadKeys:
    """Maps changes of other objects to keys of Workloads."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kinds = ctx.kinds

    def in_local_queue(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a LocalQueue that was created, deleted, or changed its state."""
        differs = _differs(change, _SPEC, _DELETION) or _activity(change.old) != _activity(change.new)
        return self._queued_in(change.key) if differs else ()

    def in_cluster_queue(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the Workloads of a ClusterQueue after a change of its spec, deletion or activity.

        Its numbers do not matter.
        """
        if not _differs(change, _SPEC, _DELETION) and _activity(change.old) == _activity(change.new):
            return
        stores, name = self._ctx.stores, change.key.name
        yield from stores.of(self._kinds.workloads).keys_by_index(BY_CLUSTER_QUEUE, name)
        for queue in stores.of(self._kinds.local_queues).keys_by_index(BY_CLUSTER_QUEUE, name):
            yield from self._queued_in(queue)

    def in_namespace(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a namespace that is new or has changed labels.

        The watch of Workloads may be ahead of the watch of namespaces.
        """
        if change.new is None or not _differs(change, _LABELS):
            return ()
        return self._queued_in_namespace(change.key.name)

    def limited(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workloads of a namespace with changed limits."""
        return self._queued_in_namespace(change.key.namespace) if _differs(change, _SPEC) else ()

    def _queued_in_namespace(self, namespace: str) -> Iterator[Key]:
        for queue in self._ctx.stores.of(self._kinds.local_queues).keys_by_index(BY_NAMESPACE, namespace):
            yield from self._queued_in(queue)

    def _queued_in(self, queue: Key) -> tuple[Key, ...]:
        workloads = self._ctx.stores.of(self._kinds.workloads)
        return workloads.keys_by_index(BY_QUEUE, namespaced_index_value(queue.namespace, queue.name))


class _JobKeys:
    """Maps changes of other objects to keys of jobs of one kind."""

    def __init__(self, ctx: Context, integration: Integration, resource: Resource) -> None:
        self._ctx = ctx
        self._integration = integration
        self._resource = resource

    def of_object(self, change: ObjectChange) -> Iterable[Key]:
        """Return the job that the object is, or of which it is a member."""
        return (change.key,) if self._integration.composition is None else {*map(self._job, _both(change))}

    def is_urgent(self, change: ObjectChange) -> bool:
        """Whether the spec of a running job changed. The job may run more than was admitted until it stops.

        The spec of pods cannot be raised, so members are never urgent.
        """
        integration = self._integration
        if integration.composition is not None or change.new is None or change.old_bytes is None:
            return False
        if integration.is_suspended(change.new, self._ctx.names):
            return False
        return value_at(change.new, _GENERATION) != value_at(change.old, _GENERATION)

    def _job(self, obj: JsonObject) -> Key:
        metadata = obj["metadata"]
        composition = self._integration.composition
        group = "" if composition is None else composition.get_group(obj, self._ctx.names)
        return Key(metadata.get("namespace", ""), group_key_name(group) if group else metadata["name"])

    def _jobs(self, found: Iterable[Key]) -> Iterator[Key]:
        """Yield the jobs that these objects are, or of which they are members."""
        if self._integration.composition is None:
            yield from found
            return
        store = self._ctx.stores.of(self._resource)
        for key in found:
            if (obj := store.get(*key)) is not None:
                yield self._job(obj)

    def of_workload(self, change: ObjectChange) -> Iterator[Key]:
        """Yield its owner, its group, jobs inside its owner, and jobs that name it as prebuilt."""
        store = self._ctx.stores.of(self._resource)
        named = namespaced_index_value(*change.key)
        if self._integration.composition is not None and (
            is_group_workload(change.object, self._ctx.names) or store.keys_by_index(BY_GROUP, named)
        ):
            yield Key(change.key.namespace, group_key_name(change.key.name))
        for obj in _both(change):
            reference = get_controller(obj)
            if reference is None:
                continue
            group, kind = str(reference.get("apiVersion", "")).rpartition("/")[0], reference.get("kind", "")
            if (group, kind) == (self._integration.group, self._integration.kind):
                yield Key(change.key.namespace, reference.get("name", ""))
            owner = owner_index_value(group, kind, change.key.namespace, reference.get("name", ""))
            yield from self._jobs(store.keys_by_index(BY_OWNER, owner))
            if _run_permission(change.old) != _run_permission(change.new):
                yield from self._jobs(self._further_inside(owner))
        yield from self._jobs(store.keys_by_index(BY_PREBUILT_WORKLOAD, named))

    def _further_inside(self, owner: str) -> Iterator[Key]:
        """Yield jobs of the kind further below the owner, with jobs of any kinds between.

        They have the same ancestor.
        """
        ctx = self._ctx
        inside, depth = {owner}, 0
        while inside and depth < MAX_OWNER_DEPTH:
            children: set[str] = set()
            for one in ctx.settings.integrations:
                store = ctx.stores.find(resource_of(one))
                if store is None:
                    continue
                for key in (key for value in inside for key in store.keys_by_index(BY_OWNER, value)):
                    children.add(owner_index_value(one.group, one.kind, *key))
                    if depth and one is self._integration:
                        yield key
            inside, depth = children, depth + 1

    def of_workloads(self) -> Iterable[Key]:
        """Return all jobs that own a Workload, also deleted ones, for the start of the controller."""
        owners = self._ctx.stores.of(self._ctx.kinds.workloads).index_values(BY_OWNER)
        return owner_keys(owners, self._integration.group, self._integration.kind)

    def with_class(self, kind: str) -> MapToKeys:
        """Map a change to the jobs that name a priority class which is new or has another value.

        No index covers pods that another object describes. So all jobs of such a kind are returned.
        """

        def keys(change: ObjectChange) -> Iterable[Key]:
            if not priority_classes.has_new_value(change):
                return ()
            if any(one.is_required for one in self._integration.templates.referenced_kinds):
                return self._ctx.stores.of(self._resource).keys()
            value = priority_class_index_value(kind, change.key.name)
            return self._jobs(self._ctx.stores.of(self._resource).keys_by_index(BY_PRIORITY_CLASS, value))

        return keys

    def following(self, followed: ReferencedKind) -> MapToKeys:
        """Map the change of an object's spec to the jobs that refer to it."""

        def keys(change: ObjectChange) -> Iterable[Key]:
            if not _differs(change, _SPEC):
                return ()
            value = reference_index_value(followed.kind, *change.key)
            return self._ctx.stores.of(self._resource).keys_by_index(BY_REFERENCE, value)

        return keys

    def in_namespace(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the jobs of a namespace with changed labels, which may be selected now or no longer."""
        if not _differs(change, _LABELS):
            return
        jobs = self._ctx.stores.of(self._resource)
        yield from self._jobs(key for key in jobs.keys() if key.namespace == change.key.name)  # noqa: SIM118 no mapping


# --- the table ------------------------------------------------------------------------------------


def _followed(integration: Integration, one: ReferencedKind) -> FollowedResource:
    kept = one.trim_for_cache
    transform = None if kept is None else lambda obj: dict(kept(obj))
    return FollowedResource(followed_resource(integration, one), transform)


def _job_controller_spec(ctx: Context, controller: JobController) -> WhenServed:
    integration, kinds = controller.integration, ctx.kinds
    keys = _JobKeys(ctx, integration, controller.resource)
    spec = ControllerSpec(
        name=integration.framework,
        reconcile=controller.reconcile,
        watches=(
            Watch(controller.resource, keys.of_object, keys.is_urgent),
            Watch(kinds.workloads, keys.of_workload),
            Watch(kinds.workload_priority_classes, keys.with_class("WorkloadPriorityClass")),
            Watch(PRIORITY_CLASSES, keys.with_class("PriorityClass")),
            Watch(NAMESPACES, keys.in_namespace),
            *(
                Watch(followed_resource(integration, one), keys.following(one))
                for one in integration.templates.referenced_kinds
            ),
        ),
        workers=ctx.settings.workers(integration.kind, integration.group, WORKERS_OF_JOBS),
        urgent_workers=URGENT_WORKERS_OF_JOBS,
    )
    indexes = job_indexes(integration, ctx.names, ctx.settings.integrations)
    labels, slim = integration.watch.get_label_selector, integration.watch.trim_for_cache
    return WhenServed(
        controller.resource,
        indexes,
        spec,
        known=keys.of_workloads,
        follows=tuple(_followed(integration, one) for one in integration.templates.referenced_kinds),
        label_selector=None if labels is None else labels(ctx.names),
        transform=None if slim is None else lambda obj: dict(slim(obj, ctx.names)),
    )


def _in_use_protection_spec(
    ctx: Context, resource: Resource, users: Resource, index: str, used: MapToKeys
) -> ControllerSpec:
    """Return the controller that keeps objects of one kind while objects of another kind name them."""

    def is_in_use(name: str) -> bool:
        return bool(ctx.stores.of(users).keys_by_index(index, name))

    return ControllerSpec(
        name=resource.kind.lower(),
        reconcile=InUseProtectionController(ctx, resource, is_in_use).reconcile,
        watches=(Watch(resource, _itself), Watch(users, used)),
    )


def _queue_specs(ctx: Context, core: CoreView, refused: RefusedJobs) -> tuple[ControllerSpec, ...]:
    kinds = ctx.kinds
    cluster_queues, local_queues = kinds.cluster_queues, kinds.local_queues
    return (
        ControllerSpec(
            name=CLUSTER_QUEUE,
            reconcile=ClusterQueueController(ctx, core).reconcile,
            watches=(Watch(cluster_queues, _itself),),
        ),
        ControllerSpec(
            name=LOCAL_QUEUE,
            reconcile=LocalQueueController(ctx, core, refused).reconcile,
            watches=(Watch(local_queues, _itself),),
        ),
        ControllerSpec(
            name=COHORT,
            reconcile=CohortController(ctx, core).reconcile,
            watches=(Watch(kinds.cohorts, _itself),),
        ),
    )


def _elastic_pods_controller(ctx: Context) -> Iterator[WhenServed]:
    """Yield the controller of pods of elastic jobs, if jobs may be elastic."""
    if ctx.settings.elastic_jobs and any(one.scaling.can_be_elastic for one in ctx.settings.integrations):
        yield ElasticPodsController(ctx).when_served()


def _failure_recovery_controller(ctx: Context) -> Iterator[WhenServed]:
    """Yield the controller of failure recovery, if it is enabled."""
    if (delay := ctx.settings.force_delete_after) is not None:
        yield FailureRecoveryController(ctx, delay).when_served()


def build_controllers(ctx: Context, core: CoreView) -> Controllers:
    """Build all controllers for the integrations in the settings."""
    kinds, settings = ctx.kinds, ctx.settings
    owners = OwnerLookup(ctx)
    refused = RefusedJobs(ctx.stores, settings.integrations, ctx.names)
    jobs = [JobController(ctx, one, owners) for one in settings.integrations if one.serving is None]
    serving = [
        ServingController(ctx, one, one.serving)
        for one in settings.integrations
        if one.serving is not None and one.serving.list_groups is not None
    ]
    concerned = _WorkloadKeys(ctx)
    workload = ControllerSpec(
        name=WORKLOAD,
        reconcile=WorkloadController(ctx, core).reconcile,
        watches=(
            Watch(kinds.workloads, _itself),
            Watch(kinds.local_queues, concerned.in_local_queue),
            Watch(kinds.cluster_queues, concerned.in_cluster_queue),
            Watch(NAMESPACES, concerned.in_namespace),
            Watch(LIMIT_RANGES, concerned.limited),
        ),
        workers=settings.workers("Workload", kinds.workloads.group, WORKERS_OF_WORKLOADS),
    )
    classes = priority_classes.PriorityClassController(ctx)
    priorities = ControllerSpec(
        name=PRIORITY_CLASS,
        reconcile=classes.reconcile,
        watches=(
            Watch(
                kinds.workload_priority_classes,
                lambda change: (change.key,) if priority_classes.has_new_value(change) else (),
            ),
            Watch(kinds.workloads, classes.workload_with_new_class),
        ),
    )
    flavors, checks = kinds.resource_flavors, kinds.admission_checks
    return Controllers(
        specs=(
            workload,
            *_queue_specs(ctx, core, refused),
            priorities,
            _in_use_protection_spec(ctx, flavors, kinds.cluster_queues, BY_FLAVOR, _named_by(flavors_of)),
            _in_use_protection_spec(ctx, checks, kinds.cluster_queues, BY_CHECK, _named_by(checks_of)),
            _in_use_protection_spec(ctx, kinds.topologies, flavors, BY_TOPOLOGY, _named_by(topologies_of)),
        ),
        core_when_served=(provisioning_controller(ctx), *_failure_recovery_controller(ctx)),
        jobs_when_served=(
            *(_job_controller_spec(ctx, job) for job in jobs),
            # After the controller of pods, because these read its store.
            *(one.when_served() for one in serving),
            *_elastic_pods_controller(ctx),
        ),
        jobs={
            OwnerKind(job.integration.group, job.integration.version, job.integration.kind): job
            for job in jobs
        },
        refused=refused,
    )
