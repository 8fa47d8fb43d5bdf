"""The columns of the lists: how a row shows an object. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from admitq.plugin.ages import format_age, format_duration, seconds_since
from admitq.plugin.tables import safe_text
from admitq_api.json_objects import (
    JsonObject,
    as_int,
    object_at,
    objects_at,
    text_at,
    text_fields_at,
    value_at,
)

QueueKey = tuple[str, str]
"""The namespace and the name of a LocalQueue or a Workload."""


class View(NamedTuple):
    """What rows show besides the object itself.

    Args:
        now: the current time in nanoseconds since 1970.
        cluster_queues: the ClusterQueue of each LocalQueue.
        positions: the position of each pending Workload in its LocalQueue; None if the cluster does not serve
            positions.
    """

    now: int
    cluster_queues: Mapping[QueueKey, str] = {}
    positions: Mapping[QueueKey, int] | None = None


class Column(NamedTuple):
    """A column. ``is_wide``: only wide tables have it."""

    title: str
    read: Callable[[JsonObject, View], str]
    is_wide: bool = False


def build_rows(
    columns: Sequence[Column],
    objects: Iterable[JsonObject],
    view: View,
    *,
    wide: bool = False,
    namespaces: bool = False,
) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of a table; with ``namespaces``, the first column is the namespace."""
    shown = [
        column
        for column in columns
        if (wide or not column.is_wide) and (column is not POSITION or view.positions is not None)
    ]
    if namespaces:
        shown.insert(0, Column("NAMESPACE", _at("metadata", "namespace")))
    rows = [[safe_text(column.read(one, view)) for column in shown] for one in objects]
    return [column.title for column in shown], rows


def condition_at(obj: JsonObject, type_: str) -> JsonObject:
    """Return a condition of an object; an empty object without it."""
    found = objects_at(obj, ("status", "conditions"))
    return next((one for one in found if one.get("type") == type_), {})


def is_true(obj: JsonObject, type_: str) -> bool:
    """Return whether a condition of an object is true."""
    return condition_at(obj, type_).get("status") == "True"


STATUSES: Final[Mapping[str, str]] = {
    "finished": "Finished",
    "admitted": "Admitted",
    "quotareserved": "QuotaReserved",
    "pending": "",
}
"""The statuses of Workloads, each with its condition. The first one with a true condition applies."""


def status_of(workload: JsonObject) -> str:
    """Return the status of a Workload, as a key of `STATUSES`."""
    return next(status for status, type_ in STATUSES.items() if not type_ or is_true(workload, type_))


def cluster_queue_of(workload: JsonObject, view: View) -> str:
    """Return the ClusterQueue that admitted a Workload, or else that of its LocalQueue."""
    queue = (text_at(workload, ("metadata", "namespace")), text_at(workload, ("spec", "queueName")))
    return text_at(workload, ("status", "admission", "clusterQueue")) or view.cluster_queues.get(queue, "")


def owners_of(obj: JsonObject) -> list[JsonObject]:
    """Return the owner references of an object."""
    return objects_at(obj, ("metadata", "ownerReferences"))


def controller_of(obj: JsonObject) -> JsonObject:
    """Return the owner that controls an object; an empty object if none does."""
    return next((owner for owner in owners_of(obj) if owner.get("controller") is True), {})


def execution_seconds(workload: JsonObject, now: int) -> int | None:
    """Return for how long a Workload has been admitted, over all its admissions; None if it never was."""
    past = as_int(value_at(workload, ("status", "accumulatedPastExecutionTimeSeconds")))
    if not is_true(workload, "Admitted"):
        return past or None
    since = seconds_since(text_at(condition_at(workload, "Admitted"), ("lastTransitionTime",)), now)
    finished = condition_at(workload, "Finished")
    after = seconds_since(text_at(finished, ("lastTransitionTime",)), now) if finished else 0
    return past + max(0, (since or 0) - (after or 0))


def _at(*path: str) -> Callable[[JsonObject, View], str]:
    """Return a function that reads a text or a number of an object."""

    def read(obj: JsonObject, _view: View) -> str:
        value: Any = value_at(obj, path, "")
        return str(value) if isinstance(value, str | int) else ""

    return read


def _count(*path: str) -> Callable[[JsonObject, View], str]:
    return lambda obj, _view: str(as_int(value_at(obj, path)))


def _age(obj: JsonObject, view: View) -> str:
    return format_age(text_at(obj, ("metadata", "creationTimestamp")), view.now)


def _active(obj: JsonObject, _view: View) -> str:
    return text_at(condition_at(obj, "Active"), ("status",))


def _reason(type_: str) -> Callable[[JsonObject, View], str]:
    return lambda obj, _view: text_at(condition_at(obj, type_), ("reason",))


def job_owners_of(workload: JsonObject) -> Sequence[JsonObject]:
    """Return the owners that are the job of a Workload: its controller, or all pods of a group."""
    controller = controller_of(workload)
    return [controller] if controller else owners_of(workload)


def _job_type(workload: JsonObject, _view: View) -> str:
    owner = next(iter(job_owners_of(workload)), {})
    kind = text_at(owner, ("kind",)).lower()
    group, slash, _ = text_at(owner, ("apiVersion",)).rpartition("/")
    return f"{kind}.{group}" if slash else kind


def _job_name(workload: JsonObject, _view: View) -> str:
    names = [text_at(owner, ("name",)) for owner in job_owners_of(workload)]
    return ", ".join(names[:MOST_NAMES]) + (
        f" (+{len(names) - MOST_NAMES})" if len(names) > MOST_NAMES else ""
    )


MOST_NAMES: Final = 3
"""How many owners of a Workload a row names."""


def _execution_time(workload: JsonObject, view: View) -> str:
    seconds = execution_seconds(workload, view.now)
    return "" if seconds is None else format_duration(seconds)


def _position(workload: JsonObject, view: View) -> str:
    key = (text_at(workload, ("metadata", "namespace")), text_at(workload, ("metadata", "name")))
    position = (view.positions or {}).get(key)
    return "" if position is None else str(position)


POSITION: Final = Column("POSITION IN QUEUE", _position)
"""Tables have this column only if the cluster serves positions."""

WORKLOADS: Final = (
    Column("NAME", _at("metadata", "name")),
    Column("JOB TYPE", _job_type),
    Column("JOB NAME", _job_name),
    Column("LOCALQUEUE", _at("spec", "queueName")),
    Column("CLUSTERQUEUE", cluster_queue_of),
    Column("STATUS", lambda workload, _view: status_of(workload).upper()),
    POSITION,
    Column("EXEC TIME", _execution_time),
    Column("AGE", _age),
    Column("PRIORITY", _at("spec", "priority"), is_wide=True),
    Column("REASON", _reason("QuotaReserved"), is_wide=True),
)

CLUSTER_QUEUES: Final = (
    Column("NAME", _at("metadata", "name")),
    Column("COHORT", _at("spec", "cohortName")),
    Column("PENDING WORKLOADS", _count("status", "pendingWorkloads")),
    Column("ADMITTED WORKLOADS", _count("status", "admittedWorkloads")),
    Column("ACTIVE", _active),
    Column("AGE", _age),
    Column("STRATEGY", _at("spec", "queueingStrategy"), is_wide=True),
    Column("REASON", _reason("Active"), is_wide=True),
)

LOCAL_QUEUES: Final = (
    Column("NAME", _at("metadata", "name")),
    Column("CLUSTERQUEUE", _at("spec", "clusterQueue")),
    Column("PENDING WORKLOADS", _count("status", "pendingWorkloads")),
    Column("ADMITTED WORKLOADS", _count("status", "admittedWorkloads")),
    Column("AGE", _age),
    Column("ACTIVE", _active, is_wide=True),
    Column("REASON", _reason("Active"), is_wide=True),
)


def _node_labels(flavor: JsonObject, _view: View) -> str:
    return ", ".join(
        f"{key}={value}" for key, value in text_fields_at(flavor, ("spec", "nodeLabels")).items()
    )


RESOURCE_FLAVORS: Final = (
    Column("NAME", _at("metadata", "name")),
    Column("NODE LABELS", _node_labels),
    Column("AGE", _age),
    Column("TOPOLOGY", _at("spec", "topologyName"), is_wide=True),
)


def _containers(pod: JsonObject) -> list[JsonObject]:
    return objects_at(pod, ("status", "containerStatuses"))


def _ready(pod: JsonObject, _view: View) -> str:
    ready = sum(one.get("ready") is True for one in _containers(pod))
    return f"{ready}/{len(objects_at(pod, ('spec', 'containers')))}"


def _pod_status(pod: JsonObject, _view: View) -> str:
    """Return what kubectl shows as status of a pod: more than its phase, if a container has a reason."""
    if value_at(pod, ("metadata", "deletionTimestamp")):
        return "Terminating"
    if objects_at(pod, ("spec", "schedulingGates")):
        return "SchedulingGated"
    for one in _containers(pod):
        state = object_at(one, ("state",))
        reason = text_at(state, ("waiting", "reason")) or text_at(state, ("terminated", "reason"))
        if reason:
            return reason
    return text_at(pod, ("status", "reason")) or text_at(pod, ("status", "phase"))


def _restarts(pod: JsonObject, _view: View) -> str:
    return str(sum(as_int(one.get("restartCount")) for one in _containers(pod)))


PODS: Final = (
    Column("NAME", _at("metadata", "name")),
    Column("READY", _ready),
    Column("STATUS", _pod_status),
    Column("RESTARTS", _restarts),
    Column("AGE", _age),
    Column("NODE", _at("spec", "nodeName"), is_wide=True),
)
