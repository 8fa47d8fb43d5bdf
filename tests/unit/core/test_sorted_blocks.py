"""Items in sorted blocks, against a plain sorted list. Bounds are numbers, and small ones are sufficient."""

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


class Both:
    """Sorted blocks, and the same in a dictionary; the bounds that were found and asked about."""

    def __init__(self, size: int) -> None:
        self.blocks: SortedBlocks[Place, Item, int] = SortedBlocks(min, size)
        self.plain: dict[int, tuple[Item, int]] = {}
        self.found: list[int] = []
        self.asked = 0

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
        """The place of the first item with a bound up to a number, by the blocks."""

        def is_sufficient(bound: int) -> bool:
            self.asked += 1
            return bound <= most

        place = None if since is None else (since,)
        entry = self.blocks.first(is_sufficient, place, self._find, left_out)
        return None if entry is None else entry.place[0]

    def _find(self, item: Item) -> int:
        self.found.append(item.number)
        return self.plain[item.number][1]

    def check(self, most: int, since: int | None = None, left_out: Item | None = None) -> None:
        """The first item is that of the plain list."""
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
        """The items are those of the plain list; all bounds are exact."""
        expected = [((place,), *self.plain[place]) for place in sorted(self.plain)]
        assert [(entry.place, entry.item, entry.bound) for entry in self.blocks] == expected
        assert self.blocks.bound == min((bound for _, bound in self.plain.values()), default=None)
        for most in questions:
            self.check(most)
            self.check(most, len(self.plain) // 2)


def test_no_items_have_no_bound_and_no_first() -> None:
    both = Both(2)
    both.check_all([0, 9])
    assert both.first(9) is None


def test_first_is_by_place_and_not_by_bound() -> None:
    both = Both(2)
    for place, bound in ((3, 1), (1, 9), (2, 5)):
        both.add(place, bound)
    assert [both.first(most) for most in (0, 1, 5, 9)] == [None, 3, 2, 1]
    assert [both.first(9, since) for since in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert both.first(5, left_out=both.item(2)) == 3


def test_first_needs_no_find_without_estimates() -> None:
    blocks: SortedBlocks[Place, str, int] = SortedBlocks(min)
    blocks.add((1,), "a", 5)
    blocks.add((2,), "b", 3)
    found = blocks.first(partial(ge, 4))
    assert found is not None
    assert (found.place, found.item, found.bound) == ((2,), "b", 3)


def _ascending(count: int) -> list[int]:
    return list(range(count))


def _descending(count: int) -> list[int]:
    return list(range(count))[::-1]


def _shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(count).shuffle(numbers)  # noqa: S311 a history, not a secret
    return numbers


@pytest.mark.parametrize("leave", [_ascending, _descending, _shuffled])
@pytest.mark.parametrize("come", [_ascending, _descending, _shuffled])
def test_blocks_are_divided_and_vanish_items_stay_those_of_a_list(
    come: Callable[[int], list[int]], leave: Callable[[int], list[int]]
) -> None:
    count, both = 200, Both(8)
    for place in come(count):
        both.add(place, place * 37 % 101)
    questions = [-1, 0, 1, 50, 200]
    both.check_all(questions)
    for step, place in enumerate(leave(count)):
        both.remove(place)
        if step % 20 == 0 or count - step < 5:
            both.check_all(questions)


@pytest.mark.parametrize("kept", [0, 1, 40, 150])
def test_keep_removes_all_other_items(kept: int) -> None:
    both = Both(8)
    places = _shuffled(150)
    for place in places:
        both.add(place, place % 97)
    both.keep(set(places[:kept]))
    both.check_all([-1, 0, 5, 96])
    both.add(1000, 3)
    both.add(-1, -1)
    both.check_all([-1, 0, 5, 96])


def test_bound_is_found_once_and_only_of_items_that_may_be_the_first() -> None:
    both = Both(8)
    for place, estimate in ((1, 0), (2, 0), (3, 6), (4, 0), (5, 0)):
        both.add(place, 5 if place == 4 else 7, estimate)
    assert both.first(5, 2, both.item(2)) == 4
    assert both.found == [4]
    assert both.first(5, 1) == 4
    assert both.first(5, 1) == 4
    assert both.found == [4, 1, 2]


def test_bounds_of_all_items_are_found_the_bound_of_the_block_rules_them_out() -> None:
    both = Both(8)
    for place in range(8):
        both.add(place, 7, 0)
    assert both.first(6) is None
    both.asked = 0
    assert both.first(6) is None
    assert both.asked == 1


def test_neighbors_with_equal_bounds_are_asked_about_once() -> None:
    both = Both(8)
    for place, bound in enumerate((7, 7, 7, 8, 8, 5)):
        both.add(place, bound)
    assert both.first(6) == 5
    assert both.asked == len(["the block", 7, 8, 5])


def test_few_of_many_items_are_asked_about() -> None:
    both = Both(16)
    for place in range(1000):
        both.add(place, 2 if place == 900 else 4 + place % 2)
    assert both.first(3) == 900
    assert both.asked <= 1000 / 16 + 2 * 16
    both.remove(900)
    both.asked = 0
    assert both.first(3) is None
    assert both.asked <= 1000 / 16


@given(st.randoms(use_true_random=False))
def test_any_history_finds_what_a_list_finds(chance: random.Random) -> None:
    both = Both(chance.choice([1, 2, 4]))
    for _ in range(80):
        place, bound = chance.randrange(30), chance.randrange(10)
        if place not in both.plain:
            both.add(place, bound, chance.choice([None, chance.randrange(bound + 1)]))
        elif chance.random() < 0.5:
            both.remove(place)
        elif chance.random() < 0.05:
            both.keep({each for each in both.plain if chance.random() < 0.5})
        since = chance.choice([None, chance.randrange(30)])
        both.check(chance.randrange(10), since, both.item(chance.randrange(30)))
    for most in range(10):
        both.check(most)
