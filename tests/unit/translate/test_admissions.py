"""Translation of admissions, in both directions."""

from typing import Any

import pytest

from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.ledger import usage_of
from admitq.core.model import Admission, PodSetAssignment
from admitq.core.topology.assignment import TopologyAssignment
from admitq.translate.admissions import format_admission, format_pod_set_request, read_admission
from admitq.translate.workloads import read_workload
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import NAMES, condition, workload

TOPOLOGY: dict[str, Any] = {
    "levels": ["host"],
    "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 2}}],
}


def test_c16_resource_usage_beyond_int64_is_unlimited() -> None:
    part = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1E"}, "count": 2}
    admission = read_admission({"clusterQueue": "cq", "podSetAssignments": [part]})
    assert admission.pod_set_assignments[0].resource_usage == (("cpu", UNLIMITED),)
    written = format_admission(admission)["podSetAssignments"][0]["resourceUsage"]
    assert written == {"cpu": "9223372036854775807m"}


@pytest.mark.parametrize(
    ("assignment", "is_open"),
    [
        ({}, False),
        ({"delayedTopologyRequest": "Pending"}, True),
        ({"delayedTopologyRequest": "Ready"}, False),
        ({"delayedTopologyRequest": "Pending", "topologyAssignment": TOPOLOGY}, False),
    ],
    ids=str,
)
def test_assignment_with_delayed_request_and_without_topology_has_open_place(
    assignment: dict[str, Any], is_open: bool
) -> None:
    admission = read_admission(
        {"clusterQueue": "main", "podSetAssignments": [{"name": "workers", **assignment}]}
    )
    assert [part.lacks_topology_assignment for part in admission.pod_set_assignments] == [is_open]


def test_e_assignment_without_count_is_read_with_count_of_its_podset() -> None:
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "4"}}
    obj = workload(
        status={
            "conditions": [condition("QuotaReserved")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "reclaimablePods": [{"name": "main", "count": 3}],
        }
    )
    obj["spec"]["podSets"][0]["count"] = 4
    read = read_workload(obj, NAMES)
    assert read.admission is not None
    assert read.admission.pod_set_assignments[0].count == 4
    assert usage_of(read, read.admission) == ((FlavorResource("spot", "cpu"), 1000),)


def test_a6_admission_without_flavors_and_usage_is_written_without_empty_maps() -> None:
    written = format_admission(Admission("cq", (PodSetAssignment("main", (), (), 2),)))
    assert written["podSetAssignments"] == [{"name": "main", "count": 2}]
    assert format_pod_set_request("main", ()) == {"name": "main"}


@pytest.mark.parametrize(
    ("assignment", "written"),
    [
        (
            {"topology": TopologyAssignment(("host",), ((("n1",), 2),))},
            {"topologyAssignment": TOPOLOGY},
        ),
        ({"lacks_topology_assignment": True}, {"delayedTopologyRequest": "Pending"}),
        ({}, {}),
    ],
    ids=["assigned", "delayed", "without topology"],
)
def test_topology_of_assignment_is_written_and_read_again(
    assignment: dict[str, Any], written: dict[str, Any]
) -> None:
    admission = Admission("cq", (PodSetAssignment("main", (), (), 2, **assignment),))
    formatted = format_admission(admission)
    assert formatted["podSetAssignments"] == [{"name": "main", "count": 2, **written}]
    assert read_admission(formatted) == admission


def test_malformed_topology_assignment_is_reported_with_its_path() -> None:
    bad = {**TOPOLOGY, "slices": [{**TOPOLOGY["slices"][0], "domainCount": 2}]}
    item = {"name": "main", "count": 2, "topologyAssignment": {**bad, "levels": ["rack", "host"]}}
    with pytest.raises(MalformedField) as raised:
        read_admission({"clusterQueue": "cq", "podSetAssignments": [item]})
    assert raised.value.field == (
        "status.admission.podSetAssignments[0].topologyAssignment.slices[0].valuesPerLevel"
    )
