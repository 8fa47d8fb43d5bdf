"""The forms of `hack/bench throughput --shape pods`, and the pods that run."""

import pytest

from benchmarks.job_objects import PodSize, node_pool
from benchmarks.pods import rate_ratio
from benchmarks.pods_forms import FORMS, NODE_CPU, POD, PodsForm, RunningPods


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_form_has_ten_thousand_pods_and_twice_as_much_room(form: PodsForm):
    assert form.pods == 10_000
    pool = node_pool(form.nodes, NODE_CPU, POD)
    assert form.nodes * POD.per_node(NODE_CPU) >= 2 * form.pods
    assert pool.pods >= POD.per_node(NODE_CPU)


@pytest.mark.parametrize(
    ("name", "share", "scaled"),
    [
        ("10000x1", 0.1, PodsForm(1000, 1)),
        ("500x20", 0.1, PodsForm(50, 20)),
        ("20x500", 0.1, PodsForm(2, 500)),
        ("1x10000", 0.1, PodsForm(1, 1000)),
        ("20x500", 0.01, PodsForm(1, 100)),
        ("1x10000", 0.00001, PodsForm(1, 1)),
        ("500x20", 1.0, PodsForm(500, 20)),
    ],
)
def test_scaled_form_has_fewer_jobs_of_the_same_size(name: str, share: float, scaled: PodsForm):
    assert FORMS[name].scaled(share) == scaled


def test_few_pods_get_two_nodes():
    assert PodsForm(3, 1).nodes == 2
    assert PodsForm(1, 301).nodes == 4


@pytest.mark.parametrize(("size", "pods"), [(PodSize(2000, 2048), 5), (PodSize(100, 5120), 2)])
def test_scarcer_resource_limits_the_pods_of_a_node(size: PodSize, pods: int):
    assert size.per_node(10) == pods


def pod(job: str, uid: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "labels": {"batch.kubernetes.io/job-name": job}}}


@pytest.fixture
def running() -> RunningPods:
    running = RunningPods(PodsForm(2, 2))
    running.create("a", 10.0)
    running.create("b", 11.0)
    return running


def test_job_has_started_when_all_its_pods_run(running: RunningPods):
    running.observe("ADDED", pod("a", "1"), 12.0)
    running.observe("ADDED", pod("b", "2"), 13.0)
    assert not running.starts
    running.observe("ADDED", pod("a", "3"), 14.5)
    assert running.starts == {"a": 4.5}
    assert not running.are_complete
    running.observe("ADDED", pod("b", "4"), 15.0)
    assert running.starts == {"a": 4.5, "b": 4.0}
    assert running.are_complete


def test_repeated_events_and_pods_of_other_jobs_do_not_count(running: RunningPods):
    for kind in ("ADDED", "MODIFIED", "ADDED"):
        running.observe(kind, pod("a", "1"), 12.0)
    running.observe("ADDED", pod("other", "2"), 12.0)
    running.observe("ADDED", {"metadata": {"uid": "3"}}, 12.0)
    assert running.count == 1


def test_pod_that_stopped_does_not_count_and_the_first_start_remains(running: RunningPods):
    running.observe("ADDED", pod("a", "1"), 12.0)
    running.observe("ADDED", pod("a", "2"), 13.0)
    running.observe("DELETED", pod("a", "1"), 14.0)
    running.observe("DELETED", pod("a", "1"), 14.0)
    assert running.count == 1
    running.observe("ADDED", pod("a", "3"), 20.0)
    assert running.count == 2
    assert running.starts == {"a": 3.0}


def test_rates_are_compared_only_if_both_were_measured():
    fast, slow = {"pods_per_s": 100.0}, {"pods_per_s": 80.0}
    assert rate_ratio({"queue": slow, "no_queue": fast}) == 0.8
    assert rate_ratio({"queue": slow}) is None
    assert rate_ratio({"no_queue": fast}) is None
    assert rate_ratio({"queue": slow, "no_queue": {"pods_per_s": 0.0}}) is None
