"""Validation of the state detects damage."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.amounts import FlavorResource
from admitq.core.instructions import Preempt, PreemptionReason, Recomputation, TargetsRecomputed
from admitq.core.overlay import Overlay
from admitq.core.quota import Cell
from admitq.core.state import AdmissionState
from admitq.core.violations import InvariantViolated
from admitq.core.waiting.wait_states import (
    IN_CYCLE,
    NEEDS_KNOWN,
    TREE_EDITED,
    FirstOfStrictQueue,
    QuotaNeed,
    WaitingForQuota,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex
from admitq.core.world import World
from tests.unit.core.small_cluster import SmallCluster, key, queue

CPU = FlavorResource("default", "cpu")
FIRST, THIRD = key("first"), key("third")


@pytest.fixture
def state() -> AdmissionState:
    """Return a ClusterQueue of 3 CPUs in a cohort, with 3 workloads of 2 CPUs: one admitted, two parked."""
    cluster = SmallCluster()
    cluster.put(queue("q", 3, "org"))
    for name in ("first", "second", "third"):
        cluster.submit(name, "q", 2)
    cluster.cycles()
    return cluster.state


def _leak_usage(world: World) -> None:
    world.cohort_trees.add_usage(world.cluster_queues["q"].node, ((CPU, 1),))


def _forget_reservation(world: World) -> None:
    entry = world.workloads[FIRST]
    assert entry.held is not None
    world.reservations.ledger.count(entry.held, -1)


def _drop_from_queue(world: World) -> None:
    world.cluster_queues["q"].queue.remove(THIRD)


def _leave_in_cycle(world: World) -> None:
    world.cluster_queues["q"].queue.members[THIRD].state = IN_CYCLE


def _unindex_needs(world: World) -> None:
    world.cluster_queues["q"].node.root.wake_index.with_needs.clear()


def _index_for_any_return(world: World) -> None:
    world.cluster_queues["q"].node.root.wake_index.waiting_for_any_return["q"] = (
        world.cohort_trees.registrations["q"]
    )


def _index_for_progress(world: World) -> None:
    world.cluster_queues["q"].node.root.wake_index.waiting_for_progress["q"] = (
        world.cohort_trees.registrations["q"]
    )


def _register_in_another_tree(world: World) -> None:
    world.cohort_trees.registrations["q"].index = WakeIndex()


def _register_twice(world: World) -> None:
    node = world.cluster_queues["q"].node
    world.cohort_trees.registrations["q"] = TreeRegistration("q", node.cells, node.root.wake_index)


def _disarm_need(world: World) -> None:
    world.cohort_trees.registrations["q"].armed.clear()


def _miscount_pending(world: World) -> None:
    world.local_queues[key("q")].pending += 1


def _set_wrong_queue(world: World) -> None:
    world.workloads[FIRST].queued_in = "q"


def _clear_index(world: World) -> None:
    world.indexes.workloads_by_local_queue.clear()


def _drop_head(world: World) -> None:
    world.cluster_queues["q"].queue.end_waiting(TREE_EDITED)
    world.waiting.heads.queues.clear()


def _miscount_parked(world: World) -> None:
    world.cluster_queues["q"].queue.lanes.waiting.parked_workloads += 1


def _change_subtree_quota(world: World) -> None:
    world.cohort_trees.cohorts["org"].cells[CPU].subtree_quota += 1


def _change_height(world: World) -> None:
    world.cohort_trees.cohorts["org"].height.value = 5


def _undeclare_quota(world: World) -> None:
    world.cluster_queues["q"].node.cells[CPU].declared = False


def _keep_reservation_of_finished_workload(world: World) -> None:
    entry = world.workloads[THIRD]
    entry.held = world.workloads[FIRST].held
    entry.workload = replace(entry.workload, finished=True)
    entry.queued_in = entry.pending = None


def _detach_from_cohort(world: World) -> None:
    world.cluster_queues["q"].node.parent = None


def _wait_for_available_amount(world: World) -> None:
    lanes = world.cluster_queues["q"].queue.lanes
    (lane,) = lanes.waiting.parked
    assert isinstance(lane.state, WaitingForQuota)
    lanes.change_state(lane, NEEDS_KNOWN, replace(lane.state, needs=(QuotaNeed(CPU, 1),)))


def _keep_unused_cell(world: World) -> None:
    node = world.cluster_queues["q"].node
    node.cells[FlavorResource("default", "gpu")] = Cell(node.height)


def _drop_holder(world: World) -> None:
    world.quota_holders.remove(FIRST)


def _misorder_holders(world: World) -> None:
    preemption = Preempt(FIRST, "", PreemptionReason.IN_CLUSTER_QUEUE, THIRD, "", (), ())
    world.workloads[FIRST].preempting = preemption


def _preempt_workload_without_quota(world: World) -> None:
    preemption = Preempt(THIRD, "", PreemptionReason.IN_CLUSTER_QUEUE, FIRST, "", (), ())
    world.workloads[THIRD].preempting = preemption


def _index_as_blocking(world: World) -> None:
    world.cluster_queues["q"].node.root.wake_index.with_blocking_head["q"] = world.cohort_trees.registrations[
        "q"
    ]


def _register_as_blocking(world: World) -> None:
    world.cohort_trees.registrations["q"].set_blocking(blocks=True)


def _block_stopped_queue(world: World) -> None:
    entry = world.cluster_queues["q"]
    entry.queue.end_waiting(TREE_EDITED)
    pending = entry.queue.pop()
    assert pending is not None
    world.waiting.requeue_blocking(entry, pending, FirstOfStrictQueue(pending.position))
    entry.inactive_causes = (InactiveCause(ActiveReason.STOPPED),)


def _halt_without_unready_workload(world: World) -> None:
    world.pods.is_halted = True


def _wait_for_pods_of_pending_workload(world: World) -> None:
    world.pods.unready.add(THIRD)


def _keep_reserved_capacity_between_cycles(world: World) -> None:
    node = world.cluster_queues["q"].node
    Overlay(world, node.root).reserve_capacity(node, ((CPU, 1),))


def _keep_unreturned_instruction(world: World) -> None:
    world.outbox.recomputations.append(TargetsRecomputed("q", Recomputation.SKIPPED))


def _keep_touched_cluster_queue(world: World) -> None:
    world.outbox.touched_cluster_queues.add("q")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_leak_usage, "usage at the node of q"),
        (_forget_reservation, "ClusterQueues with reservations"),
        (_drop_from_queue, "members of q"),
        (_leave_in_cycle, "n/third is in a cycle although no cycle runs"),
        (_unindex_needs, "whether q waits for an amount: is False, should be True"),
        (_index_for_any_return, "whether q waits for any return"),
        (_index_for_progress, "whether q waits for progress"),
        (_register_in_another_tree, "index of q"),
        (_register_twice, "registration of q"),
        (_disarm_need, "q needs 2 of .*, which would not be noticed"),
        (_miscount_pending, "pending in n/q: is 3, should be 2"),
        (_set_wrong_queue, "queue of n/first: is 'q', should be None"),
        (_clear_index, "workloads by queue"),
        (_drop_head, "q has a head that no cycle would take"),
        (_miscount_parked, "workloads in parked lanes: is 3, should be 2"),
        (_change_subtree_quota, "subtree quota of org default/cpu: is 4, should be 3"),
        (_change_height, "height of org: is 5, should be 1"),
        (_undeclare_quota, "declared quotas of q"),
        (_keep_reservation_of_finished_workload, "n/third is finished and holds quota"),
        (_detach_from_cohort, "ClusterQueue q is not linked to its cohort"),
        (_wait_for_available_amount, "1 of .* is available to q, which waits for it"),
        (_keep_unused_cell, "q default/gpu is not removed although nothing uses it"),
        (_drop_holder, "holders of quota: is 0, should be 1"),
        (_misorder_holders, "leaving holders of q"),
        (_preempt_workload_without_quota, "n/third is to be preempted although it holds no quota"),
        (_index_as_blocking, "whether q waits for cycles of its tree"),
        (_register_as_blocking, "whether q is registered as blocking"),
        (_block_stopped_queue, "the head of q blocks it although the queue is not active"),
        (_halt_without_unready_workload, "admission is halted without an unready workload"),
        (_wait_for_pods_of_pending_workload, "workloads that admission waits for"),
        (_keep_reserved_capacity_between_cycles, "usage at the node of q"),
        (_keep_unreturned_instruction, "instructions were decided and not returned"),
        (_keep_touched_cluster_queue, "instructions were decided and not returned"),
    ],
)
def test_validate_detects_damage(
    state: AdmissionState, damage: Callable[[World], None], complaint: str
) -> None:
    damage(state._world)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(InvariantViolated, match=complaint):
        state.validate()
