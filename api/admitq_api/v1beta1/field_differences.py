"""The ways in which the two versions of a kind differ. Each is a value that converts in both directions.

``up`` leads from v1beta1 to v1beta2, ``down`` back. Both change an object that the caller owns and yield what
the other version cannot say, with where it was. Neither expects an object to be valid: what is not of the
expected form is moved or left as it is, for the API server to refuse.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from admitq_api.v1beta1.paths import Steps, iterate_copies
from admitq_api.v1beta1.topology_encoding import MalformedAssignment, create_slices, list_domains

LostFields = Iterator[tuple[Steps, Any]]
"""What the other version cannot say: where it was, and what it was."""

ValueCheck = Callable[[Any], bool]
"""Whether a value is one that a field may have."""


class FieldDifference(Protocol):
    """One difference."""

    @property
    def at(self) -> str:
        """The path of the object that has the field, or of each of them."""
        ...

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Turn what v1beta1 says into what v1beta2 says."""
        ...

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Turn what v1beta2 says into what v1beta1 says."""
        ...


@dataclass(frozen=True, slots=True)
class RenamedField:
    """The same field under another name."""

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
    """Fields that v1beta2 has in an object of their own."""

    at: str
    older: tuple[str, ...]
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Put the fields into their object."""
        for _, holder in iterate_copies(obj, self.at):
            given = {field: holder.pop(field) for field in self.older if field in holder}
            if given:
                kept = holder.get(self.newer)
                holder[self.newer] = {
                    **(cast("dict[str, Any]", kept) if isinstance(kept, dict) else {}),
                    **given,
                }
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Take the fields out of their object."""
        for _, holder in iterate_copies(obj, self.at):
            inner = holder.get(self.newer)
            fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
            given = {field: fields[field] for field in self.older if field in fields}
            if given:
                del holder[self.newer]
                holder.update(given)
        yield from ()


@dataclass(frozen=True, slots=True)
class NameList:
    """A list of names beside a list of objects with a name, which says more.

    Read back, only the list of objects is there. Where both are given, the names count: whoever applies a
    manifest with them again finds the list of objects beside them that they were turned into.

    Within a request the names come back. Server-side apply compares what it is about to write in each version
    that somebody wrote in, and takes what is not there after that for something that nobody wants any more.
    """

    at: str
    older: str
    newer: str
    items: str
    """The field of the newer object that is the list."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Turn the names into objects."""
        for steps, holder in iterate_copies(obj, self.at):
            names = given = holder.pop(self.older, None)
            if isinstance(names, list):
                names = [{"name": name} for name in cast("list[Any]", names)]
            if names:
                holder[self.newer] = {self.items: names}
                yield (*steps, self.older), given

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing: v1beta1 has the list of objects too."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class MergedValues:
    """Values that v1beta2 has one word for."""

    at: str
    field: str
    older: tuple[str, ...]
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Use the newer word."""
        for _, holder in iterate_copies(obj, self.at):
            if holder.get(self.field) in self.older:
                holder[self.field] = self.newer
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing: v1beta1 knows the newer word too."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class DroppedField:
    """A field of v1beta1 that means nothing any more."""

    at: str
    field: str
    schema: Mapping[str, Any]

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Leave the field out."""
        for _, holder in iterate_copies(obj, self.at):
            holder.pop(self.field, None)
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Do nothing: v1beta2 has no such field."""
        del obj
        yield from ()


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field that only v1beta2 has."""

    at: str
    field: str
    is_valid: ValueCheck
    default: Any = None
    """What the field is if nothing is said."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Set the default."""
        if self.default is not None:
            for _, holder in iterate_copies(obj, self.at):
                holder.setdefault(self.field, self.default)
        yield from ()

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Set the field aside, unless it says what is meant without it."""
        for steps, holder in iterate_copies(obj, self.at):
            if self.field in holder:
                value = holder.pop(self.field)
                if self.default is None or value != self.default:
                    yield (*steps, self.field), value


@dataclass(frozen=True, slots=True)
class SplitReference:
    """A name and one word for what it names, that v1beta2 has as a reference with group, kind and name."""

    at: str
    source: str
    name: str
    newer: str
    sources: Mapping[str, tuple[str, str]]
    """By the word of v1beta1: group and kind."""
    is_valid_name: ValueCheck
    """Which names there may be."""

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Make the reference; a name without its source, or the other way round, refers to nothing."""
        for steps, holder in iterate_copies(obj, self.at):
            given = {field: holder.pop(field, "") for field in (self.source, self.name)}
            source, name = given[self.source], given[self.name]
            found = self.sources.get(source) if isinstance(source, str) else None
            if found is not None and name:
                holder[self.newer] = {"group": found[0], "kind": found[1], "name": name}
            else:
                yield from (((*steps, field), value) for field, value in given.items() if value)

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Take the reference apart.

        Where there is none, one of the fields may be there, put back from what was set aside. Both would be a
        reference that v1beta2 knows nothing of: whoever claims that they were set aside is not believed.
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
    """Where pods go: spelled out in v1beta1, in slices in v1beta2.

    What is too much to be spelled out stays in slices, which v1beta1 takes too.
    """

    at: str
    field: str
    older: str
    newer: str

    def up(self, obj: dict[str, Any]) -> LostFields:
        """Write the domains in slices."""
        return self._convert(obj, self.older, create_slices)

    def down(self, obj: dict[str, Any]) -> LostFields:
        """Spell the slices out."""
        return self._convert(obj, self.newer, list_domains)

    def _convert(
        self, obj: dict[str, Any], form: str, anew: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> LostFields:
        for _, holder in iterate_copies(obj, self.at):
            given = holder.get(self.field)
            if isinstance(given, dict) and form in given:
                with suppress(MalformedAssignment):
                    holder[self.field] = anew(cast("dict[str, Any]", given))
        yield from ()
