"""Stored objects from files: what ``kubectl get -o yaml`` or ``-o json`` prints.

A file has any number of objects and Lists, as YAML or JSON. A folder has files with the suffixes ``.yaml``,
``.yml`` and ``.json``. A log with a state dump of a manager is read by ``state_logs``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from admitq.asking.state_logs import StateLog, find_state
from admitq.asking.stored_objects import ObjectSorter, SourceError, StoredObjects
from admitq.core.model import Instant
from admitq_api.json_objects import JsonObject, text_at
from admitq_api.labels import GROUPS, Names, names_for

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".log"})
"""The suffixes of files that are read in a folder."""

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.CSafeLoader):
    """Reads values as Kubernetes does: a time is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 as in the base class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """The contents of files: stored objects, or a state from a log."""

    objects: StoredObjects
    state_log: StateLog | None = None


def read_object_files(paths: Sequence[Path], group: str | None = None) -> ReadFiles:
    """Return the objects of files and folders. The time of reading is that of the latest file.

    Args:
        paths: the files and folders. If several have the same object, that of the last path counts.
        group: the API group; None for the group of the objects.

    Raises:
        SourceError: a file cannot be read; objects have several groups; or there is a log beside other files.
    """
    objects: list[JsonObject] = []
    logs: list[StateLog] = []
    changed_at: Instant = 0
    for path in list_files(paths):
        text = _read(path)
        changed_at = max(changed_at, path.stat().st_mtime_ns)
        state = find_state(text, str(path))
        if state is None:
            objects.extend(parse_objects(text, str(path)))
        else:
            logs.append(state)
    if logs and (objects or len(logs) > 1):
        raise SourceError("a log with the state of a manager is the whole cluster: give no other file")
    sorter = ObjectSorter(_find_names(objects, group))
    for obj in objects:
        sorter.add(obj)
    if logs:
        return ReadFiles(sorter.sorted_objects(logs[0].dumped_at or changed_at), logs[0])
    if not objects:
        raise SourceError(f"no objects in {', '.join(map(str, paths))}")
    return ReadFiles(sorter.sorted_objects(changed_at))


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files, and those of folders with the suffixes of objects or logs, in the order of names."""
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
        else:
            yield path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{path}: cannot be read: {detail}") from None


def _find_names(objects: Iterable[JsonObject], wanted: str | None) -> Names:
    """Return the names of the group of the objects, or of the wanted group."""
    found = {text_at(obj, ("apiVersion",)).rpartition("/")[0].removeprefix("config.") for obj in objects}
    groups = [group for group in GROUPS if group in (found if wanted is None else {wanted})]
    if len(groups) > 1:
        raise SourceError(f"the objects have the groups {' and '.join(groups)}: select one with --api-group")
    if wanted is not None and not groups:
        raise SourceError(f"--api-group: {wanted!r} is not one of {', '.join(GROUPS)}")
    return names_for(groups[0] if groups else GROUPS[0])


# --- texts ----------------------------------------------------------------------------------------------


def parse_objects(text: str, shown: str) -> list[JsonObject]:
    """Return the objects of a text of YAML or JSON. The items of a List are objects.

    Args:
        text: the text.
        shown: the name of its file in errors.

    Raises:
        SourceError: the text is invalid, or has a value that is no object.
    """
    return [
        obj
        for number, document in enumerate(_parse(text, shown), 1)
        if document is not None
        for obj in _objects_of(document, f"{shown}: document {number}")
    ]


def _parse(text: str, shown: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except ValueError:
            pass  # YAML, or several documents of JSON.
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{shown}:{mark.line + 1}" if mark else shown
        raise SourceError(f"{place}: not YAML: {error.problem or error}") from None
    except yaml.YAMLError as error:
        raise SourceError(f"{shown}: not YAML: {error}") from None


def _objects_of(document: Any, place: str) -> Iterator[JsonObject]:
    if not isinstance(document, Mapping):
        raise SourceError(f"{place}: must be an object with fields like apiVersion and kind")
    obj = cast("JsonObject", document)
    kind, api_version = text_at(obj, ("kind",)), text_at(obj, ("apiVersion",))
    if not kind or not api_version:
        raise SourceError(f"{place}: has no {'apiVersion' if kind else 'kind'}")
    if not (kind.endswith("List") and "items" in obj):
        yield obj
        return
    items: Any = obj["items"] or []
    of_kind = {} if kind == "List" else {"apiVersion": api_version, "kind": kind.removesuffix("List")}
    for index, item in enumerate(cast("list[Any]", items)):
        whole = {**of_kind, **cast("JsonObject", item)} if isinstance(item, Mapping) else item
        yield from _objects_of(whole, f"{place}: items[{index}]")
