"""Paths that lead through each element of a list, as ``spec.tasks[].template`` is written."""

from collections.abc import Mapping, Sequence

from admitq.integrations.paths import Object, Path, value_at
from admitq.integrations.reading import items
from admitq_api.path_notation import EACH


def elements(job: Object, path: Path) -> Sequence[int | None]:
    """The elements of the list that the path leads through; one None where it leads through none."""
    if EACH not in path:
        return (None,)
    listed = items(value_at(job, path[: path.index(EACH)]))
    return [index for index, item in enumerate(listed) if isinstance(item, Mapping)]


def of_element(path: Path, index: int | None) -> Path:
    """The path for one element of the list."""
    return tuple(index if step == EACH and index is not None else step for step in path)
