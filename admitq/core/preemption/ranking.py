"""Nodes in the order of their places, each with a bound, so that one with a sufficient bound is found fast.

It is a treap: a binary search tree by place that is balanced by random priorities. Each subtree knows a bound
of all its nodes. So a search for the next node with a sufficient bound passes over all others at once.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from admitq.core.cohorts import Node

_Key = TypeVar("_Key", bound=tuple[Any, ...])
_Bound = TypeVar("_Bound")

# A linear congruential generator (Knuth, MMIX).
_FACTOR: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_MODULUS: Final = 1 << 64


class _Entry(Generic[_Key, _Bound]):
    """A node with its place, at the top of a subtree of such."""

    __slots__ = ("after", "before", "bound", "is_known", "key", "node", "of_all", "priority")

    def __init__(self, key: _Key, node: Node, bound: _Bound, priority: int) -> None:
        self.key = key
        self.node = node
        self.bound = bound
        self.is_known = False
        self.of_all = bound
        self.priority = priority
        self.before: _Entry[_Key, _Bound] | None = None
        self.after: _Entry[_Key, _Bound] | None = None


class Ranking(Generic[_Key, _Bound]):
    """Nodes by place; the bound of a node is found when a search depends on it.

    Args:
        find: the bound of a node.
        join: a bound that is sufficient if one of two is, and preferably not otherwise.
    """

    def __init__(self, find: Callable[[Node], _Bound], join: Callable[[_Bound, _Bound], _Bound]) -> None:
        self._find = find
        self._join_bounds = join
        self._top: _Entry[_Key, _Bound] | None = None
        self._chance = 0

    def put(self, key: _Key, node: Node, bound: _Bound) -> None:
        """Add a node at a place where none is, with a bound that is sufficient whenever the right one is."""
        entry = _Entry(key, node, bound, self._next_priority())
        before, after = self._split(self._top, key)
        self._top = self._join(self._join(before, entry), after)

    def remove(self, key: _Key) -> None:
        """Remove the node at a place."""
        self._top = self._without(self._top, key)

    def next(
        self, since: _Key, is_sufficient: Callable[[_Bound], bool], left_out: Node | None = None
    ) -> _Key | None:
        """The first place, not before ``since``, of a node with a sufficient bound.

        One node may be left out; its bound is not asked for.
        """
        return self._next(self._top, since, is_sufficient, left_out)

    def _next_priority(self) -> int:
        """A number that looks random, the same each time: what is found does not depend on it."""
        self._chance = (self._chance * _FACTOR + _INCREMENT) % _MODULUS
        return self._chance

    def _next(
        self,
        top: _Entry[_Key, _Bound] | None,
        since: _Key,
        is_sufficient: Callable[[_Bound], bool],
        left_out: Node | None,
    ) -> _Key | None:
        if top is None or not is_sufficient(top.of_all):
            return None
        found: _Key | None = None
        if since <= top.key:
            found = self._next(top.before, since, is_sufficient, left_out)
            if found is None and top.node is not left_out and is_sufficient(top.bound):
                if not top.is_known:
                    top.bound = self._find(top.node)
                    top.is_known = True
                if is_sufficient(top.bound):
                    found = top.key
        if found is None:
            found = self._next(top.after, since, is_sufficient, left_out)
        self._update(top)
        return found

    def _update(self, top: _Entry[_Key, _Bound]) -> None:
        """Find the bound of a subtree from those of its parts."""
        bound = top.bound
        for part in (top.before, top.after):
            if part is not None:
                bound = self._join_bounds(bound, part.of_all)
        top.of_all = bound

    def _split(
        self, top: _Entry[_Key, _Bound] | None, key: _Key
    ) -> tuple[_Entry[_Key, _Bound] | None, _Entry[_Key, _Bound] | None]:
        """The entries before a place and those after it."""
        if top is None:
            return None, None
        if top.key < key:
            top.after, rest = self._split(top.after, key)
            self._update(top)
            return top, rest
        rest, top.before = self._split(top.before, key)
        self._update(top)
        return rest, top

    def _join(
        self, before: _Entry[_Key, _Bound] | None, after: _Entry[_Key, _Bound] | None
    ) -> _Entry[_Key, _Bound] | None:
        """All entries of two subtrees, of which one is before the other."""
        if before is None:
            return after
        if after is None:
            return before
        if before.priority < after.priority:
            before.after = self._join(before.after, after)
            self._update(before)
            return before
        after.before = self._join(before, after.before)
        self._update(after)
        return after

    def _without(self, top: _Entry[_Key, _Bound] | None, key: _Key) -> _Entry[_Key, _Bound] | None:
        """The entries of a subtree without the one at a place."""
        assert top is not None, "there is a node at the place"  # noqa: S101 narrows the type
        if top.key == key:
            return self._join(top.before, top.after)
        if key < top.key:
            top.before = self._without(top.before, key)
        else:
            top.after = self._without(top.after, key)
        self._update(top)
        return top
