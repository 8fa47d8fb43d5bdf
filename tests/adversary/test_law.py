"""The sampler finds an excess, names its pods, and tolerates an excess of one reaction."""

from typing import Any

import pytest

from tests.adversary.law import Record, excesses, milli, queue_of, quotas, requested, reserved

QUEUES = {"q": 1000}


def pod(
    name: str,
    cpu: Any = 1,
    *,
    node: str = "n",
    phase: str = "Running",
    grace: int | None = None,
    owners: Any = (),
) -> Any:
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "labels": {}, "ownerReferences": owners}
    if grace is not None:
        metadata |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def workload(cpu: Any = 1, *, queue: str = "q", count: int = 1, returned: int = 0, **conditions: str) -> Any:
    assignment = {"name": "main", "count": count, "resourceUsage": {"cpu": cpu}}
    status = {
        "conditions": [
            {"type": type_, "status": value}
            for type_, value in {"QuotaReserved": "True", **conditions}.items()
        ],
        "admission": {"podSetAssignments": [assignment]},
        "reclaimablePods": [{"name": "main", "count": returned}],
    }
    return {"spec": {"queueName": queue}, "status": status}


def job(uid: str = "uid-job", *, suspend: bool = False, deleted: bool = False) -> Any:
    deletion = {"deletionTimestamp": "2030-01-01T00:00:00Z"} if deleted else {}
    return {"metadata": {"name": "q-j", "uid": uid, **deletion}, "spec": {"suspend": suspend}}


def owner(uid: str = "uid-job", kind: str = "Job", *, controller: bool = True) -> Any:
    return {"kind": kind, "name": "q-j", "uid": uid, "controller": controller}


def watch(seconds: float, pods: Any, workloads: Any, jobs: Any = ()) -> Record:
    record = Record()
    for tick in range(round(seconds * 10) + 1):
        record.observe(tick / 10, QUEUES, pods, workloads, jobs)
    return record


def test_violation_names_the_queue_its_pods_and_their_history() -> None:
    record = watch(3, [pod("q-a"), pod("q-b")], [workload()])
    assert list(record.violations) == ["q"]
    text = record.violations["q"]
    assert "queue q: 2000m CPU run, 1000m are reserved" in text
    assert "pod q-a" in text
    assert "0.0 s: Running, on a node" in text


def test_excess_within_one_reaction_is_no_violation() -> None:
    record = watch(1.9, [pod("q-a"), pod("q-b")], [workload()])
    assert record.violations == {}
    assert record.longest_s == pytest.approx(1.9)


def test_excess_of_terminating_pods_is_tolerated_for_their_grace_period() -> None:
    pods = [pod("q-a"), pod("q-b", grace=2)]
    assert watch(3.9, pods, [workload()]).violations == {}
    assert list(watch(4.5, pods, [workload()]).violations) == ["q"]


@pytest.mark.parametrize("stopped", [job(suspend=True), job(deleted=True)])
def test_excess_of_stopped_job_pods_is_tolerated_until_the_job_controller_acts(stopped: Any) -> None:
    pods = [pod("q-a"), pod("q-b", owners=[owner()])]
    assert watch(6.9, pods, [workload()], [stopped]).violations == {}
    assert list(watch(7.2, pods, [workload()], [stopped]).violations) == ["q"]


@pytest.mark.parametrize(
    ("reference", "jobs"),
    [
        (owner(), []),
        (owner(), [job()]),
        (owner("uid-other"), [job(suspend=True)]),
        (owner(), [job("uid-other", suspend=True)]),
        (owner(controller=False), [job(suspend=True)]),
        (owner(kind="ReplicaSet"), [job(suspend=True)]),
    ],
)
def test_excess_of_pods_without_a_stopped_job_is_tolerated_for_one_reaction(
    reference: Any, jobs: Any
) -> None:
    pods = [pod("q-a"), pod("q-b", owners=[reference])]
    assert list(watch(2.3, pods, [workload()], jobs).violations) == ["q"]


def test_excess_beyond_the_pods_of_a_stopped_job_is_tolerated_for_one_reaction() -> None:
    pods = [pod("q-a"), pod("q-b"), pod("q-c", owners=[owner()])]
    assert list(watch(2.3, pods, [workload()], [job(suspend=True)]).violations) == ["q"]


def test_interrupted_excesses_do_not_add_up() -> None:
    record = Record()
    for tick in range(60):
        record.observe(tick / 10, QUEUES, [pod("q-a")], [workload()] if tick % 15 == 0 else [])
    assert record.violations == {}


def test_stalled_sampler_counts_a_gap_as_one_step() -> None:
    record = Record()
    for at in (0.0, 10.0, 20.0):
        record.observe(at, QUEUES, [pod("q-a")], [])
    assert record.longest_s == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("pods", "workloads", "is_excess"),
    [
        ([pod("q-a")], [workload()], False),
        ([pod("q-a")], [], True),
        ([pod("q-a", node="")], [], False),
        ([pod("q-a", phase="Succeeded")], [], False),
        ([pod("free-a")], [], False),
        ([pod("q-a")], [workload(queue="other")], True),
        ([pod("q-a")], [workload(QuotaReserved="False")], True),
        ([pod("q-a")], [workload(Finished="True")], True),
        ([pod("q-a"), pod("q-b", "1m")], [workload(5)], True),
        ([pod("q-a", "500m")], [workload(2, count=4, returned=3)], False),
        ([pod("q-a", "501m")], [workload(2, count=4, returned=3)], True),
    ],
)
def test_excess_is_found_only_where_more_runs_than_is_reserved(
    pods: Any, workloads: Any, *, is_excess: bool
) -> None:
    assert bool(excesses(QUEUES, pods, workloads)) is is_excess


@pytest.mark.parametrize(("quantity", "expected"), [(2, 2000), ("2", 2000), ("0.5", 500), ("500m", 500)])
def test_cpu_quantity_is_parsed_to_thousandths(quantity: Any, expected: int) -> None:
    assert milli(quantity) == expected


def test_requested_cpu_is_that_of_the_largest_init_container() -> None:
    several = pod("q-a")
    several["spec"]["initContainers"] = [{"resources": {"requests": {"cpu": 3}}}]
    assert requested(several) == 3000


def test_requested_cpu_is_that_of_the_pod_when_it_has_requests() -> None:
    several = pod("q-a")
    several["spec"]["resources"] = {"requests": {"cpu": 4}}
    assert requested(several) == 4000


def test_workload_without_status_reserves_nothing() -> None:
    assert reserved({"spec": {}}) == 0


def test_object_belongs_to_the_queue_with_the_longest_matching_name() -> None:
    assert queue_of("q-more-a", ["q", "q-more"]) == "q-more"


def test_quotas_are_those_of_cluster_queues_with_the_suffix() -> None:
    resources = {"flavors": [{"resources": [{"name": "cpu", "nominalQuota": "1500m"}]}]}
    queue = {"metadata": {"name": "q-ns"}, "spec": {"resourceGroups": [resources]}}
    assert quotas([queue, {"metadata": {"name": "elsewhere"}}], "-ns") == {"q": 1500}
