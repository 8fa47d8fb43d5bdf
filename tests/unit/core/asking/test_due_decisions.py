from dataclasses import replace

import pytest

from admitq.core.asking.due_decisions import assume_due_decisions
from admitq.core.lifecycle import Phase
from admitq.core.settings import CoreSettings
from admitq.core.world import DriverOptions
from tests.unit.core.small_cluster import SmallCluster, key, queue


def phases(cluster: SmallCluster) -> dict[str, Phase | None]:
    return {name: cluster.state.queries.workload_phase(key(name)) for name in cluster.workloads}


@pytest.mark.parametrize(
    ("asked", "is_halting", "admitted"),
    [
        (None, False, ["a", "b"]),
        (["b"], False, ["b"]),
        (["b"], True, ["a"]),
        (["a", "b"], False, ["a", "b"]),
    ],
)
def test_state_that_observes_decides_for_asked_trees_unless_pods_of_any_tree_halt_admission(
    asked: list[str] | None, is_halting: bool, admitted: list[str]
) -> None:
    cluster = SmallCluster(CoreSettings(block_admission=is_halting))
    world = cluster.state.queries.world
    world.driver = DriverOptions(writes_statuses=False, runs_cycles=False)
    cluster.put(queue("a", 1), queue("b", 1))
    cluster.submit("a", "a")
    cluster.submit("b", "b")
    assume_due_decisions(cluster.state, cluster.now, None if asked is None else [key(name) for name in asked])
    assert [name for name, phase in phases(cluster).items() if phase is Phase.ADMITTED] == admitted
    assert cluster.state.instructions() == []


def test_workload_without_queue_pauses_all_trees() -> None:
    cluster = SmallCluster()
    cluster.put(queue("a", 1))
    cluster.submit("fits", "a")
    cluster.submit("lost", "none")
    cluster.put_workload(replace(cluster.workloads["lost"], priority=1))
    assume_due_decisions(cluster.state, cluster.now, [key("lost")])
    assert phases(cluster)["fits"] is Phase.PENDING
