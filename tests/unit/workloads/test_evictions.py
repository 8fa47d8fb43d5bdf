"""The table of evictions, held against what else is said of them."""

from admitq.core.lifecycle import EDGES, Phase
from admitq.workloads.evictions import EVICTIONS, RequeueTime, reasons_requeued
from admitq_api.conditions import Reason


def test_the_phases_know_the_same_reasons() -> None:
    causes = {str(cause) for (_, to), listed in EDGES.items() if to is Phase.EVICTING for cause in listed}
    assert causes == {str(one.reason) for one in EVICTIONS}


def test_no_way_is_listed_twice() -> None:
    assert len({one.event_reason for one in EVICTIONS}) == len(EVICTIONS)


def test_immediately_requeued_workload_keeps_its_reason() -> None:
    at_once = [one for one in EVICTIONS if one.requeue_time is RequeueTime.AT_ONCE]
    assert [one.requeued_reason for one in at_once] == [one.reason for one in at_once]


def test_deactivations_return_by_hand_whatever_their_cause() -> None:
    by_hand = reasons_requeued(RequeueTime.WHEN_REACTIVATED)
    assert by_hand == {one.condition_reason for one in EVICTIONS if one.reason is Reason.DEACTIVATED}
    assert "DeactivatedDueToRequeuingLimitExceeded" in by_hand
