"""The queue-order timestamp of a Workload."""

from typing import Any

import pytest

from admitq.core.model import SECOND
from admitq.translate.queue_order import read_queue_order_timestamp
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_workload
from admitq_api import conditions
from tests.unit.translate.builders import CREATED, LATER, NAMES, condition, workload


@pytest.mark.parametrize(
    ("evicted", "is_enabled", "is_moved"),
    [
        (condition("Evicted", reason="PodsReadyTimeout", at="2026-03-01T11:00:00Z"), True, True),
        (condition("Evicted", reason="PodsReadyTimeout", at="2026-03-01T11:00:00Z"), False, False),
        (condition("Evicted", reason="AdmissionCheck", at="2026-03-01T11:00:00Z"), False, True),
        (condition("Evicted", reason="Preempted", at="2026-03-01T11:00:00Z"), True, False),
        (condition("Evicted", "False", reason="AdmissionCheck", at="2026-03-01T11:00:00Z"), True, False),
    ],
)
def test_eviction_moves_queue_order_timestamp_depending_on_reason(
    evicted: dict[str, Any], is_enabled: bool, is_moved: bool
) -> None:
    obj = workload(status={"conditions": [evicted]})
    queued_at = read_workload(obj, NAMES, ReadOptions(timeout_moves_to_back=is_enabled)).queued_at
    assert queued_at - conditions.parse_time(CREATED) == (3600 * SECOND if is_moved else 0)


@pytest.mark.parametrize(
    ("preempted", "is_enabled", "delay"),
    [
        (
            condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=LATER),
            True,
            3600 * SECOND + 10**6,
        ),
        (condition("Preempted", reason="InCohortReclaimWhileBorrowing", at=LATER), False, 0),
        (condition("Preempted", reason="InClusterQueue", at=LATER), True, 0),
        (condition("Preempted", "False", reason="InCohortReclaimWhileBorrowing", at=LATER), True, 0),
    ],
)
def test_reclaim_while_borrowing_moves_queue_order_timestamp_if_enabled(
    preempted: dict[str, Any], is_enabled: bool, delay: int
) -> None:
    obj = workload(status={"conditions": [condition("Evicted", reason="Preempted", at=LATER), preempted]})
    at = read_queue_order_timestamp(obj, ReadOptions(reclaim_moves_to_back=is_enabled))
    assert at - conditions.parse_time(CREATED) == delay
