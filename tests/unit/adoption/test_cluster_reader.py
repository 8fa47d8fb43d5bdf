"""The cluster reader finds the manager in charge by the endpoints that the API server calls."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
import yaml

from admitq.adoption.cluster import Cluster
from admitq.adoption.cluster_reader import read_cluster
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admitq_api.crds import create_crds
from admitq_api.labels import COMPAT_GROUP, names_for

NAMES = names_for(COMPAT_GROUP)
OTHER_NAMESPACE = "their-system"
OUR_LABELS = {"app.kubernetes.io/part-of": "admitq"}
FILE = {"apiVersion": NAMES.config_api_version, "kind": "Configuration", "clientConnection": {"qps": 9}}


class FakeClient:
    """Returns objects by plural. A resource without objects has an empty list."""

    def __init__(self, held: Mapping[str, list[Any]], forbidden: frozenset[str] = frozenset()) -> None:
        self._held = held
        self._forbidden = forbidden

    async def request_json(self, _verb: str, _path: str) -> Any:
        return {}

    async def list(self, resource: Resource, namespace: str | None = None) -> tuple[list[Any], str]:
        if resource.plural in self._forbidden:
            raise ApiError(403, "Forbidden", "not for you")
        objects = self._held.get(resource.plural, [])
        return [item for item in objects if namespace in {None, item["metadata"].get("namespace")}], "1"

    async def get(self, resource: Resource, name: str, namespace: str) -> Any:
        for item in (await self.list(resource, namespace))[0]:
            if item["metadata"]["name"] == name:
                return item
        raise ApiError(404, "NotFound", "none")


def named(name: str, namespace: str | None = OTHER_NAMESPACE, labels: Any = None, **parts: Any) -> Any:
    metadata = {"name": name, "labels": labels or {}, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, **parts}


def hooks(name: str, hook: str, service: str, path: str, labels: Any = None) -> Any:
    called = {"service": {"name": service, "namespace": OTHER_NAMESPACE, "path": path}}
    return named(name, None, labels, webhooks=[{"name": hook, "clientConfig": called}])


def deployment(name: str, labels: Any = None) -> Any:
    volumes = [{"configMap": {"name": "their-config"}}, {"emptyDir": {}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"volumes": volumes}}
    return named(name, labels=labels, spec={"template": template})


def service(name: str, app: str) -> Any:
    return named(name, spec={"selector": {"app": app}})


def lease(holder: str) -> Any:
    return named(NAMES.lease_name, spec={"holderIdentity": holder})


HELD: dict[str, list[Any]] = {
    CRDS.plural: create_crds(COMPAT_GROUP),
    "admissionchecks": [named("c", None, spec={"controllerName": "example.com/c"})],
    MUTATING_WEBHOOKS.plural: [
        # Recognized by the path: the name of the webhook does not matter.
        hooks(
            "theirs", "mqueue.example.com", "their-webhooks", "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"
        ),
        hooks("ours", f"mjob.{COMPAT_GROUP}", "our-webhooks", "/mutate-batch-v1-job", OUR_LABELS),
        hooks("policy", "policy.example.com", "policies", "/mutate"),
    ],
    VALIDATING_WEBHOOKS.plural: [hooks("named", f"vjob.{COMPAT_GROUP}", "gone", "/validate-batch-v1-job")],
    SERVICES.plural: [
        service("their-webhooks", "their-manager"),
        service("our-webhooks", "admitq-webhook"),
        service("policies", "policy"),
    ],
    DEPLOYMENTS.plural: [
        deployment("their-manager"),
        deployment("their-standby"),
        deployment("admitq-manager", OUR_LABELS),
        deployment("policy"),
    ],
    CONFIG_MAPS.plural: [
        named("their-config", data={"a": yaml.safe_dump(FILE), "b": "{no yaml", "c": "x: 1"})
    ],
    LEASES.plural: [lease("their-standby-5f_1"), named("other", spec={"holderIdentity": "policy-1"})],
    "apiservices": [
        named("v1.visibility", None, spec={"group": NAMES.visibility_group}),
        named("v1.apps", None, spec={"group": "apps"}),
    ],
}


async def read(held: Mapping[str, list[Any]], forbidden: frozenset[str] = frozenset()) -> Cluster:
    return await read_cluster(cast("Client", FakeClient(held, forbidden)), NAMES)


def names_of(objects: Any) -> list[str]:
    return [item["metadata"]["name"] for item in objects]


async def test_deployment_behind_webhooks_or_lease_is_in_charge() -> None:
    cluster = await read(HELD)
    assert names_of(cluster.webhooks) == ["theirs", "named"]
    assert names_of(cluster.deployments) == ["their-manager", "their-standby"]
    assert names_of(cluster.leases) == [NAMES.lease_name]
    assert [(file.place, file.document) for file in cluster.configurations] == [
        (f"configmaps/their-config in {OTHER_NAMESPACE}, a", FILE)
    ]
    assert cluster.api_services == ("v1.visibility",)
    assert (cluster.namespace, cluster.unread) == (OTHER_NAMESPACE, ())
    assert names_of(cluster.objects["admissionchecks"]) == names_of(cluster.older["admissionchecks"]) == ["c"]


async def test_admitq_installation_is_not_a_manager_to_stop() -> None:
    cluster = await read({**HELD, LEASES.plural: [lease("admitq-manager-7c_1")]})
    assert names_of(cluster.deployments) == ["their-manager"]
    assert (names_of(cluster.own_deployments), cluster.leases) == (["admitq-manager"], ())


@pytest.mark.parametrize("plural", [CONFIG_MAPS.plural, "workloads", LEASES.plural])
async def test_unreadable_resource_is_reported_and_others_are_read(plural: str) -> None:
    cluster = await read(HELD, frozenset({plural}))
    assert "their-manager" in names_of(cluster.deployments)
    assert {problem.rpartition(": ")[2] for problem in cluster.unread} == {"not for you"}
