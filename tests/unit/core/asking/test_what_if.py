from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from admitq.asking.branches import ask, branch_of
from admitq.core.amounts import FlavorResource
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.what_if import (
    AmountChange,
    Difference,
    Move,
    NodeName,
    Place,
    ShareChange,
    Stop,
    what_if,
)
from admitq.core.events import (
    AdmissionCheckChanged,
    ClusterQueueChanged,
    CohortChanged,
    Event,
    LocalQueueChanged,
    WorkloadChanged,
    WorkloadDeleted,
)
from admitq.core.fair_sharing import NO_SHARE, Share
from admitq.core.instructions import PreemptionReason
from admitq.core.model import (
    AdmissionCheck,
    AdmissionCheckRule,
    Cohort,
    LocalQueue,
    ObjectKey,
    PodSet,
    StopPolicy,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Gates
from tests.unit.core.small_cluster import LOWER, RECLAIM, SmallCluster, group, key, queue

CPU = FlavorResource("default", "cpu")


def cluster_queue(name: str) -> NodeName:
    return NodeName(is_cohort=False, name=name)


def cohort(name: str) -> NodeName:
    return NodeName(is_cohort=True, name=name)


def job(name: str, local_queue: str, cpu: int = 1, priority: int = 0) -> WorkloadChanged:
    pods = (PodSet("main", 1, template_requesting({"cpu": cpu})),)
    return WorkloadChanged(
        Workload(key(name), f"uid-{name}", local_queue, queued_at=10**6, pod_sets=pods, priority=priority)
    )


def ask_about(cluster: SmallCluster, *events: Event) -> Difference:
    """Ask a copy of the cluster's state, and check that a forked process gives the same answer."""
    disposable = cluster.state.fork()
    difference = what_if(disposable, events, now=cluster.now, branch=copying_branch(cluster.state))
    disposable.validate()
    in_process = ask(
        cluster.state,
        lambda state: what_if(state, events, now=cluster.now, branch=branch_of(state, deadline_s=60)),
        deadline_s=60,
    )
    assert in_process == difference
    return difference


def names(keys: Sequence[ObjectKey] | Any) -> list[str]:
    return [each.name for each in keys]


@pytest.fixture
def cluster() -> SmallCluster:
    """One ClusterQueue of 2 CPU in use, and two workloads that wait."""
    cluster = SmallCluster()
    cluster.put(queue("a", 2, preemption=LOWER))
    for name in ("run-1", "run-2", "wait-1", "wait-2"):
        cluster.submit(name, "a")
    cluster.run("run-1", "run-2")
    return cluster


def test_no_event_makes_no_difference(cluster: SmallCluster) -> None:
    assert ask_about(cluster) == Difference({}, {}, (), {}, {}, {}, {})


def test_more_quota_admits_first_pending_workload(cluster: SmallCluster) -> None:
    more = ask_about(cluster, ClusterQueueChanged(queue("a", 3, preemption=LOWER)))
    assert names(more.admitted) == ["wait-1"]
    assert more.moves == {
        key("wait-1"): Move(Place("a", 0), None),
        key("wait-2"): Move(Place("a", 1), Place("a", 0)),
    }
    assert more.usage == {cluster_queue("a"): {CPU: AmountChange(2, 3)}}
    assert (more.stopped, more.not_admitted, more.reassigned, more.shares) == ({}, (), {}, {})


def test_new_job_of_higher_priority_preempts_and_its_victim_is_queued_again(cluster: SmallCluster) -> None:
    urgent = ask_about(cluster, job("urgent", "a", priority=5))
    assert names(urgent.admitted) == ["urgent"]
    ((victim, stop),) = urgent.stopped.items()
    assert stop == Stop(PreemptionReason.IN_CLUSTER_QUEUE, key("urgent"))
    assert urgent.moves[victim] == Move(None, Place("a", 1 if victim.name == "run-2" else 0))
    assert urgent.usage == {}


def test_new_job_that_must_wait_gets_a_place(cluster: SmallCluster) -> None:
    waiting = ask_about(cluster, job("late", "a"))
    assert waiting == Difference({}, {}, (), {}, {key("late"): Move(None, Place("a", 2))}, {}, {})


def test_deleted_workload_lets_another_in(cluster: SmallCluster) -> None:
    deleted = ask_about(cluster, WorkloadDeleted(key("run-1"), "uid-run-1"))
    assert names(deleted.admitted) == ["wait-1"]
    assert deleted.not_admitted == (key("run-1"),)


@pytest.mark.parametrize(
    ("policy", "stopped"), [(StopPolicy.HOLD, []), (StopPolicy.HOLD_AND_DRAIN, ["run-1", "run-2"])]
)
def test_stopped_cluster_queue_drains_only_if_its_policy_says_so(
    cluster: SmallCluster, policy: StopPolicy, stopped: list[str]
) -> None:
    difference = ask_about(cluster, ClusterQueueChanged(queue("a", 2, preemption=LOWER, stop_policy=policy)))
    assert names(difference.stopped) == stopped
    assert set(difference.stopped.values()) <= {Stop()}
    assert difference.admitted == {}


@pytest.mark.parametrize(
    ("policy", "stopped"), [(StopPolicy.HOLD, []), (StopPolicy.HOLD_AND_DRAIN, ["run-1", "run-2"])]
)
def test_stopped_local_queue_takes_its_workloads_out_of_the_queue(
    cluster: SmallCluster, policy: StopPolicy, stopped: list[str]
) -> None:
    difference = ask_about(cluster, LocalQueueChanged(LocalQueue(key("a"), "a", stop_policy=policy)))
    assert names(difference.stopped) == stopped
    assert difference.moves == {
        key("wait-1"): Move(Place("a", 0), None),
        key("wait-2"): Move(Place("a", 1), None),
    }


def test_cohort_edge_lets_workloads_borrow_and_changes_shares(cluster: SmallCluster) -> None:
    cluster.put(queue("b", 1, cohort="team"))
    joined = ask_about(
        cluster,
        ClusterQueueChanged(queue("a", 2, cohort="team", preemption=LOWER)),
        CohortChanged(Cohort("team")),
    )
    assert names(joined.admitted) == ["wait-1"]
    assert joined.usage == {
        cluster_queue("a"): {CPU: AmountChange(2, 3)},
        cohort("team"): {CPU: AmountChange(0, 3)},
    }
    assert joined.shares == {
        cluster_queue("a"): ShareChange(
            NO_SHARE, Share(infinite=False, amount=Fraction(1000, 3), resource="cpu")
        )
    }


def test_other_flavor_is_a_reassignment(cluster: SmallCluster) -> None:
    cluster.put_flavors("spot")
    groups = group(("spot", 2), ("default", 0))
    difference = ask_about(
        cluster,
        ClusterQueueChanged(queue("a", resource_groups=groups, preemption=LOWER)),
        WorkloadDeleted(key("run-1"), "uid-run-1"),
        WorkloadChanged(replace(cluster.workloads["run-2"], admission=None, admitted=False)),
    )
    ((name, (before, after)),) = difference.reassigned.items()
    flavors = [each.pod_set_assignments[0].flavors for each in (before, after)]
    assert (name, flavors) == (key("run-2"), [(("cpu", "default"),), (("cpu", "spot"),)])


def test_decisions_that_are_due_anyway_are_no_difference() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 1))
    cluster.submit("first", "a")
    cluster.submit("second", "a", priority=-1)
    assert not cluster.is_quiet
    difference = ask_about(cluster, job("urgent", "a", priority=5))
    assert names(difference.admitted) == ["urgent"]
    assert difference.not_admitted == (key("first"),)
    assert difference.stopped == {}


def test_victims_that_are_leaving_are_no_difference(cluster: SmallCluster) -> None:
    cluster.submit("urgent", "a", priority=5)
    cluster.decide()
    difference = ask_about(cluster, job("late", "a"))
    assert difference.moves == {key("late"): Move(None, Place("a", 3))}
    assert (difference.admitted, difference.stopped) == ({}, {})


def test_evicted_workload_that_still_holds_quota_is_no_difference(cluster: SmallCluster) -> None:
    cluster.evict("run-1")
    assert ask_about(cluster) == Difference({}, {}, (), {}, {}, {}, {})


def test_reservation_that_is_being_written_counts() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 1))
    cluster.submit("first", "a")
    cluster.cycles()
    assert ask_about(cluster, job("late", "a")).moves == {key("late"): Move(None, Place("a", 0))}


def test_workload_with_admission_checks_is_admitted() -> None:
    cluster = SmallCluster()
    checked = queue("a", 1, admission_checks=(AdmissionCheckRule("check"),))
    cluster.send(AdmissionCheckChanged(AdmissionCheck("check", "controller", active=True)))
    cluster.put(checked)
    assert names(ask_about(cluster, job("new", "a")).admitted) == ["new"]


def test_replacement_takes_over_from_its_original() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 3))
    cluster.submit("old", "a", 2)
    cluster.run("old")
    grown = job("new", "a", 3)
    difference = ask_about(cluster, WorkloadChanged(replace(grown.workload, replaces=key("old"))))
    assert names(difference.admitted) == ["new"]
    assert difference.not_admitted == (key("old"),)
    assert difference.usage == {cluster_queue("a"): {CPU: AmountChange(2, 3)}}


def test_new_queue_appears_with_its_usage(cluster: SmallCluster) -> None:
    difference = ask_about(
        cluster,
        ClusterQueueChanged(queue("b", 1)),
        LocalQueueChanged(LocalQueue(key("b"), "b")),
        job("new", "b"),
    )
    assert names(difference.admitted) == ["new"]
    assert difference.usage == {cluster_queue("b"): {CPU: AmountChange(0, 1)}}
    assert difference.shares == {cluster_queue("b"): ShareChange(None, NO_SHARE)}


def test_victim_of_a_borrower_is_queued_behind_it_if_priorities_between_queues_do_not_count() -> None:
    cluster = SmallCluster(CoreSettings(gates=Gates(priority_sorting_within_cohort=False)))
    cluster.put(queue("a", 1, "team", preemption=RECLAIM), queue("b", 1, "team"))
    cluster.submit("borrows-1", "b")
    cluster.submit("borrows-2", "b")
    cluster.run("borrows-1", "borrows-2")
    difference = ask_about(cluster, job("back", "a"))
    assert [stop.reason for stop in difference.stopped.values()] == [PreemptionReason.IN_COHORT_RECLAMATION]


def test_state_that_runs_no_cycles_answers_as_one_that_does(cluster: SmallCluster) -> None:
    """A process that only observes has another program decide."""
    more = ClusterQueueChanged(queue("a", 3, preemption=LOWER))
    observing = cluster.state.fork()
    observing.queries.world.driver = observing.queries.world.driver._replace(runs_cycles=False)
    difference = what_if(observing, [more], now=cluster.now, branch=copying_branch(cluster.state))
    assert names(difference.admitted) == ["wait-1"]
