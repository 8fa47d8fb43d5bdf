"""A cluster in which admitq's webhooks are disabled for some time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from admitq_api.labels import Names
from localcluster.waiting import eventually

_NO_QUEUE_NAME: Final = "No_Queue_Name"
"""A valid label value that is no name of a queue: the validating webhook refuses a Job with it."""


@asynccontextmanager
async def disabled_webhooks(client: Client, names: Names) -> AsyncGenerator[None]:
    """Delete all webhook configurations within a block, which begins when the API server calls no webhook."""
    removed = [
        (resource, one)
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for one in (await client.list(resource))[0]
    ]
    for resource, one in removed:
        await client.delete(resource, one["metadata"]["name"])
    try:
        await eventually(lambda: _is_any_job_accepted(client, names), what="webhooks to be disabled")
        yield
    finally:
        for resource, one in removed:
            metadata = {key: one["metadata"].get(key) for key in ("name", "labels", "annotations")}
            await client.create(resource, {**one, "metadata": metadata})


async def _is_any_job_accepted(client: Client, names: Names) -> bool:
    """Whether a Job that a webhook would refuse and suspend is accepted as it is, in a dry run."""
    container = {"name": "c", "image": "example.com/c:1"}
    job = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": "probe",
            "namespace": "default",
            "labels": {names.queue_name: _NO_QUEUE_NAME},
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    try:
        accepted = await client.create(JOBS, job, dry_run=True)
    except ApiError:
        return False
    return not accepted["spec"].get("suspend")
