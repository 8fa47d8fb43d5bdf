"""Reading what a take-over looks at. Every call is a GET.

Who is in charge is found by what the API server calls: the Services behind the group's webhooks, and the
Deployments whose pods these select. So no name of another project has to be known.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from admitq.adoption.cluster import Cluster, FoundConfiguration
from admitq.integrations.paths import Object, value_at
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
from admitq_api.labels import Names

API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
NEWER, OLDER = "v1beta2", "v1beta1"

HAD_MORE_FIELDS: Final = ("admissionchecks",)
"""Kinds whose older version had fields that the newer one has not."""


async def read(client: Client, names: Names) -> Cluster:
    """Read everything that is looked at.

    What cannot be read is noted, and the rest is read nevertheless.

    Raises:
        ApiError: the API server cannot be asked at all.
    """
    await client.request_json("GET", "/apis")
    reader = _Reader(client)
    definitions = {
        str(value_at(one, ("spec", "names", "plural"))): one
        for one in await reader.all(CRDS)
        if value_at(one, ("spec", "group")) == names.group
    }
    objects: dict[str, tuple[Object, ...]] = {}
    older: dict[str, tuple[Object, ...]] = {}
    for plural, definition in definitions.items():
        served = {
            one.get("name") for one in value_at(definition, ("spec", "versions"), ()) if one.get("served")
        }
        for version in (NEWER, OLDER):
            if version in served:
                objects[plural] = await reader.all(_resource(definition, version))
                break
        if plural in HAD_MORE_FIELDS and OLDER in served:
            older[plural] = await reader.all(_resource(definition, OLDER))
    configured = [*await reader.all(MUTATING_WEBHOOKS), *await reader.all(VALIDATING_WEBHOOKS)]
    hooks = tuple(one for one in configured if _is_of(one, names))
    leases = tuple(
        one for one in await reader.all(LEASES) if value_at(one, ("metadata", "name")) == names.lease_name
    )
    deployments = await _in_charge(reader, hooks, definitions.values(), leases)
    return Cluster(
        names=names,
        definitions=definitions,
        objects=objects,
        older=older,
        webhooks=hooks,
        deployments=deployments,
        leases=leases,
        configurations=await _configurations(reader, names, deployments),
        api_services=tuple(
            str(value_at(one, ("metadata", "name")))
            for one in await reader.all(API_SERVICES)
            if value_at(one, ("spec", "group")) == names.visibility_group
        ),
        unread=tuple(reader.unread),
    )


class _Reader:
    """Reads, and keeps what could not be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread: list[str] = []

    async def all(self, resource: Resource, namespace: str | None = None) -> tuple[Object, ...]:
        """All objects of a kind; none where they cannot be read."""
        try:
            items, _ = await self._client.list(resource, namespace)
        except ApiError as error:
            self.unread.append(f"{resource}: {error.message}")
            return ()
        return tuple(items)

    async def one(self, resource: Resource, name: str, namespace: str) -> Object | None:
        """An object, or None where there is none or it cannot be read."""
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if not error.is_not_found:
                self.unread.append(f"{resource} {namespace}/{name}: {error.message}")
            return None


def _resource(definition: Object, version: str) -> Resource:
    spec: Mapping[str, Any] = definition["spec"]
    names: Mapping[str, Any] = spec["names"]
    return Resource(
        spec["group"], version, names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
    )


def _is_of(configuration: Object, names: Names) -> bool:
    """Whether one of the webhooks of a configuration is called after the group."""
    hooks = configuration.get("webhooks") or ()
    return any(str(hook.get("name", "")).endswith(f".{names.group}") for hook in hooks)


async def _in_charge(
    reader: _Reader, hooks: Iterable[Object], definitions: Iterable[Object], leases: Iterable[Object]
) -> tuple[Object, ...]:
    """The Deployments whose pods Services behind webhooks and conversions select, or that hold a lease."""
    found: dict[tuple[str, str], Object] = {}
    for namespace, name in sorted({*_services(hooks, definitions)}):
        service = await reader.one(SERVICES, name, namespace)
        selector: Mapping[str, Any] = value_at(service, ("spec", "selector"), {}) or {}
        for one in await reader.all(DEPLOYMENTS, namespace) if selector else ():
            labels = value_at(one, ("spec", "template", "metadata", "labels"), {}) or {}
            if all(labels.get(key) == value for key, value in selector.items()):
                found[namespace, str(value_at(one, ("metadata", "name")))] = one
    for lease in leases:
        namespace = str(value_at(lease, ("metadata", "namespace")))
        holder = str(value_at(lease, ("spec", "holderIdentity"), "") or "")
        for one in await reader.all(DEPLOYMENTS, namespace) if holder else ():
            # A pod's name begins with its Deployment's, and managers sign with that of their pod.
            if holder.startswith(f"{(name := str(value_at(one, ('metadata', 'name'))))}-"):
                found[namespace, name] = one
    return tuple(found.values())


def _services(hooks: Iterable[Object], definitions: Iterable[Object]) -> Iterator[tuple[str, str]]:
    configurations = [
        *(hook.get("clientConfig") for one in hooks for hook in one.get("webhooks") or ()),
        *(value_at(one, ("spec", "conversion", "webhook", "clientConfig")) for one in definitions),
    ]
    for one in configurations:
        service = value_at(one, ("service",))
        if isinstance(service, Mapping):
            yield str(service.get("namespace")), str(service.get("name"))


async def _configurations(
    reader: _Reader, names: Names, deployments: Iterable[Object]
) -> tuple[FoundConfiguration, ...]:
    """The configuration files in ConfigMaps that pods of the Deployments have."""
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
