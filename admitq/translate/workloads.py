"""Workloads: the whole object, or only the quota that an unreadable one holds."""

import sys
from functools import lru_cache

from admitq.core.model import Admission, CheckState, Instant, ObjectKey, PodSet, ResourceProblem, Workload
from admitq.integrations.admission_gates import list_holding_gates
from admitq.integrations.ownership import is_single_pod_workload
from admitq.translate.admissions import read_admission, read_admission_leniently
from admitq.translate.enum_values import read_value_of
from admitq.translate.metadata import key_of, read_time
from admitq.translate.pod_set_updates import read_pod_set_updates
from admitq.translate.pod_sets import read_pod_set
from admitq.translate.priorities import read_base_priority_leniently, read_priority
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq.translate.read_options import ReadOptions
from admitq_api import conditions
from admitq_api.conditions import ConditionsByType, ConditionType, Reason
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField, require_int, require_list, require_object, require_text


@lru_cache(4096)
def _deduplicate(pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Return the first podsets that equal these, so that equal podsets use memory once."""
    return pod_sets


def read_replaced_key(obj: JsonObject, names: Names) -> ObjectKey | None:
    """Read the key of the Workload in the same namespace that this one replaces; None if it replaces none."""
    metadata = obj["metadata"]
    annotations = require_object(metadata.get("annotations"), "metadata.annotations")
    namespace, _, name = str(annotations.get(names.workload_slice_replacement_for, "")).partition("/")
    return ObjectKey(namespace, name) if name and namespace == metadata["namespace"] else None


def _read_queue_name(spec: JsonObject) -> str:
    """Read the name of the LocalQueue. Many Workloads share it, and then also its memory."""
    return sys.intern(require_text(spec.get("queueName"), "spec.queueName"))


def _read_reserved_at(state: ConditionsByType) -> Instant:
    return read_time((state.find(ConditionType.QUOTA_RESERVED) or {}).get("lastTransitionTime"))


def _read_evicted_at(state: ConditionsByType) -> Instant:
    evicted = state.find(ConditionType.EVICTED) or {}
    return read_time(evicted.get("lastTransitionTime")) if evicted.get("status") == "True" else 0


def read_quota_holder(obj: JsonObject) -> Workload:
    """Read only the quota of a Workload of which other fields are not readable.

    The Workload keeps its stated priority, so that preemption does not choose it first.

    Raises:
        MalformedField: the Workload holds no quota, or its admission is not readable either.
    """
    status = require_object(obj.get("status"), "status")
    state = ConditionsByType(require_list(status.get("conditions"), "status.conditions"))
    if not state.is_true(ConditionType.QUOTA_RESERVED):
        raise MalformedField("status.conditions", "QuotaReserved must be True for the Workload to hold quota")
    if not status.get("admission"):
        raise MalformedField("status.admission", "must be set for the Workload to hold quota")
    spec = require_object(obj.get("spec"), "spec")
    return Workload(
        key=key_of(obj),
        uid=obj["metadata"]["uid"],
        queue_name=str(spec.get("queueName", "")),
        queued_at=0,
        pod_sets=(),
        priority=read_base_priority_leniently(obj),
        active=spec.get("active") is not False,
        finished=state.is_true(ConditionType.FINISHED),
        admission=read_admission_leniently(status["admission"]),
        reserved_at=_read_reserved_at(state),
        admitted=state.is_true(ConditionType.ADMITTED),
        pods_ready=state.is_true(ConditionType.PODS_READY),
        evicted=state.is_true(ConditionType.EVICTED),
    )


def _read_admission_gates(obj: JsonObject, names: Names, how: ReadOptions) -> tuple[str, ...]:
    """Read the admission gates of a Workload: those of its annotation, or else those that its status reports.

    A reported gate applies until the status reports its removal.
    """
    gates = list_holding_gates(obj, names) if how.allows_admission_gates else ()
    return tuple(gates) or conditions.list_reported_gates(value_at(obj, ("status", "conditions")))


_DEFAULT_READING = ReadOptions()


def _count_pods(pod_sets: tuple[PodSet, ...]) -> dict[str, int]:
    return {pod_set.name: pod_set.count for pod_set in pod_sets}


def _read_finished(obj: JsonObject, state: ConditionsByType) -> Workload:
    """Read what identifies a finished Workload, and the ClusterQueue of the quota that it held.

    It holds no quota and is never evaluated, so its requests do not matter.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    admission = require_object(obj["status"].get("admission"), "status.admission")
    held = state.is_true(ConditionType.QUOTA_RESERVED) and admission
    return Workload(
        key=key_of(obj),
        uid=metadata["uid"],
        queue_name=_read_queue_name(spec),
        queued_at=0,
        pod_sets=(),
        generation=metadata.get("generation", 1),
        finished=True,
        deleting="deletionTimestamp" in metadata,
        admission=_admission_in(require_text(admission.get("clusterQueue"), "status.admission.clusterQueue"))
        if held
        else None,
        admitted=bool(held) and state.is_true(ConditionType.ADMITTED),
    )


@lru_cache(4096)
def _admission_in(cluster_queue: str) -> Admission:
    return Admission(cluster_queue, ())


def read_workload(obj: JsonObject, names: Names, how: ReadOptions = _DEFAULT_READING) -> Workload:
    """Read a Workload in any phase. Of a finished one, read only what identifies it.

    Raises:
        MalformedField: the structure, an operator or the resource usage of the admission is not readable.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    status = require_object(obj.get("status"), "status")
    state = ConditionsByType(require_list(status.get("conditions"), "status.conditions"))
    if state.is_true(ConditionType.FINISHED):
        return _read_finished(obj, state)
    problems: list[ResourceProblem] = []
    pod_sets = tuple(
        read_pod_set(item, f"spec.podSets[{index}]", problems)
        for index, item in enumerate(require_list(spec.get("podSets"), "spec.podSets"))
    )
    # Only the condition counts. An admission without the condition is from an earlier reservation, and holds
    # no quota.
    reserved = state.is_true(ConditionType.QUOTA_RESERVED)
    if reserved and not status.get("admission"):
        raise MalformedField("status.admission", "must be set while the QuotaReserved condition is true")
    quota = state.find(ConditionType.QUOTA_RESERVED) or {}
    requeued = state.find(ConditionType.REQUEUED) or {}
    requeue_at = require_object(status.get("requeueState"), "status.requeueState").get("requeueAt")
    return Workload(
        key=key_of(obj),
        uid=metadata["uid"],
        queue_name=_read_queue_name(spec),
        queued_at=read_queue_order_timestamp(obj, how),
        pod_sets=_deduplicate(pod_sets),
        priority=sum(read_priority(obj, names, how)),
        generation=metadata.get("generation", 1),
        active=spec.get("active", True),
        deleting="deletionTimestamp" in metadata,
        admission=read_admission(status["admission"], _count_pods(pod_sets)) if reserved else None,
        reserved_at=_read_reserved_at(state) if reserved else 0,
        admitted=reserved and state.is_true(ConditionType.ADMITTED),
        pods_ready=state.is_true(ConditionType.PODS_READY),
        evicted=state.is_true(ConditionType.EVICTED),
        evicted_at=_read_evicted_at(state),
        requeue_at=conditions.parse_time(requeue_at) if requeue_at else None,
        requeue_blocked=requeued.get("status") == "False",
        on_hold=quota.get("status") == "False" and quota.get("reason") == Reason.ON_HOLD,
        waiting_for_replacement_pods=state.is_true(ConditionType.WAITING_FOR_REPLACEMENT_PODS),
        admission_gates=_read_admission_gates(obj, names, how),
        reclaimable_pods=tuple(
            sorted(
                (
                    require_text(item["name"], "status.reclaimablePods"),
                    require_int(item["count"], f"status.reclaimablePods[{index}].count"),
                )
                for index, item in enumerate(
                    require_list(status.get("reclaimablePods"), "status.reclaimablePods")
                )
            )
        ),
        admission_checks=tuple(
            sorted(
                (
                    require_text(item["name"], "status.admissionChecks"),
                    read_value_of(CheckState, item["state"], f"status.admissionChecks[{index}].state")
                    or CheckState.PENDING,
                )
                for index, item in enumerate(
                    require_list(status.get("admissionChecks"), "status.admissionChecks")
                )
            )
        ),
        pod_set_updates=read_pod_set_updates(status.get("admissionChecks")),
        unhealthy_nodes=tuple(
            require_text(node.get("name"), f"status.unhealthyNodes[{index}].name")
            for index, node in enumerate(require_list(status.get("unhealthyNodes"), "status.unhealthyNodes"))
        ),
        is_single_pod=is_single_pod_workload(obj),
        has_closed_preemption_gate=any(
            gate.get("position") == "Closed"
            for gate in require_list(status.get("preemptionGates"), "status.preemptionGates")
        ),
        resource_problems=tuple(problems),
        replaces=read_replaced_key(obj, names) if how.allows_replacement else None,
    )
