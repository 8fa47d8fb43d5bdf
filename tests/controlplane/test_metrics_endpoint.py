"""Metrics over TLS: the cluster authorizes readers of a process that listens on all addresses."""

import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from admitq.runtime.client import Client
from admitq.runtime.resources import CLUSTER_ROLE_BINDINGS, SERVICE_ACCOUNTS
from localcluster.cluster import LocalCluster
from localcluster.installation import Component, Installation
from localcluster.ports import free_ports
from localcluster.waiting import eventually


@pytest.fixture(params=["manager", "webhook"])
async def endpoint(
    request: pytest.FixtureRequest, admitq_running: Installation, tmp_path: Path
) -> AsyncGenerator[str]:
    """The metrics URL of a further process that listens on all addresses, as in a pod."""
    component: Component = request.param
    cluster: LocalCluster = admitq_running.cluster
    ports = free_ports(["metrics", "health", "webhook"])
    shipped: dict[str, Any] = yaml.safe_load(
        (cluster.folder / "installations" / admitq_running.release / f"{component}.yaml").read_text()
    )
    shipped["metrics"]["bindAddress"] = f":{ports['metrics']}"
    shipped["health"]["healthProbeBindAddress"] = f"127.0.0.1:{ports['health']}"
    shipped["webhook"]["port"] = ports["webhook"]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(shipped))
    name = f"metrics-{component}-{ports['metrics']}"
    program = Path(sys.executable).with_name("admitq")
    cluster.spawn(
        name,
        [
            str(program),
            component,
            f"--config={config}",
            f"--kubeconfig={admitq_running.kubeconfig(component)}",
        ],
    )
    yield f"https://127.0.0.1:{ports['metrics']}/metrics"
    cluster.terminate(name)


@pytest.fixture
async def session() -> AsyncGenerator[aiohttp.ClientSession]:
    # The certificate is self-signed: only the token decides about access.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as opened:
        yield opened


async def token_of(client: Client, namespace: str, name: str) -> str:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    await client.create(SERVICE_ACCOUNTS, account)
    answer = await client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        namespace,
        "token",
        name=name,
    )
    return answer["status"]["token"]


@pytest.fixture
async def reader(
    admitq_client: Client, admitq_namespace: str, admitq_running: Installation
) -> AsyncGenerator[str]:
    """The token of an account that is bound to the chart's role of metrics readers."""
    token = await token_of(admitq_client, admitq_namespace, "reader")
    name = f"reader-{admitq_namespace}"
    await admitq_client.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"{admitq_running.prefix}-metrics-reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": admitq_namespace}],
        },
    )
    yield token
    await admitq_client.delete(CLUSTER_ROLE_BINDINGS, name)


Ask = Callable[[str | None], Awaitable[tuple[int, str]]]


@pytest.fixture
def ask(endpoint: str, session: aiohttp.ClientSession) -> Ask:
    async def get(token: str | None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with session.get(endpoint, headers=headers) as answer:
            return answer.status, await answer.text()

    return get


@pytest.mark.core
async def test_metrics_are_served_to_authorized_readers(
    ask: Ask, reader: str, admitq_client: Client, admitq_namespace: str
) -> None:
    stranger = await token_of(admitq_client, admitq_namespace, "stranger")

    async def status(token: str | None) -> int:
        try:
            return (await ask(token))[0]
        except aiohttp.ClientConnectionError:
            return 0

    await eventually(lambda: _is_status(status, None, 401), what="the endpoint answers")
    assert (await ask("not-a-token"))[0] == 401
    code, body = await ask(stranger)
    assert code == 403
    assert "_build_info" not in body
    await eventually(lambda: _is_status(status, reader, 200), what="the reader may read")
    assert "_build_info" in (await ask(reader))[1]


async def _is_status(status: Callable[[str | None], Awaitable[int]], token: str | None, wanted: int) -> bool:
    return await status(token) == wanted
