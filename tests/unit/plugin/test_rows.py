"""How rows of lists show objects."""

from typing import Any

import pytest

from admitq.plugin import rows
from admitq.plugin.rows import View, build_rows, execution_seconds, status_of
from admitq_api.conditions import SECOND

NOW = 100 * SECOND


def condition(type_: str, status: str, at: int, reason: str = "R") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "lastTransitionTime": f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z",
    }


def workload(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": "job-train",
            "namespace": "n",
            "creationTimestamp": "1970-01-01T00:00:10Z",
            "ownerReferences": [owner],
        },
        "spec": {"queueName": "lq", "priority": 5},
        "status": {"conditions": list(conditions), **status},
    }


RESERVED = condition("QuotaReserved", "True", 30)
ADMITTED = condition("Admitted", "True", 40)
FINISHED = condition("Finished", "True", 70)


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ((), "pending"),
        ((condition("QuotaReserved", "False", 30),), "pending"),
        ((RESERVED,), "quotareserved"),
        ((RESERVED, ADMITTED), "admitted"),
        ((RESERVED, ADMITTED, FINISHED), "finished"),
    ],
)
def test_status_is_that_of_the_last_step(conditions: tuple[dict[str, Any], ...], status: str) -> None:
    assert status_of(workload(*conditions)) == status


@pytest.mark.parametrize(
    ("conditions", "past", "seconds"),
    [
        ((), None, None),
        ((), 7, 7),
        ((ADMITTED,), None, 60),
        ((ADMITTED,), 7, 67),
        ((ADMITTED, FINISHED), None, 30),
        ((ADMITTED, condition("Finished", "True", 30)), None, 0),
    ],
)
def test_execution_time_counts_all_admissions_until_the_end(
    conditions: tuple[dict[str, Any], ...], past: int | None, seconds: int | None
) -> None:
    one = workload(*conditions, accumulatedPastExecutionTimeSeconds=past)
    assert execution_seconds(one, NOW) == seconds


def row_of(columns: Any, obj: dict[str, Any], view: View = View(NOW), *, wide: bool = False) -> list[str]:  # noqa: B008
    titles, (row,) = build_rows(columns, [obj], view, wide=wide)
    assert len(titles) == len(row)
    return row


def test_row_of_pending_workload_has_the_cluster_queue_of_its_local_queue() -> None:
    view = View(NOW, {("n", "lq"): "cq"})
    one = workload(condition("QuotaReserved", "False", 30, "WaitingForQuota"))
    assert row_of(rows.WORKLOADS, one, view, wide=True) == [
        "job-train", "job.batch", "train", "lq", "cq", "PENDING", "", "90s", "5", "WaitingForQuota",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("positions", "shown"), [({("n", "job-train"): 3}, ["3"]), ({("m", "job-train"): 3}, [""]), (None, [])]
)
def test_position_is_shown_where_the_cluster_serves_positions(
    positions: dict[tuple[str, str], int] | None, shown: list[str]
) -> None:
    titles, (row,) = build_rows(rows.WORKLOADS, [workload()], View(NOW, positions=positions))
    assert [cell for title, cell in zip(titles, row, strict=True) if title == "POSITION IN QUEUE"] == shown


def test_row_of_admitted_workload_has_the_cluster_queue_that_admitted_it() -> None:
    one = workload(RESERVED, ADMITTED, admission={"clusterQueue": "other"})
    assert row_of(rows.WORKLOADS, one, View(NOW, {("n", "lq"): "cq"}))[4:7] == ["other", "ADMITTED", "60s"]


def test_row_of_pod_group_names_some_of_its_pods() -> None:
    one = workload()
    one["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": f"p{number}", "uid": str(number)} for number in range(5)
    ]
    assert row_of(rows.WORKLOADS, one)[1:3] == ["pod", "p0, p1, p2 (+2)"]


def test_row_of_workload_without_job_is_blank_there() -> None:
    one = workload()
    del one["metadata"]["ownerReferences"]
    assert row_of(rows.WORKLOADS, one)[1:3] == ["", ""]


@pytest.mark.parametrize(
    ("columns", "spec", "status", "row"),
    [
        (
            rows.CLUSTER_QUEUES,
            {"cohortName": "team", "queueingStrategy": "StrictFIFO"},
            {"pendingWorkloads": 2, "admittedWorkloads": 1, "conditions": [condition("Active", "False", 1)]},
            ["q", "team", "2", "1", "False", "40s", "StrictFIFO", "R"],
        ),
        (rows.CLUSTER_QUEUES, {}, {}, ["q", "", "0", "0", "", "40s", "", ""]),
        (
            rows.LOCAL_QUEUES,
            {"clusterQueue": "cq"},
            {"pendingWorkloads": 2, "conditions": [condition("Active", "True", 1)]},
            ["q", "cq", "2", "0", "40s", "True", "R"],
        ),
        (
            rows.RESOURCE_FLAVORS,
            {"nodeLabels": {"a": "1", "b": "2"}, "topologyName": "racks"},
            {},
            ["q", "a=1, b=2", "40s", "racks"],
        ),
    ],
)
def test_row_of_queue_and_flavor(
    columns: Any, spec: dict[str, Any], status: dict[str, Any], row: list[str]
) -> None:
    metadata = {"name": "q", "creationTimestamp": "1970-01-01T00:01:00Z"}
    assert row_of(columns, {"metadata": metadata, "spec": spec, "status": status}, wide=True) == row


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "Running"),
        ({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, "Terminating"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "SchedulingGated"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        (
            {"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}},
            "ErrImagePull",
        ),
        ({"status": {"containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]}}, "Error"),
    ],
)
def test_status_of_pod_is_its_most_specific_reason(changes: dict[str, Any], status: str) -> None:
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}
    pod = {key: {**value, **changes.get(key, {})} for key, value in pod.items()}
    assert row_of(rows.PODS, pod)[2] == status


def test_row_of_pod_counts_ready_containers_and_restarts() -> None:
    pod = {
        "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:01:00Z"},
        "spec": {"containers": [{}, {}], "nodeName": "node"},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"ready": True, "restartCount": 2}, {"restartCount": 1}],
        },
    }
    assert row_of(rows.PODS, pod, wide=True) == ["p", "1/2", "Running", "3", "40s", "node"]


def test_table_of_all_namespaces_begins_with_the_namespace() -> None:
    titles, (row,) = build_rows(rows.WORKLOADS, [workload()], View(NOW), namespaces=True)
    assert (titles[:2], row[:2]) == (["NAMESPACE", "NAME"], ["n", "job-train"])
