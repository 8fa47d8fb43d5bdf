"""The table of evictions, held against what else is said of them."""

from admitq.core.lifecycle import EDGES, Phase
from admitq.workloads.evictions import EVICTIONS, Returns, returning
from admitq_api.conditions import Reason


def test_the_phases_know_the_same_reasons() -> None:
    causes = {str(cause) for (_, to), listed in EDGES.items() if to is Phase.EVICTING for cause in listed}
    assert causes == {str(one.reason) for one in EVICTIONS}


def test_no_way_is_listed_twice() -> None:
    assert len({one.event for one in EVICTIONS}) == len(EVICTIONS)


def test_immediately_requeued_workload_keeps_its_reason() -> None:
    at_once = [one for one in EVICTIONS if one.returns is Returns.AT_ONCE]
    assert [one.returns_with for one in at_once] == [one.reason for one in at_once]


def test_deactivations_return_by_hand_whatever_their_cause() -> None:
    by_hand = returning(Returns.WHEN_REACTIVATED)
    assert by_hand == {one.told for one in EVICTIONS if one.reason is Reason.DEACTIVATED}
    assert "DeactivatedDueToRequeuingLimitExceeded" in by_hand
