"""YAML files as documents that know where each of their fields stands."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
import yaml

FieldPath = tuple[str | int, ...]
"""Keys of mappings and indexes of lists, from the outside in."""

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file; lines count from 1."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where.

    The field is empty if the problem is the file as a whole; the object is empty if the file has only one.
    """

    place: Place
    field: str
    remedy: str
    object: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place), self.object, self.field, self.remedy)))


class InputError(ValueError):
    """What the user gave cannot be used. One line for each thing that is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One object of a file."""

    file: str
    value: Mapping[str, Any]
    node: yaml.Node
    base: FieldPath = ()
    """Where the object stands within the document of the file: in a List it is one of its items."""

    def place(self, path: Sequence[str | int] = ()) -> Place:
        """Where a field stands, or the nearest thing around it that is written in the file."""
        return Place(self.file, _line(self.node, path))

    def problem(self, path: Sequence[str | int], remedy: str) -> Problem:
        """What is wrong with a field."""
        return Problem(self.place(path), field_name((*self.base, *path)), remedy)

    def error(self, path: Sequence[str | int], remedy: str) -> InputError:
        """The same, to be raised by itself."""
        return InputError([self.problem(path, remedy)])

    def within(self, path: FieldPath, value: Mapping[str, Any]) -> "Document":
        """The part of the document at a path as a document of its own."""
        return Document(self.file, value, _inner(self.node, path), (*self.base, *path))


def field_name(path: Sequence[str | int]) -> str:
    """A path as people write it: ``spec.resourceGroups[0].flavors``."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def field_path(name: str) -> FieldPath:
    """The path of a field's name, as ``field_name`` writes it."""
    return tuple(int(inner) if inner.isdecimal() else inner or outer for inner, outer in _STEP.findall(name))


# --- reading --------------------------------------------------------------------------------------


def read_file(path: Path, shown: str) -> list[Document]:
    """The documents of a file.

    Args:
        path: the file.
        shown: its name in messages.

    Raises:
        InputError: it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InputError([Problem(Place(shown), "", f"cannot be read: {detail}")]) from None
    return read_text(text, shown)


def read_text(text: str, shown: str) -> list[Document]:
    """The documents of a text; a List is taken apart into its items.

    Raises:
        InputError: it is not YAML, gives a key twice, or holds something other than objects.
    """
    loader = yaml.CSafeLoader(text)
    documents: list[Document] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            _refuse_repeated_keys(node, shown)
            value = _plain(loader.construct_document(node), node, shown)
            if value is not None:
                documents.extend(_objects(value, node, shown))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(shown, 0 if mark is None else mark.line + 1)
        raise InputError([Problem(place, "", f"not YAML: {error.problem or error}")]) from None
    except yaml.YAMLError as error:
        raise InputError([Problem(Place(shown), "", f"not YAML: {error}")]) from None
    finally:
        loader.dispose()
    return documents


def _objects(value: Any, node: yaml.Node, shown: str) -> Iterator[Document]:
    if not isinstance(value, Mapping):
        place = Place(shown, node.start_mark.line + 1)
        raise InputError([Problem(place, "", "must be an object with fields like apiVersion and kind")])
    content = cast("Mapping[str, Any]", value)
    document = Document(shown, content, node)
    if not str(content.get("kind", "")).endswith("List") or "items" not in content:
        yield document
        return
    for index, item in enumerate(cast("list[Any]", content.get("items") or [])):
        if not isinstance(item, dict):
            raise document.error(("items", index), "must be an object with fields like apiVersion and kind")
        yield document.within(("items", index), cast("dict[str, Any]", item))


def _plain(value: Any, node: yaml.Node, shown: str) -> Any:
    """The value as JSON has it."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError as error:
        place = Place(shown, node.start_mark.line + 1)
        raise InputError([Problem(place, "", f"JSON cannot hold what is in it: {error}")]) from None


def without_nulls(value: Any) -> Any:
    """A value without the fields that are null, which in Kubernetes are absent."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: without_nulls(inner) for key, inner in fields.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in cast("list[Any]", value)]
    return value


# --- nodes ----------------------------------------------------------------------------------------


def _pairs(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []


def _step(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    """The line of a field and what is below it."""
    if isinstance(step, int):
        items = cast("list[yaml.Node]", node.value) if isinstance(node, yaml.SequenceNode) else []
        return (items[step].start_mark.line, items[step]) if step < len(items) else None
    for key, value in _pairs(node):
        if key.value == step:
            return key.start_mark.line, value
    return None


def _line(node: yaml.Node, path: Sequence[str | int]) -> int:
    line: int = node.start_mark.line
    for step in path:
        found = _step(node, step)
        if found is None:
            break
        line, node = found
    return line + 1


def _inner(node: yaml.Node, path: Sequence[str | int]) -> yaml.Node:
    for step in path:
        found = _step(node, step)
        if found is None:
            break
        node = found[1]
    return node


def _refuse_repeated_keys(node: yaml.Node, shown: str) -> None:
    seen: set[str] = set()
    for key, value in _pairs(node):
        if isinstance(key.value, str) and key.value != "<<":
            if key.value in seen:
                place = Place(shown, key.start_mark.line + 1)
                raise InputError([Problem(place, key.value, "is given twice: remove one")])
            seen.add(key.value)
        _refuse_repeated_keys(value, shown)
    if isinstance(node, yaml.SequenceNode):
        for item in cast("list[yaml.Node]", node.value):
            _refuse_repeated_keys(item, shown)
