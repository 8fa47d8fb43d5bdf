"""The controller of pods of elastic jobs: removes their scheduling gate when an admitted slice has room.

It reconciles one chain of slices at a time, when a Workload or a pod of the chain changes. A decision
depends on the admitted slice, the pods without gate that have not ended, and the gated pods (semantics,
Elastic jobs). If another program removed the gate of a pod without reserved quota, the controller deletes
the pod, newest first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, StartCondition, Watch, WhenServed
from admitq.controllers.indexes import BY_CHAIN, namespaced_index_value, slice_chain_index
from admitq.controllers.plan import (
    Action,
    ActionPlan,
    Delete,
    RecordEvent,
    RemoveSchedulingGate,
    execute_plan,
    plan_of,
    record_gate_wait,
)
from admitq.controllers.pods.excess_pods import (
    EXCESS_POD_DELETED,
    EXCESS_POD_NOTE,
    find_charged_slice,
    find_excess_pods,
    find_last_slice,
    job_kind_label,
    record_excess_pods,
)
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS, observe_newer_workloads
from admitq.core.model import Instant
from admitq.integrations.base import Integration
from admitq.integrations.families import pods
from admitq.integrations.ownership import get_controller
from admitq.runtime.resources import PODS
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.pod_counts import covered_pod_counts
from admitq.workloads.transitions import is_admitted, is_condition_true, is_finished_or_deleting
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, select_fields, value_at
from admitq_api.labels import Names

ELASTIC_PODS: Final = "elasticpods"
"""Name of the controller."""

STARTED_PODS: Final = replace(PODS, view="of started jobs")
"""Pods of started jobs that have not ended, except pods that are jobs themselves."""

_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)

CONCERN: Final = "elastic-jobs"
WORKERS: Final = 4


def allowed_counts(workload: JsonObject) -> Mapping[str, int]:
    """Return the pods that an admission allows, by podset.

    A slice that is not admitted, evicted or finished allows none.

    Without a reservation no pod may run, even if another program set Admitted, because a removed gate
    cannot be added again.
    """
    leaves = is_condition_true(workload, ConditionType.EVICTED) or is_finished_or_deleting(workload)
    if leaves or not is_admitted(workload):
        return {}
    return covered_pod_counts(workload)


def find_admitted_slice(slices: Iterable[JsonObject], names: Names) -> JsonObject | None:
    """Return the slice with the admission that counts: the last admitted one, which replaces earlier ones."""
    return find_last_slice((workload for workload in slices if allowed_counts(workload)), names)


def is_gated(pod: JsonObject, names: Names) -> bool:
    """Whether the gate of elastic jobs holds the pod."""
    return pods.has_gate(pod, names.elastic_gate)


def find_pods_to_ungate(
    members: Iterable[JsonObject], room: Mapping[str, int], names: Names
) -> list[JsonObject]:
    """Return the gated pods to start, oldest first, as many of each podset as its room allows."""
    alive = sorted((pod for pod in members if not pods.has_ended(pod)), key=pods.get_age_key)
    free = Counter(room)
    free.subtract(pods.get_label(pod, names.podset) for pod in alive if not is_gated(pod, names))
    gated: list[JsonObject] = []
    for pod in alive:
        name = pods.get_label(pod, names.podset)
        if is_gated(pod, names) and not pods.is_being_deleted(pod) and free[name] > 0:
            free[name] -= 1
            gated.append(pod)
    return gated


def filter_pods_of_job(
    slices: Iterable[JsonObject], named: Iterable[JsonObject], integrations: Iterable[Integration]
) -> list[JsonObject]:
    """Return those pods of a chain that the job of the chain controls.

    Users can create pods with any annotation. Such pods must not take the place of pods of the job. The
    controller of a pod must be the job, or be of a kind that the job's controller creates.
    """
    creates = {
        (integration.group, integration.kind): integration.ownership.created_kinds
        or frozenset[tuple[str, str]]()
        for integration in integrations
    }
    jobs = [reference for workload in slices if (reference := get_controller(workload)) is not None]
    uids = {job.get("uid") for job in jobs}
    between = {kind for job in jobs for kind in creates.get(_kind(job), ())}

    def is_of_job(pod: JsonObject) -> bool:
        reference = get_controller(pod)
        return reference is not None and (reference.get("uid") in uids or _kind(reference) in between)

    return [pod for pod in named if is_of_job(pod)]


def _kind(reference: JsonObject) -> tuple[str, str]:
    return str(reference.get("apiVersion", "")).rpartition("/")[0], str(reference.get("kind", ""))


def remove_gates(
    slices: Iterable[JsonObject], members: Iterable[JsonObject], names: Names, now: Instant
) -> ActionPlan:
    """Return the plan that removes the gates of pods for which the admission has room."""
    admitted = find_admitted_slice(slices, names)
    actions: list[Action] = []
    for pod in () if admitted is None else find_pods_to_ungate(members, allowed_counts(admitted), names):
        actions += (
            RemoveSchedulingGate(STARTED_PODS, pod, names.elastic_gate, CONCERN),
            record_gate_wait(names.elastic_gate, pod, admitted, now, is_group=False),
        )
    return plan_of(*actions)


def delete_excess_pods(
    slices: Sequence[JsonObject], excess: Iterable[JsonObject], names: Names
) -> ActionPlan:
    """Return the plan that deletes pods beyond the quota of their chain, and reports and counts each."""
    charged = find_charged_slice(slices, names) or {}
    actions: list[Action] = []
    for pod in excess:
        actions += (
            Delete(STARTED_PODS, pod),
            RecordEvent(pod, "Warning", EXCESS_POD_DELETED, EXCESS_POD_NOTE),
            record_excess_pods(charged, job_kind_label(charged), 1),
        )
    return plan_of(*actions)


# --- watching -------------------------------------------------------------------------------------


def trim_elastic_pod(pod: JsonObject, names: Names) -> dict[str, Any]:
    """Return the fields of a pod that this controller reads; only metadata without an elastic job."""
    metadata = pods.get_mapping(pod, "metadata")
    stored = select_fields(metadata, _KEPT_METADATA)
    if not (chain := pods.get_annotation(pod, names.workload_slice_name)):
        return {"metadata": stored}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            **stored,
            **select_fields(metadata, ("ownerReferences",)),
            "labels": {names.podset: pods.get_label(pod, names.podset)},
            "annotations": {names.workload_slice_name: chain},
        },
        "spec": {"schedulingGates": value_at(pod, ("spec", "schedulingGates"), [])},
        "status": {"phase": pods.get_phase(pod)},
    }


class ElasticPodsController:
    """Reconciles chains of slices, one at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._chains = slice_chain_index(ctx.names)

    async def reconcile(self, key: Key) -> float | None:
        """Delete pods beyond the quota of a chain, or else remove gates of pods for which there is room.

        Raises:
            ApiError: a write failed.
        """
        ctx, chain = self._ctx, namespaced_index_value(*key)
        store = ctx.stores.find(STARTED_PODS)
        if store is None:
            return None
        slices = ctx.stores.of(ctx.kinds.workloads).by_index(BY_CHAIN, chain)
        members = filter_pods_of_job(slices, store.by_index(BY_CHAIN, chain), ctx.settings.integrations)
        now = ctx.clock()
        if excess := find_excess_pods(slices, members, ctx.names, now):
            # A deletion cannot be undone, and the store of pods may be newer than that of Workloads.
            if await self._has_newer_slices(key.namespace, slices):
                return STALE_STORE_RETRY_SECONDS
            return await execute_plan(ctx, delete_excess_pods(slices, excess, ctx.names))
        return await execute_plan(ctx, remove_gates(slices, members, ctx.names, now))

    async def _has_newer_slices(self, namespace: str, slices: Iterable[JsonObject]) -> bool:
        ctx, label = self._ctx, self._ctx.names.job_uid
        for uid in {(get_controller(workload) or {}).get("uid", "") for workload in slices}:
            current, _ = await ctx.client.list(
                ctx.kinds.workloads, namespace, label_selector=f"{label}={uid}"
            )
            if observe_newer_workloads(ctx, current):
                return True
        return False

    def when_served(self) -> WhenServed:
        """Return the record that describes this controller."""
        names, workloads = self._ctx.names, self._ctx.kinds.workloads
        spec = ControllerSpec(
            name=ELASTIC_PODS,
            reconcile=self.reconcile,
            watches=(Watch(STARTED_PODS, self._chain_of), Watch(workloads, self._chain_of)),
            workers=WORKERS,
        )
        return WhenServed(
            STARTED_PODS,
            {BY_CHAIN: self._chains},
            spec,
            label_selector=f"{names.podset},!{names.managed}",
            field_selector=pods.NOT_ENDED,
            transform=lambda pod: trim_elastic_pod(pod, names),
            # So clusters without elastic jobs have no watch of all pods of jobs.
            start_condition=StartCondition(workloads, self._has_chains),
        )

    def _has_chains(self) -> bool:
        return bool(self._ctx.stores.of(self._ctx.kinds.workloads).index_values(BY_CHAIN))

    def _chain_of(self, change: ObjectChange) -> Iterator[Key]:
        for value in self._chains(change.object):
            yield Key(change.key.namespace, value.partition("/")[2])
