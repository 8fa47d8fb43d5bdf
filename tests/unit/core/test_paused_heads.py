"""ClusterQueues that take no part in cycles after a defect: quarantined, paused, or of a paused tree."""

import pytest

from admitq.core import events as happened
from admitq.core.activity import ActiveReason
from admitq.core.model import Cohort, QueueingStrategy
from admitq.core.refusals import ClusterQueueInactive
from admitq.core.waiting.heads import Pause
from tests.unit.core.play import Play, key, queue


def borrowed() -> Play:
    """``q`` and ``r`` of cohort ``c`` have 4 CPUs each, and ``q`` uses 6; ``apart`` has no cohort."""
    play = Play()
    play.send(happened.CohortChanged(Cohort("c", parent="above")))
    play.put(queue("q", 4, "c"), queue("r", 4, "c"), queue("apart", 4))
    play.submit("borrower", "q", 6)
    play.run("borrower")
    return play


def test_quarantined_cluster_queue_counts_in_its_cohort_and_admits_nothing() -> None:
    play = borrowed()
    play.send(happened.ClusterQueueChanged(queue("q", 4, "c", quarantined=True)))
    status = play.state.queries.cluster_queue_status("q")
    assert status is not None
    assert (status.active, status.reason) == (False, ActiveReason.UNKNOWN)
    assert play.state.queries.is_excluded("q")
    play.submit("waits", "q", 1)
    play.submit("wide", "r", 3)
    play.submit("narrow", "r", 2)
    play.run("narrow")
    assert play.state.queries.admissibility(key("waits")) == ClusterQueueInactive("q")
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
    play = borrowed()
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


def test_pause_of_a_cohort_without_cluster_queues_pauses_nothing() -> None:
    play = borrowed()
    play.state.pause(Pause(cohorts=frozenset({"other"})))
    play.submit("small", "r", 1)
    play.run("small")
    assert play.state.queries.is_excluded("nowhere")


def test_standing_head_of_a_paused_cluster_queue_takes_no_part_in_cycles_of_its_tree() -> None:
    play = borrowed()
    play.send(
        happened.ClusterQueueChanged(queue("q", 4, "c", queueing_strategy=QueueingStrategy.STRICT_FIFO))
    )
    play.submit("first", "q", 9)
    play.run()
    play.state.pause(Pause(frozenset({"q"})))
    play.submit("small", "r", 1)
    play.run("small")


def test_trees_have_the_names_of_their_cluster_queues() -> None:
    assert borrowed().state.trees() == [("apart",), ("q", "r")]
