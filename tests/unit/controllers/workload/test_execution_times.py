"""Admissions that ended before their execution time was added to the status."""

from itertools import count
from typing import Any

from admitq.controllers.workload.execution_times import ExecutionTimes
from admitq.runtime.store import Key, Store
from admitq_api.conditions import SECOND, create_deactivation_reason
from tests.unit.controllers.builders import FINISHED, KINDS, admitted, condition, instant, workload

KEY = Key("ns", "job-j-1")
TIME_EXCEEDED = condition("Evicted", True, create_deactivation_reason("MaximumExecutionTimeExceeded"))


def ended(*conditions: dict[str, Any], since: float = 40, **parts: object) -> dict[str, Any]:
    pending = condition("QuotaReserved", False, "Pending")
    return workload(pending, condition("Admitted", False, "NoReservation", since=since), *conditions, **parts)


def unrecorded(*versions: dict[str, Any] | None, now: float = 100) -> int:
    """Return the unrecorded seconds after these versions were stored; None is a deletion."""
    executions = ExecutionTimes(lambda: instant(now))
    store = Store(KINDS.workloads)
    store.subscribe(executions.observe)
    for number, version in zip(count(1), versions, strict=False):
        if version is None:
            store.remove(versions[number - 2] or {})
        else:
            store.upsert({**version, "metadata": {**version["metadata"], "resourceVersion": str(number)}})
    return executions.unrecorded(KEY) // SECOND


def test_a3_admission_that_ended_without_being_added_up_is_unrecorded() -> None:
    assert unrecorded(admitted(since=10), ended()) == 30
    assert unrecorded(admitted(since=10, accumulatedPastExecutionTimeSeconds=7), ended()) == 0
    past = {"accumulatedPastExecutionTimeSeconds": 7}
    assert unrecorded(admitted(since=10, **past), ended(**past)) == 30


def test_a3_admission_that_ended_stays_unrecorded_though_another_follows_at_once() -> None:
    assert unrecorded(admitted(since=10), ended(), admitted(since=41)) == 30
    assert unrecorded(admitted(since=10), admitted(since=40)) == 30
    assert unrecorded(admitted(since=10), ended(), admitted(since=41), ended(since=50)) == 39


def test_a3_admission_with_removed_condition_ended_when_observed() -> None:
    assert unrecorded(admitted(since=10), workload()) == 90


def test_a3_admission_that_was_added_up_is_recorded() -> None:
    added = ended(accumulatedPastExecutionTimeSeconds=30)
    assert unrecorded(admitted(since=10), added) == 0
    assert unrecorded(admitted(since=10), ended(), added, added) == 0


def test_a3_admission_that_was_never_observed_counts_nothing() -> None:
    assert unrecorded(ended()) == 0
    assert unrecorded(admitted(since=10), ended(metadata={"uid": "another"})) == 0
    assert unrecorded(admitted(since=10), None, ended(metadata={"uid": "another"})) == 0


def test_a3_time_of_a_workload_that_finished_or_used_it_up_does_not_count() -> None:
    assert unrecorded(admitted(since=10), admitted(FINISHED, since=10), ended()) == 0
    assert unrecorded(admitted(since=10), ended(), ended(FINISHED)) == 0
    assert unrecorded(admitted(since=10), ended(TIME_EXCEEDED)) == 0
