"""Which workloads need a second pass, and when it is due."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core.entries import WorkloadEntry
from admitq.core.model import SECOND, Admission, CheckState, ObjectKey, PodSetAssignment, Workload
from admitq.core.second_pass import SecondPass, SecondPasses, needs_second_pass
from admitq.core.settings import Placement
from admitq.core.topology.assignment import TopologyAssignment
from admitq.core.topology.domains import HOST_NAME

ONE, TWO = ObjectKey("default", "one"), ObjectKey("default", "two")
PLACED = PodSetAssignment("placed", (("cpu", "f"),), (("cpu", 1000),), 1)
OPEN = PodSetAssignment("open", (("cpu", "f"),), (("cpu", 1000),), 1, lacks_topology_assignment=True)


def _workload(**of: Any) -> Workload:
    fields: dict[str, Any] = {
        "admission": Admission("main", (PLACED, OPEN)),
        "admission_checks": (("provision", CheckState.READY), ("review", CheckState.READY)),
    }
    return Workload(ONE, "uid", "main", 0, (), **{**fields, **of})


@pytest.mark.parametrize(
    ("of", "needed"),
    [
        ({}, True),
        ({"admission": None}, False),
        ({"admission": Admission("main", (PLACED,))}, False),
        ({"admission_checks": ()}, False),
        (
            {
                "admission_checks": (
                    ("provision", CheckState.READY),
                    ("review", CheckState.PENDING),
                )
            },
            False,
        ),
        ({"admitted": True}, False),
        ({"evicted": True}, False),
        ({"finished": True}, False),
        ({"active": False}, False),
    ],
    ids=str,
)
def test_workload_that_lacks_only_places_needs_a_second_pass(of: dict[str, Any], needed: bool) -> None:
    assert needs_second_pass(WorkloadEntry(_workload(**of)), Placement()) is needed


ON_HOSTS = replace(PLACED, topology=TopologyAssignment((HOST_NAME,), ((("a",), 1), (("b",), 1))))
IN_RACKS = replace(PLACED, topology=TopologyAssignment(("rack",), ((("a",), 1),)))


@pytest.mark.parametrize(
    ("of", "placement", "needed"),
    [
        ({}, Placement(), True),
        ({"unhealthy_nodes": ("left", "b")}, Placement(), True),
        ({"unhealthy_nodes": ("left",)}, Placement(), False),
        ({"unhealthy_nodes": ()}, Placement(), False),
        ({"admission": Admission("main", (IN_RACKS, PLACED))}, Placement(), False),
        ({"admission": None}, Placement(), False),
        ({"admitted": False}, Placement(), False),
        ({"evicted": True}, Placement(), False),
        ({"finished": True}, Placement(), False),
        ({}, None, False),
        ({}, Placement(replaces_hosts=False), False),
        ({"is_single_pod": True}, Placement(), False),
        ({"is_single_pod": True}, Placement(leaves_single_pods=False), True),
    ],
    ids=str,
)
def test_workload_with_pods_on_a_failed_host_needs_a_second_pass(
    of: dict[str, Any], placement: Placement | None, needed: bool
) -> None:
    lost: dict[str, Any] = {
        "admission": Admission("main", (PLACED, ON_HOSTS)),
        "admission_checks": (),
        "admitted": True,
        "unhealthy_nodes": ("a",),
    }
    assert needs_second_pass(WorkloadEntry(_workload(**{**lost, **of})), placement) is needed


def test_no_second_pass_is_due_at_first() -> None:
    passes = SecondPasses()
    assert (passes.next_at(), passes.scheduled, passes.take_due(9**20)) == (None, (), [])


def test_first_second_pass_is_due_after_1_second_and_is_not_postponed() -> None:
    passes = SecondPasses()
    passes.settle(ONE, 5, needed=True)
    passes.settle(ONE, 9, needed=True)
    assert passes.scheduled == (SecondPass(5 + SECOND, ONE, SECOND),)
    assert passes.take_due(4 + SECOND) == []
    assert passes.take_due(5 + SECOND) == [SecondPass(5 + SECOND, ONE, SECOND)]


def test_second_pass_needed_again_at_the_same_instant_is_one_pass() -> None:
    passes = SecondPasses()
    for needed in (True, False, True):
        passes.settle(ONE, 5, needed=needed)
    assert passes.take_due(5 + SECOND) == [SecondPass(5 + SECOND, ONE, SECOND)]


def test_second_pass_delay_doubles_after_each_failure_up_to_30_seconds() -> None:
    passes = SecondPasses()
    passes.settle(ONE, 0, needed=True)
    now, waited = 0, list[int]()
    for _ in range(7):
        at = passes.next_at()
        assert at is not None
        waited.append((at - now) // SECOND)
        now = at
        (second_pass,) = passes.take_due(now)
        passes.reschedule(second_pass, now)
    assert waited == [1, 2, 4, 8, 16, 30, 30]


def test_second_passes_due_at_the_same_time_are_sorted_by_key() -> None:
    passes = SecondPasses()
    for key, since in ((TWO, 0), (ONE, 0), (ObjectKey("default", "late"), 2 * SECOND)):
        passes.settle(key, since, needed=True)
    assert [second_pass.key for second_pass in passes.take_due(SECOND)] == [ONE, TWO]
    assert passes.next_at() == 3 * SECOND


def test_workload_without_need_has_no_second_pass_and_restarts_its_delay() -> None:
    passes = SecondPasses()
    passes.settle(ONE, 0, needed=True)
    (second_pass,) = passes.take_due(SECOND)
    passes.reschedule(second_pass, SECOND)
    passes.settle(ONE, SECOND, needed=False)
    assert passes.next_at() is None
    passes.settle(ONE, 7, needed=True)
    assert passes.scheduled == (SecondPass(7 + SECOND, ONE, SECOND),)


def test_restore_replaces_all_second_passes() -> None:
    passes = SecondPasses()
    passes.settle(TWO, 0, needed=True)
    passes.restore((SecondPass(3, ONE, 16 * SECOND),))
    assert passes.scheduled == (SecondPass(3, ONE, 16 * SECOND),)
    assert passes.next_at() == 3
