"""ClusterQueues that take no part in cycles after a defect: quarantined, paused, or of a paused tree."""

import pytest

from admitq.core import events as happened
from admitq.core.activity import ActiveReason
from admitq.core.model import Cohort, QueueingStrategy
from admitq.core.refusals import ClusterQueueInactive
from admitq.core.waiting.heads import Pause
from tests.unit.core.play import Play, key, queue


def play_with_borrower() -> Play:
    """Return ``q`` and ``r`` in one cohort, with 4 CPUs each, and ``apart`` without cohort; ``q`` uses 6."""
    play = Play()
    play.send(happened.CohortChanged(Cohort("c", parent="above")))
    play.put(queue("q", 4, "c"), queue("r", 4, "c"), queue("apart", 4))
    play.submit("borrower", "q", 6)
    play.run("borrower")
    return play


def test_quarantined_cluster_queue_counts_in_its_cohort_and_admits_nothing() -> None:
    play = play_with_borrower()
    play.send(happened.ClusterQueueChanged(queue("q", 4, "c", quarantined=True)))
    status = play.state.queries.cluster_queue_status("q")
    assert status is not None
    assert (status.active, status.reason) == (False, ActiveReason.UNKNOWN)
    assert play.state.queries.is_excluded("q")
    play.submit("waits", "q", 1)
    play.submit("wide", "r", 3)
    play.submit("narrow", "r", 2)
    play.run("narrow")
    assert play.state.queries.find_inadmissibility(key("waits")) == ClusterQueueInactive("q")
    play.finish("borrower")
    play.send(happened.ClusterQueueChanged(queue("q", 4, "c")))
    play.run("wide", "waits")


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
    play = play_with_borrower()
    for name in ("q", "r", "apart"):
        play.submit(f"in-{name}", name, 1)
    play.state.pause(pause)
    assert [play.state.queries.is_excluded(name) for name in ("q", "r", "apart")] == [True, True, False]
    play.run("in-apart")
    assert play.is_quiet
    play.submit("more", "apart", 1)
    assert not play.is_quiet
    play.run("more")
    play.state.pause(Pause())
    assert not play.is_quiet
    play.run("in-q", "in-r")


def test_pause_of_cohort_without_cluster_queues_pauses_nothing() -> None:
    play = play_with_borrower()
    play.state.pause(Pause(cohorts=frozenset({"other"})))
    play.submit("small", "r", 1)
    play.run("small")
    assert play.state.queries.is_excluded("nowhere")


def test_blocking_head_of_a_paused_cluster_queue_takes_no_part_in_cycles_of_its_tree() -> None:
    play = play_with_borrower()
    play.send(
        happened.ClusterQueueChanged(queue("q", 4, "c", queueing_strategy=QueueingStrategy.STRICT_FIFO))
    )
    play.submit("first", "q", 9)
    play.run()
    play.state.pause(Pause(frozenset({"q"})))
    play.submit("small", "r", 1)
    play.run("small")


def test_trees_list_cluster_queues_of_each_cohort_tree() -> None:
    assert play_with_borrower().state.trees() == [("apart",), ("q", "r")]
