"""Generate the reference of scenario files from their models."""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from admitq.simulator.schema import Distribution, Scenario
from admitq_api.field_docs import read_field_docs
from admitq_api.labels import DEFAULT_GROUP, names_for
from generators.reference_tables import NOTE, table

PAGE: Final = Path("docs/reference/scenario.md")

HEAD: Final = ("field", "type", "default", "meaning")

_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SECOND: Final = 1_000_000_000


def outputs() -> dict[Path, str]:
    """Return the page."""
    lines = [
        "# Scenario file",
        "",
        "The input of `admitq simulate`. The guide [Simulate](../guides/simulate.md) has examples.",
        "",
        "```yaml",
        f"apiVersion: {names_for(DEFAULT_GROUP).simulation_api_version}",
        "kind: Scenario",
        "metadata:",
        "  name: example",
        "spec: …",
        "```",
        "",
        "Durations have the format of Kubernetes: `90s`, `1h30m`. Fields that are not listed are an error.",
    ]
    for model in _models():
        title = "spec" if model is Scenario else model.__name__
        lines += ["", f"## {title}", "", _text(model.__doc__), "", *table(HEAD, list(_rows(model)))]
    return {PAGE: f"{NOTE}{chr(10).join(lines)}\n"}


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    described = read_field_docs(model)
    for name, field in model.model_fields.items():
        yield f"`{field.alias or name}`", _type(field), _default(field), _text(described.get(name))


def _models() -> Iterator[type[BaseModel]]:
    """Yield the scenario and all models below it once, in the order of their first use."""
    waiting: list[type[BaseModel]] = [Scenario]
    visited: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop(0)
        if model in visited:
            continue
        visited.add(model)
        yield model
        for field in model.model_fields.values():
            waiting.extend(_below(field.annotation))


def _below(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _below(argument)]


def _type(field: FieldInfo) -> str:
    constraints = repr(field.metadata)
    if "_interval" in constraints:
        return "`Never`, `Always` or duration"
    if "nanoseconds" in constraints:
        return "duration"
    return _named(field.annotation)


def _named(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "duration" if "nanoseconds" in repr(arguments[1:]) else _named(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(
            dict.fromkeys(_named(argument) for argument in arguments if argument is not type(None))
        )
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        return f"list of {_named(arguments[0])}"
    if origin is dict:
        return "object"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        link = f"[{annotation.__name__}](#{annotation.__name__.lower()})"
        return f"{link} or duration" if issubclass(annotation, Distribution) else link
    return _SCALARS.get(annotation, "any")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Distribution):
        return f"`{(value.constant or 0) // _SECOND}s`"
    if value in (None, (), {}, "", PydanticUndefined) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return f"`{{{', '.join(f'{key}: {inner}' for key, inner in value.items())}}}`"
    return "`0s`" if value == 0 and _type(field) == "duration" else f"`{value}`"


def _text(text: str | None) -> str:
    return " ".join((text or "").split())
