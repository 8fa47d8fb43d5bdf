"""Law L1: when nothing is left to do, no workload waits that would be admitted or could preempt."""

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
    OverlappingVictims,
    TakenInThisCycle,
    WaitingForVictims,
)
from admitq.core.state import AdmissionState
from tests.laws.law import LawBroken, decisions, law
from tests.laws.reference.cycle import Cycle, Head, Outcome
from tests.laws.reference.tree import queue_node

if TYPE_CHECKING:
    from tests.laws.player import Player

STANDING = (WaitingForVictims, OverlappingVictims, TakenInThisCycle)


class AtRest:
    """The checks of a state in which no cycle decides anything.

    Args:
        player: the history.
    """

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._observed = player.observed
        self._attempts = player.attempts

    @property
    def _core(self) -> AdmissionState:
        """The core; an operation may replace it."""
        return self._player.core

    def check_rest(self, draw: random.Random) -> None:
        """Nobody was forgotten, and what is settled is quiet.

        While admission waits for pods nobody is tried, so that nobody can be forgotten.
        """
        due = self._core.next_wakeup(self._player.now)
        law(due is None or due > self._player.now, "a settled world has something to do", due)
        second = None if self._player.halted else self._player.second_passes.next_at()
        law(second is None or (due is not None and due <= second), "nobody wakes for a second pass", second)
        if not self._player.halted and not self._observed.settings.requeue_batch_period:
            self._player.strict.check_strict_heads_saw_all()
        quiet = self._player.tell(happened.CyclesRequested())
        law(not quiet, "R1: a settled world is not quiet", quiet)
        if draw.random() < 0.3:
            again = self._core.fork()
            again.retry_everything()
            found = decisions(again.handle(happened.CyclesRequested(), now=self._player.now))
            law(not any(map(self.is_new, found)), "L1: a lost wake-up", found)
        if draw.random() < 0.3 and not self._player.halted:
            self.check_nobody_is_forgotten()

    def check_nobody_is_forgotten(self) -> None:
        """By the model nobody who waits would be admitted, or could preempt, if he was tried again."""
        observed = self._observed
        tree = observed.tree()
        for name in sorted(observed.cluster_queues):
            if not observed.is_active(name) or tree.path(queue_node(name)) is None:
                continue
            shapes: set[object] = set()
            for key in self.to_be_tried(name):
                shape = self._player.shape(key)
                if shape not in shapes:
                    shapes.add(shape)
                    self.check_not_forgotten(name, key)

    def is_new(self, decided: Instruction) -> bool:
        """Whether a decision of those who waited should have been taken before.

        Whoever found nobody to preempt is not tried again because others took quota, although those may be
        preempted (semantics, Events that retry inadmissible workloads). Whoever will fit once the victims of
        others have left waits for that; beside those who were tried in vain before, and keep capacity for the
        cycle in which they are tried again, it would look for victims of its own; so would whoever waits for
        victims. Who waits for victims that were found behind the first flavor might find others from that on.
        """
        if isinstance(decided, ReserveQuota):
            return self.is_let_in(decided.key)
        assert isinstance(decided, Preempt), decided
        if self._core.queries.parked_refusal(decided.preemptor) == OverlappingVictims(will_fit=True):
            return False
        if self.found_victims_further(decided.preemptor):
            return False
        name = self._observed.waits_in(decided.preemptor)
        if name is not None and not self.finds_more_victims(name, decided.preemptor):
            return False
        return (
            self._attempts.tried_in.get((name, self._player.shape(decided.preemptor)), 0)
            > self._attempts.taken_in
        )

    def finds_more_victims(self, name: str, key: ObjectKey) -> bool:
        """Whether who waits for victims finds more also where of others only those are tried who stand.

        What one who is parked keeps, for the one cycle in which he is tried in vain, may be what it lacks.
        """
        if not isinstance(self._core.queries.parked_refusal(key), WaitingForVictims):
            return True
        return self.tried_beside(name, key, self.keepers(name, standing=True)).preempts_for(key)

    def is_let_in(self, key: ObjectKey) -> bool:
        """Whether it is let in also where of others only those are tried who stand, if it stands itself.

        What one who is parked keeps, for the one cycle in which he is tried in vain, may beat it, so that it
        goes on with another flavor, or may beat who beats it.
        """
        name = self._observed.waits_in(key)
        if name is not None and not self.is_let_in_without_takers(name, key):
            return False
        if name is None or not isinstance(self._core.queries.parked_refusal(key), STANDING):
            return True
        return self.tried_beside(name, key, self.keepers(name, standing=True)).lets_in(key)

    def is_let_in_without_takers(self, name: str, key: ObjectKey) -> bool:
        """Whether it would be let in also if nobody had taken quota since it was tried.

        Less quota may mean more for one who looks at another flavor then: there is nobody left to preempt for
        the first, or the first of his podsets leaves that to the second. But taking is not among the events
        that wake (semantics, Events that retry inadmissible workloads).
        """
        tried = self._attempts.tried_in.get((name, self._player.shape(key)))
        if tried is None or tried > self._attempts.taken_in:
            return True
        workloads = self._observed.workloads
        takers = {each for each in workloads if self._attempts.took_in.get(workloads[each].uid, 0) >= tried}
        return (
            Cycle(self._observed.without(takers), self._player.now, self._player.used)
            .run([self.head(name, key)])
            .lets_in(key)
        )

    def found_victims_further(self, key: ObjectKey) -> bool:
        """Whether it waits for victims that were found behind the first flavor."""
        return key in self._attempts.began_further and isinstance(
            self._core.queries.parked_refusal(key), WaitingForVictims
        )

    def to_be_tried(self, name: str) -> list[ObjectKey]:
        """Who would be tried in a ClusterQueue if everything was tried again.

        Whoever waits for victims, or was beaten by one who does, is tried until that is over, and nobody
        behind him (semantics, Requeue after a cycle: immediate). A StrictFIFO queue is held up by its first
        also if its namespace is not selected, where what was found is that its checks have failed.
        """
        waiting = self._player.in_order(name)
        if self._observed.is_strict(name):
            return [] if self.is_held_up_by_checks(name) else waiting[:1]
        standing = [key for key in waiting if isinstance(self._core.queries.parked_refusal(key), STANDING)]
        return standing[:1] or waiting

    def is_held_up_by_checks(self, name: str) -> bool:
        """Whether somebody was refused for his checks whose namespace is not selected."""
        return any(
            self._core.queries.parked_refusal(key) == AdmissionChecksFailed()
            for key in self._observed.workloads
            if self._observed.waits_in(key) == name and not self._observed.is_selected(key, name)
        )

    def check_not_forgotten(self, name: str, key: ObjectKey) -> None:
        """Not even beside those who keep capacity in every cycle, nor beside all who would be tried again.

        Whoever waits for victims that were found behind the first flavor might find others from that on; but
        it is woken when its own have left. Nothing wakes whoever is let in only because others took quota.
        """
        tried = self._attempts.tried_in.get((name, self._player.shape(key)), 0)
        seeks = not self.found_victims_further(key) and tried > self._attempts.taken_in
        for others in ([], self.keepers(name, standing=True), self.keepers(name)):
            outcome = self.tried_beside(name, key, others)
            if not outcome.lets_in(key) and not (seeks and outcome.preempts_for(key)):
                return
        if not self.is_let_in_without_takers(name, key):
            return
        raise LawBroken(f"L1: {key} waits in {name} for nothing")

    def tried_beside(self, name: str, key: ObjectKey, others: Iterable[Head]) -> Outcome:
        """What a cycle decides by the model that takes a workload and these."""
        return Cycle(self._observed, self._player.now, self._player.used).run([self.head(name, key), *others])

    def head(self, name: str, key: ObjectKey) -> Head:
        """A head whose scan starts anew."""
        workload = self._observed.workloads[key]
        is_preemptor = self._player.preemptors.get(name) == (workload.uid, workload.generation)
        return Head(name, key, {}, is_preemptor, self._player.displaced.get(key, ()))

    def keepers(self, name: str, *, standing: bool = False) -> list[Head]:
        """The first of other ClusterQueues, or only those who stand."""
        firsts = [
            self.head(other, keys[0])
            for other in sorted(self._observed.cluster_queues)
            if other != name and self._observed.is_active(other) and (keys := self.to_be_tried(other))
        ]
        if not standing:
            return firsts
        return [each for each in firsts if self.is_standing(each.queue, each.key)]

    def is_standing(self, name: str, key: ObjectKey) -> bool:
        """Whether the first of a ClusterQueue takes part in every cycle of its tree."""
        return self._observed.is_strict(name) or isinstance(self._core.queries.parked_refusal(key), STANDING)
