"""Calls of the visibility API: through the API server as any user, and directly."""

import json
import os
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from admitq.runtime.client import Client
from admitq.runtime.resources import API_SERVICES, CLUSTER_ROLE_BINDINGS, SERVICE_ACCOUNTS
from admitq_api.labels import Names
from localcluster.installation import Installation
from localcluster.pki import Pair
from localcluster.waiting import eventually

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
VISIBILITY = {"visibility": {"enabled": True}}
"""The values of the chart that enable the API."""


@dataclass(frozen=True)
class Answered:
    """An answer: its status, and its JSON or text."""

    status: int
    body: Any

    @property
    def names(self) -> list[str]:
        """The namespace and the owner of each listed Workload."""
        return [
            f"{item['metadata']['namespace']}/{item['metadata']['ownerReferences'][0]['name']}"
            for item in self.body["items"]
        ]

    @property
    def positions(self) -> list[tuple[int, int]]:
        """The positions of each listed Workload, in its ClusterQueue and its LocalQueue."""
        return [(item["positionInClusterQueue"], item["positionInLocalQueue"]) for item in self.body["items"]]


@dataclass(frozen=True)
class VisibilityApi:
    """The visibility API of an installation.

    Attributes:
        installation: the installation, with the process of the API.
        names: the names of its API group.
        version: the version to call.
    """

    installation: Installation
    names: Names
    version: str = "v1beta2"

    @property
    def root(self) -> str:
        """The path of the version."""
        return f"/apis/{self.names.visibility_group}/{self.version}"

    def of_cluster_queue(self, name: str) -> str:
        """Return the path of the pending workloads of a ClusterQueue."""
        return f"{self.root}/clusterqueues/{name}/pendingworkloads"

    def of_local_queue(self, namespace: str, name: str = "lq") -> str:
        """Return the path of the pending workloads of a LocalQueue."""
        return f"{self.root}/namespaces/{namespace}/localqueues/{name}/pendingworkloads"

    async def get(
        self,
        path: str,
        *,
        user: str = "",
        accept: str = "application/json",
        method: str = "GET",
        **query: Any,
    ) -> Answered:
        """Call the API server as administrator, or as another user."""
        return await self._call_api_server(method, path, user, accept, query)

    async def post(self, path: str, body: Any, *, user: str = "") -> Answered:
        """Send an object to the API server as administrator, or as another user."""
        return await self._call_api_server("POST", path, user, "application/json", {}, body)

    async def _call_api_server(
        self, method: str, path: str, user: str, accept: str, query: Mapping[str, Any], body: Any = None
    ) -> Answered:
        cluster = self.installation.cluster
        headers = {"Authorization": f"Bearer {cluster.admin_token}", "Accept": accept}
        if user:
            headers["Impersonate-User"] = user
        trust = ssl.create_default_context(cafile=str(cluster.authority))
        return await _call(method, cluster.server + path, trust, headers, query, body)

    async def call_directly(
        self, path: str, headers: Mapping[str, str] | Sequence[tuple[str, str]] = (), pair: Pair | None = None
    ) -> Answered:
        """Call the process itself. Its certificate is checked with the bundle of the APIService."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        url = f"https://127.0.0.1:{self.installation.port_of('visibility')}{path}"
        return await _call("GET", url, context, headers, {})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator and return its output."""
        cluster = self.installation.cluster
        return subprocess.run(
            [str(cluster.program("kubectl")), *arguments],
            capture_output=True,
            text=True,
            check=True,
            input=stdin,
            env={**os.environ, **cluster.environment()},
        ).stdout


async def _call(
    method: str,
    url: str,
    context: ssl.SSLContext,
    headers: Mapping[str, str] | Sequence[tuple[str, str]],
    query: Mapping[str, Any],
    body: Any = None,
) -> Answered:
    sent = list(headers.items() if isinstance(headers, Mapping) else headers)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.request(method, url, headers=sent, params={**query}, json=body) as answer,
    ):
        text = await answer.text()
        return Answered(answer.status, json.loads(text) if text.startswith("{") else text)


@dataclass
class Account:
    """A ServiceAccount of a test, with a token."""

    client: Client
    namespace: str
    name: str
    token: str = field(default="", init=False)

    @property
    def user(self) -> str:
        """Its user name."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    async def create(self) -> "Account":
        """Create the account, and request a token."""
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace},
        }
        await self.client.create(SERVICE_ACCOUNTS, account)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self.client.create(SERVICE_ACCOUNTS, request, self.namespace, "token", name=self.name)
        self.token = answer["status"]["token"]
        return self


async def bind_cluster_role(client: Client, role: str, user: str, name: str) -> None:
    """Bind a ClusterRole to a user in the whole cluster."""
    group = "rbac.authorization.k8s.io"
    await client.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )


async def until_available(client: Client, api: VisibilityApi) -> None:
    """Wait until the API server has found the visibility API."""

    async def is_available() -> bool:
        service = await client.get(API_SERVICES, f"{api.version}.{api.names.visibility_group}")
        (condition,) = [one for one in service["status"]["conditions"] if one["type"] == "Available"]
        assert condition["status"] == "True", condition
        return True

    await eventually(is_available, what="the APIService to be available")
