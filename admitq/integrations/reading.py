"""Reading what the specs and statuses of many kinds say in the same way, whatever their shape."""

from collections.abc import Iterable, Mapping
from typing import Any

from admitq.integrations.base import Finished
from admitq.integrations.paths import Object, value_at


def whole(value: Any, default: int = 0) -> int:
    """The value if it is a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def text(value: Any) -> str:
    """The value if it is a text, else the empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Object:
    """The value if it is a mapping, else the empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, whatever its items are, else the empty one."""
    return value if isinstance(value, list) else []


def objects(document: Any, path: Iterable[str | int]) -> list[Object]:
    """The objects in the list at a path; what is no object is left out."""
    found = value_at(document, path, [])
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def condition(job: Object, type_: str) -> Object | None:
    """The condition of this type in the job's status."""
    return next((one for one in objects(job, ("status", "conditions")) if one.get("type") == type_), None)


def holds(job: Object, type_: str) -> bool:
    """Whether a condition of the job is true."""
    return (condition(job, type_) or {}).get("status") == "True"


def ended(job: Object, success_of: Mapping[str, bool]) -> Finished | None:
    """How the job ended, by the first of its conditions that ends it; ``success_of`` names those."""
    for one in objects(job, ("status", "conditions")):
        success = success_of.get(text(one.get("type")))
        if success is not None and one.get("status") == "True":
            return Finished(success, text(one.get("message")))
    return None
