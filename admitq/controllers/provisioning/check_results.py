"""The state of an admission check that follows from its ProvisioningRequest (pure).

The table of semantics, ProvisioningRequest check, step 5: the first matching row decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from admitq.controllers.provisioning.requests import pod_set_updates, unusable_detail
from admitq.core.model import CheckState
from admitq.workloads.admission_check_reports import AdmissionCheckReport
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
"""Maximum difference between the clocks of the autoscaler and the manager; nanoseconds."""

_FASTEST_GROWTH: Final = 40
"""Maximum number of doublings. With more, every wait exceeds its limit anyway, and the power would be
huge."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check of a Workload, and its ProvisioningRequest."""

    workload: JsonObject
    check: JsonObject
    """As the Workload lists it."""
    config: JsonObject
    request: JsonObject
    attempt: int
    """Number of the attempt, from 1."""

    @property
    def retries(self) -> int:
        """How often the check was retried."""
        return retries_of(self.check)

    @property
    def state(self) -> str:
        """The present state of the check."""
        return self.check.get("state", CheckState.PENDING)

    def message_of(self, condition: str) -> str:
        """Return the message of a condition of the request."""
        condition_found = conditions.find_condition(
            value_at(self.request, ("status", "conditions"), []), condition
        )
        return "" if condition_found is None else condition_found.get("message", "")

    def holds(self, condition: str) -> bool:
        """Whether a condition of the request is true."""
        return conditions.is_true(value_at(self.request, ("status", "conditions"), []), condition)

    def new_state(self, state: CheckState, message: str) -> AdmissionCheckReport:
        """Return a statement with another state.

        It keeps the time of the check, so that a wait counts from when the check became pending.
        """
        since = self.check.get("lastTransitionTime", "")
        return AdmissionCheckReport(self.check["name"], state, message, since=since)

    def new_message(self, message: str) -> AdmissionCheckReport:
        """Return a statement that changes only the message."""
        return replace(
            self.new_state(CheckState(self.state), message),
            pod_set_updates=tuple(self.check.get("podSetUpdates") or ()),
            requeue_after_seconds=self.check.get("requeueAfterSeconds"),
        )


def retries_of(check: JsonObject) -> int:
    """Return how often a check was retried."""
    return check.get("retryCount") or 0


def retry_after_seconds(config: JsonObject, retries: int) -> int:
    """Return the wait before the next attempt, after this number of retries."""
    strategy = value_at(config, ("spec", "retryStrategy"), {})
    base, most = strategy.get("backoffBaseSeconds", 60), strategy.get("backoffMaxSeconds", 1800)
    return min(base * 2 ** min(retries, _FASTEST_GROWTH), most)


def is_next_attempt_due(request: CheckRequest) -> bool:
    """Whether the request ended without nodes and a retry has followed, so that the next attempt is due.

    The check counts its retries. A check can also become pending again without a retry: an eviction has reset
    it, for example of a deactivated workload. Or it was listed again long after the end of the request,
    because its flavor was released and assigned again.
    """
    if request.state != CheckState.PENDING:
        return False
    ended = [of for of in (FAILED, BOOKING_EXPIRED) if request.holds(of)]
    return bool(ended) and (request.attempt <= request.retries or _ended_before(request, ended[0]))


def _ended_before(request: CheckRequest, condition: str) -> bool:
    condition_found = conditions.find_condition(
        value_at(request.request, ("status", "conditions"), []), condition
    )
    message = request.check.get("message", "")
    was_reset = message.startswith(CHECK_RESET_PREFIX) and not message.endswith(CheckState.RETRY)
    try:
        ended = parse_time((condition_found or {}).get("lastTransitionTime", ""))
        began = parse_time(request.check.get("lastTransitionTime", ""))
        return ended - began < (_CLOCKS_DIFFER if was_reset else -_CLOCKS_DIFFER)
    except (TypeError, ValueError):
        return False


def _ended(request: CheckRequest, condition: str, what: str) -> AdmissionCheckReport | None:
    limit = value_at(request.config, ("spec", "retryStrategy", "backoffLimitCount"), 3)
    message = request.message_of(condition)
    if request.attempt > limit:
        return request.new_state(CheckState.REJECTED, message)
    message = f"Retrying after {what}: {message}"
    if request.attempt <= request.retries:
        return request.new_message(message)
    wait = retry_after_seconds(request.config, request.retries)
    return replace(request.new_state(CheckState.RETRY, message), requeue_after_seconds=wait)


def _failed(request: CheckRequest) -> AdmissionCheckReport | None:
    return _ended(request, FAILED, "failure") if request.holds(FAILED) else None


def _revoked(request: CheckRequest) -> AdmissionCheckReport | None:
    """Reject the check if the autoscaler takes nodes back, even while the workload runs on them."""
    if not request.holds(CAPACITY_REVOKED):
        return None
    return request.new_state(CheckState.REJECTED, request.message_of(CAPACITY_REVOKED))


def _expired(request: CheckRequest) -> AdmissionCheckReport | None:
    if not request.holds(BOOKING_EXPIRED) or is_condition_true(request.workload, ConditionType.ADMITTED):
        return None
    return _ended(request, BOOKING_EXPIRED, "booking expired")


def _provisioned(request: CheckRequest) -> AdmissionCheckReport | None:
    """Set Ready, unless the webhook would reject the pod set updates; then wait for a corrected config."""
    if not request.holds(PROVISIONED) or request.state == CheckState.READY:
        return None
    if (problem := unusable_detail(request.request, request.config)) is not None:
        return request.new_state(CheckState.PENDING, problem)
    updates = pod_set_updates(request.workload, request.request, request.config)
    return replace(
        request.new_state(CheckState.READY, request.message_of(PROVISIONED)), pod_set_updates=updates
    )


def _under_way(request: CheckRequest) -> AdmissionCheckReport | None:
    """Set Pending with the progress of the request. A check in state Ready stays Ready until an eviction."""
    if request.state == CheckState.READY:
        return None
    waits = request.holds(ACCEPTED) and conditions.is_false(
        value_at(request.request, ("status", "conditions"), []), PROVISIONED
    )
    return request.new_state(CheckState.PENDING, request.message_of(PROVISIONED) if waits else "")


OUTCOMES: Final[tuple[Callable[[CheckRequest], AdmissionCheckReport | None], ...]] = (
    _failed,
    _revoked,
    _expired,
    _provisioned,
    _under_way,
)
"""The rows, in the order of evaluation."""


def check_statement(request: CheckRequest) -> AdmissionCheckReport | None:
    """Return the new state of the check that follows from its request; None if nothing changes."""
    if is_next_attempt_due(request):
        return None
    for row in OUTCOMES:
        stated = row(request)
        if stated is not None:
            return stated
    return None
