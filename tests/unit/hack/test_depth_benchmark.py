"""The benchmark `depth`: the requests of its load, what its newcomers see, and its result."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from admitq_api.labels import names_for
from benchmarks import depth
from benchmarks.api_calls import ApiCallKey, ApiServerCounts
from benchmarks.depth import QUOTA_CPU, RUNNING, DepthLoad
from benchmarks.depth_figures import DepthFigures, ManagerStart, result_of
from benchmarks.depth_newcomers import SIZE, Newcomers, NewcomerTimes
from benchmarks.stored_workloads import Queue
from benchmarks.throughput_connection import LoadAnswer, LoadConnection, ThroughputFailed
from benchmarks.throughput_costs import LoadCosts
from localcluster.waiting import eventually

NAMES = names_for("admitq.dev")
QUEUE = Queue("team-0")
PATH = "/apis/admitq.dev/v1beta2/namespaces/team-0/workloads"


def test_pending_sizes_differ_and_fit_only_after_the_end_of_running_workloads():
    load = DepthLoad()
    sizes = depth.pending_sizes(load)
    assert len({size.cpu for size in sizes}) == len(sizes) == load.shapes
    assert len({size.priority for size in sizes}) > 1
    quota = load.queues * QUOTA_CPU
    unused = quota - load.queues * RUNNING.cpu
    assert all(unused < size.cpu <= quota for size in sizes)
    # A newcomer leaves nothing to preempt that would be enough.
    assert all(size.cpu - SIZE.cpu > unused - SIZE.cpu for size in sizes)
    assert max(size.priority for size in sizes) < RUNNING.priority


def test_newcomer_fits_into_what_its_queue_has_unused():
    assert SIZE.cpu <= QUOTA_CPU - RUNNING.cpu


def test_depths_are_scaled_to_at_least_one():
    assert depth.scaled_depths(1.0) == (100, 1_000, 10_000, 100_000)
    assert depth.scaled_depths(0.002) == (1, 2, 20, 200)


class ScriptedConnection(LoadConnection):
    """Answers creations and patches, and shows the states of the newcomer that `states` lists."""

    def __init__(self, states: list[list[str]], patch_status: int = 200) -> None:
        self.calls = Counter[ApiCallKey]()
        self.sent: list[tuple[str, str]] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._states = states
        self._patch_status = patch_status

    async def call(
        self, verb: str, resource: str, path: str, body: Any = None, content_type: str = ""
    ) -> LoadAnswer:
        self.sent.append((verb, path))
        if verb == "create":
            for conditions in self._states:
                self.events.put_nowait(event(body["metadata"]["name"], *conditions))
            return LoadAnswer(201, b"")
        self.events.put_nowait(event(path.split("/")[-2], "Admitted", "Finished"))
        return LoadAnswer(self._patch_status, b"conflict")

    async def watch(
        self, resource: str, path: str, version: str, *, fields: str = ""
    ) -> AsyncGenerator[dict[str, Any]]:
        while (shown := await self.events.get()) is not None:
            yield shown


def event(name: str, *conditions: str, namespace: str = QUEUE.namespace) -> dict[str, Any]:
    status = {"conditions": [{"type": condition, "status": "True"} for condition in conditions]}
    metadata = {"name": name, "namespace": namespace}
    return {"type": "MODIFIED", "object": {"metadata": metadata, "status": status}}


def newcomers(connection: LoadConnection) -> Newcomers:
    return Newcomers(connection, NAMES, {QUEUE: "uid-of-owner"})


async def test_newcomer_is_finished_once_its_admission_was_seen():
    connection = ScriptedConnection([[], ["QuotaReserved", "Admitted"]])
    played = newcomers(connection)
    watch = asyncio.create_task(played.watch("1"))
    first, second = await played.next(), await played.next()
    watch.cancel()
    assert connection.sent == [
        ("create", PATH),
        ("patch", f"{PATH}/newcomer-0/status"),
        ("create", PATH),
        ("patch", f"{PATH}/newcomer-1/status"),
    ]
    for times in (first, second):
        assert times is not None
        assert min(times.created, times.waited, times.ended) >= 0


async def test_states_of_other_workloads_do_not_count_as_those_of_the_newcomer():
    connection = ScriptedConnection([["QuotaReserved"]])
    played = newcomers(connection)
    watch = asyncio.create_task(played.watch("1"))
    playing = asyncio.create_task(played.next())
    await eventually(lambda: connection.sent)
    connection.events.put_nowait(event("newcomer-0", "Admitted", namespace="team-1"))
    connection.events.put_nowait(event("pending-run-0", "Admitted"))
    connection.events.put_nowait({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}})
    await eventually(connection.events.empty)
    assert connection.sent == [("create", PATH)]
    connection.events.put_nowait(event("newcomer-0", "Admitted"))
    assert await playing is not None
    watch.cancel()


async def test_refused_end_and_ended_watch_fail_the_run():
    connection = ScriptedConnection([["Admitted"]], patch_status=409)
    played = newcomers(connection)
    watch = asyncio.create_task(played.watch("1"))
    with pytest.raises(ThroughputFailed, match="409 conflict"):
        await played.next()
    connection.events.put_nowait(None)
    with pytest.raises(ThroughputFailed, match="ended"):
        await watch


def figures(number: int, *waits: float) -> DepthFigures:
    calls = Counter(
        {
            ApiCallKey("apply", "workloads.admitq.dev/status", "200"): 4,
            ApiCallKey("watch", "workloads.admitq.dev", "200"): 1,
        }
    )
    used = {"manager": {"cpu_s": 0.5, "rss_mb": 90}, "etcd": {"cpu_s": None, "rss_mb": None}}
    costs = LoadCosts(used, ApiServerCounts(Counter(), Counter(), 0.0, Counter()), {"manager": calls})
    times = [NewcomerTimes(0.25, 0.25 + wait, 0.125) for wait in waits]
    return DepthFigures(number, times, costs, ManagerStart(3.0, 1.0, calls))


def test_result_has_the_ratio_of_the_times_beside_most_and_fewest():
    result, passed = result_of([figures(10, 0.1, 0.2), figures(100, 9.0, 9.0), figures(1000, 0.1, 0.4)], 2)
    assert passed
    assert result["ratio"] == 2.0
    assert [one["depth"] for one in result["depths"]] == [10, 100, 1000]
    assert result["depths"][0]["admit_s"] == {"count": 2, "p50": 0.1, "p99": 0.2, "max": 0.2}


def test_result_has_costs_for_each_newcomer():
    result, _ = result_of([figures(10, 0.1, 0.2)], 2)
    (one,) = result["depths"]
    assert one["cpu_ms_per_newcomer"] == {"manager": 250.0, "etcd": None}
    assert one["writes_per_newcomer"] == {"manager": 2.0}
    assert one["manager_writes"] == one["start_writes"] == {"apply workloads.admitq.dev/status 200": 4}


@pytest.mark.parametrize(
    "second",
    [figures(100, 0.1, 0.401), figures(100, 0.1), figures(100)],
    ids=["ratio above the bound", "newcomer not admitted", "no newcomer admitted"],
)
def test_run_fails_if_the_ratio_is_too_high_or_a_newcomer_is_not_admitted(second: DepthFigures):
    _, passed = result_of([figures(10, 0.2, 0.2), second], 2)
    assert not passed
