"""Finds jobs and their Workloads in the stores, and reads a job that is not stored from the API server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from admitq.controllers.context import Context
from admitq.controllers.indexes import (
    BY_GROUP,
    BY_OWNER,
    find_foreign_pods,
    followed_resource,
    group_of_key_name,
    namespaced_index_value,
    owner_index_value,
    resource_of,
)
from admitq.controllers.job import members
from admitq.controllers.job.case import JobCase
from admitq.controllers.job.workload_slices import is_elastic
from admitq.integrations.base import Composition, CompositionOptions, Integration
from admitq.integrations.ownership import is_controlled_by, is_served_workload
from admitq.integrations.references import ObjectReference, OwnerKind
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.runtime.store import Key, Store
from admitq_api.json_objects import JsonObject, value_at


class JobPresence(Enum):
    """Whether the API server has a job that is not in the store."""

    ABSENT = auto()
    PRESENT = auto()
    """The store is behind the API server."""
    UNMANAGED = auto()
    """The owner exists and is not queued, but another program may label it later. Its Workloads are kept."""


class StoredJobs:
    """Finds the jobs of one kind and their Workloads in the stores.

    Args:
        ctx: stores, client and settings.
        integration: the kind of the jobs.
    """

    def __init__(self, ctx: Context, integration: Integration) -> None:
        self._ctx = ctx
        self._integration = integration
        self._resource = resource_of(integration)
        self._followed: Mapping[OwnerKind, Resource] = {
            kind.kind: followed_resource(integration, kind) for kind in integration.templates.referenced_kinds
        }

    def find_job(self, key: Key, store: Store, foreign: Sequence[JsonObject]) -> JsonObject | None:
        """Return the job without foreign members; a group is composed of its members."""
        composition = self._integration.composition
        if composition is None:
            return store.get(key.namespace, key.name)
        group = group_of_key_name(key.name)
        stored = (
            store.by_index(BY_GROUP, namespaced_index_value(key.namespace, group))
            if group
            else (store.get(key.namespace, key.name),)
        )
        refused = {member["metadata"].get("uid") for member in foreign}
        present = [obj for obj in stored if obj is not None and obj["metadata"].get("uid") not in refused]
        return self.compose(composition, present, group)

    def find_foreign_members(self, key: Key, store: Store) -> Sequence[JsonObject]:
        """Return members that name the Workload of a serving object without belonging to that object."""
        group = group_of_key_name(key.name)
        workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, group) if group else None
        if workload is None or not is_served_workload(workload, self._ctx.names):
            return ()
        members = store.by_index(BY_GROUP, namespaced_index_value(key.namespace, group))
        return find_foreign_pods(workload, members, self._ctx.names, self._ctx.settings.integrations)

    def compose(
        self, composition: Composition, stored: Sequence[JsonObject], group: str
    ) -> JsonObject | None:
        """Compose a group of those objects that are its members; None if there are none."""
        names, settings = self._ctx.names, self._ctx.settings
        present = [
            obj for obj in stored if self._is_member(obj) and composition.get_group(obj, names) == group
        ]
        if not present:
            return None
        moment = CompositionOptions(
            self._ctx.clock(), deleted_pods_release_quota=settings.pods.fast_quota_release
        )
        return composition.compose(present, names, moment)

    def _is_member(self, obj: JsonObject) -> bool:
        composition, names = self._integration.composition, self._ctx.names
        return (
            composition is not None
            and self._integration.may_manage(obj, names)
            and composition.is_member(obj, names)
        )

    def find_workloads(self, key: Key, job: JsonObject | None) -> tuple[JsonObject, ...]:
        """Return the Workloads with a controller of the kind and name of the job, or of its group."""
        if group := group_of_key_name(key.name):
            workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, group)
            mine = members.find_group_workload(
                job or {},
                workload,
                self._ctx.names,
                validate=self._ctx.settings.pods.validate_group_owner,
                by_annotation=self._ctx.settings.names_by_annotation,
            )
            return () if mine is None else (mine,)
        owner = owner_index_value(self._integration.group, self._integration.kind, key.namespace, key.name)
        return self._ctx.stores.of(self._ctx.kinds.workloads).by_index(BY_OWNER, owner)

    async def check_presence(self, key: Key, workloads: Sequence[JsonObject]) -> JobPresence:
        """Read a job that is not in the store from the API server, and return whether it exists.

        After a start, the store of jobs may be older than the store of Workloads. The finish of a Workload
        cannot be undone, so the API server must confirm that the job is absent.

        Raises:
            ApiError: a call to the API server failed.
        """
        try:
            if group_of_key_name(key.name):
                return JobPresence.ABSENT if await self._has_no_members(key) else JobPresence.PRESENT
            job = await self._ctx.client.get(self._resource, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return JobPresence.ABSENT if error.concerns(key.name) else JobPresence.PRESENT
            raise
        if self._integration.composition is None or self._is_member(job):
            return JobPresence.PRESENT
        remaining = [workload for workload in workloads if "deletionTimestamp" not in workload["metadata"]]
        return (
            JobPresence.UNMANAGED
            if any(is_controlled_by(workload, job) for workload in remaining)
            else JobPresence.ABSENT
        )

    async def _has_no_members(self, key: Key) -> bool:
        selector = self._integration.watch.get_label_selector
        listed, _ = await self._ctx.client.list(
            self._resource,
            key.namespace,
            label_selector=selector(self._ctx.names) if selector is not None else None,
        )
        composition = self._integration.composition
        return composition is None or self.compose(composition, listed, group_of_key_name(key.name)) is None

    def resolve(self, case: JobCase) -> JobCase:
        """Return the case with the existing objects that define the pods of the job, and the missing ones.

        The object that runs the pods is looked up even if it does not define them.
        """
        if case.job is None:
            return case
        templates = self._integration.templates
        found = {
            reference: self._find_referenced(reference, case.job)
            for reference in templates.list_references(case.job)
        }
        counted = is_elastic(case)
        defining = {
            reference: obj
            for reference, obj in found.items()
            if counted or self._integration.is_required(reference)
        }
        existing = {reference: obj for reference, obj in defining.items() if obj is not None}
        path = templates.active_object
        active = None if path is None else value_at(case.job, path)
        return replace(
            case,
            job=templates.resolve(case.job, existing),
            missing=tuple(reference for reference in defining if reference not in existing),
            lacks_active_object=any(
                reference.name == active and obj is None for reference, obj in found.items()
            ),
        )

    def _find_referenced(self, reference: ObjectReference, job: JsonObject) -> JsonObject | None:
        resource = self._followed.get(reference.kind)
        store = None if resource is None else self._ctx.stores.find(resource)
        obj = None if store is None else store.get(reference.namespace, reference.name)
        if obj is None or self._integration.is_required(reference):
            return obj
        # The status of a job may name any object. Ignore an object that belongs to another job.
        return obj if is_controlled_by(obj, job) else None
