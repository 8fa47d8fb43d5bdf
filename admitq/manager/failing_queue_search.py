"""Finds the ClusterQueues whose heads make cycles fail, where the core does not know over which it decided.

Cohort trees decide independently of each other. So all ClusterQueues are paused, and one tree after the other
is released, each when nothing is left to be tried in those before it. A cycle that fails is then due to the
tree that was released last, which is paused again. In a second round, the ClusterQueues of the trees that
failed are released one after the other. The culprits are those that fail again.

No ClusterQueue is blamed before a cycle of another one has come to its end: until then, every cycle may fail.
If two trees fail before any cycle ends, every cycle is taken to fail, and the search ends without a culprit.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Group: TypeAlias = tuple[str, ...]
"""Names of ClusterQueues that are released together."""


@dataclass
class CulpritSearch:
    """The course of one search after the other.

    Attributes:
        is_on: whether a search goes on.
    """

    is_on: bool = False
    _is_second_round: bool = False
    _waiting: deque[Group] = field(default_factory=deque[Group])
    _released: Group = ()
    """The group that was released last, until the next is."""
    _failed: list[Group] = field(default_factory=list[Group])
    """The groups that failed in this round."""
    _has_cycled: bool = False
    """Whether a cycle came to its end since a group was released."""
    _is_any_sound: bool = False
    """Whether all cycles came to their end that ran while some group was the last to be released."""

    @property
    def paused(self) -> frozenset[str]:
        """The ClusterQueues whose heads take no part in cycles now."""
        return frozenset(name for group in (*self._waiting, *self._failed) for name in group)

    @property
    def is_undecided(self) -> bool:
        """Whether only groups are left that failed, and no other group has been seen not to."""
        is_at_end = self._is_second_round and not (self._waiting or self._released)
        return is_at_end and bool(self._failed) and not (self._is_any_sound or self._has_cycled)

    def begin(self, groups: Iterable[Group]) -> None:
        """Begin a search over the ClusterQueues of each cohort tree; all are paused."""
        self.end()
        self.is_on = True
        self._waiting.extend(groups)

    def cycle_ended(self) -> None:
        """Note that a cycle came to its end."""
        self._has_cycled = True

    def cycle_failed(self) -> None:
        """Note that a cycle failed, and not over a workload that the core knows."""
        if self._released:
            self._failed.append(self._released)
            self._released, self._has_cycled = (), False
        else:
            self.end()
        if len(self._failed) > 1 and not self._is_any_sound:
            self.end()

    def advance(self) -> Group:
        """Go on: nothing is left to be tried of the ClusterQueues that are released.

        Returns:
            The culprits, which the search leaves to the caller. It has ended if there are any.
        """
        self._is_any_sound |= self._has_cycled
        self._released, self._has_cycled = (), False
        if not self._waiting and not self._is_second_round:
            self._is_second_round = True
            self._waiting.extend((name,) for group in self._failed for name in group)
            self._failed.clear()
        if self._waiting:
            self._released = self._waiting.popleft()
            return ()
        if self._failed and not self._is_any_sound:
            return ()
        culprits = tuple(name for group in self._failed for name in group)
        self.end()
        return culprits

    def retry(self) -> None:
        """Have those tried again that failed."""
        self._waiting.extend(self._failed)
        self._failed.clear()

    def end(self) -> None:
        """Release all ClusterQueues."""
        self.is_on, self._is_second_round = False, False
        self._released, self._has_cycled, self._is_any_sound = (), False, False
        self._waiting.clear()
        self._failed.clear()
