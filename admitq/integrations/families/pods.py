"""What a pod says of itself to a queue: its group and role, whether it is held, runs, or has ended.

Pure functions on raw pods of any shape (semantics, Pods and pod groups).
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq.integrations.base import CompositionOptions
from admitq_api.conditions import parse_time, with_condition
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

TERMINATION_TARGET: Final = "TerminationTarget"
"""Condition of a pod that we end; it tells why."""

DEPLOYMENT: Final = "deployment"
STATEFUL_SET: Final = "statefulset"
LEADER_WORKER_SET: Final = "leaderworkerset"
"""What pods say of the kind of object that has them held."""

GROUP_PARENT_KINDS: Final = frozenset({STATEFUL_SET, LEADER_WORKER_SET})
"""Those whose pods are not queued one by one."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LARGEST_GROUP: Final = 2**31 - 1


def get_text(obj: Any, *path: str) -> str:
    """A text at a path; empty where there is none."""
    found = value_at(obj, path, "")
    return found if isinstance(found, str) else ""


def get_mapping(obj: Any, *path: str) -> Mapping[str, Any]:
    """A mapping at a path; empty where there is none."""
    found = value_at(obj, path, {})
    return found if isinstance(found, Mapping) else {}


def get_annotation(pod: JsonObject, key: str) -> str:
    """An annotation of the pod; empty without it."""
    return get_text(pod, "metadata", "annotations", key)


def get_label(pod: JsonObject, key: str) -> str:
    """A label of the pod; empty without it."""
    return get_text(pod, "metadata", "labels", key)


def get_pod_group(pod: JsonObject, names: Names) -> str:
    """Name of the pod's group: by annotation, else by label; empty for a pod alone."""
    return get_annotation(pod, names.pod_group_name) or get_label(pod, names.pod_group_name)


def get_total_count(pod: JsonObject, names: Names) -> int | None:
    """How many pods the group has; None where that cannot be read."""
    return parse_positive_int(get_annotation(pod, names.pod_group_total_count))


def parse_positive_int(text: Any) -> int | None:
    """A positive number of pods as text; None for anything else."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if 0 < number <= _LARGEST_GROUP else None


def is_suspended_by_parent(pod: JsonObject, names: Names) -> bool:
    """Whether the kind of object that makes the pod had it held, by its template."""
    return get_annotation(pod, names.pod_suspending_parent) != ""


def is_in_served_group(pod: JsonObject, names: Names) -> bool:
    """Whether what makes the pod has it queued together with others."""
    return get_annotation(pod, names.pod_suspending_parent) in GROUP_PARENT_KINDS


def awaits_group(pod: JsonObject, names: Names) -> bool:
    """Whether the pod has still to be told which group it is queued with."""
    return is_in_served_group(pod, names) and not get_pod_group(pod, names)


def is_managed(pod: JsonObject, names: Names) -> bool:
    """Whether the pod is ours to hold."""
    return get_label(pod, names.managed) == "true"


def has_gate(pod: JsonObject, gate: str) -> bool:
    """Whether the pod waits at a scheduling gate."""
    gates = value_at(pod, ("spec", "schedulingGates"), [])
    return isinstance(gates, list) and any(value_at(one, ("name",)) == gate for one in gates)


def get_phase(pod: JsonObject) -> str:
    """Where the pod is in its life."""
    return get_text(pod, "status", "phase")


def has_ended(pod: JsonObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return get_phase(pod) in _ENDED


def is_being_deleted(pod: JsonObject) -> bool:
    """Whether somebody has deleted the pod, though it may still run."""
    return value_at(pod, ("metadata", "deletionTimestamp")) is not None


def get_grace_period_end(pod: JsonObject) -> int | None:
    """When a deleted pod must be gone from its node, in nanoseconds; None for others."""
    try:
        return parse_time(get_text(pod, "metadata", "deletionTimestamp"))
    except ValueError:
        return None


def is_inactive(pod: JsonObject) -> bool:
    """Whether the pod has failed or was deleted before it succeeded: another must do its work."""
    return get_phase(pod) == "Failed" or (is_being_deleted(pod) and get_phase(pod) != "Succeeded")


def may_hold_resources(pod: JsonObject, names: Names, moment: CompositionOptions) -> bool:
    """Whether the pod was let go and may hold resources.

    A deleted one may until its grace is over, which the API server counts into its deletion time.
    """
    if has_gate(pod, names.admission_gate) or has_ended(pod):
        return False
    if not is_being_deleted(pod):
        return True
    end = get_grace_period_end(pod)
    return not moment.deleted_pods_release_quota and end is not None and moment.now < end


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod is ready, or done."""
    if get_phase(pod) == "Succeeded":
        return True
    return any(
        value_at(one, ("type",)) == "Ready" and value_at(one, ("status",)) == "True"
        for one in list_conditions(pod)
    )


def list_conditions(pod: JsonObject) -> list[Any]:
    """The pod's conditions."""
    found = value_at(pod, ("status", "conditions"), [])
    return found if isinstance(found, list) else []


def is_marked_for_termination(pod: JsonObject) -> bool:
    """Whether it was we who decided that the pod ends."""
    return any(
        value_at(one, ("type",)) == TERMINATION_TARGET and value_at(one, ("status",)) == "True"
        for one in list_conditions(pod)
    )


def mark_for_termination(pod: JsonObject, reason: str, message: str, now: int) -> JsonObject:
    """The pod told why it is ended; as it is if it has been told."""
    if is_marked_for_termination(pod):
        return pod
    told = with_condition(
        [one for one in list_conditions(pod) if isinstance(one, Mapping)],
        type=TERMINATION_TARGET,
        status=True,
        reason=reason,
        message=message,
        now=now,
    )
    return {**pod, "status": {**get_mapping(pod, "status"), "conditions": told}}


def get_last_activity(pod: JsonObject) -> str:
    """When the pod was last known to do something, as the API writes instants."""
    changed = [
        get_text(one, "lastTransitionTime") for one in list_conditions(pod) if _is_readiness_condition(one)
    ]
    return max([*changed, get_text(pod, "metadata", "creationTimestamp")])


def _is_readiness_condition(condition: Any) -> bool:
    return value_at(condition, ("type",)) in {"Ready", "ContainersReady"}


def get_age_key(pod: JsonObject) -> tuple[str, str]:
    """What sorts pods from the oldest to the newest."""
    return get_text(pod, "metadata", "creationTimestamp"), get_text(pod, "metadata", "name")
