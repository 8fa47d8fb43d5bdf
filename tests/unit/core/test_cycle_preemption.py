"""Preemption by the heads of a cycle: waiting preemptors, reserved capacity, targets of other heads."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.instructions import Preempt, PreemptionReason, Recomputation, TargetsRecomputed
from admitq.core.model import SECOND, ClusterQueuePreemption, Cohort, PreemptionPolicy, StopPolicy
from admitq.core.refusals import (
    NoPreemptionTargets,
    OverlappingTargets,
    PreemptionGated,
    PreemptionsFailed,
    QuotaTakenInCycle,
    WaitingForTargets,
)
from admitq.core.settings import CoreSettings, Gates
from tests.unit.core.small_cluster import (
    LOWER,
    RECLAIM,
    STRICT,
    SmallCluster,
    group,
    key,
    preempted,
    queue,
    reported,
    reserved,
)


def cluster_with_preemptor(**fields: Any) -> SmallCluster:
    """Return a cluster in which ``low`` holds all quota, and ``high`` waits for its preemption."""
    cluster = SmallCluster()
    cluster.put(queue("q", 4, preemption=LOWER, **fields))
    cluster.submit("low", "q", 4)
    cluster.run("low")
    cluster.submit("high", "q", 3, priority=1)
    assert preempted(cluster.cycles()) == ["low"]
    return cluster


# --- preemption -----------------------------------------------------------------------------------------


def test_preempt_instruction_names_preemptor_target_and_their_cohort_paths() -> None:
    cluster = SmallCluster()
    cluster.send(happened.CohortChanged(Cohort("team", "org")))
    cluster.put(queue("a", 4, "team", preemption=RECLAIM), queue("b", 0, "team"))
    cluster.submit("borrower", "b", 4)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    (preemption,) = (each for each in cluster.cycles() if isinstance(each, Preempt))
    assert preemption == Preempt(
        key("borrower"),
        "uid-borrower",
        PreemptionReason.IN_COHORT_RECLAMATION,
        key("owner"),
        "uid-owner",
        ("org", "team", "a"),
        ("org", "team", "b"),
    )


def test_preemptor_waits_until_its_targets_have_left() -> None:
    cluster = cluster_with_preemptor()
    assert isinstance(reported(cluster.instructions)["high"], WaitingForTargets)
    assert cluster.is_quiet
    assert cluster.cycles() == []
    cluster.evict("low")
    assert cluster.is_quiet
    cluster.leave("low")
    assert cluster.decide() == ["high"]
    assert cluster.refusal("low") is not None


def test_evicted_target_is_not_preempted_again() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, preemption=LOWER))
    cluster.submit("low", "q", 2)
    cluster.submit("evicted", "q", 2)
    cluster.run("low", "evicted")
    cluster.evict("evicted")
    cluster.submit("high", "q", 2, priority=1)
    assert preempted(cluster.cycles()) == []
    refusal = cluster.refusal("high")
    assert isinstance(refusal, WaitingForTargets)
    assert refusal.victims == 1


def test_no_workload_behind_a_waiting_preemptor_is_evaluated() -> None:
    cluster = cluster_with_preemptor()
    cluster.submit("small", "q", 1, priority=5)
    assert cluster.is_quiet
    assert cluster.decide() == []
    cluster.leave("low")
    assert cluster.decide() == ["high", "small"]


@pytest.mark.parametrize("restarted", [False, True])
def test_preemptor_keeps_its_capacity_while_other_heads_are_evaluated(*, restarted: bool) -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    cluster.submit("borrower", "b", 3)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    assert preempted(cluster.cycles()) == ["borrower"]
    if restarted:
        cluster.restart()
    cluster.submit("greedy", "b", 1)
    assert cluster.decide() == []
    assert cluster.refusal("greedy") == QuotaTakenInCycle()
    assert cluster.is_quiet
    cluster.leave("borrower")
    assert cluster.decide() == ["owner"]


@pytest.mark.parametrize(
    "change",
    [{"generation": 2}, {"active": False}, {"queue_name": "nowhere"}, {"admission_gates": ("gate",)}],
)
def test_preemptor_gives_up_its_capacity_when_it_is_changed(change: dict[str, object]) -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    cluster.submit("borrower", "b", 3)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    cluster.submit("greedy", "b", 1)
    cluster.decide()
    assert cluster.is_quiet
    cluster.change("owner", **change)
    assert not cluster.is_quiet
    assert cluster.decide() == ([] if "generation" in change else ["greedy"])


def test_preemptor_gives_up_its_capacity_when_it_is_deleted() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    cluster.submit("borrower", "b", 3)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    cluster.submit("greedy", "b", 1)
    assert cluster.decide() == []
    cluster.delete("owner")
    assert cluster.decide() == ["greedy"]


def test_preemptor_gives_up_its_capacity_when_its_queue_is_stopped() -> None:
    cluster = SmallCluster()
    owners = queue("a", 4, "org", preemption=RECLAIM)
    cluster.put(owners, queue("b", 0, "org"))
    cluster.submit("borrower", "b", 3)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    cluster.submit("greedy", "b", 1)
    assert cluster.decide() == []
    cluster.send(happened.ClusterQueueChanged(replace(owners, stop_policy=StopPolicy.HOLD)))
    assert cluster.decide() == ["greedy"]


def test_preemptor_with_new_generation_loses_its_precedence() -> None:
    cluster = cluster_with_preemptor()
    cluster.submit("higher", "q", 1, priority=5)
    cluster.change("high", generation=2)
    cluster.leave("low")
    assert cluster.decide() == ["higher", "high"]


def test_preemptor_in_strict_queue_can_be_overtaken() -> None:
    cluster = cluster_with_preemptor(queueing_strategy=STRICT)
    cluster.submit("higher", "q", 2, priority=5)
    cluster.cycles()
    assert isinstance(cluster.refusal("higher"), WaitingForTargets)
    cluster.leave("low")
    assert cluster.decide() == ["higher"]


def test_preemptor_gives_up_its_capacity_when_overtaken_in_strict_queue() -> None:
    cluster = SmallCluster()
    cluster.put(
        queue("a", 4, "org", preemption=RECLAIM, queueing_strategy=STRICT),
        queue("b", 0, "org"),
        queue("c", 0, "org"),
    )
    cluster.submit("borrower", "b", 3)
    cluster.run("borrower")
    cluster.submit("owner", "a", 4)
    cluster.submit("greedy", "c", 1)
    assert cluster.decide() == []
    assert cluster.is_quiet
    cluster.submit("impossible", "a", 40, priority=1)
    assert cluster.decide() == ["greedy"]


def test_preemptor_that_lost_in_cycle_waits_for_its_targets_after_next_cycle() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 4, "org", preemption=RECLAIM), queue("c", 0, "org"), queue("d", 1, "org"))
    cluster.submit("borrower", "c", 4)
    cluster.submit("other", "c", 1, priority=1)
    cluster.run("borrower", "other")
    cluster.submit("owner", "a", 4)
    assert preempted(cluster.cycles()) == ["borrower"]
    cluster.submit("too-large", "d", 1, priority=5)
    cluster.cycles(1)
    assert cluster.refusal("owner") == QuotaTakenInCycle()
    assert not cluster.is_quiet
    cluster.cycles()
    assert isinstance(cluster.refusal("owner"), WaitingForTargets)
    assert cluster.is_quiet


def test_preemptions_are_decided_again_when_all_of_them_failed() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, preemption=LOWER))
    for name in ("one", "two"):
        cluster.submit(name, "q", 2)
    cluster.run("one", "two")
    cluster.submit("high", "q", 4, priority=1)
    assert preempted(cluster.cycles()) == ["one", "two"]
    assert reported(cluster.fail("one")) == {}
    failed = reported(cluster.fail("two"))["high"]
    assert isinstance(failed, PreemptionsFailed)
    assert failed.victims == 2
    assert not cluster.is_quiet
    second_cycle = cluster.cycles()
    assert preempted(second_cycle) == ["one", "two"]
    assert isinstance(reported(second_cycle)["high"], WaitingForTargets)


def test_preemption_failure_of_unknown_or_evicted_target_changes_nothing() -> None:
    cluster = cluster_with_preemptor()
    assert cluster.fail("unknown", "high") == []
    assert cluster.send(happened.PreemptionFailed(key("low"), "uid-of-another")) == []
    cluster.evict("low")
    assert cluster.fail("low") == []
    assert cluster.is_quiet


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ({"active": False}, {"active": True}),
        ({"admission_gates": ("gate",)}, {"admission_gates": ()}),
        ({"queue_name": "nowhere"}, {"queue_name": "q"}),
    ],
    ids=["inactive", "gated", "moved"],
)
def test_preemption_failure_is_not_reported_while_preemptor_does_not_wait(
    change: dict[str, Any], back: dict[str, Any]
) -> None:
    cluster = cluster_with_preemptor()
    cluster.change("high", **change)
    assert reported(cluster.fail("low")) == {}
    cluster.change("high", **back)
    assert preempted(cluster.cycles()) == ["low"]


def test_new_preemption_does_not_report_former_failures() -> None:
    cluster = cluster_with_preemptor()
    cluster.change("high", admission_gates=("gate",))
    cluster.change("high", admission_gates=())
    assert reported(cluster.fail("low")) == {}
    assert preempted(cluster.cycles()) == ["low"]


def test_failed_preemption_is_decided_again_for_recreated_preemptor() -> None:
    cluster = cluster_with_preemptor()
    cluster.delete("high")
    cluster.fail("low")
    cluster.submit("high", "q", 3, priority=1)
    assert preempted(cluster.cycles()) == ["low"]


def test_workload_does_not_preempt_while_its_preemption_gate_is_closed() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 4, preemption=LOWER))
    cluster.submit("low", "q", 4)
    cluster.run("low")
    cluster.submit("high", "q", 4, priority=1, has_closed_preemption_gate=True)
    instructions = cluster.cycles()
    assert reported(instructions) == {"high": PreemptionGated()}
    assert preempted(instructions) == []
    cluster.change("high", has_closed_preemption_gate=False)
    assert preempted(cluster.cycles()) == ["low"]


# --- no candidates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reclaim", "first_cycle"), [("Never", []), ("LowerPriority", []), ("Any", ["greedy"])]
)
def test_head_without_targets_reserves_capacity_unless_it_can_always_reclaim(
    reclaim: str, first_cycle: list[str]
) -> None:
    cluster = SmallCluster()
    policy = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy(reclaim))
    cluster.put(queue("a", 4, "org", preemption=policy), queue("b", 2, "org"), queue("c", 0, "org"))
    cluster.submit("mine", "a", 2)
    cluster.submit("theirs", "b", 2, priority=9)
    cluster.run("mine", "theirs")
    cluster.submit("more", "a", 3)
    cluster.submit("greedy", "c", 1)
    assert cluster.decide(1) == first_cycle
    assert isinstance(cluster.refusal("more"), NoPreemptionTargets)
    assert cluster.decide() == ([] if first_cycle else ["greedy"])


@pytest.mark.parametrize(("limit", "is_reserved"), [(None, True), (3, True), (0, False)])
def test_borrowing_head_without_targets_reserves_up_to_its_borrowing_limit(
    limit: int | None, *, is_reserved: bool
) -> None:
    """The queue could reclaim quota within cohort ``left``; therefore a borrowing head may preempt."""
    cluster = SmallCluster()
    cluster.send(happened.CohortChanged(Cohort("left", "root")))
    cluster.put(
        queue("a", cohort="left", resource_groups=group(("default", 1), limit=limit)),
        queue("b", 3, "left"),
        queue("c", 1, "root"),
        queue("d", 0, "root"),
    )
    cluster.submit("far", "c", 4)
    cluster.run("far")
    cluster.submit("more", "a", 2)
    cluster.submit("greedy", "d", 1, priority=-1)
    admitted = cluster.decide(1)
    assert admitted == ([] if is_reserved else ["greedy"])


# --- targets of other heads -----------------------------------------------------------------------------


def two_owners_of_borrowed_quota(gates: Gates = Gates(), **fields: object) -> SmallCluster:  # noqa: B008 frozen
    """Return a cluster in which a borrower holds all quota of two ClusterQueues of 4 CPUs."""
    cluster = SmallCluster(CoreSettings(gates=gates))
    cluster.put(
        queue("a", 4, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    cluster.submit("borrower", "c", 8)
    cluster.run("borrower")
    return cluster


def recomputations(cluster: SmallCluster) -> list[Recomputation]:
    return [each.result for each in cluster.instructions if isinstance(each, TargetsRecomputed)]


def test_head_waits_for_target_of_another_head_when_both_will_fit() -> None:
    cluster = two_owners_of_borrowed_quota()
    cluster.submit("one", "a", 4)
    cluster.submit("two", "b", 4)
    assert preempted(cluster.cycles(limit=1)) == ["borrower"]
    assert cluster.refusal("two") == OverlappingTargets(will_fit=True)
    assert recomputations(cluster) == [Recomputation.DEFERRED_FIT]
    cluster.submit("greedy", "c", 1)
    assert cluster.decide() == []
    cluster.leave("borrower")
    assert cluster.decide() == ["one", "two"]


def test_head_with_overlapping_targets_loses_when_recomputation_gate_is_off() -> None:
    cluster = two_owners_of_borrowed_quota(Gates(recompute_assignment_upon_preemption_targets_overlap=False))
    cluster.submit("one", "a", 4)
    cluster.submit("two", "b", 4)
    assert preempted(cluster.cycles()) == ["borrower"]
    assert cluster.refusal("two") == OverlappingTargets(will_fit=False)
    assert recomputations(cluster) == []
    assert cluster.is_quiet
    cluster.leave("borrower")
    assert cluster.decide() == ["one", "two"]


def test_head_gets_other_targets_when_its_targets_are_taken() -> None:
    cluster = SmallCluster()
    cluster.put(
        queue("a", 4, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    cluster.submit("first", "c", 4)
    cluster.run("first")
    cluster.now += SECOND
    cluster.submit("last", "c", 4)
    cluster.run("last")
    cluster.submit("one", "a", 4)
    cluster.submit("two", "b", 4)
    assert preempted(cluster.cycles(limit=1)) == ["first", "last"]
    assert recomputations(cluster) == [Recomputation.NEW_TARGETS]


def test_head_is_refused_when_its_targets_are_taken_and_no_others_exist() -> None:
    cluster = SmallCluster()
    cluster.put(
        queue("a", 2, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    cluster.submit("borrower", "c", 4)
    cluster.submit("mine", "b", 2)
    cluster.run("borrower", "mine")
    cluster.submit("one", "a", 2)
    cluster.submit("two", "b", 4)
    cluster.cycles()
    assert cluster.refusal("two") is not None


def test_quota_that_targets_still_hold_is_not_reserved() -> None:
    """Only 2 CPUs are free: a second head cannot reserve what the target of ``preemptor`` still uses."""
    cluster = SmallCluster()
    cluster.put(
        queue("a", 6, "org", preemption=RECLAIM),
        queue("b", 2, "org"),
        queue("c", 2, "org"),
        queue("v", 0, "org"),
    )
    cluster.submit("victim", "v", 8)
    cluster.run("victim")
    cluster.submit("preemptor", "a", 6)
    cluster.submit("f1", "b", 2)
    cluster.submit("f2", "c", 2)
    instructions = cluster.cycles()
    assert len(reserved(instructions)) == 1
    cluster.leave("victim")
