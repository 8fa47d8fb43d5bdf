"""Paths that lead through each element of a list, as ``spec.tasks[].template`` is written."""

from collections.abc import Mapping, Sequence

from admitq_api.json_objects import FieldPath, JsonObject, as_list, value_at
from admitq_api.path_notation import EACH_ELEMENT


def list_element_indexes(job: JsonObject, path: FieldPath) -> Sequence[int | None]:
    """The elements of the list that the path leads through; one None where it leads through none."""
    if EACH_ELEMENT not in path:
        return (None,)
    listed = as_list(value_at(job, path[: path.index(EACH_ELEMENT)]))
    return [index for index, item in enumerate(listed) if isinstance(item, Mapping)]


def get_element_path(path: FieldPath, index: int | None) -> FieldPath:
    """The path for one element of the list."""
    return tuple(index if step == EACH_ELEMENT and index is not None else step for step in path)
