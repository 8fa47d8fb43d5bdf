"""The manager reports each transition of a Workload once, only while it leads, and only since its start."""

from typing import Any

import pytest

from admitq.core.state import AdmissionState
from admitq.manager.manager import Manager, ManagerOptions
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.registry import Metrics
from admitq.runtime.store import Store
from tests.unit.controllers.builders import KINDS, NAMES, admitted, condition, instant, workload

PENDING = workload(condition("QuotaReserved", False, "Pending"))


class FakeRecorder:
    """Keeps the reasons of recorded events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, _regarding: Any, _type: str, reason: str, _note: str, *, at_most_every: float) -> None:
        assert at_most_every > 0
        self.reasons.append(reason)


class World:
    """A manager that does not run, and the store that it follows."""

    def __init__(self, *, leads: bool = True, reports: bool = True) -> None:
        self.leads = leads
        self.metrics = Metrics()
        self.workloads = Store(KINDS.workloads)
        nothing: Any = None
        self.events = FakeRecorder()
        recorder: Any = self.events
        manager = Manager(
            state=AdmissionState(),
            client=nothing,
            workload_resource=KINDS.workloads,
            workloads=self.workloads,
            names=NAMES,
            recorder=recorder,
            metrics=self.metrics,
            measures=ManagerMeasures(MeasureScope(self.metrics, lambda _: None)),
            clock=lambda: instant(10),
            store_answer=nothing,
            start=nothing,
            refresh=nothing,
            leading=lambda: self.leads,
            options=ManagerOptions(reports_transitions=reports),
        )
        self.workloads.subscribe(lambda change: manager.observe(KINDS.workloads, change))

    def observe(self, obj: dict[str, Any], version: int) -> None:
        metadata = {**obj["metadata"], "resourceVersion": str(version)}
        self.workloads.upsert({**obj, "metadata": metadata})

    @property
    def reservations(self) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        series = [line for line in lines if line.startswith("admitq_quota_reserved_workloads_total{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in series)


def test_a3_transition_seen_in_answer_and_watch_is_counted_once() -> None:
    world = World()
    world.observe(PENDING, 1)
    world.observe(admitted(), 2)
    world.observe(admitted(), 2)
    world.observe(admitted(condition("PodsReady", True, "Started")), 3)
    world.observe(admitted(), 2)
    assert world.reservations == 1


def test_a3_reservation_that_exists_at_start_is_not_counted() -> None:
    world = World()
    world.observe(admitted(), 2)
    world.observe(admitted(condition("PodsReady", True, "Started")), 3)
    assert world.reservations == 0


def test_changed_pending_reason_is_recorded_once_and_not_at_start() -> None:
    world = World()
    stopped = workload(condition("QuotaReserved", False, "Suspended"))
    for version, obj in ((1, PENDING), (2, stopped), (2, stopped), (3, PENDING), (4, PENDING)):
        world.observe(obj, version)
    assert world.events.reasons == ["Suspended", "Pending"]


@pytest.mark.parametrize(("leads", "reports"), [(False, True), (True, False)])
def test_changed_pending_reason_is_not_recorded_by_follower_or_if_disabled(
    leads: bool, reports: bool
) -> None:
    world = World(leads=leads, reports=reports)
    world.observe(PENDING, 1)
    world.observe(workload(condition("QuotaReserved", False, "Suspended")), 2)
    assert world.events.reasons == []


@pytest.mark.parametrize(("leads", "reports"), [(False, True), (True, False)])
def test_a3_transition_is_not_counted_by_follower_or_with_counting_disabled(
    leads: bool, reports: bool
) -> None:
    world = World(leads=leads, reports=reports)
    world.observe(PENDING, 1)
    world.observe(admitted(), 2)
    assert world.reservations == 0
    world.leads = True
    world.observe(admitted(condition("PodsReady", True, "Started")), 3)
    assert world.reservations == 0
