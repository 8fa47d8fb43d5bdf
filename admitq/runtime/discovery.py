"""Discovery: the groups, versions and resources that the API server serves now.

Every authenticated user may call it (ClusterRole ``system:discovery``), so it needs no access rule. It shows
what is served, while a CustomResourceDefinition may not be accepted yet.
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
        offered = await client.request_json("GET", "".join(f"/{quote(part, safe='')}" for part in parts))
    except ApiError as error:
        if error.is_not_found:
            return ()
        raise
    return tuple(
        Resource(group, version, one["name"], one["kind"], namespaced=one.get("namespaced") is True)
        for one in _listed(offered, "resources")
        if isinstance(one.get("name"), str) and isinstance(one.get("kind"), str) and "/" not in one["name"]
    )


async def find_served(client: Client, wanted: Iterable[Resource]) -> frozenset[Resource]:
    """Return the resources among these that are served in exactly this version and under this name.

    One call lists the group versions, and one more is made for each version that is served. A version with a
    server does not answer counts as not served.

    Raises:
        ApiError: the list of groups cannot be read.
    """
    remaining = frozenset(wanted)
    offered = await list_group_versions(client)
    versions = {(one.group, one.version) for one in remaining}
    found: set[Resource] = set()
    for group, version in sorted(versions):
        if group and (group, version) not in offered:
            continue
        try:
            served = await list_resources(client, group, version)
        except ApiError as error:
            log.info("discovery of version failed", group=group, version=version, error=str(error))
            continue
        found |= {one for one in remaining if replace(one, view="") in served}
    return frozenset(found)


async def find_resource_of_kind(client: Client, group: str, version: str, kind: str) -> Resource | None:
    """Return the resource of a kind; None if it is not served.

    Raises:
        ApiError: the call failed.
    """
    offered = await list_resources(client, group, version)
    return next((one for one in offered if one.kind == kind), None)


async def find_resources_of_kind(client: Client, group: str, kind: str) -> tuple[Resource, ...]:
    """Return the resources of a kind, one for each served version of its group.

    Raises:
        ApiError: the call failed.
    """
    versions = (
        [version for one, version in await list_group_versions(client) if one == group] if group else ["v1"]
    )
    offered = [one for version in sorted(versions) for one in await list_resources(client, group, version)]
    return tuple(one for one in offered if one.kind == kind)


def _listed(answer: Any, field: str) -> list[Mapping[str, Any]]:
    found = answer.get(field) if isinstance(answer, Mapping) else None
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("Mapping[str, Any]", one) for one in items if isinstance(one, Mapping)]
