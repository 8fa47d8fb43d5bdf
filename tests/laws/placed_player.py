"""Play histories in which the core assigns pods to the domains of topologies.

The reference model of cycles places no pods. So these laws do not compare decisions with the model:

=====  ======================================================================================================
law    says
=====  ======================================================================================================
T1     pods are assigned to existing leaves, and with them no leaf has more usage than its nodes can allocate
T2     each podset gets what it requests: all pods, one domain of the required level, and complete slices
T3     only pods on a failed host are moved, to no unhealthy host, into their slice and the required domain
T4     at rest, each workload with pods on a failed host has a second pass, also while admission is halted
T5     while admission is halted, no workload is evaluated except for the second passes of admitted ones
R1     at rest, the core returns nothing and no cycle is due
L1     no waiting workload gets quota or places if all workloads are retried
=====  ======================================================================================================

Law D1, on restored states and on the order of events, holds as in other histories.
"""

import random
from collections import Counter
from collections.abc import Mapping

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Instruction,
    Preempt,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.model import SECOND, ObjectKey, PodSet, PodSetAssignment, Workload
from admitq.core.refusals import OverlappingTargets, WaitingForTargets
from admitq.core.settings import CoreSettings
from admitq.core.topology.domains import HOST_NAME, Node
from tests.laws.heads import is_halted, local_queue_usage, record_cycles
from tests.laws.law import check_law
from tests.laws.player import Player
from tests.laws.reference.cycle import Head, Outcome
from tests.laws.reference.places import Leaf, Places, pods_by_host
from tests.laws.rest import AtRest


class PlacedPlayer(Player):
    """Plays one history with nodes. If it is *peaceful*, no ClusterQueue preempts."""

    def __init__(
        self, settings: CoreSettings, *, crowded: bool, watches_statuses: bool, peaceful: bool
    ) -> None:
        super().__init__(settings, crowded=crowded, watches_statuses=watches_statuses)
        self.peaceful = peaceful
        self.places = Places(self.observed)
        self.node_failures: dict[ObjectKey, str] = {}
        """Evictions for node failures without an answer: the uid by workload."""
        self.rest = PlacedAtRest(self)

    def send(self, event: Event) -> None:
        super().send(event)
        self.places.observe(event)
        self.node_failures = {
            key: uid for key, uid in self.node_failures.items() if self._may_be_evicted(key, uid)
        }

    def _may_be_evicted(self, key: ObjectKey, uid: str) -> bool:
        workload = self.observed.workloads.get(key)
        return (
            workload is not None
            and workload.uid == uid
            and workload.admission is not None
            and not (workload.evicted or workload.finished)
        )

    # --- cycles -----------------------------------------------------------------------------------

    def cycle(self, draw: random.Random) -> tuple[list[Head], list[Instruction]]:
        halted = is_halted(self.core)
        with record_cycles(self.preemptors, self.preempted_uids) as cycles:
            instructions = self.handle(happened.CyclesRequested(1))
        self.halted = is_halted(self.core)
        heads, self.used = cycles[0] if cycles else ([], local_queue_usage(self.core))
        if halted:
            self.check_nothing_but_admitted_evaluated(heads, instructions)
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

    def check_nothing_but_admitted_evaluated(
        self, heads: list[Head], instructions: list[Instruction]
    ) -> None:
        """Check law T5."""
        check_law(not heads, "T5: evaluates heads while admission is halted", heads)
        for each in instructions:
            if isinstance(each, (AssignTopology, ReportSecondPass, EvictForNodeFailures)):
                is_admitted = self.observed.workloads[each.key].admitted
                check_law(is_admitted, "T5: a second pass while admission is halted", each)

    def check_places(self, instructions: list[Instruction]) -> None:
        """Check laws T1 to T3 for the assignments that a cycle decided."""
        for each in instructions:
            if isinstance(each, EvictForNodeFailures):
                workload = self.observed.workloads[each.key]
                check_law(self.lost_host(workload), "T3: evicts without a failed host", each)
                self.node_failures[each.key] = each.uid
        placed = [each for each in instructions if isinstance(each, (ReserveQuota, AssignTopology))]
        for each in placed:
            if isinstance(each, AssignTopology):
                former = self.observed.workloads[each.key].admission
                assert former is not None, "it holds quota"
                self.places.assumed[each.key] = (former, each.admission)
        for each in placed:
            workload = self.observed.workloads[each.key]
            pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
            parts = () if workload.admission is None else workload.admission.pod_set_assignments
            former = {part.name: part for part in parts}
            for part in each.admission.pod_set_assignments:
                before = former.get(part.name)
                if part.topology is None or part == before:
                    continue
                if before is None or before.topology is None:
                    kept = self.places.kept_of(workload, part)
                    self.check_capacity(each.key, part, kept)
                    self.check_request(pod_sets[part.name], part, kept)
                else:
                    self.check_capacity(each.key, part, dict(before.topology.domains))
                    self.check_replacement(workload, pod_sets[part.name], before, part)

    def check_capacity(self, key: ObjectKey, part: PodSetAssignment, before: Mapping[Leaf, int]) -> None:
        """Check law T1, for leaves with more pods than before."""
        assert part.topology is not None, "it is placed"
        taken = self.places.of_pod(key, part.name)
        for flavor in {name for _, name in part.flavors}:
            if not self.places.levels_of(flavor):
                continue
            free = self.places.free(flavor)
            for leaf, count in part.topology.domains:
                check_law(leaf in free, "T1: pods are assigned to a leaf without nodes", key, leaf)
                if count > before.get(leaf, 0):
                    lacking = {resource for resource in taken if free[leaf][resource] < 0}
                    check_law(not lacking, "T1: a leaf has more usage than capacity", key, leaf, free[leaf])

    def lost_host(self, workload: Workload) -> str | None:
        """Return the failed host from which pods of an admitted workload must be moved next."""
        placement = self.observed.settings.placement
        assert placement is not None, "pods are placed"
        stays = workload.is_single_pod and placement.leaves_single_pods
        if not placement.replaces_hosts or stays or not workload.admitted or not workload.active:
            return None
        if workload.admission is None or workload.evicted or workload.finished:
            return None
        hosts = {host for part in workload.admission.pod_set_assignments for host, _ in pods_by_host(part)}
        return next((host for host in workload.unhealthy_nodes if host in hosts), None)

    def check_replacement(
        self, workload: Workload, pod_set: PodSet, before: PodSetAssignment, part: PodSetAssignment
    ) -> None:
        """Check law T3."""
        failed = self.lost_host(workload)
        assert before.topology is not None, "it was placed"
        assert part.topology is not None, "it is placed"
        old, new = Counter(dict(before.topology.domains)), Counter(dict(part.topology.domains))
        staying = Counter({leaf: count for leaf, count in old.items() if leaf[-1] != failed})
        added = new - staying
        check_law(failed is not None, "T3: pods are moved without a failed host", workload.key, part)
        check_law(not staying - new, "T3: other pods are moved, too", workload.key, old, new)
        check_law(added.total() == old[(failed or "",)], "T3: other pods than the lost ones", old, new)
        hosts = {leaf[-1] for leaf in added}
        check_law(not hosts & set(workload.unhealthy_nodes), "T3: an unhealthy host gets pods", old, new)
        request = pod_set.topology_request
        if request is None or pod_set.group is not None or not staying:
            return
        by_level = {
            level: (self._by_domain(part, level, staying), self._by_domain(part, level, added))
            for level in request.labels
        }
        if request.required:
            kept, found = by_level[request.required]
            check_law(
                len(kept) > 1 or found.keys() <= kept.keys(), "T3: leaves the required domain", old, new
            )
        for layer in reversed(request.slices):
            kept, found = by_level[layer.level]
            broken = {domain for domain, count in kept.items() if count % layer.size}
            if added.total() % layer.size and broken:
                check_law(
                    len(found) == 1 and found.keys() <= broken, "T3: slices are not completed", old, new
                )
                break

    def check_request(self, pod_set: PodSet, part: PodSetAssignment, kept: Counter[Leaf]) -> None:
        """Check law T2. Pods that an elastic job keeps may be in other domains than the added ones."""
        assert part.topology is not None, "it is placed"
        request = pod_set.topology_request
        pods = Counter(dict(part.topology.domains))
        check_law(pods.total() == part.count, "T2: not all pods have a domain", part)
        pods -= kept
        if request is None or not any(self.places.levels_of(name) for _, name in part.flavors):
            return  # A leader without requests has no flavor. It is placed with its workers.
        if request.required:
            used = self._by_domain(part, request.required, pods)
            check_law(len(used) <= 1, "T2: several domains of the required level", part)
        for slices in request.slices:
            used = self._by_domain(part, slices.level, pods)
            complete = sum(-(-count // slices.size) for count in used.values())
            check_law(complete == -(-pods.total() // slices.size), "T2: incomplete slices", part, used)

    def _by_domain(
        self, part: PodSetAssignment, level: str, pods: Mapping[Leaf, int]
    ) -> Counter[tuple[str, ...]]:
        """Return the number of pods in each domain of a level, of pods in leaves of a podset's topology."""
        flavor = next(name for _, name in part.flavors if self.places.levels_of(name))
        levels = self.places.levels_of(flavor)
        length = levels.index(level) + 1
        by_domain = Counter[tuple[str, ...]]()
        for leaf, count in pods.items():
            values = leaf
            if levels[-1] == HOST_NAME:
                node = next(each for each in self.places.nodes_of(flavor) if _host_of(each) == leaf[-1])
                values = tuple(dict(node.labels)[each] for each in levels)
            by_domain[values[:length]] += count
        return by_domain

    # --- answers ----------------------------------------------------------------------------------

    def write_places(self, key: ObjectKey) -> None:
        """Observe decided topology assignments. Unhealthy nodes without pods are not listed any more."""
        _, placed = self.places.assumed[key]
        workload, hosts = self.observed.workloads[key], self.places.hosts_of(key)
        unhealthy = tuple(host for host in workload.unhealthy_nodes if host in hosts)
        self.observe_workload(workload, admission=placed, admitted=True, unhealthy_nodes=unhealthy)

    def evict_for_node_failures(self, key: ObjectKey) -> None:
        """Observe the eviction of a workload with pods on failed hosts."""
        evicted_at = self.now // SECOND * SECOND
        self.observe_workload(
            self.observed.workloads[key], evicted=True, evicted_at=evicted_at, unhealthy_nodes=()
        )

    def settle(self, draw: random.Random) -> None:
        """Carry out all requests of the core until there are none; with preemption, for a while at most."""
        is_settled = self.answer_everything(draw)
        check_law(is_settled or not self.peaceful, "L3: decisions do not end")

    def answer_everything(self, draw: random.Random) -> bool:
        while True:
            is_settled = super().answer_everything(draw)
            if not (self.places.assumed or self.node_failures):
                return is_settled
            for key in sorted(self.places.assumed):
                self.write_places(key)
            for key in sorted(self.node_failures):
                self.evict_for_node_failures(key)


class PlacedAtRest(AtRest):
    """Checks of a state in which no cycle decides anything."""

    def __init__(self, player: PlacedPlayer) -> None:
        super().__init__(player)
        self._placed = player

    def check_rest(self, draw: random.Random) -> None:
        due = self._core.next_wakeup(self._placed.now)
        check_law(due is None or due > self._placed.now, "a cycle is due at rest", due)
        for key, workload in self._observed.workloads.items():
            if self._placed.lost_host(workload) is not None and key not in self._placed.places.assumed:
                is_due = due is not None and due <= self._placed.now + 30 * SECOND
                check_law(is_due, "T4: no second pass of a workload with a failed host", key, due)
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
