import pytest

from admitq.core.asking import effects
from admitq.core.asking.execution import EndlessDecisionsError, run_due_cycles
from admitq.core.events import Event, ReservationFailed, WorkloadChanged
from admitq.core.instructions import Instruction, PreemptionReason, ReserveQuota
from admitq.core.model import SECOND, Instant
from admitq.core.settings import Gates
from tests.unit.core.small_cluster import SmallCluster, queue

BORROWING = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
RECLAIM = PreemptionReason.IN_COHORT_RECLAMATION


@pytest.mark.parametrize(
    ("gate", "reason", "expected"),
    [
        (False, BORROWING, 7 * SECOND + SECOND // 1000),
        (False, RECLAIM, 1),
        (True, BORROWING, 1),
    ],
)
def test_only_victim_of_borrower_moves_to_the_back_if_a_gate_is_off(
    gate: bool, reason: PreemptionReason, expected: Instant
) -> None:
    cluster = SmallCluster()
    cluster.submit("victim", "a", queued_at=1)
    gates = Gates(priority_sorting_within_cohort=gate)
    queued_at = effects.queued_at_after_preemption(cluster.workloads["victim"], reason, 7 * SECOND + 3, gates)
    assert queued_at == expected


def test_decisions_that_never_end_are_an_error() -> None:
    """A driver that discards each reservation lets the core decide the same again."""
    cluster = SmallCluster()
    cluster.put(queue("a", 1))
    cluster.submit("first", "a")

    state = cluster.state
    carried_out: list[Instruction] = []

    def discard(instruction: Instruction) -> None:
        assert isinstance(instruction, ReserveQuota)
        carried_out.append(instruction)
        state.observe(ReservationFailed(instruction.key, instruction.uid), now=cluster.now)
        state.observe(changed(cluster, instruction.key.name), now=cluster.now)

    with pytest.raises(EndlessDecisionsError, match="after 3 rounds"):
        run_due_cycles(state, cluster.now, discard, rounds=3)
    assert len(carried_out) == 3


def changed(cluster: SmallCluster, name: str) -> Event:
    """Return the observation of a changed workload, which ends its backoff."""
    workload = cluster.workloads[name]
    cluster.workloads[name] = effects.revise_workload(workload, generation=workload.generation + 1)
    return WorkloadChanged(cluster.workloads[name])
