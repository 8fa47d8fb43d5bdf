from collections import Counter
from itertools import pairwise

import pytest

from admitq_api.labels import names_for
from benchmarks import throughput_objects
from benchmarks.throughput_shapes import BASELINE, RACK, SHAPES, TOPOLOGY, LoadShape, PlannedWorkload


@pytest.mark.parametrize(
    ("name", "queues", "workloads", "quota_cpu", "bound_s"),
    [
        # 350 x 1 CPU x 0.2 s + 100 x 5 CPU x 0.5 s + 50 x 20 CPU x 1 s, on 20 CPU
        ("baseline", 30, 15_000, 600, 66.0),
        # 35 x 1 CPU x 0.15 s + 11 x 5 CPU x 0.35 s + 4 x 20 CPU x 0.7 s, on 20 CPU
        ("large", 1000, 50_000, 20_000, 4.025),
        # 350 x 96 CPU x 0.2 s + 100 x 512 CPU x 0.5 s + 50 x 2048 CPU x 1 s, on 2048 CPU
        ("topology", 30, 15_000, 61_440, 65.78125),
    ],
)
def test_shape_has_the_published_size_and_bound(
    name: str, queues: int, workloads: int, quota_cpu: int, bound_s: float
):
    shape = SHAPES[name]
    assert (shape.queues, shape.workloads, shape.quota_cpu) == (queues, workloads, quota_cpu)
    assert shape.bound_s == pytest.approx(bound_s)


@pytest.mark.parametrize("name", SHAPES)
def test_planned_workloads_are_complete_unique_and_ordered_by_time(name: str):
    shape = SHAPES[name].scaled(0.1)
    planned = list(shape.planned())
    assert len(planned) == len({workload.name for workload in planned}) == shape.workloads
    assert all(one.due_s <= following.due_s for one, following in pairwise(planned))
    assert {workload.queue for workload in planned} == set(range(shape.queues))


def test_planned_workloads_of_each_class_and_queue_have_the_interval_of_the_class():
    shape = SHAPES["baseline"].scaled(0.02)
    for kind in shape.classes:
        times = [one.due_s for one in of_queue(shape, 3) if one.kind is kind]
        assert times == pytest.approx([number * kind.interval_ms / 1000 for number in range(kind.per_queue)])


def test_topology_shape_has_the_times_of_the_baseline_and_its_shares_of_the_quota():
    baseline, topology = SHAPES[BASELINE], SHAPES[TOPOLOGY]
    assert topology.bound_s == pytest.approx(baseline.bound_s, rel=0.01)
    for kind in baseline.classes:
        parts = [part for part in topology.classes if part.name.startswith(kind.name)]
        assert sum(part.per_queue for part in parts) == kind.per_queue
        assert max(part.last_end_s for part in parts) == pytest.approx(kind.last_end_s, rel=0.05)
        assert {(part.run_ms, part.priority) for part in parts} == {(kind.run_ms, kind.priority)}
        for part in parts:
            assert part.cpu / topology.nominal_cpu == pytest.approx(kind.cpu / baseline.nominal_cpu, rel=0.07)


def test_nodes_of_topology_shape_have_its_quota_and_room_for_each_class_in_a_rack():
    shape = SHAPES[TOPOLOGY]
    assert shape.nodes is not None
    assert shape.nodes.hosts * shape.nodes.cpu == shape.quota_cpu
    for kind in shape.classes:
        assert kind.cpu_of_pod * kind.pods == kind.cpu
        assert shape.nodes.cpu // kind.cpu_of_pod * shape.nodes.hosts_of_rack >= kind.pods


def test_objects_of_topology_shape_request_places_on_its_nodes():
    shape, names = SHAPES[TOPOLOGY], names_for()
    assert shape.nodes is not None
    created = [node for _, node in throughput_objects.nodes(shape.nodes)]
    labels = [node["metadata"]["labels"] for node in created]
    assert len({one["kubernetes.io/hostname"] for one in labels}) == len(labels) == 640
    assert set(Counter(one[RACK] for one in labels).values()) == {64}
    paths = [path for path, _ in throughput_objects.untaint(shape.nodes)]
    assert paths == [f"/api/v1/nodes/{node['metadata']['name']}" for node in created]
    [(_, topology)] = throughput_objects.topologies(shape, names)
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert RACK in levels
    assert set(levels) <= set(labels[0])
    flavor = throughput_objects.flavor(shape, names)[1]["spec"]
    assert flavor["topologyName"] == topology["metadata"]["name"]
    assert all(flavor["nodeLabels"].items() <= one.items() for one in labels)
    pod_sets = [
        throughput_objects.workload(PlannedWorkload(0.0, 0, kind, 0), names)["spec"]["podSets"][0]
        for kind in shape.classes
    ]
    assert [one["count"] for one in pod_sets] == [kind.pods for kind in shape.classes]
    requests = [one["topologyRequest"] for one in pod_sets]
    assert requests == [{"required": RACK}, {"preferred": RACK}, {"unconstrained": True}] * 3


def test_objects_of_shape_without_nodes_have_no_topology():
    shape, names = SHAPES[BASELINE], names_for()
    assert list(throughput_objects.topologies(shape, names)) == []
    assert throughput_objects.flavor(shape, names)[1]["spec"] == {}
    planned = next(iter(shape.planned()))
    assert "topologyRequest" not in throughput_objects.workload(planned, names)["spec"]["podSets"][0]


def of_queue(shape: LoadShape, queue: int) -> list[PlannedWorkload]:
    return [one for one in shape.planned() if one.queue == queue]


def test_scaled_shape_has_the_share_of_each_class_and_at_least_one_workload():
    scaled = SHAPES["large"].scaled(0.1)
    assert [kind.per_queue for kind in scaled.classes] == [4, 1, 1]
    assert [kind.per_queue for kind in SHAPES["large"].scaled(1.0).classes] == [35, 11, 4]


def test_bound_is_last_end_of_a_class_if_quota_is_not_the_limit():
    shape = SHAPES["baseline"].scaled(0.004)
    assert [kind.per_queue for kind in shape.classes] == [1, 1, 1]
    # 20 CPU x 1 s + 5 CPU x 0.5 s + 1 CPU x 0.2 s, on 20 CPU
    assert shape.bound_s == pytest.approx(1.135)
    alone = LoadShape(cohorts=1, queues_per_cohort=1, classes=shape.classes[:1])
    assert alone.bound_s == pytest.approx(0.2)
