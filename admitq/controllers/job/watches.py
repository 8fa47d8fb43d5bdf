"""The watches of job controllers, and which keys each change reconciles."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from admitq.controllers import priority_classes
from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, FollowedResource, MapToKeys, Watch, WhenServed
from admitq.controllers.indexes import (
    BY_GROUP,
    BY_OWNER,
    BY_PREBUILT_WORKLOAD,
    BY_PRIORITY_CLASS,
    BY_REFERENCE,
    followed_resource,
    group_key_name,
    job_indexes,
    namespaced_index_value,
    owner_index_value,
    owner_keys,
    priority_class_index_value,
    reference_index_value,
    resource_of,
)
from admitq.controllers.job.controller import JobController
from admitq.controllers.key_maps import LABELS, SPEC, differs, iterate_states
from admitq.integrations.base import Integration
from admitq.integrations.ownership import MAX_OWNER_DEPTH, get_controller, is_group_workload
from admitq.integrations.references import ReferencedKind
from admitq.runtime.resources import NAMESPACES, PRIORITY_CLASSES, Resource
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.transitions import is_admitted, is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at

WORKERS: Final = 16
URGENT_WORKERS: Final = 16
"""As many as other workers: a worker mostly waits for the API server, and many jobs can be urgent at once."""

_GENERATION: Final = ("metadata", "generation")


class _JobKeys:
    """Maps changes of other objects to keys of jobs of one kind."""

    def __init__(self, ctx: Context, integration: Integration, resource: Resource) -> None:
        self._ctx = ctx
        self._integration = integration
        self._resource = resource

    def of_object(self, change: ObjectChange) -> Iterable[Key]:
        """Return the job that the object is, or of which it is a member."""
        if self._integration.composition is None:
            return (change.key,)
        return {*map(self._job, iterate_states(change))}

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

    def _jobs(self, objects: Iterable[Key]) -> Iterator[Key]:
        """Yield the jobs that these objects are, or of which they are members."""
        if self._integration.composition is None:
            yield from objects
            return
        store = self._ctx.stores.of(self._resource)
        for key in objects:
            if (obj := store.get(*key)) is not None:
                yield self._job(obj)

    def of_workload(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the owner and group of a Workload, jobs inside the owner, and jobs that may adopt it."""
        store = self._ctx.stores.of(self._resource)
        named = namespaced_index_value(*change.key)
        if self._integration.composition is not None and (
            is_group_workload(change.object, self._ctx.names) or store.keys_by_index(BY_GROUP, named)
        ):
            yield Key(change.key.namespace, group_key_name(change.key.name))
        for obj in iterate_states(change):
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
        """Yield jobs of the kind below the children of the owner, with jobs of any kinds between.

        They have the same ancestor.
        """
        ctx = self._ctx
        inside, depth = {owner}, 0
        while inside and depth < MAX_OWNER_DEPTH:
            children: set[str] = set()
            for integration in ctx.settings.integrations:
                store = ctx.stores.find(resource_of(integration))
                if store is None:
                    continue
                for key in (key for value in inside for key in store.keys_by_index(BY_OWNER, value)):
                    children.add(owner_index_value(integration.group, integration.kind, *key))
                    if depth and integration is self._integration:
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
            if any(referenced.is_required for referenced in self._integration.templates.referenced_kinds):
                return self._ctx.stores.of(self._resource).keys()
            value = priority_class_index_value(kind, change.key.name)
            return self._jobs(self._ctx.stores.of(self._resource).keys_by_index(BY_PRIORITY_CLASS, value))

        return keys

    def following(self, followed: ReferencedKind) -> MapToKeys:
        """Map the change of an object's spec to the jobs that refer to it."""

        def keys(change: ObjectChange) -> Iterable[Key]:
            if not differs(change, SPEC):
                return ()
            value = reference_index_value(followed.kind, *change.key)
            return self._ctx.stores.of(self._resource).keys_by_index(BY_REFERENCE, value)

        return keys

    def in_namespace(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the jobs of a namespace with changed labels, which may be selected now or no longer."""
        if not differs(change, LABELS):
            return
        jobs = self._ctx.stores.of(self._resource)
        yield from self._jobs(key for key in jobs.keys() if key.namespace == change.key.name)  # noqa: SIM118 no mapping


def _run_permission(workload: JsonObject | None) -> Sequence[object] | None:
    """Return what decides whether objects inside the Workload's job may run; None without a Workload."""
    if workload is None:
        return None
    ends = (ConditionType.FINISHED, ConditionType.EVICTED)
    return [
        get_controller(workload),
        is_admitted(workload),
        *(is_condition_true(workload, end) for end in ends),
    ]


def _followed(integration: Integration, kind: ReferencedKind) -> FollowedResource:
    trim = kind.trim_for_cache
    transform = None if trim is None else lambda obj: dict(trim(obj))
    return FollowedResource(followed_resource(integration, kind), transform)


def job_controller(ctx: Context, controller: JobController) -> WhenServed:
    """Return the controller of a job kind, which runs while the API server serves the kind."""
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
                Watch(followed_resource(integration, kind), keys.following(kind))
                for kind in integration.templates.referenced_kinds
            ),
        ),
        workers=ctx.settings.workers(integration.kind, integration.group, WORKERS),
        urgent_workers=URGENT_WORKERS,
    )
    indexes = job_indexes(integration, ctx.names, ctx.settings.integrations)
    labels, trim = integration.watch.get_label_selector, integration.watch.trim_for_cache
    return WhenServed(
        controller.resource,
        indexes,
        spec,
        known=keys.of_workloads,
        follows=tuple(_followed(integration, kind) for kind in integration.templates.referenced_kinds),
        label_selector=None if labels is None else labels(ctx.names),
        transform=None if trim is None else lambda obj: dict(trim(obj, ctx.names)),
    )
