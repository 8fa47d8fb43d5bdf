"""Find and change nested objects by paths such as ``spec.podSets[].topologyRequest``."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, cast

Step = str | Mapping[str, Any]
"""The name of a field, or the identity of a list item: ``{"name": …}``."""
Steps = tuple[Step, ...]


def iterate_copies(obj: dict[str, Any], path: str) -> Iterator[tuple[Steps, dict[str, Any]]]:
    """Yield the steps to each object at a path, and the object, replaced by a copy that callers may change.

    Values of other types than object or list of objects are skipped.

    Args:
        obj: the outer object, which is changed. Objects within it are copied before they are changed.
        path: the path; empty for the outer object itself.
    """
    yield from _iterate(obj, tuple(path.split(".")) if path else (), ())


def _iterate(
    holder: dict[str, Any], names: tuple[str, ...], here: Steps
) -> Iterator[tuple[Steps, dict[str, Any]]]:
    if not names:
        yield here, holder
        return
    name, is_list = names[0].removesuffix("[]"), names[0].endswith("[]")
    inner = holder.get(name)
    if is_list and isinstance(inner, list):
        items = [_copy(item) for item in cast("list[Any]", inner)]
        holder[name] = items
        for item in items:
            if isinstance(item, dict):
                entry = cast("dict[str, Any]", item)
                yield from _iterate(entry, names[1:], (*here, name, {"name": entry.get("name")}))
    elif not is_list and isinstance(inner, dict):
        copied = dict(cast("dict[str, Any]", inner))
        holder[name] = copied
        yield from _iterate(copied, names[1:], (*here, name))


def _copy(value: Any) -> Any:
    return dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def format_path(steps: Iterable[object]) -> str:
    """Return the path of steps; empty for invalid steps."""
    path = ""
    for step in steps:
        if isinstance(step, Mapping):
            path += "[]"
        elif isinstance(step, str):
            path += f".{step}" if path else step
        else:
            return ""
    return path


def restore_field(obj: dict[str, Any], steps: Steps, value: Any) -> None:
    """Set the field at the end of the steps, if its parent object exists and the field does not.

    The objects on the way are copied. If several list items have the name of a step, the first is used.
    """
    *way, field = steps
    holder: Any = obj
    for step in way:
        holder = _enter(holder, step)
    if isinstance(holder, dict):
        cast("dict[str, Any]", holder).setdefault(str(field), value)


def _enter(holder: Any, step: Step) -> Any:
    """Return a copy of the value at a step, stored in its place; None if there is no value."""
    place: Any = step if isinstance(step, str) else _find_item(holder, step)
    if not isinstance(holder, dict if isinstance(step, str) else list):
        return None
    within = cast("Any", holder)
    if place is None or (isinstance(step, str) and step not in within):
        return None
    within[place] = copy(within[place])
    return within[place]


def _find_item(holder: Any, named: Mapping[str, Any]) -> int | None:
    """Return the index of the first object with a name in a list; None if there is none."""
    for place, item in enumerate(cast("list[Any]", holder) if isinstance(holder, list) else ()):
        if isinstance(item, dict) and cast("dict[str, Any]", item).get("name") == named.get("name"):
            return place
    return None
