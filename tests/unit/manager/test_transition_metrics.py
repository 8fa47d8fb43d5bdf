"""Each transition of a Workload is counted in the metrics once, whichever program wrote it."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.manager.transition_metrics import WorkloadVersions, count_transitions
from tests.unit.controllers.builders import FINISHED, admitted, condition, instant, reserved, workload

PENDING = workload(condition("QuotaReserved", False, "Pending"))
PREEMPTED = condition("Evicted", True, "Preempted", since=5)
REQUEUED = condition("Requeued", True, "Preempted", since=4)


class FakeMeasures:
    """Keeps the calls of measures."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def _count(self, name: str, *values: Any) -> None:
        self.calls.append((name, *values))

    def quota_reserved(self, _workload: Mapping[str, Any], cluster_queue: str, since_queued: float) -> None:
        self._count("quota_reserved", cluster_queue, since_queued)

    def admitted(
        self, _workload: Mapping[str, Any], cluster_queue: str, queued: float, reserved: float
    ) -> None:
        self._count("admitted", cluster_queue, queued, reserved)

    def pods_became_ready(
        self, _workload: Mapping[str, Any], since_queued: float, since_admitted: float
    ) -> None:
        self._count("pods_became_ready", since_queued, since_admitted)

    def evicted(self, _workload: Mapping[str, Any], reason: str, cause: str, *, first: bool) -> None:
        self._count("evicted", reason, cause, first)

    def quota_released(self, _workload: Mapping[str, Any], reason: str, since_evicted: float) -> None:
        self._count("quota_released", reason, since_evicted)

    def finished(self, _workload: Mapping[str, Any], ran: float | None) -> None:
        self._count("finished", ran)

    def slice_replaced(self, _workload: Mapping[str, Any]) -> None:
        self._count("slice_replaced")


def count_calls(
    former: dict[str, Any], latter: dict[str, Any] | None, now: float = 10
) -> list[tuple[Any, ...]]:
    measures = FakeMeasures()
    count_transitions(WorkloadVersions(former, latter, instant(now)), measures)
    return measures.calls


@pytest.mark.parametrize(
    ("former", "latter", "expected"),
    [
        (PENDING, reserved(), [("quota_reserved", "cq", 10)]),
        (workload(), reserved(), [("quota_reserved", "cq", 10)]),
        (PENDING, reserved(REQUEUED), [("quota_reserved", "cq", 6)]),
        (PENDING, admitted(REQUEUED, since=8), [("quota_reserved", "cq", 6), ("admitted", "cq", 6, 0)]),
        (reserved(), admitted(since=8), [("admitted", "cq", 10, 10)]),
        (
            admitted(since=8),
            admitted(condition("PodsReady", True, "Started"), since=8),
            [("pods_became_ready", 10, 2)],
        ),
        (
            admitted(condition("PodsReady", False, "WaitForRecovery")),
            admitted(condition("PodsReady", True, "Recovered")),
            [],
        ),
        (workload(), workload(condition("PodsReady", True, "Started")), []),
        (admitted(), admitted(PREEMPTED), [("evicted", "Preempted", "", True)]),
        (admitted(PREEMPTED), PENDING, []),
        (admitted(PREEMPTED), workload(PREEMPTED), [("quota_released", "Preempted", 5)]),
        (admitted(PREEMPTED), None, [("quota_released", "Preempted", 5)]),
        (admitted(), None, []),
        (workload(PREEMPTED), None, []),
        (workload(PREEMPTED), workload(PREEMPTED, FINISHED), [("finished", None)]),
        (admitted(since=3), admitted(FINISHED, since=3), [("finished", 7)]),
        (
            admitted(PREEMPTED, since=3),
            admitted(PREEMPTED, FINISHED, since=3),
            [("quota_released", "Preempted", 5), ("finished", 7)],
        ),
        (admitted(PREEMPTED, FINISHED), None, []),
        (
            reserved(condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=5)),
            workload(condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=5)),
            [("quota_released", "Deactivated", 5)],
        ),
        (
            admitted(),
            workload(PREEMPTED),
            [("evicted", "Preempted", "", True), ("quota_released", "Preempted", 5)],
        ),
        (
            admitted(),
            admitted(condition("Finished", True, "WorkloadSliceReplaced")),
            [("finished", 10), ("slice_replaced",)],
        ),
        (workload(), workload(condition("Finished", True, "WorkloadSliceReplaced")), [("finished", None)]),
    ],
)
def test_a3_transition_is_counted_by_its_measures(
    former: dict[str, Any], latter: dict[str, Any] | None, expected: list[Any]
) -> None:
    assert count_calls(former, latter) == expected


@pytest.mark.parametrize("obj", [PENDING, reserved(), admitted(PREEMPTED), admitted(FINISHED)])
def test_a3_version_without_transition_is_not_counted(obj: dict[str, Any]) -> None:
    assert count_calls(obj, obj) == []


@pytest.mark.parametrize(
    ("former", "reason", "statistics", "expected"),
    [
        ([], "Preempted", {}, ("Preempted", "", True)),
        ([], "Preempted", {"Preempted": (1, 2)}, ("Preempted", "", False)),
        ([], "Preempted", {"Preempted": (0, 1)}, ("Preempted", "", True)),
        ([], "Preempted", {"Preempted": (1, 1)}, ("Preempted", "", False)),
        ([], "DeactivatedDueToAdmissionCheck", {}, ("Deactivated", "AdmissionCheck", True)),
        ([], "Deactivated", {}, ("Deactivated", "", True)),
        ([], "PodsReadyTimeout", {}, ("PodsReadyTimeout", "WaitForStart", True)),
        (
            [condition("PodsReady", False, "WaitForRecovery")],
            "PodsReadyTimeout",
            {},
            ("PodsReadyTimeout", "WaitForRecovery", True),
        ),
    ],
)
def test_a3_eviction_is_first_of_its_cause_according_to_scheduling_stats(
    former: list[dict[str, Any]],
    reason: str,
    statistics: dict[str, tuple[int, int]],
    expected: tuple[Any, ...],
) -> None:
    def eviction_statistics(version: int) -> dict[str, Any]:
        evictions = [{"reason": reason, "count": counts[version]} for reason, counts in statistics.items()]
        return {"schedulingStats": {"evictions": [item for item in evictions if item["count"]]}}

    old = admitted(*former, **eviction_statistics(0))
    new = admitted(*former, condition("Evicted", True, reason), **eviction_statistics(1))
    assert count_calls(old, new) == [("evicted", *expected)]
