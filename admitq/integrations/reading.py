"""Reading what the specs and statuses of many kinds say in the same way, whatever their shape.

What has the wrong type counts as absent. The API server checks most of what it stores, but not what a
definition lets pass as it is, and definitions of other versions let other things pass.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from admitq.integrations.base import Finished
from admitq.integrations.paths import Object, value_at


def whole(value: Any, default: int = 0) -> int:
    """The value if it is a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def text(value: Any) -> str:
    """The value if it is a text, else the empty one."""
    return value if isinstance(value, str) else ""


def number_of_pods(value: Any, default: int = 1) -> int:
    """A number of replicas; fewer than none are none."""
    return max(0, whole(value, default))


def text_at(document: Any, path: Iterable[str | int]) -> str:
    """The text at a path; empty where there is none."""
    return text(value_at(document, path))


def mapping(document: Any, path: Iterable[str | int] = ()) -> Object:
    """The mapping at a path, or the document itself; an empty one where there is none."""
    found = value_at(document, path)
    return cast("Object", found) if isinstance(found, Mapping) else {}


def texts(document: Any, path: Iterable[str | int] = ()) -> dict[str, str]:
    """The entries of the mapping at a path that are texts, such as labels."""
    return {key: value for key, value in mapping(document, path).items() if isinstance(value, str)}


def items(value: Any) -> list[Any]:
    """The value if it is a list, whatever its items are, else the empty one."""
    return value if isinstance(value, list) else []


def objects(document: Any, path: Iterable[str | int] = ()) -> list[Object]:
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
