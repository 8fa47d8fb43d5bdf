"""Answers as tables, which kubectl and other clients print without knowing the kind."""

from typing import Any, Final

from admitq.visibility.answers import RequestRejected
from admitq.visibility.routes import TableFormat
from admitq_api.json_objects import JsonObject

_INCLUDED: Final = ("None", "Metadata", "Object")


def make_table(answer: JsonObject, how: TableFormat, include: str) -> dict[str, Any]:
    """Return an answer as a table.

    Args:
        answer: an answer with ``items``, or one that is a single row.
        how: the columns, and the cells of an item.
        include: the query parameter ``includeObject``: what each row contains besides its cells. Empty means
            the metadata.

    Raises:
        RequestRejected: ``include`` has another value.
    """
    included = include or "Metadata"
    if included not in _INCLUDED:
        raise RequestRejected(400, f"includeObject: {include[:100]!r}: must be one of {', '.join(_INCLUDED)}")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": 0,
            }
            for column in how.columns
        ],
        "rows": [
            {"cells": how.row(item), **_object(item, included)} for item in answer.get("items", [answer])
        ],
    }


def _object(item: JsonObject, included: str) -> dict[str, Any]:
    match included:
        case "Metadata":
            partial = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            }
            return {"object": partial}
        case "Object":
            return {"object": item}
        case _:
            return {"object": None}
