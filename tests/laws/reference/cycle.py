"""The decisions of one cycle over its heads (semantics, Cycle): nominate all, then process one by one."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from admitq.core.amounts import FlavorResource
from admitq.core.instructions import PreemptionReason
from admitq.core.model import Instant, ObjectKey, Workload
from tests.laws.reference.assignment import Assignment, Mode, Pins, Prospect, Scan, Search
from tests.laws.reference.fair_sharing import Contender, Fair, next_contender
from tests.laws.reference.observed import Holder, Observed, usage_beyond
from tests.laws.reference.preemption import Classical, Question, Used, Victim
from tests.laws.reference.requests import Demand, requests
from tests.laws.reference.tree import Node, queue_node

MOST_ATTEMPTS = 64
"""A scan of flavors ends after so many attempts."""


class Head(NamedTuple):
    """The head of a ClusterQueue, and where its scans of flavors continue."""

    queue: str
    key: ObjectKey
    start: Mapping[Scan, int]
    is_preemptor: bool = False
    preempted_uids: Collection[str] = ()
    """Uids of the workloads that were preempted for it since it began to wait."""
    attempts: int = 1
    """The number of this attempt within its scan of flavors."""


class Preemption(NamedTuple):
    """A preempted workload and its preemptor."""

    victim: ObjectKey
    preemptor: ObjectKey
    reason: PreemptionReason


@dataclass
class Outcome:
    """The decisions of a cycle."""

    reservations: list[tuple[ObjectKey, Assignment]] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    refusals: dict[ObjectKey, str] = field(default_factory=dict)
    """The type names of refusals by workload."""
    tried: dict[ObjectKey, dict[Scan, int]] = field(default_factory=dict)
    waiting_for_victims: set[ObjectKey] = field(default_factory=set)
    preempted_uids: dict[ObjectKey, set[str]] = field(default_factory=dict)
    """By preemptor, uids of its targets."""

    def admits(self, key: ObjectKey) -> bool:
        """Whether a workload reserves quota."""
        return any(each == key for each, _ in self.reservations)

    def preempts_for(self, key: ObjectKey) -> bool:
        """Whether another workload is preempted for a workload."""
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
    """The workload whose quota it takes over (semantics, Elastic jobs)."""
    must_wait: bool = False
    """Whether it was preempted for another head that tries further flavors in the next cycle."""

    @property
    def usage(self) -> Mapping[FlavorResource, int]:
        """What it would reserve; of a replacement, only what exceeds its original."""
        usage = self.assignment.usage
        return usage if self.original is None else usage_beyond(usage, self.original.usage)


class Cycle:
    """One cycle. ``tree`` is what the cycle supposes, ``held`` what is really held."""

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
        self.removed_victims: tuple[ObjectKey, ...] = ()
        """Targets so far that are removed from the tree while an overlap is resolved."""
        self.admitted_now = False
        """Whether the cycle admitted a workload. Its pods cannot be ready yet."""
        self.outcome = Outcome()

    def run(self, heads: Iterable[Head]) -> Outcome:
        """Decide over the heads."""
        entries = [self.nominate(head) for head in sorted(heads, key=lambda head: head.queue)]
        self.outcome.tried = {
            entry.head.key: entry.assignment.tried for entry in entries if entry.refusal is None
        }
        for entry in self._in_order(entries):
            refusal = entry.refusal or self._process(entry)
            if entry.must_wait or self._tries_further_flavors(entry):
                for other in entries:
                    if self._was_preempted_for(other, entry) and other.refusal is None:
                        other.must_wait = other.assignment.mode is not Mode.NO_FIT
            if refusal is not None:
                self.outcome.refusals[entry.head.key] = refusal
            if refusal == "PodsNotReady":
                break
        return self.outcome

    # --- nominate ---------------------------------------------------------------------------------

    def nominate(self, head: Head) -> Entry:
        """Refuse a head, or find its flavors and targets."""
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
        """Return why a workload gets nothing in a ClusterQueue, whatever quota there is."""
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
        """Return why a second pass fails; without another reason, because there are no places."""
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
        """Find flavors for these pods, and targets if they need preemption."""
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
        """Find flavors among those of the original, as if it had left. Its own original is never a target.

        There is no partial admission, and no later cycle tries another flavor.
        """
        former, self.removed_victims = self.removed_victims, (*self.removed_victims, original.key)
        with self._without([original]):
            start = {} if only is not None else head.start
            assignment, targets = self._attempt(head, workload, demands, start, only or original.flavors)
        self.removed_victims = former
        assignment.tried = {}
        return assignment, targets

    def _assign(
        self, head: Head, workload: Workload, demands: tuple[Demand, ...]
    ) -> tuple[Assignment, list[Victim]]:
        """Find flavors and targets for as many pods as possible."""

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
        """Return how many pods of a podset partial admission may leave out."""
        least = demand.pod_set.min_count
        return 0 if least is None else max(0, demand.count - least)

    def _foresee(self, head: Head, workload: Workload, pair: FlavorResource, amount: int) -> Prospect:
        """Return what preemption could do for one (flavor, resource)."""
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
            self.observed, self.tree, head.queue, workload, usage, contested, self.removed_victims, self.used
        )
        search = Classical(question) if self.settings.fair_sharing is None else Fair(question)
        return search.victims()

    # --- order ------------------------------------------------------------------------------------

    def _in_order(self, entries: list[Entry]) -> Iterator[Entry]:
        if self.settings.fair_sharing is None:
            left = sorted(entries, key=self._classical_order)
            while left:
                entry = self._not_behind_preemptors(left)[0]
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
                contenders = [(self._contender(entry), entry) for entry in self._not_behind_preemptors(left)]
                _, entry = next_contender(self.tree, self.settings.gates, contenders)
                left.remove(entry)
                yield entry

    def _not_behind_preemptors(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries that were not preempted for another entry that may get something."""
        return [
            entry
            for entry in entries
            if entry.refusal is not None
            or not any(
                self._was_preempted_for(entry, other)
                for other in entries
                if self._tries_further_flavors(other)
                or (other.refusal is None and other.assignment.mode is not Mode.NO_FIT)
            )
        ]

    def _was_preempted_for(self, entry: Entry, other: Entry) -> bool:
        """Whether an entry was preempted for another of the same tree."""
        return entry.workload.uid in other.head.preempted_uids and self._root(entry) == self._root(other)

    @staticmethod
    def _tries_further_flavors(entry: Entry) -> bool:
        """Whether nothing fits, and it tries further flavors in the next cycle."""
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
        """Decide over an entry; return its refusal, or None if it reserves."""
        if entry.must_wait:
            return "QuotaTakenInCycle"
        if entry.assignment.mode is not Mode.NO_FIT and self._is_original_preempted(entry):
            return "QuotaTakenInCycle"
        if self._overlaps(entry) and self.settings.gates.recompute_assignment_upon_preemption_targets_overlap:
            self._recompute(entry)
        mode, usage = entry.assignment.mode, entry.usage
        if mode is Mode.NO_FIT:
            return "NoFlavorFits"
        preempts = mode is not Mode.FIT
        if preempts and not entry.targets:
            self._reserve_capacity(entry)
            return "NoPreemptionTargets"
        if preempts and entry.workload.has_closed_preemption_gate:
            return "PreemptionGated"
        if entry.deferred:
            self.tree.add(entry.head.queue, usage)
            self.outcome.waiting_for_victims.add(entry.head.key)
            return "OverlappingTargets"
        if self._overlaps(entry):
            return "OverlappingTargets"
        with self._without([*self.victims.values(), *(target.holder for target in entry.targets)]):
            fits = self.tree.fits(entry.head.queue, usage)
        if not fits or (not preempts and not self.held.fits(entry.head.queue, usage)):
            return "QuotaTakenInCycle"
        if preempts:
            self._preempt(entry)
            return "WaitingForTargets"
        if self.settings.block_admission and (self.admitted_now or self.observed.waits_for_pods()):
            return "PodsNotReady"
        self._reserve(entry)
        self.outcome.reservations.append((entry.head.key, entry.assignment))
        flavors = {flavor for some in entry.assignment.flavors.values() for flavor in some.values()}
        outstanding = self.observed.outstanding_checks(entry.head.key, entry.head.queue, flavors)
        if not outstanding and not entry.workload.pods_ready:
            self.admitted_now = True
        return None

    def _reserve(self, entry: Entry) -> None:
        """Add a reservation to the trees, without what it takes over from another workload."""
        head, usage = entry.head, entry.assignment.usage
        former = self.observed.former(head.key, head.queue)
        heir = self.observed.later_replacement(head.key, head.queue, self.now)
        for tree in (self.tree, self.held):
            tree.add(head.queue, usage if former is None else usage_beyond(usage, former.usage))
            if heir is not None:
                tree.remove(head.queue, heir.usage)
                tree.add(head.queue, usage_beyond(heir.usage, usage))

    def _is_original_preempted(self, entry: Entry) -> bool:
        """Whether this cycle preempted its original for another head."""
        preempted = {each.victim for each in self.outcome.preemptions}
        return entry.original is not None and entry.original.key in preempted

    def _overlaps(self, entry: Entry) -> bool:
        return any(target.holder.key in self.victims for target in entry.targets)

    def _recompute(self, entry: Entry) -> None:
        """Search again without the targets so far, in the nominated flavors; keep a result that suffices."""
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
            self.removed_victims = tuple(self.victims)
            if entry.original is None:
                found = self._attempt(entry.head, entry.workload, demands, {}, nominated)
            else:
                found = self._attempt_for_original(
                    entry.head, entry.workload, demands, entry.original, nominated
                )
            assignment, targets = found
            self.removed_victims = ()
        if assignment.mode is Mode.FIT or targets:
            entry.assignment, entry.targets = assignment, targets
            entry.deferred = assignment.mode is Mode.FIT

    def _reserve_capacity(self, entry: Entry) -> None:
        """Reserve capacity for a head without targets that cannot reclaim at any time."""
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
            self.outcome.preempted_uids.setdefault(entry.head.key, set()).add(target.holder.workload.uid)
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
