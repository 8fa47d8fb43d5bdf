"""Fixtures of the fault tests: a proxy before the real API server, and clients that go through it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq_api.labels import names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.pytest_plugin import fresh_namespace
from tests.controlplane.stage import Stage
from tests.faults.proxy import Proxy


@pytest.fixture
async def proxy(cluster: LocalCluster) -> AsyncGenerator[Proxy]:
    """A proxy before the real API server; without faults it changes nothing."""
    async with Proxy(load_credentials(cluster.kubeconfig)) as started:
        yield started


@pytest.fixture
async def through(proxy: Proxy) -> AsyncGenerator[Callable[..., Awaitable[Client]]]:
    """A function that opens clients through the proxy, with options of a Client."""
    async with AsyncExitStack() as stack:

        async def open_client(**options: Any) -> Client:
            settings: dict[str, Any] = {"user_agent": "admitq-tests", "qps": -1, "timeout": 10.0, **options}
            return await stack.enter_async_context(Client(proxy.credentials, **settings))

        yield open_client


@pytest.fixture(scope="module")
def without_manager(default_installation: Installation) -> Installation:
    """The default installation with webhooks and without manager, which test files use in turn."""
    default_installation.stop(("manager",))
    return default_installation


@pytest.fixture
async def stage(
    without_manager: Installation, connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str
) -> AsyncGenerator[Stage]:
    """A namespace beside an installation with webhooks and without manager."""
    client = await connect(without_manager.cluster)
    async with fresh_namespace(client) as namespace:
        yield Stage(client, names_for(api_group), namespace)
