"""Malformed Workloads that hold quota."""

from typing import Any

import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.ledger import usage_of
from admitq.core.topology.domains import HOST_NAME
from admitq.translate.workloads import read_quota_holder, read_workload
from admitq_api.json_objects import with_value
from admitq_api.stored_fields import MalformedField
from admitq_api.topology_assignments import encode
from tests.unit.translate.builders import NAMES, condition, workload


def test_malformed_workload_is_read_with_quota_that_it_holds() -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    obj = workload(
        status={
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
        }
    )
    obj["spec"]["podSets"] = "nonsense"
    with pytest.raises(MalformedField):
        read_workload(obj, NAMES)
    holder = read_quota_holder(obj)
    assert holder.admission is not None
    assert holder.admission.pod_set_assignments[0].resource_usage == (("cpu", 2000),)
    assert holder.admitted


@pytest.mark.parametrize(("active", "expected"), [(False, False), (True, True), (None, True)])
def test_e_malformed_workload_is_inactive_only_if_active_is_false(
    active: bool | None, expected: bool
) -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
    }
    obj = workload(status=status, podSets="nonsense", active=active)
    assert read_quota_holder(obj).active is expected


@pytest.mark.parametrize("memory", ["-1", "1e1.5", None])
def test_e_readable_amounts_of_holder_count_beside_malformed_ones(memory: Any) -> None:
    assigned = {
        "name": "main",
        "flavors": {"cpu": "spot", "memory": "spot"},
        "resourceUsage": {"cpu": "4", "memory": memory},
        "count": 2,
    }
    malformed = {"name": "other", "flavors": "nonsense", "resourceUsage": {"cpu": "1"}}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [malformed, assigned, None]},
    }
    with pytest.raises(MalformedField):
        read_workload(
            with_value(workload(status=status), ("status", "admission", "podSetAssignments"), [assigned]),
            NAMES,
        )
    holder = read_quota_holder(workload(status=status))
    assert holder.admission is not None
    assert usage_of(holder, holder.admission) == ((FlavorResource("spot", "cpu"), 4000),)


@pytest.mark.parametrize(("priority", "expected"), [(1000, 1000), (None, 0), ("high", 0)])
def test_e_malformed_holder_keeps_readable_priority(priority: object, expected: int) -> None:
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": []},
    }
    assert (
        read_quota_holder(workload(status=status, podSets="nonsense", priority=priority)).priority == expected
    )


def test_workload_without_reservation_is_no_quota_holder() -> None:
    with pytest.raises(MalformedField, match="QuotaReserved must be True"):
        read_quota_holder(workload())


@pytest.mark.parametrize(
    ("stored", "domains"),
    [
        (encode([HOST_NAME], [(("a",), 1), (("b",), 2)]), ((("a",), 1), (("b",), 2))),
        ({"levels": "nonsense"}, None),
    ],
)
def test_places_of_a_malformed_holder_are_read_if_they_are_readable(stored: object, domains: object) -> None:
    assigned = {
        "name": "main",
        "flavors": {"cpu": "spot"},
        "resourceUsage": {"cpu": "3"},
        "count": 3,
        "topologyAssignment": stored,
    }
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
    }
    holder = read_quota_holder(workload(status=status))
    assert holder.admission is not None
    [part] = holder.admission.pod_set_assignments
    assert dict(part.resource_usage) == {"cpu": 3000}
    assert (part.topology and part.topology.domains) == domains
