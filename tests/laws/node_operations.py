"""The operations of histories in which pods are placed: on nodes, on pods of others, and on places."""

from dataclasses import replace

from admitq.core import events as happened
from admitq.core.model import PodSetUpdate, Taint
from tests.laws.drawing import NODES, PODS_OF_OTHERS, Draw
from tests.laws.operations import OPERATIONS, Operation, leave_places_open
from tests.laws.placed_player import PlacedPlayer
from tests.laws.player import Player

BROKEN = Taint("broken", "", "NoSchedule")


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


def fail_hosts(player: Player, draw: Draw) -> None:
    """Hosts of admitted workloads fail. Their nodes are deleted or become unready, or have a taint."""
    assert isinstance(player, PlacedPlayer), "pods are placed"
    for key in player.workloads_with_quota(lambda workload: workload.admitted and not workload.evicted):
        hosts = draw.mostly(player.places.hosts_of(key), list(NODES))
        if not hosts or draw.chance(0.6):
            continue
        failed = draw.sample(hosts, min(len(hosts), draw.often(1, 2)))
        for host in failed:
            node = draw.node(host)
            for event in draw.choice(
                (
                    [happened.NodeDeleted(host)],
                    [happened.NodeChanged(replace(node, ready=False))],
                    [happened.NodeChanged(replace(node, taints=(BROKEN,)))],
                    [],
                )
            ):
                player.send(event)
        workload = player.observed.workloads[key]
        unhealthy = dict.fromkeys((*workload.unhealthy_nodes, *failed))
        player.observe_workload(workload, unhealthy_nodes=tuple(unhealthy), pods_ready=draw.chance(0.5))


def recover_hosts(player: Player, draw: Draw) -> None:
    """Failed hosts are healthy again, some of them with the present labels and capacity of their nodes."""
    for key in player.workloads_with_quota(lambda workload: bool(workload.unhealthy_nodes)):
        workload = player.observed.workloads[key]
        for host in workload.unhealthy_nodes:
            if draw.chance(0.5):
                player.send(happened.NodeChanged(draw.node(host)))
        if draw.chance(0.5):
            player.observe_workload(workload, unhealthy_nodes=tuple(draw.some(workload.unhealthy_nodes)))


def answer_node_failures(player: Player, draw: Draw) -> None:
    """Evictions for node failures are observed, or could not be written, so that they are decided again."""
    assert isinstance(player, PlacedPlayer), "pods are placed"
    for key in sorted(player.node_failures):
        if draw.chance(0.6):
            player.evict_for_node_failures(key)
        elif draw.chance(0.5):
            del player.node_failures[key]


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
        (fail_hosts, 8),
        (recover_hosts, 3),
        (answer_node_failures, 8),
        (leave_places_open, 12),
    ),
}
"""The operations of histories in which pods are placed, each with its relative frequency."""
