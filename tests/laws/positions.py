"""Law Q1: the positions of pending workloads have the order in which their ClusterQueue gives its heads."""

from collections import Counter
from typing import TYPE_CHECKING

from admitq.core.model import ObjectKey
from admitq.core.waiting.queue_positions import Window, find_position
from tests.laws.heads import heads_without_waiting
from tests.laws.law import check_law

if TYPE_CHECKING:
    from tests.laws.player import Player

ALL = Window(1000)


def check_positions(player: "Player") -> None:
    """Check the positions in all queues.

    The order of heads is that of a copy in which all waiting has ended. What is held back, for example by a
    backoff, gives no head there.
    """
    core = player.core
    heads = heads_without_waiting(core)
    listed_anywhere: list[ObjectKey] = []
    for name in sorted(player.observed.cluster_queues):
        listed = core.queries.list_cluster_queue(name, ALL)
        assert listed is not None, "the ClusterQueue exists"
        keys = [each.workload for each in listed]
        listed_anywhere += keys
        expected = heads[name]
        taken = [key for key in keys if key in set(expected)]
        check_law(taken == expected, "Q1: positions in another order than heads", name, taken, expected)
        counted = Counter[ObjectKey]()
        for index, each in enumerate(listed):
            places = (each.in_cluster_queue, each.in_local_queue)
            check_law(places == (index, counted[each.local_queue]), "Q1: a gap between positions", each)
            counted[each.local_queue] += 1
        queue = core.queries.world.cluster_queues[name].queue
        single = [find_position(queue, key) for key in keys]
        check_law(single == listed, "Q1: a single workload has another position", single, listed)
        for local_queue in counted:
            part = core.queries.list_local_queue(local_queue, ALL)
            whole = [each for each in listed if each.local_queue == local_queue]
            check_law(part == whole, "Q1: a LocalQueue has other positions", local_queue, part, whole)
    pending = [each.workload for each in core.queries.pending_workloads() if each.cluster_queue]
    check_law(
        sorted(listed_anywhere) == sorted(pending), "Q1: not the pending workloads", listed_anywhere, pending
    )
