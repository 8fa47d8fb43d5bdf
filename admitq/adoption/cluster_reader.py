"""Reads a cluster for the plan of a take-over. Every request is a GET.

The manager in charge is found through what the API server calls: the Services behind the group's webhooks,
and the Deployments with pods that these Services select. So no name of another project has to be known.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from admitq.adoption.cluster import OLDER, Cluster, FoundConfiguration, is_ours, readable_version
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
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)

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
        str(value_at(one, ("spec", "names", "plural"))): one
        for one in await reader.all(CRDS)
        if value_at(one, ("spec", "group")) == names.group
    }
    objects: dict[str, tuple[JsonObject, ...]] = {}
    older: dict[str, tuple[JsonObject, ...]] = {}
    for plural, definition in definitions.items():
        if version := readable_version(definition):
            objects[plural] = await reader.all(_resource(definition, version))
        versions = value_at(definition, ("spec", "versions"), ())
        if plural in HAD_MORE_FIELDS and any(one["name"] == OLDER and one["served"] for one in versions):
            older[plural] = await reader.all(_resource(definition, OLDER))
    configured = [*await reader.all(MUTATING_WEBHOOKS), *await reader.all(VALIDATING_WEBHOOKS)]
    hooks = tuple(one for one in configured if _is_of(one, names) and not is_ours(one))
    held = [
        one for one in await reader.all(LEASES) if value_at(one, ("metadata", "name")) == names.lease_name
    ]
    found, leases = await _in_charge(reader, hooks, definitions.values(), held)
    deployments = tuple(one for one in found if not is_ours(one))
    return Cluster(
        names=names,
        definitions=definitions,
        objects=objects,
        older=older,
        webhooks=hooks,
        deployments=deployments,
        ours=tuple(one for one in found if is_ours(one)),
        leases=leases,
        configurations=await _configurations(reader, names, deployments),
        api_services=tuple(
            str(value_at(one, ("metadata", "name")))
            for one in await reader.all(API_SERVICES)
            if value_at(one, ("spec", "group")) == names.visibility_group
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
    """Return the Deployments in charge, and the leases that admitq does not hold.

    A Deployment is in charge if a Service behind a webhook or conversion selects its pods, or if its pod
    holds a lease.
    """
    found: dict[tuple[str, str], JsonObject] = {}
    for namespace, name in sorted({*_services(hooks, definitions)}):
        service = await reader.one(SERVICES, name, namespace)
        selector: Mapping[str, Any] = value_at(service, ("spec", "selector"), {}) or {}
        for one in await reader.all(DEPLOYMENTS, namespace) if selector else ():
            labels = value_at(one, ("spec", "template", "metadata", "labels"), {}) or {}
            if all(labels.get(key) == value for key, value in selector.items()):
                found[namespace, str(value_at(one, ("metadata", "name")))] = one
    others: list[JsonObject] = []
    for lease in leases:
        holders: list[JsonObject] = []
        namespace = str(value_at(lease, ("metadata", "namespace")))
        holder = str(value_at(lease, ("spec", "holderIdentity"), "") or "")
        for one in await reader.all(DEPLOYMENTS, namespace) if holder else ():
            # Managers write the name of their pod, which begins with the name of the Deployment.
            if holder.startswith(f"{(name := str(value_at(one, ('metadata', 'name'))))}-"):
                found[namespace, name] = one
                holders.append(one)
        if not any(map(is_ours, holders)):
            others.append(lease)
    return tuple(found.values()), tuple(others)


def _services(hooks: Iterable[JsonObject], definitions: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    configurations = [
        *(hook.get("clientConfig") for one in hooks for hook in one.get("webhooks") or ()),
        *(value_at(one, ("spec", "conversion", "webhook", "clientConfig")) for one in definitions),
    ]
    for one in configurations:
        service = value_at(one, ("service",))
        if isinstance(service, Mapping):
            yield str(service.get("namespace")), str(service.get("name"))


async def _configurations(
    reader: _ClusterReader, names: Names, deployments: Iterable[JsonObject]
) -> tuple[FoundConfiguration, ...]:
    """Return the configuration files in ConfigMaps that pods of the Deployments mount."""
    found: dict[str, FoundConfiguration] = {}
    for deployment in deployments:
        namespace = str(value_at(deployment, ("metadata", "namespace")))
        for volume in value_at(deployment, ("spec", "template", "spec", "volumes"), ()) or ():
            name = value_at(volume, ("configMap", "name"))
            if not isinstance(name, str):
                continue
            held = await reader.one(CONFIG_MAPS, name, namespace)
            for key, text in (value_at(held, ("data",), {}) or {}).items():
                given = _parsed(text)
                if str(given.get("apiVersion", "")).startswith(f"config.{names.group}/"):
                    place = f"configmaps/{name} in {namespace}, {key}"
                    found[place] = FoundConfiguration(place, given)
    return tuple(found.values())


def _parsed(text: Any) -> Mapping[str, Any]:
    try:
        given = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return {}
    return given if isinstance(given, Mapping) else {}
