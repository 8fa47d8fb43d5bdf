"""Classical preemption of other ClusterQueues of a cohort: reclaiming, and preemption while borrowing."""

import pytest

from admitq.core.model import BorrowWithinCohort, PreemptionPolicy, ResourceQuota
from admitq.core.preemption.candidates import TargetSearch
from admitq.core.preemption.classical import attempts, walk_path
from tests.unit.core.quota_trees import (
    OWN,
    RECLAIM_ANY,
    RECLAIMED,
    WHILE_BORROWING,
    NamesAndReasons,
    QuotaTrees,
    pair,
    policy,
)

# --- reclaiming -------------------------------------------------------------------------------------


def test_reclaim_takes_only_from_borrowers() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, RECLAIM_ANY)
    trees.queue("full", "all", 4)
    trees.queue("borrower", "all", 0)
    trees.add_holder("full", "within", 4, priority=-1)
    trees.add_holder("borrower", "borrowed", 4)
    assert trees.victims("own", 1) == [("borrowed", RECLAIMED)]


def test_borrowing_of_queue_is_checked_again_before_each_target() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 10, RECLAIM_ANY)
    trees.queue("b", "all", 5)
    trees.queue("c", "all", 5)
    for queue in ("b", "c"):
        for number in range(10):
            # All candidates of b come before those of c, but each queue gives only what it borrows.
            trees.add_holder(queue, f"{queue}{number}", 1, priority=0 if queue == "b" else 1)
    targets = trees.victim_names("own", 10)
    assert sorted(name[0] for name in targets) == ["b"] * 5 + ["c"] * 5


def test_cohort_within_quota_protects_its_borrowers() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root")
    trees.cohort("right", "root")
    trees.queue("own", "left", 4, RECLAIM_ANY)
    trees.queue("sibling", "left", 0)
    trees.queue("x", "right", 0)
    trees.queue("y", "right", 4)
    trees.add_holder("x", "within the cohort", 4, priority=-9)
    trees.add_holder("sibling", "in debt", 4)
    assert trees.victim_names("own", 4) == ["in debt"]


def test_borrowing_of_intermediate_cohort_is_checked_again_before_each_target() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root")
    trees.cohort("right", "root")
    trees.queue("own", "left", 10, RECLAIM_ANY)
    trees.queue("x", "right", 0)
    trees.queue("y", "right", 6)
    for number in range(10):
        trees.add_holder("x", f"x{number}", 1)
    trees.add_holder("own", "own", 6, priority=9)
    # The cohort borrows only 4 of the 10 that x borrows: no more than 4 become targets.
    assert len(trees.victim_names("own", 4)) == 4
    assert trees.victim_names("own", 5) == []


def test_cohort_back_within_quota_loses_no_more() -> None:
    trees = QuotaTrees()
    for cohort in ("left", "right", "third"):
        trees.cohort(cohort, "root")
    trees.queue("own", "left", 10, RECLAIM_ANY)
    trees.queue("x", "right", 0)
    trees.queue("y", "right", 6)
    trees.queue("z", "third", 0)
    for number in range(8):
        trees.add_holder("x", f"x{number}", 1)
    trees.add_holder("z", "z", 4, priority=5)
    # Of 16 CPUs, 4 are free. The 8 workloads of x are first in order, but its cohort borrows only 2.
    assert sorted(trees.victim_names("own", 10)) == ["x0", "x1", "z"]


def test_queue_without_borrowing_limit_can_borrow() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", ResourceQuota(2, borrowing_limit=None), policy("LowerPriority"))
    trees.queue("other", "all", ResourceQuota(2))
    trees.add_holder("own", "a", 4)
    assert trees.victim_names("own", 4, 1) == ["a"]


def test_borrowing_limit_of_0_forbids_borrowing() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", ResourceQuota(2, borrowing_limit=0), policy("LowerPriority", "Any"))
    trees.queue("other", "all", ResourceQuota(2))
    trees.add_holder("own", "a", 2)
    assert trees.victim_names("own", 3, 1) == []
    assert trees.victim_names("own", 2, 1) == ["a"]


ADVANTAGE = [
    # quota of own and of left, usage of own and of sibling, request -> advantage in left and in root
    (4, 0, 0, 0, 4, (True, True)),
    (4, 0, 1, 0, 4, (False, False)),
    (2, 2, 0, 0, 4, (False, True)),
    (2, 2, 1, 0, 3, (False, True)),
    (2, 2, 1, 0, 4, (False, False)),
    (2, 2, 0, 1, 4, (False, False)),
    (2, 2, 0, 2, 2, (True, True)),
    (2, 2, 0, 9, 2, (True, True)),
]


@pytest.mark.parametrize(("own", "left", "used", "sibling", "asked", "expected"), ADVANTAGE)
def test_hierarchical_advantage_depends_on_quota_and_usage_of_each_level(
    own: int, left: int, used: int, sibling: int, asked: int, expected: tuple[bool, bool]
) -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", left)
    trees.cohort("root", None, 10)
    trees.queue("own", "left", own)
    trees.queue("sibling", "left", 0)
    trees.add_holder("own", "o", used)
    trees.add_holder("sibling", "s", sibling)
    node = trees.node("own")
    search = TargetSearch(trees.world, trees.preemptor("own"), {pair("cpu"): asked}, (pair("cpu"),), ())
    assert tuple(advantage for _, _, advantage in walk_path(search, node)) == expected


def test_request_of_0_does_not_affect_hierarchical_advantage() -> None:
    trees = QuotaTrees()
    trees.cohort("root", None, {"gpu": 1})
    trees.queue("own", "root", {"cpu": 4, "gpu": 0})
    trees.add_holder("own", "borrows", {"gpu": 1})
    cpu, gpu = pair("cpu"), pair("gpu")
    search = TargetSearch(trees.world, trees.preemptor("own"), {cpu: 4, gpu: 0}, (cpu,), ())
    assert [advantage for _, _, advantage in walk_path(search, trees.node("own"))] == [True]


def test_preemptor_with_hierarchical_advantage_reclaims_from_higher_priority() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", 4)
    trees.cohort("right", "root")
    trees.queue("own", "left", 2, policy(reclaim="Any", borrow="LowerPriority"))
    trees.queue("sibling", "left", 0)
    trees.queue("far", "right", 0)
    trees.add_holder("sibling", "near", 1, priority=9)
    trees.add_holder("far", "far", 5, priority=9)
    assert trees.victims("own", 4, priority=5) == [("far", RECLAIMED)]


def test_quota_that_queue_does_not_lend_reduces_request_to_cohort() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", 2)
    trees.cohort("right", "root")
    trees.cohort("root", None, 4)
    # Queue own lends none of its 2. A request of 4 needs 2 more, which cohort left has.
    trees.queue("own", "left", ResourceQuota(2, lending_limit=0), policy(reclaim="Any"))
    trees.queue("far", "right", 0)
    trees.add_holder("far", "far", 6, priority=9)
    assert trees.victims("own", 4) == [("far", RECLAIMED)]


def test_request_within_quota_that_queue_does_not_lend_needs_nothing_of_cohort() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", {"cpu": 2, "gpu": 0})
    trees.cohort("right", "root")
    trees.cohort("root", None, {"cpu": 4, "gpu": 4})
    trees.queue("own", "left", {"cpu": 0, "gpu": ResourceQuota(1, lending_limit=0)}, policy(reclaim="Any"))
    trees.queue("sibling", "left", 0)
    trees.queue("far", "right", 0)
    trees.add_holder("sibling", "gpus of another cohort", {"gpu": 4}, priority=9)
    trees.add_holder("far", "far", {"cpu": 6}, priority=9)
    assert trees.victims("own", {"cpu": 2, "gpu": 1}, contested=["cpu"]) == [("far", RECLAIMED)]


# --- preemption while borrowing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("borrow", "threshold", "candidate", "targets"),
    [
        ("Never", None, 0, []),
        ("LowerPriority", None, 4, [("other", WHILE_BORROWING)]),
        ("LowerPriority", None, 5, []),
        ("LowerPriority", None, 6, []),
        ("LowerPriority", 3, 3, [("other", WHILE_BORROWING)]),
        ("LowerPriority", 3, 4, []),
        ("LowerPriority", 9, 5, []),
        ("LowerPriority", 0, -1, [("other", WHILE_BORROWING)]),
    ],
)
def test_borrow_within_cohort_limits_priority_of_candidates(
    borrow: str, threshold: int | None, candidate: int, targets: NamesAndReasons
) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 3)
    trees.queue("own", "all", 1, policy(reclaim="Any", borrow=borrow, threshold=threshold))
    trees.queue("other", "all", 0)
    trees.add_holder("other", "other", 3, priority=candidate)
    assert trees.victims("own", 2, priority=5) == targets


def test_candidate_of_higher_priority_is_no_target_while_borrowing() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 2)
    trees.queue("own", "all", 2, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("other", "all", 0)
    trees.add_holder("other", "above", 2, priority=9)
    trees.add_holder("own", "mine", 2, priority=0)
    # While borrowing, "above" is no candidate; preempting "mine" is enough.
    assert trees.victims("own", 1, priority=5) == [("mine", OWN)]
    trees.remove_holder("mine")
    trees.add_holder("own", "mine", 2, priority=9)
    # While borrowing, there is no candidate. Without borrowing, "mine" would have to leave.
    assert trees.victims("own", 1, priority=5) == []


def test_attempt_without_borrowing_frees_nominal_quota() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 1)
    trees.queue("own", "all", 2, policy("LowerPriority", "Any"))
    trees.queue("other", "all", 0)
    trees.add_holder("other", "lent", 1, priority=9)
    trees.add_holder("own", "mine", 1, priority=0)
    trees.add_holder("other", "more", 1, priority=9, since=5)
    # Two are needed within nominal quota: "mine" and one workload of the other queue.
    assert sorted(trees.victims("own", 2, priority=5)) == [("mine", OWN), ("more", RECLAIMED)]


ATTEMPTS = [
    # policy, below nominal, candidates elsewhere, reclaimable by hierarchy -> may borrow, by attempt
    ("Never", True, False, False, (True,)),
    ("Never", False, False, False, (True,)),
    ("LowerPriority", True, False, False, (True,)),
    ("LowerPriority", False, False, False, (True,)),
    ("Never", False, True, False, (True,)),
    ("Never", False, True, True, (True,)),
    ("Never", True, True, False, (False, True)),
    ("Never", True, True, True, (True, False)),
    ("LowerPriority", True, True, False, (True, False)),
    ("LowerPriority", False, True, False, (True, False)),
    ("LowerPriority", True, True, True, (True, False)),
    ("LowerPriority", False, True, True, (True, False)),
]


@pytest.mark.parametrize(("borrow", "below", "elsewhere", "reclaim", "expected"), ATTEMPTS)
def test_attempts_with_and_without_borrowing_depend_on_policy_and_candidates(
    borrow: str, below: bool, elsewhere: bool, reclaim: bool, expected: tuple[bool, ...]
) -> None:
    rule = BorrowWithinCohort(PreemptionPolicy(borrow))
    assert (
        attempts(
            rule,
            is_below_nominal=below,
            has_candidates_elsewhere=elsewhere,
            has_candidates_with_advantage=reclaim,
        )
        == expected
    )


def test_queue_at_nominal_quota_that_must_not_borrow_preempts_only_own_workloads() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 1)
    trees.queue("own", "all", 2, policy("LowerPriority", "Any"))
    trees.queue("other", "all", 0)
    trees.add_holder("own", "mine", 2)
    trees.add_holder("other", "lent", 1, priority=-9)
    assert trees.victims("own", 1, priority=5) == [("mine", OWN)]
    # The same if own workloads are not enough, because the cohort lent more than it has.
    trees.add_holder("other", "more", 1, priority=-9)
    assert trees.victims("own", 2, priority=5) == []


@pytest.mark.parametrize("near", [0, 1])
def test_hierarchical_reclaim_comes_before_preemption_in_own_queue(near: int) -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", 4)
    trees.cohort("right", "root")
    trees.queue("own", "left", 2, policy("LowerPriority", "Any"))
    trees.queue("sibling", "left", 0)
    trees.queue("far", "right", 0)
    trees.add_holder("own", "mine", 1)
    trees.add_holder("sibling", "near", near)
    trees.add_holder("far", "lent", 2)
    trees.add_holder("far", "more", 3 - near, since=-1)
    # The request borrows 1 from cohort left, which has it. Without borrowing, "mine" would be a target.
    assert trees.victims("own", 2, priority=5) == [("lent", RECLAIMED)]
