"""The search for ClusterQueues that cycles fail with, against a core that fails with known ones."""

import pytest

from admitq.manager.failing_queue_search import FailingQueueSearch, QueueGroup

TREES: list[QueueGroup] = [("a",), ("b1", "b2", "b3"), ("c1", "c2"), ("d",)]
ALL_QUEUES = {name for group in TREES for name in group}


def search_until_found(
    failing: set[str], heads: set[str], most_failures: int = 20
) -> tuple[set[str], bool, int]:
    """Search until a culprit is found, or further cycles cannot find one.

    Args:
        failing: ClusterQueues that cycles fail with.
        heads: ClusterQueues that have a head in the first cycle after each failure.
        most_failures: the number of failures that ends the search.

    Returns:
        The culprits, whether the search is still running, and how many cycles failed.
    """
    search, tried, failures = FailingQueueSearch(), set[str](), 0
    search.begin(TREES)
    while search.is_running and failures < most_failures:
        due = heads - search.paused_queues - tried
        if due & failing:
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
    ("failing", "heads", "failures"),
    [
        pytest.param({"a"}, ALL_QUEUES, 2, id="tree of one ClusterQueue"),
        pytest.param({"b2"}, ALL_QUEUES, 2, id="ClusterQueue of a larger tree"),
        pytest.param({"c2", "b1"}, ALL_QUEUES, 4, id="ClusterQueues of two trees"),
        pytest.param({"b1", "b3"}, ALL_QUEUES, 3, id="two ClusterQueues of a tree"),
        pytest.param({"c1", "c2"}, ALL_QUEUES, 3, id="all ClusterQueues of a tree"),
        pytest.param({"d"}, {"d", "a"}, 2, id="others have no heads"),
    ],
)
def test_search_finds_all_culprits_if_cycles_without_them_succeed(
    failing: set[str], heads: set[str], failures: int
) -> None:
    assert search_until_found(failing, heads) == (failing, False, failures)


@pytest.mark.parametrize(
    ("failing", "heads", "is_still_running"),
    [
        pytest.param(ALL_QUEUES, ALL_QUEUES, False, id="every cycle fails"),
        pytest.param(set[str](), ALL_QUEUES, False, id="no cycle fails any more"),
        pytest.param({"a"}, {"a"}, True, id="no other ClusterQueue has a head"),
        pytest.param({"b1", "b2"}, {"b1", "b2"}, False, id="all heads are of one tree and fail"),
    ],
)
def test_search_pauses_no_queue_if_no_cycle_without_it_succeeds(
    failing: set[str], heads: set[str], is_still_running: bool
) -> None:
    culprits, is_running, failures = search_until_found(failing, heads)
    assert (culprits, is_running) == (set(), is_still_running)
    assert failures <= 3


def test_inconclusive_search_finds_culprit_after_another_queue_succeeds() -> None:
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
