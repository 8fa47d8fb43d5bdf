"""Convert validation errors of pydantic to problems of a document, with field, line and remedy."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from admitq.manifests.documents import Document, FieldPath, Problem


def problems_of(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Problem]:
    """Return one problem for each wrong field."""
    problems: dict[FieldPath, Problem] = {}
    for details in error.errors(include_url=False):
        path = _path(document.value, details)
        problems.setdefault(path, document.problem(path, _remedy(details, path, model)))
    return list(problems.values())


def _path(value: Any, details: ErrorDetails) -> FieldPath:
    """Return the path in the document of pydantic's location, which also contains names of union members."""
    steps: list[str | int] = []
    last = len(details["loc"]) - 1
    for index, step in enumerate(details["loc"]):
        inner = _inner(value, step)
        if inner is not None:
            steps.append(step)
            value = inner
        elif index == last and details["type"] == "missing":
            steps.append(step)
    return tuple(steps)


def _inner(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return cast("Mapping[str, Any]", value).get(step) if isinstance(value, Mapping) else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = cast("Sequence[Any]", value)
        return items[step] if step < len(items) else None
    return None


def _remedy(details: ErrorDetails, path: FieldPath, model: type[BaseModel]) -> str:
    match details["type"]:
        case "extra_forbidden":
            return unknown_field(str(path[-1]), aliases(model))
        case "missing":
            return "is required"
        case "value_error":
            return details["msg"].removeprefix("Value error, ")
        case _:
            shown = orjson.dumps(details["input"], default=str).decode()
            return f"{shown}: {details['msg'].replace('Input should be', 'must be')}"


def unknown_field(name: str, known: list[str]) -> str:
    """Return the remedy for an unknown field."""
    alike = get_close_matches(name, known, n=1)
    return f"unknown field: did you mean {alike[0]}?" if alike else "unknown field: remove it"


def aliases(model: type[BaseModel]) -> list[str]:
    """Return the names of all fields of a model and of its inner models, as in the file."""
    names: dict[str, None] = {}
    waiting, visited = [model], {model}
    while waiting:
        for name, field in waiting.pop().model_fields.items():
            names[field.alias or name] = None
            for inner in _models(field.annotation):
                if inner not in visited:
                    visited.add(inner)
                    waiting.append(inner)
    return list(names)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models(argument)]
