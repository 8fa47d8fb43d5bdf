"""Whoever is asleep is noticed exactly when what it needs has become available."""

import random

import pytest

from admitq.core import quota
from admitq.core.model import ResourceQuota
from admitq.core.quota import Cell, Height
from admitq.core.sleepers import Need, Sleepers


def _tree(*nodes: tuple[int | None, ResourceQuota]) -> list[Cell]:
    """Cells by the index of their parent."""
    cells = [Cell(Height(1)) for _ in nodes]
    for cell, (parent, _) in zip(cells, nodes, strict=True):
        if parent is not None:
            quota.attach(cell, cells[parent])
    for cell, (_, amounts) in zip(cells, nodes, strict=True):
        quota.set_quota(cell, amounts, declared=True)
    return cells


def _pair(limit: int | None = None, lending: int | None = None) -> list[Cell]:
    """A cohort above two ClusterQueues of 10."""
    queue = ResourceQuota(10, limit, lending)
    return _tree((None, ResourceQuota(0)), (0, queue), (0, queue))


def _sleep(sleepers: Sleepers, name: str, *needs: Need) -> None:
    sleepers.add(name, name)
    sleepers.calm(name, needs)


def test_nobody_asleep_is_not_concerned() -> None:
    _, left, _ = _pair()
    assert not Sleepers().concerned_by(left)


def test_the_restless_are_always_concerned() -> None:
    _, left, right = _pair()
    sleepers = Sleepers()
    _sleep(sleepers, "left", ((left, 100)))
    assert not sleepers.concerned_by(right)
    sleepers.add("right", "right")
    assert sleepers.concerned_by(right)
    assert sleepers.clear() == ["left", "right"]
    assert not sleepers.concerned_by(right)


def test_who_was_woken_before_it_told_its_needs_is_asleep_no_more() -> None:
    _, left, _ = _pair()
    sleepers = Sleepers()
    sleepers.add("left", "left")
    assert sleepers.clear() == ["left"]
    sleepers.calm("left", ((left, 100),))
    assert (sleepers.names, sleepers.needs) == ({}, {})


def test_release_elsewhere_concerns_who_borrows() -> None:
    _, left, right = _pair()
    quota.add_usage(right, 18)
    sleepers = Sleepers()
    _sleep(sleepers, "left", ((left, 5)))
    quota.remove_usage(right, 2)
    assert not sleepers.concerned_by(right)
    quota.remove_usage(right, 1)
    assert sleepers.concerned_by(right)


def test_release_elsewhere_does_not_concern_who_is_at_its_borrowing_limit() -> None:
    _, left, right = _pair(limit=2)
    quota.add_usage(left, 12)
    quota.add_usage(right, 5)
    sleepers = Sleepers()
    _sleep(sleepers, "left", ((left, 3)))
    quota.remove_usage(right, 5)
    assert not sleepers.concerned_by(right)
    quota.remove_usage(left, 3)
    assert sleepers.concerned_by(left)


def test_what_binds_may_change() -> None:
    _, left, right = _pair(limit=2)
    quota.add_usage(left, 12)
    quota.add_usage(right, 8)
    sleepers = Sleepers()
    _sleep(sleepers, "left", ((left, 5)))
    quota.remove_usage(left, 3)
    quota.add_usage(right, 2)
    quota.remove_usage(left, 2)
    assert not sleepers.concerned_by(left), "the cohort is short now"
    quota.remove_usage(right, 2)
    assert sleepers.concerned_by(right)


def _at_random(choice: random.Random) -> list[Cell]:
    def limit() -> int | None:
        return choice.choice((None, 0, choice.randint(1, 20)))

    parents = [None, *(choice.randrange(index) for index in range(1, choice.randint(2, 7)))]
    return _tree(*((parent, ResourceQuota(choice.randint(0, 20), limit(), limit())) for parent in parents))


def _available(need: Need) -> bool:
    return quota.available(need[0]) >= need[1]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(200))
def test_concerned_exactly_when_a_need_is_met(seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 a history, not a secret
    cells = _at_random(choice)
    leaves = [cell for cell in cells if not cell.links]
    sleepers = Sleepers()
    for _ in range(60):
        leaf = choice.choice(leaves)
        if choice.random() < 0.5:
            quota.add_usage(leaf, choice.randint(1, 15))
        elif leaf.usage:
            quota.remove_usage(leaf, choice.randint(1, leaf.usage))
            met = any(map(_available, sleepers.needs))
            assert sleepers.concerned_by(leaf) == met
            if met:
                sleepers.clear()
        else:
            need = (leaf, choice.randint(1, 30))
            if not _available(need):
                _sleep(sleepers, "somebody", need)
