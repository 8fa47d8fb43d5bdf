from typing import Any

import pytest

from admitq.asking.run_records import read_group, read_run, read_run_time_facts, read_training_estimate
from admitq.core.asking.run_times import Run
from admitq.core.model import SECOND
from admitq_api.conditions import parse_time


def condition(type: str, since: str, status: str = "True", reason: str = "") -> dict[str, str]:  # noqa: A002
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "lastTransitionTime": f"2026-11-27T{since}Z",
    }


def workload(
    *conditions: dict[str, str],
    owner: str = "train-42",
    labels: dict[str, str] | None = None,
    limit: int | None = None,
    past: int | None = None,
    deadlines: tuple[int | None, ...] = (),
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "job-train-42-abcde",
            "namespace": "team",
            "labels": labels or {},
            "ownerReferences": [{"kind": "Job", "name": owner}] if owner else [],
        },
        "spec": {
            "maximumExecutionTimeSeconds": limit,
            "podSets": [{"template": {"spec": {"activeDeadlineSeconds": each}}} for each in deadlines],
        },
        "status": {
            "admission": {"clusterQueue": "queue"},
            "accumulatedPastExecutionTimeSeconds": past,
            "conditions": list(conditions),
        },
    }


ADMITTED = condition("Admitted", "10:00:00")
FINISHED = condition("Finished", "10:05:00")


def test_run_of_finished_workload_lasts_from_its_admission_to_its_end() -> None:
    assert read_run(workload(ADMITTED, FINISHED)) == Run("team/Job/train", "queue", 300 * SECOND)


def test_run_includes_earlier_admissions() -> None:
    run = read_run(workload(ADMITTED, FINISHED, past=60))
    assert run is not None
    assert run.duration == 360 * SECOND


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        [ADMITTED],
        [FINISHED],
        [condition("Admitted", "10:00:00", "False"), FINISHED],
        [condition("Admitted", "10:06:00"), FINISHED],
    ],
    ids=["pending", "running", "never admitted", "admission ended", "clocks differ"],
)
def test_workload_without_known_end_has_no_run(conditions: list[dict[str, str]]) -> None:
    assert read_run(workload(*conditions)) is None


@pytest.mark.parametrize(("limit", "censored"), [(300, True), (301, False), (None, False)])
def test_run_that_a_limit_ended_is_censored(limit: int | None, censored: bool) -> None:
    run = read_run(workload(ADMITTED, FINISHED, deadlines=(limit,)))
    assert run is not None
    assert run.is_censored is censored


def test_workload_that_was_deactivated_at_its_limit_is_a_censored_run() -> None:
    evicted = condition("Evicted", "10:05:00", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    assert read_run(workload(evicted, limit=120)) == Run("team/Job/train", "queue", 120 * SECOND, True)
    assert read_run(workload(evicted)) is None


@pytest.mark.parametrize(
    ("owner", "prefix"),
    [
        ("train-42", "train"),
        ("train-2026-11-27", "train"),
        ("train-x7k2p", "train"),
        ("nightly-29301945", "nightly"),
        ("resnet50", "resnet50"),
        ("eval-model", "eval-model"),
        ("sweep-3f2a9b1c", "sweep"),
        ("7", "7"),
    ],
)
def test_group_is_the_name_of_the_owner_without_number_or_generated_suffix(owner: str, prefix: str) -> None:
    assert read_group(workload(owner=owner)) == f"team/Job/{prefix}"


def test_label_of_the_application_comes_before_the_name() -> None:
    labels = {"app.kubernetes.io/name": "resnet"}
    assert read_group(workload(labels=labels)) == "team/Job/app.kubernetes.io/name=resnet"


def test_workload_without_owner_and_label_has_no_group() -> None:
    assert read_group(workload(owner="")) == ""


@pytest.mark.parametrize(
    ("limit", "deadlines", "past", "expected"),
    [
        (None, (), None, None),
        (100, (), None, 100),
        (100, (), 30, 70),
        (100, (), 130, 0),
        (None, (50, None, 40), None, 40),
        (30, (50, 40), None, 30),
    ],
)
def test_limit_is_the_smallest_that_remains(
    limit: int | None, deadlines: tuple[int | None, ...], past: int | None, expected: int | None
) -> None:
    facts = read_run_time_facts(workload(limit=limit, deadlines=deadlines, past=past))
    assert facts == ("team/Job/train", None if expected is None else expected * SECOND)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"estimatedRemainingSeconds": 90, "lastUpdatedTime": "2026-11-27T10:00:00Z"}, 60),
        ({"estimatedRemainingSeconds": 20, "lastUpdatedTime": "2026-11-27T10:00:00Z"}, 0),
        ({"estimatedRemainingSeconds": 90}, 90),
        ({"estimatedRemainingSeconds": -1}, None),
        ({"estimatedRemainingSeconds": "soon"}, None),
        ({"progressPercentage": 5}, None),
        (None, None),
    ],
)
def test_estimate_of_a_train_job_shrinks_after_its_update(
    status: dict[str, Any] | None, expected: int | None
) -> None:
    now = parse_time("2026-11-27T10:00:30Z")
    estimate = read_training_estimate({"status": {"trainerStatus": status}}, now)
    assert estimate == (None if expected is None else expected * SECOND)
