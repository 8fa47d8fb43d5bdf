"""Estimates of run times while Workloads and TrainJobs are observed."""

from typing import Any

import pytest

from admitq.asking.run_time_estimates import RunTimeRecords, run_time_estimates
from admitq.core.asking.run_times import WHOLE, RunTimeSource
from admitq.core.model import SECOND, ObjectKey, Workload

NOW = 1_700_000_000 * SECOND
WAITS = Workload(ObjectKey("ns", "waits"), "uid-waits", "lq", queued_at=NOW, pod_sets=())


def stored(name: str, owner: str = "train-1", **conditions: str) -> dict[str, Any]:
    """Return a Workload with conditions that became true at these times of the hour."""
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "ownerReferences": [{"kind": "Job", "name": owner, "uid": f"uid-{owner}"}],
        },
        "spec": {"podSets": []},
        "status": {
            "admission": {"clusterQueue": "cq"},
            "conditions": [
                {"type": condition, "status": "True", "lastTransitionTime": f"2023-11-14T{time}:00Z"}
                for condition, time in conditions.items()
            ],
        },
    }


def finished(number: int) -> dict[str, Any]:
    return stored(f"w-{number}", f"train-{number}", Admitted="10:00", Finished="10:05")


def remaining(records: RunTimeRecords) -> tuple[RunTimeSource, int | None]:
    """Return the source of the median remaining run time of the pending workload, and its seconds."""
    estimate = records.estimates(lambda _: "cq", NOW)(WAITS)
    median = estimate.remaining_at(WHOLE // 2)
    return estimate.source, None if median is None else median // SECOND


def train_job(remaining_seconds: int | None) -> dict[str, Any]:
    status = (
        {}
        if remaining_seconds is None
        else {"trainerStatus": {"estimatedRemainingSeconds": remaining_seconds}}
    )
    return {"kind": "TrainJob", "metadata": {"uid": "uid-train-9"}, "status": status}


@pytest.fixture
def records() -> RunTimeRecords:
    """Three finished Workloads, and one that waits."""
    records = RunTimeRecords()
    records.observe_workload(stored("waits", "train-9"))
    for number in range(3):
        records.observe_workload(finished(number))
    return records


def test_finished_workloads_of_the_same_group_are_the_history(records: RunTimeRecords) -> None:
    assert remaining(records) == (RunTimeSource.GROUP, 300)


def test_runs_stay_after_their_workloads_were_deleted(records: RunTimeRecords) -> None:
    for number in range(3):
        records.forget_workload(ObjectKey("ns", f"w-{number}"))
    assert remaining(records) == (RunTimeSource.GROUP, 300)


def test_repeated_observation_of_a_finished_workload_counts_once() -> None:
    records = RunTimeRecords()
    for _ in range(5):
        records.observe_workload(finished(1))
    assert records.estimates(lambda _: "cq", NOW)(WAITS).samples == 1


def test_running_workloads_count_as_runs_that_have_not_ended(records: RunTimeRecords) -> None:
    records.observe_workload(stored("runs", "train-4", Admitted="11:00"))
    assert records.estimates(lambda _: "cq", NOW)(WAITS).samples == 4


def test_running_workloads_alone_are_no_history() -> None:
    records = RunTimeRecords()
    records.observe_workload(stored("runs", Admitted="11:00"))
    assert remaining(records) == (RunTimeSource.UNKNOWN, None)


def test_deleted_and_unreadable_workloads_are_not_known_any_more(records: RunTimeRecords) -> None:
    records.observe_workload(stored("runs", "train-4", Admitted="11:00"))
    records.observe_workload({**stored("runs", "train-4"), "spec": {"podSets": 7}})
    records.observe_workload(stored("runs-2", "train-4", Admitted="11:00"))
    records.forget_workload(ObjectKey("ns", "runs-2"))
    assert records.estimates(lambda _: "cq", NOW)(WAITS).samples == 3
    records.forget_workload(WAITS.key)
    assert remaining(records) == (RunTimeSource.QUEUE, 300)


def test_estimate_of_a_train_job_counts_before_the_history(records: RunTimeRecords) -> None:
    records.observe_train_job(train_job(42))
    assert remaining(records) == (RunTimeSource.OWN_ESTIMATE, 42)
    records.observe_train_job(train_job(None))
    assert remaining(records) == (RunTimeSource.GROUP, 300)
    records.observe_train_job(train_job(42))
    records.forget_train_job(train_job(42))
    assert remaining(records) == (RunTimeSource.GROUP, 300)


def test_objects_of_files_give_the_same_estimates() -> None:
    local_queue = {"metadata": {"namespace": "ns", "name": "lq"}, "spec": {"clusterQueue": "cq"}}
    workloads = [stored("waits", "train-9"), *map(finished, range(3))]
    known = run_time_estimates(workloads, [local_queue], NOW, jobs=[{"kind": "Job"}])(WAITS)
    assert (known.source, known.samples) == (RunTimeSource.GROUP, 3)
    own = run_time_estimates(workloads, [local_queue], NOW, jobs=[train_job(42)])(WAITS)
    assert own.remaining == 42 * SECOND
