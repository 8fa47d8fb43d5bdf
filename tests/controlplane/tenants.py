"""Clients with the rights of a tenant: only the role `edit` in one namespace."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.resources import Resource
from localcluster.cluster import LocalCluster
from tests.controlplane.stage import Stage

ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True)


@asynccontextmanager
async def tenant(stage: Stage, cluster: LocalCluster, *roles: str) -> AsyncGenerator[Stage]:
    """Open the namespace of a stage as a user with these ClusterRoles in it; ``edit`` by default."""
    user = f"tenant-{stage.namespace}"
    for role in roles or ("edit",):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        await stage.create(ROLE_BINDINGS, f"tenant-{role}", {"roleRef": reference, "subjects": [subject]})
    async with impersonate(stage, cluster, user) as own:
        yield own


@asynccontextmanager
async def impersonate(stage: Stage, cluster: LocalCluster, user: str) -> AsyncGenerator[Stage]:
    """Open the namespace of a stage as another user."""
    credentials = load_credentials(cluster.kubeconfig)
    impersonated = replace(credentials, headers={**credentials.headers, "Impersonate-User": user})
    async with Client(impersonated, user_agent="admitq-tests-tenant", qps=-1, timeout=30.0) as client:
        yield replace(stage, client=client)
