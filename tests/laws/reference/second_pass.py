"""Who holds quota, lacks places for its pods, and is tried once more (semantics, Second pass).

There are no places yet, so that every second pass fails. After n of them in a row the next comes 2ⁿ seconds
later, at most 30.
"""

from typing import NamedTuple

from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from tests.laws.reference.observed import Observed

LONGEST = 30


def lacks_places(workload: Workload) -> bool:
    """Whether places for its pods are all that a workload waits for."""
    admission, checks = workload.admission, workload.admission_checks
    if admission is None or workload.finished or workload.evicted or not workload.active:
        return False
    return (
        bool(checks)
        and {state for _, state in checks} == {"Ready"}
        and not workload.admitted
        and any(part.is_place_open for part in admission.pod_set_assignments)
    )


class Turn(NamedTuple):
    """When a workload is to be tried next, and how often that failed."""

    at: Instant
    key: ObjectKey
    uid: str
    failed: int


class SecondPasses:
    """Everybody's next turn, which depends on when the former were."""

    def __init__(self) -> None:
        self._turns: dict[ObjectKey, Turn] = {}

    def observe(self, observed: Observed, now: Instant) -> None:
        """Something happened."""
        lacking = {key: each.uid for key, each in observed.workloads.items() if lacks_places(each)}
        self._turns = {key: each for key, each in self._turns.items() if lacking.get(key) == each.uid}
        for key, uid in lacking.items():
            self._turns.setdefault(key, Turn(now + SECOND, key, uid, 0))

    def next_at(self) -> Instant | None:
        """When the first is due."""
        return min((each.at for each in self._turns.values()), default=None)

    def take_due(self, now: Instant) -> list[Turn]:
        """Those that are due, in order; each of them fails."""
        due = sorted(each for each in self._turns.values() if each.at <= now)
        for each in due:
            failed = each.failed + 1
            at = now + min(2**failed, LONGEST) * SECOND
            self._turns[each.key] = each._replace(at=at, failed=failed)
        return due
