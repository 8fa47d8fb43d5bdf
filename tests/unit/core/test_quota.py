"""Worked examples of the quota tree, and edge cases."""

import sys

import pytest

from admitq.core import quota
from admitq.core.amounts import LOWEST, UNLIMITED, FlavorResource
from admitq.core.cohorts import CohortTrees
from admitq.core.model import ResourceQuota
from admitq.core.quota import BorrowLevel, Cell

CPU = FlavorResource("default", "cpu")


class Tree:
    """Cohort trees with quota of one (flavor, resource)."""

    def __init__(self) -> None:
        self.cohort_trees = CohortTrees()

    def cohort(self, name: str, parent: str | None = None, of: ResourceQuota | None = None) -> None:
        self.cohort_trees.put_cohort(name, parent, {} if of is None else {CPU: of})

    def queue(self, name: str, cohort: str | None, of: ResourceQuota) -> None:
        self.cohort_trees.put_cluster_queue(name, cohort, {CPU: of})

    def cell(self, name: str) -> Cell:
        nodes = self.cohort_trees.cluster_queues | self.cohort_trees.cohorts
        return nodes[name].cells[CPU]

    def use(self, name: str, amount: int) -> None:
        node = self.cohort_trees.cluster_queues[name]
        change = self.cohort_trees.add_usage if amount > 0 else self.cohort_trees.remove_usage
        change(node, ((CPU, abs(amount)),))

    def available(self, *names: str) -> list[int]:
        return [quota.available(self.cell(name)) for name in names]

    def potential(self, *names: str) -> list[int]:
        return [quota.potential_available(self.cell(name)) for name in names]


@pytest.fixture
def org() -> Tree:
    """Return a cohort with own quota, a queue with a lending limit, and one with a borrowing limit."""
    tree = Tree()
    tree.cohort("org", None, ResourceQuota(10))
    tree.queue("a", "org", ResourceQuota(20, lending_limit=5))
    tree.queue("b", "org", ResourceQuota(10, borrowing_limit=4))
    return tree


@pytest.fixture
def root() -> Tree:
    """Return two cohorts below a root: one has two queues of 10, the other a queue of 30 that lends 20."""
    tree = Tree()
    tree.cohort("left", "root")
    tree.cohort("right", "root")
    tree.queue("x", "left", ResourceQuota(10))
    tree.queue("y", "left", ResourceQuota(10))
    tree.queue("z", "right", ResourceQuota(30, lending_limit=20))
    return tree


def test_lending_limit_splits_quota_into_subtree_and_local_part(org: Tree) -> None:
    shown = {name: (org.cell(name).subtree_quota, org.cell(name).local) for name in ("a", "b", "org")}
    assert shown == {"a": (20, 15), "b": (10, 0), "org": (25, 0)}


@pytest.mark.parametrize("limit", [4, 9])
def test_all_quota_is_lent_when_lending_limit_is_not_below_it(limit: int) -> None:
    tree = Tree()
    tree.queue("a", "org", ResourceQuota(4, lending_limit=limit))
    assert (tree.cell("a").local, tree.cell("org").subtree_quota) == (0, 4)


def test_usage_takes_local_part_first_and_returns_it_last(org: Tree) -> None:
    assert org.potential("a", "b") == [40, 14]
    assert org.available("a", "b") == [40, 14]
    org.use("a", 18)
    assert (org.cell("org").usage, org.available("a", "b")) == (3, [22, 14])
    org.use("b", 14)
    assert (org.cell("org").usage, org.available("a", "b")) == (17, [8, 0])
    org.use("a", -10)
    assert (org.cell("org").usage, org.available("a", "b")) == (14, [18, 0])
    org.use("a", -8)
    org.use("b", -14)
    assert [org.cell(name).usage for name in ("org", "a", "b")] == [0, 0, 0]


def test_usage_of_cohort_falls_when_local_part_of_queue_grows() -> None:
    tree = Tree()
    tree.queue("a", "org", ResourceQuota(10, lending_limit=2))
    tree.queue("b", "org", ResourceQuota(0))
    tree.use("a", 9)
    assert (tree.cell("org").usage, tree.available("b")) == (1, [1])
    # The queue lends as much as before, and its usage fits into its local part.
    tree.queue("a", "org", ResourceQuota(20, lending_limit=2))
    assert (tree.cell("org").usage, tree.available("b")) == (0, [2])


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, 0),
        (UNLIMITED, UNLIMITED),
        (UNLIMITED + 1, UNLIMITED),
        (LOWEST, LOWEST),
        (LOWEST - 1, LOWEST),
    ],
)
def test_amount_is_bounded_by_lowest_and_unlimited(amount: int, expected: int) -> None:
    assert quota.clamp_to_int64(amount) == expected


def test_quota_adds_up_over_tree_of_cohorts(root: Tree) -> None:
    assert [root.cell(name).subtree_quota for name in ("left", "right", "root")] == [20, 20, 40]
    assert root.cell("z").local == 10
    assert root.potential("x", "z") == [40, 50]


@pytest.mark.parametrize(
    ("amount", "level"),
    [
        (10, BorrowLevel(0, may_reclaim=True)),
        (15, BorrowLevel(1, may_reclaim=True)),
        (20, BorrowLevel(1, may_reclaim=True)),
        (25, BorrowLevel(2, may_reclaim=False)),
        (99, BorrowLevel(2, may_reclaim=False)),
    ],
)
def test_borrow_level_is_height_of_nearest_cohort_with_enough_quota(
    root: Tree, amount: int, level: BorrowLevel
) -> None:
    assert quota.borrow_level(root.cell("x"), amount) == level


def test_queue_without_cohort_borrows_nothing() -> None:
    tree = Tree()
    tree.queue("alone", None, ResourceQuota(5))
    assert quota.borrow_level(tree.cell("alone"), 50) == BorrowLevel(0, may_reclaim=False)
    tree.use("alone", 9)
    assert quota.borrowed(tree.cell("alone")) == 0
    assert tree.available("alone") == [-4]


def test_borrow_level_within_nominal_quota_is_0_in_oversubscribed_cohort(root: Tree) -> None:
    root.use("y", 45)
    assert root.available("x") == [-5]
    assert quota.borrow_level(root.cell("x"), 10).level == 0


def test_borrow_level_counts_local_part_of_queue() -> None:
    tree = Tree()
    tree.cohort("inner", "outer", ResourceQuota(4))
    tree.queue("q", "inner", ResourceQuota(6, lending_limit=0))
    tree.queue("far", "outer", ResourceQuota(10))
    assert quota.borrow_level(tree.cell("q"), 10) == BorrowLevel(1, may_reclaim=True)
    assert quota.borrow_level(tree.cell("q"), 11) == BorrowLevel(2, may_reclaim=False)
    # One of its local part is left.
    tree.use("q", 5)
    assert quota.borrow_level(tree.cell("q"), 5) == BorrowLevel(1, may_reclaim=True)
    assert quota.borrow_level(tree.cell("q"), 6) == BorrowLevel(2, may_reclaim=False)


def test_borrow_level_counts_local_part_of_intermediate_cohort() -> None:
    tree = Tree()
    tree.cohort("inner", "middle", ResourceQuota(8, lending_limit=3))
    tree.cohort("middle", "outer", ResourceQuota(1))
    tree.cohort("outer", None, ResourceQuota(10))
    tree.queue("q", "inner", ResourceQuota(0))
    levels = {amount: quota.borrow_level(tree.cell("q"), amount).level for amount in (8, 9, 10)}
    assert levels == {8: 1, 9: 2, 10: 3}


def test_cohort_keeps_local_part_for_its_members() -> None:
    tree = Tree()
    tree.cohort("inner", "outer", ResourceQuota(8, lending_limit=3))
    tree.queue("q", "inner", ResourceQuota(0))
    tree.queue("far", "outer", ResourceQuota(0))
    assert tree.available("q", "far") == [8, 3]
    tree.use("q", 6)
    assert (tree.cell("outer").usage, tree.available("q", "far")) == (1, [2, 2])
    assert quota.borrow_level(tree.cell("q"), 2).level == 1


def test_lending_limit_of_cohort_applies_to_quota_of_its_members() -> None:
    tree = Tree()
    tree.cohort("inner", "outer", ResourceQuota(0, lending_limit=3))
    tree.queue("q", "inner", ResourceQuota(8))
    tree.queue("far", "outer", ResourceQuota(0))
    assert (tree.cell("inner").subtree_quota, tree.cell("inner").local) == (8, 5)
    assert tree.potential("q", "far") == [8, 3]


def test_local_parts_of_all_levels_add_up() -> None:
    tree = Tree()
    tree.cohort("inner", "outer", ResourceQuota(8, lending_limit=3))
    tree.queue("q", "inner", ResourceQuota(6, lending_limit=0))
    # 6 of the queue, 5 of the local part of inner, and 3 that inner lends.
    assert (tree.available("q"), tree.potential("q")) == ([14], [14])
    tree.use("q", 9)
    assert (tree.available("q"), tree.potential("q")) == ([5], [14])


@pytest.mark.parametrize(
    ("borrowing", "used", "free"), [(None, 0, 14), (4, 0, 8), (0, 0, 4), (4, 3, 5), (4, 9, -1), (2, 6, 0)]
)
def test_borrowing_limit_bounds_quota_from_parent(borrowing: int | None, used: int, free: int) -> None:
    tree = Tree()
    tree.queue("q", "org", ResourceQuota(4, borrowing_limit=borrowing))
    tree.queue("other", "org", ResourceQuota(10))
    if used:
        tree.use("q", used)
    assert tree.available("q") == [free]


@pytest.mark.parametrize("used", [0, 1, 3, 6])
def test_available_with_lending_and_borrowing_limit_is_up_to_nominal_and_borrowing_limit(used: int) -> None:
    tree = Tree()
    tree.queue("q", "org", ResourceQuota(4, borrowing_limit=2, lending_limit=1))
    tree.queue("other", "org", ResourceQuota(10))
    tree.use("q", used)
    assert tree.available("q") == [4 + 2 - used]


def test_borrowed_amount_is_usage_beyond_nominal_quota(root: Tree) -> None:
    root.use("x", 13)
    assert [quota.borrowed(root.cell(name)) for name in ("x", "y")] == [3, 0]


def test_unlimited_quota_absorbs_usage_and_can_be_removed_again() -> None:
    tree = Tree()
    tree.queue("all", "org", ResourceQuota(UNLIMITED))
    tree.queue("some", "org", ResourceQuota(5))
    assert tree.available("some") == [UNLIMITED]
    tree.use("all", UNLIMITED - 7)
    tree.use("all", UNLIMITED - 7)
    assert tree.available("some", "all") == [UNLIMITED, UNLIMITED]
    tree.use("all", -(UNLIMITED - 7))
    tree.use("all", -(UNLIMITED - 7))
    tree.queue("all", "org", ResourceQuota(3))
    assert tree.available("some", "all") == [8, 8]


def test_unlimited_quota_lends_up_to_its_lending_limit() -> None:
    tree = Tree()
    tree.queue("all", "org", ResourceQuota(UNLIMITED, lending_limit=5))
    tree.queue("some", "org", ResourceQuota(1))
    assert tree.available("some", "all") == [6, UNLIMITED]


@pytest.mark.parametrize(("limit", "potential"), [(UNLIMITED, 15), (None, 15), (2, 7)])
def test_unlimited_borrowing_limit_does_not_limit(limit: int | None, potential: int) -> None:
    tree = Tree()
    tree.queue("q", "org", ResourceQuota(5, borrowing_limit=limit))
    tree.queue("other", "org", ResourceQuota(10))
    assert tree.potential("q") == [potential]


@pytest.mark.parametrize(("own", "above", "potential"), [(5, 1, 6), (1, 3, 4), (2, 2, 5)])
def test_tightest_borrowing_limit_up_to_root_applies(own: int, above: int, potential: int) -> None:
    tree = Tree()
    tree.cohort("inner", "outer", ResourceQuota(2, borrowing_limit=above))
    tree.queue("q", "inner", ResourceQuota(3, borrowing_limit=own))
    tree.queue("far", "outer", ResourceQuota(10))
    assert (tree.potential("q"), tree.available("q")) == ([potential], [potential])


def test_trees_deeper_than_recursion_limit_are_supported() -> None:
    tree = Tree()
    levels = sys.getrecursionlimit() + 100
    for level in range(levels):
        tree.cohort(f"c{level}", f"c{level + 1}")
    tree.cohort(f"c{levels}", None, ResourceQuota(9))
    tree.queue("deep", "c0", ResourceQuota(1))
    tree.use("deep", 4)
    assert tree.available("deep") == [6]
    assert quota.borrow_level(tree.cell("deep"), 1).level == levels + 1
