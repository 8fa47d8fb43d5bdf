"""How a kind is declared, and the structural schema that follows from its declaration.

A kind is a pydantic model. Bounds are pydantic's own (`Field(ge=…, max_length=…, pattern=…)`);
what only Kubernetes knows stands beside them as `Schema` and `Rule` values. `schema_of` turns the
declaration into the OpenAPI schema of a CustomResourceDefinition: without references, without
null, an optional field being one that may be absent. Nothing about a field is said twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from admitq_api.field_docs import read_field_docs

GROUP = "${group}"
"""Stands for the API group in a declaration; whoever makes CRDs fills it in."""


@dataclass(frozen=True, eq=False)
class SchemaKeywords:
    """Keywords of the schema that pydantic has no word for."""

    keywords: Mapping[str, Any]
    replaces: bool = False
    """Whether these are all the keywords, whatever the type says."""

    def get_keywords(self) -> Mapping[str, Any]:
        """The keywords."""
        return self.keywords


@dataclass(frozen=True)
class ValidationRule:
    """A CEL rule that the API server keeps: what must hold, and what to say where it does not."""

    cel: str
    message: str
    path: str = ""
    """The field to report, relative to where the rule stands, when the rule spans several fields."""

    def to_schema(self) -> dict[str, Any]:
        """The rule as the schema carries it."""
        rule = {"rule": self.cel, "message": self.message}
        return {**rule, "fieldPath": self.path} if self.path else rule


def map_list(*keys: str) -> SchemaKeywords:
    """A list whose items are told apart by some of their fields."""
    return SchemaKeywords({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


ATOMIC_LIST = SchemaKeywords({"x-kubernetes-list-type": "atomic"})
SET = SchemaKeywords({"x-kubernetes-list-type": "set"})
ATOMIC_MAP = SchemaKeywords({"x-kubernetes-map-type": "atomic"})
INT32 = SchemaKeywords({"format": "int32"})
INT64 = SchemaKeywords({"format": "int64"})

IMMUTABLE = "is immutable"


def immutable(field: str) -> ValidationRule:
    """A field that keeps its first value."""
    return ValidationRule("self == oldSelf", f"{field} {IMMUTABLE}")


def immutable_with_spec(field: str, message: str = "") -> ValidationRule:
    """A field of the spec that keeps its first value also when an update leaves out the whole spec.

    A rule within the spec is not evaluated where there is none any more. It belongs on the kind.
    """
    return ValidationRule(
        f"!has(oldSelf.spec) || !has(oldSelf.spec.{field}) || has(self.spec)",
        message or f"{field} {IMMUTABLE}",
        f".spec.{field}",
    )


class ApiModel(BaseModel):
    """An object within the API: immutable, camelCase on the wire; fields of newer versions are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        # Only whole kinds are ever read, and most of them nowhere.
        defer_build=True,
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = ()
    """What must hold between the fields."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; `wide` ones show with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False

    def to_schema(self) -> dict[str, Any]:
        """The column as the CRD carries it."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**column, "priority": 1} if self.wide else column


AGE = Column("Age", ".metadata.creationTimestamp", "date")


def condition_column(name: str, type: str, *, field: str = "status", wide: bool = False) -> Column:  # noqa: A002 the API's name
    """A column that shows a field of a condition."""
    return Column(name, f".status.conditions[?(@.type=='{type}')].{field}", wide=wide)


class ApiKind(ApiModel):
    """An object of the API that is stored by itself."""

    plural: ClassVar[str]
    namespaced: ClassVar[bool] = False
    short_names: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = ()
    selectable: ClassVar[tuple[str, ...]] = ()
    """Fields that lists and watches can select by."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def has_status(cls) -> bool:
        """Whether status is written by itself, apart from the rest."""
        return "status" in cls.model_fields


_OBJECT_FIELDS: Mapping[str, dict[str, Any]] = {
    "api_version": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object"},
}
"""The fields that every object has, which the API server itself looks after."""


def create_schema(part: type[ApiModel]) -> dict[str, Any]:
    """The schema of an object."""
    schema: dict[str, Any] = {"description": _first_paragraph(part.__doc__), "type": "object"}
    properties: dict[str, Any] = {}
    required: list[str] = []
    described = read_field_docs(part)
    for name, field in part.model_fields.items():
        wire_name = field.alias or to_camel(name)
        own = _OBJECT_FIELDS.get(name) if issubclass(part, ApiKind) else None
        properties[wire_name] = own or _field_schema(field, described.get(name))
        if field.is_required():
            required.append(wire_name)
    schema["properties"] = properties
    if required:
        schema["required"] = required
    if part.rules:
        schema["x-kubernetes-validations"] = [rule.to_schema() for rule in part.rules]
    return schema


def _field_schema(field: FieldInfo, described: str | None) -> dict[str, Any]:
    schema = _type_schema(field.annotation, field.metadata)
    if described:
        schema = {**schema, "description": _first_paragraph(described)}
    if not field.is_required() and field.default not in (None, (), PydanticUndefined):
        schema["default"] = {} if isinstance(field.default, ApiModel) else field.default
    return dict(sorted(schema.items()))


def _type_schema(annotation: Any, outer: list[Any]) -> dict[str, Any]:
    """The schema of a type, whose own keywords give way to those of what it stands in."""
    base, inner = _unwrapped(annotation)
    keywords = [*inner, *_flattened(outer)]
    schema: dict[str, Any] = {}
    if not any(isinstance(one, SchemaKeywords) and one.replaces for one in keywords):
        schema = _base_schema(base)
    rules: list[dict[str, Any]] = list(schema.pop("x-kubernetes-validations", []))
    for one in keywords:
        if isinstance(one, ValidationRule):
            rules.append(one.to_schema())
        elif isinstance(one, SchemaKeywords):
            schema |= one.get_keywords()
        else:
            schema |= _bounds(one, schema.get("type"))
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _base_schema(base: Any) -> dict[str, Any]:
    origin, arguments = get_origin(base), get_args(base)
    if isinstance(base, type) and issubclass(base, ApiModel):
        return create_schema(base)
    if origin is tuple:
        return {"type": "array", "items": _type_schema(arguments[0], [])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type_schema(arguments[1], [])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if base in _SCALARS:
        return {"type": _SCALARS[base]}
    raise TypeError(f"no schema for {base!r}")


_SCALARS: Mapping[Any, str] = {bool: "boolean", int: "integer", str: "string", float: "number"}

# What a bound of pydantic is called in the schema, by the type that it bounds.
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
    "integer": {"ge": "minimum", "le": "maximum"},
}


def _bounds(bound: Any, of: str | None) -> dict[str, Any]:
    words = _BOUNDS.get(of or "", {})
    found = {word: getattr(bound, name, None) for name, word in words.items()}
    return {word: value for word, value in found.items() if value is not None}


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """The type within `Annotated` and `| None`, and everything that was said about it."""
    said: list[Any] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            said = [*_flattened(more), *said]
        elif origin in (Union, UnionType):
            others = [one for one in get_args(annotation) if one is not NoneType]
            if len(others) != 1:
                return annotation, said
            annotation = others[0]
        else:
            return annotation, said


def _flattened(metadata: list[Any]) -> list[Any]:
    return [
        inner
        for one in metadata
        for inner in (_flattened(one.metadata) if isinstance(one, FieldInfo) else (one,))
    ]


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def fill_in_group(schema: Any, group: str) -> Any:
    """A schema with the API group in the place that was kept for it."""
    if isinstance(schema, str):
        return schema.replace(GROUP, group)
    if isinstance(schema, Mapping):
        return {key: fill_in_group(value, group) for key, value in cast("Mapping[str, Any]", schema).items()}
    if isinstance(schema, list | tuple):
        return [fill_in_group(value, group) for value in cast("list[Any]", schema)]
    return schema


def list_models(part: type[ApiModel]) -> Iterator[type[ApiModel]]:
    """An object and every object below it, outermost first, each as often as it is used."""
    yield part
    for field in part.model_fields.values():
        yield from (below for inner in _parts_in(field.annotation) for below in list_models(inner))


def _parts_in(annotation: Any) -> Iterator[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_in(argument)
