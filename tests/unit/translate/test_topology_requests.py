"""The topology requests of podsets in stored Workloads."""

from typing import Any

import pytest

from admitq.core.topology.request import SliceLayer, TopologyRequest
from admitq.core.waiting.scheduling_key import KeyRules
from admitq.translate.workloads import read_workload
from admitq_api.json_objects import with_value
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import NAMES, workload

REQUEST = ("spec", "podSets", 0, "topologyRequest")
SLICE, SIZE = "podSetSliceRequiredTopology", "podSetSliceSize"
LAYERS = "podsetSliceRequiredTopologyConstraints"


def with_request(request: Any) -> Any:
    return with_value(workload(), REQUEST, request)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, None),
        ({}, None),
        ({"podIndexLabel": "index", "subGroupIndexLabel": "group", "subGroupCount": 2}, None),
        ({"podSetGroupName": "g"}, None),
        ({"unconstrained": False}, None),
        ({"required": ""}, None),
        ({"required": "rack"}, TopologyRequest(required="rack")),
        ({"preferred": "rack"}, TopologyRequest(preferred="rack")),
        ({"unconstrained": True}, TopologyRequest(unconstrained=True)),
        ({SLICE: "rack", SIZE: 2}, TopologyRequest(slices=(SliceLayer("rack", 2),))),
        (
            {"required": "block", SLICE: "rack", SIZE: 2},
            TopologyRequest(required="block", slices=(SliceLayer("rack", 2),)),
        ),
        (
            {LAYERS: [{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]},
            TopologyRequest(slices=(SliceLayer("rack", 4), SliceLayer("host", 2))),
        ),
        # The core accepts only one of these, and the schema all of them.
        (
            {"required": "rack", "preferred": "block", "unconstrained": True},
            TopologyRequest(required="rack"),
        ),
        ({"preferred": "block", "unconstrained": True}, TopologyRequest(preferred="block")),
        (
            {LAYERS: [{"topology": "rack", "size": 4}], SLICE: "host", SIZE: 2},
            TopologyRequest(slices=(SliceLayer("rack", 4),)),
        ),
    ],
)
def test_topology_request_of_podset_is_read(stored: Any, expected: TopologyRequest | None) -> None:
    assert read_workload(with_request(stored), NAMES).pod_sets[0].topology_request == expected


@pytest.mark.parametrize(
    ("stored", "field", "remedy"),
    [
        ("rack", "", "must be an object"),
        ({"required": 1}, ".required", "must be a text"),
        ({"preferred": ["rack"]}, ".preferred", "must be a text"),
        ({"unconstrained": "true"}, ".unconstrained", "must be true or false"),
        ({SLICE: {}, SIZE: 2}, f".{SLICE}", "must be a text"),
        ({SLICE: "rack"}, f".{SIZE}", "must be a whole number"),
        ({SLICE: "rack", SIZE: "2"}, f".{SIZE}", "must be a whole number"),
        ({SLICE: "rack", SIZE: 0}, f".{SIZE}", "must be greater than 0"),
        ({LAYERS: {}}, f".{LAYERS}", "must be a list"),
        ({LAYERS: ["rack"]}, f".{LAYERS}[0]", "must be an object"),
        ({LAYERS: [{"size": 2}]}, f".{LAYERS}[0].topology", "must be set"),
        ({LAYERS: [{"topology": "rack"}]}, f".{LAYERS}[0].size", "must be a whole number"),
        (
            {LAYERS: [{"topology": "rack", "size": 2}, {"topology": "host", "size": -1}]},
            f".{LAYERS}[1].size",
            "must be greater than 0",
        ),
    ],
)
def test_e_topology_request_of_other_structure_is_malformed(stored: Any, field: str, remedy: str) -> None:
    with pytest.raises(MalformedField) as error:
        read_workload(with_request(stored), NAMES)
    assert (error.value.field, error.value.remedy) == (f"spec.podSets[0].topologyRequest{field}", remedy)


def test_workloads_with_different_topology_requests_have_different_scheduling_keys() -> None:
    requests = (None, {"required": "rack"}, {"preferred": "rack"}, {"unconstrained": True})
    read = [read_workload(with_request(request), NAMES) for request in requests]
    assert len({KeyRules().key_of(each, by_local_queue=False) for each in read}) == len(requests)
    numbered = read_workload(with_request({"podIndexLabel": "index"}), NAMES)
    assert KeyRules().key_of(numbered, by_local_queue=False) == KeyRules().key_of(
        read[0], by_local_queue=False
    )
