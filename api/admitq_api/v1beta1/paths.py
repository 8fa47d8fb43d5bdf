"""Objects within an object, by paths such as ``spec.podSets[].topologyRequest``."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, cast

Step = str | Mapping[str, Any]
"""The name of a field, or what tells an item of a list apart: ``{"name": …}``."""
Steps = tuple[Step, ...]


def iterate_copies(obj: dict[str, Any], path: str) -> Iterator[tuple[Steps, dict[str, Any]]]:
    """Every object at a path and where it is, each copied in its place: what was given stays as it is.

    Where something else stands than an object or a list of them, there is nothing.

    Args:
        obj: may be changed itself.
        path: empty for the object itself.
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
                one = cast("dict[str, Any]", item)
                yield from _iterate(one, names[1:], (*here, name, {"name": one.get("name")}))
    elif not is_list and isinstance(inner, dict):
        one = dict(cast("dict[str, Any]", inner))
        holder[name] = one
        yield from _iterate(one, names[1:], (*here, name))


def _copy(value: Any) -> Any:
    return dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def format_path(steps: Iterable[object]) -> str:
    """The path at which there is what steps lead to; empty for steps that lead nowhere."""
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
    """Set the field that steps lead to, if what holds it is there and the field is not.

    What holds the field is copied on the way. Of items that have the name of a step, the first is meant.
    """
    *way, field = steps
    holder: Any = obj
    for step in way:
        holder = _enter(holder, step)
    if isinstance(holder, dict):
        cast("dict[str, Any]", holder).setdefault(str(field), value)


def _enter(holder: Any, step: Step) -> Any:
    """What a step leads to, copied in its place; None if there is nothing."""
    place: Any = step if isinstance(step, str) else _find_item(holder, step)
    if not isinstance(holder, dict if isinstance(step, str) else list):
        return None
    within = cast("Any", holder)
    if place is None or (isinstance(step, str) and step not in within):
        return None
    within[place] = copy(within[place])
    return within[place]


def _find_item(holder: Any, named: Mapping[str, Any]) -> int | None:
    """Where in a list the first object with a name is."""
    for place, item in enumerate(cast("list[Any]", holder) if isinstance(holder, list) else ()):
        if isinstance(item, dict) and cast("dict[str, Any]", item).get("name") == named.get("name"):
            return place
    return None
