"""Second passes: the workloads that hold quota and need a topology assignment, and when they are evaluated.

A reservation may defer the topology assignment until admission checks are ready, or a host of the assignment
fails later. Then the workload gets a *second pass*: it keeps its quota and its flavors, and a cycle searches
only a topology assignment. After a failure, the next attempt follows after a delay that doubles (semantics,
Second pass).

This module has the timers. ``cycle.second_pass`` evaluates the workloads.
"""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from admitq.core.entries import WorkloadEntry
from admitq.core.model import SECOND, CheckState, Instant, ObjectKey, Workload
from admitq.core.settings import Placement
from admitq.core.topology.replacement import find_failed_host

FIRST_DELAY: Final = SECOND
"""Nanoseconds before the first attempt. Each failure doubles the delay."""

LONGEST_DELAY: Final = 30 * SECOND
"""The longest delay, in nanoseconds."""


def needs_second_pass(entry: WorkloadEntry, placement: Placement | None) -> bool:
    """Whether a workload holds quota and needs only a topology assignment, or another one.

    It needs one to be admitted. Once admitted, it needs another one if a host with its pods has failed.
    """
    workload = entry.workload
    checks, admission = workload.admission_checks, workload.admission
    if admission is None or entry.assumed_places is not None:
        return False
    if workload.evicted or workload.finished or not workload.active:
        return False
    if workload.admitted:
        return _has_lost_host(workload, placement)
    return (
        bool(checks)
        and all(state is CheckState.READY for _, state in checks)
        and any(part.lacks_topology_assignment for part in admission.pod_set_assignments)
    )


def _has_lost_host(workload: Workload, placement: Placement | None) -> bool:
    if placement is None or not placement.replaces_hosts or not workload.unhealthy_nodes:
        return False
    stays = workload.is_single_pod and placement.leaves_single_pods
    return not stays and find_failed_host(workload) is not None


class SecondPass(NamedTuple):
    """The instant of the next attempt for a workload, and the delay before it."""

    at: Instant
    key: ObjectKey
    delay: int


class SecondPasses:
    """The next second pass of each workload that needs one."""

    def __init__(self) -> None:
        """Begin without second passes."""
        self._by_workload: dict[ObjectKey, SecondPass] = {}
        self._by_instant: list[SecondPass] = []

    @property
    def scheduled(self) -> tuple[SecondPass, ...]:
        """All second passes, sorted."""
        return tuple(sorted(self._by_workload.values()))

    def settle(self, key: ObjectKey, now: Instant, *, needed: bool) -> None:
        """Record whether a workload needs a second pass. A scheduled second pass stays scheduled."""
        if not needed:
            self._by_workload.pop(key, None)
        elif key not in self._by_workload:
            self._schedule(SecondPass(now + FIRST_DELAY, key, FIRST_DELAY))

    def next_at(self) -> Instant | None:
        """Return the instant of the next second pass; None if there is none."""
        by_instant = self._by_instant
        # A cancelled second pass may be equal to the one that replaced it, so identity is compared.
        while by_instant and self._by_workload.get(by_instant[0].key) is not by_instant[0]:
            heapq.heappop(by_instant)
        return by_instant[0].at if by_instant else None

    def take_due(self, now: Instant) -> list[SecondPass]:
        """Remove and return the second passes that are due. The caller must reschedule those that fail."""
        due: list[SecondPass] = []
        while (at := self.next_at()) is not None and at <= now:
            due.append(heapq.heappop(self._by_instant))
        return due

    def reschedule(self, second_pass: SecondPass, now: Instant) -> None:
        """Schedule the next second pass of a workload after a failure. The delay doubles."""
        delay = min(2 * second_pass.delay, LONGEST_DELAY)
        self._schedule(SecondPass(now + delay, second_pass.key, delay))

    def put_back(self, second_pass: SecondPass) -> None:
        """Schedule a second pass again that was taken and not tried."""
        self._schedule(second_pass)

    def restore(self, second_passes: Iterable[SecondPass]) -> None:
        """Restore the second passes of a dump."""
        self._by_workload.clear()
        for second_pass in second_passes:
            self._schedule(second_pass)

    def _schedule(self, second_pass: SecondPass) -> None:
        self._by_workload[second_pass.key] = second_pass
        heapq.heappush(self._by_instant, second_pass)
