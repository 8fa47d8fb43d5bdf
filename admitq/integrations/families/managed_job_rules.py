"""Webhook rules that apply only to jobs that admitq manages."""

from collections.abc import Callable, Sequence

from admitq.integrations.base import RuleContext
from admitq.integrations.ownership import get_queue_name
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject

RuleCheck = Callable[[JsonObject, RuleContext], Sequence[FieldError]]
"""A function that returns the errors of a job."""


def check_new_jobs(check: RuleCheck) -> RuleCheck:
    """Return a check of new jobs that applies the rules if admitq manages the job."""

    def checked(job: JsonObject, context: RuleContext) -> Sequence[FieldError]:
        return check(job, context) if context.is_managed else []

    return checked


def check_updated_jobs(
    check: RuleCheck,
) -> Callable[[JsonObject, JsonObject, RuleContext], Sequence[FieldError]]:
    """Return a check of updates that applies the rules to the new job."""

    def checked(_old: JsonObject, new: JsonObject, context: RuleContext) -> Sequence[FieldError]:
        return check(new, context)

    return checked


def should_validate_update(old: JsonObject, context: RuleContext) -> bool:
    """Whether an update is validated: if the job is managed or was queued before (semantics, Per kind)."""
    was_queued = bool(get_queue_name(old, context.names))
    return context.is_managed or (
        was_queued and context.gates.is_enabled(Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES)
    )
