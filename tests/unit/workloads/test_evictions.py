"""The table of evictions agrees with the phases of the lifecycle and with itself."""

from admitq.core.lifecycle import EDGES, Phase
from admitq.workloads.evictions import EVICTIONS, RequeueTime, reasons_requeued
from admitq_api.conditions import Reason


def test_eviction_reasons_are_those_of_lifecycle_phases() -> None:
    causes = {str(cause) for (_, to), listed in EDGES.items() if to is Phase.EVICTING for cause in listed}
    assert causes == {str(eviction.reason) for eviction in EVICTIONS}


def test_event_reasons_of_evictions_are_unique() -> None:
    assert len({eviction.event_reason for eviction in EVICTIONS}) == len(EVICTIONS)


def test_immediately_requeued_workload_keeps_its_reason() -> None:
    at_once = [eviction for eviction in EVICTIONS if eviction.requeue_time is RequeueTime.AT_ONCE]
    assert [eviction.requeued_reason for eviction in at_once] == [eviction.reason for eviction in at_once]


def test_deactivated_workloads_are_requeued_only_when_reactivated() -> None:
    reasons = reasons_requeued(RequeueTime.WHEN_REACTIVATED)
    deactivations = [eviction for eviction in EVICTIONS if eviction.reason is Reason.DEACTIVATED]
    assert reasons == {eviction.condition_reason for eviction in deactivations}
    assert "DeactivatedDueToRequeuingLimitExceeded" in reasons
