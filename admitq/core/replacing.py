"""Workloads that replace others: the slices of elastic jobs (semantics, Elastic jobs).

An elastic job that grows gets another workload for all of its pods, which *replaces* the one whose pods run:
its *original*. Rules of this file and of those who use it
- While the original holds quota to stay, the replacement asks only for what it takes beyond that, and only
  of the flavors that the original has. It is found out by taking the original off the tree for a while.
- While both hold quota, the replacement counts with what it has beyond the original; when the original is
  finished, with all. So quota passes over in one step, and neither a restart between two writes nor the
  order in which they are observed counts it twice.
- Only one replacement counts so, the first to be reserved; and only after its original.
- In a *circle* of workloads that replace each other nobody takes over anything: none of them would count with
  all that it has. Annotations may say so by a user's hand, or by a fault.
- Of an original that is to leave nothing is taken over: its replacement then asks as any other workload.
"""

from collections.abc import Collection, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from admitq.core.ledger import Usage
from admitq.core.model import Admission, Instant, ObjectKey, Workload


class Original(NamedTuple):
    """What a workload that is to be replaced holds."""

    key: ObjectKey
    admission: Admission
    usage: Usage


class Slice(Protocol):
    """A workload, as far as it matters for who replaces it."""

    @property
    def workload(self) -> Workload:
        """The workload as observed."""
        ...

    @property
    def admission(self) -> Admission | None:
        """The reservation that it has or is about to have."""
        ...

    @property
    def reserved_at(self) -> Instant:
        """Since when it has it."""
        ...


def usage_beyond(usage: Usage, original: Usage) -> Usage:
    """What is used of each (flavor, resource) beyond what the original uses."""
    had = dict(original)
    return tuple([(pair, amount - had.get(pair, 0)) for pair, amount in usage if amount > had.get(pair, 0)])


def _holds_after(entry: Slice, original: Slice) -> bool:
    """Whether both hold quota in one ClusterQueue, the original since before."""
    if entry.workload.finished or original.workload.finished:
        return False
    admission, before = entry.admission, original.admission
    return (
        admission is not None
        and before is not None
        and admission.cluster_queue == before.cluster_queue
        and original.reserved_at <= entry.reserved_at
    )


S = TypeVar("S", bound=Slice)


class Replacements(Generic[S]):
    """Who is to replace whom, whether that one is known or not."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, dict[ObjectKey, S]] = {}
        self._original: dict[ObjectKey, ObjectKey] = {}

    def add(self, entry: S) -> None:
        """Know a workload, if it replaces another."""
        key, original = entry.workload.key, entry.workload.replaces
        if original is not None and original != key:
            self._of.setdefault(original, {})[key] = entry
            self._original[key] = original

    def remove(self, entry: S) -> None:
        """Undo ``add``."""
        original = self._original.pop(entry.workload.key, None)
        if original is None:
            return
        of = self._of[original]
        del of[entry.workload.key]
        if not of:
            del self._of[original]

    def of(self, original: ObjectKey) -> Iterable[S]:
        """Those who are to replace a workload."""
        found = self._of.get(original)
        return () if found is None else tuple(found.values())

    def circle(self, key: ObjectKey) -> Collection[ObjectKey]:
        """The workload, whom that is to replace, and so on, if it leads back to the workload; else nobody."""
        found: dict[ObjectKey, None] = {}
        at: ObjectKey | None = key
        while at is not None and at not in found:
            found[at] = None
            at = self._original.get(at)
        return found if at == key else ()

    def successor(self, original: S) -> S | None:
        """Who of them holds quota and counts with what it has beyond the original; None if nobody does."""
        holding = [
            each
            for each in self.of(original.workload.key)
            if _holds_after(each, original) and not self.circle(each.workload.key)
        ]
        return min(holding, key=lambda each: (each.reserved_at, each.workload.uid), default=None)
