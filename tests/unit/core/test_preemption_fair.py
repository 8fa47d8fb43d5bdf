"""Fair preemption: target queues, comparison below the lowest common cohort, weights, fill back."""

import pytest

from admitq.core.model import ResourceQuota, StopPolicy
from tests.unit.core.fair_trees import BY_SHARE, FINAL, RECLAIM_ANY, fair, fill, with_three_queues
from tests.unit.core.quota_trees import OWN, RECLAIMED, NamesAndReasons, QuotaTrees, policy

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
