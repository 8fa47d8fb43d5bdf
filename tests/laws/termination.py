"""Law L3: preemptions come to an end."""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from admitq.core.instructions import (
    PreemptionReason,
)
from admitq.core.model import ObjectKey
from tests.laws.reference.cycle import Preemption

if TYPE_CHECKING:
    from tests.laws.player import Player


def led_to(key: ObjectKey, pairs: Collection[tuple[ObjectKey, ObjectKey]]) -> set[ObjectKey]:
    """Who was preempted by a workload, by those whom it preempted, and so on; and itself."""
    found, looked_at = {key}, set[ObjectKey]()
    while found - looked_at:
        one = min(found - looked_at)
        looked_at.add(one)
        found |= {victim for preemptor, victim in pairs if preemptor == one}
    return found


def left_twice(preemptions: Iterable[Preemption]) -> Iterator[Preemption]:
    """Preemptions of those who were to leave for the same before, and since then it waited."""
    told: set[tuple[ObjectKey, ObjectKey]] = set()
    for each in preemptions:
        if (each.preemptor, each.victim) in told:
            yield each
        told.add((each.preemptor, each.victim))
        told = {pair for pair in told if pair[0] != each.victim}


class Termination:
    """Whether preemptions may go on, and whether a workload may be preempted twice for one that waits.

    Args:
        player: the history.
    """

    def __init__(self, player: "Player") -> None:
        self._observed = player.observed
        self.overtaken: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors, each with one who was not to leave for it and took what was free before its turn."""
        self.came_back: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors that were beaten, each with one who was to leave for it and took quota then."""
        self.back_first: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors not tried, behind the first of a StrictFIFO queue, each with one who took back then."""
        self.lost_to_preemptor: set[ObjectKey] = set()
        """Preemptors that lost in a cycle in which another preemptor reserved."""

    def need_not_end(self, last: list[Preemption]) -> bool:
        """Whether these preemptions may go on for ever, as docs/internals/proof.md tells.

        Two preempt each other in turn, one of them for fewer pods than it gets then, or one of them by
        borrowing, from several of a ClusterQueue that is within nominal quota without the others. Or, where
        preemptors do not come first: there is fair sharing; somebody else takes what was freed for a
        preemptor, and is preempted by its victim; the victims of two take what was freed for the preemptor
        of the other; or a preemptor is beaten by what is kept for another, and its victim back. Or, in a
        StrictFIFO queue whose LocalQueues take turns, the victim's has its turn before the preemptor's.
        """
        pairs = {(each.preemptor, each.victim) for each in last}
        in_turn = {preemptor for preemptor, victim in pairs if (victim, preemptor) in pairs}
        pod_sets = [part for key in in_turn for part in self._observed.workloads[key].pod_sets]
        shrinks = any(part.min_count is not None for part in pod_sets)
        crossed = any(
            preemptor != behind and (preemptor, left) in pairs and (behind, other) in pairs
            for preemptor, other in self.overtaken
            for behind, left in self.overtaken
        )
        circles = bool(pairs & self.came_back) or any(
            (preemptor, victim) in pairs and (victim, other) in pairs
            for preemptor, other in self.overtaken
            for _, victim in pairs
        )
        fair = self._observed.settings.fair_sharing is not None
        return (
            shrinks
            or self.one_takes_back(last)
            or self.takes_its_turn_back(pairs)
            or (self.in_line and (fair or circles or crossed))
        )

    def takes_its_turn_back(self, pairs: Iterable[tuple[ObjectKey, ObjectKey]]) -> bool:
        """Whether a victim has its turn before its preemptor in the StrictFIFO queue of both."""
        cluster_queues = self._observed.cluster_queues
        return any(
            pair in self.back_first
            and (name := self.cluster_queue_of(pair[0])) is not None
            and self.share_a_queue(*pair)
            and cluster_queues[name].usage_based_admission
            for pair in pairs
        )

    def one_takes_back(self, last: list[Preemption]) -> bool:
        """Whether of several of a ClusterQueue who leave for those that borrow, one takes that back.

        It is preempted again by whom it preempted, or by one for whom that one was in the way.
        """
        reclaimed = {
            (each.victim, each.preemptor)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAMATION
        }
        made_room = {
            (each.preemptor, each.victim)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        }
        pairs = {(each.preemptor, each.victim) for each in last}
        return any(
            len({other for _, other in made_room if self.share_a_queue(victim, other)}) > 1
            and any((borrower, victim) in made_room for borrower in led_to(preemptor, pairs))
            for preemptor, victim in reclaimed
        )

    def share_a_queue(self, one: ObjectKey, other: ObjectKey) -> bool:
        """Whether two workloads are of one ClusterQueue."""
        return self.cluster_queue_of(one) == self.cluster_queue_of(other)

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """The ClusterQueue that a workload's LocalQueue leads to."""
        name = ObjectKey(key.namespace, self._observed.workloads[key].queue_name)
        queue = self._observed.local_queues.get(name)
        return None if queue is None else queue.cluster_queue

    def may_leave_twice(self, again: Preemption) -> bool:
        """Whether somebody may have to leave twice for one who waits.

        It was beaten over what was freed, or not tried, behind the first of a StrictFIFO queue, when that was
        taken back. Where preemptors come first, only another preemptor can beat one.
        """
        if (again.preemptor, again.victim) in self.back_first or again.preemptor in self.lost_to_preemptor:
            return True
        beaten = any(key == again.preemptor for key, _ in self.overtaken | self.came_back)
        return self.in_line and (beaten or self._observed.settings.fair_sharing is not None)

    @property
    def in_line(self) -> bool:
        """Whether preemptors wait for their turn like everybody else."""
        return not self._observed.settings.gates.prioritize_preemptor_workloads
