"""Outcomes of the heads of a cycle, one rule a test."""

from dataclasses import replace

import pytest

from admitq.core import events as happened
from admitq.core.instructions import ReserveQuota
from admitq.core.model import (
    SECOND,
    Admission,
    AdmissionCheck,
    AdmissionCheckRule,
    ClusterQueuePreemption,
    Cohort,
    FlavorFungibility,
    FlavorFungibilityPolicy,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
)
from admitq.core.refusals import NoFlavorFits, PodsNotReady, WaitingForTargets
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Gates
from tests.unit.core.small_cluster import (
    RECLAIM,
    STRICT,
    SmallCluster,
    group,
    key,
    preempted,
    queue,
    reported,
)


def test_blocking_heads_with_untried_flavors_do_not_ask_for_cycles_in_turn() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("f1", "f2")
    quota = group(("f1", 2), ("f2", 2))
    cluster.put(
        *(queue(name, cohort="c", resource_groups=quota, queueing_strategy=STRICT) for name in ("s", "t"))
    )
    pods = (
        PodSet("main", 1, template_requesting({"cpu": 1})),
        PodSet("workers", 1, template_requesting({"gpu": 1})),
    )
    cluster.submit("a", "s", pod_sets=pods)
    cluster.cycles(limit=1)
    cluster.submit("b", "t", pod_sets=pods)
    cluster.cycles(limit=10)
    assert cluster.is_quiet


def test_reservation_time_is_rounded_down_to_seconds() -> None:
    cluster = SmallCluster(now=7 * SECOND + 123)
    cluster.put(queue("q", 4))
    cluster.submit("one", "q")
    cluster.cycles()
    world = cluster.state._world  # pyright: ignore[reportPrivateUsage]
    assert world.workloads[key("one")].reserved_at == 7 * SECOND


# --- blocked until pods are ready -----------------------------------------------------------------------


def test_admission_waits_until_pods_are_ready() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("a", 4), queue("b", 4))
    for name, cluster_queue in (("one", "a"), ("two", "a"), ("three", "b")):
        cluster.submit(name, cluster_queue)
    assert cluster.decide() == ["one"]
    assert cluster.refusal("three") == PodsNotReady()
    assert cluster.is_quiet
    assert cluster.cycles() == []
    cluster.restart()
    assert cluster.is_quiet
    cluster.change("one", pods_ready=True)
    assert not cluster.is_quiet
    assert cluster.decide() == ["two"]
    cluster.finish("two")
    assert cluster.decide() == ["three"]
    cluster.delete("three")
    assert cluster.is_quiet


def test_admission_does_not_wait_for_pods_of_workload_in_unknown_cluster_queue() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("a", 4))
    assigned = PodSetAssignment("main", (("cpu", "default"),), (("cpu", 1),), 1)
    cluster.submit("theirs", "later", admission=Admission("later", (assigned,)), admitted=True, reserved_at=5)
    cluster.submit("one", "a")
    assert cluster.decide() == ["one"]
    cluster.change("one", pods_ready=True)
    cluster.submit("two", "a")
    cluster.put(queue("later", 4))
    assert cluster.decide() == []
    assert cluster.refusal("two") == PodsNotReady()
    cluster.send(happened.ClusterQueueDeleted("later"))
    assert cluster.decide() == ["two"]


def test_admission_does_not_wait_for_pods_of_workload_that_only_reserved() -> None:
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.send(happened.AdmissionCheckChanged(AdmissionCheck("check", "example.com/check", active=True)))
    cluster.put(queue("q", 4, admission_checks=(AdmissionCheckRule("check"),)))
    cluster.submit("one", "q")
    cluster.submit("two", "q")
    assert cluster.decide() == ["one", "two"]


# --- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gate", "first"), [(True, "urgent"), (False, "early")])
def test_priority_orders_heads_of_cohort_only_when_gate_is_on(*, gate: bool, first: str) -> None:
    cluster = SmallCluster(CoreSettings(gates=Gates(priority_sorting_within_cohort=gate)))
    cluster.send(happened.CohortChanged(replace(Cohort("org"), resource_groups=group(("default", 1)))))
    cluster.put(queue("a", 0, "org"), queue("b", 0, "org"))
    cluster.submit("early", "a")
    cluster.submit("urgent", "b", priority=1)
    assert cluster.decide()[0] == first


def test_workload_that_exceeds_quota_is_refused_and_parked() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("large", "q", 2)
    assert isinstance(reported(cluster.cycles())["large"], NoFlavorFits)
    assert cluster.is_quiet


def test_head_not_processed_when_admission_is_halted_keeps_its_wait_state() -> None:
    """Admission is halted in the middle of a cycle, before all heads are processed."""
    cluster = SmallCluster(CoreSettings(block_admission=True))
    cluster.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"), queue("c", 1), queue("d", 1))
    cluster.submit("borrower", "b", 4)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    assert preempted(cluster.cycles()) == ["borrower"]
    cluster.submit("fits", "b", 0, priority=9)
    cluster.submit("other", "c", 1, priority=9)
    cluster.submit("last", "d", 1)
    assert cluster.decide() == []
    halted = [name for name in ("fits", "other") if cluster.refusal(name) == PodsNotReady()]
    assert len(halted) == 1
    assert cluster.refusal("last") is None
    assert isinstance(cluster.refusal("owner"), WaitingForTargets)
    cluster.change("borrower", pods_ready=True)
    assert len(cluster.decide()) == 1


def test_scan_continues_after_a_flavor_without_targets() -> None:
    cluster = SmallCluster()
    cluster.put_flavors("second")
    policy = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    owner = queue(
        "a",
        cohort="org",
        resource_groups=group(("default", 2), ("second", 0)),
        preemption=policy,
        flavor_fungibility=FlavorFungibility(when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH),
    )
    cluster.put(owner, queue("b", cohort="org", resource_groups=group(("default", 0), ("second", 2))))
    cluster.submit("theirs", "b", 2, priority=9)
    cluster.run("theirs")
    cluster.submit("job", "a", 2)
    assert cluster.decide() == ["job"]


@pytest.mark.parametrize(("preserve", "flavor"), [(True, "second"), (False, "default")])
def test_head_that_lost_continues_with_next_flavor_only_when_gate_is_on(
    *, preserve: bool, flavor: str
) -> None:
    cluster = SmallCluster(CoreSettings(gates=Gates(flavor_fungibility_preserve_scan_progress=preserve)))
    cluster.put_flavors("second")
    flavors = group(("default", 2), ("second", 2))
    cluster.send(happened.CohortChanged(Cohort("org", None, flavors)))
    no_quota = group(("default", 0), ("second", 0))
    cluster.put(*(queue(name, cohort="org", resource_groups=no_quota) for name in "ab"))
    cluster.submit("first", "a", 2)
    cluster.submit("second", "b", 2)
    assert cluster.decide(1) == ["first"]
    cluster.finish("first")
    reservations = [each for each in cluster.cycles(1) if isinstance(each, ReserveQuota)]
    assert [
        dict(part.flavors)["cpu"] for each in reservations for part in each.admission.pod_set_assignments
    ] == [flavor]
