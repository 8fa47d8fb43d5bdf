"""The discovery documents and the OpenAPI documents of the visibility API. They follow from its routes."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from admitq.visibility.routes import (
    KINDS,
    NAMESPACED,
    SUCCESSES,
    VERBS,
    Parameter,
    Subresource,
    list_versions,
)
from admitq_api.labels import Names
from admitq_api.version import VERSION


def create_documents(names: Names, routes: Sequence[Subresource]) -> dict[str, Mapping[str, Any]]:
    """Return all documents by their paths."""
    group, versions = names.visibility_group, list_versions(names)
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    described = {"name": group, "versions": served, "preferredVersion": served[0]}
    documents: dict[str, Mapping[str, Any]] = {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [described]},
        f"/apis/{group}": {"kind": "APIGroup", "apiVersion": "v1", **described},
        "/openapi/v2": _openapi_v2(group, versions, routes),
    }
    third: dict[str, Any] = {}
    for version in versions:
        documents[f"/apis/{group}/{version}"] = _list_resources(group, version, routes)
        path = f"apis/{group}/{version}"
        document = _openapi_v3(group, version, routes)
        documents[f"/openapi/v3/{path}"] = document
        # Clients fetch a document again when its URL has changed.
        digest = hashlib.sha256(orjson.dumps(document)).hexdigest()[:32].upper()
        third[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    documents["/openapi/v3"] = {"paths": third}
    return documents


def _list_resources(group: str, version: str, routes: Iterable[Subresource]) -> dict[str, Any]:
    """Return the resources of a version. Objects have no verbs themselves: only subresources are served."""
    resources: list[dict[str, Any]] = [
        {
            "name": resource,
            "singularName": KINDS[resource].lower(),
            "namespaced": resource in NAMESPACED,
            "kind": KINDS[resource],
            "verbs": [],
        }
        for resource in dict.fromkeys(route.resource for route in routes if route.name)
    ]
    resources += [
        {
            "name": f"{route.resource}/{route.name}" if route.name else route.resource,
            "singularName": "" if route.name else route.kind.lower(),
            "namespaced": route.is_namespaced,
            "kind": route.kind,
            "verbs": [VERBS[route.method]],
        }
        for route in routes
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": sorted(resources, key=lambda resource: resource["name"]),
    }


# --- OpenAPI ------------------------------------------------------------------------------------------

_V2_DEFINITIONS: Final = "#/definitions/"
_V3_SCHEMAS: Final = "#/components/schemas/"
_IN_PATH: Final[Mapping[str, str]] = {
    "namespace": "The namespace of the object.",
    "name": "The name of the object.",
}


def _openapi_v2(group: str, versions: Iterable[str], routes: Sequence[Subresource]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for version in versions:
        definitions |= _schemas(group, version, routes, _V2_DEFINITIONS)
        for route in routes:
            answer = {"$ref": _V2_DEFINITIONS + _full_name(group, version, route.kind)}
            in_path = [
                {**_in_path(name), "type": "string"} for name in _IN_PATH if f"{{{name}}}" in route.path
            ]
            operation = {
                **_operation(group, version, route),
                "produces": ["application/json"],
                "schemes": ["https"],
                "parameters": [
                    *([{**_BODY, "schema": answer}] if route.method == "POST" else ()),
                    *({**_in_query(each), "type": each.type} for each in route.parameters),
                ],
                "responses": {_success(route): {"description": "OK", "schema": answer}, **_UNAUTHORIZED},
            }
            paths[f"/apis/{group}/{version}/{route.path}"] = {
                route.method.lower(): operation,
                "parameters": in_path,
            }
    return {"swagger": "2.0", "info": _info(group), "paths": paths, "definitions": definitions}


def _openapi_v3(group: str, version: str, routes: Sequence[Subresource]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        answer = {"$ref": _V3_SCHEMAS + _full_name(group, version, route.kind)}
        content = {"application/json": {"schema": answer}}
        in_path = [
            {**_in_path(name), "schema": {"type": "string"}}
            for name in _IN_PATH
            if f"{{{name}}}" in route.path
        ]
        operation = {
            **_operation(group, version, route),
            "parameters": [{**_in_query(each), "schema": {"type": each.type}} for each in route.parameters],
            **({"requestBody": {"required": True, "content": content}} if route.method == "POST" else {}),
            "responses": {_success(route): {"description": "OK", "content": content}, **_UNAUTHORIZED},
        }
        paths[f"/apis/{group}/{version}/{route.path}"] = {
            route.method.lower(): operation,
            "parameters": in_path,
        }
    schemas = _schemas(group, version, routes, _V3_SCHEMAS)
    return {"openapi": "3.0.0", "info": _info(group), "paths": paths, "components": {"schemas": schemas}}


_BODY: Final[Mapping[str, Any]] = {"name": "body", "in": "body", "required": True}
_UNAUTHORIZED: Final = {"401": {"description": "Unauthorized"}}


def _success(route: Subresource) -> str:
    return str(SUCCESSES[route.method])


def _info(group: str) -> dict[str, str]:
    return {"title": group, "version": VERSION}


def _operation(group: str, version: str, route: Subresource) -> dict[str, Any]:
    verb = "read" if route.method == "GET" else "create"
    owner = ("Namespaced" if route.is_namespaced else "") + KINDS[route.resource]
    return {
        "description": route.summary,
        "operationId": f"{verb}{_title(group)}{version.title()}{owner}{route.name.title()}",
        "tags": [f"{_title(group)}_{version}"],
        "x-kubernetes-action": VERBS[route.method],
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": route.kind},
    }


def _title(group: str) -> str:
    return "".join(part.title() for part in group.replace("-", ".").split("."))


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": _IN_PATH[name]}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, "in": "query", "description": parameter.description}


def _full_name(group: str, version: str, kind: str) -> str:
    """Return the name of a type, which must be unique among all APIs of a cluster."""
    return ".".join((*reversed(group.split(".")), version, kind))


def _schemas(group: str, version: str, routes: Iterable[Subresource], place: str) -> dict[str, Any]:
    """Return the types of all answers by their full names. References point to ``place``."""

    def resolve(value: Any) -> Any:
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            return {
                key: place + _full_name(group, version, inner) if key == "$ref" else resolve(inner)
                for key, inner in fields.items()
            }
        return value

    kinds = {route.kind for route in routes}
    schemas: dict[str, Any] = {}
    for route in routes:
        for name, schema in route.schemas.items():
            marks = {"x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": name}]}
            schemas[_full_name(group, version, name)] = {
                **resolve(schema),
                **(marks if name in kinds else {}),
            }
    return schemas
