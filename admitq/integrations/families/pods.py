"""What a pod says of itself to a queue: its group and role, whether it is held, runs, or has ended.

Pure functions on raw pods of any shape (semantics, Pods and pod groups).
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq.integrations.base import Moment
from admitq_api.conditions import parse_time, with_condition
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

TERMINATION_TARGET: Final = "TerminationTarget"
"""Condition of a pod that we end; it tells why."""

DEPLOYMENT: Final = "deployment"
STATEFUL_SET: Final = "statefulset"
LEADER_WORKER_SET: Final = "leaderworkerset"
"""What pods say of the kind of object that has them held."""

PARENTS_OF_GROUPS: Final = frozenset({STATEFUL_SET, LEADER_WORKER_SET})
"""Those whose pods are not queued one by one."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LARGEST_GROUP: Final = 2**31 - 1


def text_at(obj: Any, *path: str) -> str:
    """A text at a path; empty where there is none."""
    found = value_at(obj, path, "")
    return found if isinstance(found, str) else ""


def mapping_at(obj: Any, *path: str) -> Mapping[str, Any]:
    """A mapping at a path; empty where there is none."""
    found = value_at(obj, path, {})
    return found if isinstance(found, Mapping) else {}


def annotation(pod: JsonObject, key: str) -> str:
    """An annotation of the pod; empty without it."""
    return text_at(pod, "metadata", "annotations", key)


def label(pod: JsonObject, key: str) -> str:
    """A label of the pod; empty without it."""
    return text_at(pod, "metadata", "labels", key)


def group_of(pod: JsonObject, names: Names) -> str:
    """Name of the pod's group: by annotation, else by label; empty for a pod alone."""
    return annotation(pod, names.pod_group_name) or label(pod, names.pod_group_name)


def total_count(pod: JsonObject, names: Names) -> int | None:
    """How many pods the group has; None where that cannot be read."""
    return whole_number(annotation(pod, names.pod_group_total_count))


def whole_number(text: Any) -> int | None:
    """A positive number of pods as text; None for anything else."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if 0 < number <= _LARGEST_GROUP else None


def is_suspended_by_parent(pod: JsonObject, names: Names) -> bool:
    """Whether the kind of object that makes the pod had it held, by its template."""
    return annotation(pod, names.pod_suspending_parent) != ""


def is_in_served_group(pod: JsonObject, names: Names) -> bool:
    """Whether what makes the pod has it queued together with others."""
    return annotation(pod, names.pod_suspending_parent) in PARENTS_OF_GROUPS


def awaits_group(pod: JsonObject, names: Names) -> bool:
    """Whether the pod has still to be told which group it is queued with."""
    return is_in_served_group(pod, names) and not group_of(pod, names)


def is_managed(pod: JsonObject, names: Names) -> bool:
    """Whether the pod is ours to hold."""
    return label(pod, names.managed) == "true"


def has_gate(pod: JsonObject, gate: str) -> bool:
    """Whether the pod waits at a scheduling gate."""
    gates = value_at(pod, ("spec", "schedulingGates"), [])
    return isinstance(gates, list) and any(value_at(one, ("name",)) == gate for one in gates)


def phase(pod: JsonObject) -> str:
    """Where the pod is in its life."""
    return text_at(pod, "status", "phase")


def has_ended(pod: JsonObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return phase(pod) in _ENDED


def is_deleting(pod: JsonObject) -> bool:
    """Whether somebody has deleted the pod, though it may still run."""
    return value_at(pod, ("metadata", "deletionTimestamp")) is not None


def grace_ends(pod: JsonObject) -> int | None:
    """When a deleted pod must be gone from its node, in nanoseconds; None for others."""
    try:
        return parse_time(text_at(pod, "metadata", "deletionTimestamp"))
    except ValueError:
        return None


def is_inactive(pod: JsonObject) -> bool:
    """Whether the pod has failed or was deleted before it succeeded: another must do its work."""
    return phase(pod) == "Failed" or (is_deleting(pod) and phase(pod) != "Succeeded")


def runs(pod: JsonObject, names: Names, moment: Moment) -> bool:
    """Whether the pod was let go and may hold resources.

    A deleted one may until its grace is over, which the API server counts into its deletion time.
    """
    if has_gate(pod, names.admission_gate) or has_ended(pod):
        return False
    if not is_deleting(pod):
        return True
    end = grace_ends(pod)
    return not moment.deleted_hold_nothing and end is not None and moment.now < end


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod is ready, or done."""
    if phase(pod) == "Succeeded":
        return True
    return any(
        value_at(one, ("type",)) == "Ready" and value_at(one, ("status",)) == "True"
        for one in conditions(pod)
    )


def conditions(pod: JsonObject) -> list[Any]:
    """The pod's conditions."""
    found = value_at(pod, ("status", "conditions"), [])
    return found if isinstance(found, list) else []


def is_condemned(pod: JsonObject) -> bool:
    """Whether it was we who decided that the pod ends."""
    return any(
        value_at(one, ("type",)) == TERMINATION_TARGET and value_at(one, ("status",)) == "True"
        for one in conditions(pod)
    )


def condemned(pod: JsonObject, reason: str, message: str, now: int) -> JsonObject:
    """The pod told why it is ended; as it is if it has been told."""
    if is_condemned(pod):
        return pod
    told = with_condition(
        [one for one in conditions(pod) if isinstance(one, Mapping)],
        type=TERMINATION_TARGET,
        status=True,
        reason=reason,
        message=message,
        now=now,
    )
    return {**pod, "status": {**mapping_at(pod, "status"), "conditions": told}}


def last_active(pod: JsonObject) -> str:
    """When the pod was last known to do something, as the API writes instants."""
    changed = [text_at(one, "lastTransitionTime") for one in conditions(pod) if _tells_activity(one)]
    return max([*changed, text_at(pod, "metadata", "creationTimestamp")])


def _tells_activity(condition: Any) -> bool:
    return value_at(condition, ("type",)) in {"Ready", "ContainersReady"}


def age(pod: JsonObject) -> tuple[str, str]:
    """What sorts pods from the oldest to the newest."""
    return text_at(pod, "metadata", "creationTimestamp"), text_at(pod, "metadata", "name")
