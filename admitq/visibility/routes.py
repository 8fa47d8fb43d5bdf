"""The subresources of the visibility API, as data.

To add one, add a `Subresource` to the list of `admitq.app.visibility`. Discovery, OpenAPI documents, paths,
methods, and the access that callers need follow from it. A resource that users only create, such as a review,
is a subresource without a name.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.serving.access_reviews import Access
from admitq.translate.viewers import EVERYTHING, Viewer
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names

VERBS: Final[Mapping[str, str]] = {"GET": "get", "HEAD": "get", "POST": "create"}
"""The verb of RBAC for each method."""

SUCCESSES: Final[Mapping[str, int]] = {"GET": 200, "POST": 201}
"""The code of an answer for each method."""

KINDS: Final[Mapping[str, str]] = {
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "workloads": "Workload",
    "whatif": "WhatIf",
    "localwhatif": "LocalWhatIf",
    "check": "Check",
    "localcheck": "LocalCheck",
}
"""The kind of each resource."""

NAMESPACED: Final = frozenset({"localcheck", "localqueues", "localwhatif", "workloads"})
"""The resources that are namespaced."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request for a subresource of one object, or to create an object.

    Attributes:
        api_version: group and version of the answer.
        namespace: of the object; empty for cluster-scoped objects.
        name: of the object.
        query: the query parameters.
        body: the body of a POST.
        viewer: what the caller may see.
    """

    api_version: str
    namespace: str
    name: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    viewer: Viewer = EVERYTHING


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: the header of the column.
        type: ``string``, ``integer`` or ``date``.
        description: what it shows.
        format: ``name`` for the column with the name of the object.
    """

    name: str
    type: str
    description: str
    format: str = ""


Cells = list[Any]
"""A value for each column of a table."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How the items of an answer, or an answer without items, become rows of a table."""

    columns: tuple[Column, ...]
    row: Callable[[JsonObject], Cells]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter, for the OpenAPI documents."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource of a resource.

    Attributes:
        resource: one of `KINDS`.
        name: its name in the path; empty for the resource itself, which has no named objects.
        method: ``GET`` or ``POST``.
        kind: the kind of its answers.
        summary: what it returns, for the OpenAPI documents.
        answer: answers a question; raises `RequestRejected` if it cannot.
        schemas: the JSON schema of ``kind``, and of other types that it refers to, by name.
        table: how answers become tables; None if they have none.
        parameters: the query parameters.
        names_others: whether callers with the permission in all namespaces see the names of workloads of
            all namespaces. Other callers see the names of their own namespace.
    """

    resource: str
    name: str
    method: str
    kind: str
    summary: str
    answer: Callable[[Question], Awaitable[dict[str, Any]]]
    schemas: Mapping[str, Mapping[str, Any]]
    table: TableFormat | None = None
    parameters: tuple[Parameter, ...] = ()
    names_others: bool = False

    @property
    def is_namespaced(self) -> bool:
        """Whether the resource is namespaced."""
        return self.resource in NAMESPACED

    @property
    def path(self) -> str:
        """The path below the version, with ``{namespace}`` and ``{name}``."""
        place = "namespaces/{namespace}/" if self.is_namespaced else ""
        return f"{place}{self.resource}/{{name}}/{self.name}" if self.name else f"{place}{self.resource}"


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The parts of a path below a version of the API."""

    version: str
    namespace: str
    resource: str
    name: str
    subresource: str

    def access(self, group: str, verb: str) -> Access:
        """Return the access that a request needs."""
        return Access(verb, group, self.resource, self.subresource, self.namespace, self.name)


def list_versions(names: Names) -> tuple[str, ...]:
    """Return the versions that the API is served in, the preferred one first."""
    older = names.older_version
    return (names.version,) if older is None else (names.version, older)


def parse_path(path: str, group: str) -> ResourcePath | None:
    """Return the parts of the path of a resource; None for all other paths."""
    empty, apis, its_group, version, *segments = (*path.split("/"), "", "", "", "")[
        : max(4, path.count("/") + 1)
    ]
    if (empty, apis, its_group) != ("", "apis", group) or not version:
        return None
    namespace = ""
    if segments[:1] == ["namespaces"]:
        namespace, segments = (segments[1] if len(segments) > 1 else ""), segments[2:]
        if not namespace:
            return None
    if not segments or not all(segments) or len(segments) > 3:
        return None
    resource, name, subresource = (*segments, "", "")[:3]
    return ResourcePath(version, namespace, resource, name, subresource)
