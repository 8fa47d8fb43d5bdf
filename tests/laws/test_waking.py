"""A change that lets a parked workload fit wakes it: one case for each input of a decision."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

import pytest

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LimitRangeItem,
    LocalQueue,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    ResourceQuota,
    Workload,
)
from admitq.core.state import AdmissionState
from tests.laws.waking_objects import F1, NOW, TEAM, TO_A, WAITING, Case, Observation
from tests.laws.waking_queue_cases import QUEUE_CASES
from tests.laws.waking_workload_cases import WORKLOAD_CASES

CASES: Final = (*QUEUE_CASES, *WORKLOAD_CASES)


def observed(value: Observation) -> Event:
    """Return the event that reports an object."""
    match value:
        case ClusterQueue():
            return happened.ClusterQueueChanged(value)
        case Cohort():
            return happened.CohortChanged(value)
        case LocalQueue():
            return happened.LocalQueueChanged(value)
        case ResourceFlavor():
            return happened.ResourceFlavorChanged(value)
        case AdmissionCheck():
            return happened.AdmissionCheckChanged(value)
        case Workload():
            return happened.WorkloadChanged(value)
        case _:
            return value


TO_B = LocalQueue(ObjectKey("team", "to-b"), "b")
SURROUNDINGS: tuple[Observation, ...] = (F1, TEAM, TO_A, TO_B)

NO_INPUT: Final = {
    "ClusterQueue.name": "identity",
    "ClusterQueue.uid": "identity",
    "ClusterQueue.usage_based_admission": "decides the order, and not whether a workload fits",
    "Cohort.name": "identity",
    "LocalQueue.key": "identity",
    "LocalQueue.uid": "identity",
    "LocalQueue.fair_weight": "decides the order, and not whether a workload fits",
    "LocalQueue.consumed": "decides the order, and not whether a workload fits",
    "ResourceFlavor.name": "identity",
    "AdmissionCheck.name": "identity",
    "AdmissionCheck.controller_name": "immutable; tests of activity cover the forbidden combinations",
    "Workload.key": "identity",
    "Workload.generation": "only ends the precedence of a preemptor",
    "Workload.reserved_at": "decides the order of targets, and not whether there are any",
    "Workload.evicted_at": "does not change during an eviction",
    "Workload.evicted": "decides the order of targets, and not whether there are any",
    "Workload.pod_set_updates": "decides about places for a workload that holds quota",
    "Workload.unhealthy_nodes": "decides about places for a workload that holds quota",
    "Workload.is_single_pod": "decides about places for a workload that holds quota",
    "PodSet.name": "identity",
    "PodSet.preferred_node_affinity": "orders nodes; the cases place no pods",
    "PodSet.topology_request": "the cases place no pods; the laws of ``placed_player`` cover it",
}
"""Fields that never make a workload fit when they change, with the reason."""

KINDS: Final = (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    AdmissionCheck,
    ResourceQuota,
    LimitRangeItem,
    PodSet,
    Workload,
)


def decide(state: AdmissionState, now: int) -> list[tuple[str, ObjectKey]]:
    """Return what cycles decide for workloads: ``admitted`` or ``preempts``."""
    result: list[tuple[str, ObjectKey]] = []
    for each in state.handle(happened.CyclesRequested(), now=now):
        if isinstance(each, ReserveQuota):
            result.append(("admitted", each.key))
        elif isinstance(each, Preempt):
            result.append(("preempts", each.preemptor))
    return result


def of_waiting_workload(decisions: Iterable[tuple[str, ObjectKey]]) -> list[str]:
    return [what for what, key in decisions if key == WAITING]


def name_of(case: Case) -> str:
    return f"{case.changed}-{case.note}".strip("-").replace(" ", "-")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_parked_workload_is_woken_when_changed_input_lets_it_fit(case: Case) -> None:
    state = AdmissionState(case.settings)
    for value in (*SURROUNDINGS, *case.world):
        state.handle(observed(value), now=NOW)
    assert not of_waiting_workload(decide(state, NOW)), "the workload does not wait"
    assert not decide(state, NOW), "other workloads are still decided"
    state.validate()
    if case.edit is not None:
        state.handle(observed(case.edit), now=case.now)
    expected = "preempts" if case.preempts else "admitted"
    assert expected in of_waiting_workload(decide(state, case.now)), "the workload is not woken"
    state.validate()


def test_every_field_has_waking_case_or_reason() -> None:
    inputs = {case.changed for case in CASES}
    every = {f"{kind.__name__}.{field.name}" for kind in KINDS for field in fields(kind)}
    assert every - inputs - set(NO_INPUT) == set()
    assert set(NO_INPUT) <= every - inputs
