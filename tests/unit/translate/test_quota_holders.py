"""Workloads that hold quota although they are not readable as a whole."""

from typing import Any

import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.ledger import usage_of
from admitq.translate.workloads import read_quota_holder, read_workload
from admitq_api.json_objects import with_value
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import NAMES, condition, workload


def test_of_a_workload_that_cannot_be_read_what_it_holds_still_counts() -> None:
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
    held = read_quota_holder(obj)
    assert held.admission is not None
    assert held.admission.pod_set_assignments[0].resource_usage == (("cpu", 2000),)
    assert held.admitted


@pytest.mark.parametrize(("active", "read"), [(False, False), (True, True), (None, True)])
def test_e_inactive_workload_that_cannot_be_read_is_inactive(active: bool | None, read: bool) -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
    }
    obj = workload(status=status, podSets="nonsense", active=active)
    assert read_quota_holder(obj).active is read


@pytest.mark.parametrize("memory", ["-1", "1e1.5", None])
def test_e_amounts_that_can_be_read_count_when_another_program_wrote_one_that_cannot(memory: Any) -> None:
    assigned = {
        "name": "main",
        "flavors": {"cpu": "spot", "memory": "spot"},
        "resourceUsage": {"cpu": "4", "memory": memory},
        "count": 2,
    }
    unread = {"name": "other", "flavors": "nonsense", "resourceUsage": {"cpu": "1"}}
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [unread, assigned, None]},
    }
    with pytest.raises(MalformedField):
        read_workload(
            with_value(workload(status=status), ("status", "admission", "podSetAssignments"), [assigned]),
            NAMES,
        )
    held = read_quota_holder(workload(status=status))
    assert held.admission is not None
    assert usage_of(held, held.admission) == ((FlavorResource("spot", "cpu"), 4000),)


@pytest.mark.parametrize(("stated", "read"), [(1000, 1000), (None, 0), ("high", 0)])
def test_e_holder_that_cannot_be_read_keeps_its_priority(stated: object, read: int) -> None:
    status = {
        "conditions": [condition("QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": []},
    }
    assert read_quota_holder(workload(status=status, podSets="nonsense", priority=stated)).priority == read


def test_a_workload_that_holds_nothing_has_nothing_to_keep() -> None:
    with pytest.raises(MalformedField, match="QuotaReserved must be True"):
        read_quota_holder(workload())
