"""A ClusterQueue is reported exactly when an amount that one of its lanes needs becomes available."""

import random
from collections.abc import Iterable

import pytest

from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.model import ResourceQuota
from admitq.core.quota import Cell, Height
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex

CPU = FlavorResource("default", "cpu")


def _tree(*nodes: tuple[int | None, ResourceQuota]) -> list[Cell]:
    """Return one cell for each node, which is given by the index of its parent and its quota."""
    cells = [Cell(Height(1)) for _ in nodes]
    for cell, (parent, _) in zip(cells, nodes, strict=True):
        if parent is not None:
            quota.attach(cell, cells[parent])
    for cell, (_, amounts) in zip(cells, nodes, strict=True):
        quota.set_quota(cell, amounts, declared=True)
    return cells


def _pair(limit: int | None = None, lending: int | None = None) -> list[Cell]:
    """Return the cells of a cohort and of its two ClusterQueues of 10."""
    queue = ResourceQuota(10, limit, lending)
    return _tree((None, ResourceQuota(0)), (0, queue), (0, queue))


def _registered(index: WakeIndex, name: str, cell: Cell) -> TreeRegistration:
    return TreeRegistration(name, {CPU: cell}, index)


def _names(registrations: Iterable[TreeRegistration]) -> list[str]:
    return sorted(each.name for each in registrations)


# --- indexes --------------------------------------------------------------------------------------------


def test_index_without_waiting_lanes_is_empty_and_reports_nothing() -> None:
    _, left, _ = _pair()
    index = WakeIndex()
    _registered(index, "left", left)
    assert (index.is_empty, index.names, index.met_by_return(left)) == (True, [], [])


def test_index_lists_cluster_queues_by_what_they_wait_for() -> None:
    index = WakeIndex()
    for name, wait in (
        ("a", lambda target: target.set_any_return(waits=True)),
        ("b", lambda target: target.set_held_back(holds_back=True)),
        ("c", lambda target: target.set_progress(waits=True)),
        ("d", lambda target: target.set_blocking(blocks=True)),
        ("e", lambda target: target.set_need(CPU, 5)),
        ("f", lambda target: target.set_waiting(waits=True)),
    ):
        registration = _registered(index, name, _pair()[1])
        for _ in range(2):
            wait(registration)  # The second time changes nothing.
    assert index.names == ["a", "b", "f"]
    assert (list(index.waiting_for_any_return), list(index.waiting_for_progress)) == (["a", "b"], ["c"])
    assert (list(index.with_blocking_head), list(index.with_needs)) == (["d"], ["e"])
    assert list(index.waiting) == ["f"]
    assert not index.is_empty


def test_index_drops_cluster_queue_that_no_longer_waits() -> None:
    index = WakeIndex()
    registration = _registered(index, "q", _pair()[1])
    for waits in (True, False):
        registration.set_waiting(waits=waits)
        registration.set_any_return(waits=waits)
        registration.set_held_back(holds_back=waits)
        registration.set_progress(waits=waits)
        registration.set_blocking(blocks=waits)
        registration.set_need(CPU, 5 if waits else None)
        assert index.is_empty is not waits
    assert (registration.needs, registration.armed) == ({}, {})


def test_cluster_queue_with_held_back_workload_still_waits_for_any_return() -> None:
    index = WakeIndex()
    registration = _registered(index, "q", _pair()[1])
    registration.set_any_return(waits=True)
    registration.set_held_back(holds_back=True)
    registration.set_any_return(waits=False)
    assert list(index.waiting_for_any_return) == ["q"]


# --- needs ----------------------------------------------------------------------------------------------


def test_borrower_is_reported_when_quota_returns_elsewhere() -> None:
    _, left, right = _pair()
    quota.add_usage(right, 18)
    index = WakeIndex()
    _registered(index, "left", left).set_need(CPU, 5)
    quota.remove_usage(right, 2)
    assert index.met_by_return(right) == []
    quota.remove_usage(right, 1)
    assert _names(index.met_by_return(right)) == ["left"]


def test_borrower_at_its_borrowing_limit_is_not_reported_when_quota_returns_elsewhere() -> None:
    _, left, right = _pair(limit=2)
    quota.add_usage(left, 12)
    quota.add_usage(right, 5)
    index = WakeIndex()
    _registered(index, "left", left).set_need(CPU, 3)
    quota.remove_usage(right, 5)
    assert index.met_by_return(right) == []
    quota.remove_usage(left, 3)
    assert _names(index.met_by_return(left)) == ["left"]


def test_need_follows_the_binding_node() -> None:
    _, left, right = _pair(limit=2)
    quota.add_usage(left, 12)
    quota.add_usage(right, 8)
    index = WakeIndex()
    _registered(index, "left", left).set_need(CPU, 5)
    quota.remove_usage(left, 3)
    quota.add_usage(right, 2)
    quota.remove_usage(left, 2)
    assert index.met_by_return(left) == [], "now the quota of the cohort is not sufficient"
    quota.remove_usage(right, 2)
    assert _names(index.met_by_return(right)) == ["left"]


def test_need_that_was_reported_is_reported_again_only_after_rearm() -> None:
    _, left, right = _pair()
    quota.add_usage(right, 20)
    index = WakeIndex()
    registration = _registered(index, "left", left)
    registration.set_need(CPU, 5)
    for armed in (True, False, True):
        quota.remove_usage(right, 5)
        assert _names(index.met_by_return(right)) == (["left"] if armed else [])
        quota.add_usage(right, 5)
        if not armed:
            registration.rearm()
            registration.rearm()  # All needs are armed: nothing changes.
    assert registration.armed == {}


def test_reduced_need_is_reported_by_its_new_amount() -> None:
    _, left, right = _pair()
    quota.add_usage(right, 20)
    index = WakeIndex()
    registration = _registered(index, "left", left)
    registration.set_need(CPU, 9)
    registration.set_need(CPU, 9)
    registration.set_need(CPU, 2)
    quota.remove_usage(right, 2)
    assert _names(index.met_by_return(right)) == ["left"]
    quota.remove_usage(right, 7)
    assert index.met_by_return(right) == [], "the former amount is not needed any more"


def test_need_of_quota_that_an_edit_removed_is_kept_and_not_reported() -> None:
    index = WakeIndex()
    registration = TreeRegistration("q", {}, index)
    registration.set_need(CPU, 5)
    assert (registration.available(CPU), registration.armed, list(index.with_needs)) == (0, {}, ["q"])
    registration.rearm()
    assert registration.armed == {}


def test_outdated_entries_are_pruned() -> None:
    _, left, _ = _pair()
    index = WakeIndex()
    registration = _registered(index, "left", left)
    for amount in range(2000):
        registration.set_need(CPU, 100 + amount)
    (heap,) = index._heaps.values()  # pyright: ignore[reportPrivateUsage]
    assert len(heap) < 200


def test_current_entries_are_kept_when_outdated_ones_are_pruned() -> None:
    root, left, right = _pair()
    quota.add_usage(right, 20)
    index = WakeIndex()
    for number in range(500):
        _registered(index, f"q{number}", left).set_need(CPU, 5)
    mover = _registered(index, "mover", left)
    for amount in range(2000):
        mover.set_need(CPU, 100 + amount)
    (heap,) = index._heaps.values()  # pyright: ignore[reportPrivateUsage]
    assert len(heap) < 1500
    quota.remove_usage(right, 5)
    assert len(index.met_by_return(root)) == 500


# --- trees ----------------------------------------------------------------------------------------------


def test_cluster_queue_that_moved_is_reported_only_in_its_new_tree() -> None:
    _, mover, stayer = _pair()
    new_root, neighbor, _ = _pair()
    for cell in (stayer, neighbor):
        quota.add_usage(cell, 20)
    old, new = WakeIndex(), WakeIndex()
    registration = _registered(old, "mover", mover)
    _registered(old, "stayer", stayer).set_need(CPU, 30)
    registration.set_need(CPU, 15)
    registration.set_waiting(waits=True)
    registration.set_progress(waits=True)
    registration.set_blocking(blocks=True)
    registration.set_any_return(waits=True)
    quota.detach(mover)
    quota.attach(mover, new_root)
    old.move([registration], new)
    assert (list(old.with_needs), old.names, new.names) == (["stayer"], [], ["mover"])
    assert (
        list(new.waiting_for_any_return)
        == list(new.waiting_for_progress)
        == list(new.with_blocking_head)
        == list(new.with_needs)
        == ["mover"]
    )
    quota.remove_usage(stayer, 20)
    assert old.met_by_return(stayer) == []
    quota.remove_usage(neighbor, 10)
    assert _names(new.met_by_return(neighbor)) == ["mover"]


def test_cluster_queue_that_moved_is_reported_again_in_its_new_tree() -> None:
    _, mover, stayer = _pair()
    quota.add_usage(stayer, 20)
    old, new = WakeIndex(), WakeIndex()
    registration = _registered(old, "mover", mover)
    registration.set_need(CPU, 5)
    quota.remove_usage(stayer, 5)
    assert _names(old.met_by_return(stayer)) == ["mover"]
    old.move([registration], new)
    assert CPU in registration.armed


def _at_random(choice: random.Random) -> list[Cell]:
    def limit() -> int | None:
        return choice.choice((None, 0, choice.randint(1, 20)))

    parents = [None, *(choice.randrange(index) for index in range(1, choice.randint(2, 7)))]
    return _tree(*((parent, ResourceQuota(choice.randint(0, 20), limit(), limit())) for parent in parents))


def _is_met(registration: TreeRegistration) -> bool:
    return CPU in registration.needs and registration.available(CPU) >= registration.needs[CPU]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(200))
def test_cluster_queue_is_reported_exactly_when_its_armed_need_is_met(seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 a history, not a secret
    cells = _at_random(choice)
    leaves = [cell for cell in cells if not cell.links]
    index = WakeIndex()
    registrations = {leaf: _registered(index, f"q{number}", leaf) for number, leaf in enumerate(leaves)}
    armed: set[str] = set()
    for _ in range(100):
        leaf = choice.choice(leaves)
        registration = registrations[leaf]
        match choice.randrange(5):
            case 0 | 1:
                quota.add_usage(leaf, choice.randint(1, 15))
            case 2 if leaf.usage:
                quota.remove_usage(leaf, choice.randint(1, leaf.usage))
                expected = {each.name for each in registrations.values() if _is_met(each)} & armed
                assert _names(index.met_by_return(leaf)) == sorted(expected)
                armed -= expected
            case 3:
                amount = choice.choice((None, choice.randint(1, 30)))
                if amount != registration.needs.get(CPU):
                    (armed.discard if amount is None else armed.add)(registration.name)
                registration.set_need(CPU, amount)
            case _:
                registration.rearm()
                armed |= {registration.name} if registration.needs else set()
        assert {each.name for each in registrations.values() if each.armed} == armed


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(50))
def test_cluster_queues_that_move_between_trees_are_reported_exactly_when_needs_are_met(seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 a history, not a secret
    roots = [_tree((None, ResourceQuota(20)))[0] for _ in range(2)]
    indexes = [WakeIndex() for _ in roots]
    leaves = [Cell(Height(0)) for _ in range(4)]
    registrations: list[TreeRegistration] = []
    trees: list[int] = []
    for number, leaf in enumerate(leaves):
        trees.append(number % 2)
        quota.attach(leaf, roots[trees[number]])
        quota.set_quota(leaf, ResourceQuota(5), declared=True)
        registrations.append(_registered(indexes[trees[number]], f"q{number}", leaf))
    for _ in range(100):
        number = choice.randrange(len(leaves))
        leaf, registration, tree = leaves[number], registrations[number], trees[number]
        match choice.randrange(4):
            case 0:
                quota.add_usage(leaf, choice.randint(1, 15))
            case 1 if leaf.usage:
                quota.remove_usage(leaf, choice.randint(1, leaf.usage))
                of_tree = [each for each in registrations if each.index is indexes[tree]]
                expected = [each for each in of_tree if each.armed and _is_met(each)]
                assert _names(indexes[tree].met_by_return(leaf)) == _names(expected)
                assert not any(each.armed for each in expected)
            case 2:
                registration.set_need(CPU, choice.randint(1, 40))
            case _:
                trees[number] = 1 - tree
                quota.detach(leaf)
                quota.attach(leaf, roots[1 - tree])
                indexes[tree].move([registration], indexes[1 - tree])
                assert bool(registration.armed) == bool(registration.needs)
