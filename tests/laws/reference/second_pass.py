"""Workloads that hold quota, lack places for their pods and are evaluated again (semantics, Second pass).

Without placement, every second pass fails. After n failures in a row the next pass comes
2ⁿ seconds later, at most 30.
"""

from typing import NamedTuple

from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from tests.laws.reference.observed import Observed

LONGEST = 30


def waits_for_second_pass(workload: Workload) -> bool:
    """Whether places for its pods are all that a workload waits for."""
    admission, checks = workload.admission, workload.admission_checks
    if admission is None or workload.finished or workload.evicted or not workload.active:
        return False
    return (
        bool(checks)
        and {state for _, state in checks} == {"Ready"}
        and not workload.admitted
        and any(part.lacks_topology_assignment for part in admission.pod_set_assignments)
    )


class Turn(NamedTuple):
    """When a workload is evaluated next, and how often that failed."""

    at: Instant
    key: ObjectKey
    uid: str
    failed: int


class SecondPasses:
    """The next second pass of each workload, which depends on the times of the former ones."""

    def __init__(self) -> None:
        self._turns: dict[ObjectKey, Turn] = {}

    def observe(self, observed: Observed, now: Instant) -> None:
        """Update the passes after an event."""
        lacking = {key: each.uid for key, each in observed.workloads.items() if waits_for_second_pass(each)}
        self._turns = {key: each for key, each in self._turns.items() if lacking.get(key) == each.uid}
        for key, uid in lacking.items():
            self._turns.setdefault(key, Turn(now + SECOND, key, uid, 0))

    def next_at(self) -> Instant | None:
        """Return when the first pass is due."""
        return min((each.at for each in self._turns.values()), default=None)

    def take_due(self, now: Instant) -> list[Turn]:
        """Return the passes that are due, in order. Each of them fails."""
        due = sorted(each for each in self._turns.values() if each.at <= now)
        for each in due:
            failed = each.failed + 1
            at = now + min(2**failed, LONGEST) * SECOND
            self._turns[each.key] = each._replace(at=at, failed=failed)
        return due
