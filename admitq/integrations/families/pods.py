"""The state of a pod: its group, and whether it is held, runs, or has ended.

All functions are pure and accept raw pods of any form (semantics, Pods and pod groups).
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq.integrations.base import CompositionOptions
from admitq_api.conditions import parse_time, with_condition
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

TERMINATION_TARGET: Final = "TerminationTarget"
"""The condition that admitq sets on a pod that it ends. Its message states the reason."""

DEPLOYMENT: Final = "deployment"
STATEFUL_SET: Final = "statefulset"
LEADER_WORKER_SET: Final = "leaderworkerset"
"""Values of the annotation ``pod-suspending-parent``: the kinds of objects whose pods admitq holds."""

GROUP_PARENT_KINDS: Final = frozenset({STATEFUL_SET, LEADER_WORKER_SET})
"""The kinds that queue their pods in groups."""

_ENDED: Final = ("Succeeded", "Failed")

NOT_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in _ENDED)
"""The field selector of pods that have not ended."""

_LARGEST_GROUP: Final = 2**31 - 1


def get_text(obj: Any, *path: str) -> str:
    """Return the string at a path; empty if there is none."""
    value = value_at(obj, path, "")
    return value if isinstance(value, str) else ""


def get_mapping(obj: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; empty if there is none."""
    value = value_at(obj, path, {})
    return value if isinstance(value, Mapping) else {}


def get_annotation(pod: JsonObject, key: str) -> str:
    """Return an annotation of the pod; empty if absent."""
    return get_text(pod, "metadata", "annotations", key)


def get_label(pod: JsonObject, key: str) -> str:
    """Return a label of the pod; empty if absent."""
    return get_text(pod, "metadata", "labels", key)


def get_pod_group(pod: JsonObject, names: Names) -> str:
    """Return the name of the pod's group, from its annotation or its label; empty without a group."""
    return get_annotation(pod, names.pod_group_name) or get_label(pod, names.pod_group_name)


def get_total_count(pod: JsonObject, names: Names) -> int | None:
    """Return the number of pods in the group; None if the annotation is absent or invalid."""
    return parse_positive_int(get_annotation(pod, names.pod_group_total_count))


def parse_positive_int(text: Any) -> int | None:
    """Return a positive number of pods from a text; None if it is invalid."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if 0 < number <= _LARGEST_GROUP else None


def is_suspended_by_parent(pod: JsonObject, names: Names) -> bool:
    """Whether the owner of the pod had it held, by an annotation of its template."""
    return get_annotation(pod, names.pod_suspending_parent) != ""


def is_in_served_group(pod: JsonObject, names: Names) -> bool:
    """Whether the owner of the pod has its pods queued in groups."""
    return get_annotation(pod, names.pod_suspending_parent) in GROUP_PARENT_KINDS


def awaits_group(pod: JsonObject, names: Names) -> bool:
    """Whether the pod will be queued in a group and is not yet assigned to one."""
    return is_in_served_group(pod, names) and not get_pod_group(pod, names)


def is_managed(pod: JsonObject, names: Names) -> bool:
    """Whether admitq manages the pod."""
    return get_label(pod, names.managed) == "true"


def has_gate(pod: JsonObject, gate: str) -> bool:
    """Whether the pod has a scheduling gate."""
    gates = value_at(pod, ("spec", "schedulingGates"), [])
    return isinstance(gates, list) and any(value_at(item, ("name",)) == gate for item in gates)


def get_phase(pod: JsonObject) -> str:
    """Return the phase of the pod."""
    return get_text(pod, "status", "phase")


def has_ended(pod: JsonObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return get_phase(pod) in _ENDED


def is_being_deleted(pod: JsonObject) -> bool:
    """Whether the pod is being deleted. It may still run."""
    return value_at(pod, ("metadata", "deletionTimestamp")) is not None


def get_grace_period_end(pod: JsonObject) -> int | None:
    """Return when the grace period of a deleted pod ends, in nanoseconds; None for other pods."""
    try:
        return parse_time(get_text(pod, "metadata", "deletionTimestamp"))
    except ValueError:
        return None


def is_inactive(pod: JsonObject) -> bool:
    """Whether the pod has failed or was deleted before it succeeded, so that it needs a replacement."""
    return get_phase(pod) == "Failed" or (is_being_deleted(pod) and get_phase(pod) != "Succeeded")


def may_hold_resources(pod: JsonObject, names: Names, moment: CompositionOptions) -> bool:
    """Whether the pod has been released from its gate and may hold resources.

    A deleted pod may hold resources until its deletion time, which includes the grace period.
    """
    if has_gate(pod, names.admission_gate) or has_ended(pod):
        return False
    if not is_being_deleted(pod):
        return True
    end = get_grace_period_end(pod)
    return not moment.deleted_pods_release_quota and end is not None and moment.now < end


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod is ready or has succeeded."""
    if get_phase(pod) == "Succeeded":
        return True
    return any(
        value_at(condition, ("type",)) == "Ready" and value_at(condition, ("status",)) == "True"
        for condition in list_conditions(pod)
    )


def list_conditions(pod: JsonObject) -> list[Any]:
    """Return the pod's conditions."""
    conditions = value_at(pod, ("status", "conditions"), [])
    return conditions if isinstance(conditions, list) else []


def is_marked_for_termination(pod: JsonObject) -> bool:
    """Whether admitq has decided to end the pod."""
    return any(
        value_at(condition, ("type",)) == TERMINATION_TARGET and value_at(condition, ("status",)) == "True"
        for condition in list_conditions(pod)
    )


def mark_for_termination(pod: JsonObject, reason: str, message: str, now: int) -> JsonObject:
    """Return the pod with the condition that states why admitq ends it, unless it already has one."""
    if is_marked_for_termination(pod):
        return pod
    return _with_true_condition(pod, TERMINATION_TARGET, reason, message, now)


def fail_pod(pod: JsonObject, condition: str, reason: str, message: str, now: int) -> JsonObject:
    """Return the pod with phase Failed and a condition that states why. For pods on which no kubelet reports.

    Args:
        pod: the pod.
        condition: the type of the condition.
        reason: its reason.
        message: its message.
        now: the time, in nanoseconds.
    """
    failed = _with_true_condition(pod, condition, reason, message, now)
    return {**failed, "status": {**failed["status"], "phase": "Failed"}}


def _with_true_condition(pod: JsonObject, type_: str, reason: str, message: str, now: int) -> JsonObject:
    conditions = with_condition(
        [condition for condition in list_conditions(pod) if isinstance(condition, Mapping)],
        type=type_,
        status=True,
        reason=reason,
        message=message,
        now=now,
    )
    return {**pod, "status": {**get_mapping(pod, "status"), "conditions": conditions}}


def get_last_activity(pod: JsonObject) -> str:
    """Return the last time at which the readiness of the pod changed, or its creation time."""
    changed = [
        get_text(condition, "lastTransitionTime")
        for condition in list_conditions(pod)
        if _is_readiness_condition(condition)
    ]
    return max([*changed, get_text(pod, "metadata", "creationTimestamp")])


def _is_readiness_condition(condition: Any) -> bool:
    return value_at(condition, ("type",)) in {"Ready", "ContainersReady"}


def get_age_key(pod: JsonObject) -> tuple[str, str]:
    """Return the key that sorts pods from the oldest to the newest."""
    return get_text(pod, "metadata", "creationTimestamp"), get_text(pod, "metadata", "name")
