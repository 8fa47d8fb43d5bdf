"""The search for ClusterQueues with which cycles fail, against a core that fails with known ones."""

import pytest

from admitq.manager.failing_queue_search import FailingQueueSearch, QueueGroup

TREES: list[QueueGroup] = [("a",), ("b1", "b2", "b3"), ("c1", "c2"), ("d",)]
ALL = {name for group in TREES for name in group}


def searched(bad: set[str], heads: set[str], most_failures: int = 20) -> tuple[set[str], bool, int]:
    """Search until a culprit is found, or nothing more is found out.

    Args:
        bad: ClusterQueues with which cycles fail.
        heads: ClusterQueues that have a head in the first cycle after each failure.
        most_failures: how many there may be.

    Returns:
        The culprits, whether the search goes on, and how many cycles have failed.
    """
    search, tried, failures = FailingQueueSearch(), set[str](), 0
    search.begin(TREES)
    while search.is_running and failures < most_failures:
        due = heads - search.paused_queues - tried
        if due & bad:
            failures += 1
            tried = set()
            search.record_failure()
        elif due:
            tried |= due
            search.record_success()
        elif search.is_inconclusive:
            break
        elif culprits := search.release_next_group():
            return set(culprits), search.is_running, failures
    return set(), search.is_running, failures


@pytest.mark.parametrize(
    ("bad", "heads", "failures"),
    [
        pytest.param({"a"}, ALL, 2, id="tree of one ClusterQueue"),
        pytest.param({"b2"}, ALL, 2, id="ClusterQueue of a larger tree"),
        pytest.param({"c2", "b1"}, ALL, 4, id="ClusterQueues of two trees"),
        pytest.param({"b1", "b3"}, ALL, 3, id="two ClusterQueues of a tree"),
        pytest.param({"c1", "c2"}, ALL, 3, id="all ClusterQueues of a tree"),
        pytest.param({"d"}, {"d", "a"}, 2, id="others have no heads"),
    ],
)
def test_culprits_are_found_when_others_are_sound(bad: set[str], heads: set[str], failures: int) -> None:
    assert searched(bad, heads) == (bad, False, failures)


@pytest.mark.parametrize(
    ("bad", "heads", "goes_on"),
    [
        pytest.param(ALL, ALL, False, id="every cycle fails"),
        pytest.param(set[str](), ALL, False, id="no cycle fails any more"),
        pytest.param({"a"}, {"a"}, True, id="no other ClusterQueue has a head"),
        pytest.param({"b1", "b2"}, {"b1", "b2"}, False, id="all heads are of one tree and fail"),
    ],
)
def test_nothing_is_left_out_when_no_other_is_known_to_be_sound(
    bad: set[str], heads: set[str], goes_on: bool
) -> None:
    culprits, is_on, failures = searched(bad, heads)
    assert (culprits, is_on) == (set(), goes_on)
    assert failures <= 3


def test_undecided_search_ends_when_another_queue_is_found_to_be_sound() -> None:
    search = FailingQueueSearch()
    search.begin([("a",), ("b",)])
    for _ in range(2):
        search.release_next_group()
        search.record_failure()
        search.release_next_group()
    assert search.release_next_group() == ()
    assert search.is_inconclusive
    assert search.paused_queues == {"a"}
    search.retry_failed_groups()
    search.release_next_group()
    search.record_failure()
    search.record_success()
    assert search.release_next_group() == ("a",)
    assert search.paused_queues == set()
