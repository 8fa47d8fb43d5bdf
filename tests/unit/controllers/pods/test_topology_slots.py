"""Which pod gets which domain of a topology assignment (semantics, Ungater)."""

from typing import Any

import pytest

from admitq.controllers.pods.topology_slots import (
    InvalidIndexOffset,
    PlacedPod,
    PodSetSlots,
    PodState,
    RankRule,
    place_pods,
    read_pod_state,
    read_slots,
)
from admitq_api.json_objects import with_value
from admitq_api.topology_assignments import encode
from tests.unit.controllers.builders import NAMES, admitted
from tests.unit.controllers.pods.placed_pods import (
    GROUP_INDEX,
    HOST,
    INDEX,
    OF_GROUP,
    hosts,
    placed_workload,
    pod,
)

INDEXED = RankRule(INDEX, 3)


def slots(assigned: str, rule: RankRule | None = INDEXED) -> PodSetSlots:
    domains = hosts(assigned)
    return PodSetSlots("main", sum(count for _, count in domains), (HOST,), tuple(domains), rule)


def states(pods: list[dict[str, Any]]) -> list[PodState]:
    return [state for pod in pods if (state := read_pod_state(pod, NAMES)) is not None]


def where(placed: list[PlacedPod]) -> str:
    """Return the placed pods with their hosts, in the order of names."""
    found = sorted((item.state.pod["metadata"]["name"], item.node_selector[HOST]) for item in placed)
    return " ".join(f"{name}:{host}" for name, host in found)


OFFSET = {NAMES.pod_index_offset: "1"}

BY_RANK: list[Any] = [
    ("rank is slot", "a:2 b:1", INDEXED, [pod("z", 0), pod("y", 1), pod("x", 2)], "x:b y:a z:a"),
    ("some pods are missing", "a:1 b:2", INDEXED, [pod("z", 2), pod("y", 0)], "y:a z:b"),
    ("ungated pod in its slot", "a:1 b:2", INDEXED, [pod("z", 0, on="a"), pod("y", 2)], "y:b"),
    ("offset of the rule", "a:1 b:2", RankRule(INDEX, 4, 1), [pod("z", 1), pod("y", 3)], "y:b z:a"),
    ("offset of the pods", "a:1 b:2", INDEXED, [pod("z", 1, annotations=OFFSET), pod("y", 3)], "y:b z:a"),
    (
        "groups of two",
        "a:2 b:2",
        RankRule(INDEX, 4, 0, GROUP_INDEX, 2),
        [pod("z", 0, group=1), pod("y", 1, group=0), pod("x", 1, group=1)],
        "x:b y:a z:b",
    ),
]
IN_ORDER: list[Any] = [
    ("no label numbers the pods", "a:2 b:1", None, [pod("z", at=1), pod("y", at=2), pod("x", at=3)]),
    ("pod without index", "a:2 b:1", INDEXED, [pod("z", at=0), pod("y", at=1), pod("x", at=2)]),
    ("index that is no number", "a:2 b:1", INDEXED, [pod("z", "1st"), pod("y", at=1), pod("x", at=2)]),
    ("negative index", "a:2 b:1", INDEXED, [pod("z", -1), pod("y", at=1), pod("x", at=2)]),
    ("equal indexes", "a:2 b:1", INDEXED, [pod("z", 0), pod("y", 0, at=1), pod("x", 1)]),
    ("index beyond the podset", "a:2 b:1", INDEXED, [pod("z", 0), pod("y", 1), pod("x", 3)]),
    (
        "index beyond its group",
        "a:2 b:2",
        RankRule(INDEX, 4, 0, GROUP_INDEX, 2),
        [pod("z", 0, group=0), pod("y", 1, group=0), pod("x", 2, group=0)],
    ),
    (
        "groups without number",
        "a:2 b:2",
        RankRule(INDEX, 4, 0, GROUP_INDEX),
        [pod("z", 0, group=0), pod("y", 1, group=0, at=1), pod("x", 2, group=0, at=2)],
    ),
    (
        "index below the offset",
        "a:2 b:1",
        RankRule(INDEX, 4, 1),
        [pod("z", 0), pod("y", 1), pod("x", 2)],
    ),
]


@pytest.mark.parametrize(
    ("assigned", "rule", "pods", "expected"),
    [case[1:] for case in BY_RANK],
    ids=[case[0] for case in BY_RANK],
)
def test_pod_with_rank_gets_domain_of_its_slot(
    assigned: str, rule: RankRule, pods: list[dict[str, Any]], expected: str
) -> None:
    assert where(place_pods(slots(assigned, rule), states(pods))) == expected


@pytest.mark.parametrize(
    ("assigned", "rule", "pods"), [case[1:] for case in IN_ORDER], ids=[case[0] for case in IN_ORDER]
)
def test_pods_fill_domains_in_order_if_ranks_are_incomplete(
    assigned: str, rule: RankRule | None, pods: list[dict[str, Any]]
) -> None:
    assert where(place_pods(slots(assigned, rule), states(pods))) == "x:b y:a z:a"


@pytest.mark.parametrize(
    ("assigned", "pods", "expected"),
    [
        # The ungated pod is not in the slot of its index.
        ("a:1 b:2", [pod("z", 0, on="b"), pod("y", 1), pod("x", 2)], "x:b y:a"),
        # Pods that another program placed elsewhere take no room.
        ("a:1 b:1", [pod("z", on="other"), pod("y", at=1), pod("x", at=2)], "x:b y:a"),
        # More pods than room.
        ("a:1 b:1", [pod("z", at=0), pod("y", at=1), pod("x", at=2)], "y:b z:a"),
        ("a:1", [pod("z", on="a"), pod("y", on="a"), pod("x")], ""),
        # A replacement waits until its predecessor has ended.
        ("a:1 b:1", [pod("z", 1, on="b", deleted=True), pod("y", 0, on="a"), pod("x", 1)], ""),
        ("a:1 b:1", [pod("z", 1, on="b", phase="Failed"), pod("y", 0, on="a"), pod("x", 1)], "x:b"),
        # Pods of an earlier assignment, and pods that were deleted at their gate, count for nothing.
        ("a:1 b:1", [pod("z", 0, on="old", deleted=True), pod("y", 0), pod("x", 1)], "x:b y:a"),
        ("a:1 b:1", [pod("z", 0, deleted=True), pod("y", 0), pod("x", 1)], "x:b y:a"),
        # The admission has no room for a pod that the gate of elastic jobs holds.
        ("a:1", [pod("z", gates=[NAMES.elastic_gate]), pod("y", at=1)], "y:a"),
        ("a:1", [], ""),
    ],
)
def test_pods_take_the_room_that_others_left(
    assigned: str, pods: list[dict[str, Any]], expected: str
) -> None:
    assert where(place_pods(slots(assigned), states(pods))) == expected


@pytest.mark.parametrize("index", [0, None])
def test_pod_of_unhealthy_node_stays_gated(index: int | None) -> None:
    pods = [pod("z", index), pod("y", None if index is None else 1, at=1)]
    assert where(place_pods(slots("a:1 b:1"), states(pods), {"a"})) == "y:b"


def test_invalid_offset_of_indexes_is_an_error() -> None:
    invalid = pod("z", 0, annotations={NAMES.pod_index_offset: "one"})
    with pytest.raises(InvalidIndexOffset, match="pod z: its annotation pod-index-offset"):
        place_pods(slots("a:1"), states([invalid]))


def test_node_selector_has_all_stored_levels() -> None:
    racks = PodSetSlots("main", 1, ("block", "rack"), ((("b1", "r1"), 1),))
    [placed] = place_pods(racks, states([pod("z")]))
    assert placed.node_selector == {"block": "b1", "rack": "r1"}
    assert not placed.is_excluded
    [elsewhere] = states([with_value(pod("z"), ("spec", "nodeSelector", "rack"), "r2")])
    assert PlacedPod(elsewhere, ("rack",), ("r1",)).is_excluded


# --- the podsets of a Workload --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "parts", "expected"),
    [
        ({}, {}, None),
        ({"podIndexLabel": INDEX}, {}, RankRule(INDEX, 3)),
        (
            {"podIndexLabel": INDEX, "subGroupIndexLabel": GROUP_INDEX, "subGroupCount": 3},
            {},
            RankRule(INDEX, 3, 0, GROUP_INDEX, 3),
        ),
        ({}, OF_GROUP, RankRule(NAMES.pod_group_pod_index, 3)),
    ],
)
def test_rank_rule_follows_request_of_podset(
    request_: dict[str, Any], parts: dict[str, Any], expected: RankRule | None
) -> None:
    workload = placed_workload("a:2 b:1", request_, **parts)
    assert read_slots(workload, NAMES) == [slots("a:2 b:1", expected)]


@pytest.mark.parametrize(
    ("counts", "offsets"),
    [
        ({"leader": 1, "worker": 3}, {"leader": (0, 1), "worker": (1, 4)}),
        ({"worker": 3, "leader": 1}, {"leader": (0, 1), "worker": (1, 4)}),
        ({"leader": 1, "worker": 1}, {"leader": (0, 1), "worker": (1, 2)}),
    ],
)
def test_larger_podset_of_group_is_numbered_after_the_smaller(
    counts: dict[str, int], offsets: dict[str, tuple[int, int]]
) -> None:
    request = {"podIndexLabel": INDEX, "podSetGroupName": "g"}
    assigned = [
        {"name": name, "count": count, "topologyAssignment": encode((HOST,), hosts(f"a:{count}"))}
        for name, count in counts.items()
    ]
    workload = admitted(
        admission={"clusterQueue": "cq", "podSetAssignments": assigned},
        spec={
            "podSets": [{"name": name, "count": n, "topologyRequest": request} for name, n in counts.items()]
        },
    )
    rules = {item.name: item.rule for item in read_slots(workload, NAMES)}
    assert {name: (rule.offset, rule.end) for name, rule in rules.items() if rule} == offsets
