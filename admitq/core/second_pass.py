"""Who holds quota and takes part in a cycle once more, because it was left open where its pods go.

A reservation may leave that open until admission checks have found out more. Once they are all ready, the
workload has a *second pass*: it keeps its quota and its flavors, and only places are looked for. As long as
there are none it is tried again, after longer and longer (semantics, Second pass).

Here is who needs one and whose turn it is; what comes of it is decided in cycles (``cycle.second_pass``).
"""

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from admitq.core.model import SECOND, AdmissionCheckState, Instant, ObjectKey, Workload

FIRST_DELAY: Final = SECOND
"""Nanoseconds between the need for a second pass and the first attempt; each that fails doubles it."""

LONGEST_DELAY: Final = 30 * SECOND
"""Nanoseconds beyond which it does not grow."""


def needs_second_pass(workload: Workload) -> bool:
    """Whether a workload holds quota and lacks nothing but places for its pods."""
    checks, admission = workload.admission_checks, workload.admission
    if not checks or admission is None:
        return False
    is_over = workload.admitted or workload.evicted or workload.finished or not workload.active
    return (
        not is_over
        and all(state is AdmissionCheckState.READY for _, state in checks)
        and any(part.is_place_open for part in admission.pod_set_assignments)
    )


class SecondPass(NamedTuple):
    """When a workload is to be tried, and after what delay."""

    at: Instant
    key: ObjectKey
    delay: int


class SecondPasses:
    """Those who need a second pass, each with its next turn."""

    def __init__(self) -> None:
        """Nobody needs one."""
        self._turns: dict[ObjectKey, SecondPass] = {}
        self._in_time: list[SecondPass] = []

    @property
    def turns(self) -> tuple[SecondPass, ...]:
        """The next turn of everybody."""
        return tuple(sorted(self._turns.values()))

    def settle(self, key: ObjectKey, now: Instant, *, needed: bool) -> None:
        """Take note of whether a workload needs one; who had a turn already keeps it."""
        if not needed:
            self._turns.pop(key, None)
        elif key not in self._turns:
            self._give(SecondPass(now + FIRST_DELAY, key, FIRST_DELAY))

    def next_at(self) -> Instant | None:
        """When it is somebody's turn; None if nobody needs one."""
        turns = self._in_time
        # A turn that was given up may be equal to the one given since, at the same instant.
        while turns and self._turns.get(turns[0].key) is not turns[0]:
            heapq.heappop(turns)
        return turns[0].at if turns else None

    def take_due(self, now: Instant) -> list[SecondPass]:
        """Those whose turn has come; whoever fails is to be put off."""
        due: list[SecondPass] = []
        while (at := self.next_at()) is not None and at <= now:
            due.append(heapq.heappop(self._in_time))
        return due

    def put_off(self, turn: SecondPass, now: Instant) -> None:
        """A workload failed when it was its turn: it gets another, later than the last time."""
        delay = min(2 * turn.delay, LONGEST_DELAY)
        self._give(SecondPass(now + delay, turn.key, delay))

    def restore(self, turns: Iterable[SecondPass]) -> None:
        """Put turns in place as a dump had them."""
        self._turns.clear()
        for turn in turns:
            self._give(turn)

    def _give(self, turn: SecondPass) -> None:
        self._turns[turn.key] = turn
        heapq.heappush(self._in_time, turn)
