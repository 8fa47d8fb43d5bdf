"""The stage of a story: a fresh namespace beside a running admitq, and the removal of what it leaves."""

from collections.abc import AsyncGenerator

import pytest

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq_api.labels import names_for
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.stage import Stage


@pytest.fixture
async def stage(admitq_client: Client, admitq_namespace: str, api_group: str) -> AsyncGenerator[Stage]:
    """A namespace of its own beside a running admitq."""
    made = Stage(admitq_client, names_for(api_group), admitq_namespace)
    yield made
    await _clear(made)


@pytest.fixture
async def other_stage(admitq_client: Client, api_group: str) -> AsyncGenerator[Stage]:
    """A second namespace, for stories about what must not meet."""
    async with fresh_namespace(admitq_client) as namespace:
        made = Stage(admitq_client, names_for(api_group), namespace)
        yield made
        await _clear(made)


async def _clear(stage: Stage) -> None:
    """Delete what has no namespace and would outlive the story; it goes when nothing uses it any more."""
    kinds = stage.kinds
    for resource in (
        kinds.cluster_queues,
        kinds.resource_flavors,
        kinds.workload_priority_classes,
        kinds.admission_checks,
        kinds.topologies,
    ):
        items, _ = await stage.client.list(resource)
        for item in items:
            if item["metadata"]["name"].endswith(stage.namespace):
                try:
                    await stage.client.delete(resource, item["metadata"]["name"])
                except ApiError as error:
                    if not error.is_not_found:
                        raise
