"""LocalQueues: the ClusterQueue, the weight, and the resources that were consumed."""

from contextlib import suppress

from admitq.core.amounts import amounts
from admitq.core.model import ConsumedResources, LocalQueue
from admitq.translate.metadata import key_of
from admitq.translate.quotas import read_fair_sharing_weight, read_stop_policy
from admitq_api import conditions
from admitq_api.json_objects import JsonObject
from admitq_api.quantity import QuantityError, parse_amount
from admitq_api.stored_fields import require_object, require_text


def _read_consumed_resources(local_queue: JsonObject) -> ConsumedResources | None:
    """Read the consumed resources in the status of a LocalQueue; None if the status has none.

    Another program may have written an invalid or a negative amount. Such an amount counts as 0 until the
    next status replaces it, so that a status cannot stop its queue.
    """
    path = "status.fairSharing.admissionFairSharingStatus"
    status = require_object(local_queue.get("status"), "status")
    shares = require_object(status.get("fairSharing"), "status.fairSharing")
    consumption = require_object(shares.get("admissionFairSharingStatus"), path)
    try:
        at = conditions.parse_time(consumption.get("lastUpdate") or "")
    except (TypeError, ValueError):
        return None
    consumed: dict[str, int] = {}
    for resource, value in require_object(
        consumption.get("consumedResources"), f"{path}.consumedResources"
    ).items():
        with suppress(QuantityError):
            consumed[resource] = max(0, parse_amount(resource, value))
    return ConsumedResources(amounts(consumed), at)


def read_local_queue(obj: JsonObject) -> LocalQueue:
    """Read a LocalQueue.

    Raises:
        MalformedField: the stop policy is unknown, or the weight is not readable.
    """
    metadata, spec = obj["metadata"], require_object(obj.get("spec"), "spec")
    return LocalQueue(
        key=key_of(obj),
        cluster_queue=require_text(spec.get("clusterQueue"), "spec.clusterQueue"),
        uid=metadata.get("uid", ""),
        stop_policy=read_stop_policy(spec.get("stopPolicy")),
        fair_weight=read_fair_sharing_weight(spec),
        consumed=_read_consumed_resources(obj),
        terminating="deletionTimestamp" in metadata,
    )
