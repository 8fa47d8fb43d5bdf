"""Discovery: the groups, versions and resources that the API server serves now.

Every authenticated user may call it (ClusterRole ``system:discovery``), so it needs no access rule. In
contrast to the list of CustomResourceDefinitions, it contains only resources that the server really serves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

from admitq.process.logs import logger
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource

log = logger(__name__)


async def list_group_versions(client: Client) -> frozenset[tuple[str, str]]:
    """Return group and version of all served APIs except the core API.

    Raises:
        ApiError: the call failed.
    """
    groups = _listed(await client.request_json("GET", "/apis"), "groups")
    return frozenset(
        (str(group.get("name")), str(version.get("version")))
        for group in groups
        for version in _listed(group, "versions")
    )


async def list_resources(client: Client, group: str, version: str) -> tuple[Resource, ...]:
    """Return the resources of a group version, without subresources; none if it is not served.

    Raises:
        ApiError: the call failed.
    """
    parts = ("apis", group, version) if group else ("api", version)
    try:
        answer = await client.request_json("GET", "".join(f"/{quote(part, safe='')}" for part in parts))
    except ApiError as error:
        if error.is_not_found:
            return ()
        raise
    return tuple(
        Resource(group, version, item["name"], item["kind"], namespaced=item.get("namespaced") is True)
        for item in _listed(answer, "resources")
        if isinstance(item.get("name"), str) and isinstance(item.get("kind"), str) and "/" not in item["name"]
    )


async def find_served(client: Client, wanted: Iterable[Resource]) -> frozenset[Resource]:
    """Return the resources among ``wanted`` that are served with exactly this version and name.

    One call lists the group versions, and one more call each served version. A version whose server does not
    answer counts as not served.

    Raises:
        ApiError: the list of groups cannot be read.
    """
    resources = frozenset(wanted)
    served_versions = await list_group_versions(client)
    versions = {(resource.group, resource.version) for resource in resources}
    served: set[Resource] = set()
    for group, version in sorted(versions):
        if group and (group, version) not in served_versions:
            continue
        try:
            listed = await list_resources(client, group, version)
        except ApiError as error:
            log.info("discovery of version failed", group=group, version=version, error=str(error))
            continue
        served |= {resource for resource in resources if replace(resource, view="") in listed}
    return frozenset(served)


async def find_resource_of_kind(client: Client, group: str, version: str, kind: str) -> Resource | None:
    """Return the resource of a kind; None if it is not served.

    Raises:
        ApiError: the call failed.
    """
    resources = await list_resources(client, group, version)
    return next((resource for resource in resources if resource.kind == kind), None)


async def find_resources_of_kind(client: Client, group: str, kind: str) -> tuple[Resource, ...]:
    """Return the resources of a kind, one for each served version of its group.

    Raises:
        ApiError: the call failed.
    """
    versions = ["v1"]
    if group:
        versions = [version for name, version in await list_group_versions(client) if name == group]
    resources = [
        resource for version in sorted(versions) for resource in await list_resources(client, group, version)
    ]
    return tuple(resource for resource in resources if resource.kind == kind)


def _listed(answer: Any, field: str) -> list[Mapping[str, Any]]:
    """Return the mappings in a list field of an answer; none if the answer is malformed."""
    value = answer.get(field) if isinstance(answer, Mapping) else None
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
