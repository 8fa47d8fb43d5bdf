"""The types of differences between the two versions of a kind. Each can convert in both directions.

``up`` converts from v1beta1 to v1beta2, ``down`` back. Both change an object of the caller, and yield the
fields that the other version cannot express, with their steps. Objects need not be valid: values of an
unexpected form are moved or left unchanged, so that the API server rejects them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from admitq_api.stored_fields import MalformedField
from admitq_api.v1beta1.paths import Steps, iterate_copies
from admitq_api.v1beta1.topology_encoding import create_slices, list_domains

LostFields = Iterator[tuple[Steps, Any]]
"""The fields that the other version cannot express: their steps and their values."""

ValueCheck = Callable[[Any], bool]
"""Whether a value is valid in a field."""


class FieldDifference(Protocol):
    """One difference between the versions."""

    @property
    def at(self) -> str:
        """The path of the objects that have the field."""
        ...

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Convert an object from v1beta1 to v1beta2."""
        ...

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Convert an object from v1beta2 to v1beta1."""
        ...


@dataclass(frozen=True, slots=True)
class RenamedField:
    """A field with another name."""

    at: str
    older: str
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Give the field its newer name."""
        return _move(obj, self.at, self.older, self.newer)

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Give the field its older name."""
        return _move(obj, self.at, self.newer, self.older)


def _move(obj: dict[str, Any], at: str, old: str, new: str) -> LostFields:
    for _, holder in iterate_copies(obj, at):
        if old in holder:
            holder[new] = holder.pop(old)
    yield from ()


@dataclass(frozen=True, slots=True)
class GroupedFields:
    """Fields that v1beta2 groups in an object."""

    at: str
    older: tuple[str, ...]
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Move the fields to their object."""
        for _, holder in iterate_copies(obj, self.at):
            older_fields = {field: holder.pop(field) for field in self.older if field in holder}
            if older_fields:
                newer_value = holder.get(self.newer)
                holder[self.newer] = {
                    **(cast("dict[str, Any]", newer_value) if isinstance(newer_value, dict) else {}),
                    **older_fields,
                }
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Move the fields out of their object."""
        for _, holder in iterate_copies(obj, self.at):
            inner = holder.get(self.newer)
            fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
            older_fields = {field: fields[field] for field in self.older if field in fields}
            if older_fields:
                del holder[self.newer]
                holder.update(older_fields)
        yield from ()


@dataclass(frozen=True, slots=True)
class NameList:
    """A list of names in v1beta1, which v1beta2 has only as a list of objects with names.

    The names are converted to objects. If both lists are set, the names take precedence: a client that
    applies a manifest with names again sends both.

    Within a request, the names are restored. Server-side apply compares the result in each version that a
    field manager used, and treats a missing field as removed.
    """

    at: str
    older: str
    newer: str
    items: str
    """The field of the newer object that is the list."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Convert the names to objects."""
        for steps, holder in iterate_copies(obj, self.at):
            names = value = holder.pop(self.older, None)
            if isinstance(names, list):
                names = [{"name": name} for name in cast("list[Any]", names)]
            if names:
                holder[self.newer] = {self.items: names}
                yield (*steps, self.older), value

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing, because v1beta1 has the list of objects too."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class MergedValues:
    """Values of v1beta1 that are one value in v1beta2."""

    at: str
    field: str
    older: tuple[str, ...]
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Use the newer value."""
        for _, holder in iterate_copies(obj, self.at):
            if holder.get(self.field) in self.older:
                holder[self.field] = self.newer
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing, because v1beta1 has the newer value too."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class DroppedField:
    """A field of v1beta1 that v1beta2 does not have, and that has no effect."""

    at: str
    field: str
    schema: Mapping[str, Any]

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Remove the field."""
        for _, holder in iterate_copies(obj, self.at):
            holder.pop(self.field, None)
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing, because v1beta2 does not have the field."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field that only v1beta2 has."""

    at: str
    field: str
    is_valid: ValueCheck
    default: Any = None
    """The default of the field."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Set the default."""
        if self.default is not None:
            for _, holder in iterate_copies(obj, self.at):
                holder.setdefault(self.field, self.default)
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Remove the field, and yield it unless it has the default."""
        for steps, holder in iterate_copies(obj, self.at):
            if self.field in holder:
                value = holder.pop(self.field)
                if self.default is None or value != self.default:
                    yield (*steps, self.field), value


@dataclass(frozen=True, slots=True)
class SplitReference:
    """Two fields, a name and its source, which v1beta2 has as a reference with group, kind and name."""

    at: str
    source: str
    name: str
    newer: str
    sources: Mapping[str, tuple[str, str]]
    """Group and kind, by the source in v1beta1."""
    is_valid_name: ValueCheck
    """Whether a value is a valid name."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Create the reference, if both name and source are set. Otherwise yield the one that is set."""
        for steps, holder in iterate_copies(obj, self.at):
            older_fields = {field: holder.pop(field, "") for field in (self.source, self.name)}
            source, name = older_fields[self.source], older_fields[self.name]
            known_source = self.sources.get(source) if isinstance(source, str) else None
            if known_source is not None and name:
                holder[self.newer] = {"group": known_source[0], "kind": known_source[1], "name": name}
            else:
                yield from (((*steps, field), value) for field, value in older_fields.items() if value)

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Split the reference.

        Without a reference, one of the fields may have been restored from the annotation. If both have been
        restored, they would be a reference that v1beta2 does not have, so both are removed.
        """
        of = {what: source for source, what in self.sources.items()}
        for _, holder in iterate_copies(obj, self.at):
            match holder.get(self.newer):
                case {"group": str(group), "kind": str(kind), "name": name} if name and (group, kind) in of:
                    del holder[self.newer]
                    holder.update({self.source: of[group, kind], self.name: name})
                case _ if self.source in holder and self.name in holder:
                    del holder[self.source], holder[self.name]
                case _:
                    pass
        yield from ()


@dataclass(frozen=True, slots=True)
class TopologyEncoding:
    """A topology assignment: a list of domains in v1beta1, encoded in slices in v1beta2.

    An assignment with too many domains stays encoded in slices, which v1beta1 accepts too.
    """

    at: str
    field: str
    older: str
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Encode the domains in slices."""
        return self._convert(obj, self.older, create_slices)

    def down(self, obj: dict[str, Any]) -> LostFields:
        """List the domains of the slices."""
        return self._convert(obj, self.newer, list_domains)

    def _convert(
        self, obj: dict[str, Any], form: str, rewrite: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> LostFields:
        for _, holder in iterate_copies(obj, self.at):
            value = holder.get(self.field)
            if isinstance(value, dict) and form in value:
                with suppress(MalformedField):
                    holder[self.field] = rewrite(cast("dict[str, Any]", value))
        yield from ()
