"""States of admission checks, and how their controllers report them in the status of a Workload (pure).

Controllers of admission checks write only their own entry of the list of checks.
`admitq.workloads.transitions` resets checks, and `admitq.controllers.workload.steps` acts on their states.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from admitq.core.model import CheckState
from admitq_api.conditions import format_time, truncate
from admitq_api.json_objects import JsonObject, value_at


@dataclass(frozen=True, slots=True)
class AdmissionCheckReport:
    """The state of one check, as its controller reports it.

    Attributes:
        name: the AdmissionCheck.
        state: its state for the Workload.
        message: for users.
        since: the time of the transition to this state in the format of the API; empty for the present.
        pod_set_updates: changes of the podsets.
        requeue_after_seconds: with Retry, the least time before the Workload is requeued.
    """

    name: str
    state: CheckState
    message: str = ""
    since: str = ""
    pod_set_updates: tuple[JsonObject, ...] = ()
    requeue_after_seconds: int | None = None


def listed_checks(workload: JsonObject) -> list[JsonObject]:
    """Return the checks that the status of the Workload lists."""
    return value_at(workload, ("status", "admissionChecks"), [])


def find_check(checks: Iterable[JsonObject], name: str) -> JsonObject | None:
    """Return the check with a name; None if the list has none."""
    return next((check for check in checks if check.get("name") == name), None)


def update_check(
    checks: Iterable[JsonObject], stated: AdmissionCheckReport, now: int
) -> list[dict[str, Any]]:
    """Return the checks with the reported state of one check, which is appended if it is not listed.

    The time of the last transition changes only with the state. The report replaces the message, the updates
    of podsets and the requeue time, also if it has none. The number of retries stays as it is.
    """
    result = [dict(check) for check in checks]
    existing = next((check for check in result if check.get("name") == stated.name), None)
    if existing is None:
        existing = {"name": stated.name}
        result.append(existing)
    if existing.get("state") != stated.state:
        existing["state"] = str(stated.state)
        existing["lastTransitionTime"] = stated.since or format_time(now)
    existing["message"] = truncate(stated.message)
    _set_or_remove(existing, "podSetUpdates", [dict(update) for update in stated.pod_set_updates] or None)
    _set_or_remove(existing, "requeueAfterSeconds", stated.requeue_after_seconds)
    return result


def _set_or_remove(check: dict[str, Any], field: str, value: Any) -> None:
    if value is None:
        check.pop(field, None)
    else:
        check[field] = value
