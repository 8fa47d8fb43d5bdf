"""Law C13: the first workload of a StrictFIFO queue takes part in the cycles of its cohort tree."""

from collections import Counter
from typing import TYPE_CHECKING

from admitq.core.model import ObjectKey
from tests.laws.law import check_law
from tests.laws.reference.cycle import Head
from tests.laws.reference.tree import Node, queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player


class StrictQueues:
    """Checks of StrictFIFO queues.

    Args:
        player: the player of the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self._attempts = player.attempts

    def first_workloads(self) -> dict[str, ObjectKey]:
        """Return the first workload of each active StrictFIFO ClusterQueue."""
        observed = self._observed
        return {
            name: keys[0]
            for name in sorted(observed.cluster_queues)
            if observed.is_strict(name)
            and observed.is_active(name)
            and self.root_of(name) is not None
            and (keys := self._player.rest.retried_workloads(name))
        }

    def root_of(self, name: str) -> Node | None:
        """Return the root of a ClusterQueue's cohort tree; None without one, or in a cycle of cohorts."""
        tree = self._observed.tree()
        if name not in self._observed.cluster_queues or tree.path(queue_node(name)) is None:
            return None
        return tree.root(queue_node(name))

    def check_first_workloads_take_part(self, heads: list[Head]) -> None:
        """Check that the first workload of each StrictFIFO queue takes part in a cycle of its tree."""
        running = {self.root_of(head.queue) for head in heads}
        participants = {head.queue for head in heads}
        for name, key in self.first_workloads().items():
            takes_part = name in participants or self.root_of(name) not in running
            check_law(takes_part, "C13: the first is not in a cycle of its tree", name, key)

    def check_first_workloads_evaluated(self) -> None:
        """Check that each first workload was evaluated after the last reservation in its tree."""
        observed = self._observed
        participants = Counter[Node | None]()
        for key, workload in observed.workloads.items():
            holder = observed.holder(key)
            if holder is not None:
                root = self.root_of(holder.queue)
                participants[root] = max(participants[root], self._attempts.reserved_in.get(workload.uid, 0))
        for name, key in self.first_workloads().items():
            tried, last = (
                self._attempts.evaluated_in.get((name, self._player.scheduling_key(key)), 0),
                participants[self.root_of(name)],
            )
            check_law(tried > last or not last, "C13: not evaluated since quota was reserved", name, key)
