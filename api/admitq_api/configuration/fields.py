"""The types of configuration fields, and the validation of their values."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from admitq_api import quantity, selectors
from admitq_api.durations import REMEDY, format_duration, parse_duration
from admitq_api.syntax import check_dns_label, check_dns_subdomain, check_label_value, check_qualified_name


def create_validator(check: Callable[[str], str | None]) -> AfterValidator:
    """Return a validator that rejects a text if the check returns an error."""

    def validate(value: str) -> str:
        if (problem := check(value)) is not None:
            raise ValueError(f"{value!r}: {problem}")
        return value

    return AfterValidator(validate)


def _parse_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration: {REMEDY}")  # noqa: TRY004 pydantic reports ValueErrors
    return parse_duration(value)


_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^:\[\]]*):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int] | None:
    """Return the host and port of a bind address; None for "" and "0", which disable the endpoint.

    An empty host means all addresses.

    Raises:
        ValueError: the text is not such an address.
    """
    if text in ("", "0"):
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f'{text!r} is not an address: write ":8443" or "127.0.0.1:8443", or "0" for none')
    return match["host"].strip("[]"), int(match["port"])


def _check_address(value: str) -> str:
    parse_address(value)
    return value


def _parse_path_name(value: str) -> str:
    """Return the name of a path at the root of a server. It can be written with or without the slash."""
    name = value.removeprefix("/")
    if not re.fullmatch(r"[A-Za-z0-9._~-]+", name):
        raise ValueError(f"{value!r} is not the name of a path: write one like readyz")
    return name


def reject_duplicates(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values.

    Raises:
        ValueError: a value is listed twice.
    """
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice: remove one")
    return values


def _check_quantity(value: Any) -> str:
    try:
        quantity.parse_quantity(value)
    except quantity.QuantityError as error:
        raise ValueError(str(error)) from None
    return str(value)


Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
]
NonNegativeDuration = Annotated[Duration, Field(ge=timedelta(0))]
PositiveDuration = Annotated[Duration, Field(gt=timedelta(0))]
Address = Annotated[str, AfterValidator(_check_address)]
Port = Annotated[int, Field(ge=1, le=65535)]
Subdomain = Annotated[str, create_validator(check_dns_subdomain)]
DnsLabel = Annotated[str, create_validator(check_dns_label)]
LabelKey = Annotated[str, create_validator(check_qualified_name)]
LabelValue = Annotated[str, create_validator(check_label_value)]
Count = Annotated[int, Field(ge=0)]
PathName = Annotated[str, AfterValidator(_parse_path_name)]
Selector = dict[str, Any]
QuantityText = Annotated[str, BeforeValidator(_check_quantity, json_schema_input_type=str | int | float)]


class Section(BaseModel):
    """A section of the configuration. It is immutable, camelCase in the file, and rejects unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )


def get_wire_name(name: str, field: FieldInfo) -> str:
    """Return the name of a field in the file."""
    return field.serialization_alias or field.alias or name


def list_sections(model: type[BaseModel]) -> Iterator[type[Section]]:
    """Yield the section itself and all sections below it, outermost first."""
    if issubclass(model, Section):
        yield model
    for field in model.model_fields.values():
        for inner in _sections_in(field.annotation):
            yield from list_sections(inner)


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _sections_in(argument)


def check_kind_version_group(name: str) -> str:
    """Return the name of a kind, written as `Kind.version.group`.

    Raises:
        ValueError: the name does not have this form.
    """
    kind, _, version_and_group = name.partition(".")
    version, _, group = version_and_group.partition(".")
    if (
        not re.fullmatch(r"[A-Z][A-Za-z0-9]*", kind)
        or not version
        or not group
        or check_dns_subdomain(f"{version}.{group}")
    ):
        raise ValueError(f'{name!r} is not a kind: write Kind.version.group, like "MyJob.v1.example.com"')
    return name


def check_selector(value: Selector | None, where: str = "") -> Selector | None:
    """Return the label selector.

    Raises:
        ValueError: the selector is invalid. The message begins with `where`.
    """
    problems = selectors.validate_selector(value)
    if problems:
        raise ValueError(f"{where}{problems[0]}")
    return value
