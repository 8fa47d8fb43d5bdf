"""Rules that hold for a job only while it is ours to hold: elsewhere its own operator has the say."""

from collections.abc import Callable, Sequence

from admitq.integrations.base import RuleContext
from admitq.integrations.ownership import get_queue_name
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject

RuleCheck = Callable[[JsonObject, RuleContext], Sequence[FieldError]]
"""Rules of a kind."""


def check_new_jobs(check: RuleCheck) -> RuleCheck:
    """The rules, for new jobs that are managed."""

    def checked(job: JsonObject, rules: RuleContext) -> Sequence[FieldError]:
        return check(job, rules) if rules.is_managed else []

    return checked


def check_updated_jobs(
    check: RuleCheck,
) -> Callable[[JsonObject, JsonObject, RuleContext], Sequence[FieldError]]:
    """The rules, for changes of jobs whose updates are validated at all."""

    def checked(_old: JsonObject, new: JsonObject, rules: RuleContext) -> Sequence[FieldError]:
        return check(new, rules)

    return checked


def should_validate_update(old: JsonObject, rules: RuleContext) -> bool:
    """Whether a change is validated: of a job that is managed, or was queued before (semantics, Per kind)."""
    was_queued = bool(get_queue_name(old, rules.names))
    return rules.is_managed or (
        was_queued and rules.gates.is_enabled(Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES)
    )
