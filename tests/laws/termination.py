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


def preempted_in_sequence(key: ObjectKey, pairs: Collection[tuple[ObjectKey, ObjectKey]]) -> set[ObjectKey]:
    """Return a workload, the workloads that it preempted, those that these preempted, and so on."""
    reached, visited = {key}, set[ObjectKey]()
    while reached - visited:
        current = min(reached - visited)
        visited.add(current)
        reached |= {victim for preemptor, victim in pairs if preemptor == current}
    return reached


def repeated_preemptions(preemptions: Iterable[Preemption]) -> Iterator[Preemption]:
    """Yield each preemption whose preemptor preempted the same victim before and still waits."""
    seen: set[tuple[ObjectKey, ObjectKey]] = set()
    for each in preemptions:
        if (each.preemptor, each.victim) in seen:
            yield each
        seen.add((each.preemptor, each.victim))
        seen = {pair for pair in seen if pair[0] != each.victim}


class Termination:
    """Which preemptions may go on without end, or repeat a victim for one waiting workload.

    docs/internals/proof.md lists the cases with an example of each.

    Args:
        player: the player of the history.
    """

    def __init__(self, player: "Player") -> None:
        self._observed = player.observed
        self.overtaken: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors, each with a workload that was no target and reserved the free quota before them."""
        self.victim_returned: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors that lost, each with a victim that reserved quota again in that cycle."""
        self.victim_returned_first: set[tuple[ObjectKey, ObjectKey]] = set()
        """Preemptors behind the first of a StrictFIFO queue, each with a victim that reserved quota then."""
        self.lost_to_preemptor: set[ObjectKey] = set()
        """Preemptors that lost in a cycle in which another preemptor reserved."""

    def may_continue(self, last: list[Preemption]) -> bool:
        """Whether these preemptions may go on without end.

        The cases:

        - Two workloads preempt each other in turn. One of them preempts for fewer pods than it is admitted
          with, or it borrows and preempts several workloads of a ClusterQueue that is within nominal quota
          without the others.
        - In a StrictFIFO queue whose LocalQueues take turns by usage, the victim comes before the preemptor.
        - Preemptors have no precedence, and there is fair sharing; or another workload takes what a preemptor
          freed and the victim preempts that; or two victims each take what was freed for the other's
          preemptor; or a preemptor loses to reserved capacity and its victim returns.
        """
        pairs = {(each.preemptor, each.victim) for each in last}
        in_turn = {preemptor for preemptor, victim in pairs if (victim, preemptor) in pairs}
        pod_sets = [part for key in in_turn for part in self._observed.workloads[key].pod_sets]
        shrinks = any(part.min_count is not None for part in pod_sets)
        crosses = any(
            preemptor != behind and (preemptor, left) in pairs and (behind, other) in pairs
            for preemptor, other in self.overtaken
            for behind, left in self.overtaken
        )
        goes_in_circles = bool(pairs & self.victim_returned) or any(
            (preemptor, victim) in pairs and (victim, other) in pairs
            for preemptor, other in self.overtaken
            for _, victim in pairs
        )
        fair = self._observed.settings.fair_sharing is not None
        return (
            shrinks
            or self.victim_reclaims(last)
            or self.victim_comes_first_by_usage(pairs)
            or (self.preemptors_have_no_precedence and (fair or goes_in_circles or crosses))
        )

    def victim_comes_first_by_usage(self, pairs: Iterable[tuple[ObjectKey, ObjectKey]]) -> bool:
        """Whether a victim has its turn before its preemptor in the StrictFIFO queue of both."""
        cluster_queues = self._observed.cluster_queues
        return any(
            pair in self.victim_returned_first
            and (name := self.cluster_queue_of(pair[0])) is not None
            and self.share_a_queue(*pair)
            and cluster_queues[name].usage_based_admission
            for pair in pairs
        )

    def victim_reclaims(self, last: list[Preemption]) -> bool:
        """Whether one of several victims of a borrower, all of one ClusterQueue, reclaims the quota.

        The borrower preempts it again, or another workload that it had preempted does.
        """
        reclaimed = {
            (each.victim, each.preemptor)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAMATION
        }
        preempted_by_borrowers = {
            (each.preemptor, each.victim)
            for each in last
            if each.reason is PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
        }
        pairs = {(each.preemptor, each.victim) for each in last}
        return any(
            len({other for _, other in preempted_by_borrowers if self.share_a_queue(victim, other)}) > 1
            and any(
                (borrower, victim) in preempted_by_borrowers
                for borrower in preempted_in_sequence(preemptor, pairs)
            )
            for preemptor, victim in reclaimed
        )

    def share_a_queue(self, one: ObjectKey, other: ObjectKey) -> bool:
        """Whether two workloads belong to one ClusterQueue."""
        return self.cluster_queue_of(one) == self.cluster_queue_of(other)

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """Return the ClusterQueue of a workload's LocalQueue."""
        name = ObjectKey(key.namespace, self._observed.workloads[key].queue_name)
        queue = self._observed.local_queues.get(name)
        return None if queue is None else queue.cluster_queue

    def may_repeat(self, again: Preemption) -> bool:
        """Whether a workload may be preempted twice for one that waits.

        The preemptor lost the freed quota to another workload, or it was not the first of its StrictFIFO
        queue when the victim reserved again. Where preemptors come first, it can only lose to another
        preemptor.
        """
        pair = (again.preemptor, again.victim)
        if pair in self.victim_returned_first or again.preemptor in self.lost_to_preemptor:
            return True
        has_lost = any(key == again.preemptor for key, _ in self.overtaken | self.victim_returned)
        return self.preemptors_have_no_precedence and (
            has_lost or self._observed.settings.fair_sharing is not None
        )

    @property
    def preemptors_have_no_precedence(self) -> bool:
        """Whether preemptors have no precedence over other workloads."""
        return not self._observed.settings.gates.prioritize_preemptor_workloads
