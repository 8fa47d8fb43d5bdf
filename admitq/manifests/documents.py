"""Objects of YAML files with the line of each field, and objects of requests without lines."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
import yaml

FieldPath = tuple[str | int, ...]
"""Keys of mappings and indexes of lists, from the root to the field."""

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file. Lines count from 1; 0 is the whole file."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the input, with its place.

    The field is empty if the problem is about the whole file. The object is empty if the file has only one.
    """

    place: Place
    field: str
    remedy: str
    object: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place), self.object, self.field, self.remedy)))


class InputError(ValueError):
    """The input cannot be used. The message has one line for each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One object of a file, or of a request.

    ``file`` is the name of the file, or the field of the request that has the object. An object of a request
    has no node.
    """

    file: str
    value: Mapping[str, Any]
    node: yaml.Node | None = None
    base: FieldPath = ()
    """The path of this object in the YAML document that contains it, such as that of an item in a List."""

    def place(self, path: Sequence[str | int] = ()) -> Place:
        """Return the place of a field, or of the innermost existing field around it."""
        return Place(self.file, 0 if self.node is None else _line(self.node, path))

    def problem(self, path: Sequence[str | int], remedy: str) -> Problem:
        """Return a problem of a field."""
        return Problem(self.place(path), field_name((*self.base, *path)), remedy)

    def error(self, path: Sequence[str | int], remedy: str) -> InputError:
        """Return an error with one problem of a field."""
        return InputError([self.problem(path, remedy)])

    def within(self, path: FieldPath, value: Mapping[str, Any]) -> "Document":
        """Return a document for a part of this document: its path, with another value."""
        node = None if self.node is None else _inner(self.node, path)
        return Document(self.file, value, node, (*self.base, *path))


def field_name(path: Sequence[str | int]) -> str:
    """Return the name of a field: ``spec.resourceGroups[0].flavors``."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def field_path(name: str) -> FieldPath:
    """Return the path of a field from its name, the inverse of ``field_name``."""
    return tuple(int(inner) if inner.isdecimal() else inner or outer for inner, outer in _STEP.findall(name))


# --- reading --------------------------------------------------------------------------------------


def read_file(path: Path, shown: str) -> list[Document]:
    """Return the documents of a file.

    Args:
        path: the file.
        shown: its name in messages.

    Raises:
        InputError: the file cannot be read, is not YAML, or has a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InputError([Problem(Place(shown), "", f"cannot be read: {detail}")]) from None
    return read_text(text, shown)


def read_text(text: str, shown: str) -> list[Document]:
    """Return the documents of a text. Each item of a List is a document.

    Raises:
        InputError: the text is not YAML, has a key twice, or has values that are not objects.
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
    """Return the value as JSON."""
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError as error:
        place = Place(shown, node.start_mark.line + 1)
        raise InputError([Problem(place, "", f"has a value that JSON does not support: {error}")]) from None


def without_nulls(value: Any) -> Any:
    """Return a value without null fields. In Kubernetes, null means absent."""
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
    """Return the line of a field and its node."""
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
        step_found = _step(node, step)
        if step_found is None:
            break
        line, node = step_found
    return line + 1


def _inner(node: yaml.Node, path: Sequence[str | int]) -> yaml.Node:
    for step in path:
        step_found = _step(node, step)
        if step_found is None:
            break
        node = step_found[1]
    return node


def _refuse_repeated_keys(node: yaml.Node, shown: str) -> None:
    earlier: set[str] = set()
    for key, value in _pairs(node):
        if isinstance(key.value, str) and key.value != "<<":
            if key.value in earlier:
                place = Place(shown, key.start_mark.line + 1)
                raise InputError([Problem(place, key.value, "occurs twice: remove one")])
            earlier.add(key.value)
        _refuse_repeated_keys(value, shown)
    if isinstance(node, yaml.SequenceNode):
        for item in cast("list[yaml.Node]", node.value):
            _refuse_repeated_keys(item, shown)
