"""The numbers of parallel and ended pods of a ``batch/v1`` Job, which can be part of another kind."""

import re
from typing import Any, Final

from admitq.integrations.job_fields import count_pods
from admitq_api.json_objects import JsonObject

COMPLETION_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
"""The label with the index of a pod of an indexed Job."""

CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
"""The label of pods with the UID of their Job."""

_RANGE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


def count_parallel_pods(spec: JsonObject) -> int:
    """Return how many pods a Job of this spec runs in parallel: at most its number of completions."""
    parallelism = count_pods(spec.get("parallelism"))
    return min(parallelism, count_pods(spec.get("completions"), parallelism))


def _parse_ranges(text: Any) -> list[tuple[int, int]]:
    """Return first and last index of each range in a list such as ``1,3-5``. Invalid parts are ignored."""
    ranges: list[tuple[int, int]] = []
    for part in text.split(",") if isinstance(text, str) else ():
        match = _RANGE.fullmatch(part)
        if match is not None:
            ranges.append((int(match[1]), int(match[2] or match[1])))
    return ranges


def count_ended_indexes(status: JsonObject, completions: int) -> int:
    """Return how many indexes completed or failed. Ranges are not expanded, because they can be huge."""
    ended, following = 0, 0
    for first, last in sorted(
        _parse_ranges(status.get("completedIndexes")) + _parse_ranges(status.get("failedIndexes"))
    ):
        start, end = max(first, following), min(last + 1, completions)
        ended += max(0, end - start)
        following = max(following, end)
    return ended
