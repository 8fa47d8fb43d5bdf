"""The operations of histories in which pods are placed: on nodes, on pods of others, and on places."""

from dataclasses import replace

from admitq.core import events as happened
from admitq.core.model import PodSetUpdate
from tests.laws.drawing import NODES, PODS_OF_OTHERS, Draw
from tests.laws.operations import OPERATIONS, Operation, leave_places_open
from tests.laws.placed_player import PlacedPlayer
from tests.laws.player import Player


def change_nodes(player: Player, draw: Draw) -> None:
    """Nodes come, or change in labels, capacity, taints or readiness."""
    for name in draw.sample(NODES, draw.randint(1, 3)):
        player.send(happened.NodeChanged(draw.node(name)))


def delete_node(player: Player, draw: Draw) -> None:
    """A node is deleted. It may be unknown already."""
    player.send(happened.NodeDeleted(draw.choice(NODES)))


def flap_node(player: Player, draw: Draw) -> None:
    """A node becomes unready and ready again several times."""
    node = draw.node(draw.choice(NODES))
    for _ in range(draw.randint(1, 5)):
        for ready in (False, True):
            player.send(happened.NodeChanged(replace(node, ready=ready)))


def change_pods_of_others(player: Player, draw: Draw) -> None:
    """Pods that belong to no workload start on nodes, move or change."""
    for key in draw.sample(PODS_OF_OTHERS, draw.randint(1, 2)):
        player.send(happened.PodOfOthersChanged(key, draw.pod_of_others()))


def end_pods_of_others(player: Player, draw: Draw) -> None:
    """Pods that belong to no workload end."""
    for key in draw.sample(PODS_OF_OTHERS, 2):
        player.send(happened.PodOfOthersDeleted(key))


def answer_topology_assignments(player: Player, draw: Draw) -> None:
    """Topology assignments of second passes are observed, or failed to be written, or are being written."""
    assert isinstance(player, PlacedPlayer), "pods are placed"
    for key in sorted(player.places.assumed):
        if draw.chance(0.7):
            player.write_places(key)
        elif draw.chance(0.5):
            uid = player.observed.workloads[key].uid
            player.send(happened.TopologyAssignmentFailed(key, uid))


def update_pods_by_check(player: Player, draw: Draw) -> None:
    """An admission check restricts the nodes of a workload that holds quota."""
    for key in player.workloads_with_quota(lambda workload: not workload.admitted):
        update = PodSetUpdate("main", draw.choice(((("rack", "r1"),), ())))
        player.observe_workload(player.observed.workloads[key], pod_set_updates=(update,))


def add_nodes(player: Player, draw: Draw) -> None:
    """Create the first nodes of a history."""
    for name in draw.some(NODES, 0.8):
        player.send(happened.NodeChanged(draw.node(name)))


def _by_name(*weighed: tuple[Operation, int]) -> dict[str, tuple[Operation, int]]:
    return {operation.__name__: (operation, weight) for operation, weight in weighed}


OPERATIONS_WITH_NODES = {
    **OPERATIONS,
    **_by_name(
        (change_nodes, 12),
        (delete_node, 3),
        (flap_node, 3),
        (change_pods_of_others, 8),
        (end_pods_of_others, 8),
        (answer_topology_assignments, 6),
        (update_pods_by_check, 2),
        (leave_places_open, 12),
    ),
}
"""The operations of histories in which pods are placed, each with its relative frequency."""
