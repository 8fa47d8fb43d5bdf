"""What one cycle does with its heads (semantics, Cycle): nominate all, then process one after the other."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import PreemptionReason
from admitq.core.model import Instant, ObjectKey, Workload
from tests.laws.reference.assignment import Assignment, Mode, Pins, Prospect, Scan, Search
from tests.laws.reference.fair_sharing import Contender, Fair, next_of
from tests.laws.reference.observed import Holder, Observed, beyond
from tests.laws.reference.preemption import Classical, Question, Used, Victim
from tests.laws.reference.requests import Demand, requests
from tests.laws.reference.tree import Node, queue_node

MOST_ATTEMPTS = 64
"""After so many a scan of flavors ends."""


class Head(NamedTuple):
    """The first of a ClusterQueue, and where its scans of flavors go on."""

    queue: str
    key: ObjectKey
    start: Mapping[Scan, int]
    is_preemptor: bool = False
    displaced: Collection[str] = ()
    """Uids of those who were to leave for it since it began to wait."""
    attempts: int = 1
    """Which attempt of its scan of flavors this is."""


class Preemption(NamedTuple):
    """A workload that is told to stop, and for whom."""

    victim: ObjectKey
    preemptor: ObjectKey
    reason: PreemptionReason


@dataclass
class Outcome:
    """What a cycle decided."""

    reservations: list[tuple[ObjectKey, Assignment]] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    refusals: dict[ObjectKey, str] = field(default_factory=dict)
    """Names of refusals, by workload."""
    tried: dict[ObjectKey, dict[Scan, int]] = field(default_factory=dict)
    waiting_for_victims: set[ObjectKey] = field(default_factory=set)
    displaced: dict[ObjectKey, set[str]] = field(default_factory=dict)
    """Uids of those who are to leave, by preemptor."""

    def lets_in(self, key: ObjectKey) -> bool:
        """Whether a workload gets quota."""
        return any(each == key for each, _ in self.reservations)

    def preempts_for(self, key: ObjectKey) -> bool:
        """Whether somebody is told to leave for a workload."""
        return any(each.preemptor == key for each in self.preemptions)


@dataclass
class Entry:
    """A head in its cycle."""

    head: Head
    workload: Workload
    assignment: Assignment = field(default_factory=lambda: Assignment(mode=Mode.NO_FIT))
    targets: list[Victim] = field(default_factory=list)
    refusal: str | None = None
    deferred: bool = False
    original: Holder | None = None
    """Whose quota it takes over (semantics, Elastic jobs)."""
    held_up: bool = False
    """Whether it leaves quota to one for whom it was to leave, and who looks at other flavors next."""

    @property
    def usage(self) -> Mapping[FlavorResource, int]:
        """What it would take: of a replacement, what it takes beyond its original."""
        usage = self.assignment.usage
        return usage if self.original is None else beyond(usage, self.original.usage)


class Cycle:
    """One cycle. ``tree`` is what the cycle reckons with; ``held`` what is really held."""

    def __init__(
        self, observed: Observed, now: Instant, used: Mapping[ObjectKey, Used] | None = None
    ) -> None:
        self.observed = observed
        self.now = now
        self.used = used
        self.settings = observed.settings
        self.tree = observed.tree()
        self.held = observed.tree()
        self.victims: dict[ObjectKey, Holder] = {}
        self.gone: tuple[ObjectKey, ...] = ()
        """Victims so far, while they are off the tree to resolve an overlap."""
        self.admitted_now = False
        """Whether the cycle admitted somebody, whose pods cannot be ready yet."""
        self.outcome = Outcome()

    def run(self, heads: Iterable[Head]) -> Outcome:
        """Decide over the heads."""
        entries = [self.nominate(head) for head in sorted(heads, key=lambda head: head.queue)]
        self.outcome.tried = {
            entry.head.key: entry.assignment.tried for entry in entries if entry.refusal is None
        }
        for entry in self._in_order(entries):
            refusal = entry.refusal or self._process(entry)
            if entry.held_up or self._looks_further(entry):
                for other in entries:
                    if self._is_to_leave_for(other, entry) and other.refusal is None:
                        other.held_up = other.assignment.mode is not Mode.NO_FIT
            if refusal is not None:
                self.outcome.refusals[entry.head.key] = refusal
            if refusal == "PodsNotReady":
                break
        return self.outcome

    # --- nominate ---------------------------------------------------------------------------------

    def nominate(self, head: Head) -> Entry:
        """Refuse a head, or find flavors and victims for it."""
        workload = self.observed.workloads[head.key]
        refusal = self._inadmissible(workload, head.queue)
        if refusal is not None:
            return Entry(head, workload, refusal=refusal)
        original = self.observed.original(head.key, head.queue)
        demands = requests(self.observed, workload).demands
        if original is None:
            return Entry(head, workload, *self._assign(head, workload, demands))
        found = self._attempt_for_original(head, workload, demands, original)
        return Entry(head, workload, *found, original=original)

    def _inadmissible(self, workload: Workload, queue: str) -> str | None:
        """Why a workload gets nothing in a ClusterQueue, whatever quota there is."""
        observed, checks = self.observed, workload.admission_checks
        if queue not in observed.cluster_queues:
            return "ClusterQueueNotFound"
        refusals = {
            "AdmissionChecksFailed": any(state in ("Retry", "Rejected") for _, state in checks),
            "ClusterQueueInactive": not observed.is_active(queue),
            "ClusterQueueNotFound": self.tree.path(queue_node(queue)) is None,
            "NamespaceMismatch": not observed.is_selected(workload.key, queue),
            "InvalidResources": not requests(observed, workload).sound,
        }
        return next((name for name, holds in refusals.items() if holds), None)

    def second_pass(self, key: ObjectKey) -> str:
        """Why no places are found for one that holds quota: if nothing else is in the way, there are none."""
        workload = self.observed.workloads[key]
        assert workload.admission is not None, "it holds quota"
        return self._inadmissible(workload, workload.admission.cluster_queue) or "NoFlavorFits"

    def _attempt(
        self,
        head: Head,
        workload: Workload,
        demands: tuple[Demand, ...],
        start: Mapping[Scan, int],
        only: Pins | None = None,
    ) -> tuple[Assignment, list[Victim]]:
        """Flavors for these pods, and victims where it takes them."""
        search = Search(
            self.observed.cluster_queues[head.queue],
            self.tree,
            self.observed.flavors,
            self.settings,
            lambda pair, amount: self._foresee(head, workload, pair, amount),
        )
        assignment = search.assign(demands, start, only)
        if assignment.mode in (Mode.FIT, Mode.NO_FIT):
            return assignment, []
        return assignment, self._targets(head, workload, assignment.usage, assignment.contested)

    def _attempt_for_original(
        self,
        head: Head,
        workload: Workload,
        demands: tuple[Demand, ...],
        original: Holder,
        only: Pins | None = None,
    ) -> tuple[Assignment, list[Victim]]:
        """Of the flavors that the original has, as if that was gone; nobody preempts his own original.

        There is no partial admission, and no other flavor is tried in another cycle.
        """
        gone, self.gone = self.gone, (*self.gone, original.key)
        with self._without([original]):
            start = {} if only is not None else head.start
            assignment, targets = self._attempt(head, workload, demands, start, only or original.flavors)
        self.gone = gone
        assignment.tried = {}
        return assignment, targets

    def _assign(
        self, head: Head, workload: Workload, demands: tuple[Demand, ...]
    ) -> tuple[Assignment, list[Victim]]:
        """Flavors and victims, with as many pods as possible."""

        def suffices(result: tuple[Assignment, list[Victim]]) -> bool:
            return result[0].mode is Mode.FIT or bool(result[1])

        whole = self._attempt(head, workload, demands, head.start)
        spare = [self._spare(demand) for demand in demands]
        if suffices(whole) or not sum(spare) or not self.settings.gates.partial_admission:
            return whole

        def reduced(by: int) -> tuple[Demand, ...]:
            return tuple(
                demand.with_count(demand.count - each * by // sum(spare))
                for demand, each in zip(demands, spare, strict=True)
            )

        least, enough = 0, sum(spare) + 1
        best = whole
        while least < enough:
            middle = (least + enough) // 2
            result = self._attempt(head, workload, reduced(middle), head.start)
            if suffices(result):
                best, enough = result, middle
            else:
                least = middle + 1
        return best

    @staticmethod
    def _spare(demand: Demand) -> int:
        """How many of a podset's pods may be left out."""
        least = demand.pod_set.min_count
        return 0 if least is None else max(0, demand.count - least)

    def _foresee(self, head: Head, workload: Workload, pair: FlavorResource, amount: int) -> Prospect:
        """What preemption could do for one (flavor, resource)."""
        targets = self._targets(head, workload, {pair: amount}, {pair})
        with self._without(target.holder for target in targets):
            level = self.tree.level(head.queue, pair, amount).level
        if not targets:
            return Prospect(Mode.NO_CANDIDATES, level)
        own = any(target.holder.queue == head.queue for target in targets)
        return Prospect(Mode.PREEMPT if own else Mode.RECLAIM, level)

    def _targets(
        self,
        head: Head,
        workload: Workload,
        usage: Mapping[FlavorResource, int],
        contested: Collection[FlavorResource],
    ) -> list[Victim]:
        question = Question(
            self.observed, self.tree, head.queue, workload, usage, contested, self.gone, self.used
        )
        search = Classical(question) if self.settings.fair_sharing is None else Fair(question)
        return search.victims()

    # --- order ------------------------------------------------------------------------------------

    def _in_order(self, entries: list[Entry]) -> Iterator[Entry]:
        if self.settings.fair_sharing is None:
            left = sorted(entries, key=self._classical_order)
            while left:
                entry = self._not_displaced(left)[0]
                left.remove(entry)
                yield entry
            return
        yield from (entry for entry in entries if entry.refusal is not None)
        trees: dict[Node, list[Entry]] = {}
        for entry in entries:
            if entry.refusal is None:
                # Any tree may be first: it is that of the first head.
                trees.setdefault(self._root(entry), []).append(entry)
        for left in trees.values():
            while left:
                contenders = [(self._contender(entry), entry) for entry in self._not_displaced(left)]
                _, entry = next_of(self.tree, self.settings.gates, contenders)
                left.remove(entry)
                yield entry

    def _not_displaced(self, entries: list[Entry]) -> list[Entry]:
        """Those who were not to leave for another of their tree that may get something."""
        return [
            entry
            for entry in entries
            if entry.refusal is not None
            or not any(
                self._is_to_leave_for(entry, other)
                for other in entries
                if self._looks_further(other)
                or (other.refusal is None and other.assignment.mode is not Mode.NO_FIT)
            )
        ]

    def _is_to_leave_for(self, entry: Entry, other: Entry) -> bool:
        """Whether the one was to leave for the other, of the same tree."""
        return entry.workload.uid in other.head.displaced and self._root(entry) == self._root(other)

    @staticmethod
    def _looks_further(entry: Entry) -> bool:
        """Whether it found nothing, and will look at other flavors in the next cycle."""
        found_nothing = entry.refusal is None and entry.assignment.mode is Mode.NO_FIT
        return found_nothing and bool(entry.assignment.tried) and entry.head.attempts < MOST_ATTEMPTS

    def _root(self, entry: Entry) -> Node:
        return self.tree.root(queue_node(entry.head.queue))

    def _classical_order(self, entry: Entry) -> tuple[bool, int, int, int, str]:
        gates, workload = self.settings.gates, entry.workload
        return (
            gates.prioritize_preemptor_workloads and not entry.head.is_preemptor,
            0 if entry.refusal is not None else entry.assignment.level,
            -workload.priority if gates.priority_sorting_within_cohort else 0,
            workload.queued_at,
            workload.uid,
        )

    @staticmethod
    def _contender(entry: Entry) -> Contender:
        usage = entry.usage if entry.assignment.mode is not Mode.NO_FIT else {}
        return Contender(entry.head.queue, entry.workload, usage, entry.head.is_preemptor)

    # --- process ----------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> str | None:
        """Why the entry gets nothing; None if it does."""
        if entry.held_up:
            return "TakenInThisCycle"
        if entry.assignment.mode is not Mode.NO_FIT and self._lost_its_original(entry):
            return "TakenInThisCycle"
        if self._overlaps(entry) and self.settings.gates.recompute_assignment_upon_preemption_targets_overlap:
            self._assign_again(entry)
        mode, usage = entry.assignment.mode, entry.usage
        if mode is Mode.NO_FIT:
            return "NoFlavorFits"
        preempts = mode is not Mode.FIT
        if preempts and not entry.targets:
            self._keep_capacity(entry)
            return "NobodyToPreempt"
        if preempts and entry.workload.has_closed_preemption_gate:
            return "PreemptionGated"
        if entry.deferred:
            self.tree.add(entry.head.queue, usage)
            self.outcome.waiting_for_victims.add(entry.head.key)
            return "OverlappingVictims"
        if self._overlaps(entry):
            return "OverlappingVictims"
        with self._without([*self.victims.values(), *(target.holder for target in entry.targets)]):
            fits = self.tree.fits(entry.head.queue, usage)
        if not fits or (not preempts and not self.held.fits(entry.head.queue, usage)):
            return "TakenInThisCycle"
        if preempts:
            self._preempt(entry)
            return "WaitingForVictims"
        if self.settings.block_admission and (self.admitted_now or self.observed.waits_for_pods()):
            return "PodsNotReady"
        self._take(entry)
        self.outcome.reservations.append((entry.head.key, entry.assignment))
        flavors = {flavor for some in entry.assignment.flavors.values() for flavor in some.values()}
        outstanding = self.observed.outstanding_checks(entry.head.key, entry.head.queue, flavors)
        if not outstanding and not entry.workload.pods_ready:
            self.admitted_now = True
        return None

    def _take(self, entry: Entry) -> None:
        """Count with a reservation: nothing is counted twice that one takes over from another."""
        head, usage = entry.head, entry.assignment.usage
        former = self.observed.former(head.key, head.queue)
        heir = self.observed.heir_to_be(head.key, head.queue, self.now)
        for tree in (self.tree, self.held):
            tree.add(head.queue, usage if former is None else beyond(usage, former.usage))
            if heir is not None:
                tree.remove(head.queue, heir.usage)
                tree.add(head.queue, beyond(heir.usage, usage))

    def _lost_its_original(self, entry: Entry) -> bool:
        """Whether it is preempted for another in this cycle."""
        told = {each.victim for each in self.outcome.preemptions}
        return entry.original is not None and entry.original.key in told

    def _overlaps(self, entry: Entry) -> bool:
        return any(target.holder.key in self.victims for target in entry.targets)

    def _assign_again(self, entry: Entry) -> None:
        """Once more, with the victims so far gone, among the flavors that were nominated, if that will do."""
        nominated = {
            (pod_set, resource): flavor
            for pod_set, flavors in entry.assignment.flavors.items()
            for resource, flavor in flavors.items()
        }
        demands = tuple(
            demand.with_count(entry.assignment.counts[demand.pod_set.name])
            for demand in requests(self.observed, entry.workload).demands
        )
        with self._without(self.victims.values()):
            self.gone = tuple(self.victims)
            if entry.original is None:
                found = self._attempt(entry.head, entry.workload, demands, {}, nominated)
            else:
                found = self._attempt_for_original(
                    entry.head, entry.workload, demands, entry.original, nominated
                )
            assignment, targets = found
            self.gone = ()
        if assignment.mode is Mode.FIT or targets:
            entry.assignment, entry.targets = assignment, targets
            entry.deferred = assignment.mode is Mode.FIT

    def _keep_capacity(self, entry: Entry) -> None:
        """Whoever cannot reclaim at any time keeps what it will need from those behind it in this cycle."""
        queue = self.observed.cluster_queues[entry.head.queue]
        if queue.preemption.reclaim_within_cohort == "Any":
            return
        node = queue_node(queue.name)
        kept: dict[FlavorResource, int] = {}
        for pair, amount in entry.usage.items():
            quota, used = self.tree.quota(node, pair), self.tree.usage(node, pair)
            if not entry.assignment.level:
                kept[pair] = max(0, min(amount, quota.nominal - used))
            elif quota.borrowing_limit is None:
                kept[pair] = amount
            else:
                kept[pair] = max(0, min(amount, quota.nominal + quota.borrowing_limit - used))
        self.tree.add(queue.name, kept)

    def _preempt(self, entry: Entry) -> None:
        for target in entry.targets:
            self.victims[target.holder.key] = target.holder
            self.outcome.displaced.setdefault(entry.head.key, set()).add(target.holder.workload.uid)
            if not target.holder.evicted:
                self.outcome.preemptions.append(Preemption(target.holder.key, entry.head.key, target.reason))
        self.tree.add(entry.head.queue, entry.usage)
        self.outcome.waiting_for_victims.add(entry.head.key)

    @contextmanager
    def _without(self, holders: Iterable[Holder]) -> Generator[None]:
        removed = {holder.key: holder for holder in holders}
        for holder in removed.values():
            self.tree.remove(holder.queue, holder.usage)
        yield
        for holder in removed.values():
            self.tree.add(holder.queue, holder.usage)
