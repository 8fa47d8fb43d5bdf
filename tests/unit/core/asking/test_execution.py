from typing import Any

import pytest

from admitq.core.asking import effects
from admitq.core.asking.execution import EndlessDecisionsError, Execution, run_due_cycles
from admitq.core.events import Event, NodeDeleted, ReservationFailed, WorkloadChanged
from admitq.core.instructions import Instruction, PreemptionReason, ReserveQuota
from admitq.core.model import SECOND, Instant
from admitq.core.settings import CoreSettings, Gates, Placement
from tests.unit.core.racks import Racks, racks
from tests.unit.core.small_cluster import SmallCluster, key, queue

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


# --- places in topologies -------------------------------------------------------------------------


def execute(cluster: SmallCluster) -> Execution:
    execution = Execution(cluster.state, cluster.now)
    execution.begin()
    return execution


def on_failed_host(pods: int = 2, **settings: Any) -> Racks:
    """A workload with all of its pods on host r1-a, which failed."""
    cluster = racks(settings=CoreSettings(placement=Placement(**settings)))
    cluster.submit_pods("a", pods)
    cluster.run("a")
    cluster.send(NodeDeleted("r1-a"))
    cluster.change("a", unhealthy_nodes=("r1-a",))
    return cluster


def held_hosts(cluster: SmallCluster) -> list[str]:
    admission = cluster.state.queries.world.workloads[key("a")].workload.admission
    places = () if admission is None else (part.topology for part in admission.pod_set_assignments)
    return [values[-1] for each in places if each is not None for values, _ in each.domains]


def test_pods_of_a_failed_host_get_other_places() -> None:
    cluster = on_failed_host()
    execution = execute(cluster)
    execution.now += SECOND
    execution.settle()
    assert held_hosts(cluster) == ["r1-b"]
    assert cluster.state.queries.world.workloads[key("a")].workload.unhealthy_nodes == ()


def test_places_that_are_being_written_count_as_written() -> None:
    cluster = on_failed_host()
    cluster.now += SECOND
    cluster.decide()
    execution = execute(cluster)
    assert held_hosts(cluster) == ["r1-b"]
    assert execution.is_at_rest


@pytest.mark.parametrize(("evicts", "is_held"), [(True, False), (False, True)])
def test_workload_without_another_place_is_evicted_if_a_gate_is_on(evicts: bool, is_held: bool) -> None:
    cluster = on_failed_host(evicts_unplaced=evicts)
    for name in ("r1-b", "r2-a", "r2-b"):
        cluster.send(NodeDeleted(name))
    execution = execute(cluster)
    execution.now += SECOND
    execution.settle()
    assert bool(held_hosts(cluster)) is is_held
