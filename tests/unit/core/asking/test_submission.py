"""What becomes of submitted workloads."""

from collections.abc import Sequence
from typing import Any

import pytest

from admitq.core.asking.branch import copying_branch
from admitq.core.asking.submission import Submission, SubmissionVerdict, try_submission
from admitq.core.events import AdmissionCheckChanged, ClusterQueueChanged, Event, WorkloadChanged
from admitq.core.model import AdmissionCheck, AdmissionCheckRule, PodSet, StopPolicy, Workload
from admitq.core.requests import template_requesting
from tests.unit.core.small_cluster import LOWER, SmallCluster, key, queue


@pytest.fixture
def cluster() -> SmallCluster:
    """A ClusterQueue with 4 CPUs, of which a workload of priority 0 uses 3."""
    made = SmallCluster()
    made.put(queue("q", 4, preemption=LOWER))
    made.submit("running", "q", cpu=3)
    made.run("running")
    return made


def submitted(
    cluster: SmallCluster, *cpus: int, local_queue: str = "q", priority: int = 0, before: Sequence[Event] = ()
) -> list[Submission]:
    """Submit workloads with these requests, named by their numbers, after other events."""
    events = [
        WorkloadChanged(
            Workload(
                key(str(number)),
                f"uid-{number}",
                local_queue,
                queued_at=10**6 + number,
                pod_sets=(PodSet("main", 1, template_requesting({"cpu": cpu})),),
                priority=priority,
            )
        )
        for number, cpu in enumerate(cpus)
    ]
    return [
        *try_submission(
            cluster.state.fork(),
            [*before, *events],
            [*(event.workload.key for event in events), key("never submitted")],
            now=cluster.now,
            branch_from=copying_branch,
            has_time=lambda: True,
        )
    ]


def verdicts(*arguments: Any, **options: Any) -> list[str]:
    return [str(each.verdict) for each in submitted(*arguments, **options)]


@pytest.mark.parametrize(
    ("cpu", "verdict"),
    [(1, "Admitted"), (2, "Waits"), (4, "Waits"), (5, "Never")],
    ids=["fits", "too much", "all", "more"],
)
def test_verdict_depends_on_free_and_on_nominal_quota(cluster: SmallCluster, cpu: int, verdict: str) -> None:
    assert verdicts(cluster, cpu) == [verdict]


def test_workloads_of_one_submission_compete(cluster: SmallCluster) -> None:
    assert verdicts(cluster, 1, 1) == ["Admitted", "Waits"]


def test_admitted_workload_has_its_flavors_and_its_victims(cluster: SmallCluster) -> None:
    (found,) = submitted(cluster, 2, priority=7)
    assert found.verdict is SubmissionVerdict.ADMITTED
    assert found.preempted == (key("running"),)
    assert found.admission is not None
    assert [dict(each.flavors) for each in found.admission.pod_set_assignments] == [{"cpu": "default"}]
    assert (found.explanation, found.changes) == (None, None)


def test_waiting_workload_has_an_explanation_and_changes(cluster: SmallCluster) -> None:
    (found,) = submitted(cluster, 2)
    assert found.explanation is not None
    assert found.changes is not None
    assert found.changes.alternatives
    assert found.admission is None


def test_admission_checks_are_named(cluster: SmallCluster) -> None:
    cluster.send(AdmissionCheckChanged(AdmissionCheck("c", "example.com/c", active=True)))
    cluster.put(queue("q", 4, admission_checks=(AdmissionCheckRule("c"),)))
    (found,) = submitted(cluster, 1)
    assert (str(found.verdict), found.checks) == ("Admitted", ("c",))


def test_queue_that_does_not_exist_never_admits(cluster: SmallCluster) -> None:
    assert verdicts(cluster, 1, local_queue="missing") == ["Never"]


def test_queue_that_the_submission_drains_preempts_nothing(cluster: SmallCluster) -> None:
    drained = ClusterQueueChanged(queue("q", 4, stop_policy=StopPolicy.HOLD_AND_DRAIN))
    (found,) = submitted(cluster, 1, before=[drained])
    assert (found.verdict, found.preempted) == (SubmissionVerdict.WAITS, ())


def test_stopped_queue_may_admit_later(cluster: SmallCluster) -> None:
    cluster.put(queue("q", 4, stop_policy=StopPolicy.HOLD))
    assert verdicts(cluster, 1) == ["Waits"]
