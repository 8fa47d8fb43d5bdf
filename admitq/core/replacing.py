"""Workloads that replace others: the slices of elastic jobs (semantics, Elastic jobs).

An elastic job that grows gets another workload for all of its pods: the *replacement*. It replaces the
workload of the running pods: the *original*.

- While the original holds quota and is not leaving, the replacement requests only the quota beyond that of
  the original, from the same flavors. The search removes the original from the tree and then restores it.
- While both hold quota, the usage of the replacement is its assignment beyond that of the original. When the
  original has finished, its usage is its whole assignment. So quota passes over in one step: neither a
  restart between two writes nor the order of observations counts it twice.
- Only one replacement counts like this, the *successor*: the first one that reserved quota after the
  original.
- In a *circle* of workloads that replace each other, no workload takes quota over: else none of them would
  count in full. Such a circle comes from annotations that a user or a faulty program wrote.
- A replacement takes over nothing from an original that is leaving. It requests all of its quota.
"""

from collections.abc import Collection, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from admitq.core.ledger import Usage
from admitq.core.model import Admission, Instant, ObjectKey, Workload


class Original(NamedTuple):
    """The admission and usage of a workload that another workload replaces."""

    key: ObjectKey
    admission: Admission
    usage: Usage


class Slice(Protocol):
    """A workload that replaces another workload, or may be replaced."""

    @property
    def workload(self) -> Workload:
        """The workload as observed."""
        ...

    @property
    def admission(self) -> Admission | None:
        """Its reservation, also if it is still being written."""
        ...

    @property
    def reserved_at(self) -> Instant:
        """The instant of its reservation."""
        ...


def usage_beyond(usage: Usage, original: Usage) -> Usage:
    """Return the usage beyond that of the original, by (flavor, resource)."""
    original_usage = dict(original)
    return tuple(
        [
            (pair, amount - original_usage.get(pair, 0))
            for pair, amount in usage
            if amount > original_usage.get(pair, 0)
        ]
    )


def _holds_after(entry: Slice, original: Slice) -> bool:
    """Whether both hold quota in one ClusterQueue, and the original reserved it first."""
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
    """Workloads by the workload that they replace. The latter may not be observed."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, dict[ObjectKey, S]] = {}
        self._original: dict[ObjectKey, ObjectKey] = {}

    def add(self, entry: S) -> None:
        """Index a workload, if it replaces another one."""
        key, original = entry.workload.key, entry.workload.replaces
        if original is not None and original != key:
            self._of.setdefault(original, {})[key] = entry
            self._original[key] = original

    def remove(self, entry: S) -> None:
        """Undo ``add``."""
        original = self._original.pop(entry.workload.key, None)
        if original is None:
            return
        replacements = self._of[original]
        del replacements[entry.workload.key]
        if not replacements:
            del self._of[original]

    def of_original(self, original: ObjectKey) -> Iterable[S]:
        """Return the workloads that replace a workload."""
        replacements = self._of.get(original)
        return () if replacements is None else tuple(replacements.values())

    def find_circle(self, key: ObjectKey) -> Collection[ObjectKey]:
        """Return the circle of replacements that a workload is in; empty without one."""
        members: dict[ObjectKey, None] = {}
        current: ObjectKey | None = key
        while current is not None and current not in members:
            members[current] = None
            current = self._original.get(current)
        return members if current == key else ()

    def find_successor(self, original: S) -> S | None:
        """Return the replacement that takes over the quota of the original; None without one."""
        holding = [
            replacement
            for replacement in self.of_original(original.workload.key)
            if _holds_after(replacement, original) and not self.find_circle(replacement.workload.key)
        ]
        return min(
            holding, key=lambda replacement: (replacement.reserved_at, replacement.workload.uid), default=None
        )
