"""Sorted blocks compared with a plain sorted list. Bounds are numbers, and small ones are sufficient."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import ge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.sorted_blocks import SortedBlocks

Place = tuple[int]


@dataclass(eq=False)
class Item:
    number: int


class ComparedBlocks:
    """Sorted blocks and a dictionary with the same items. Records computed and checked bounds."""

    def __init__(self, size: int) -> None:
        self.blocks: SortedBlocks[Place, Item, int] = SortedBlocks(min, size)
        self.plain: dict[int, tuple[Item, int]] = {}
        self.computed: list[int] = []
        self.checked_bounds = 0

    def add(self, place: int, bound: int, estimate: int | None = None) -> None:
        item = Item(place)
        self.plain[place] = item, bound
        if estimate is None:
            self.blocks.add((place,), item, bound)
        else:
            self.blocks.add_estimate((place,), item, estimate)

    def remove(self, place: int) -> None:
        del self.plain[place]
        self.blocks.remove((place,))

    def keep(self, places: set[int]) -> None:
        self.plain = {place: self.plain[place] for place in self.plain if place in places}
        self.blocks.keep({item for item, _ in self.plain.values()})

    def item(self, place: int) -> Item | None:
        return self.plain[place][0] if place in self.plain else None

    def first(self, most: int, since: int | None = None, left_out: Item | None = None) -> int | None:
        """Return the place of the first item with a bound up to a number, as the blocks find it."""

        def is_sufficient(bound: int) -> bool:
            self.checked_bounds += 1
            return bound <= most

        place = None if since is None else (since,)
        entry = self.blocks.first(is_sufficient, place, self._find, left_out)
        return None if entry is None else entry.key[0]

    def _find(self, item: Item) -> int:
        self.computed.append(item.number)
        return self.plain[item.number][1]

    def check(self, most: int, since: int | None = None, left_out: Item | None = None) -> None:
        """Check that blocks and plain list have the same first item."""
        expected = min(
            (
                place
                for place, (item, bound) in self.plain.items()
                if bound <= most and (since is None or place >= since) and item is not left_out
            ),
            default=None,
        )
        assert self.first(most, since, left_out) == expected

    def check_all(self, questions: list[int]) -> None:
        """Check that blocks and plain list have the same items; all bounds are exact."""
        expected = [((place,), *self.plain[place]) for place in sorted(self.plain)]
        assert [(entry.key, entry.item, entry.bound) for entry in self.blocks] == expected
        assert self.blocks.bound == min((bound for _, bound in self.plain.values()), default=None)
        for most in questions:
            self.check(most)
            self.check(most, len(self.plain) // 2)


def test_blocks_without_items_have_no_bound_and_no_first() -> None:
    compared = ComparedBlocks(2)
    compared.check_all([0, 9])
    assert compared.first(9) is None


def test_first_is_by_place_and_not_by_bound() -> None:
    compared = ComparedBlocks(2)
    for place, bound in ((3, 1), (1, 9), (2, 5)):
        compared.add(place, bound)
    assert [compared.first(most) for most in (0, 1, 5, 9)] == [None, 3, 2, 1]
    assert [compared.first(9, since) for since in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert compared.first(5, left_out=compared.item(2)) == 3


def test_first_without_estimates_needs_no_function_for_bounds() -> None:
    blocks: SortedBlocks[Place, str, int] = SortedBlocks(min)
    blocks.add((1,), "a", 5)
    blocks.add((2,), "b", 3)
    first = blocks.first(partial(ge, 4))
    assert first is not None
    assert (first.key, first.item, first.bound) == ((2,), "b", 3)


def _ascending(count: int) -> list[int]:
    return list(range(count))


def _descending(count: int) -> list[int]:
    return list(range(count))[::-1]


def _shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(count).shuffle(numbers)  # noqa: S311 a history, not a secret
    return numbers


@pytest.mark.parametrize("removal_order", [_ascending, _descending, _shuffled])
@pytest.mark.parametrize("insertion_order", [_ascending, _descending, _shuffled])
def test_items_equal_those_of_list_while_blocks_are_split_and_removed(
    insertion_order: Callable[[int], list[int]], removal_order: Callable[[int], list[int]]
) -> None:
    count, compared = 200, ComparedBlocks(8)
    for place in insertion_order(count):
        compared.add(place, place * 37 % 101)
    questions = [-1, 0, 1, 50, 200]
    compared.check_all(questions)
    for step, place in enumerate(removal_order(count)):
        compared.remove(place)
        if step % 20 == 0 or count - step < 5:
            compared.check_all(questions)


@pytest.mark.parametrize("kept", [0, 1, 40, 150])
def test_keep_removes_all_other_items(kept: int) -> None:
    compared = ComparedBlocks(8)
    places = _shuffled(150)
    for place in places:
        compared.add(place, place % 97)
    compared.keep(set(places[:kept]))
    compared.check_all([-1, 0, 5, 96])
    compared.add(1000, 3)
    compared.add(-1, -1)
    compared.check_all([-1, 0, 5, 96])


def test_bound_is_computed_once_and_only_for_items_that_may_be_first() -> None:
    compared = ComparedBlocks(8)
    for place, estimate in ((1, 0), (2, 0), (3, 6), (4, 0), (5, 0)):
        compared.add(place, 5 if place == 4 else 7, estimate)
    assert compared.first(5, 2, compared.item(2)) == 4
    assert compared.computed == [4]
    assert compared.first(5, 1) == 4
    assert compared.first(5, 1) == 4
    assert compared.computed == [4, 1, 2]


def test_block_is_skipped_by_its_bound_after_all_bounds_are_computed() -> None:
    compared = ComparedBlocks(8)
    for place in range(8):
        compared.add(place, 7, 0)
    assert compared.first(6) is None
    compared.checked_bounds = 0
    assert compared.first(6) is None
    assert compared.checked_bounds == 1


def test_neighbors_with_equal_bounds_are_checked_once() -> None:
    compared = ComparedBlocks(8)
    for place, bound in enumerate((7, 7, 7, 8, 8, 5)):
        compared.add(place, bound)
    assert compared.first(6) == 5
    assert compared.checked_bounds == len(["the block", 7, 8, 5])


def test_few_of_many_bounds_are_checked() -> None:
    compared = ComparedBlocks(16)
    for place in range(1000):
        compared.add(place, 2 if place == 900 else 4 + place % 2)
    assert compared.first(3) == 900
    assert compared.checked_bounds <= 1000 / 16 + 2 * 16
    compared.remove(900)
    compared.checked_bounds = 0
    assert compared.first(3) is None
    assert compared.checked_bounds <= 1000 / 16


@given(st.randoms(use_true_random=False))
def test_first_equals_that_of_list_after_any_history(chance: random.Random) -> None:
    compared = ComparedBlocks(chance.choice([1, 2, 4]))
    for _ in range(80):
        place, bound = chance.randrange(30), chance.randrange(10)
        if place not in compared.plain:
            compared.add(place, bound, chance.choice([None, chance.randrange(bound + 1)]))
        elif chance.random() < 0.5:
            compared.remove(place)
        elif chance.random() < 0.05:
            compared.keep({each for each in compared.plain if chance.random() < 0.5})
        since = chance.choice([None, chance.randrange(30)])
        compared.check(chance.randrange(10), since, compared.item(chance.randrange(30)))
    for most in range(10):
        compared.check(most)
