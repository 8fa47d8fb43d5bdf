from typing import Any

import pytest

from admitq.integrations.base import JobOutcome
from admitq.integrations.kinds.jobset import JOBSET
from admitq_api.labels import names_for

NAMES = names_for()


def jobset(*replicated: Any, status: Any = None) -> Any:
    return {"metadata": {"name": "s"}, "spec": {"replicatedJobs": list(replicated)}, "status": status}


def entry(name: Any = "w", replicas: Any = 1, **job_spec: Any) -> Any:
    return {"name": name, "replicas": replicas, "template": {"spec": job_spec}}


def job_status(**counts: Any) -> Any:
    return {"name": "w", **counts}


@pytest.mark.parametrize(
    ("replicated", "count"),
    [
        (entry(), 1),
        (entry(replicas=3, parallelism=4), 12),
        (entry(replicas=2, parallelism=4, completions=3), 6),
        (entry(replicas=None, parallelism=2), 2),
        (entry(replicas=0, parallelism=2), 0),
        (entry(replicas=-1, parallelism=2), 0),
        (entry(replicas="2", parallelism=True), 1),
        ({"name": "w"}, 1),
    ],
)
def test_jobset_podset_count_is_pods_of_all_replicas(replicated: Any, count: int) -> None:
    path = ("spec", "replicatedJobs", 0, "template", "spec", "template")
    [pod_set] = JOBSET.list_pod_sets(jobset(replicated), NAMES)
    assert (pod_set.name, pod_set.count, pod_set.template_path) == ("w", count, path)


def test_every_replicated_job_is_a_podset_with_its_template_path() -> None:
    pod_sets = JOBSET.list_pod_sets(jobset(entry("Driver"), None, entry("workers", 2)), NAMES)
    assert [(pod_set.name, pod_set.count, pod_set.template_path[2]) for pod_set in pod_sets] == [
        ("driver", 1, 0),
        ("workers", 2, 2),
    ]


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "Completed", "status": "False"}], None),
        ([{"type": "Completed", "status": "True", "message": "all done"}], JobOutcome(True, "all done")),
        ([{"type": "Failed", "status": "True", "message": "one failed"}], JobOutcome(False, "one failed")),
        ([{"type": "Failed", "status": "True"}], JobOutcome(False, "")),
    ],
)
def test_jobset_outcome_follows_only_terminal_conditions(conditions: Any, outcome: Any) -> None:
    assert JOBSET.find_outcome(jobset(status={"conditions": conditions})) == outcome


@pytest.mark.parametrize(
    ("statuses", "active", "ready"),
    [
        ([], False, False),
        ([job_status(active=2)], True, False),
        ([job_status(active=2, ready=1)], True, False),
        ([job_status(active=2, ready=2)], True, True),
        ([job_status(active=1, ready=1, succeeded=1)], True, True),
        ([job_status(succeeded=2)], False, True),
        ([job_status(suspended=2)], False, False),
    ],
)
def test_jobset_is_active_with_pods_and_ready_with_all_jobs(statuses: Any, active: bool, ready: bool) -> None:
    example = jobset(entry(replicas=2), status={"replicatedJobsStatus": statuses})
    assert (JOBSET.is_active(example), JOBSET.are_pods_ready(example)) == (active, ready)


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [
        ([], {}),
        ([job_status(succeeded=0)], {}),
        ([job_status(succeeded=1)], {"w": 4}),
        ([job_status(succeeded=2), {"name": "gone", "succeeded": 1}], {"w": 8}),
    ],
)
def test_jobset_pods_of_succeeded_jobs_are_reclaimable(statuses: Any, counts: Any) -> None:
    example = jobset(entry(replicas=2, parallelism=4), status={"replicatedJobsStatus": statuses})
    assert JOBSET.scaling.count_reclaimable_pods(example) == counts


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        ({}, {"w": 4}),
        ({"maxRestarts": 0, "rules": [{"action": "RestartJobSet"}, {"action": "FailJobSet"}]}, {"w": 4}),
        ({"maxRestarts": 1}, {}),
        ({"rules": [{"action": "FailJobSet"}, {"action": "RestartJobSetAndIgnoreMaxRestarts"}]}, {}),
    ],
)
def test_jobset_that_can_restart_has_no_reclaimable_pods(policy: Any, counts: Any) -> None:
    status = {"replicatedJobsStatus": [job_status(succeeded=1)], "restartsCountTowardsMax": 1}
    example = jobset(entry(replicas=2, parallelism=4), status=status)
    example["spec"]["failurePolicy"] = policy
    assert JOBSET.scaling.count_reclaimable_pods(example) == counts


@pytest.mark.parametrize(
    "malformed",
    [
        {},
        {"spec": None, "status": None},
        {"spec": {"replicatedJobs": None}, "status": {"conditions": None, "replicatedJobsStatus": None}},
        {"spec": {"replicatedJobs": {"a": 1}}, "status": {"conditions": "x", "replicatedJobsStatus": {}}},
        {"spec": {"replicatedJobs": [1, "x"]}, "status": {"conditions": [1], "replicatedJobsStatus": [None]}},
    ],
)
def test_malformed_jobset_has_no_podsets_and_no_outcome(malformed: Any) -> None:
    assert JOBSET.list_pod_sets(malformed, NAMES) == []
    assert JOBSET.find_outcome(malformed) is None
    assert not JOBSET.is_active(malformed)
    assert JOBSET.scaling.count_reclaimable_pods(malformed) == {}
    assert JOBSET.are_pods_ready(malformed)
