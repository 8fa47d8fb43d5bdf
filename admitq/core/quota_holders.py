"""The workloads that hold quota in each ClusterQueue (*holders*), in preemption order.

- Each ClusterQueue has two lists of holders: workloads that are leaving (evicted, or about to be preempted),
  and workloads that stay. Each holder is in one list.
- A list is sorted by lower priority, then more recent reservation, then uid (semantics, Preemption). After a
  change of a workload, ``put`` moves the workload to its new position.
- Every admission and every finish of a workload calls ``put`` or ``remove``. Reads are rare. So ``put``
  appends a new holder unsorted, and ``remove`` only marks its entry. A read sorts the holders that were added
  since the last read. From then on, the sort keys of these holders are fixed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from admitq.core.ledger import Reservation
from admitq.core.model import Instant, ObjectKey, Workload


class PreemptionOrder(NamedTuple):
    """The sort key of a holder in its ClusterQueue. Preemption takes the first holder first."""

    priority: int
    reserved_at_descending: Instant
    uid: str


class QuotaHolder(Protocol):
    """The properties of a workload with quota that decide its position."""

    @property
    def workload(self) -> Workload:
        """The workload as observed."""
        ...

    @property
    def held(self) -> Reservation | None:
        """The reservation that is counted for it."""
        ...

    @property
    def reserved_at(self) -> Instant:
        """The instant since which it holds quota."""
        ...

    @property
    def is_leaving(self) -> bool:
        """Whether it is evicted, or its preemption is decided. To preempt it again costs nothing."""
        ...


def preemption_order(holder: QuotaHolder) -> PreemptionOrder:
    """Return the key by which a holder is sorted in its ClusterQueue."""
    workload = holder.workload
    return PreemptionOrder(workload.priority, -holder.reserved_at, workload.uid)


H = TypeVar("H", bound=QuotaHolder)


class _HolderEntry(Generic[H]):
    """The entry of a holder in a list. Its key is ``_UNSORTED`` until a read sorts it.

    An entry without holder is the *trace* of a removed holder. Reads skip traces.
    """

    __slots__ = ("holder", "holders", "order")

    def __init__(self, holder: H, holders: "_HoldersInOrder[H]") -> None:
        self.holder: H | None = holder
        self.order = _UNSORTED
        self.holders = holders


_UNSORTED: Final = PreemptionOrder(0, 0, "")
_ORDER: Final = attrgetter("order")

_SLACK: Final = 64
"""Traces are removed from a list when it has more entries than twice its holders plus this number."""

_FEW: Final = 16
"""With at most one new holder for this many sorted ones, a read inserts each; else it sorts the list."""


class _HoldersInOrder(Generic[H]):
    """Sorted holders, and new ones that the next read sorts."""

    __slots__ = ("ordered", "recent", "size")

    def __init__(self) -> None:
        self.ordered: list[_HolderEntry[H]] = []
        self.recent: list[_HolderEntry[H]] = []
        self.size = 0

    def drop(self, entry: _HolderEntry[H]) -> None:
        entry.holder = None
        self.size -= 1
        if len(self.ordered) + len(self.recent) > 2 * self.size + _SLACK:
            self.ordered = [entry for entry in self.ordered if entry.holder is not None]
            self.recent = [entry for entry in self.recent if entry.holder is not None]

    def in_order(self, first_key: PreemptionOrder | None) -> Iterator[tuple[PreemptionOrder, H]]:
        if self.recent:
            self._sort_in()
        ordered = self.ordered
        start = 0 if first_key is None else bisect_left(ordered, first_key, key=_ORDER)
        for index in range(start, len(ordered)):
            entry = ordered[index]
            if entry.holder is not None:
                yield entry.order, entry.holder

    def _sort_in(self) -> None:
        new_entries: list[_HolderEntry[H]] = []
        for entry in self.recent:
            if entry.holder is not None:
                entry.order = preemption_order(entry.holder)
                new_entries.append(entry)
        self.recent.clear()
        if len(new_entries) * _FEW <= len(self.ordered):
            for entry in new_entries:
                insort(self.ordered, entry, key=_ORDER)
        else:
            self.ordered.extend(new_entries)
            self.ordered.sort(key=_ORDER)


class QuotaHolders(Generic[H]):
    """The holders of all ClusterQueues, also of ClusterQueues that do not exist."""

    def __init__(self) -> None:
        self._entries: dict[ObjectKey, _HolderEntry[H]] = {}
        self._staying: dict[str, _HoldersInOrder[H]] = {}
        self._leaving: dict[str, _HoldersInOrder[H]] = {}

    def __len__(self) -> int:
        """Return the number of holders."""
        return len(self._entries)

    @property
    def traces(self) -> int:
        """The number of entries of removed holders in all lists."""
        return sum(
            len(holders.ordered) + len(holders.recent) - holders.size
            for by_cluster_queue in (self._staying, self._leaving)
            for holders in by_cluster_queue.values()
        )

    def put(self, holder: H) -> None:
        """Move a workload to its present position. Remove it if it holds no quota."""
        workload = holder.workload
        held = holder.held
        if held is None:
            self.remove(workload.key)
            return
        by_cluster_queue = self._leaving if holder.is_leaving else self._staying
        holders = by_cluster_queue.get(held.cluster_queue)
        if holders is None:
            holders = by_cluster_queue[held.cluster_queue] = _HoldersInOrder()
        entry = self._entries.get(workload.key)
        if entry is not None:
            is_listed = entry.holder is holder and entry.holders is holders
            if is_listed and (entry.order is _UNSORTED or entry.order == preemption_order(holder)):
                return
            entry.holders.drop(entry)
        entry = self._entries[workload.key] = _HolderEntry(holder, holders)
        holders.recent.append(entry)
        holders.size += 1

    def remove(self, key: ObjectKey) -> None:
        """Remove a workload. Do nothing if it is not a holder."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.holders.drop(entry)

    def staying(
        self, cluster_queue: str, first_key: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Yield the holders in a ClusterQueue that are not leaving, in preemption order.

        ``first_key`` is the sort key at which to begin; None: at the first holder.
        """
        holders = self._staying.get(cluster_queue)
        return iter(()) if holders is None else holders.in_order(first_key)

    def leaving(
        self, cluster_queue: str, first_key: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Yield the holders in a ClusterQueue that are leaving, in preemption order; see ``staying``."""
        holders = self._leaving.get(cluster_queue)
        return iter(()) if holders is None else holders.in_order(first_key)
