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


def standing(**counts: Any) -> Any:
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
def test_a_podset_has_the_pods_of_all_replicas(replicated: Any, count: int) -> None:
    path = ("spec", "replicatedJobs", 0, "template", "spec", "template")
    [only] = JOBSET.list_pod_sets(jobset(replicated), NAMES)
    assert (only.name, only.count, only.template_path) == ("w", count, path)


def test_every_replicated_job_is_a_podset_at_its_own_place() -> None:
    one = jobset(entry("Driver"), None, entry("workers", 2))
    found = [
        (pod_set.name, pod_set.count, pod_set.template_path[2])
        for pod_set in JOBSET.list_pod_sets(one, NAMES)
    ]
    assert found == [("driver", 1, 0), ("workers", 2, 2)]


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ([], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "Completed", "status": "False"}], None),
        ([{"type": "Completed", "status": "True", "message": "all done"}], JobOutcome(True, "all done")),
        ([{"type": "Failed", "status": "True", "message": "one failed"}], JobOutcome(False, "one failed")),
        ([{"type": "Failed", "status": "True"}], JobOutcome(False, "")),
    ],
)
def test_only_the_terminal_conditions_finish_a_jobset(conditions: Any, finished: Any) -> None:
    assert JOBSET.find_outcome(jobset(status={"conditions": conditions})) == finished


@pytest.mark.parametrize(
    ("statuses", "active", "ready"),
    [
        ([], False, False),
        ([standing(active=2)], True, False),
        ([standing(active=2, ready=1)], True, False),
        ([standing(active=2, ready=2)], True, True),
        ([standing(active=1, ready=1, succeeded=1)], True, True),
        ([standing(succeeded=2)], False, True),
        ([standing(suspended=2)], False, False),
    ],
)
def test_it_is_active_with_pods_and_ready_with_all_of_them(statuses: Any, active: bool, ready: bool) -> None:
    one = jobset(entry(replicas=2), status={"replicatedJobsStatus": statuses})
    assert (JOBSET.is_active(one), JOBSET.are_pods_ready(one)) == (active, ready)


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [
        ([], {}),
        ([standing(succeeded=0)], {}),
        ([standing(succeeded=1)], {"w": 4}),
        ([standing(succeeded=2), {"name": "gone", "succeeded": 1}], {"w": 8}),
    ],
)
def test_pods_of_jobs_that_succeeded_need_no_successor(statuses: Any, counts: Any) -> None:
    one = jobset(entry(replicas=2, parallelism=4), status={"replicatedJobsStatus": statuses})
    assert JOBSET.scaling.count_reclaimable_pods(one) == counts


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"spec": None, "status": None},
        {"spec": {"replicatedJobs": None}, "status": {"conditions": None, "replicatedJobsStatus": None}},
        {"spec": {"replicatedJobs": {"a": 1}}, "status": {"conditions": "x", "replicatedJobsStatus": {}}},
        {"spec": {"replicatedJobs": [1, "x"]}, "status": {"conditions": [1], "replicatedJobsStatus": [None]}},
    ],
)
def test_odd_shapes_are_jobsets_of_nothing(odd: Any) -> None:
    assert JOBSET.list_pod_sets(odd, NAMES) == []
    assert JOBSET.find_outcome(odd) is None
    assert not JOBSET.is_active(odd)
    assert JOBSET.scaling.count_reclaimable_pods(odd) == {}
    assert JOBSET.are_pods_ready(odd)
