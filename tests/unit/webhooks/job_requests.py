"""Jobs and their owners that several test modules use."""

from typing import Any

from admitq.integrations.references import OwnerKind
from tests.unit.webhooks.support import (
    NAMES,
    QUEUE,
    a_job,
)

DEFAULTS: dict[str, Any] = {"local_queues": {("team", "default")}}


def managed(**options: Any) -> dict[str, Any]:
    labels = {QUEUE: "q", **options.pop("labels", {})}
    return a_job(labels=labels, **options)


def deleted(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


GROUP_KIND = OwnerKind("batch.example.com", "v1", "Group")


def owned_by(name: str, uid: str = "owner-uid", **reference: str) -> dict[str, Any]:
    return {"apiVersion": "batch.example.com/v1", "kind": "Group", "name": name, "uid": uid, **reference}


def a_group(
    *, queue: str = "q", owner: dict[str, Any] | None = None, uid: str = "owner-uid"
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "group", "namespace": "team", "uid": uid}
    metadata["labels"] = {QUEUE: queue} if queue else {}
    if owner:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    return {"apiVersion": "batch.example.com/v1", "kind": "Group", "metadata": metadata}


GATED = NAMES.admission_gated_by
MAX_TIME = NAMES.max_exec_time
PREBUILT = NAMES.prebuilt_workload_name
ELASTIC = NAMES.elastic_job


def partial(pods: int, *, suspend: bool, minimum: str = "2") -> dict[str, Any]:
    annotations = {NAMES.job_min_parallelism: minimum}
    return managed(suspend=suspend, parallelism=pods, completions=5, annotations=annotations)
