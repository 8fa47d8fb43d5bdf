"""Paths that contain every element of a list, such as ``spec.tasks[].template``."""

from collections.abc import Mapping, Sequence

from admitq_api.json_objects import FieldPath, JsonObject, as_list, value_at
from admitq_api.path_notation import EACH_ELEMENT


def list_element_indexes(job: JsonObject, path: FieldPath) -> Sequence[int | None]:
    """Return the indexes of the list elements that a path contains; a single None if it contains no list."""
    if EACH_ELEMENT not in path:
        return (None,)
    listed = as_list(value_at(job, path[: path.index(EACH_ELEMENT)]))
    return [index for index, item in enumerate(listed) if isinstance(item, Mapping)]


def get_element_path(path: FieldPath, index: int | None) -> FieldPath:
    """Return the path for one element of the list."""
    return tuple(index if step == EACH_ELEMENT and index is not None else step for step in path)
