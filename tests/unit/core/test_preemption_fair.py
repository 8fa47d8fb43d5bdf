"""Fair preemption: target queues, strategies, comparison below the lowest common cohort, fill back."""

import pytest

from admitq.core.model import ClusterQueuePreemption, ResourceQuota, StopPolicy
from admitq.core.settings import FairSharing, Gates, PreemptionStrategy, Settings
from tests.unit.core.stage import NamesAndReasons, Stage, Weight, policy

OWN = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
BY_SHARE = "InCohortFairSharing"

FINAL = PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = PreemptionStrategy.LESS_THAN_INITIAL_SHARE

RECLAIM_ANY = policy("LowerPriority", "Any")


def fair(*strategies: PreemptionStrategy, unasked: bool = True) -> Stage:
    return Stage(
        Settings(
            fair_sharing=FairSharing(strategies or (FINAL, INITIAL)),
            gates=Gates(fair_sharing_preempt_within_nominal=unasked),
        )
    )


def three(stage: Stage, nominal: int = 3, **weights: Weight) -> Stage:
    """Three ClusterQueues a, b, c of equal quota."""
    for name in "abc":
        stage.queue(name, "all", nominal, RECLAIM_ANY, weight=weights.get(name, 1))
    return stage


def fill(stage: Stage, **workloads: int) -> None:
    """Workloads of one each, the first of a queue the last to go."""
    for queue, count in workloads.items():
        for number in range(count):
            stage.add_holder(queue, f"{queue}{number + 1}", 1, since=number)


# --- targets ----------------------------------------------------------------------------------------


def test_preemptor_within_nominal_reclaims_from_the_largest_borrower() -> None:
    stage = three(fair())
    fill(stage, a=1, b=5, c=3)
    assert stage.victims("a", 1) == [("b5", RECLAIMED)]


def test_targets_are_ranked_anew_after_each_step() -> None:
    stage = three(fair())
    fill(stage, b=5, c=4)
    # 2 and 1 borrowed: b gives one; then they are even, and the better candidate goes.
    assert stage.victims("a", 3) == [("b5", RECLAIMED), ("b4", RECLAIMED), ("c4", RECLAIMED)]


def test_targets_alternate_by_current_share() -> None:
    stage = fair()
    stage.cohort("all", None, 2)
    three(stage)
    fill(stage, b=4, c=5)
    stage.add_holder("b", "big", 2, since=9)
    # 3 and 2 borrowed: without the big one b has borrowed 1, and so c is next.
    assert stage.victims("a", 3) == [("big", RECLAIMED), ("c5", RECLAIMED)]


def test_of_even_shares_the_better_candidate_goes() -> None:
    stage = three(fair())
    fill(stage, b=3, c=4)
    stage.add_holder("b", "low", 1, priority=-1)
    assert stage.victim_names("a", 2) == ["low"]


def test_of_even_shares_the_evicted_goes() -> None:
    stage = three(fair())
    fill(stage, b=3, c=3)
    stage.add_holder("b", "stays", 1, priority=-9)
    stage.add_holder("c", "leaves", 1, evicted=True)
    assert stage.victim_names("a", 2) == ["leaves"]


def test_of_even_shares_others_go_before_own() -> None:
    stage = fair()
    stage.cohort("all", None, {"cpu": 2, "gpu": 6})
    stage.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    stage.queue("b", "all", {"cpu": 0, "gpu": 0})
    stage.add_holder("a", "own", {"cpu": 2, "gpu": 4}, priority=-9)
    stage.add_holder("b", "other", {"cpu": 4})
    # 4 of 6 cpus are borrowed by b, 4 of 6 gpus by a.
    assert stage.victims("a", {"cpu": 1}) == [("other", RECLAIMED)]


def test_of_even_shares_a_cohort_goes_before_a_queue() -> None:
    stage = fair()
    stage.cohort("all", None, 2)
    stage.cohort("team", "all")
    stage.queue("a", "all", 1, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.queue("t", "team", 1)
    stage.add_holder("b", "b", 2, priority=-9)
    stage.add_holder("t", "t1", 2)
    stage.add_holder("t", "t2", 1, priority=9)
    # b and team have borrowed 2 each; but only what is asked for is taken.
    assert stage.victim_names("a", 1) == ["t1"]


def test_of_even_cohorts_the_first_by_name_gives() -> None:
    stage = fair()
    stage.queue("a", "all", 4, RECLAIM_ANY)
    for name in ("y", "x"):
        stage.cohort(name, "all")
        stage.queue(f"q{name}", name, 0)
        stage.add_holder(f"q{name}", name, 2)
    assert stage.victim_names("a", 1) == ["x"]


def test_queue_that_does_not_borrow_the_contested_resource_is_no_target() -> None:
    stage = fair()
    stage.queue("a", "all", {"cpu": 2, "gpu": 4}, RECLAIM_ANY)
    stage.queue("b", "all", {"cpu": 2, "gpu": 0}, RECLAIM_ANY)
    stage.queue("c", "all", {"cpu": 2, "gpu": 0}, RECLAIM_ANY)
    stage.add_holder("b", "both", {"cpu": 2, "gpu": 4})
    stage.add_holder("c", "cpus", {"cpu": 3})
    assert stage.victim_names("a", {"cpu": 2}) == ["cpus"]


def test_a_queue_back_within_its_quota_gives_no_more() -> None:
    stage = three(fair())
    fill(stage, b=5, c=4)
    assert stage.victim_names("a", 3) == ["b5", "b4", "c4"]
    assert stage.victim_names("a", 4) == []


def test_a_cohort_within_its_quota_is_left_alone() -> None:
    stage = fair()
    stage.cohort("team", "all", 4)
    stage.queue("a", "all", 3, RECLAIM_ANY)
    stage.queue("b", "all", 0, RECLAIM_ANY)
    stage.queue("t", "team", 0)
    stage.add_holder("t", "t", 4)
    stage.add_holder("b", "b", 3)
    assert stage.victim_names("a", 1) == ["b"]


def test_a_cohort_back_within_its_quota_is_left_alone() -> None:
    stage = fair()
    stage.cohort("team", "all", 2)
    stage.queue("a", "all", 4, policy(reclaim="LowerPriority"))
    stage.queue("t", "team", 0)
    stage.queue("x", "all", 0)
    fill(stage, t=5)
    stage.add_holder("x", "high", 1, priority=9)
    assert stage.victim_names("a", 3, priority=5) == ["t5", "t4", "t3"]
    assert stage.victim_names("a", 4, priority=5) == []


def test_cohorts_on_the_way_are_gone_through_although_they_borrow_nothing() -> None:
    stage = fair()
    stage.cohort("team", "all", 2)
    stage.queue("a", "team", 0, RECLAIM_ANY)
    stage.queue("b", "team", 0)
    fill(stage, b=2)
    stage.queue("other", "all", 4)
    fill(stage, other=4)
    assert stage.victims("a", 1) == [("b2", BY_SHARE)]


def test_a_cohort_without_candidates_is_passed_over() -> None:
    stage = fair()
    stage.cohort("team", "all")
    stage.queue("a", "all", 4, policy(reclaim="LowerPriority"))
    stage.queue("t", "team", 0)
    stage.queue("b", "all", 0)
    stage.add_holder("t", "high", 3, priority=9)
    stage.add_holder("b", "low", 1)
    assert stage.victim_names("a", 1, priority=1) == ["low"]


def test_a_stopped_queue_is_no_target() -> None:
    stage = fair()
    stage.queue("a", "all", 4, RECLAIM_ANY)
    stage.queue("b", "all", 0, stop_policy=StopPolicy.HOLD)
    stage.add_holder("b", "b", 4)
    assert stage.victim_names("a", 1) == []


def test_without_cohort_the_own_candidates_go_in_order() -> None:
    stage = fair()
    stage.queue("a", None, 3, RECLAIM_ANY)
    fill(stage, a=3)
    assert stage.victims("a", 2, priority=1) == [("a3", OWN), ("a2", OWN)]
    assert stage.victims("a", 2) == []


@pytest.mark.parametrize(
    ("preemption", "found"),
    [
        (policy("Never", "Never"), []),
        (policy("LowerPriority", "Never"), ["own"]),
        (policy("Never", "LowerPriority"), ["low"]),
        (policy("Never", "Any"), ["low"]),
    ],
)
def test_policies_of_the_two_kinds_of_targets(preemption: object, found: list[str]) -> None:
    stage = fair()
    stage.queue("a", "all", 2, preemption)  # pyright: ignore[reportArgumentType]
    stage.queue("b", "all", 0)
    stage.add_holder("a", "own", 1)
    stage.add_holder("b", "low", 1, priority=1)
    assert stage.victim_names("a", 1, priority=5) == found


# --- strategies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategies", "b", "c", "found"),
    [
        # a has 3 of its 3 and asks for 1 more: its share with it is that of 1 borrowed.
        ((FINAL,), 5, 1, [("b5", BY_SHARE)]),  # 1 <= 2 - 1
        ((FINAL,), 4, 2, []),  # 1 > 1 - 1
        ((INITIAL,), 5, 1, [("b5", BY_SHARE)]),  # 1 < 2
        ((INITIAL,), 4, 2, []),  # 1 == 1
        ((FINAL, INITIAL), 4, 2, []),
        ((FINAL, INITIAL), 6, 0, [("b6", BY_SHARE)]),
    ],
)
def test_strategies(
    strategies: tuple[PreemptionStrategy, ...], b: int, c: int, found: NamesAndReasons
) -> None:
    stage = three(fair(*strategies))
    fill(stage, a=3, b=b, c=c)
    assert stage.victims("a", 1) == found


@pytest.mark.parametrize(
    ("strategies", "found"),
    [((FINAL,), []), ((INITIAL,), ["big"]), ((FINAL, INITIAL), ["big"])],
)
def test_a_big_workload_goes_only_by_the_initial_share(
    strategies: tuple[PreemptionStrategy, ...], found: list[str]
) -> None:
    stage = fair(*strategies)
    stage.cohort("all", None, 6)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.add_holder("b", "big", 6)
    # 3 > 6 - 6, but 3 < 6.
    assert stage.victim_names("a", 3) == found


def test_rejected_candidates_are_followed_by_accepted_ones() -> None:
    stage = fair(FINAL)
    stage.cohort("all", None, 15)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.add_holder("b", "big 1", 4, priority=0)
    stage.add_holder("b", "big 2", 4, priority=1)
    stage.add_holder("b", "small", 2, priority=2)
    assert stage.victim_names("a", 6) == ["big 1"]  # 6 <= 10 - 4
    assert stage.victim_names("a", 7) == ["small"]  # 7 > 10 - 4, twice; 7 <= 10 - 2
    assert stage.victim_names("a", 8) == []  # 8 <= 10 - 2, which is not enough
    assert stage.victim_names("a", 9) == []  # 9 > 10 - 2


def test_the_second_strategy_takes_one_of_each_queue_at_most() -> None:
    stage = fair()
    stage.cohort("all", None, 12)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.queue("c", "all", 0)
    for queue in ("b", "c"):
        for number in range(2):
            stage.add_holder(queue, f"{queue}{number}", 3, since=number)
    # 5 would be borrowed by a; 6 by each. 5 > 6 - 3, so all are rejected first; 5 < 6, so one of each goes.
    assert stage.victims("a", 5) == [("b1", BY_SHARE), ("c1", BY_SHARE)]
    # 7 of 12 need three of them, and 7 is more than any queue has borrowed.
    assert stage.victims("a", 7) == []


@pytest.mark.parametrize(
    ("capacity", "victims"),
    [
        (17, [("own", OWN), ("b5", BY_SHARE)]),
        # It would take two of b.
        (16, []),
    ],
)
def test_the_second_strategy_takes_no_second_even_where_the_preemptor_has_become_poorer(
    capacity: int, victims: NamesAndReasons
) -> None:
    stage = fair()
    stage.cohort("all", None, capacity)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.add_holder("a", "own", 4)
    for number in range(6):
        stage.add_holder("b", f"b{number}", 2, since=number)
    # 11 > 12 - 2, so all of b are rejected; then its own goes, and 7 < 12, so one of b may.
    assert stage.victims("a", 7, priority=5) == victims


def test_the_second_strategy_stops_where_it_does_not_allow() -> None:
    stage = fair()
    stage.cohort("all", None, 11)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.queue("c", "all", 0)
    for queue, amounts in (("b", (3, 3)), ("c", (3, 2))):
        for number, amount in enumerate(amounts):
            stage.add_holder(queue, f"{queue}{number}", amount, since=-number)
    # 5 < 6 lets one of b go, 5 < 5 none of c.
    assert stage.victims("a", 5) == []


def test_cluster_queues_below_the_preemptors_share_lose_no_more() -> None:
    stage = fair(INITIAL)
    stage.cohort("all", None, 11)
    stage.queue("a", "all", 0, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.queue("c", "all", 0)
    stage.add_holder("b", "large", 5)
    stage.add_holder("b", "small", 3, priority=1)
    stage.add_holder("c", "other", 4, priority=2)
    # Without "large", 4 are free, and both have borrowed less than the 5 of the preemptor.
    assert stage.victims("a", 5) == []
    assert stage.victims("a", 4) == [("large", BY_SHARE)]


# --- preemptors within nominal quota ----------------------------------------------------------------


@pytest.mark.parametrize(("unasked", "found"), [(True, [("big", RECLAIMED)]), (False, [])])
def test_preemptor_within_nominal_quota_needs_no_comparison(unasked: bool, found: NamesAndReasons) -> None:
    stage = fair(FINAL, unasked=unasked)
    stage.cohort("all", None, {"cpu": 0, "gpu": 9})
    stage.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    stage.queue("b", "all", {"cpu": 0, "gpu": 0})
    stage.add_holder("a", "gpus", {"gpu": 1})
    stage.add_holder("b", "big", {"cpu": 4})
    # By gpus a has a share of a ninth, b's final share is none.
    assert stage.victims("a", {"cpu": 1}) == found


@pytest.mark.parametrize(("unasked", "found"), [(True, [("b1", RECLAIMED)]), (False, [])])
def test_preemptor_within_nominal_quota_with_greater_share_of_another_resource_reclaims_by_gate(
    unasked: bool, found: NamesAndReasons
) -> None:
    stage = fair(unasked=unasked)
    stage.cohort("all", None, {"gpu": 4})
    stage.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    stage.queue("b", "all", {"cpu": 0, "gpu": 0}, RECLAIM_ANY)
    stage.add_holder("a", "borrows gpus", {"gpu": 4}, priority=9)
    stage.add_holder("b", "b1", 1)
    assert stage.victims("a", 4) == found


def test_preemptor_without_borrowing_is_below_every_initial_share_without_gate() -> None:
    stage = fair(unasked=False)
    stage.queue("a", "all", 4, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.add_holder("b", "big", 4)
    assert stage.victims("a", 1) == [("big", BY_SHARE)]


def test_own_victims_may_bring_the_preemptor_within_its_nominal_quota() -> None:
    stage = fair(FINAL)
    stage.queue("a", "all", 4, RECLAIM_ANY)
    stage.queue("b", "all", 0, weight=3)
    stage.add_holder("a", "own", 2)
    stage.add_holder("b", "b", 2)
    # 2 borrowed are a higher share than 2 with three times the weight: own first, and then none.
    assert sorted(stage.victims("a", 4, priority=1)) == [("b", RECLAIMED), ("own", OWN)]


# --- almost-lowest common ancestors -----------------------------------------------------------------


def teams(stage: Stage) -> None:
    """Two teams of two queues, each team with 4 of its own; the root has 8 more."""
    stage.cohort("root", None, 8)
    for team in ("left", "right"):
        stage.cohort(team, "root", 4)
        for number in (1, 2):
            stage.queue(f"{team}{number}", team, 0, RECLAIM_ANY)


def test_teams_are_compared_not_their_queues() -> None:
    stage = fair(FINAL)
    teams(stage)
    fill(stage, left1=7, right1=5, right2=4)
    # left with one more has borrowed 4, right 5: 4 <= 5 - 1. That left1 has more than right1 does not count.
    assert stage.victims("left1", 1) == [("right15", BY_SHARE)]


def test_a_team_that_borrowed_less_is_left_alone_whatever_its_queues_have() -> None:
    stage = fair(FINAL)
    teams(stage)
    fill(stage, left1=4, left2=4, right1=8)
    # left2 with one more has 5, right1 has 8; but left would have 5 borrowed, right has 4.
    assert stage.victims("left2", 1) == []


def test_within_a_team_its_queues_are_compared() -> None:
    stage = fair(FINAL)
    teams(stage)
    fill(stage, left1=6, left2=2, right1=8)
    assert stage.victims("left2", 1) == [("left16", BY_SHARE)]


# --- weights ----------------------------------------------------------------------------------------


def test_a_greater_weight_protects() -> None:
    stage = three(fair(), b=2)
    fill(stage, b=5, c=4)
    # 2 borrowed of weight 2 are no more than 1 of weight 1; the more recent of the two goes.
    assert stage.victim_names("a", 1) == ["b5"]
    stage.queue("b", "all", 3, RECLAIM_ANY, weight=4)
    assert stage.victim_names("a", 1) == ["c4"]


def test_weight_0_gives_first() -> None:
    stage = three(fair(), c=0)
    fill(stage, b=5, c=4)
    assert stage.victim_names("a", 3) == ["c4", "b5", "b4"]


def test_weight_0_within_nominal_quota_gives_nothing() -> None:
    stage = three(fair(), c=0)
    fill(stage, b=5, c=3)
    assert stage.victim_names("a", 3) == ["b5", "b4"]
    assert stage.victim_names("a", 4) == []


def test_borrowing_preemptor_with_weight_0_preempts_no_finite_share() -> None:
    stage = three(fair(), a=0)
    fill(stage, a=3, b=6)
    assert stage.victim_names("a", 1) == []
    stage.remove_holder("a1")
    stage.add_holder("b", "b7", 1)
    assert stage.victims("a", 1) == [("b6", RECLAIMED)]


def test_two_queues_with_weight_0_compare_by_unweighted_share() -> None:
    stage = three(fair(FINAL), a=0, b=0)
    fill(stage, a=3, b=6)
    assert stage.victim_names("a", 1) == ["b6"]
    assert stage.victim_names("a", 2) == []


@pytest.mark.parametrize("weight", ["1/1000000000", "1e-300"])
def test_tiny_weight_within_nominal_quota_is_no_target(weight: str) -> None:
    stage = three(fair(), b=weight)
    fill(stage, b=3, c=6)
    assert stage.victim_names("a", 1) == ["c6"]


# --- fill back, ties --------------------------------------------------------------------------------


def test_unneeded_target_is_spared() -> None:
    stage = fair()
    stage.queue("a", "all", 4, RECLAIM_ANY)
    stage.queue("b", "all", 0)
    stage.add_holder("b", "small", 1)
    stage.add_holder("b", "big", 3, priority=1)
    assert stage.victim_names("a", 3) == ["big"]
    assert stage.victim_names("a", 4) == ["small", "big"]


def test_a_borrowing_limit_binds() -> None:
    stage = fair()
    stage.cohort("all", None, 4)
    stage.queue("a", "all", ResourceQuota(1, borrowing_limit=1), RECLAIM_ANY)
    stage.queue("b", "all", 0)
    fill(stage, b=5)
    assert stage.victim_names("a", 2) == ["b5", "b4"]
    assert stage.victim_names("a", 3) == []


def test_removal_of_a_non_dominant_resource_keeps_the_share() -> None:
    stage = fair(FINAL)
    stage.cohort("all", None, {"cpu": 10, "gpu": 2})
    stage.queue("a", "all", {"gpu": 0}, RECLAIM_ANY)
    stage.queue("b", "all", {"gpu": 0})
    stage.add_holder("b", "cpus", {"cpu": 10})
    stage.add_holder("b", "gpus", {"gpu": 2})
    # All of the GPUs are as great a share as all of the CPUs, which b keeps.
    assert stage.victims("a", {"gpu": 2}) == [("gpus", BY_SHARE)]


def test_own_candidates_go_even_where_the_cohort_has_enough() -> None:
    stage = fair()
    stage.cohort("left", "root")
    stage.queue("a", "left", ResourceQuota(1, borrowing_limit=0), RECLAIM_ANY)
    stage.queue("b", "left", 10)
    stage.add_holder("a", "mine", 1)
    assert stage.victims("a", 1, priority=5) == [("mine", OWN)]


def test_ties_do_not_depend_on_the_order_of_arrival() -> None:
    found: set[tuple[str, ...]] = set()
    names = ["b", "c", "d", "e"]
    for turn in range(4):
        stage = fair()
        order = names[turn:] + names[:turn]
        for name in order:
            stage.queue(name, "all", 0)
        stage.queue("a", "all", 8, RECLAIM_ANY)
        for name in order:
            stage.add_holder(name, f"{name}1", 1)
            stage.add_holder(name, f"{name}2", 1)
        found.add(tuple(stage.victim_names("a", 3)))
    assert found == {("b1", "c1", "d1")}


# --- candidates that are passed over ------------------------------------------------------------------


def beside_two_queues(preemption: ClusterQueuePreemption) -> Stage:
    """Queue a, with a candidate of its own, and queues b and c of a cohort beside its cohort."""
    stage = fair(FINAL, unasked=False)
    stage.cohort("root", None, 11)
    stage.cohort("mine", "root")
    stage.cohort("other", "root")
    stage.queue("a", "mine", 0, preemption)
    stage.queue("b", "other", 0)
    stage.queue("c", "other", 0)
    stage.add_holder("a", "own", 2, priority=-1)
    stage.add_holder("a", "stays", 1, priority=9)
    return stage


def test_share_falls_before_a_queue_is_reached_decides_for_it() -> None:
    stage = fair(FINAL, unasked=False)
    stage.cohort("all", None, 4)
    stage.queue("a", "all", 1, policy("LowerPriority", "LowerOrNewerEqualPriority"))
    stage.queue("b", "all", 1)
    stage.add_holder("a", "leaving", 1, priority=-1, evicted=True)
    stage.add_holder("a", "stays", 1, priority=9)
    stage.add_holder("b", "older", 1, queued=0, evicted=True)
    stage.add_holder("b", "newer", 1, queued=9)
    stage.add_holder("b", "higher", 2, priority=9)
    # Shares are even, and what is leaving goes first. In b that is no candidate, because it is older.
    assert stage.victims("a", 2, queued=5) == [("leaving", OWN), ("newer", BY_SHARE)]


def test_share_falls_before_a_queue_of_another_cohort_is_reached_decides_for_it() -> None:
    stage = beside_two_queues(policy("LowerPriority", "LowerOrNewerEqualPriority"))
    stage.add_holder("b", "older", 2, queued=0, evicted=True)
    stage.add_holder("b", "newer", 2, queued=9)
    stage.add_holder("c", "lower", 1, priority=-1)
    stage.add_holder("c", "higher", 3, priority=9)
    # 7 against 8: the lower one of c may go, and then the own one. Only then b is reached, 5 against 7.
    assert stage.victims("a", 4, queued=5) == [("newer", BY_SHARE), ("own", OWN)]


def test_rejected_candidate_share_falls_later_stays_rejected() -> None:
    stage = beside_two_queues(RECLAIM_ANY)
    stage.add_holder("b", "b1", 2, since=1)
    stage.add_holder("b", "b2", 5)
    stage.add_holder("c", "c1", 1)
    # 7 against 8: b has the greater share and is rejected, c gives one. With the own one that is not enough.
    assert stage.victims("a", 4) == []


def test_rejected_candidate_another_queue_gives_twice_stays_rejected() -> None:
    stage = fair(FINAL, unasked=False)
    stage.cohort("root", None, 11)
    stage.cohort("mine", "root")
    stage.cohort("other", "root")
    stage.queue("a", "mine", 0, RECLAIM_ANY)
    stage.queue("b", "other", 0)
    stage.queue("c", "other", 0)
    stage.add_holder("a", "own", 2, priority=-1)
    for name, size in {"b1": 2, "b2": 2, "c1": 1, "c2": 1, "c3": 3}.items():
        stage.add_holder(name[0], name, size)
    # 7 against 9: c gives one, b is rejected, c gives another one, then the own one goes.
    assert stage.victims("a", 5) == []


def test_rejected_sibling_share_falls_later_stays_rejected() -> None:
    stage = fair(FINAL, unasked=False)
    stage.cohort("all", None, 7)
    for name in "ab":
        stage.queue(name, "all", 0, RECLAIM_ANY)
    stage.add_holder("a", "own", 2, priority=-1)
    stage.add_holder("b", "b1", 3)
    stage.add_holder("b", "b2", 2)
    # 4 against 5, and 2 or 3 without a candidate: b is rejected before the own one is reached.
    assert stage.victims("a", 3) == []
    assert stage.victims("a", 2) == [("own", OWN)]


@pytest.mark.parametrize(("request_of_a", "victims"), [(4, [("b1", BY_SHARE)]), (5, [])])
def test_cohort_keeps_quota_from_lending_its_share_falls_by_less(
    request_of_a: int, victims: NamesAndReasons
) -> None:
    stage = fair(FINAL, unasked=False)
    stage.cohort("root", None, 4 + request_of_a)
    stage.cohort("other", "root")
    stage.cohort("deep", "other", ResourceQuota(4, lending_limit=1))
    stage.queue("a", "root", 0, policy("LowerPriority", "LowerPriority"))
    stage.queue("b", "deep", 0)
    stage.queue("c", "other", 0)
    stage.add_holder("b", "b1", 4)
    stage.add_holder("b", "b2", 1, priority=9)
    stage.add_holder("c", "c1", 5, priority=9)
    # deep takes 2 beyond what it keeps for itself, and nothing without b1: 6 are borrowed in other, then 4.
    assert stage.victims("a", request_of_a, priority=1) == victims


def test_cohort_keeps_quota_of_one_resource_from_lending_its_share_does_not_fall() -> None:
    stage = fair(FINAL, unasked=False)
    stage.cohort("root", None, {"cpu": 6, "gpu": 10})
    stage.cohort("other", "root", {"cpu": 0, "gpu": 0})
    stage.cohort("deep", "other", {"cpu": ResourceQuota(5, lending_limit=2), "gpu": 0})
    for name, cohort in (("a", "root"), ("b", "deep"), ("c", "other"), ("d", "root")):
        stage.queue(name, cohort, {"cpu": 0, "gpu": 0}, RECLAIM_ANY)
    stage.add_holder("b", "b1", {"cpu": 2, "gpu": 1})
    stage.add_holder("c", "c1", {"cpu": 5, "gpu": 1}, priority=9)
    stage.add_holder("d", "d1", {"gpu": 8}, priority=9)
    # 3 of 8 CPUs on both sides, also without b1: deep does not borrow the CPUs that it uses.
    found = stage.victims("a", {"cpu": 3, "gpu": 1}, contested=["cpu", "gpu"], priority=1)
    assert found == [("b1", BY_SHARE)]
