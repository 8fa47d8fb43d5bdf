"""Items sorted by place, each with a bound: the first item with a sufficient bound is found quickly.

Items are kept in sorted blocks. The bound of a block is sufficient if that of one of its items is. A search
asks about the bound of each block, and about the items of a block only if its bound is sufficient. A change
moves the items of one block and computes its bound. The items of other blocks cost nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator
from functools import reduce
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

_Place = TypeVar("_Place", bound=tuple[Any, ...])
_Item = TypeVar("_Item")
_Bound = TypeVar("_Bound")

_SIZE: Final = 256


class BlockEntry(Generic[_Place, _Item, _Bound]):
    """An item with its place and bound."""

    __slots__ = ("bound", "is_estimate", "item", "place")

    def __init__(self, place: _Place, item: _Item, bound: _Bound, *, is_estimate: bool) -> None:
        self.place = place
        self.item = item
        self.bound = bound
        self.is_estimate = is_estimate


class SortedBlocks(Generic[_Place, _Item, _Bound]):
    """Items sorted by place. A place must not occur twice.

    Args:
        join: a bound that is sufficient if one of two bounds is, and preferably not otherwise.
        size: how many items a block has when it was divided; at most, it has twice as many.
    """

    __slots__ = ("_blocks", "_bounds", "_join", "_size")

    def __init__(self, join: Callable[[_Bound, _Bound], _Bound], size: int = _SIZE) -> None:
        self._join = join
        self._size = size
        self._blocks: list[list[BlockEntry[_Place, _Item, _Bound]]] = []
        self._bounds: list[_Bound] = []

    def __iter__(self) -> Iterator[BlockEntry[_Place, _Item, _Bound]]:
        for block in self._blocks:
            yield from block

    @property
    def bound(self) -> _Bound | None:
        """The joined bound of all items; None if there is no item."""
        return reduce(self._join, self._bounds) if self._bounds else None

    def add(self, place: _Place, item: _Item, bound: _Bound) -> None:
        """Add an item with its bound, at a place where none is."""
        self._insert(BlockEntry(place, item, bound, is_estimate=False))

    def add_estimate(self, place: _Place, item: _Item, estimate: _Bound) -> None:
        """Add an item, at a place where none is; ``first`` finds its bound when it needs it.

        Until then the estimate counts, which must be sufficient whenever the bound is.
        """
        self._insert(BlockEntry(place, item, estimate, is_estimate=True))

    def _insert(self, entry: BlockEntry[_Place, _Item, _Bound]) -> None:
        place, bound = entry.place, entry.bound
        if not self._blocks:
            self._blocks.append([entry])
            self._bounds.append(bound)
            return
        at = self._block_of(place)
        block = self._blocks[at]
        block.insert(bisect_left(block, place, key=_place_of), entry)
        if len(block) <= 2 * self._size:
            self._bounds[at] = self._join(self._bounds[at], bound)
        else:
            parts = [block[: self._size], block[self._size :]]
            self._blocks[at : at + 1] = parts
            self._bounds[at : at + 1] = map(self._bound_of, parts)

    def remove(self, place: _Place) -> None:
        """Remove the item at a place."""
        at = self._block_of(place)
        block = self._blocks[at]
        del block[bisect_left(block, place, key=_place_of)]
        if block:
            self._bounds[at] = self._bound_of(block)
        else:
            del self._blocks[at], self._bounds[at]

    def keep(self, kept: Container[_Item]) -> None:
        """Remove all items but these."""
        size, entries = self._size, [entry for entry in self if entry.item in kept]
        self._blocks = [entries[at : at + size] for at in range(0, len(entries), size)]
        self._bounds = list(map(self._bound_of, self._blocks))

    def first(
        self,
        is_sufficient: Callable[[_Bound], bool],
        since: _Place | None = None,
        find: Callable[[_Item], _Bound] | None = None,
        left_out: _Item | None = None,
    ) -> BlockEntry[_Place, _Item, _Bound] | None:
        """Return the first item with a sufficient bound; None if there is none.

        Args:
            is_sufficient: whether a bound is.
            since: the place at which the search begins; without it, at the first item.
            find: the bound of an item that was added with an estimate.
            left_out: an item that is passed over; its bound is not asked for.
        """
        for at in range(0 if since is None else self._block_of(since), len(self._blocks)):
            if is_sufficient(self._bounds[at]):
                found = self._first_in(at, is_sufficient, since, find, left_out)
                if found is not None:
                    return found
        return None

    def _first_in(
        self,
        at: int,
        is_sufficient: Callable[[_Bound], bool],
        since: _Place | None,
        find: Callable[[_Item], _Bound] | None,
        left_out: _Item | None,
    ) -> BlockEntry[_Place, _Item, _Bound] | None:
        block = self._blocks[at]
        start = 0 if since is None else bisect_left(block, since, key=_place_of)
        has_changed, first = False, None
        insufficient: _Bound | None = None
        for entry in islice(block, start, None):
            # Neighbors often have equal bounds, and to compare two costs less than to ask about one.
            if entry.item is left_out or entry.bound == insufficient:
                continue
            is_enough = is_sufficient(entry.bound)
            if is_enough and find is not None and entry.is_estimate:
                entry.bound, entry.is_estimate, has_changed = find(entry.item), False, True
                is_enough = entry.bound != insufficient and is_sufficient(entry.bound)
            if is_enough:
                first = entry
                break
            insufficient = entry.bound
        if has_changed:
            self._bounds[at] = self._bound_of(block)
        return first

    def _block_of(self, place: _Place) -> int:
        """Return the block that holds a place, or would: the last block that does not begin behind it."""
        return max(0, bisect_right(self._blocks, place, key=_begin) - 1)

    def _bound_of(self, block: list[BlockEntry[_Place, _Item, _Bound]]) -> _Bound:
        return reduce(self._join, map(_bound_of_entry, block))


_place_of: Final[Callable[[BlockEntry[Any, Any, Any]], Any]] = attrgetter("place")
_bound_of_entry: Final[Callable[[BlockEntry[Any, Any, Any]], Any]] = attrgetter("bound")


def _begin(block: list[BlockEntry[_Place, Any, Any]]) -> _Place:
    return block[0].place
