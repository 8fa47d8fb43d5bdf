"""The controller of one kind of serving objects: gathers the inputs of a decision and executes its plan."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, Watch, WhenServed
from admitq.controllers.indexes import (
    BY_OWNER,
    BY_PARENT,
    controller_index_values,
    owner_index_value,
    owner_keys,
    resource_of,
    serving_parents_of_pod,
)
from admitq.controllers.lookups import lookups_for_namespace, needs_cleanup
from admitq.controllers.plan import execute_plan, writes_pod_sets
from admitq.controllers.pods.remaining_pods import next_check_seconds
from admitq.controllers.pods.remaining_pods_finder import RemainingPodsFinder
from admitq.controllers.serving.decision import ServingCase, decide_serving, is_owned
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS
from admitq.core.selectors import selects_namespace
from admitq.integrations.base import Integration, Serving
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.resources import NAMESPACES, PODS
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.job_workloads import WorkloadNotPossible
from admitq_api.json_objects import value_at

WORKERS: Final = 4


class ServingController:
    """Reconciles the serving objects of one kind. Their pods are queued in groups."""

    def __init__(self, ctx: Context, integration: Integration, serving: Serving) -> None:
        self.integration = integration
        self.resource = resource_of(integration)
        self._ctx = ctx
        self._serving = serving
        self._remaining_pods = RemainingPodsFinder(ctx)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one object; returns after how many seconds to reconcile it again."""
        ctx, stores, kinds = self._ctx, self._ctx.stores, self._ctx.kinds
        store, pods = stores.find(self.resource), stores.find(PODS)
        if store is None or pods is None:
            return None
        job = store.get(key.namespace, key.name)
        owner = owner_index_value(self.integration.group, self.integration.kind, key.namespace, key.name)
        workloads = stores.of(kinds.workloads).by_index(BY_PARENT, owner)
        namespace = stores.of(NAMESPACES).get("", key.namespace)
        if job is None:
            if not any(needs_cleanup(workload, ctx.names) for workload in workloads):
                return None
            if not await self._is_gone(key):
                return STALE_STORE_RETRY_SECONDS
        elif namespace is None:
            return STALE_STORE_RETRY_SECONDS
        labels = value_at(namespace, ("metadata", "labels"), {})
        case = ServingCase(
            integration=self.integration,
            serving=self._serving,
            names=ctx.names,
            kinds=kinds,
            settings=ctx.settings,
            now=ctx.clock(),
            job=job,
            pods=pods.by_index(BY_PARENT, owner),
            workloads=workloads,
            lookups=lookups_for_namespace(ctx, key.namespace),
            namespace_matches=selects_namespace(ctx.settings.namespace_selector, labels),
            is_namespace_terminating=value_at(namespace, ("metadata", "deletionTimestamp")) is not None,
        )
        orphaned = [workload for workload in workloads if job is None or not is_owned(workload, job)]
        case = replace(case, remaining_pods=await self._remaining_pods.find(orphaned))
        decided = decide_serving(case)
        looks = [
            next_check_seconds(workload, case.now)
            for workload in orphaned
            if workload["metadata"]["uid"] in case.remaining_pods
        ]
        try:
            requeue_after = await execute_plan(ctx, decided)
            return min((delay for delay in (requeue_after, *looks) if delay is not None), default=None)
        except ApiError as error:
            if error.is_already_exists:
                return STALE_STORE_RETRY_SECONDS
            if error.is_namespace_terminating:
                return None
            if job is not None and error.is_rejected and writes_pod_sets(decided, kinds.workloads):
                ctx.recorder.event(dict(job), "Warning", WorkloadNotPossible.reason, error.message)
                if error.is_invalid:
                    raise PermanentRejection(error.message) from error
            raise

    async def _is_gone(self, key: Key) -> bool:
        """Whether the API server confirms that an object is absent. Finishing Workloads cannot be undone."""
        try:
            await self._ctx.client.get(self.resource, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return error.concerns(key.name)
            raise
        return False

    # --- from changes to keys ---------------------------------------------------------------------

    def when_served(self) -> WhenServed:
        """Return the record that describes this controller."""
        ctx, kinds = self._ctx, self._ctx.kinds
        spec = ControllerSpec(
            name=self.integration.framework,
            reconcile=self.reconcile,
            watches=(
                Watch(self.resource, lambda change: (change.key,)),
                Watch(PODS, self._of_pod),
                Watch(kinds.workloads, self._of_workload),
                Watch(kinds.workload_priority_classes, lambda _: self._everyone()),
                Watch(NAMESPACES, self._in_namespace),
            ),
            workers=ctx.settings.workers(self.integration.kind, self.integration.group, WORKERS),
        )
        return WhenServed(self.resource, {BY_OWNER: controller_index_values}, spec, known=self._of_workloads)

    def _of_pod(self, change: ObjectChange) -> Iterator[Key]:
        for obj in (change.old, change.new):
            if obj is not None:
                parents = serving_parents_of_pod(obj, self._ctx.names, (self.integration,))
                yield from owner_keys(parents, self.integration.group, self.integration.kind)

    def _of_workload(self, change: ObjectChange) -> Iterator[Key]:
        names = self._ctx.names
        kind = self.integration
        for obj in (change.old, change.new):
            annotations = value_at(obj, ("metadata", "annotations"), {})
            if annotations.get(names.job_owner_gvk) == f"{kind.api_version}, Kind={kind.kind}":
                yield Key(change.key.namespace, str(annotations.get(names.job_owner_name, "")))

    def _of_workloads(self) -> Iterator[Key]:
        controller_index_values = self._ctx.stores.of(self._ctx.kinds.workloads).index_values(BY_PARENT)
        yield from owner_keys(controller_index_values, self.integration.group, self.integration.kind)

    def _everyone(self) -> tuple[Key, ...]:
        return tuple(self._ctx.stores.of(self.resource).keys())

    def _in_namespace(self, change: ObjectChange) -> Iterator[Key]:
        before, after = (value_at(obj, ("metadata", "labels")) for obj in (change.old, change.new))
        if before != after:
            yield from (key for key in self._everyone() if key.namespace == change.key.name)
