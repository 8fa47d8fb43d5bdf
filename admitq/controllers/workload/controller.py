"""The controller of Workloads: gathers the inputs of a decision and carries out its plan."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from admitq.controllers.context import Context, CoreView
from admitq.controllers.indexes import BY_CHAIN, slice_chain_index
from admitq.controllers.plan import execute_plan, has_finalizer
from admitq.controllers.pods.remaining_pods_finder import RemainingPodsFinder
from admitq.controllers.workload.absent_owners import AbsentOwners
from admitq.controllers.workload.case import WorkloadInputs
from admitq.controllers.workload.execution_times import ExecutionTimes
from admitq.controllers.workload.finishing import is_final, is_orphan
from admitq.controllers.workload.steps import decide_workload
from admitq.core.model import Instant, ObjectKey
from admitq.runtime.store import Key
from admitq.translate.messages import bypassed_condition, pending_condition
from admitq.translate.workloads import read_replaced_key
from admitq.workloads.transitions import reserved_cluster_queue
from admitq_api.conditions import ConditionType, is_false
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

HELD_RETRY_SECONDS: Final = 10.0
"""Interval of reconciling a deleted Workload that is kept until its job has stopped.

Its kind may become unserved meanwhile, which no watch of Workloads shows.
"""


def _is_quarantined(queue: JsonObject | None, *, is_known: bool) -> bool:
    """Whether a queue is quarantined: the core does not know it, and its condition Active is False."""
    return not is_known and is_false(value_at(queue, ("status", "conditions")), ConditionType.ACTIVE)


def _is_held_for_owner(workload: JsonObject, names: Names) -> bool:
    metadata = workload["metadata"]
    is_deleted = "deletionTimestamp" in metadata and has_finalizer(workload, names.finalizer)
    return is_deleted and bool(metadata.get("ownerReferences"))


class WorkloadController:
    """Reconciles Workloads, one at a time."""

    def __init__(self, ctx: Context, core: CoreView) -> None:
        self._ctx = ctx
        self._core = core
        self._absent_owners = AbsentOwners(ctx)
        self._remaining_pods = RemainingPodsFinder(ctx)
        self._chains = slice_chain_index(ctx.names)
        self._executions = ExecutionTimes(ctx.clock)
        ctx.stores.of(ctx.kinds.workloads).subscribe(self._executions.observe)
        self._acting_since: Instant | None = None

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one Workload; returns in how many seconds to reconcile it again."""
        if self._acting_since is None:
            self._acting_since = self._ctx.clock()
        workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, key.name)
        if workload is None or is_final(workload, self._ctx.names, self._ctx.settings):
            return None
        inputs = self._gather_inputs(key, workload)
        is_held = _is_held_for_owner(workload, self._ctx.names)
        if is_held and await self._absent_owners.are_all(workload):
            inputs = replace(inputs, owners_gone=True)
        if is_orphan(workload, inputs):
            remaining_pods = await self._remaining_pods.find_without_job((workload,))
            remaining = remaining_pods.get(workload["metadata"]["uid"])
            inputs = replace(inputs, remaining_pods=remaining, slices=self._slices(workload))
        requeue_after = await execute_plan(self._ctx, decide_workload(workload, inputs, self._ctx.clock()))
        return min(requeue_after or HELD_RETRY_SECONDS, HELD_RETRY_SECONDS) if is_held else requeue_after

    def _slices(self, workload: JsonObject) -> Sequence[JsonObject]:
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        return [
            slice_workload
            for chain in self._chains(dict(workload))
            for slice_workload in workloads.by_index(BY_CHAIN, chain)
        ]

    def _gather_inputs(self, key: Key, workload: JsonObject) -> WorkloadInputs:
        ctx, kinds = self._ctx, self._ctx.kinds
        queue_name: Any = value_at(workload, ("spec", "queueName"), "")
        local_queue = ctx.stores.of(kinds.local_queues).get(key.namespace, queue_name)
        name = reserved_cluster_queue(workload) or value_at(local_queue, ("spec", "clusterQueue"), "")
        cluster_queue = ctx.stores.of(kinds.cluster_queues).get("", name)
        is_active = self._core.is_cluster_queue_active(name)
        is_local_known = self._core.has_local_queue(ObjectKey(key.namespace, queue_name))
        object_key = ObjectKey(key.namespace, key.name)
        parked = self._core.last_refusal(object_key) if self._core.is_bypassed(object_key) else None
        inadmissible = self._core.find_inadmissibility(object_key)
        return WorkloadInputs(
            names=ctx.names,
            kinds=kinds,
            settings=ctx.settings,
            local_queue=local_queue,
            is_local_queue_readable=not _is_quarantined(local_queue, is_known=is_local_known),
            cluster_queue=cluster_queue,
            cluster_queue_name=name,
            cluster_queue_active=False
            if _is_quarantined(cluster_queue, is_known=is_active is not None)
            else is_active,
            inadmissible=inadmissible and pending_condition(inadmissible),
            original=self._original(workload) if ctx.settings.elastic_jobs else None,
            bypassed=parked and bypassed_condition(parked),
            unrecorded_execution=self._executions.unrecorded(key),
            acting_since=self._acting_since or 0,
        )

    def _original(self, workload: JsonObject) -> JsonObject | None:
        key = read_replaced_key(workload, self._ctx.names)
        return None if key is None else self._ctx.stores.of(self._ctx.kinds.workloads).get(*key)
