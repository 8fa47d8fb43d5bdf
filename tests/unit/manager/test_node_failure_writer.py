"""Writes of evictions for failed nodes: their condition and event, repetitions, and changes in between."""

from typing import Any, cast

import pytest

from admitq.core.instructions import EvictForNodeFailures
from admitq.manager.node_failure_writer import NodeFailureWriter
from admitq.runtime.events import EventRecorder
from admitq.runtime.rate_limit import CallPriority
from admitq.workloads.transitions import find_condition
from admitq_api.conditions import ConditionType, parse_time
from tests.unit.manager.test_guarded_writes import KEY, Server, workload

MESSAGE = "Workload was evicted as there was no replacement for unhealthy node(s): a,b"
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m"}
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "m"}


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, _regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        self.events.append((kind, reason, note))


async def evict(server: Server) -> Recorder:
    recorder = Recorder()
    writer = NodeFailureWriter(
        server.writes, cast("EventRecorder", recorder), lambda: parse_time("2026-03-01T10:01:00Z")
    )
    await writer.evict(EvictForNodeFailures(KEY, "u", ("a", "b")))
    return recorder


@pytest.mark.parametrize("lost_answers", [0, 1])
async def test_eviction_names_its_nodes_and_is_recorded_once(lost_answers: int) -> None:
    server = Server(workload(conditions=[RESERVED]), lost_answers=lost_answers)
    recorder = await evict(server)
    evicted = find_condition(server.stored, ConditionType.EVICTED)
    assert evicted is not None
    assert (evicted["reason"], evicted["message"]) == ("NodeFailures", MESSAGE)
    assert set(server.priorities) == {CallPriority.EVICTION}
    assert server.applied == 1
    assert recorder.events == [("Normal", "EvictedDueToNodeFailures", MESSAGE)]


@pytest.mark.parametrize("conditions", [[], [RESERVED, EVICTED]], ids=["no quota", "evicted already"])
async def test_workload_that_leaves_anyway_is_not_evicted(conditions: list[dict[str, Any]]) -> None:
    server = Server(workload(conditions=conditions))
    recorder = await evict(server)
    assert (server.applied, recorder.events) == (0, [])


async def test_changed_workload_is_not_evicted() -> None:
    """The host is healthy again, for example. The core decides again."""
    newer = workload(conditions=[RESERVED])
    newer["metadata"]["resourceVersion"] = "5"
    server = Server(workload(conditions=[RESERVED]), newer=newer)
    server.writes.is_same_to_core = lambda *_: False
    recorder = await evict(server)
    assert (server.applied, recorder.events) == (0, [])
