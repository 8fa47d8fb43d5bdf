from itertools import pairwise

import pytest

from benchmarks.throughput_shapes import SHAPES, LoadShape, PlannedWorkload


@pytest.mark.parametrize(
    ("name", "queues", "workloads", "quota_cpu", "bound_s"),
    [
        # 350 x 1 CPU x 0.2 s + 100 x 5 CPU x 0.5 s + 50 x 20 CPU x 1 s, on 20 CPU
        ("baseline", 30, 15_000, 600, 66.0),
        # 35 x 1 CPU x 0.15 s + 11 x 5 CPU x 0.35 s + 4 x 20 CPU x 0.7 s, on 20 CPU
        ("large", 1000, 50_000, 20_000, 4.025),
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
