"""Fair preemption: strategies, and candidates that they reject."""

import pytest

from admitq.core.model import ClusterQueuePreemption, ResourceQuota
from admitq.core.settings import PreemptionStrategy
from tests.unit.core.fair_trees import BY_SHARE, FINAL, INITIAL, RECLAIM_ANY, fair, fill, with_three_queues
from tests.unit.core.quota_trees import OWN, NamesAndReasons, QuotaTrees, policy

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
