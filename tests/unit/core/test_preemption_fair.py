"""Fair preemption: target queues, strategies, comparison below the lowest common cohort, fill back."""

import pytest

from admitq.core.model import ClusterQueuePreemption, ResourceQuota, StopPolicy
from admitq.core.settings import CoreSettings, FairSharing, Gates, PreemptionStrategy
from tests.unit.core.quota_trees import NamesAndReasons, QuotaTrees, Weight, policy

OWN = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
BY_SHARE = "InCohortFairSharing"

FINAL = PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = PreemptionStrategy.LESS_THAN_INITIAL_SHARE

RECLAIM_ANY = policy("LowerPriority", "Any")


def fair(*strategies: PreemptionStrategy, within_nominal: bool = True) -> QuotaTrees:
    return QuotaTrees(
        CoreSettings(
            fair_sharing=FairSharing(strategies or (FINAL, INITIAL)),
            gates=Gates(fair_sharing_preempt_within_nominal=within_nominal),
        )
    )


def with_three_queues(trees: QuotaTrees, nominal: int = 3, **weights: Weight) -> QuotaTrees:
    """Add ClusterQueues a, b and c of equal quota."""
    for name in "abc":
        trees.queue(name, "all", nominal, RECLAIM_ANY, weight=weights.get(name, 1))
    return trees


def fill(trees: QuotaTrees, **workloads: int) -> None:
    """Add workloads of 1 CPU; the first workload of a queue is its last candidate."""
    for queue, count in workloads.items():
        for number in range(count):
            trees.add_holder(queue, f"{queue}{number + 1}", 1, since=number)


# --- targets ----------------------------------------------------------------------------------------


def test_preemptor_within_nominal_quota_reclaims_from_largest_borrower() -> None:
    trees = with_three_queues(fair())
    fill(trees, a=1, b=5, c=3)
    assert trees.victims("a", 1) == [("b5", RECLAIMED)]


def test_queues_are_ranked_again_after_each_target() -> None:
    trees = with_three_queues(fair())
    fill(trees, b=5, c=4)
    # b borrows 2 and c borrows 1: b gives one. Then shares are equal, and the order of candidates decides.
    assert trees.victims("a", 3) == [("b5", RECLAIMED), ("b4", RECLAIMED), ("c4", RECLAIMED)]


def test_targets_alternate_by_current_share() -> None:
    trees = fair()
    trees.cohort("all", None, 2)
    with_three_queues(trees)
    fill(trees, b=4, c=5)
    trees.add_holder("b", "big", 2, since=9)
    # b borrows 3 and c borrows 2. Without "big", b borrows 1, and c gives next.
    assert trees.victims("a", 3) == [("big", RECLAIMED), ("c5", RECLAIMED)]


def test_lower_priority_is_preempted_first_at_equal_shares() -> None:
    trees = with_three_queues(fair())
    fill(trees, b=3, c=4)
    trees.add_holder("b", "low", 1, priority=-1)
    assert trees.victim_names("a", 2) == ["low"]


def test_evicted_candidate_is_taken_first_at_equal_shares() -> None:
    trees = with_three_queues(fair())
    fill(trees, b=3, c=3)
    trees.add_holder("b", "stays", 1, priority=-9)
    trees.add_holder("c", "leaves", 1, evicted=True)
    assert trees.victim_names("a", 2) == ["leaves"]


def test_workload_of_another_queue_is_preempted_before_own_at_equal_shares() -> None:
    trees = fair()
    trees.cohort("all", None, {"cpu": 2, "gpu": 6})
    trees.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    trees.queue("b", "all", {"cpu": 0, "gpu": 0})
    trees.add_holder("a", "own", {"cpu": 2, "gpu": 4}, priority=-9)
    trees.add_holder("b", "other", {"cpu": 4})
    # 4 of 6 cpus are borrowed by b, 4 of 6 gpus by a.
    assert trees.victims("a", {"cpu": 1}) == [("other", RECLAIMED)]


def test_cohort_gives_before_queue_at_equal_shares() -> None:
    trees = fair()
    trees.cohort("all", None, 2)
    trees.cohort("team", "all")
    trees.queue("a", "all", 1, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.queue("t", "team", 1)
    trees.add_holder("b", "b", 2, priority=-9)
    trees.add_holder("t", "t1", 2)
    trees.add_holder("t", "t2", 1, priority=9)
    # b and team borrow 2 each, and the request needs only one target.
    assert trees.victim_names("a", 1) == ["t1"]


def test_first_cohort_by_name_gives_at_equal_shares() -> None:
    trees = fair()
    trees.queue("a", "all", 4, RECLAIM_ANY)
    for name in ("y", "x"):
        trees.cohort(name, "all")
        trees.queue(f"q{name}", name, 0)
        trees.add_holder(f"q{name}", name, 2)
    assert trees.victim_names("a", 1) == ["x"]


def test_queue_that_does_not_borrow_the_contested_resource_is_no_target() -> None:
    trees = fair()
    trees.queue("a", "all", {"cpu": 2, "gpu": 4}, RECLAIM_ANY)
    trees.queue("b", "all", {"cpu": 2, "gpu": 0}, RECLAIM_ANY)
    trees.queue("c", "all", {"cpu": 2, "gpu": 0}, RECLAIM_ANY)
    trees.add_holder("b", "both", {"cpu": 2, "gpu": 4})
    trees.add_holder("c", "cpus", {"cpu": 3})
    assert trees.victim_names("a", {"cpu": 2}) == ["cpus"]


def test_queue_back_within_its_quota_gives_no_more() -> None:
    trees = with_three_queues(fair())
    fill(trees, b=5, c=4)
    assert trees.victim_names("a", 3) == ["b5", "b4", "c4"]
    assert trees.victim_names("a", 4) == []


def test_cohort_within_its_quota_is_no_target() -> None:
    trees = fair()
    trees.cohort("team", "all", 4)
    trees.queue("a", "all", 3, RECLAIM_ANY)
    trees.queue("b", "all", 0, RECLAIM_ANY)
    trees.queue("t", "team", 0)
    trees.add_holder("t", "t", 4)
    trees.add_holder("b", "b", 3)
    assert trees.victim_names("a", 1) == ["b"]


def test_cohort_back_within_its_quota_gives_no_more() -> None:
    trees = fair()
    trees.cohort("team", "all", 2)
    trees.queue("a", "all", 4, policy(reclaim="LowerPriority"))
    trees.queue("t", "team", 0)
    trees.queue("x", "all", 0)
    fill(trees, t=5)
    trees.add_holder("x", "high", 1, priority=9)
    assert trees.victim_names("a", 3, priority=5) == ["t5", "t4", "t3"]
    assert trees.victim_names("a", 4, priority=5) == []


def test_search_descends_through_own_cohort_that_borrows_nothing() -> None:
    trees = fair()
    trees.cohort("team", "all", 2)
    trees.queue("a", "team", 0, RECLAIM_ANY)
    trees.queue("b", "team", 0)
    fill(trees, b=2)
    trees.queue("other", "all", 4)
    fill(trees, other=4)
    assert trees.victims("a", 1) == [("b2", BY_SHARE)]


def test_cohort_without_candidates_is_skipped() -> None:
    trees = fair()
    trees.cohort("team", "all")
    trees.queue("a", "all", 4, policy(reclaim="LowerPriority"))
    trees.queue("t", "team", 0)
    trees.queue("b", "all", 0)
    trees.add_holder("t", "high", 3, priority=9)
    trees.add_holder("b", "low", 1)
    assert trees.victim_names("a", 1, priority=1) == ["low"]


def test_stopped_queue_is_no_target() -> None:
    trees = fair()
    trees.queue("a", "all", 4, RECLAIM_ANY)
    trees.queue("b", "all", 0, stop_policy=StopPolicy.HOLD)
    trees.add_holder("b", "b", 4)
    assert trees.victim_names("a", 1) == []


def test_own_candidates_are_taken_in_order_without_cohort() -> None:
    trees = fair()
    trees.queue("a", None, 3, RECLAIM_ANY)
    fill(trees, a=3)
    assert trees.victims("a", 2, priority=1) == [("a3", OWN), ("a2", OWN)]
    assert trees.victims("a", 2) == []


@pytest.mark.parametrize(
    ("preemption", "targets"),
    [
        (policy("Never", "Never"), []),
        (policy("LowerPriority", "Never"), ["own"]),
        (policy("Never", "LowerPriority"), ["low"]),
        (policy("Never", "Any"), ["low"]),
    ],
)
def test_policies_select_targets_of_own_and_other_queues(preemption: object, targets: list[str]) -> None:
    trees = fair()
    trees.queue("a", "all", 2, preemption)  # pyright: ignore[reportArgumentType]
    trees.queue("b", "all", 0)
    trees.add_holder("a", "own", 1)
    trees.add_holder("b", "low", 1, priority=1)
    assert trees.victim_names("a", 1, priority=5) == targets


# --- strategies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategies", "b", "c", "targets"),
    [
        # a uses 3 of its 3 and requests 1 more: with it, a borrows 1.
        ((FINAL,), 5, 1, [("b5", BY_SHARE)]),  # 1 <= 2 - 1
        ((FINAL,), 4, 2, []),  # 1 > 1 - 1
        ((INITIAL,), 5, 1, [("b5", BY_SHARE)]),  # 1 < 2
        ((INITIAL,), 4, 2, []),  # 1 == 1
        ((FINAL, INITIAL), 4, 2, []),
        ((FINAL, INITIAL), 6, 0, [("b6", BY_SHARE)]),
    ],
)
def test_strategies_compare_share_of_preemptor_with_final_or_initial_share(
    strategies: tuple[PreemptionStrategy, ...], b: int, c: int, targets: NamesAndReasons
) -> None:
    trees = with_three_queues(fair(*strategies))
    fill(trees, a=3, b=b, c=c)
    assert trees.victims("a", 1) == targets


@pytest.mark.parametrize(
    ("strategies", "targets"),
    [((FINAL,), []), ((INITIAL,), ["big"]), ((FINAL, INITIAL), ["big"])],
)
def test_large_workload_is_preempted_only_by_initial_share(
    strategies: tuple[PreemptionStrategy, ...], targets: list[str]
) -> None:
    trees = fair(*strategies)
    trees.cohort("all", None, 6)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.add_holder("b", "big", 6)
    # 3 > 6 - 6, but 3 < 6.
    assert trees.victim_names("a", 3) == targets


def test_search_continues_after_rejected_candidates() -> None:
    trees = fair(FINAL)
    trees.cohort("all", None, 15)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.add_holder("b", "big 1", 4, priority=0)
    trees.add_holder("b", "big 2", 4, priority=1)
    trees.add_holder("b", "small", 2, priority=2)
    assert trees.victim_names("a", 6) == ["big 1"]  # 6 <= 10 - 4
    assert trees.victim_names("a", 7) == ["small"]  # 7 > 10 - 4, twice; 7 <= 10 - 2
    assert trees.victim_names("a", 8) == []  # 8 <= 10 - 2, which is not enough
    assert trees.victim_names("a", 9) == []  # 9 > 10 - 2


def test_second_strategy_takes_at_most_one_target_of_each_queue() -> None:
    trees = fair()
    trees.cohort("all", None, 12)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.queue("c", "all", 0)
    for queue in ("b", "c"):
        for number in range(2):
            trees.add_holder(queue, f"{queue}{number}", 3, since=number)
    # a would borrow 5, the others borrow 6 each. 5 > 6 - 3 rejects all at first; 5 < 6 accepts one of each.
    assert trees.victims("a", 5) == [("b1", BY_SHARE), ("c1", BY_SHARE)]
    # A request of 7 needs three of them, and 7 is more than any queue borrows.
    assert trees.victims("a", 7) == []


@pytest.mark.parametrize(
    ("capacity", "victims"),
    [
        (17, [("own", OWN), ("b5", BY_SHARE)]),
        # Two targets of b would be needed.
        (16, []),
    ],
)
def test_second_strategy_takes_no_second_target_when_share_of_preemptor_has_fallen(
    capacity: int, victims: NamesAndReasons
) -> None:
    trees = fair()
    trees.cohort("all", None, capacity)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.add_holder("a", "own", 4)
    for number in range(6):
        trees.add_holder("b", f"b{number}", 2, since=number)
    # 11 > 12 - 2 rejects all of b. Then "own" becomes a target, and 7 < 12 accepts one of b.
    assert trees.victims("a", 7, priority=5) == victims


def test_second_strategy_finds_nothing_when_it_rejects_a_queue_that_is_needed() -> None:
    trees = fair()
    trees.cohort("all", None, 11)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.queue("c", "all", 0)
    for queue, amounts in (("b", (3, 3)), ("c", (3, 2))):
        for number, amount in enumerate(amounts):
            trees.add_holder(queue, f"{queue}{number}", amount, since=-number)
    # 5 < 6 accepts one of b; 5 == 5 rejects c.
    assert trees.victims("a", 5) == []


def test_queues_below_share_of_preemptor_lose_no_more() -> None:
    trees = fair(INITIAL)
    trees.cohort("all", None, 11)
    trees.queue("a", "all", 0, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.queue("c", "all", 0)
    trees.add_holder("b", "large", 5)
    trees.add_holder("b", "small", 3, priority=1)
    trees.add_holder("c", "other", 4, priority=2)
    # Without "large", 4 are free, and b and c borrow less than the 5 of the preemptor.
    assert trees.victims("a", 5) == []
    assert trees.victims("a", 4) == [("large", BY_SHARE)]


# --- preemptors within nominal quota ----------------------------------------------------------------


@pytest.mark.parametrize(("within_nominal", "targets"), [(True, [("big", RECLAIMED)]), (False, [])])
def test_preemptor_within_nominal_quota_reclaims_without_comparison_of_shares_by_gate(
    within_nominal: bool, targets: NamesAndReasons
) -> None:
    trees = fair(FINAL, within_nominal=within_nominal)
    trees.cohort("all", None, {"cpu": 0, "gpu": 9})
    trees.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    trees.queue("b", "all", {"cpu": 0, "gpu": 0})
    trees.add_holder("a", "gpus", {"gpu": 1})
    trees.add_holder("b", "big", {"cpu": 4})
    # By gpus, the share of a is one ninth; the final share of b is 0.
    assert trees.victims("a", {"cpu": 1}) == targets


@pytest.mark.parametrize(("within_nominal", "targets"), [(True, [("b1", RECLAIMED)]), (False, [])])
def test_preemptor_within_nominal_quota_with_greater_share_of_another_resource_reclaims_by_gate(
    within_nominal: bool, targets: NamesAndReasons
) -> None:
    trees = fair(within_nominal=within_nominal)
    trees.cohort("all", None, {"gpu": 4})
    trees.queue("a", "all", {"cpu": 4, "gpu": 0}, RECLAIM_ANY)
    trees.queue("b", "all", {"cpu": 0, "gpu": 0}, RECLAIM_ANY)
    trees.add_holder("a", "borrows gpus", {"gpu": 4}, priority=9)
    trees.add_holder("b", "b1", 1)
    assert trees.victims("a", 4) == targets


def test_preemptor_without_borrowing_is_below_every_initial_share_without_gate() -> None:
    trees = fair(within_nominal=False)
    trees.queue("a", "all", 4, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.add_holder("b", "big", 4)
    assert trees.victims("a", 1) == [("big", BY_SHARE)]


def test_own_targets_can_bring_preemptor_within_its_nominal_quota() -> None:
    trees = fair(FINAL)
    trees.queue("a", "all", 4, RECLAIM_ANY)
    trees.queue("b", "all", 0, weight=3)
    trees.add_holder("a", "own", 2)
    trees.add_holder("b", "b", 2)
    # Both borrow 2, and b has three times the weight: "own" comes first. Then a borrows nothing.
    assert sorted(trees.victims("a", 4, priority=1)) == [("b", RECLAIMED), ("own", OWN)]


# --- almost-lowest common ancestors -----------------------------------------------------------------


def add_two_cohorts(trees: QuotaTrees) -> None:
    """Add two cohorts of two queues; each cohort has quota of 4, and the root has 8 more."""
    trees.cohort("root", None, 8)
    for team in ("left", "right"):
        trees.cohort(team, "root", 4)
        for number in (1, 2):
            trees.queue(f"{team}{number}", team, 0, RECLAIM_ANY)


def test_shares_of_cohorts_are_compared_instead_of_those_of_queues() -> None:
    trees = fair(FINAL)
    add_two_cohorts(trees)
    fill(trees, left1=7, right1=5, right2=4)
    # With the request, left borrows 4 and right 5: 4 <= 5 - 1. The usage of single queues does not count.
    assert trees.victims("left1", 1) == [("right15", BY_SHARE)]


def test_cohort_that_borrows_less_is_no_target_at_any_share_of_its_queues() -> None:
    trees = fair(FINAL)
    add_two_cohorts(trees)
    fill(trees, left1=4, left2=4, right1=8)
    # With the request, left2 uses 5 and right1 uses 8; but left would borrow 5, and right borrows 4.
    assert trees.victims("left2", 1) == []


def test_queues_of_one_cohort_are_compared_by_their_own_shares() -> None:
    trees = fair(FINAL)
    add_two_cohorts(trees)
    fill(trees, left1=6, left2=2, right1=8)
    assert trees.victims("left2", 1) == [("left16", BY_SHARE)]


# --- weights ----------------------------------------------------------------------------------------


def test_queue_with_greater_weight_has_smaller_share() -> None:
    trees = with_three_queues(fair(), b=2)
    fill(trees, b=5, c=4)
    # Borrowing 2 with weight 2 is the same share as 1 with weight 1: the latest reservation is preempted.
    assert trees.victim_names("a", 1) == ["b5"]
    trees.queue("b", "all", 3, RECLAIM_ANY, weight=4)
    assert trees.victim_names("a", 1) == ["c4"]


def test_queue_with_weight_0_gives_first() -> None:
    trees = with_three_queues(fair(), c=0)
    fill(trees, b=5, c=4)
    assert trees.victim_names("a", 3) == ["c4", "b5", "b4"]


def test_queue_with_weight_0_within_nominal_quota_gives_nothing() -> None:
    trees = with_three_queues(fair(), c=0)
    fill(trees, b=5, c=3)
    assert trees.victim_names("a", 3) == ["b5", "b4"]
    assert trees.victim_names("a", 4) == []


def test_borrowing_preemptor_with_weight_0_preempts_no_finite_share() -> None:
    trees = with_three_queues(fair(), a=0)
    fill(trees, a=3, b=6)
    assert trees.victim_names("a", 1) == []
    trees.remove_holder("a1")
    trees.add_holder("b", "b7", 1)
    assert trees.victims("a", 1) == [("b6", RECLAIMED)]


def test_two_queues_with_weight_0_compare_by_unweighted_share() -> None:
    trees = with_three_queues(fair(FINAL), a=0, b=0)
    fill(trees, a=3, b=6)
    assert trees.victim_names("a", 1) == ["b6"]
    assert trees.victim_names("a", 2) == []


@pytest.mark.parametrize("weight", ["1/1000000000", "1e-300"])
def test_queue_with_tiny_weight_within_nominal_quota_is_no_target(weight: str) -> None:
    trees = with_three_queues(fair(), b=weight)
    fill(trees, b=3, c=6)
    assert trees.victim_names("a", 1) == ["c6"]


# --- fill back, ties --------------------------------------------------------------------------------


def test_unneeded_target_is_spared() -> None:
    trees = fair()
    trees.queue("a", "all", 4, RECLAIM_ANY)
    trees.queue("b", "all", 0)
    trees.add_holder("b", "small", 1)
    trees.add_holder("b", "big", 3, priority=1)
    assert trees.victim_names("a", 3) == ["big"]
    assert trees.victim_names("a", 4) == ["small", "big"]


def test_search_finds_nothing_beyond_borrowing_limit_of_preemptor() -> None:
    trees = fair()
    trees.cohort("all", None, 4)
    trees.queue("a", "all", ResourceQuota(1, borrowing_limit=1), RECLAIM_ANY)
    trees.queue("b", "all", 0)
    fill(trees, b=5)
    assert trees.victim_names("a", 2) == ["b5", "b4"]
    assert trees.victim_names("a", 3) == []


def test_share_is_unchanged_by_removal_of_non_dominant_resource() -> None:
    trees = fair(FINAL)
    trees.cohort("all", None, {"cpu": 10, "gpu": 2})
    trees.queue("a", "all", {"gpu": 0}, RECLAIM_ANY)
    trees.queue("b", "all", {"gpu": 0})
    trees.add_holder("b", "cpus", {"cpu": 10})
    trees.add_holder("b", "gpus", {"gpu": 2})
    # Borrowing all GPUs is the same share as borrowing all CPUs, which b keeps.
    assert trees.victims("a", {"gpu": 2}) == [("gpus", BY_SHARE)]


def test_own_candidates_are_taken_at_borrowing_limit_although_cohort_has_quota() -> None:
    trees = fair()
    trees.cohort("left", "root")
    trees.queue("a", "left", ResourceQuota(1, borrowing_limit=0), RECLAIM_ANY)
    trees.queue("b", "left", 10)
    trees.add_holder("a", "mine", 1)
    assert trees.victims("a", 1, priority=5) == [("mine", OWN)]


def test_ties_do_not_depend_on_order_of_events() -> None:
    targets: set[tuple[str, ...]] = set()
    names = ["b", "c", "d", "e"]
    for turn in range(4):
        trees = fair()
        order = names[turn:] + names[:turn]
        for name in order:
            trees.queue(name, "all", 0)
        trees.queue("a", "all", 8, RECLAIM_ANY)
        for name in order:
            trees.add_holder(name, f"{name}1", 1)
            trees.add_holder(name, f"{name}2", 1)
        targets.add(tuple(trees.victim_names("a", 3)))
    assert targets == {("b1", "c1", "d1")}


# --- rejected candidates ----------------------------------------------------------------------------


def trees_with_two_cohorts(preemption: ClusterQueuePreemption) -> QuotaTrees:
    """Return queue a with an own candidate in cohort mine, and queues b and c in cohort other."""
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("root", None, 11)
    trees.cohort("mine", "root")
    trees.cohort("other", "root")
    trees.queue("a", "mine", 0, preemption)
    trees.queue("b", "other", 0)
    trees.queue("c", "other", 0)
    trees.add_holder("a", "own", 2, priority=-1)
    trees.add_holder("a", "stays", 1, priority=9)
    return trees


def test_queue_is_compared_with_share_of_preemptor_at_the_time_it_is_reached() -> None:
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("all", None, 4)
    trees.queue("a", "all", 1, policy("LowerPriority", "LowerOrNewerEqualPriority"))
    trees.queue("b", "all", 1)
    trees.add_holder("a", "leaving", 1, priority=-1, evicted=True)
    trees.add_holder("a", "stays", 1, priority=9)
    trees.add_holder("b", "older", 1, queued=0, evicted=True)
    trees.add_holder("b", "newer", 1, queued=9)
    trees.add_holder("b", "higher", 2, priority=9)
    # Shares are equal, and "leaving" is taken first. "older" leaves too, but is no candidate by its age.
    assert trees.victims("a", 2, queued=5) == [("leaving", OWN), ("newer", BY_SHARE)]


def test_queue_of_another_cohort_is_compared_with_share_at_the_time_it_is_reached() -> None:
    trees = trees_with_two_cohorts(policy("LowerPriority", "LowerOrNewerEqualPriority"))
    trees.add_holder("b", "older", 2, queued=0, evicted=True)
    trees.add_holder("b", "newer", 2, queued=9)
    trees.add_holder("c", "lower", 1, priority=-1)
    trees.add_holder("c", "higher", 3, priority=9)
    # 7 against 8: "lower" of c is accepted, then "own". Only then is b reached, with 5 against 7.
    assert trees.victims("a", 4, queued=5) == [("newer", BY_SHARE), ("own", OWN)]


def test_rejected_candidate_stays_rejected_when_share_of_preemptor_falls_later() -> None:
    trees = trees_with_two_cohorts(RECLAIM_ANY)
    trees.add_holder("b", "b1", 2, since=1)
    trees.add_holder("b", "b2", 5)
    trees.add_holder("c", "c1", 1)
    # 7 against 8: b has the greater share and is rejected, c gives one. Together with "own" it is not enough.
    assert trees.victims("a", 4) == []


def test_rejected_candidate_stays_rejected_when_another_queue_gives_twice() -> None:
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("root", None, 11)
    trees.cohort("mine", "root")
    trees.cohort("other", "root")
    trees.queue("a", "mine", 0, RECLAIM_ANY)
    trees.queue("b", "other", 0)
    trees.queue("c", "other", 0)
    trees.add_holder("a", "own", 2, priority=-1)
    for name, size in {"b1": 2, "b2": 2, "c1": 1, "c2": 1, "c3": 3}.items():
        trees.add_holder(name[0], name, size)
    # 7 against 9: c gives one, b is rejected, c gives another one, then "own" is taken.
    assert trees.victims("a", 5) == []


def test_rejected_candidate_of_sibling_stays_rejected_when_share_falls_later() -> None:
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("all", None, 7)
    for name in "ab":
        trees.queue(name, "all", 0, RECLAIM_ANY)
    trees.add_holder("a", "own", 2, priority=-1)
    trees.add_holder("b", "b1", 3)
    trees.add_holder("b", "b2", 2)
    # 4 against 5, and 2 or 3 without a candidate: b is rejected before "own" is reached.
    assert trees.victims("a", 3) == []
    assert trees.victims("a", 2) == [("own", OWN)]


@pytest.mark.parametrize(("request_of_a", "victims"), [(4, [("b1", BY_SHARE)]), (5, [])])
def test_share_of_cohort_with_lending_limit_falls_by_less_than_its_workload(
    request_of_a: int, victims: NamesAndReasons
) -> None:
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("root", None, 4 + request_of_a)
    trees.cohort("other", "root")
    trees.cohort("deep", "other", ResourceQuota(4, lending_limit=1))
    trees.queue("a", "root", 0, policy("LowerPriority", "LowerPriority"))
    trees.queue("b", "deep", 0)
    trees.queue("c", "other", 0)
    trees.add_holder("b", "b1", 4)
    trees.add_holder("b", "b2", 1, priority=9)
    trees.add_holder("c", "c1", 5, priority=9)
    # deep uses 2 beyond its local part, and nothing without b1: other borrows 6, then 4.
    assert trees.victims("a", request_of_a, priority=1) == victims


def test_share_of_cohort_with_lending_limit_of_one_resource_does_not_fall() -> None:
    trees = fair(FINAL, within_nominal=False)
    trees.cohort("root", None, {"cpu": 6, "gpu": 10})
    trees.cohort("other", "root", {"cpu": 0, "gpu": 0})
    trees.cohort("deep", "other", {"cpu": ResourceQuota(5, lending_limit=2), "gpu": 0})
    for name, cohort in (("a", "root"), ("b", "deep"), ("c", "other"), ("d", "root")):
        trees.queue(name, cohort, {"cpu": 0, "gpu": 0}, RECLAIM_ANY)
    trees.add_holder("b", "b1", {"cpu": 2, "gpu": 1})
    trees.add_holder("c", "c1", {"cpu": 5, "gpu": 1}, priority=9)
    trees.add_holder("d", "d1", {"gpu": 8}, priority=9)
    # 3 of 8 CPUs on both sides, also without b1: deep does not borrow the CPUs that it uses.
    targets = trees.victims("a", {"cpu": 3, "gpu": 1}, contested=["cpu", "gpu"], priority=1)
    assert targets == [("b1", BY_SHARE)]
