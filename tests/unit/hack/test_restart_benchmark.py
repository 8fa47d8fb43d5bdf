"""The benchmark of restarts: the content of its load, and which writes it counts as unneeded."""

import json
from typing import Any

from admitq.runtime.kinds import kinds_of
from admitq_api.labels import names_for
from benchmarks import stored_workloads
from benchmarks.etcd_gateway import storage_key
from benchmarks.manager_calls import Write, unneeded_writes
from benchmarks.stored_cluster import has_cache
from benchmarks.stored_workloads import Queue, StoredSample

NAMES = names_for()
QUEUE = Queue("team-0")
CREATED = "2026-03-01T10:00:00Z"


def stored(name: str) -> bytes:
    sample = stored_workloads.workload(QUEUE, name, "owner-uid", NAMES)
    sample["metadata"] |= {"uid": "uid-of-sample", "creationTimestamp": CREATED}
    return json.dumps(sample).encode()


def test_copies_differ_from_their_sample_only_in_name_uid_and_creation() -> None:
    value = stored("sample")
    sample = json.loads(value)
    samples = [(QUEUE, StoredSample(value))]
    copies = [json.loads(copy) for _, _, copy in stored_workloads.copies(samples, "waiting", 3)]
    names = [copy["metadata"]["name"] for copy in copies]
    assert len({*names, "sample"}) == len({copy["metadata"]["uid"] for copy in copies} | {"x"}) == 4
    created = [copy["metadata"]["creationTimestamp"] for copy in copies]
    assert created == ["2026-03-01T09:59:58Z", "2026-03-01T09:59:56Z", "2026-03-01T09:59:54Z"]

    def without_identity(obj: dict[str, Any]) -> str:
        name = obj["metadata"]["name"]
        changed = {"uid": "", "creationTimestamp": ""}
        return json.dumps({**obj, "metadata": {**obj["metadata"], **changed}}).replace(name, "")

    assert {without_identity(copy) for copy in copies} == {without_identity(sample)}


def test_copies_are_spread_over_the_queues() -> None:
    samples = [(queue, StoredSample(stored("sample"))) for queue in stored_workloads.queues(3)]
    queues = [queue for queue, _, _ in stored_workloads.copies(samples, "finished", 7)]
    assert [queues.count(queue) for queue, _ in samples] == [3, 2, 2]


def test_storage_key_is_that_of_custom_resources() -> None:
    key = storage_key(kinds_of(NAMES).workloads, "team-0", "w")
    assert key == "/registry/admitq.dev/workloads/team-0/w"


def test_cache_is_complete_once_the_metric_counts_its_initialization() -> None:
    workloads = kinds_of(NAMES).workloads
    other = 'apiserver_watch_cache_initializations_total{group="",resource="workloads"} 1'
    own = 'apiserver_watch_cache_initializations_total{group="admitq.dev",resource="workloads"}'
    assert not has_cache(f"{other}\n", workloads)
    assert not has_cache(f"{other}\n{own} 0\n", workloads)
    assert has_cache(f"{other}\n{own} 1\n", workloads)


def write(resource: str, namespace: str, name: str = "w") -> Write:
    return Write("patch", resource, namespace, name, 200)


def test_consequences_of_a_reservation_are_needed() -> None:
    writes = [
        write("workloads/status", "team-0"),
        write("workloads/status", "team-0", "next-head"),
        write("clusterqueues/status", "", "team-0"),
        write("localqueues/status", "team-0", "team-0"),
        write("events", "team-0", ""),
    ]
    assert unneeded_writes(writes, "team-0") == {}


def test_writes_about_other_queues_and_more_than_the_consequences_are_unneeded() -> None:
    writes = [
        write("workloads/status", "team-1"),
        write("clusterqueues/status", "", "team-1"),
        *[write("workloads/status", "team-0", f"w-{number}") for number in range(5)],
    ]
    assert unneeded_writes(writes, "team-0") == {
        "patch clusterqueues/status 200": 1,
        "patch workloads/status 200": 5,
    }
    assert unneeded_writes([write("workloads/status", "team-0")], None) == {"patch workloads/status 200": 1}
