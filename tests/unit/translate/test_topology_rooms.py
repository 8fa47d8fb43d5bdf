"""The room of a topology as text and as JSON values."""

from dataclasses import replace

import pytest

from admitq.core.topology.refusals import NodeExclusion, NodeObstacle
from admitq.core.topology.rooms import LevelRoom, TopologyRoom
from admitq.translate.topology_rooms import room_json, room_lines

EXCLUDED = (
    (NodeExclusion(NodeObstacle.RESOURCE, "cpu"), 2),
    (NodeExclusion(NodeObstacle.TAINT, "k=v:NoSchedule"), 1),
)
RACK = LevelRoom("rack", ("b1", "r3"), 6, 5, "cpu", EXCLUDED)
ROOM = TopologyRoom(
    "racks",
    unit=1,
    wanted=8,
    has_leader=False,
    fits=False,
    requested="rack",
    may_spread=False,
    is_unconstrained=False,
    total=12,
    levels=(LevelRoom("block", ("b1",), 8, 9), RACK),
)
SPREADING = replace(ROOM, may_spread=True, levels=())


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        (replace(ROOM, fits=True), ["topology racks: needs 8 pod(s) in one domain of level rack: fits"]),
        (
            ROOM,
            [
                "topology racks: needs 8 pod(s) in one domain of level rack",
                "  level block: b1 holds 8 of 8 pod(s)",
                (
                    "  level rack: b1/r3 holds 6 of 8 pod(s), limited by cpu; "
                    'no pod fits on 3 of its 5 node(s): resource "cpu": 2, taint "k=v:NoSchedule": 1'
                ),
            ],
        ),
        (
            replace(SPREADING, unit=4, has_leader=True),
            [
                (
                    "topology racks: needs 8 slice(s) of 4 pods beside the leader "
                    "preferably in one domain of level rack"
                ),
                "  all domains together hold 12 of 8 slice(s)",
            ],
        ),
        (
            replace(SPREADING, total=7, is_unconstrained=True, levels=(LevelRoom("rack", (), 0),)),
            [
                "topology racks: needs 8 pod(s) in any domains",
                "  level rack: has no nodes",
                "  all domains together hold 7 of 8 pod(s)",
            ],
        ),
    ],
    ids=["fits", "required", "preferred slices with a leader", "unconstrained"],
)
def test_lines_say_what_each_level_holds(room: TopologyRoom, lines: list[str]) -> None:
    assert list(room_lines(room)) == lines


def test_json_has_all_values() -> None:
    assert room_json(replace(ROOM, levels=(RACK,))) == {
        "name": "racks",
        "fits": False,
        "podsPerSlice": 1,
        "wanted": 8,
        "hasLeader": False,
        "requestedLevel": "rack",
        "required": True,
        "inAllDomains": 12,
        "levels": [
            {
                "level": "rack",
                "domain": ["b1", "r3"],
                "fitting": 6,
                "nodes": 5,
                "limitedBy": "cpu",
                "excludedNodes": [
                    {"reason": "resource", "name": "cpu", "nodes": 2},
                    {"reason": "taint", "name": "k=v:NoSchedule", "nodes": 1},
                ],
            }
        ],
    }
    assert room_json(replace(SPREADING, is_unconstrained=True))["requestedLevel"] is None
