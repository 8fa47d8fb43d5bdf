"""Messages of reasons why a topology has no place for pods."""

import pytest

from admitq.core.refusals import FlavorRefusal, RequestedLevelMissing, TopologyOnly
from admitq.core.topology.refusals import (
    LayerNotBelow,
    LayerNotDivisor,
    LayerShortfall,
    NodeExclusion,
    NodeObstacle,
    NoRoomInTopology,
    NoSuchLevel,
    SlicesAboveRequest,
    TwoTopologies,
)
from admitq.translate.messages import flavor_refusal_message

EXCLUDED = (
    (NodeExclusion(NodeObstacle.AFFINITY), 1),
    (NodeExclusion(NodeObstacle.NODE_SELECTOR), 2),
    (NodeExclusion(NodeObstacle.RESOURCE, "cpu"), 3),
    (NodeExclusion(NodeObstacle.TAINT, "key=value:NoSchedule"), 4),
)


WITH_EXCLUDED_NODES = (
    'topology "t" allows to fit only 4 out of 5 slice(s). Total nodes: 10; excluded: affinity: 1, '
    'nodeSelector: 2, resource "cpu": 3, taint "key=value:NoSchedule": 4'
)
LAYERS = (LayerShortfall("rack", 2, 4), LayerShortfall("host", 5, 8))
SHORT_OF_LAYERS = (
    'topology "t" doesn\'t allow to fit; 2/4 slice(s) fit on level rack; 5/8 slice(s) fit on level host. '
    "Total nodes: 9"
)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (
            NoRoomInTopology("t", 1, 0, 5, 9),
            'topology "t" doesn\'t allow to fit any of 5 pod(s). Total nodes: 9',
        ),
        (
            NoRoomInTopology("t", 2, 4, 5, 10, EXCLUDED),
            WITH_EXCLUDED_NODES,
        ),
        (
            NoRoomInTopology("t", 4, 2, 4, 9, (), LAYERS),
            SHORT_OF_LAYERS,
        ),
        (NoSuchLevel("row"), "no requested topology level: row"),
        (NoSuchLevel("row", of_slices=True), "no requested topology level for slices: row"),
        (
            SlicesAboveRequest("block", "rack"),
            "podset slice topology block is above the podset topology rack",
        ),
        (
            LayerNotBelow("block", "rack"),
            "additional slice layer topology block must be at a lower level than rack",
        ),
        (LayerNotDivisor(3, 4), "additional slice layer size 3 must evenly divide parent layer size 4"),
        (
            TwoTopologies(("a", "b")),
            "the resources of the pods were assigned flavors with different topologies: a, b",
        ),
        (TopologyOnly("f"), 'Flavor "f" supports only TopologyAwareScheduling'),
        (RequestedLevelMissing("f"), 'Flavor "f" does not contain the requested level'),
    ],
)
def test_messages(refusal: FlavorRefusal, message: str) -> None:
    assert flavor_refusal_message(refusal) == message
