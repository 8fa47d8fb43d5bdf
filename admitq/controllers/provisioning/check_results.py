"""What a check is said to be, by the ProvisioningRequest that was made for it (pure).

The table of semantics, ProvisioningRequest check, step 5: conditions in order, of which the first decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from admitq.controllers.provisioning.requests import pod_set_updates, unusable_detail
from admitq.workloads.admission_check_states import AdmissionCheckReport, AdmissionCheckState
from admitq.workloads.transitions import CHECK_RESET_PREFIX, is_condition_true
from admitq_api import conditions
from admitq_api.conditions import SECOND, ConditionType, parse_time
from admitq_api.json_objects import JsonObject, value_at

INACTIVE: Final = "the check is not active"
NOT_NEEDED: Final = "the provisioning request is not needed"

FAILED: Final = "Failed"
CAPACITY_REVOKED: Final = "CapacityRevoked"
BOOKING_EXPIRED: Final = "BookingExpired"
PROVISIONED: Final = "Provisioned"
ACCEPTED: Final = "Accepted"
"""Conditions that an autoscaler sets on a ProvisioningRequest."""

_CLOCKS_DIFFER: Final = 10 * SECOND
"""By how much the clocks of an autoscaler and of ours may differ; nanoseconds."""

_FASTEST_GROWTH: Final = 40
"""Beyond that many doublings every wait has passed its limit; the exponent itself must not grow for ever."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check of a Workload, and what was asked of the autoscaler for it."""

    workload: JsonObject
    check: JsonObject
    """As the Workload lists it."""
    config: JsonObject
    request: JsonObject
    attempt: int
    """Which attempt the request is, from 1."""

    @property
    def retries(self) -> int:
        """How often the check was retried."""
        return retries_of(self.check)

    @property
    def state(self) -> str:
        """What the check is said to be now."""
        return self.check.get("state", AdmissionCheckState.PENDING)

    def message_of(self, condition: str) -> str:
        """The message of one of the request's conditions."""
        found = conditions.find_condition(value_at(self.request, ("status", "conditions"), []), condition)
        return "" if found is None else found.get("message", "")

    def holds(self, condition: str) -> bool:
        """Whether one of the request's conditions is true."""
        return conditions.is_true(value_at(self.request, ("status", "conditions"), []), condition)

    def new_state(self, state: State, message: str) -> Statement:
        """A statement about the check.

        Its time stays that of the check, so that a wait counts from when the check became pending.
        """
        since = self.check.get("lastTransitionTime", "")
        return AdmissionCheckReport(self.check["name"], state, message, since=since)

    def new_message(self, message: str) -> Statement:
        """A statement that changes the message alone."""
        return replace(
            self.new_state(State(self.state), message),
            pod_set_updates=tuple(self.check.get("podSetUpdates") or ()),
            requeue_after_seconds=self.check.get("requeueAfterSeconds"),
        )


def retries_of(check: JsonObject) -> int:
    """How often a check was retried."""
    return check.get("retryCount") or 0


def retry_after_seconds(config: JsonObject, retries: int) -> int:
    """How long to wait before the next attempt, after so many retries."""
    strategy = value_at(config, ("spec", "retryStrategy"), {})
    base, most = strategy.get("backoffBaseSeconds", 60), strategy.get("backoffMaxSeconds", 1800)
    return min(base * 2 ** min(retries, _FASTEST_GROWTH), most)


def is_next_attempt_due(asked: CheckRequest) -> bool:
    """Whether the request ended without nodes and a retry has followed, so that the next attempt is due.

    A retry is counted in the check. A check that begins anew otherwise was reset by an eviction, as one of a
    workload that was deactivated; or it was listed anew, well after the request had ended, as one of a flavor
    that was given back.
    """
    if asked.state != AdmissionCheckState.PENDING:
        return False
    ended = [of for of in (FAILED, BOOKING_EXPIRED) if asked.holds(of)]
    return bool(ended) and (asked.attempt <= asked.retries or _ended_before(asked, ended[0]))


def _ended_before(asked: CheckRequest, condition: str) -> bool:
    found = conditions.find_condition(value_at(asked.request, ("status", "conditions"), []), condition)
    message = asked.check.get("message", "")
    was_reset = message.startswith(CHECK_RESET_PREFIX) and not message.endswith(AdmissionCheckState.RETRY)
    try:
        ended = parse_time((found or {}).get("lastTransitionTime", ""))
        began = parse_time(asked.check.get("lastTransitionTime", ""))
        return ended - began < (_CLOCKS_DIFFER if was_reset else -_CLOCKS_DIFFER)
    except (TypeError, ValueError):
        return False


def _ended(asked: CheckRequest, condition: str, what: str) -> Statement | None:
    limit = value_at(asked.config, ("spec", "retryStrategy", "backoffLimitCount"), 3)
    message = asked.message_of(condition)
    if asked.attempt > limit:
        return asked.new_state(State.REJECTED, message)
    message = f"Retrying after {what}: {message}"
    if asked.attempt <= asked.retries:
        return asked.new_message(message)
    wait = retry_after_seconds(asked.config, asked.retries)
    return replace(asked.new_state(State.RETRY, message), requeue_after_seconds=wait)


def _failed(asked: CheckRequest) -> Statement | None:
    return _ended(asked, FAILED, "failure") if asked.holds(FAILED) else None


def _revoked(asked: CheckRequest) -> Statement | None:
    """Nodes that are taken back end a workload that runs on them, too."""
    if not asked.holds(CAPACITY_REVOKED):
        return None
    return asked.new_state(State.REJECTED, asked.message_of(CAPACITY_REVOKED))


def _expired(asked: CheckRequest) -> Statement | None:
    if not asked.holds(BOOKING_EXPIRED) or holds(asked.workload, ConditionType.ADMITTED):
        return None
    return _ended(asked, BOOKING_EXPIRED, "booking expired")


def _provisioned(asked: CheckRequest) -> Statement | None:
    """Ready, unless the webhook would reject what pods get: that waits until the config is corrected."""
    if not asked.holds(PROVISIONED) or asked.state == AdmissionCheckState.READY:
        return None
    if (problem := unusable_detail(asked.request, asked.config)) is not None:
        return asked.new_state(State.PENDING, problem)
    updates = pod_set_updates(asked.workload, asked.request, asked.config)
    return replace(asked.new_state(State.READY, asked.message_of(PROVISIONED)), pod_set_updates=updates)


def _under_way(asked: CheckRequest) -> Statement | None:
    """What is ready stays so until an eviction, whatever becomes of the request."""
    if asked.state == AdmissionCheckState.READY:
        return None
    waits = asked.holds(ACCEPTED) and conditions.is_false(
        value_at(asked.request, ("status", "conditions"), []), PROVISIONED
    )
    return asked.new_state(State.PENDING, asked.message_of(PROVISIONED) if waits else "")


OUTCOMES: Final[tuple[Callable[[CheckRequest], Statement | None], ...]] = (
    _failed,
    _revoked,
    _expired,
    _provisioned,
    _under_way,
)
"""In the order in which they are asked."""


def check_statement(asked: CheckRequest) -> Statement | None:
    """What the request says of the check; None if it says nothing new."""
    if is_next_attempt_due(asked):
        return None
    for row in OUTCOMES:
        stated = row(asked)
        if stated is not None:
            return stated
    return None
