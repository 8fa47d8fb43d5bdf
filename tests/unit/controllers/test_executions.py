"""Admissions that end without their time being added up are found."""

from admitq.controllers.executions import Executions
from admitq.runtime.store import Key
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import FINISHED, Object, admitted, condition, workload

KEY = Key("ns", "job-j-1")


def ended(since: float = 40, **parts: object) -> Object:
    waits = condition("QuotaReserved", False, "Pending")
    return workload(waits, condition("Admitted", False, "NoReservation", since=since), **parts)


def unrecorded(*versions: Object) -> int:
    """What is unrecorded after these versions were seen, in seconds."""
    executions = Executions()
    found = [executions.unrecorded(KEY, version) for version in versions]
    return found[-1] // SECOND


def test_a3_admission_that_ended_without_being_added_up_is_unrecorded() -> None:
    assert unrecorded(admitted(since=10), ended()) == 30
    assert unrecorded(admitted(since=10, accumulatedPastExecutionTimeSeconds=7), ended()) == 0
    past = {"accumulatedPastExecutionTimeSeconds": 7}
    assert unrecorded(admitted(since=10, **past), ended(**past)) == 30


def test_a3_admission_that_was_added_up_is_recorded() -> None:
    added = ended(accumulatedPastExecutionTimeSeconds=30)
    assert unrecorded(admitted(since=10), added) == 0
    assert unrecorded(admitted(since=10), ended(), added, added) == 0


def test_a3_admission_that_was_never_seen_counts_nothing() -> None:
    assert unrecorded(ended()) == 0
    assert unrecorded(admitted(since=10), ended(metadata={"uid": "another"})) == 0
    assert unrecorded(admitted(since=10), admitted(FINISHED, since=10), ended()) == 0
    assert unrecorded(admitted(since=10), workload()) == 0


def test_a3_workload_that_is_gone_is_forgotten() -> None:
    executions = Executions()
    executions.unrecorded(KEY, admitted(since=10))
    executions.forget(KEY)
    assert executions.unrecorded(KEY, ended()) == 0
