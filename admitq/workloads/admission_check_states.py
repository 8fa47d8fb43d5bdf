"""How a check's controller states what it found, in the list of checks in a Workload's status (pure).

Controllers of admission checks write nothing else there. What resets a check, and what its state leads to,
is the life of the Workload: see `admitq.workloads.transitions` and `admitq.controllers.workload.steps`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from admitq_api.conditions import format_time, truncate
from admitq_api.json_objects import JsonObject, value_at


class AdmissionCheckState(StrEnum):
    """The states of an admission check (semantics, Admission-check framework)."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class AdmissionCheckReport:
    """What a controller states of one check.

    ``since`` is when the check came into this state, as the API writes times; without it the present counts.
    ``requeue_after_seconds`` tells, with Retry, how long nothing is to be tried.
    """

    name: str
    state: AdmissionCheckState
    message: str = ""
    since: str = ""
    pod_set_updates: tuple[JsonObject, ...] = ()
    requeue_after_seconds: int | None = None


def listed_checks(workload: JsonObject) -> list[JsonObject]:
    """The checks that the Workload lists."""
    return value_at(workload, ("status", "admissionChecks"), [])


def find_check(checks: Iterable[JsonObject], name: str) -> JsonObject | None:
    """One check of a list."""
    return next((check for check in checks if check.get("name") == name), None)


def update_check(
    checks: Iterable[JsonObject], stated: AdmissionCheckReport, now: int
) -> list[dict[str, Any]]:
    """The checks with what is stated of one of them, which is appended if it is not listed.

    The time of the last transition moves only with the state. Message, updates of podsets and the wait are
    those of the statement, present or not; how often the check was retried is not the controller's to say.
    """
    result = [dict(check) for check in checks]
    found = next((check for check in result if check.get("name") == stated.name), None)
    if found is None:
        found = {"name": stated.name}
        result.append(found)
    if found.get("state") != stated.state:
        found["state"] = str(stated.state)
        found["lastTransitionTime"] = stated.since or format_time(now)
    found["message"] = truncate(stated.message)
    _set_or_remove(found, "podSetUpdates", [dict(update) for update in stated.pod_set_updates] or None)
    _set_or_remove(found, "requeueAfterSeconds", stated.requeue_after_seconds)
    return result


def _set_or_remove(check: dict[str, Any], field: str, value: Any) -> None:
    if value is None:
        check.pop(field, None)
    else:
        check[field] = value
