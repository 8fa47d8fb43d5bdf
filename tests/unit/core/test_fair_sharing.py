"""Shares of ClusterQueues and cohorts, and the tournament that orders heads by them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.cohorts import Node
from admitq.core.fair_sharing import NO_SHARE, Share, Tournament, share, supposed_share
from admitq.core.model import ResourceQuota
from admitq.core.settings import Gates
from tests.unit.core.quota_trees import QuotaTrees, Stated, Weight, pair, stated

# --- the share of a node --------------------------------------------------------------------------------


def finite(amount: Weight, resource: str = "cpu") -> Share:
    return Share(infinite=False, amount=Fraction(amount), resource=resource)


@pytest.mark.parametrize(
    ("used", "weight", "expected", "shown"),
    [
        (14, 1, finite(200), 200),
        (14, 2, finite(100), 100),
        (14, 3, finite(Fraction(200, 3)), 67),
        (10, 1, NO_SHARE, 0),
        (0, 1, NO_SHARE, 0),
        (10, 0, NO_SHARE, 0),
        (11, 0, Share(True, Fraction(50), "cpu"), UNLIMITED),
        (11, "1/1000000000000", finite(50 * 10**12), 50 * 10**12),
        (11, Fraction(1, 10**30), finite(50 * 10**30), UNLIMITED),
        (11, 10**30, finite(Fraction(50, 10**30)), 1),
    ],
)
def test_share_is_borrowed_part_of_lendable_amount_divided_by_weight(
    used: int, weight: Weight, expected: Share, shown: int
) -> None:
    """Worked example: two ClusterQueues of 10, so that 20 can be lent; one uses 14."""
    trees = QuotaTrees()
    trees.queue("a", "all", 10, weight=weight)
    trees.queue("b", "all", 10)
    trees.add_holder("a", "w", used)
    actual = share(trees.node("a"))
    assert (actual, actual.resource, actual.weighted_share) == (expected, expected.resource, shown)


@pytest.mark.parametrize(
    ("supposed", "weight"),
    [
        ({"cpu": 14}, 1),
        ({"cpu": 14}, 0),
        ({"cpu": 10}, 1),
        ({"cpu": 10}, 0),
        ({"cpu": 3, "spot/cpu": 9}, 1),
        ({"cpu": 12, "spot/cpu": 9}, 1),
        ({"cpu": 12, "gpu": 9}, 1),
    ],
)
def test_supposed_share_equals_share_once_the_usage_is_held(supposed: dict[str, int], weight: Weight) -> None:
    trees = QuotaTrees()
    trees.queue("a", "all", {"cpu": 10, "spot/cpu": 5, "gpu": 5}, weight=weight)
    trees.queue("b", "all", {"cpu": 10, "spot/cpu": 5, "gpu": 5})
    node = trees.node("a")
    actual = supposed_share(node, {node.cells[pair(name)]: amount for name, amount in supposed.items()})
    for name, amount in supposed.items():
        trees.add_holder("a", name, {name: amount})
    assert (actual, actual.resource) == (share(node), share(node).resource)


def test_dominant_resource_is_first_by_name_when_shares_are_equal() -> None:
    trees = QuotaTrees()
    trees.queue("a", "all", {"memory": 10, "gpu": 10, "cpu": 100})
    trees.queue("b", "all", 0)
    trees.add_holder("a", "w", {"memory": 5, "gpu": 5, "cpu": 3})
    trees.queue("a", "all", {"memory": 3, "gpu": 3, "cpu": 100})
    trees.queue("b", "all", {"memory": 7, "gpu": 7})
    assert (share(trees.node("a")), share(trees.node("a")).resource) == (finite(200, "gpu"), "gpu")


def test_share_adds_up_flavors_of_resource() -> None:
    trees = QuotaTrees()
    trees.queue("a", "all", {"cpu": 2, "spot/cpu": 3})
    trees.queue("b", "all", {"cpu": 8, "spot/cpu": 7})
    trees.add_holder("a", "w", {"cpu": 4})
    trees.add_holder("a", "v", {"spot/cpu": 6})
    # Unused quota of one flavor does not offset borrowed quota of another.
    assert share(trees.node("a")) == finite(Fraction(1000 * (2 + 3), 20))
    trees.remove_holder("v")
    assert share(trees.node("a")) == finite(100)


def test_lendable_amount_includes_all_quota_of_root() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", {"cpu": 4})
    trees.cohort("root", None, {"spot/cpu": 6})
    trees.queue("a", "left", {"cpu": 0})
    trees.add_holder("a", "w", 2)
    assert share(trees.node("a")) == finite(200)


def test_lendable_amount_is_bounded_by_limits_of_cohort() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", ResourceQuota(4, borrowing_limit=1))
    trees.cohort("root", None, 6)
    trees.queue("a", "left")
    trees.add_holder("a", "w", 1)
    assert share(trees.node("a")) == finite(200)


def test_cohort_has_share_and_root_has_none() -> None:
    trees = QuotaTrees()
    trees.cohort("left", "root", 2, weight=2)
    trees.cohort("root", None, 8)
    trees.queue("a", "left", 0)
    trees.queue("alone", None, 1)
    trees.add_holder("a", "w", 4)
    trees.add_holder("alone", "v", 4)
    assert share(trees.node("left")) == finite(100)
    assert (share(trees.node("root")), share(trees.node("alone"))) == (NO_SHARE, NO_SHARE)


def test_resource_without_lendable_amount_does_not_count_in_share() -> None:
    trees = QuotaTrees()
    trees.queue("a", "all", {"cpu": 4, "gpu": 10})
    trees.queue("b", "all", {"gpu": 0})
    trees.add_holder("a", "w", {"cpu": 4})
    trees.queue("a", "all", {"cpu": 0, "gpu": 10})
    assert share(trees.node("a")) == NO_SHARE
    trees.add_holder("b", "v", {"gpu": 1})
    assert share(trees.node("b")) == finite(100)


def test_resource_with_usage_but_without_quota_does_not_count_in_share() -> None:
    trees = QuotaTrees()
    trees.queue("a", "all", {"cpu": 1})
    trees.add_holder("a", "w", {"cpu": 2})
    assert share(trees.node("a")) == finite(1000)
    trees.add_holder("a", "v", {"gpu": 2})
    assert share(trees.node("a")) == finite(1000)


def test_share_of_unlimited_quota_is_shown_as_1() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, UNLIMITED)
    trees.queue("a", "all", 0)
    trees.add_holder("a", "w", 2)
    assert share(trees.node("a")) == finite(Fraction(2000, UNLIMITED))
    assert share(trees.node("a")).weighted_share == 1


def test_lendable_amount_follows_changes_of_tree() -> None:
    trees = QuotaTrees()
    trees.queue("a", "left", 0)
    trees.queue("b", "left", 4)
    trees.add_holder("a", "w", 2)
    shares = [share(trees.node("a")).amount]
    trees.queue("b", "left", 8)
    shares.append(share(trees.node("a")).amount)
    trees.cohort("left", "root")
    trees.cohort("root", None, 8)
    shares.append(share(trees.node("a")).amount)
    trees.queue("b", "elsewhere", 8)
    shares.append(share(trees.node("a")).amount)
    assert shares == [500, 250, 125, 250]


def test_lendable_amount_is_cached_while_only_usage_changes() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 4)
    trees.queue("a", "all")
    trees.add_holder("a", "w", 1)
    assert share(trees.node("a")) == finite(250)
    cached = trees.node("all").lendable
    trees.add_holder("a", "v", 1)
    assert share(trees.node("a")) == finite(500)
    assert trees.node("all").lendable is cached


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        (finite(0), finite(1)),
        (finite(Fraction(1, 3)), finite(Fraction(1, 3) + Fraction(1, 10**40))),
        (finite(10**40), Share(True, Fraction(1))),
        (Share(True, Fraction(1)), Share(True, Fraction(2))),
    ],
)
def test_shares_are_ordered_by_exact_amount_and_infinite_shares_come_last(
    smaller: Share, greater: Share
) -> None:
    assert smaller < greater
    assert not greater <= smaller


def test_shares_of_different_resources_can_be_equal() -> None:
    assert finite(1, "cpu") == finite(1, "gpu")
    assert finite(1, "cpu") <= finite(1, "gpu")


# --- tournament -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    node: Node
    usage: tuple[tuple[FlavorResource, int], ...]
    priority: int = 0
    queued_at: int = 0
    uid: str = ""
    is_preemptor: bool = False


def head(
    trees: QuotaTrees, queue: str, of: Stated = 1, priority: int = 0, queued: int = 0, preemptor: bool = False
) -> Head:
    return Head(trees.node(queue), tuple(stated(of).items()), priority, queued, queue, preemptor)


PREEMPTORS_FIRST = Gates(prioritize_preemptor_workloads=True)
BY_SHARE_ALONE = Gates(fair_sharing_prioritize_non_borrowing=False)


def admit(trees: QuotaTrees, tournament: Tournament[Head], winner: Head) -> None:
    trees.world.cohort_trees.add_usage(winner.node, winner.usage)
    tournament.usage_changed(winner.node)


def tournament_order(trees: QuotaTrees, heads: Iterable[Head], gates: Gates | None = None) -> list[str]:
    """Return the uids of the winners in order; each winner uses what it requests."""
    tournament = Tournament(heads, gates or Gates())
    order: list[str] = []
    while len(tournament):
        before = trees.cells()
        winner = tournament.pop()
        assert trees.cells() == before
        order.append(winner.uid)
        admit(trees, tournament, winner)
    with pytest.raises(IndexError, match=r"^no head is left$"):
        tournament.pop()
    return order


@pytest.mark.parametrize(
    ("a", "b", "gates", "first"),
    [
        ({"of": 1}, {"of": 2}, None, "a"),
        ({"of": 2}, {"of": 1}, None, "b"),
        ({"priority": 1}, {"priority": 2}, None, "b"),
        ({"queued": 2}, {"queued": 1}, None, "b"),
        ({}, {}, None, "a"),
        ({"of": 1}, {"of": 2, "preemptor": True}, None, "a"),
        ({"of": 1}, {"of": 2, "preemptor": True}, PREEMPTORS_FIRST, "b"),
        ({"of": 2, "preemptor": True}, {"of": 1, "preemptor": True}, PREEMPTORS_FIRST, "b"),
        ({"of": 1}, {"of": 0}, None, "b"),
        ({"of": 1}, {"of": {}}, None, "b"),
    ],
    ids=[
        "smaller share",
        "smaller share of the other head",
        "higher priority",
        "queued earlier",
        "uid",
        "preemptor without gate",
        "preemptor with gate",
        "two preemptors with gate",
        "request of 0",
        "no assignment",
    ],
)
def test_tournament_orders_two_heads_by_share_priority_time_and_uid(
    a: dict[str, Any], b: dict[str, Any], gates: Gates | None, first: str
) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 10)
    trees.queue("a")
    trees.queue("b")
    assert tournament_order(trees, [head(trees, "b", **b), head(trees, "a", **a)], gates)[0] == first


@pytest.mark.parametrize(("used", "second"), [(0, "in-left"), (5, "beside")])
def test_usage_of_queue_without_head_counts_in_share_of_cohort(used: int, second: str) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 20)
    trees.cohort("left", "all")
    for name, cohort in (("first", "all"), ("beside", "all"), ("in-left", "left"), ("idle", "left")):
        trees.queue(name, cohort)
    heads = [head(trees, "first", 0), head(trees, "beside", queued=2), head(trees, "in-left", queued=1)]
    tournament = Tournament(heads, Gates())
    assert tournament.pop().uid == "first"
    trees.add_holder("idle", "w", used)
    tournament.usage_changed(trees.node("idle"))
    assert tournament.pop().uid == second


@pytest.mark.parametrize(("gates", "first"), [(None, "a"), (BY_SHARE_ALONE, "b")])
def test_head_within_nominal_comes_before_smaller_shares(gates: Gates | None, first: str) -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, {"cpu": 10, "gpu": 10})
    trees.queue("a", "all", {"cpu": 1, "gpu": 0})
    trees.queue("b", "all", 0)
    trees.add_holder("a", "gpus", {"gpu": 5})
    assert tournament_order(trees, [head(trees, "a"), head(trees, "b")], gates)[0] == first


def test_request_of_0_does_not_borrow() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, {"cpu": 10, "gpu": 10})
    trees.queue("a", "all", {"cpu": 1, "gpu": 0})
    trees.queue("b", "all", 0)
    trees.add_holder("a", "gpus", {"gpu": 5})
    assert tournament_order(trees, [head(trees, "a", {"cpu": 1, "gpu": 0}), head(trees, "b")])[0] == "a"


def test_heads_are_compared_by_shares_of_cohorts_below_common_parent() -> None:
    trees = QuotaTrees()
    trees.cohort("root", None, 20)
    trees.cohort("left", "root")
    trees.cohort("right", "root")
    for queue, cohort in (("a", "left"), ("b", "left"), ("c", "right")):
        trees.queue(queue, cohort)
    trees.add_holder("b", "w", 6)
    trees.add_holder("c", "v", 4)
    # Queue a has the smallest share of the queues, but cohort left has borrowed more than right.
    assert tournament_order(trees, [head(trees, name) for name in "abc"]) == ["c", "a", "b"]


def test_heads_are_admitted_in_proportion_to_weights() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 60)
    trees.queue("heavy", "all", weight=2)
    trees.queue("light", "all", weight=1)
    order: list[str] = []
    for _ in range(9):
        tournament = Tournament([head(trees, "heavy"), head(trees, "light")], Gates())
        winner = tournament.pop()
        order.append(winner.uid)
        trees.world.cohort_trees.add_usage(winner.node, winner.usage)
    assert order.count("heavy") == 6


def test_head_of_queue_with_weight_0_comes_last_when_it_borrows() -> None:
    trees = QuotaTrees()
    trees.cohort("all", None, 20)
    trees.queue("none", "all", 1, weight=0)
    trees.queue("one", "all")
    trees.add_holder("one", "w", 15)
    assert tournament_order(trees, [head(trees, "none", 1), head(trees, "one", 1)])[0] == "none"
    assert tournament_order(trees, [head(trees, "none", 2), head(trees, "one", 1)])[0] == "one"


def test_tournament_includes_heads_of_other_trees_and_without_cohort() -> None:
    trees = QuotaTrees()
    trees.queue("alone", None, 1)
    trees.queue("x", "first", 1)
    trees.queue("y", "second", 1)
    heads = [head(trees, name) for name in ("y", "x", "alone")]
    assert tournament_order(trees, heads) == ["alone", "x", "y"]


def _order(
    gates: Gates, contender: Head, node: Node, share_afterwards: Share, borrowing: bool
) -> tuple[object, ...]:
    return (
        gates.prioritize_preemptor_workloads and not contender.is_preemptor,
        gates.fair_sharing_prioritize_non_borrowing and borrowing,
        share_afterwards,
        -contender.priority,
        contender.queued_at,
        contender.uid,
    )


def _best(trees: QuotaTrees, heads: list[Head], gates: Gates, at: Node) -> Head | None:
    """Return the nominee of a node, computed from scratch."""
    if not at.is_cohort:
        return next((each for each in heads if each.node is at), None)
    best: tuple[tuple[object, ...], Head] | None = None
    for child in [*at.cohorts.values(), *at.cluster_queues.values()]:
        nominee = _best(trees, heads, gates, child)
        if nominee is None:
            continue
        trees.world.cohort_trees.add_usage(nominee.node, nominee.usage)
        borrowing = any(child.cells[of].usage > child.cells[of].subtree_quota for of, _ in nominee.usage)
        order = _order(gates, nominee, child, share(child), borrowing)
        trees.world.cohort_trees.remove_usage(nominee.node, nominee.usage)
        if best is None or order < best[0]:  # pyright: ignore[reportOperatorIssue]
            best = (order, nominee)
    return None if best is None else best[1]


@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_tournament_equals_one_computed_from_scratch(
    chance: Random, preemptors_first: bool, non_borrowing_first: bool
) -> None:
    gates = Gates(
        prioritize_preemptor_workloads=preemptors_first,
        fair_sharing_prioritize_non_borrowing=non_borrowing_first,
    )
    trees = QuotaTrees()
    trees.cohort("root", None, 12)
    for name in ("left", "right"):
        trees.cohort(name, "root", chance.randrange(6), chance.choice([0, 1, 2, "1/3"]))
    queues = [f"q{number}" for number in range(chance.randrange(1, 7))]
    for name in queues:
        quota = ResourceQuota(chance.randrange(4), lending_limit=chance.choice([None, 1]))
        trees.queue(name, chance.choice(["root", "left", "right"]), quota, weight=chance.choice([0, 1, 1, 2]))
        trees.add_holder(name, f"held-{name}", chance.randrange(5))
    heads = [
        head(
            trees,
            name,
            chance.randrange(1, 4),
            chance.randrange(2),
            chance.randrange(2),
            chance.random() < 0.3,
        )
        for name in queues
        if chance.random() < 0.8
    ]
    chance.shuffle(heads)
    tournament = Tournament(heads, gates)
    left = list(heads)
    while left:
        expected = _best(trees, left, gates, trees.node("root"))
        winner = tournament.pop()
        assert expected is not None
        assert winner.uid == expected.uid
        left.remove(winner)
        if chance.random() < 0.7:
            admit(trees, tournament, winner)
        other = trees.node(chance.choice(queues))
        trees.world.cohort_trees.remove_usage(
            other,
            [(FlavorResource("default", "cpu"), min(1, other.cells[FlavorResource("default", "cpu")].usage))],
        )
        tournament.usage_changed(other)
