"""The cohort trees of some workloads: their ClusterQueues, and the workloads that wait in them."""

from collections.abc import Collection
from typing import NamedTuple

from admitq.core.cohorts import Node
from admitq.core.model import ClusterQueue, ObjectKey, Workload
from admitq.core.state import AdmissionState


def list_tree_queues(state: AdmissionState, asked: Collection[ObjectKey]) -> set[str]:
    """Return the names of all ClusterQueues in the cohort trees of workloads.

    A ClusterQueue without a cohort is a tree of its own. A workload may have no existing ClusterQueue.
    """
    world = state.queries.world
    roots: set[Node] = set()
    for key in asked:
        queue = world.cluster_queues.get(state.queries.cluster_queue_of(key) or "")
        if queue is not None:
            roots.add(queue.node.root)
    return {node.name for root in roots for node in root.cluster_queues_below()}


class WaitingWorkload(NamedTuple):
    """A workload that holds no quota, and the ClusterQueue that its LocalQueue names."""

    workload: Workload
    cluster_queue: str | None


def find_waiting(state: AdmissionState, key: ObjectKey) -> WaitingWorkload | None:
    """Return a workload that has not finished and holds no quota; None if there is none of this name."""
    entry = state.queries.world.workloads.get(key)
    if entry is None or entry.held is not None or entry.workload.finished:
        return None
    return WaitingWorkload(entry.workload, state.queries.cluster_queue_of(key))


def list_waiting(state: AdmissionState, cluster_queues: Collection[str]) -> list[WaitingWorkload]:
    """Return the workloads of ClusterQueues that have not finished and hold no quota."""
    found = (find_waiting(state, key) for key in state.queries.world.workloads)
    return [each for each in found if each is not None and each.cluster_queue in cluster_queues]


class TreeSettings(NamedTuple):
    """The ClusterQueues of cohort trees, and numbers that differ after changes of quota or shape."""

    cluster_queues: tuple[ClusterQueue, ...]
    quota_generations: tuple[int, ...]


def read_tree_settings(state: AdmissionState, cluster_queues: Collection[str]) -> TreeSettings:
    """Return the settings of the cohort trees of ClusterQueues. Those that do not exist have none."""
    world = state.queries.world
    found = [world.cluster_queues[name] for name in sorted(cluster_queues) if name in world.cluster_queues]
    return TreeSettings(
        tuple(queue.spec for queue in found), tuple(queue.node.root.quota_generation for queue in found)
    )
