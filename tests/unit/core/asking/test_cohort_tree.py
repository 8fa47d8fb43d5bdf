import pytest

from admitq.core.asking.cohort_tree import (
    find_waiting,
    list_tree_queues,
    list_waiting,
    read_tree_settings,
)
from admitq.core.events import CohortChanged, LocalQueueChanged
from admitq.core.model import Cohort, LocalQueue, StopPolicy
from tests.unit.core.small_cluster import SmallCluster, group, key, queue


@pytest.fixture
def cluster() -> SmallCluster:
    """Queues a and b of a cohort, queue c without one, and a workload of each that waits behind another."""
    cluster = SmallCluster()
    cluster.put(queue("a", 1, "team"), queue("b", 1, "team"), queue("c", 1))
    for name in ("a", "b", "c"):
        cluster.submit(f"runs-{name}", name)
    cluster.decide()
    for name in ("a", "b", "c"):
        cluster.submit(f"waits-{name}", name)
    cluster.submit("lost", "no such queue")
    return cluster


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (["waits-a"], {"a", "b"}),
        (["waits-c"], {"c"}),
        (["waits-b", "runs-c"], {"a", "b", "c"}),
        (["lost"], set()),
    ],
)
def test_queues_of_a_tree_are_those_of_its_cohort(
    cluster: SmallCluster, asked: list[str], names: set[str]
) -> None:
    assert list_tree_queues(cluster.state, [key(each) for each in asked]) == names


def test_waiting_workloads_hold_no_quota_and_have_not_finished(cluster: SmallCluster) -> None:
    cluster.submit("done", "a", finished=True)
    waiting = list_waiting(cluster.state, {"a", "b"})
    assert [(each.workload.key.name, each.cluster_queue) for each in waiting] == [
        ("waits-a", "a"),
        ("waits-b", "b"),
    ]


def test_waiting_workload_has_the_cluster_queue_of_its_local_queue(cluster: SmallCluster) -> None:
    found = find_waiting(cluster.state, key("waits-a"))
    assert found is not None
    cluster.send(LocalQueueChanged(LocalQueue(key("a"), "b")))
    moved = find_waiting(cluster.state, key("waits-a"))
    assert moved == found._replace(cluster_queue="b")
    assert find_waiting(cluster.state, key("lost")) is not None
    assert find_waiting(cluster.state, key("none")) is None


def test_settings_of_a_tree_change_with_its_queues_and_its_quota(cluster: SmallCluster) -> None:
    def read() -> object:
        return read_tree_settings(cluster.state, ["a", "b", "missing"])

    seen = [read()]
    cluster.submit("another", "a")
    cluster.put(queue("c", 5))
    assert read() == seen[-1]
    changes = (
        lambda: cluster.put(queue("a", 1, "team", stop_policy=StopPolicy.HOLD)),
        lambda: cluster.put(queue("b", 2, "team")),
        lambda: cluster.send(CohortChanged(Cohort("team", resource_groups=group(("default", 3))))),
    )
    for change in changes:
        change()
        assert read() not in seen
        seen.append(read())
