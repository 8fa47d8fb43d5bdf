"""Finds the ClusterQueues with heads that make cycles fail, if the core does not know which workload failed.

The search pauses all ClusterQueues, then releases one cohort tree after the other: decisions of one tree do
not depend on other trees. It releases the next tree when no workload of the released trees is due. So a cycle
that fails is due to the tree that was released last. The search pauses this tree again. In a second round, it
releases the ClusterQueues of the trees that failed, one after the other. It reports those that fail again.

The search reports no ClusterQueue before a cycle of another one has succeeded: until then, all cycles may
fail. If two trees fail before any cycle succeeds, the search assumes that all cycles fail. It ends without a
result.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

QueueGroup: TypeAlias = tuple[str, ...]
"""Names of the ClusterQueues that the search releases together."""


@dataclass
class FailingQueueSearch:
    """The state of the search, which can run repeatedly.

    Attributes:
        is_running: whether a search continues.
    """

    is_running: bool = False
    _is_second_round: bool = False
    _paused_groups: deque[QueueGroup] = field(default_factory=deque[QueueGroup])
    _last_released: QueueGroup = ()
    """The group that was released last; empty if that group failed."""
    _failed_groups: list[QueueGroup] = field(default_factory=list[QueueGroup])
    """The groups that failed in this round, which are paused."""
    _has_cycle_succeeded: bool = False
    """Whether a cycle has succeeded since the last release of a group."""
    _has_healthy_group: bool = False
    """Whether some group was released, and all cycles until the next release succeeded."""

    @property
    def paused_queues(self) -> frozenset[str]:
        """The ClusterQueues with heads that take no part in cycles."""
        return frozenset(name for group in (*self._paused_groups, *self._failed_groups) for name in group)

    @property
    def is_inconclusive(self) -> bool:
        """Whether all groups were tried, some failed, and no cycle of another group has succeeded."""
        is_at_end = self._is_second_round and not (self._paused_groups or self._last_released)
        return (
            is_at_end
            and bool(self._failed_groups)
            and not (self._has_healthy_group or self._has_cycle_succeeded)
        )

    def begin(self, groups: Iterable[QueueGroup]) -> None:
        """Begin a search: pause the ClusterQueues of all cohort trees."""
        self.end()
        self.is_running = True
        self._paused_groups.extend(groups)

    def record_success(self) -> None:
        """Record that a cycle succeeded."""
        self._has_cycle_succeeded = True

    def record_failure(self) -> None:
        """Record that a cycle failed and the core does not know the workload."""
        if self._last_released:
            self._failed_groups.append(self._last_released)
            self._last_released, self._has_cycle_succeeded = (), False
        else:
            self.end()
        if len(self._failed_groups) > 1 and not self._has_healthy_group:
            self.end()

    def release_next_group(self) -> QueueGroup:
        """Release the next group, because no workload of the released ClusterQueues is due.

        Returns:
            The ClusterQueues with failing cycles, if the search has ended; otherwise none.
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
        failing = tuple(name for group in self._failed_groups for name in group)
        self.end()
        return failing

    def retry_failed_groups(self) -> None:
        """Try the failed groups a second time."""
        self._paused_groups.extend(self._failed_groups)
        self._failed_groups.clear()

    def end(self) -> None:
        """End the search: release all ClusterQueues."""
        self.is_running, self._is_second_round = False, False
        self._last_released, self._has_cycle_succeeded, self._has_healthy_group = (), False, False
        self._paused_groups.clear()
        self._failed_groups.clear()
