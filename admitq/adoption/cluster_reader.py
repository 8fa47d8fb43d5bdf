"""Reads a cluster for the plan of a take-over. Every request is a GET.

The manager in charge is found through what the API server calls: the Services behind the group's webhooks,
and the Deployments with pods that these Services select. So this module needs no names of other projects.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from admitq.adoption.cluster import OLDER, Cluster, FoundConfiguration, belongs_to_admitq, readable_version
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import (
    API_SERVICES,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

HAD_MORE_FIELDS: Final = ("admissionchecks",)
"""Kinds that lost fields in the newer version."""


async def read_cluster(client: Client, names: Names) -> Cluster:
    """Read all objects that the checks need.

    Resources that cannot be read are listed in the result, and do not stop the others.

    Raises:
        ApiError: the API server cannot be reached.
    """
    await client.request_json("GET", "/apis")
    reader = _ClusterReader(client)
    definitions = {
        str(value_at(definition, ("spec", "names", "plural"))): definition
        for definition in await reader.all(CRDS)
        if value_at(definition, ("spec", "group")) == names.group
    }
    objects: dict[str, tuple[JsonObject, ...]] = {}
    older: dict[str, tuple[JsonObject, ...]] = {}
    for plural, definition in definitions.items():
        if version := readable_version(definition):
            objects[plural] = await reader.all(_resource(definition, version))
        versions = value_at(definition, ("spec", "versions"), ())
        if plural in HAD_MORE_FIELDS and any(
            version["name"] == OLDER and version["served"] for version in versions
        ):
            older[plural] = await reader.all(_resource(definition, OLDER))
    configured = [*await reader.all(MUTATING_WEBHOOKS), *await reader.all(VALIDATING_WEBHOOKS)]
    hooks = tuple(
        webhook for webhook in configured if _is_of(webhook, names) and not belongs_to_admitq(webhook)
    )
    group_leases = [
        lease
        for lease in await reader.all(LEASES)
        if value_at(lease, ("metadata", "name")) == names.lease_name
    ]
    in_charge, leases = await _in_charge(reader, hooks, definitions.values(), group_leases)
    deployments = tuple(deployment for deployment in in_charge if not belongs_to_admitq(deployment))
    return Cluster(
        names=names,
        definitions=definitions,
        objects=objects,
        older=older,
        webhooks=hooks,
        deployments=deployments,
        own_deployments=tuple(deployment for deployment in in_charge if belongs_to_admitq(deployment)),
        leases=leases,
        configurations=await _configurations(reader, names, deployments),
        api_services=tuple(
            str(value_at(service, ("metadata", "name")))
            for service in await reader.all(API_SERVICES)
            if value_at(service, ("spec", "group")) == names.visibility_group
        ),
        unread=tuple(reader.unread),
    )


class _ClusterReader:
    """Reads objects, and collects the resources that could not be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread: list[str] = []

    async def all(self, resource: Resource, namespace: str | None = None) -> tuple[JsonObject, ...]:
        """Return all objects of a kind; none if they cannot be read."""
        try:
            items, _ = await self._client.list(resource, namespace)
        except ApiError as error:
            self.unread.append(f"{resource}: {error.message}")
            return ()
        return tuple(items)

    async def one(self, resource: Resource, name: str, namespace: str) -> JsonObject | None:
        """Return an object; None if it does not exist or cannot be read."""
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if not error.is_not_found:
                self.unread.append(f"{resource} {namespace}/{name}: {error.message}")
            return None


def _resource(definition: JsonObject, version: str) -> Resource:
    spec: Mapping[str, Any] = definition["spec"]
    names: Mapping[str, Any] = spec["names"]
    return Resource(
        spec["group"], version, names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
    )


def _is_of(configuration: JsonObject, names: Names) -> bool:
    """Whether the name or the path of a webhook names the group.

    Its rules are no evidence: policies of other programs may match the group too.
    """
    return any(
        str(hook.get("name", "")).endswith(f".{names.group}") or names.group.replace(".", "-") in _path(hook)
        for hook in configuration.get("webhooks") or ()
    )


def _path(hook: Mapping[str, Any]) -> str:
    config = hook.get("clientConfig")
    return str(value_at(config, ("service", "path")) or value_at(config, ("url",)) or "")


async def _in_charge(
    reader: _ClusterReader,
    hooks: Iterable[JsonObject],
    definitions: Iterable[JsonObject],
    leases: Iterable[JsonObject],
) -> tuple[tuple[JsonObject, ...], tuple[JsonObject, ...]]:
    """Return the Deployments of the manager in charge, and the leases that admitq does not hold.

    A Deployment is in charge if a Service behind a webhook or conversion selects its pods, or if its pod
    holds a lease.
    """
    in_charge: dict[tuple[str, str], JsonObject] = {}
    for namespace, name in sorted({*_services(hooks, definitions)}):
        service = await reader.one(SERVICES, name, namespace)
        selector: Mapping[str, Any] = value_at(service, ("spec", "selector"), {}) or {}
        for deployment in await reader.all(DEPLOYMENTS, namespace) if selector else ():
            labels = value_at(deployment, ("spec", "template", "metadata", "labels"), {}) or {}
            if all(labels.get(key) == value for key, value in selector.items()):
                in_charge[namespace, str(value_at(deployment, ("metadata", "name")))] = deployment
    others: list[JsonObject] = []
    for lease in leases:
        holders: list[JsonObject] = []
        namespace = str(value_at(lease, ("metadata", "namespace")))
        holder = str(value_at(lease, ("spec", "holderIdentity"), "") or "")
        for deployment in await reader.all(DEPLOYMENTS, namespace) if holder else ():
            # Managers write the name of their pod, which begins with the name of the Deployment.
            if holder.startswith(f"{(name := str(value_at(deployment, ('metadata', 'name'))))}-"):
                in_charge[namespace, name] = deployment
                holders.append(deployment)
        if not any(map(belongs_to_admitq, holders)):
            others.append(lease)
    return tuple(in_charge.values()), tuple(others)


def _services(hooks: Iterable[JsonObject], definitions: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    configurations = [
        *(
            hook.get("clientConfig")
            for configuration in hooks
            for hook in configuration.get("webhooks") or ()
        ),
        *(
            value_at(definition, ("spec", "conversion", "webhook", "clientConfig"))
            for definition in definitions
        ),
    ]
    for client_config in configurations:
        service = value_at(client_config, ("service",))
        if isinstance(service, Mapping):
            yield str(service.get("namespace")), str(service.get("name"))


async def _configurations(
    reader: _ClusterReader, names: Names, deployments: Iterable[JsonObject]
) -> tuple[FoundConfiguration, ...]:
    """Return the configuration files in ConfigMaps that pods of the Deployments mount."""
    files: dict[str, FoundConfiguration] = {}
    for deployment in deployments:
        namespace = str(value_at(deployment, ("metadata", "namespace")))
        for volume in value_at(deployment, ("spec", "template", "spec", "volumes"), ()) or ():
            name = value_at(volume, ("configMap", "name"))
            if not isinstance(name, str):
                continue
            config_map = await reader.one(CONFIG_MAPS, name, namespace)
            for key, text in (value_at(config_map, ("data",), {}) or {}).items():
                document = _parsed(text)
                if str(document.get("apiVersion", "")).startswith(f"config.{names.group}/"):
                    place = f"configmaps/{name} in {namespace}, {key}"
                    files[place] = FoundConfiguration(place, document)
    return tuple(files.values())


def _parsed(text: Any) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, Mapping) else {}
