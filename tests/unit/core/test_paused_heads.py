"""ClusterQueues that take no part in cycles after a defect: quarantined, paused, or of a paused tree."""

import pytest

from admitq.core import events as happened
from admitq.core.activity import ActiveReason
from admitq.core.model import Cohort, QueueingStrategy
from admitq.core.refusals import ClusterQueueInactive
from admitq.core.waiting.heads import Pause
from tests.unit.core.small_cluster import SmallCluster, key, queue


def cluster_with_borrower() -> SmallCluster:
    """Return ``q`` and ``r`` in one cohort, with 4 CPUs each, and ``apart`` without cohort; ``q`` uses 6."""
    cluster = SmallCluster()
    cluster.send(happened.CohortChanged(Cohort("c", parent="above")))
    cluster.put(queue("q", 4, "c"), queue("r", 4, "c"), queue("apart", 4))
    cluster.submit("borrower", "q", 6)
    cluster.run("borrower")
    return cluster


def test_quarantined_cluster_queue_counts_in_its_cohort_and_admits_nothing() -> None:
    cluster = cluster_with_borrower()
    cluster.send(happened.ClusterQueueChanged(queue("q", 4, "c", quarantined=True)))
    status = cluster.state.queries.cluster_queue_status("q")
    assert status is not None
    assert (status.active, status.reason) == (False, ActiveReason.UNKNOWN)
    assert cluster.state.queries.is_excluded("q")
    cluster.submit("waits", "q", 1)
    cluster.submit("wide", "r", 3)
    cluster.submit("narrow", "r", 2)
    cluster.run("narrow")
    assert cluster.state.queries.find_inadmissibility(key("waits")) == ClusterQueueInactive("q")
    cluster.finish("borrower")
    cluster.send(happened.ClusterQueueChanged(queue("q", 4, "c")))
    cluster.run("wide", "waits")


@pytest.mark.parametrize(
    "pause",
    [
        Pause(cohorts=frozenset({"c"})),
        Pause(cohorts=frozenset({"above"})),
        Pause(trees_of=frozenset({"q"})),
        Pause(frozenset({"q", "r"})),
    ],
    ids=["cohort", "root", "tree of a ClusterQueue", "ClusterQueues"],
)
def test_paused_tree_takes_no_part_in_cycles_until_the_pause_ends(pause: Pause) -> None:
    cluster = cluster_with_borrower()
    for name in ("q", "r", "apart"):
        cluster.submit(f"in-{name}", name, 1)
    cluster.state.pause(pause)
    assert [cluster.state.queries.is_excluded(name) for name in ("q", "r", "apart")] == [True, True, False]
    cluster.run("in-apart")
    assert cluster.is_quiet
    cluster.submit("more", "apart", 1)
    assert not cluster.is_quiet
    cluster.run("more")
    cluster.state.pause(Pause())
    assert not cluster.is_quiet
    cluster.run("in-q", "in-r")


def test_pause_of_cohort_without_cluster_queues_pauses_nothing() -> None:
    cluster = cluster_with_borrower()
    cluster.state.pause(Pause(cohorts=frozenset({"other"})))
    cluster.submit("small", "r", 1)
    cluster.run("small")
    assert cluster.state.queries.is_excluded("nowhere")


def test_blocking_head_of_a_paused_cluster_queue_takes_no_part_in_cycles_of_its_tree() -> None:
    cluster = cluster_with_borrower()
    cluster.send(
        happened.ClusterQueueChanged(queue("q", 4, "c", queueing_strategy=QueueingStrategy.STRICT_FIFO))
    )
    cluster.submit("first", "q", 9)
    cluster.run()
    cluster.state.pause(Pause(frozenset({"q"})))
    cluster.submit("small", "r", 1)
    cluster.run("small")


def test_trees_list_cluster_queues_of_each_cohort_tree() -> None:
    assert cluster_with_borrower().state.trees() == [("apart",), ("q", "r")]
