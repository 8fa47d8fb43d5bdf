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

QueueGroup: TypeAlias = tuple[str, ...]
"""Names of ClusterQueues that are released together."""


@dataclass
class FailingQueueSearch:
    """The course of one search after the other.

    Attributes:
        is_on: whether a search goes on.
    """

    is_running: bool = False
    _is_second_round: bool = False
    _paused_groups: deque[QueueGroup] = field(default_factory=deque[QueueGroup])
    _last_released: QueueGroup = ()
    """The group that was released last, until the next is."""
    _failed_groups: list[QueueGroup] = field(default_factory=list[QueueGroup])
    """The groups that failed in this round."""
    _has_cycle_succeeded: bool = False
    """Whether a cycle came to its end since a group was released."""
    _has_healthy_group: bool = False
    """Whether all cycles came to their end that ran while some group was the last to be released."""

    @property
    def paused_queues(self) -> frozenset[str]:
        """The ClusterQueues whose heads take no part in cycles now."""
        return frozenset(name for group in (*self._paused_groups, *self._failed_groups) for name in group)

    @property
    def is_inconclusive(self) -> bool:
        """Whether only groups are left that failed, and no other group has been seen not to."""
        is_at_end = self._is_second_round and not (self._paused_groups or self._last_released)
        return (
            is_at_end
            and bool(self._failed_groups)
            and not (self._has_healthy_group or self._has_cycle_succeeded)
        )

    def begin(self, groups: Iterable[QueueGroup]) -> None:
        """Begin a search over the ClusterQueues of each cohort tree; all are paused."""
        self.end()
        self.is_running = True
        self._paused_groups.extend(groups)

    def record_success(self) -> None:
        """Note that a cycle came to its end."""
        self._has_cycle_succeeded = True

    def record_failure(self) -> None:
        """Note that a cycle failed, and not over a workload that the core knows."""
        if self._last_released:
            self._failed_groups.append(self._last_released)
            self._last_released, self._has_cycle_succeeded = (), False
        else:
            self.end()
        if len(self._failed_groups) > 1 and not self._has_healthy_group:
            self.end()

    def release_next_group(self) -> QueueGroup:
        """Go on: nothing is left to be tried of the ClusterQueues that are released.

        Returns:
            The culprits, which the search leaves to the caller. It has ended if there are any.
        """
        self._has_healthy_group |= self._has_cycle_succeeded
        self._last_released, self._has_cycle_succeeded = (), False
        if not self._paused_groups and not self._is_second_round:
            self._is_second_round = True
            self._paused_groups.extend((name,) for group in self._failed_groups for name in group)
            self._failed_groups.clear()
        if self._paused_groups:
            self._last_released = self._paused_groups.popleft()
            return ()
        if self._failed_groups and not self._has_healthy_group:
            return ()
        culprits = tuple(name for group in self._failed_groups for name in group)
        self.end()
        return culprits

    def retry_failed_groups(self) -> None:
        """Have those tried again that failed."""
        self._paused_groups.extend(self._failed_groups)
        self._failed_groups.clear()

    def end(self) -> None:
        """Release all ClusterQueues."""
        self.is_running, self._is_second_round = False, False
        self._last_released, self._has_cycle_succeeded, self._has_healthy_group = (), False, False
        self._paused_groups.clear()
        self._failed_groups.clear()
