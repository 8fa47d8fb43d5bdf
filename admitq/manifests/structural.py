"""Check objects against the structural schema of a CustomResourceDefinition, as the API server does.

The checks are those of ``kubectl apply`` with strict field validation: unknown fields are errors.
``cel_rules`` evaluates the CEL rules.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import orjson

from admitq.manifests.documents import FieldPath

Schema = Mapping[str, Any]


class FieldProblem(NamedTuple):
    """A problem of one field of an object."""

    path: FieldPath
    remedy: str


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}

_SIZES: Final = (
    ("minLength", "maxLength", "characters"),
    ("minItems", "maxItems", "items"),
    ("minProperties", "maxProperties", "fields"),
)

_NO_QUANTITY: Final = "is not a quantity: write a number with an optional suffix, like 500m or 1Gi"

_INTEGER_BITS: Final = {"int32": 31, "int64": 63}


def find_problems(value: Any, schema: Schema) -> list[FieldProblem]:
    """Return everything that is wrong with a value."""
    return list(_problems(value, schema, (), lru_cache(None)(lambda: sorted(_field_names(schema)))))


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Return a value with the defaults of the schema in the place of absent fields."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        properties: Mapping[str, Schema] = schema.get("properties", {})
        absent = {
            name: inner["default"]
            for name, inner in properties.items()
            if "default" in inner and name not in fields
        }
        other: Schema = schema.get("additionalProperties") or {}
        return {
            name: apply_defaults(inner, properties.get(name, other))
            for name, inner in {**fields, **absent}.items()
        }
    if isinstance(value, list):
        items: Schema = schema.get("items", {})
        return [apply_defaults(item, items) for item in cast("list[Any]", value)]
    return value


def _problems(
    value: Any, schema: Schema, path: FieldPath, names: Callable[[], list[str]]
) -> Iterator[FieldProblem]:
    wrong = _type_remedy(value, schema)
    if wrong is not None:
        yield FieldProblem(path, f"{_shown(value)}: {wrong}")
        return
    for remedy in _bound_remedies(value, schema):
        yield FieldProblem(path, f"{_shown(value)}: {remedy}")
    if isinstance(value, dict):
        yield from _field_problems(cast("dict[str, Any]", value), schema, path, names)
    elif isinstance(value, list):
        yield from _item_problems(cast("list[Any]", value), schema, path, names)


def _type_remedy(value: Any, schema: Schema) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        accepted = _TYPES["string"](value) or _TYPES["integer"](value)
        return None if accepted else "must be a whole number or a string: put it in quotes"
    expected = schema.get("type")
    if expected is None or _TYPES[expected](value):
        return None
    return f"must be of type {expected}"


def _bound_remedies(value: Any, schema: Schema) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        # Only fields with quantities can be a number or a string.
        quantity = schema.get("x-kubernetes-int-or-string")
        yield _NO_QUANTITY if quantity else f"must match {schema['pattern']}"
    if isinstance(value, str | list | dict):
        size = len(cast("str", value))
        for least, most, unit in _SIZES:
            if size < schema.get(least, 0):
                yield f"must have at least {schema[least]} {unit}"
            if most in schema and size > schema[most]:
                yield f"must have at most {schema[most]} {unit}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"must be at most {schema['maximum']}"
        bits = _INTEGER_BITS.get(schema.get("format", ""))
        if bits is not None and not -(2**bits) <= value < 2**bits:
            yield f"must be a number of {bits + 1} bits"


def _field_problems(
    fields: dict[str, Any], schema: Schema, path: FieldPath, names: Callable[[], list[str]]
) -> Iterator[FieldProblem]:
    for name in schema.get("required", ()):
        if name not in fields:
            yield FieldProblem((*path, name), "is required")
    properties: Mapping[str, Schema] | None = schema.get("properties")
    other: Any = schema.get("additionalProperties")
    for name, value in fields.items():
        if properties is not None and name in properties:
            yield from _problems(value, properties[name], (*path, name), names)
        elif isinstance(other, Mapping):
            yield from _problems(value, cast("Schema", other), (*path, name), names)
        elif properties is not None and not schema.get("x-kubernetes-preserve-unknown-fields") and not other:
            similar = get_close_matches(name, properties, n=1) or get_close_matches(name, names(), n=1)
            remedy = f"did you mean {similar[0]}?" if similar else "remove it"
            yield FieldProblem((*path, name), f"unknown field: {remedy}")


def _item_problems(
    items: list[Any], schema: Schema, path: FieldPath, names: Callable[[], list[str]]
) -> Iterator[FieldProblem]:
    of_items: Schema = schema.get("items", {})
    for index, item in enumerate(items):
        yield from _problems(item, of_items, (*path, index), names)
    earlier: set[bytes] = set()
    for index, item in enumerate(items):
        key = item_key(item, schema)
        if key is None:
            continue
        if key in earlier:
            yield FieldProblem((*path, index), f"{key.decode()}: occurs twice in the list: remove one")
        earlier.add(key)


def item_key(item: Any, schema: Schema) -> bytes | None:
    """Return the key of an item of a list; None if the list can contain equal items."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
        case "map" if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            keys = {key: fields.get(key) for key in schema["x-kubernetes-list-map-keys"]}
            return orjson.dumps(keys)
        case _:
            return None


def _field_names(schema: Schema) -> set[str]:
    names: set[str] = set()
    properties: Mapping[str, Schema] = schema.get("properties", {})
    inner = [*properties.values(), schema.get("items"), schema.get("additionalProperties")]
    for part in inner:
        if isinstance(part, Mapping):
            names |= _field_names(cast("Schema", part))
    return names | set(properties)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
