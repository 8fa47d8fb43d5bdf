"""The decisions that are due anyway. A question asks about the state after them.

Some states observe only, and never ran a cycle: none of their workloads has a verdict. Others are asked
between an event and the next cycle.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from admitq.core.asking.cohort_tree import list_tree_queues
from admitq.core.asking.execution import run_due_cycles
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.core.world import DriverOptions

_ROUNDS: Final = 1_000
"""The number of rounds of cycles beside one for each workload. Each round decides on another workload."""


def assume_due_decisions(
    state: AdmissionState, now: Instant, asked: Collection[ObjectKey] | None = None
) -> None:
    """Run the cycles that are due. Reservations count as assumed, and preempted workloads have not left yet.

    Args:
        state: a disposable state. It runs cycles from now on, whatever its options were.
        now: the present instant, in nanoseconds since the Unix epoch.
        asked: workloads; only their cohort trees run cycles. None: all cohort trees do.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    world = state.queries.world
    world.driver = DriverOptions(writes_statuses=False, runs_cycles=True)
    # With blockAdmission, unready pods of any tree halt admission.
    if asked is not None and not world.settings.block_admission:
        pause_other_trees(state, asked)
    run_due_cycles(state, now, lambda _: None, rounds=_ROUNDS + len(world.workloads))
    state.instructions()


def pause_other_trees(state: AdmissionState, asked: Collection[ObjectKey]) -> set[str]:
    """Exclude all cohort trees from cycles but those of some workloads.

    Returns:
        The names of the ClusterQueues that are not excluded.
    """
    names = list_tree_queues(state, asked)
    world = state.queries.world
    paused = world.waiting.heads.paused
    others = world.cluster_queues.keys() - names
    state.pause(replace(paused, cluster_queues=paused.cluster_queues | others))
    return names
