"""Law L1: when the core is at rest, no pending workload would be admitted or could preempt."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from admitq.core import events as happened
from admitq.core.instructions import (
    Instruction,
    Preempt,
    ReserveQuota,
)
from admitq.core.model import ObjectKey
from admitq.core.refusals import (
    AdmissionChecksFailed,
    OverlappingTargets,
    QuotaTakenInCycle,
    WaitingForTargets,
)
from admitq.core.state import AdmissionState
from tests.laws.law import LawBroken, check_law, select_decisions
from tests.laws.reference.cycle import Cycle, Head, Outcome
from tests.laws.reference.tree import queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player

BLOCKING = (WaitingForTargets, OverlappingTargets, QuotaTakenInCycle)


class AtRest:
    """Checks of a state in which no cycle decides anything.

    Args:
        player: the player of the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self._attempts = player.attempts

    @property
    def _core(self) -> AdmissionState:
        """The core. An operation may replace it."""
        return self._player.core

    def check_rest(self, draw: random.Random) -> None:
        """Check that the core asks for nothing, and that it missed no workload.

        While admission waits for ready pods, no workload is evaluated, so that none can be missed.
        """
        due = self._core.next_wakeup(self._player.now)
        check_law(
            due is None or due > self._player.now, "a cycle is due although nothing is left to decide", due
        )
        next_second_pass = None if self._player.halted else self._player.second_passes.next_at()
        check_law(
            next_second_pass is None or (due is not None and due <= next_second_pass),
            "no cycle is due for a second pass",
            next_second_pass,
        )
        if not self._player.halted and not self._observed.settings.requeue_batch_period:
            self._player.strict.check_first_workloads_evaluated()
        instructions = self._player.handle(happened.CyclesRequested())
        check_law(not instructions, "R1: a cycle at rest returns instructions", instructions)
        if draw.random() < 0.3:
            retried = self._core.fork()
            retried.retry_everything()
            decisions = select_decisions(retried.handle(happened.CyclesRequested(), now=self._player.now))
            check_law(not self.new_decisions(decisions), "L1: a lost wake-up", decisions)
        if draw.random() < 0.3 and not self._player.halted:
            self.check_nothing_is_missed()

    def check_nothing_is_missed(self) -> None:
        """Check by the model that no pending workload would get anything if it were retried."""
        observed = self._observed
        tree = observed.tree()
        for name in sorted(observed.cluster_queues):
            if not observed.is_active(name) or tree.path(queue_node(name)) is None:
                continue
            evaluated_keys: set[object] = set()
            for key in self.retried_workloads(name):
                scheduling_key = self._player.scheduling_key(key)
                if scheduling_key not in evaluated_keys:
                    evaluated_keys.add(scheduling_key)
                    self.check_not_missed(name, key)

    def new_decisions(self, decisions: Iterable[Instruction]) -> list[Instruction]:
        """Return the decisions of a retry of all workloads that the core should have made before.

        A blocking head may get quota in the retry alone. The workloads behind it, which the core rightly
        does not evaluate, may then get quota, too. These decisions are not new.
        """
        new: list[Instruction] = []
        freed_queues: set[str] = set()
        for decided in decisions:
            assert isinstance(decided, (ReserveQuota, Preempt)), decided
            key = decided.key if isinstance(decided, ReserveQuota) else decided.preemptor
            name = self._observed.waits_in(key)
            if name in freed_queues and not isinstance(self._core.queries.last_refusal(key), BLOCKING):
                continue
            if self.is_new(decided):
                new.append(decided)
            elif name is not None and isinstance(self._core.queries.last_refusal(key), BLOCKING):
                freed_queues.add(name)
        return new

    def is_new(self, decided: Instruction) -> bool:
        """Whether a retry of all workloads decided something that the core should have decided before.

        These decisions are not new:

        - A workload without targets found some now, because other workloads reserved quota that it may
          preempt. A reservation wakes nothing (semantics, Events that retry inadmissible workloads).
        - A workload that will fit once the targets of others left looks for targets of its own, because
          capacity is reserved for a parked workload that takes part in this one cycle. The same holds for a
          workload that waits for preemption.
        - A workload that waits for targets in a later flavor finds targets in an earlier one.
        """
        if isinstance(decided, ReserveQuota):
            return self.would_be_admitted(decided.key)
        assert isinstance(decided, Preempt), decided
        if self._core.queries.last_refusal(decided.preemptor) == OverlappingTargets(will_fit=True):
            return False
        if self.found_targets_in_later_flavor(decided.preemptor):
            return False
        name = self._observed.waits_in(decided.preemptor)
        if name is not None and not self.finds_more_targets(name, decided.preemptor):
            return False
        return (
            self._attempts.evaluated_in.get((name, self._player.scheduling_key(decided.preemptor)), 0)
            > self._attempts.last_reservation_in
        )

    def finds_more_targets(self, name: str, key: ObjectKey) -> bool:
        """Whether a workload that waits for preemption finds more targets also without the parked heads.

        Capacity reserved for a parked workload, in the one cycle in which it is retried, may be what it
        lacks.
        """
        if not isinstance(self._core.queries.last_refusal(key), WaitingForTargets):
            return True
        return self.evaluate_with(name, key, self.heads_of_other_queues(name, blocking=True)).preempts_for(
            key
        )

    def would_be_admitted(self, key: ObjectKey) -> bool:
        """Whether a blocking workload would be admitted also without the parked heads.

        Capacity reserved for a parked workload, in the one cycle in which it is retried, may make this
        workload lose and go on with another flavor. Or it may make the head lose that wins over this
        workload.
        """
        name = self._observed.waits_in(key)
        if name is not None and not self.would_be_admitted_without_later_reservations(name, key):
            return False
        if name is None or not isinstance(self._core.queries.last_refusal(key), BLOCKING):
            return True
        return self.evaluate_with(name, key, self.heads_of_other_queues(name, blocking=True)).admits(key)

    def would_be_admitted_without_later_reservations(self, name: str, key: ObjectKey) -> bool:
        """Whether it would be admitted also if no quota had been reserved since its last evaluation.

        Less free quota may help a workload that evaluates another flavor then: no targets are left in the
        first flavor, or the first of its podsets leaves that flavor to the second. But a reservation is no
        event that wakes workloads (semantics, Events that retry inadmissible workloads).
        """
        tried = self._attempts.evaluated_in.get((name, self._player.scheduling_key(key)))
        if tried is None or tried > self._attempts.last_reservation_in:
            return True
        workloads = self._observed.workloads
        takers = {
            each for each in workloads if self._attempts.reserved_in.get(workloads[each].uid, 0) >= tried
        }
        return (
            Cycle(self._observed.without(takers), self._player.now, self._player.used)
            .run([self.head(name, key)])
            .admits(key)
        )

    def found_targets_in_later_flavor(self, key: ObjectKey) -> bool:
        """Whether it waits for targets that it found in a later flavor than the first."""
        return key in self._attempts.began_in_later_flavor and isinstance(
            self._core.queries.last_refusal(key), WaitingForTargets
        )

    def retried_workloads(self, name: str) -> list[ObjectKey]:
        """Return the workloads of a ClusterQueue that a retry of everything would evaluate.

        A head that waits for preemption, or that lost to one, stays the only head until that ends (semantics,
        Requeue after a cycle: immediate). The first workload of a StrictFIFO queue blocks the queue also
        while its namespace is not selected, if its last refusal was AdmissionChecksFailed.
        """
        waiting = self._player.candidates_in_order(name)
        if self._observed.is_strict(name):
            return [] if self.is_blocked_by_failed_checks(name) else waiting[:1]
        blocking = [key for key in waiting if isinstance(self._core.queries.last_refusal(key), BLOCKING)]
        return blocking[:1] or waiting

    def is_blocked_by_failed_checks(self, name: str) -> bool:
        """Whether a workload of a namespace that is not selected was refused for its admission checks."""
        return any(
            self._core.queries.last_refusal(key) == AdmissionChecksFailed()
            for key in self._observed.workloads
            if self._observed.waits_in(key) == name and not self._observed.is_selected(key, name)
        )

    def check_not_missed(self, name: str, key: ObjectKey) -> None:
        """Check that a workload gets nothing alone, beside blocking heads, or beside all retried heads.

        A workload that waits for targets in a later flavor might find targets in an earlier one; it is woken
        when its own targets have left. Nothing wakes a workload that would be admitted only because others
        reserved quota.
        """
        tried = self._attempts.evaluated_in.get((name, self._player.scheduling_key(key)), 0)
        seeks = not self.found_targets_in_later_flavor(key) and tried > self._attempts.last_reservation_in
        for others in ([], self.heads_of_other_queues(name, blocking=True), self.heads_of_other_queues(name)):
            outcome = self.evaluate_with(name, key, others)
            if not outcome.admits(key) and not (seeks and outcome.preempts_for(key)):
                return
        if not self.would_be_admitted_without_later_reservations(name, key):
            return
        raise LawBroken(f"L1: {key} waits in {name} although it would be admitted or could preempt")

    def evaluate_with(self, name: str, key: ObjectKey, others: Iterable[Head]) -> Outcome:
        """Return what the model decides in a cycle with a workload and other heads."""
        return Cycle(self._observed, self._player.now, self._player.used).run([self.head(name, key), *others])

    def head(self, name: str, key: ObjectKey) -> Head:
        """Return a workload as a head with a scan of flavors that begins with the first."""
        workload = self._observed.workloads[key]
        is_preemptor = self._player.preemptors.get(name) == (workload.uid, workload.generation)
        return Head(name, key, {}, is_preemptor, self._player.preempted_uids.get(key, ()))

    def heads_of_other_queues(self, name: str, *, blocking: bool = False) -> list[Head]:
        """Return the heads of other ClusterQueues; with ``blocking`` those that take part in every cycle."""
        firsts = [
            self.head(other, keys[0])
            for other in sorted(self._observed.cluster_queues)
            if other != name and self._observed.is_active(other) and (keys := self.retried_workloads(other))
        ]
        if not blocking:
            return firsts
        return [each for each in firsts if self.is_blocking(each.queue, each.key)]

    def is_blocking(self, name: str, key: ObjectKey) -> bool:
        """Whether the head of a ClusterQueue takes part in every cycle of its tree."""
        return self._observed.is_strict(name) or isinstance(self._core.queries.last_refusal(key), BLOCKING)
