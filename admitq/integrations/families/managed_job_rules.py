"""Rules that hold for a job only while it is ours to hold: elsewhere its own operator has the say."""

from collections.abc import Callable, Sequence

from admitq.integrations.base import Rules
from admitq.integrations.ownership import queue_name
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError
from admitq_api.json_objects import JsonObject

Check = Callable[[JsonObject, Rules], Sequence[FieldError]]
"""Rules of a kind."""


def on_create(check: Check) -> Check:
    """The rules, for new jobs that are managed."""

    def checked(job: JsonObject, rules: Rules) -> Sequence[FieldError]:
        return check(job, rules) if rules.is_managed else []

    return checked


def on_update(check: Check) -> Callable[[JsonObject, JsonObject, Rules], Sequence[FieldError]]:
    """The rules, for changes of jobs whose updates are validated at all."""

    def checked(_old: JsonObject, new: JsonObject, rules: Rules) -> Sequence[FieldError]:
        return check(new, rules)

    return checked


def is_update_validated(old: JsonObject, rules: Rules) -> bool:
    """Whether a change is validated: of a job that is managed, or was queued before (semantics, Per kind)."""
    was_queued = bool(queue_name(old, rules.names))
    return rules.is_managed or (was_queued and rules.gates.enabled(Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES))
