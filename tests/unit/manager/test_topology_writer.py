"""Writes of topology assignments that a workload with reserved quota gets later."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core.instructions import AssignTopology
from admitq.core.model import Admission
from admitq.core.topology.assignment import TopologyAssignment
from admitq.manager.topology_writer import TopologyWriter
from admitq.runtime.rate_limit import CallPriority
from admitq.translate.admissions import format_admission, read_admission
from tests.unit.manager.test_guarded_writes import ADMISSION, KEY, Server, workload

TOPOLOGY = TopologyAssignment(("rack",), ((("r1",), 1),))
PLACED = Admission("cq", tuple(replace(part, topology=TOPOLOGY) for part in ADMISSION.pod_set_assignments))
DELAYED = Admission(
    "cq", tuple(replace(part, lacks_topology_assignment=True) for part in ADMISSION.pod_set_assignments)
)
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m"}


def stored(admission: Admission = DELAYED, version: str = "1") -> dict[str, Any]:
    obj = workload(conditions=[RESERVED], admission=format_admission(admission))
    obj["metadata"]["resourceVersion"] = version
    return obj


async def assign(server: Server) -> bool:
    return await TopologyWriter(server.writes).assign(AssignTopology(KEY, "u", PLACED))


@pytest.mark.parametrize("lost_answers", [0, 1])
async def test_assignment_is_added_to_the_reservation_once(lost_answers: int) -> None:
    server = Server(stored(), lost_answers=lost_answers)
    assert await assign(server)
    status: dict[str, Any] = server.stored["status"]
    assert server.applied == 1
    assert set(server.priorities) == {CallPriority.RESERVATION}
    assert read_admission(status["admission"]) == PLACED
    assert status["conditions"] == [RESERVED]
    assert status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Ready"


async def test_assignment_that_is_written_already_is_not_written_again() -> None:
    server = Server(stored(PLACED))
    assert await assign(server)
    assert server.applied == 0


@pytest.mark.parametrize("newer", [workload(), stored(ADMISSION)], ids=["evicted", "changed by others"])
async def test_assignment_of_a_former_reservation_is_dropped(newer: dict[str, Any]) -> None:
    newer["metadata"]["resourceVersion"] = "5"
    server = Server(stored(), newer=newer)
    server.writes.is_same_to_core = lambda *_: False
    assert not await assign(server)
    assert server.applied == 0


async def test_assignment_of_an_evicted_workload_is_not_written() -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "m"}
    obj = stored()
    obj["status"]["conditions"].append(evicted)
    server = Server(obj)
    assert not await assign(server)
    assert server.applied == 0


async def test_assignment_without_reservation_is_not_written() -> None:
    server = Server(workload())
    assert not await assign(server)
    assert server.applied == 0
