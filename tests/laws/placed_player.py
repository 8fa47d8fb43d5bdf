"""Play histories in which the core assigns pods to the domains of topologies.

The reference model of cycles places no pods. So these laws do not compare decisions with the model:

=====  ======================================================================================================
law    says
=====  ======================================================================================================
T1     pods are assigned to existing leaves, and with them no leaf has more usage than its nodes can allocate
T2     each podset gets what it requests: all pods, one domain of the required level, and complete slices
R1     at rest, the core returns nothing and no cycle is due
L1     no waiting workload gets quota or places if all workloads are retried
=====  ======================================================================================================

Law D1, on restored states and on the order of events, holds as in other histories.
"""

import random
from collections import Counter

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import AssignTopology, Instruction, Preempt, ReportPending, ReserveQuota
from admitq.core.model import Admission, ObjectKey, PodSet, PodSetAssignment
from admitq.core.refusals import OverlappingTargets, WaitingForTargets
from admitq.core.settings import CoreSettings
from admitq.core.topology.domains import HOST_NAME, Node
from tests.laws.heads import local_queue_usage, record_cycles
from tests.laws.law import check_law
from tests.laws.player import Player
from tests.laws.reference.cycle import Head, Outcome
from tests.laws.reference.places import Places
from tests.laws.rest import AtRest


class PlacedPlayer(Player):
    """Plays one history with nodes. If it is *peaceful*, no ClusterQueue preempts."""

    def __init__(
        self, settings: CoreSettings, *, crowded: bool, watches_statuses: bool, peaceful: bool
    ) -> None:
        super().__init__(settings, crowded=crowded, watches_statuses=watches_statuses)
        self.peaceful = peaceful
        self.places = Places(self.observed)
        self.rest = PlacedAtRest(self)

    def send(self, event: Event) -> None:
        super().send(event)
        self.places.observe(event)

    # --- cycles -----------------------------------------------------------------------------------

    def cycle(self, draw: random.Random) -> tuple[list[Head], list[Instruction]]:
        with record_cycles(self.preemptors, self.preempted_uids) as cycles:
            instructions = self.handle(happened.CyclesRequested(1))
        heads, self.used = cycles[0] if cycles else ([], local_queue_usage(self.core))
        self.strict.check_first_workloads_take_part(heads)
        self.cycles += 1
        for head in heads:
            self.check_head(head)
        self.apply_outcome(_outcome_of(instructions), instructions, heads)
        self.check_places(instructions)
        return heads, instructions

    def check_head(self, head: Head) -> None:
        """Check that a head may be evaluated."""
        self.attempts.tried[head.key] = (self.observed.workloads[head.key].uid, dict(head.start))
        super().check_head(head)

    def check_places(self, instructions: list[Instruction]) -> None:
        """Check laws T1 and T2 for the assignments that a cycle decided."""
        placed = [each for each in instructions if isinstance(each, (ReserveQuota, AssignTopology))]
        for each in placed:
            if isinstance(each, AssignTopology):
                former = self.observed.workloads[each.key].admission
                assert former is not None, "it holds quota"
                self.places.assumed[each.key] = (former, each.admission)
        for each in placed:
            pod_sets = {pod_set.name: pod_set for pod_set in self.observed.workloads[each.key].pod_sets}
            former = self.observed.workloads[each.key].admission
            for part in self._new_parts(each.admission, former):
                self.check_capacity(each.key, part)
                self.check_request(pod_sets[part.name], part)

    @staticmethod
    def _new_parts(admission: Admission, former: Admission | None) -> list[PodSetAssignment]:
        before = () if former is None else former.pod_set_assignments
        return [each for each in admission.pod_set_assignments if each.topology and each not in before]

    def check_capacity(self, key: ObjectKey, part: PodSetAssignment) -> None:
        """Check law T1."""
        assert part.topology is not None, "it is placed"
        taken = self.places.of_pod(key, part.name)
        for flavor in {name for _, name in part.flavors}:
            if not self.places.levels_of(flavor):
                continue
            free = self.places.free(flavor)
            for leaf, _ in part.topology.domains:
                check_law(leaf in free, "T1: pods are assigned to a leaf without nodes", key, leaf)
                lacking = {resource for resource in taken if free[leaf][resource] < 0}
                check_law(not lacking, "T1: a leaf has more usage than capacity", key, leaf, free[leaf])

    def check_request(self, pod_set: PodSet, part: PodSetAssignment) -> None:
        """Check law T2."""
        assert part.topology is not None, "it is placed"
        request = pod_set.topology_request
        assigned = sum(count for _, count in part.topology.domains)
        check_law(assigned == part.count, "T2: not all pods have a domain", part)
        if request is None or not any(self.places.levels_of(name) for _, name in part.flavors):
            return  # A leader without requests has no flavor. It is placed with its workers.
        if request.required:
            used = self._by_domain(part, request.required)
            check_law(len(used) <= 1, "T2: several domains of the required level", part)
        for slices in request.slices:
            used = self._by_domain(part, slices.level)
            complete = sum(-(-count // slices.size) for count in used.values())
            check_law(complete == -(-part.count // slices.size), "T2: incomplete slices", part, used)

    def _by_domain(self, part: PodSetAssignment, level: str) -> Counter[tuple[str, ...]]:
        """Return the number of pods in each domain of a level."""
        assert part.topology is not None, "it is placed"
        flavor = next(name for _, name in part.flavors if self.places.levels_of(name))
        levels = self.places.levels_of(flavor)
        length = levels.index(level) + 1
        by_domain = Counter[tuple[str, ...]]()
        for leaf, count in part.topology.domains:
            values = leaf
            if levels[-1] == HOST_NAME:
                node = next(each for each in self.places.nodes_of(flavor) if _host_of(each) == leaf[-1])
                values = tuple(dict(node.labels)[each] for each in levels)
            by_domain[values[:length]] += count
        return by_domain

    # --- answers ----------------------------------------------------------------------------------

    def write_places(self, key: ObjectKey) -> None:
        """Observe decided topology assignments."""
        _, placed = self.places.assumed[key]
        self.observe_workload(self.observed.workloads[key], admission=placed, admitted=True)

    def settle(self, draw: random.Random) -> None:
        """Carry out all requests of the core until there are none; with preemption, for a while at most."""
        is_settled = self.answer_everything(draw)
        check_law(is_settled or not self.peaceful, "L3: decisions do not end")

    def answer_everything(self, draw: random.Random) -> bool:
        while True:
            is_settled = super().answer_everything(draw)
            if not self.places.assumed:
                return is_settled
            for key in sorted(self.places.assumed):
                self.write_places(key)


class PlacedAtRest(AtRest):
    """Checks of a state in which no cycle decides anything."""

    def __init__(self, player: PlacedPlayer) -> None:
        super().__init__(player)
        self._placed = player

    def check_rest(self, draw: random.Random) -> None:
        due = self._core.next_wakeup(self._placed.now)
        check_law(due is None or due > self._placed.now, "a cycle is due at rest", due)
        instructions = self._placed.handle(happened.CyclesRequested())
        check_law(not instructions, "R1: a cycle at rest returns instructions", instructions)
        if draw.random() < 0.8 and self._placed.peaceful:
            retried = self._core.fork()
            retried.retry_everything()
            decided = retried.handle(happened.CyclesRequested(), now=self._placed.now)
            missed = [each for each in decided if isinstance(each, ReserveQuota) and self._is_new(each)]
            check_law(not missed, "L1: a lost wake-up", missed)

    def _is_new(self, decided: ReserveQuota) -> bool:
        """Whether a workload gets quota also if nothing was reserved since its last evaluation.

        A reservation is no event that wakes workloads (semantics, Events that retry inadmissible workloads).
        But it may help a workload with several flavors: if the first one has quota and no room, the workload
        does not try the next flavor until the quota is used, too. And it may help one with several podsets:
        if the first podset gets another place, the second may fit.
        """
        name = decided.admission.cluster_queue
        groups = self._observed.cluster_queues[name].resource_groups
        workload = self._observed.workloads[decided.key]
        if len(workload.pod_sets) == 1 and all(len(group.flavors) == 1 for group in groups):
            return True
        tried = self._attempts.evaluated_in.get((name, self._placed.scheduling_key(decided.key)), 0)
        return tried > self._attempts.last_reservation_in or not tried


def _outcome_of(instructions: list[Instruction]) -> Outcome:
    """Return the decisions of a cycle in the form of the model, without assignments."""
    outcome = Outcome()
    for each in instructions:
        if isinstance(each, Preempt):
            outcome.preempted_uids.setdefault(each.preemptor, set()).add(each.uid)
        if isinstance(each, ReportPending):
            outcome.refusals[each.key] = type(each.refusal).__name__
            if isinstance(each.refusal, WaitingForTargets) or each.refusal == OverlappingTargets(
                will_fit=True
            ):
                outcome.waiting_for_victims.add(each.key)
    return outcome


def _host_of(node: Node) -> str | None:
    return dict(node.labels).get(HOST_NAME)
