"""Read fields that jobs of many kinds have in common: numbers of pods, conditions, outcomes."""

from collections.abc import Mapping
from typing import Any

from admitq.integrations.base import JobOutcome
from admitq_api.json_objects import JsonObject, as_int, as_text, objects_at


def count_pods(value: Any, default: int = 1) -> int:
    """Return a number of replicas; a negative number counts as 0, another type as the default."""
    return max(0, as_int(value, default))


def find_condition(job: JsonObject, type_: str) -> JsonObject | None:
    """Return the condition of a type in the job's status."""
    conditions = objects_at(job, ("status", "conditions"))
    return next((condition for condition in conditions if condition.get("type") == type_), None)


def is_condition_true(job: JsonObject, type_: str) -> bool:
    """Whether a condition of the job is true."""
    return (find_condition(job, type_) or {}).get("status") == "True"


def find_end(job: JsonObject, success_of: Mapping[str, bool]) -> JobOutcome | None:
    """Return how the job ended, by the first condition that ends it.

    Args:
        job: the job.
        success_of: the types of conditions that end a job, and whether it succeeded then.
    """
    for condition in objects_at(job, ("status", "conditions")):
        success = success_of.get(as_text(condition.get("type")))
        if success is not None and condition.get("status") == "True":
            return JobOutcome(success, as_text(condition.get("message")))
    return None
