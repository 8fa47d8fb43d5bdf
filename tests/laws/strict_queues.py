"""Law C13: the first workload of a StrictFIFO queue takes part in cycles."""

from collections import Counter
from typing import TYPE_CHECKING

from admitq.core.model import ObjectKey
from tests.laws.law import law
from tests.laws.reference.cycle import Head
from tests.laws.reference.tree import Node, queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player


class StrictQueues:
    """The checks of StrictFIFO queues.

    Args:
        player: the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self._attempts = player.attempts

    def strict_firsts(self) -> dict[str, ObjectKey]:
        """By StrictFIFO ClusterQueue that may admit, its first workload."""
        observed = self._observed
        return {
            name: keys[0]
            for name in sorted(observed.cluster_queues)
            if observed.is_strict(name)
            and observed.is_active(name)
            and self.root_of(name) is not None
            and (keys := self._player.rest.to_be_tried(name))
        }

    def root_of(self, name: str) -> Node | None:
        """The root of the tree of a ClusterQueue; None if it is unknown or has no tree."""
        tree = self._observed.tree()
        if name not in self._observed.cluster_queues or tree.path(queue_node(name)) is None:
            return None
        return tree.root(queue_node(name))

    def check_strict_heads(self, heads: list[Head]) -> None:
        """The first of each StrictFIFO queue takes part in a cycle of its tree."""
        running = {self.root_of(head.queue) for head in heads}
        taken = {head.queue for head in heads}
        for name, key in self.strict_firsts().items():
            takes_part = name in taken or self.root_of(name) not in running
            law(takes_part, "C13: the first is not in a cycle of its tree", name, key)

    def check_strict_heads_saw_all(self) -> None:
        """The first of each StrictFIFO queue was tried after quota of its tree was last taken."""
        observed = self._observed
        taken = Counter[Node | None]()
        for key, workload in observed.workloads.items():
            holder = observed.holder(key)
            if holder is not None:
                root = self.root_of(holder.queue)
                taken[root] = max(taken[root], self._attempts.took_in.get(workload.uid, 0))
        for name, key in self.strict_firsts().items():
            tried, last = (
                self._attempts.tried_in.get((name, self._player.shape(key)), 0),
                taken[self.root_of(name)],
            )
            law(tried > last or not last, "C13: not tried since quota was taken", name, key)
