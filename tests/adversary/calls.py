"""The calls with which a tenant can change a field, and their expected ends."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.json_objects import value_at
from admitq_api.labels import Names

Path = tuple[str | int, ...]

STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class Way(StrEnum):
    """How a tenant writes a field of an object that exists."""

    JSON_REMOVE = "JSON patch, remove"
    JSON_REPLACE = "JSON patch, replace"
    MERGE_NULL = "merge patch, null"
    MERGE = "merge patch, other value"
    STRATEGIC_NULL = "strategic merge patch, null"
    STRATEGIC = "strategic merge patch, other value"
    APPLY = "server-side apply, other value"
    PUT_WITHOUT = "PUT without the field"
    PUT = "PUT, other value"


REMOVALS: Final = (Way.JSON_REMOVE, Way.MERGE_NULL, Way.STRATEGIC_NULL, Way.PUT_WITHOUT)
REPLACEMENTS: Final = (Way.JSON_REPLACE, Way.MERGE, Way.STRATEGIC, Way.APPLY, Way.PUT)
OF_CUSTOM_KINDS: Final = frozenset(Way) - {Way.STRATEGIC, Way.STRATEGIC_NULL}
"""The API server has strategic merge patches for its own kinds only."""


@dataclass(frozen=True)
class Refused:
    """The API server answers with this status and a message that contains all texts; nothing changes."""

    code: int
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoEffect:
    """The call succeeds, and the field is unchanged."""


@dataclass(frozen=True)
class Allowed:
    """The call succeeds, and the field has the tenant's value."""


@dataclass(frozen=True)
class Undone:
    """The call may succeed; admitq sets the field back. The sampler checks how much runs until then."""


End = Refused | NoEffect | Allowed | Undone

NO_RIGHT: Final = Refused(403, ("cannot",))
"""The tenant's roles do not allow the call; no webhook is called."""


@dataclass(frozen=True)
class Attempt:
    """A row of the table: one call on a field of one object.

    Attributes:
        scene: the objects that exist (a key of ``scenes.SCENES``).
        target: the object of the scene that the call changes.
        field: path of the field; labels and annotations of admitq as ``{names.managed}``.
        way: how the field is written.
        end: what must happen.
        value: what the tenant writes, where the way writes a value.
        subresource: of the object, or empty.
    """

    scene: str
    target: str
    field: Path
    way: Way
    end: End
    value: Any = "forged"
    subresource: str = ""

    @property
    def name(self) -> str:
        """A description of the attempt, unique in the table."""
        place = "/".join(map(str, self.field))
        target = "/".join(filter(None, (self.scene, self.target, self.subresource)))
        return f"{target}: {self.way} {place}={self.value}"


@dataclass(frozen=True)
class Target:
    """An object that attempts are made on."""

    resource: Resource
    name: str
    namespace: str | None

    def path(self, subresource: str = "") -> str:
        """The URL path."""
        return self.resource.path(self.namespace, self.name, subresource or None)


async def make(client: Client, admin: Client, target: Target, attempt: Attempt, field: Path) -> None:
    """Make the call of a row as the tenant.

    Args:
        client: the tenant's.
        admin: reads the object that PUT writes back.
        target: the object.
        attempt: the row.
        field: the row's path with names of the API group under test.

    Raises:
        ApiError: the call is refused.
    """
    path = target.path(attempt.subresource)
    way, value = attempt.way, attempt.value
    match way:
        case Way.JSON_REMOVE | Way.JSON_REPLACE:
            operation = {"op": "remove"} if way == Way.JSON_REMOVE else {"op": "add", "value": value}
            body: Any = [{**operation, "path": pointer(field)}]
            await client.request_json("PATCH", path, body, content_type=JSON_PATCH)
        case Way.MERGE_NULL | Way.MERGE:
            await client.request_json(
                "PATCH", path, nested(field, None if way == Way.MERGE_NULL else value), content_type=MERGE
            )
        case Way.STRATEGIC_NULL | Way.STRATEGIC:
            body = nested(field, None if way == Way.STRATEGIC_NULL else value)
            await client.request_json("PATCH", path, body, content_type=STRATEGIC)
        case Way.APPLY:
            body = nested(field, value)
            body |= {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
            body["metadata"] = {**body.get("metadata", {}), "name": target.name}
            query = {"fieldManager": "tenant", "force": "true"}
            await client.request_json("PATCH", path, body, query=query, content_type=APPLY)
        case Way.PUT_WITHOUT | Way.PUT:
            for _ in range(5):
                body = await admin.request_json("GET", target.path())
                write(body, field, None if way == Way.PUT_WITHOUT else value)
                try:
                    await client.request_json("PUT", path, body, content_type=JSON)
                except ApiError as error:
                    if error.is_conflict:
                        continue
                    raise
                return
            raise AssertionError(f"PUT of {target.name} met five conflicts")


def pointer(field: Path) -> str:
    """A path as a JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in field)


def nested(field: Path, value: Any) -> dict[str, Any]:
    """An object with only a value at a path, which has no list positions."""
    result: Any = value
    for step in reversed(field):
        result = {step: result}
    return result


def write(obj: dict[str, Any], field: Path, value: Any) -> None:
    """Set a field of an object, or, with None, remove it."""
    *outer, key = field
    place: Any = obj
    last: Any = key
    for step in outer:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    if value is not None:
        place[last] = copy.deepcopy(value)
    elif isinstance(place, list):
        del place[last]
    else:
        place.pop(last, None)


def with_names(field: Path, names: Names) -> Path:
    """A path with the names of the API group in place of ``{names.managed}`` and others."""
    return tuple(step.format(names=names) if isinstance(step, str) else step for step in field)


def read(obj: Mapping[str, Any], field: Path) -> Any:
    """The value at a path; None if it does not exist."""
    return value_at(obj, field)
