"""Partial admission of Jobs: read and validate the annotations of a Job, and change its number of pods.

One annotation states the minimum number of pods. Another one keeps the number of completions equal to the
number of pods (semantics, Per kind: Job).
"""

import re
from typing import Any

from admitq.integrations.families.batch_jobs import count_parallel_pods
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, object_at, value_at, with_value
from admitq_api.labels import Names

PARALLELISM = ("spec", "parallelism")
COMPLETIONS = ("spec", "completions")

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,10}")


def _get_annotation(job: JsonObject, key: str) -> Any:
    return value_at(job, ("metadata", "annotations", key))


def get_min_count(job: JsonObject, names: Names) -> int | None:
    """Return the minimum number of pods of the Job; None if it needs all pods."""
    text = _get_annotation(job, names.job_min_parallelism)
    fewest = int(text) if isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text) else 0
    return fewest if fewest > 0 else None


def with_pod_count(job: JsonObject, count: int, names: Names) -> JsonObject:
    """Return the Job with another parallelism, and equal completions if its annotation requests that."""
    changed = with_value(job, PARALLELISM, count)
    if _get_annotation(job, names.job_completions_equal_parallelism) == "true":
        changed = with_value(changed, COMPLETIONS, count)
    return changed


def find_annotation_errors(job: JsonObject, names: Names) -> list[FieldError]:
    """Return the errors of the two annotations."""
    return _find_min_parallelism_errors(job, names) + _find_equal_completions_errors(job, names)


def find_running_job_errors(
    old: JsonObject, new: JsonObject, names: Names, *, was_running: bool
) -> list[FieldError]:
    """Return the errors of an update that would undo a partial admission."""
    errors: list[FieldError] = []
    is_partial = _get_annotation(old, names.job_min_parallelism) is not None
    if is_partial and was_running and value_at(old, PARALLELISM) != value_at(new, PARALLELISM):
        errors.append(
            FieldError.forbidden(
                "spec.parallelism",
                "cannot change when partial admission is enabled and the job is not suspended",
            )
        )
    key = names.job_completions_equal_parallelism
    if _get_annotation(old, key) != _get_annotation(new, key):
        errors.append(
            FieldError.forbidden(
                ErrorPath("metadata.annotations").key(key), "is immutable while the job runs"
            )
        )
    return errors


def _find_min_parallelism_errors(job: JsonObject, names: Names) -> list[FieldError]:
    key = names.job_min_parallelism
    text = _get_annotation(job, key)
    if text is None:
        return []
    field = ErrorPath("metadata.annotations").key(key)
    count = count_parallel_pods(object_at(job, ("spec",)))
    if not (isinstance(text, str) and _WHOLE_NUMBER.fullmatch(text)):
        return [FieldError.invalid(field, text, "must be a whole number")]
    errors: list[FieldError] = []
    if not 0 < int(text) < count:
        errors.append(FieldError.invalid(field, int(text), f"should be between 0 and {count - 1}"))
    if _get_annotation(job, names.elastic_job) == "true":
        errors.append(
            FieldError.invalid(field, text, "partial admission and elastic job cannot be used together")
        )
    return errors


def _find_equal_completions_errors(job: JsonObject, names: Names) -> list[FieldError]:
    key = names.job_completions_equal_parallelism
    text = _get_annotation(job, key)
    field = ErrorPath("metadata.annotations").key(key)
    if text is None or text == "false":
        return []
    if text != "true":
        return [FieldError.invalid(field, text, 'must be "true" or "false"')]
    if value_at(job, ("spec", "completionMode")) != "Indexed":
        return [FieldError.invalid(field, text, "should not be enabled for NonIndexed jobs")]
    if value_at(job, COMPLETIONS) != value_at(job, PARALLELISM, 1):
        return [FieldError.invalid(field, text, "completions should be equal to parallelism")]
    return []
