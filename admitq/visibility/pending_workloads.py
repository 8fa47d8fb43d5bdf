"""The subresource ``pendingworkloads``: the pending workloads of a queue, with their positions."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from admitq.core.model import ObjectKey
from admitq.core.waiting.queue_positions import QueuedWorkload, Window
from admitq.visibility.answers import RequestRejected
from admitq.visibility.routes import KINDS, Cells, Column, Parameter, Question, Subresource, TableFormat
from admitq_api.json_objects import JsonObject, value_at

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000
_ITEMS_PER_TURN: Final = 200
"""Items that an answer collects before it yields to the event loop; 200 take a few milliseconds."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}")

KIND: Final = "PendingWorkloadsSummary"


class PendingQueues(Protocol):
    """The queues, as they were last observed."""

    def list_cluster_queue(self, name: str) -> Sequence[QueuedWorkload] | None:
        """Return all pending workloads of a ClusterQueue in queue order; None if it does not exist."""
        ...

    def list_local_queue(self, key: ObjectKey) -> Sequence[QueuedWorkload] | None:
        """Return all pending workloads of a LocalQueue in queue order; None if it does not exist."""
        ...

    def get_workload(self, key: ObjectKey) -> JsonObject | None:
        """Return a stored Workload; None if it does not exist."""
        ...


def list_pending_workloads(queues: PendingQueues, group: str) -> tuple[Subresource, ...]:
    """Return the subresource of ClusterQueues and that of LocalQueues.

    Args:
        queues: the queues.
        group: the group of the visibility API, for errors.
    """

    async def of_cluster_queue(question: Question) -> dict[str, Any]:
        window = read_window(question.query)
        listed = queues.list_cluster_queue(question.name)
        return await _summarize(queues, question, _found(listed, group, "clusterqueues", question), window)

    async def of_local_queue(question: Question) -> dict[str, Any]:
        window = read_window(question.query)
        listed = queues.list_local_queue(ObjectKey(question.namespace, question.name))
        return await _summarize(queues, question, _found(listed, group, "localqueues", question), window)

    answers = {"clusterqueues": of_cluster_queue, "localqueues": of_local_queue}
    return tuple(
        Subresource(
            resource=resource,
            name="pendingworkloads",
            method="GET",
            kind=KIND,
            summary=f"List the pending workloads of a {KINDS[resource]} in queue order.",
            answer=answer,
            schemas=SCHEMAS,
            table=TABLE,
            parameters=PARAMETERS,
        )
        for resource, answer in answers.items()
    )


def read_window(query: Mapping[str, str]) -> Window:
    """Read ``limit`` and ``offset``. A negative limit counts as 0, and a huge one as the largest.

    Raises:
        RequestRejected: a value is not an integer, or the offset is negative.
    """
    limit, offset = _read_number(query, "limit", DEFAULT_LIMIT), _read_number(query, "offset", 0)
    if offset < 0:
        raise RequestRejected(400, f"offset: {offset}: must not be negative")
    return Window(min(max(limit, 0), MAX_LIMIT), offset)


def _read_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise RequestRejected(400, f"{name}: {text[:100]!r}: must be an integer")
    return int(text)


def _found(
    listed: Sequence[QueuedWorkload] | None, group: str, resource: str, question: Question
) -> Sequence[QueuedWorkload]:
    if listed is None:
        details = {"name": question.name, "group": group, "kind": resource}
        raise RequestRejected(404, f'{resource}.{group} "{question.name}" not found', details)
    return listed


async def _summarize(
    queues: PendingQueues, question: Question, listed: Sequence[QueuedWorkload], window: Window
) -> dict[str, Any]:
    start, stop, _ = slice(window.offset, window.offset + window.limit).indices(len(listed))
    items: list[dict[str, Any]] = []
    for number, queued in enumerate(listed[start:stop], start=1):
        # A workload that was deleted meanwhile is left out.
        if (workload := queues.get_workload(queued.workload)) is not None:
            items.append(_describe(workload, queued))
        if number % _ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
    return {"kind": KIND, "apiVersion": question.api_version, "metadata": {}, "items": items}


def _describe(workload: JsonObject, queued: QueuedWorkload) -> dict[str, Any]:
    fields = ("name", "namespace", "creationTimestamp", "ownerReferences")
    metadata = workload["metadata"]
    return {
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "priority": value_at(workload, ("spec", "priority"), 0),
        "localQueueName": queued.local_queue.name,
        "positionInClusterQueue": queued.in_cluster_queue,
        "positionInLocalQueue": queued.in_local_queue,
    }


def _cells(item: JsonObject) -> Cells:
    metadata = item["metadata"]
    return [
        metadata.get("name"),
        metadata.get("namespace"),
        item["localQueueName"],
        item["priority"],
        item["positionInClusterQueue"],
        item["positionInLocalQueue"],
        metadata.get("creationTimestamp"),
    ]


_IN_CLUSTER_QUEUE: Final = "The number of workloads of the ClusterQueue that come before this one."
_IN_LOCAL_QUEUE: Final = "The number of workloads of the LocalQueue that come before this one."

TABLE: Final = TableFormat(
    (
        Column("Name", "string", "The name of the Workload.", "name"),
        Column("Namespace", "string", "The namespace of the Workload."),
        Column("LocalQueue", "string", "The LocalQueue of the Workload."),
        Column("Priority", "integer", "The priority of the Workload."),
        Column("In ClusterQueue", "integer", _IN_CLUSTER_QUEUE),
        Column("In LocalQueue", "integer", _IN_LOCAL_QUEUE),
        Column("Created", "date", "When the Workload was created."),
    ),
    _cells,
)

PARAMETERS: Final = (
    Parameter(
        "limit",
        "integer",
        f"The largest number of workloads, {DEFAULT_LIMIT} by default and at most {MAX_LIMIT}.",
    ),
    Parameter("offset", "integer", "The number of workloads to skip, 0 by default."),
)

_METADATA: Final = {
    "type": "object",
    "description": "The metadata of the Workload: its name, namespace, owners, and when it was created.",
    "x-kubernetes-preserve-unknown-fields": True,
}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    KIND: {
        "type": "object",
        "description": "The pending workloads of a queue, in queue order.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of this object."},
            "kind": {"type": "string", "description": "The kind of this object."},
            "metadata": {"type": "object", "description": "It is empty."},
            "items": {
                "type": "array",
                "description": "The workloads.",
                "items": {"$ref": "PendingWorkload"},
            },
        },
    },
    "PendingWorkload": {
        "type": "object",
        "description": "A pending workload and its positions, which begin with 0.",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": _METADATA,
            "priority": {
                "type": "integer",
                "format": "int32",
                "description": "The priority of the Workload, without a boost.",
            },
            "localQueueName": {"type": "string", "description": "The LocalQueue of the Workload."},
            "positionInClusterQueue": {
                "type": "integer",
                "format": "int32",
                "description": _IN_CLUSTER_QUEUE,
            },
            "positionInLocalQueue": {"type": "integer", "format": "int32", "description": _IN_LOCAL_QUEUE},
        },
    },
}
"""The JSON schemas of the answers. ``$ref`` has the name of another type of this map."""
