"""A sorted list of items with bounds, and a fast search for the first item with a sufficient bound.

Items are in sorted blocks. The bound of a block is sufficient if the bound of one of its items is. A search
tests the bound of each block. It tests the items of a block only if the bound of the block is sufficient. A
change moves the items of one block and computes the bound of this block.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator
from functools import reduce
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

_Key = TypeVar("_Key", bound=tuple[Any, ...])
_Item = TypeVar("_Item")
_Bound = TypeVar("_Bound")

_SIZE: Final = 256


class BlockEntry(Generic[_Key, _Item, _Bound]):
    """An item with its key and bound."""

    __slots__ = ("bound", "is_estimate", "item", "key")

    def __init__(self, key: _Key, item: _Item, bound: _Bound, *, is_estimate: bool) -> None:
        self.key = key
        self.item = item
        self.bound = bound
        self.is_estimate = is_estimate


class SortedBlocks(Generic[_Key, _Item, _Bound]):
    """Items sorted by key. Keys are unique.

    Args:
        join: returns a bound that is sufficient if one of two bounds is, and preferably not otherwise.
        size: the number of items of a block after it was divided. A block has at most twice as many.
    """

    __slots__ = ("_blocks", "_bounds", "_join", "_size")

    def __init__(self, join: Callable[[_Bound, _Bound], _Bound], size: int = _SIZE) -> None:
        self._join = join
        self._size = size
        self._blocks: list[list[BlockEntry[_Key, _Item, _Bound]]] = []
        self._bounds: list[_Bound] = []

    def __iter__(self) -> Iterator[BlockEntry[_Key, _Item, _Bound]]:
        for block in self._blocks:
            yield from block

    @property
    def bound(self) -> _Bound | None:
        """The joined bound of all items; None if there is no item."""
        return reduce(self._join, self._bounds) if self._bounds else None

    def add(self, key: _Key, item: _Item, bound: _Bound) -> None:
        """Add an item with its bound, at a new key."""
        self._insert(BlockEntry(key, item, bound, is_estimate=False))

    def add_estimate(self, key: _Key, item: _Item, estimate: _Bound) -> None:
        """Add an item at a new key, with an estimate. ``first`` finds its bound when it needs it.

        Until then, the estimate counts. It must be sufficient whenever the bound is.
        """
        self._insert(BlockEntry(key, item, estimate, is_estimate=True))

    def _insert(self, entry: BlockEntry[_Key, _Item, _Bound]) -> None:
        key, bound = entry.key, entry.bound
        if not self._blocks:
            self._blocks.append([entry])
            self._bounds.append(bound)
            return
        index = self._block_of(key)
        block = self._blocks[index]
        block.insert(bisect_left(block, key, key=_key_of), entry)
        if len(block) <= 2 * self._size:
            self._bounds[index] = self._join(self._bounds[index], bound)
        else:
            parts = [block[: self._size], block[self._size :]]
            self._blocks[index : index + 1] = parts
            self._bounds[index : index + 1] = map(self._bound_of, parts)

    def remove(self, key: _Key) -> None:
        """Remove the item at a key."""
        index = self._block_of(key)
        block = self._blocks[index]
        del block[bisect_left(block, key, key=_key_of)]
        if block:
            self._bounds[index] = self._bound_of(block)
        else:
            del self._blocks[index], self._bounds[index]

    def keep(self, items: Container[_Item]) -> None:
        """Remove all items but these."""
        size, entries = self._size, [entry for entry in self if entry.item in items]
        self._blocks = [entries[start : start + size] for start in range(0, len(entries), size)]
        self._bounds = list(map(self._bound_of, self._blocks))

    def first(
        self,
        is_sufficient: Callable[[_Bound], bool],
        since: _Key | None = None,
        find_bound: Callable[[_Item], _Bound] | None = None,
        excluded: _Item | None = None,
    ) -> BlockEntry[_Key, _Item, _Bound] | None:
        """Return the first item with a sufficient bound; None if there is none.

        Args:
            is_sufficient: whether a bound is sufficient.
            since: the key at which the search begins; None: at the first item.
            find_bound: returns the bound of an item that was added with an estimate.
            excluded: an item to skip. Its bound is not computed.
        """
        for index in range(0 if since is None else self._block_of(since), len(self._blocks)):
            if is_sufficient(self._bounds[index]):
                entry = self._first_in(index, is_sufficient, since, find_bound, excluded)
                if entry is not None:
                    return entry
        return None

    def _first_in(
        self,
        index: int,
        is_sufficient: Callable[[_Bound], bool],
        since: _Key | None,
        find_bound: Callable[[_Item], _Bound] | None,
        excluded: _Item | None,
    ) -> BlockEntry[_Key, _Item, _Bound] | None:
        block = self._blocks[index]
        start = 0 if since is None else bisect_left(block, since, key=_key_of)
        has_changed, first = False, None
        insufficient: _Bound | None = None
        for entry in islice(block, start, None):
            # Neighbors often have equal bounds. A comparison of two bounds costs less than a test of one.
            if entry.item is excluded or entry.bound == insufficient:
                continue
            is_enough = is_sufficient(entry.bound)
            if is_enough and find_bound is not None and entry.is_estimate:
                entry.bound, entry.is_estimate, has_changed = find_bound(entry.item), False, True
                is_enough = entry.bound != insufficient and is_sufficient(entry.bound)
            if is_enough:
                first = entry
                break
            insufficient = entry.bound
        if has_changed:
            self._bounds[index] = self._bound_of(block)
        return first

    def _block_of(self, key: _Key) -> int:
        """Return the index of the block for a key: the last block that does not begin after it."""
        return max(0, bisect_right(self._blocks, key, key=_begin) - 1)

    def _bound_of(self, block: list[BlockEntry[_Key, _Item, _Bound]]) -> _Bound:
        return reduce(self._join, map(_bound_of_entry, block))


_key_of: Final[Callable[[BlockEntry[Any, Any, Any]], Any]] = attrgetter("key")
_bound_of_entry: Final[Callable[[BlockEntry[Any, Any, Any]], Any]] = attrgetter("bound")


def _begin(block: list[BlockEntry[_Key, Any, Any]]) -> _Key:
    return block[0].key
