"""Declarations of kinds, and the structural schemas that are created from them.

A kind is a pydantic model. Its bounds are those of pydantic (`Field(ge=…, max_length=…, pattern=…)`).
`SchemaKeywords` and `ValidationRule` values add what is specific to Kubernetes. `create_schema` creates the
OpenAPI schema of a CustomResourceDefinition, without references and without null. Optional fields can be
absent.
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
"""The placeholder of the API group in declarations. `fill_in_group` replaces it."""


@dataclass(frozen=True, eq=False)
class SchemaKeywords:
    """Keywords of the schema that pydantic does not support."""

    keywords: Mapping[str, Any]
    replaces: bool = False
    """Whether these keywords replace those of the type."""

    def get_keywords(self) -> Mapping[str, Any]:
        """Return the keywords."""
        return self.keywords


@dataclass(frozen=True)
class ValidationRule:
    """A CEL rule that the API server enforces, with its error message."""

    cel: str
    message: str
    path: str = ""
    """The field that the error names, relative to the object of the rule."""

    def to_schema(self) -> dict[str, Any]:
        """Return the rule for the schema."""
        rule = {"rule": self.cel, "message": self.message}
        return {**rule, "fieldPath": self.path} if self.path else rule


def map_list(*keys: str) -> SchemaKeywords:
    """Return the keywords of a list with items that some of their fields identify."""
    return SchemaKeywords({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


ATOMIC_LIST = SchemaKeywords({"x-kubernetes-list-type": "atomic"})
SET = SchemaKeywords({"x-kubernetes-list-type": "set"})
ATOMIC_MAP = SchemaKeywords({"x-kubernetes-map-type": "atomic"})
INT32 = SchemaKeywords({"format": "int32"})
INT64 = SchemaKeywords({"format": "int64"})

IMMUTABLE = "is immutable"


def immutable(field: str) -> ValidationRule:
    """Return the rule that a field keeps its first value."""
    return ValidationRule("self == oldSelf", f"{field} {IMMUTABLE}")


def immutable_with_spec(field: str, message: str = "") -> ValidationRule:
    """Return the rule that a field of the spec keeps its first value, even if an update omits the spec.

    The API server does not evaluate rules within an absent spec. So this rule belongs to the kind.
    """
    return ValidationRule(
        f"!has(oldSelf.spec) || !has(oldSelf.spec.{field}) || has(self.spec)",
        message or f"{field} {IMMUTABLE}",
        f".spec.{field}",
    )


class ApiModel(BaseModel):
    """An object of the API. It is immutable, camelCase on the wire, and ignores unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        # Most models are never used to parse objects.
        defer_build=True,
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = ()
    """Validation rules that span several fields."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. Columns with `wide` are shown with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False

    def to_schema(self) -> dict[str, Any]:
        """Return the column for the CRD."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**column, "priority": 1} if self.wide else column


AGE = Column("Age", ".metadata.creationTimestamp", "date")


def condition_column(name: str, type: str, *, field: str = "status", wide: bool = False) -> Column:  # noqa: A002 the API's name
    """Return a column that shows a field of a condition."""
    return Column(name, f".status.conditions[?(@.type=='{type}')].{field}", wide=wide)


class ApiKind(ApiModel):
    """A kind of the API: a type of stored objects."""

    plural: ClassVar[str]
    namespaced: ClassVar[bool] = False
    short_names: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = ()
    selectable: ClassVar[tuple[str, ...]] = ()
    """The fields that field selectors of lists and watches can use."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def has_status(cls) -> bool:
        """Whether the kind has a status subresource."""
        return "status" in cls.model_fields


_OBJECT_FIELDS: Mapping[str, dict[str, Any]] = {
    "api_version": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object"},
}
"""The fields of every object, which the API server validates itself."""


def create_schema(part: type[ApiModel]) -> dict[str, Any]:
    """Return the schema of a model."""
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
    """Return the schema of a type. Keywords of the surrounding field override those of the type."""
    base, inner = _unwrapped(annotation)
    keywords = [*inner, *_flattened(outer)]
    schema: dict[str, Any] = {}
    if not any(isinstance(keyword, SchemaKeywords) and keyword.replaces for keyword in keywords):
        schema = _base_schema(base)
    rules: list[dict[str, Any]] = list(schema.pop("x-kubernetes-validations", []))
    for keyword in keywords:
        if isinstance(keyword, ValidationRule):
            rules.append(keyword.to_schema())
        elif isinstance(keyword, SchemaKeywords):
            schema |= keyword.get_keywords()
        else:
            schema |= _bounds(keyword, schema.get("type"))
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
    bounds = {word: getattr(bound, name, None) for name, word in words.items()}
    return {word: value for word, value in bounds.items() if value is not None}


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type within `Annotated` and `| None`, and its annotations."""
    metadata: list[Any] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            metadata = [*_flattened(more), *metadata]
        elif origin in (Union, UnionType):
            others = [argument for argument in get_args(annotation) if argument is not NoneType]
            if len(others) != 1:
                return annotation, metadata
            annotation = others[0]
        else:
            return annotation, metadata


def _flattened(metadata: list[Any]) -> list[Any]:
    return [
        inner
        for entry in metadata
        for inner in (_flattened(entry.metadata) if isinstance(entry, FieldInfo) else (entry,))
    ]


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def fill_in_group(schema: Any, group: str) -> Any:
    """Return a schema with the API group instead of its placeholder."""
    if isinstance(schema, str):
        return schema.replace(GROUP, group)
    if isinstance(schema, Mapping):
        return {key: fill_in_group(value, group) for key, value in cast("Mapping[str, Any]", schema).items()}
    if isinstance(schema, list | tuple):
        return [fill_in_group(value, group) for value in cast("list[Any]", schema)]
    return schema


def list_models(part: type[ApiModel]) -> Iterator[type[ApiModel]]:
    """Yield a model and all models below it, outermost first, each as often as it is used."""
    yield part
    for field in part.model_fields.values():
        yield from (below for inner in _parts_in(field.annotation) for below in list_models(inner))


def _parts_in(annotation: Any) -> Iterator[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_in(argument)
