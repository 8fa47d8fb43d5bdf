"""Classical preemption: policies, candidate order, reclaiming, attempts, fill back."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.core.model import (
    BorrowWithinCohort,
    ClusterQueuePreemption,
    ObjectKey,
    PreemptionPolicy,
    ResourceQuota,
    StopPolicy,
)
from admitq.core.preemption import TreeIndexes, find_victims
from admitq.core.preemption.candidates import TargetSearch
from admitq.core.preemption.capacity import Reachability, RequestedCapacity, estimate_reachability
from admitq.core.preemption.classical import attempts, walk_path
from admitq.core.supposed_usage import SupposedUsage
from tests.unit.core.quota_trees import NamesAndReasons, QuotaTrees, pair, policy

OWN = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"

RECLAIM_ANY = policy(reclaim="Any")
LOWER_IN_QUEUE = policy(within="LowerPriority")


# --- policies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Never", []),
        ("LowerPriority", ["lowest of all", "lower, older", "lower, newer"]),
        ("LowerOrNewerEqualPriority", ["lowest of all", "lower, older", "lower, newer", "equal, newer"]),
        (
            "Any",
            [
                "lowest of all",
                "lower, older",
                "lower, newer",
                "equal, older",
                "equal, newer",
                "equal, as old",
                "higher, newer",
                "highest of all",
            ],
        ),
    ],
)
def test_policy_allows_candidates_by_priority_and_queue_time(name: str, allowed: list[str]) -> None:
    trees = QuotaTrees()
    trees.queue("q", None, 10)
    for number, (what, priority, queued) in enumerate(
        [
            ("lowest of all", -(1 << 31), 9),
            ("lower, older", 4, 1),
            ("lower, newer", 4, 9),
            ("equal, older", 5, 1),
            ("equal, newer", 5, 9),
            ("equal, as old", 5, 5),
            ("higher, newer", 6, 9),
            ("highest of all", (1 << 31) - 1, 9),
        ]
    ):
        trees.add_holder("q", what, 1, priority=priority, queued=queued, since=-number)
    cpu = pair("cpu")
    search = TargetSearch(trees.world, trees.preemptor("q", priority=5, queued=5), {cpu: 1}, (cpu,), ())
    candidates = search.candidates(trees.world.cluster_queues["q"], PreemptionPolicy(name))
    assert [each.entry.workload.key.name for each in candidates] == allowed


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("Never", []),
        ("LowerPriority", ["lower"]),
        ("LowerOrNewerEqualPriority", ["lower", "newer"]),
        ("Any", ["higher", "lower", "newer", "older"]),
    ],
)
@pytest.mark.parametrize("where", ["within", "reclaim"])
def test_policies_of_queue_and_cohort_select_candidates(where: str, name: str, targets: list[str]) -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, policy(name) if where == "within" else policy(reclaim=name))
    trees.queue("other", "all", 0)
    queue = "own" if where == "within" else "other"
    trees.add_holder(queue, "older", 1, priority=5, queued=1)
    trees.add_holder(queue, "newer", 1, priority=5, queued=9)
    trees.add_holder(queue, "lower", 1, priority=4, queued=1)
    trees.add_holder(queue, "higher", 1, priority=6, queued=9)
    assert sorted(trees.victim_names("own", len(targets) or 1, priority=5, queued=5)) == targets


# --- order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 9, "evicted": True}, {"priority": 0}),
        ({"queue": "other", "priority": 3}, {"priority": 2}),
        ({"queue": "other", "evicted": True, "priority": 3}, {"evicted": True}),
        ({"evicted": True}, {"queue": "other"}),
        ({"priority": 1}, {"priority": 2, "since": 9}),
        ({"since": 9}, {"since": 1}),
        ({"name": "a"}, {"name": "b"}),
        ({"name": "c", "local_queue": "used-more", "priority": 3}, {"name": "a", "local_queue": "used-less"}),
        (
            {"name": "a", "local_queue": "used-more", "priority": 2},
            {"local_queue": "used-more", "priority": 3},
        ),
        ({"evicted": True, "local_queue": "used-less"}, {"local_queue": "used-more"}),
    ],
    ids=[
        "evicted first",
        "other queue before own queue",
        "other queue before own queue among evicted",
        "evicted of own queue before other queue",
        "lower priority",
        "more recently reserved",
        "uid",
        "LocalQueue with more past usage",
        "priority within a LocalQueue",
        "evicted before past usage",
    ],
)
def test_candidates_are_ordered_by_eviction_queue_priority_time_and_uid(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    trees = QuotaTrees()
    preemption = policy("LowerPriority", "Any", "LowerPriority")
    trees.queue("own", "all", 1, preemption, usage_based_admission=True)
    trees.queue("other", "all", 0)
    trees.cohort("all", None, 1)
    usage = {"used-more": Fraction(len("used-more"))}
    trees.world.charging.local_queue_usage = lambda key: usage.get(key.name, 0)
    names = [each.get("name", name) for each, name in ((first, "x"), (second, "y"))]
    for each, name in reversed(list(zip((first, second), names, strict=True))):
        trees.add_holder(
            each.get("queue", "own"), name, **{k: v for k, v in each.items() if k not in _QUEUE_AND_NAME}
        )
    assert trees.victim_names("own", 1, priority=10) == [names[0]]


_QUEUE_AND_NAME = ("queue", "name")


def test_past_usage_does_not_order_candidates_without_usage_based_admission() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.world.charging.local_queue_usage = lambda key: len(key.name)
    trees.add_holder("own", "low", 1, priority=1, local_queue="a")
    trees.add_holder("own", "high", 1, priority=2, local_queue="used-more")
    assert trees.victim_names("own", 1, priority=9) == ["low"]


def test_preempted_workload_counts_as_evicted() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", 1)
    trees.add_holder("own", "b", 1)
    entry = trees.world.workloads[ObjectKey("default", "b")]
    entry.preempting = object()  # pyright: ignore[reportAttributeAccessIssue]
    trees.world.quota_holders.put(entry)
    assert trees.victim_names("own", 1, priority=1) == ["b"]


# --- candidates -------------------------------------------------------------------------------------


def test_candidate_must_use_contested_resource() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 2}, LOWER_IN_QUEUE)
    trees.add_holder("own", "cpu", {"cpu": 2})
    trees.add_holder("own", "gpu", {"gpu": 2})
    assert trees.victim_names("own", {"cpu": 1, "gpu": 0}, 1, contested=["cpu"]) == ["cpu"]
    assert trees.victim_names("own", {"gpu": 1}, 1) == ["gpu"]


def test_candidate_must_use_contested_flavor() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 1, "spot/cpu": 1}, LOWER_IN_QUEUE)
    trees.add_holder("own", "spot", {"spot/cpu": 1})
    trees.add_holder("own", "default", {"cpu": 1}, priority=1)
    assert trees.victim_names("own", {"cpu": 1}, 2) == ["default"]


def test_excluded_workload_is_no_candidate() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a")
    trees.add_holder("own", "b")
    assert trees.victim_names("own", 1, 1, excluded=["a"]) == ["b"]
    assert trees.victim_names("own", 1, 1, excluded=["a", "b"]) == []


def test_nothing_is_preempted_when_request_fits() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 2, LOWER_IN_QUEUE)
    trees.add_holder("own", "a")
    assert trees.victim_names("own", 1, 1) == []


def test_search_finds_nothing_when_part_of_request_cannot_fit() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 2}, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", {"cpu": 2})
    trees.add_holder("own", "b", {"gpu": 1}, priority=9)
    assert trees.victim_names("own", {"cpu": 1, "gpu": 1}, 5, contested=["cpu"]) == ["a"]
    assert trees.victim_names("own", {"cpu": 1, "gpu": 2}, 5, contested=["cpu"]) == []


def test_request_of_0_fits_when_usage_exceeds_quota() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, {"cpu": 2, "gpu": 1}, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", {"cpu": 2})
    trees.add_holder("own", "b", {"gpu": 3}, priority=9)
    assert trees.victim_names("own", {"cpu": 1, "gpu": 0}, 5, contested=["cpu"]) == ["a"]


def test_stopped_queue_has_no_candidates() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 2, RECLAIM_ANY)
    trees.queue("other", "all", 0, stop_policy=StopPolicy.HOLD)
    trees.add_holder("other", "a", 2)
    assert trees.victim_names("own", 1) == []


def test_workloads_of_other_trees_are_no_candidates() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 1, policy("Any", "Any"))
    trees.queue("other", "others", 0)
    trees.cohort("others", None, 1)
    trees.add_holder("other", "a", 1)
    trees.add_holder("own", "b", 1)
    assert trees.victim_names("own", 1, 1) == ["b"]


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


# --- fill back --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "targets"),
    [(3, ["b"]), (4, ["a", "b"])],
)
def test_fill_back_spares_targets_that_are_not_needed(need: int, targets: list[str]) -> None:
    """Worked example: a of 1 and b of 3, in this order."""
    trees = QuotaTrees()
    trees.queue("own", None, 4, LOWER_IN_QUEUE)
    trees.add_holder("own", "a", 1, priority=0)
    trees.add_holder("own", "b", 3, priority=1)
    assert trees.victim_names("own", need, 5) == targets


def test_spared_target_is_replaced_by_the_last() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 10, LOWER_IN_QUEUE)
    for name, amount, priority in (("a", 1, 0), ("b", 3, 1), ("c", 2, 2), ("d", 4, 3)):
        trees.add_holder("own", name, amount, priority)
    # Only a can be spared: d takes its place.
    assert trees.victim_names("own", 9, 5) == ["d", "b", "c"]


def test_evicted_candidate_is_spared_when_another_target_suffices() -> None:
    trees = QuotaTrees()
    trees.queue("own", None, 4, LOWER_IN_QUEUE)
    trees.add_holder("own", "leaves", 1, evicted=True)
    trees.add_holder("own", "stays", 3)
    assert trees.victim_names("own", 3, 5) == ["stays"]
    assert trees.victim_names("own", 1, 5) == ["leaves"]


# --- ties, and searches that need own candidates ----------------------------------------------------


def test_ties_do_not_depend_on_order_of_events() -> None:
    results: set[tuple[str, ...]] = set()
    names = ["a", "b", "c", "d"]
    for turn in range(4):
        trees = QuotaTrees()
        order = names[turn:] + names[:turn]
        for name in order:
            trees.queue(f"q{name}", "all", 0)
        trees.queue("own", "all", 4, RECLAIM_ANY)
        for name in order:
            trees.add_holder(f"q{name}", name, 1)
        results.add(tuple(trees.victim_names("own", 2)))
    assert results == {("a", "b")}


def test_default_policy_preempts_nothing() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, ClusterQueuePreemption())
    trees.queue("other", "all", 0)
    trees.add_holder("other", "lent", 2)
    trees.add_holder("own", "mine", 2)
    assert trees.victims("own", 1, priority=9) == []


def test_neighbor_loses_only_lower_priority_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    trees.cohort("root", None, 1)
    trees.queue("own", "root", 3, policy("LowerPriority", "LowerPriority"))
    trees.queue("other", "root")
    trees.add_holder("own", "own low", 2)
    trees.add_holder("other", "low", 1)
    trees.add_holder("other", "high", 1, priority=9)
    assert trees.victims("own", 3, priority=5) == [("low", RECLAIMED), ("own low", OWN)]


def test_neighbor_of_higher_priority_loses_nothing_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    both = ClusterQueuePreemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
    )
    trees.queue("own", of=5, preemption=both)
    trees.queue("low", of=0)
    trees.queue("high", of=0)
    trees.add_holder("own", "own-low", 3)
    trees.add_holder("low", "low", 1)
    trees.add_holder("high", "high", 1, priority=9)
    assert sorted(trees.victim_names("own", 4, priority=5)) == ["low", "own-low"]


@pytest.mark.parametrize("case", ["staying", "leaving", "cohort between"])
def test_neighbor_loses_only_what_it_borrows_when_own_candidates_are_needed(case: str) -> None:
    trees = QuotaTrees()
    cohort = "deep" if case == "cohort between" else "all"
    trees.cohort("all")
    trees.cohort("deep", "all")
    trees.queue("own", "all", 4, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("neighbor", cohort, 1)
    trees.add_holder("own", "own 1")
    trees.add_holder("own", "own 2")
    trees.add_holder("own", "own of higher priority", priority=9)
    trees.add_holder("neighbor", "borrows", evicted=case == "leaving")
    trees.add_holder("neighbor", "within quota", priority=1)
    assert trees.victim_names("own", 3, priority=5) == ["borrows", "own 1", "own 2"]


def test_local_queue_that_used_more_loses_first_when_own_candidates_are_needed() -> None:
    trees = QuotaTrees()
    trees.queue("own", "all", 4, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("neighbor", "all", usage_based_admission=True)
    trees.world.charging.local_queue_usage = lambda key: len(key.name)
    trees.add_holder("neighbor", "of used-less", local_queue="a", priority=0)
    trees.add_holder("neighbor", "of used-more", local_queue="used-more", priority=1)
    trees.add_holder("own", "own", 2)
    # One of the neighbor's workloads can stay.
    assert trees.victim_names("own", 3, priority=5) == ["of used-more", "own"]


@pytest.mark.parametrize(
    ("queue", "priority", "queued", "wanted", "expected"),
    [
        ("own", 5, 9, 1, ["lower"]),
        ("own", 5, 9, 2, []),
        ("own", 5, 7, 2, []),
        ("own", 5, 6, 2, ["lower", "newer"]),
        ("own", 5, 1, 2, ["lower", "equal 00"]),
        ("own", 9, 9, 2, ["lower", "equal 00"]),
        ("any", 0, 9, 1, ["lower"]),
    ],
    ids=[
        "lower priority",
        "none is newer",
        "none is newer, same time",
        "one is newer",
        "all are newer",
        "higher than all priorities",
        "reclaims any",
    ],
)
def test_second_search_in_same_index_finds_candidates_by_its_own_preemptor(
    queue: str, priority: int, queued: int, wanted: int, expected: list[str]
) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 8)
    trees.queue("own", "all", 5, policy(reclaim="LowerOrNewerEqualPriority"))
    trees.queue("any", "all", 5, RECLAIM_ANY)
    trees.queue("other", "all")
    trees.add_holder("other", "lower", priority=4)
    trees.add_holder("other", "newer", priority=5, queued=7, since=1)
    for number in range(16):
        trees.queue(f"queue {number:02}", "all")
        trees.add_holder(f"queue {number:02}", f"equal {number:02}", priority=5, queued=5, since=1)
    tree = TreeIndexes(trees.world, SupposedUsage(), ())
    cpu = pair("cpu")

    def search(queue: str, priority: int, queued: int, wanted: int) -> list[str]:
        preemptor = trees.preemptor(queue, priority, queued)
        targets = find_victims(trees.world, preemptor, {cpu: wanted}, (cpu,), (), tree)
        return [victim.entry.workload.key.name for victim in targets]

    assert search("own", 5, 6, 3) == []
    assert search(queue, priority, queued, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (5, Reachability.POSSIBLE),
        (6, Reachability.ONLY_WITH_OWN_CANDIDATES),
        (7, Reachability.IMPOSSIBLE),
    ],
)
def test_reachability_counts_usage_of_all_but_borrowing_cluster_queues(
    wanted: int, expected: Reachability
) -> None:
    trees = QuotaTrees()
    trees.cohort("all")
    trees.cohort("deep", "all", ResourceQuota(1, lending_limit=2))
    trees.queue("own", "all", 6, policy("LowerPriority", "Any", "LowerPriority"))
    trees.queue("within quota", "all", 1)
    trees.queue("within quota of cohort", "deep", 2)
    trees.queue("borrows", "all")
    trees.queue("borrows in cohort", "deep")
    trees.add_holder("within quota", "a")
    # The cohort has 3 and lends 2 of them, so that one of these is taken from the root.
    trees.add_holder("within quota of cohort", "b", 2)
    trees.add_holder("borrows", "c", 3)
    trees.add_holder("borrows in cohort", "d", 2)
    trees.add_holder("own", "lower")
    trees.add_holder("own", "higher", priority=9)
    cpu, node = pair("cpu"), trees.node("own")
    search = TargetSearch(trees.world, trees.preemptor("own", priority=5), {cpu: wanted}, (cpu,), ())
    index = TreeIndexes(trees.world, SupposedUsage(), ()).by_order(frozenset({cpu}))
    index.prepare(node)
    room = RequestedCapacity(node, search.usage)
    assert estimate_reachability(search, index, room, room.is_available) is expected
