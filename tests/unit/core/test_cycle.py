"""Outcomes of the heads of a cycle, one rule a test."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.instructions import (
    Preempt,
    PreemptionReason,
    Recomputation,
    ReserveQuota,
    TargetsRecomputed,
)
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
    QueueingStrategy,
    StopPolicy,
)
from admitq.core.refusals import (
    NoFlavorFits,
    NoPreemptionTargets,
    OverlappingTargets,
    PodsNotReady,
    PreemptionGated,
    PreemptionsFailed,
    QuotaTakenInCycle,
    WaitingForTargets,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings, Gates
from tests.unit.core.play import LOWER, RECLAIM, Play, group, key, preempted, queue, reported, reserved

STRICT = QueueingStrategy.STRICT_FIFO


def play_with_preemptor(**fields: Any) -> Play:
    """Return a cluster in which ``low`` holds all quota, and ``high`` waits for its preemption."""
    play = Play()
    play.put(queue("q", 4, preemption=LOWER, **fields))
    play.submit("low", "q", 4)
    play.run("low")
    play.submit("high", "q", 3, priority=1)
    assert preempted(play.cycles()) == ["low"]
    return play


def test_blocking_heads_with_untried_flavors_do_not_ask_for_cycles_in_turn() -> None:
    play = Play()
    play.put_flavors("f1", "f2")
    quota = group(("f1", 2), ("f2", 2))
    play.put(
        *(queue(name, cohort="c", resource_groups=quota, queueing_strategy=STRICT) for name in ("s", "t"))
    )
    pods = (
        PodSet("main", 1, template_requesting({"cpu": 1})),
        PodSet("workers", 1, template_requesting({"gpu": 1})),
    )
    play.submit("a", "s", pod_sets=pods)
    play.cycles(limit=1)
    play.submit("b", "t", pod_sets=pods)
    play.cycles(limit=10)
    assert play.is_quiet


def test_reservation_time_is_rounded_down_to_seconds() -> None:
    play = Play(now=7 * SECOND + 123)
    play.put(queue("q", 4))
    play.submit("one", "q")
    play.cycles()
    world = play.state._world  # pyright: ignore[reportPrivateUsage]
    assert world.workloads[key("one")].reserved_at == 7 * SECOND


# --- preemption -----------------------------------------------------------------------------------------


def test_preempt_instruction_names_preemptor_target_and_their_cohort_paths() -> None:
    play = Play()
    play.send(happened.CohortChanged(Cohort("team", "org")))
    play.put(queue("a", 4, "team", preemption=RECLAIM), queue("b", 0, "team"))
    play.submit("borrower", "b", 4)
    play.run("borrower")
    play.submit("owner", "a", 4)
    (preemption,) = (each for each in play.cycles() if isinstance(each, Preempt))
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
    play = play_with_preemptor()
    assert isinstance(reported(play.instructions)["high"], WaitingForTargets)
    assert play.is_quiet
    assert play.cycles() == []
    play.evict("low")
    assert play.is_quiet
    play.leave("low")
    assert play.decide() == ["high"]
    assert play.refusal("low") is not None


def test_evicted_target_is_not_preempted_again() -> None:
    play = Play()
    play.put(queue("q", 4, preemption=LOWER))
    play.submit("low", "q", 2)
    play.submit("evicted", "q", 2)
    play.run("low", "evicted")
    play.evict("evicted")
    play.submit("high", "q", 2, priority=1)
    assert preempted(play.cycles()) == []
    refusal = play.refusal("high")
    assert isinstance(refusal, WaitingForTargets)
    assert refusal.victims == 1


def test_no_workload_behind_a_waiting_preemptor_is_evaluated() -> None:
    play = play_with_preemptor()
    play.submit("small", "q", 1, priority=5)
    assert play.is_quiet
    assert play.decide() == []
    play.leave("low")
    assert play.decide() == ["high", "small"]


@pytest.mark.parametrize("restarted", [False, True])
def test_preemptor_keeps_its_capacity_while_other_heads_are_evaluated(*, restarted: bool) -> None:
    play = Play()
    play.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    play.submit("borrower", "b", 3)
    play.run("borrower")
    play.submit("owner", "a", 4)
    assert preempted(play.cycles()) == ["borrower"]
    if restarted:
        play.restart()
    play.submit("greedy", "b", 1)
    assert play.decide() == []
    assert play.refusal("greedy") == QuotaTakenInCycle()
    assert play.is_quiet
    play.leave("borrower")
    assert play.decide() == ["owner"]


@pytest.mark.parametrize(
    "change",
    [{"generation": 2}, {"active": False}, {"queue_name": "nowhere"}, {"admission_gates": ("gate",)}],
)
def test_preemptor_gives_up_its_capacity_when_it_is_changed(change: dict[str, object]) -> None:
    play = Play()
    play.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    play.submit("borrower", "b", 3)
    play.run("borrower")
    play.submit("owner", "a", 4)
    play.submit("greedy", "b", 1)
    play.decide()
    assert play.is_quiet
    play.change("owner", **change)
    assert not play.is_quiet
    assert play.decide() == ([] if "generation" in change else ["greedy"])


def test_preemptor_gives_up_its_capacity_when_it_is_deleted() -> None:
    play = Play()
    play.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"))
    play.submit("borrower", "b", 3)
    play.run("borrower")
    play.submit("owner", "a", 4)
    play.submit("greedy", "b", 1)
    assert play.decide() == []
    play.delete("owner")
    assert play.decide() == ["greedy"]


def test_preemptor_gives_up_its_capacity_when_its_queue_is_stopped() -> None:
    play = Play()
    owners = queue("a", 4, "org", preemption=RECLAIM)
    play.put(owners, queue("b", 0, "org"))
    play.submit("borrower", "b", 3)
    play.run("borrower")
    play.submit("owner", "a", 4)
    play.submit("greedy", "b", 1)
    assert play.decide() == []
    play.send(happened.ClusterQueueChanged(replace(owners, stop_policy=StopPolicy.HOLD)))
    assert play.decide() == ["greedy"]


def test_preemptor_with_new_generation_loses_its_precedence() -> None:
    play = play_with_preemptor()
    play.submit("higher", "q", 1, priority=5)
    play.change("high", generation=2)
    play.leave("low")
    assert play.decide() == ["higher", "high"]


def test_preemptor_in_strict_queue_can_be_overtaken() -> None:
    play = play_with_preemptor(queueing_strategy=STRICT)
    play.submit("higher", "q", 2, priority=5)
    play.cycles()
    assert isinstance(play.refusal("higher"), WaitingForTargets)
    play.leave("low")
    assert play.decide() == ["higher"]


def test_preemptor_gives_up_its_capacity_when_overtaken_in_strict_queue() -> None:
    play = Play()
    play.put(
        queue("a", 4, "org", preemption=RECLAIM, queueing_strategy=STRICT),
        queue("b", 0, "org"),
        queue("c", 0, "org"),
    )
    play.submit("borrower", "b", 3)
    play.run("borrower")
    play.submit("owner", "a", 4)
    play.submit("greedy", "c", 1)
    assert play.decide() == []
    assert play.is_quiet
    play.submit("impossible", "a", 40, priority=1)
    assert play.decide() == ["greedy"]


def test_preemptor_that_lost_in_cycle_waits_for_its_targets_after_next_cycle() -> None:
    play = Play()
    play.put(queue("a", 4, "org", preemption=RECLAIM), queue("c", 0, "org"), queue("d", 1, "org"))
    play.submit("borrower", "c", 4)
    play.submit("other", "c", 1, priority=1)
    play.run("borrower", "other")
    play.submit("owner", "a", 4)
    assert preempted(play.cycles()) == ["borrower"]
    play.submit("hopeless", "d", 1, priority=5)
    play.cycles(1)
    assert play.refusal("owner") == QuotaTakenInCycle()
    assert not play.is_quiet
    play.cycles()
    assert isinstance(play.refusal("owner"), WaitingForTargets)
    assert play.is_quiet


def test_preemptions_are_decided_again_when_all_of_them_failed() -> None:
    play = Play()
    play.put(queue("q", 4, preemption=LOWER))
    for name in ("one", "two"):
        play.submit(name, "q", 2)
    play.run("one", "two")
    play.submit("high", "q", 4, priority=1)
    assert preempted(play.cycles()) == ["one", "two"]
    assert reported(play.fail("one")) == {}
    failed = reported(play.fail("two"))["high"]
    assert isinstance(failed, PreemptionsFailed)
    assert failed.victims == 2
    assert not play.is_quiet
    second_cycle = play.cycles()
    assert preempted(second_cycle) == ["one", "two"]
    assert isinstance(reported(second_cycle)["high"], WaitingForTargets)


def test_preemption_failure_of_unknown_or_evicted_target_changes_nothing() -> None:
    play = play_with_preemptor()
    assert play.fail("unknown", "high") == []
    assert play.send(happened.PreemptionFailed(key("low"), "uid-of-another")) == []
    play.evict("low")
    assert play.fail("low") == []
    assert play.is_quiet


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
    play = play_with_preemptor()
    play.change("high", **change)
    assert reported(play.fail("low")) == {}
    play.change("high", **back)
    assert preempted(play.cycles()) == ["low"]


def test_new_preemption_does_not_report_former_failures() -> None:
    play = play_with_preemptor()
    play.change("high", admission_gates=("gate",))
    play.change("high", admission_gates=())
    assert reported(play.fail("low")) == {}
    assert preempted(play.cycles()) == ["low"]


def test_failed_preemption_is_decided_again_for_recreated_preemptor() -> None:
    play = play_with_preemptor()
    play.delete("high")
    play.fail("low")
    play.submit("high", "q", 3, priority=1)
    assert preempted(play.cycles()) == ["low"]


def test_workload_does_not_preempt_while_its_preemption_gate_is_closed() -> None:
    play = Play()
    play.put(queue("q", 4, preemption=LOWER))
    play.submit("low", "q", 4)
    play.run("low")
    play.submit("high", "q", 4, priority=1, has_closed_preemption_gate=True)
    instructions = play.cycles()
    assert reported(instructions) == {"high": PreemptionGated()}
    assert preempted(instructions) == []
    play.change("high", has_closed_preemption_gate=False)
    assert preempted(play.cycles()) == ["low"]


# --- no candidates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reclaim", "first_cycle"), [("Never", []), ("LowerPriority", []), ("Any", ["greedy"])]
)
def test_head_without_targets_reserves_capacity_unless_it_can_always_reclaim(
    reclaim: str, first_cycle: list[str]
) -> None:
    play = Play()
    policy = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy(reclaim))
    play.put(queue("a", 4, "org", preemption=policy), queue("b", 2, "org"), queue("c", 0, "org"))
    play.submit("mine", "a", 2)
    play.submit("theirs", "b", 2, priority=9)
    play.run("mine", "theirs")
    play.submit("more", "a", 3)
    play.submit("greedy", "c", 1)
    assert play.decide(1) == first_cycle
    assert isinstance(play.refusal("more"), NoPreemptionTargets)
    assert play.decide() == ([] if first_cycle else ["greedy"])


@pytest.mark.parametrize(("limit", "is_reserved"), [(None, True), (3, True), (0, False)])
def test_borrowing_head_without_targets_reserves_up_to_its_borrowing_limit(
    limit: int | None, *, is_reserved: bool
) -> None:
    """The queue could reclaim quota within cohort ``left``; therefore a borrowing head may preempt."""
    play = Play()
    play.send(happened.CohortChanged(Cohort("left", "root")))
    play.put(
        queue("a", cohort="left", resource_groups=group(("default", 1), limit=limit)),
        queue("b", 3, "left"),
        queue("c", 1, "root"),
        queue("d", 0, "root"),
    )
    play.submit("far", "c", 4)
    play.run("far")
    play.submit("more", "a", 2)
    play.submit("greedy", "d", 1, priority=-1)
    admitted = play.decide(1)
    assert admitted == ([] if is_reserved else ["greedy"])


# --- targets of other heads -----------------------------------------------------------------------------


def two_owners_of_borrowed_quota(gates: Gates = Gates(), **fields: object) -> Play:  # noqa: B008 frozen
    """Return a cluster in which a borrower holds all quota of two ClusterQueues of 4 CPUs."""
    play = Play(CoreSettings(gates=gates))
    play.put(
        queue("a", 4, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    play.submit("borrower", "c", 8)
    play.run("borrower")
    return play


def recomputations(play: Play) -> list[Recomputation]:
    return [each.result for each in play.instructions if isinstance(each, TargetsRecomputed)]


def test_head_waits_for_target_of_another_head_when_both_will_fit() -> None:
    play = two_owners_of_borrowed_quota()
    play.submit("one", "a", 4)
    play.submit("two", "b", 4)
    assert preempted(play.cycles(limit=1)) == ["borrower"]
    assert play.refusal("two") == OverlappingTargets(will_fit=True)
    assert recomputations(play) == [Recomputation.DEFERRED_FIT]
    play.submit("greedy", "c", 1)
    assert play.decide() == []
    play.leave("borrower")
    assert play.decide() == ["one", "two"]


def test_head_with_overlapping_targets_loses_when_recomputation_gate_is_off() -> None:
    play = two_owners_of_borrowed_quota(Gates(recompute_assignment_upon_preemption_targets_overlap=False))
    play.submit("one", "a", 4)
    play.submit("two", "b", 4)
    assert preempted(play.cycles()) == ["borrower"]
    assert play.refusal("two") == OverlappingTargets(will_fit=False)
    assert recomputations(play) == []
    assert play.is_quiet
    play.leave("borrower")
    assert play.decide() == ["one", "two"]


def test_head_gets_other_targets_when_its_targets_are_taken() -> None:
    play = Play()
    play.put(
        queue("a", 4, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    play.submit("first", "c", 4)
    play.run("first")
    play.now += SECOND
    play.submit("last", "c", 4)
    play.run("last")
    play.submit("one", "a", 4)
    play.submit("two", "b", 4)
    assert preempted(play.cycles(limit=1)) == ["first", "last"]
    assert recomputations(play) == [Recomputation.NEW_TARGETS]


def test_head_is_refused_when_its_targets_are_taken_and_no_others_exist() -> None:
    play = Play()
    play.put(
        queue("a", 2, "org", preemption=RECLAIM),
        queue("b", 4, "org", preemption=RECLAIM),
        queue("c", 0, "org"),
    )
    play.submit("borrower", "c", 4)
    play.submit("mine", "b", 2)
    play.run("borrower", "mine")
    play.submit("one", "a", 2)
    play.submit("two", "b", 4)
    play.cycles()
    assert play.refusal("two") is not None


def test_quota_that_targets_still_hold_is_not_reserved() -> None:
    """Only 2 CPUs are free: a second head cannot reserve what the target of ``preemptor`` still uses."""
    play = Play()
    play.put(
        queue("a", 6, "org", preemption=RECLAIM),
        queue("b", 2, "org"),
        queue("c", 2, "org"),
        queue("v", 0, "org"),
    )
    play.submit("victim", "v", 8)
    play.run("victim")
    play.submit("preemptor", "a", 6)
    play.submit("f1", "b", 2)
    play.submit("f2", "c", 2)
    instructions = play.cycles()
    assert len(reserved(instructions)) == 1
    play.leave("victim")


# --- blocked until pods are ready -----------------------------------------------------------------------


def test_admission_waits_until_pods_are_ready() -> None:
    play = Play(CoreSettings(block_admission=True))
    play.put(queue("a", 4), queue("b", 4))
    for name, cluster_queue in (("one", "a"), ("two", "a"), ("three", "b")):
        play.submit(name, cluster_queue)
    assert play.decide() == ["one"]
    assert play.refusal("three") == PodsNotReady()
    assert play.is_quiet
    assert play.cycles() == []
    play.restart()
    assert play.is_quiet
    play.change("one", pods_ready=True)
    assert not play.is_quiet
    assert play.decide() == ["two"]
    play.finish("two")
    assert play.decide() == ["three"]
    play.delete("three")
    assert play.is_quiet


def test_admission_does_not_wait_for_pods_of_workload_in_unknown_cluster_queue() -> None:
    play = Play(CoreSettings(block_admission=True))
    play.put(queue("a", 4))
    assigned = PodSetAssignment("main", (("cpu", "default"),), (("cpu", 1),), 1)
    play.submit("theirs", "later", admission=Admission("later", (assigned,)), admitted=True, reserved_at=5)
    play.submit("one", "a")
    assert play.decide() == ["one"]
    play.change("one", pods_ready=True)
    play.submit("two", "a")
    play.put(queue("later", 4))
    assert play.decide() == []
    assert play.refusal("two") == PodsNotReady()
    play.send(happened.ClusterQueueDeleted("later"))
    assert play.decide() == ["two"]


def test_admission_does_not_wait_for_pods_of_workload_that_only_reserved() -> None:
    play = Play(CoreSettings(block_admission=True))
    play.send(happened.AdmissionCheckChanged(AdmissionCheck("check", "example.com/check", active=True)))
    play.put(queue("q", 4, admission_checks=(AdmissionCheckRule("check"),)))
    play.submit("one", "q")
    play.submit("two", "q")
    assert play.decide() == ["one", "two"]


# --- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gate", "first"), [(True, "urgent"), (False, "early")])
def test_priority_orders_heads_of_cohort_only_when_gate_is_on(*, gate: bool, first: str) -> None:
    play = Play(CoreSettings(gates=Gates(priority_sorting_within_cohort=gate)))
    play.send(happened.CohortChanged(replace(Cohort("org"), resource_groups=group(("default", 1)))))
    play.put(queue("a", 0, "org"), queue("b", 0, "org"))
    play.submit("early", "a")
    play.submit("urgent", "b", priority=1)
    assert play.decide()[0] == first


def test_workload_that_exceeds_quota_is_refused_and_parked() -> None:
    play = Play()
    play.put(queue("q", 1))
    play.submit("large", "q", 2)
    assert isinstance(reported(play.cycles())["large"], NoFlavorFits)
    assert play.is_quiet


def test_head_not_processed_when_admission_is_halted_keeps_its_wait_state() -> None:
    """Admission is halted in the middle of a cycle, before all heads are processed."""
    play = Play(CoreSettings(block_admission=True))
    play.put(queue("a", 4, "org", preemption=RECLAIM), queue("b", 0, "org"), queue("c", 1), queue("d", 1))
    play.submit("borrower", "b", 4)
    play.run("borrower")
    play.submit("owner", "a", 4)
    assert preempted(play.cycles()) == ["borrower"]
    play.submit("sound", "b", 0, priority=9)
    play.submit("other", "c", 1, priority=9)
    play.submit("last", "d", 1)
    assert play.decide() == []
    halted = [name for name in ("sound", "other") if play.refusal(name) == PodsNotReady()]
    assert len(halted) == 1
    assert play.refusal("last") is None
    assert isinstance(play.refusal("owner"), WaitingForTargets)
    play.change("borrower", pods_ready=True)
    assert len(play.decide()) == 1


def test_scan_continues_after_a_flavor_without_targets() -> None:
    play = Play()
    play.put_flavors("second")
    policy = ClusterQueuePreemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    owner = queue(
        "a",
        cohort="org",
        resource_groups=group(("default", 2), ("second", 0)),
        preemption=policy,
        flavor_fungibility=FlavorFungibility(when_can_preempt=FlavorFungibilityPolicy.MAY_STOP_SEARCH),
    )
    play.put(owner, queue("b", cohort="org", resource_groups=group(("default", 0), ("second", 2))))
    play.submit("theirs", "b", 2, priority=9)
    play.run("theirs")
    play.submit("job", "a", 2)
    assert play.decide() == ["job"]


@pytest.mark.parametrize(("preserve", "flavor"), [(True, "second"), (False, "default")])
def test_head_that_lost_continues_with_next_flavor_only_when_gate_is_on(
    *, preserve: bool, flavor: str
) -> None:
    play = Play(CoreSettings(gates=Gates(flavor_fungibility_preserve_scan_progress=preserve)))
    play.put_flavors("second")
    flavors = group(("default", 2), ("second", 2))
    play.send(happened.CohortChanged(Cohort("org", None, flavors)))
    no_quota = group(("default", 0), ("second", 0))
    play.put(*(queue(name, cohort="org", resource_groups=no_quota) for name in "ab"))
    play.submit("first", "a", 2)
    play.submit("second", "b", 2)
    assert play.decide(1) == ["first"]
    play.finish("first")
    reservations = [each for each in play.cycles(1) if isinstance(each, ReserveQuota)]
    assert [
        dict(part.flavors)["cpu"] for each in reservations for part in each.admission.pod_set_assignments
    ] == [flavor]
