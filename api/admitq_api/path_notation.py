"""The notation of paths in jobs, in the configuration file and in tables of kinds."""

import re
from typing import Final

from admitq_api.field_errors import MapKey

EACH_ELEMENT: Final = "[]"
"""The step of a path that means every element of a list."""

POD_SET_NAME: Final = "{name}"
"""The step of a path that means a key with the name of the podset."""

_STEP: Final = re.compile(r"(?:^|\.)(\{name\}|[A-Za-z0-9_-]+)|\[([A-Za-z0-9_./-]*)\]")


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a path such as ``spec.tasks[].template``. A key in brackets is a ``MapKey``.

    Raises:
        ValueError: the text is not a path.
    """
    steps: list[str] = []
    end = 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            break
        plain, key = match.groups()
        steps.append(plain or (MapKey(key) if key else EACH_ELEMENT))
        end = match.end()
    if not steps or end != len(path) or path[0] in ".[":
        raise ValueError(
            f"{path!r} is not a path: write one like spec.template, spec.tasks[].template for all elements "
            "of a list, or metadata.annotations[example.com/key]"
        )
    return tuple(steps)
