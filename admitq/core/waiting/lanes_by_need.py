"""Lanes that need an amount of one (flavor, resource), by position: finds the first whose need is met.

Lanes are kept in sorted blocks, each with its least need. A question reads the least needs, then one block;
a change sorts one entry into one block. So both cost about the square root of how many lanes wait.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterator
from typing import Final, Generic, TypeVar

from admitq.core.waiting.order import LanePosition

_BLOCK: Final = 256
"""Entries of a block, at most twice as many."""

_Lane = TypeVar("_Lane")


class LanesByNeed(Generic[_Lane]):
    """Lanes that need an amount of one (flavor, resource). A position must not occur twice."""

    __slots__ = ("_blocks", "_least")

    def __init__(self) -> None:
        self._blocks: list[list[tuple[LanePosition, int, _Lane]]] = []
        self._least: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[tuple[LanePosition, int, _Lane]]:
        for block in self._blocks:
            yield from block

    @property
    def least(self) -> int | None:
        """The least amount that a lane needs; None if there is no lane."""
        return min(self._least, default=None)

    def add(self, position: LanePosition, amount: int, lane: _Lane) -> None:
        """Add a lane."""
        if not self._blocks:
            self._blocks.append([(position, amount, lane)])
            self._least.append(amount)
            return
        at = self._block_of(position)
        block = self._blocks[at]
        insort(block, (position, amount, lane), key=_position)
        self._least[at] = min(self._least[at], amount)
        if len(block) > 2 * _BLOCK:
            self._blocks[at : at + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._least[at : at + 1] = [_least_of(each) for each in self._blocks[at : at + 2]]

    def remove(self, position: LanePosition) -> None:
        """Remove the lane at a position."""
        at = self._block_of(position)
        block = self._blocks[at]
        _, amount, _ = block.pop(bisect_left(block, position, key=_position))
        if not block:
            del self._blocks[at], self._least[at]
        elif amount == self._least[at]:
            self._least[at] = _least_of(block)

    def keep(self, kept: Container[_Lane]) -> None:
        """Remove all lanes but these."""
        entries = [entry for entry in self if entry[2] in kept]
        self._blocks = [entries[at : at + _BLOCK] for at in range(0, len(entries), _BLOCK)]
        self._least = [_least_of(block) for block in self._blocks]

    def first_within(self, available: int) -> _Lane | None:
        """The first lane that needs no more than what is available."""
        for at, least in enumerate(self._least):
            if least <= available:
                return next(lane for _, amount, lane in self._blocks[at] if amount <= available)
        return None

    def _block_of(self, position: LanePosition) -> int:
        """The block that holds a position, or would: the last block that does not begin behind it."""
        return max(0, bisect_right(self._blocks, position, key=_begin) - 1)


def _position(entry: tuple[LanePosition, int, _Lane]) -> LanePosition:
    return entry[0]


def _begin(block: list[tuple[LanePosition, int, _Lane]]) -> LanePosition:
    return block[0][0]


def _least_of(block: list[tuple[LanePosition, int, _Lane]]) -> int:
    return min(amount for _, amount, _ in block)
