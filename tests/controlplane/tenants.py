"""Clients with the rights of a tenant: only the role `edit` in one namespace."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.resources import CLUSTER_ROLES, Resource
from localcluster.cluster import LocalCluster
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage

RULES_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False
)
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
        for role in roles or ("edit",):
            await _until_granted(own, (await stage.client.get(CLUSTER_ROLES, role))["rules"])
        yield own


async def _until_granted(stage: Stage, rules: list[dict[str, Any]]) -> None:
    """Wait until the API server knows rules: it observes role bindings after their creation."""
    review = {"apiVersion": RULES_REVIEWS.api_version, "kind": RULES_REVIEWS.kind}
    wanted = [_without_empty(rule) for rule in rules if rule.get("resources")]

    async def are_granted() -> bool:
        made = await stage.client.create(RULES_REVIEWS, {**review, "spec": {"namespace": stage.namespace}})
        granted = [_without_empty(rule) for rule in made["status"]["resourceRules"]]
        return all(rule in granted for rule in wanted)

    await eventually(are_granted, what=f"the rights of a tenant in {stage.namespace}")


def _without_empty(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in rule.items() if value}


@asynccontextmanager
async def impersonate(stage: Stage, cluster: LocalCluster, user: str) -> AsyncGenerator[Stage]:
    """Open the namespace of a stage as another user."""
    credentials = load_credentials(cluster.kubeconfig)
    impersonated = replace(credentials, headers={**credentials.headers, "Impersonate-User": user})
    async with Client(impersonated, user_agent="admitq-tests-tenant", qps=-1, timeout=30.0) as client:
        yield replace(stage, client=client)
