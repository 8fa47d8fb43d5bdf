"""The workloads that hold quota in each ClusterQueue (*holders*), in preemption order.

- Each ClusterQueue has two lists of holders: workloads that are leaving (evicted, or about to be preempted),
  and workloads that stay. Each holder is in one list.
- A list is sorted by lower priority, then more recently reserved, then uid (semantics, Preemption). After a
  change of a workload, ``put`` moves it to its new place.
- Every admission and every finish calls ``put`` or ``remove``, and few callers read. So ``put`` appends a new
  holder unsorted, and ``remove`` only marks its entry. A read sorts the holders that were added since the
  last read. From then on the key of such a holder is frozen.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from admitq.core.ledger import Reservation
from admitq.core.model import Instant, ObjectKey, Workload


class PreemptionOrder(NamedTuple):
    """The sort key of a holder in its ClusterQueue: the first holder is preempted first."""

    priority: int
    reserved_at_descending: Instant
    uid: str


class QuotaHolder(Protocol):
    """A workload that holds quota, as far as its place depends on it."""

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
        """Whether it is evicted, or its preemption is decided: to preempt it again costs nothing."""
        ...


def preemption_order(holder: QuotaHolder) -> PreemptionOrder:
    """Return the key by which a holder is sorted in its ClusterQueue."""
    workload = holder.workload
    return PreemptionOrder(workload.priority, -holder.reserved_at, workload.uid)


H = TypeVar("H", bound=QuotaHolder)


class _Place(Generic[H]):
    """The entry of a holder in a list. Its key is ``_UNSORTED`` until a read sorts it.

    An entry without holder is a *trace* of a holder that was removed. Reads skip traces.
    """

    __slots__ = ("holder", "line", "order")

    def __init__(self, holder: H, line: "_HoldersInOrder[H]") -> None:
        self.holder: H | None = holder
        self.order = _UNSORTED
        self.line = line


_UNSORTED: Final = PreemptionOrder(0, 0, "")
_ORDER: Final = attrgetter("order")

_SLACK: Final = 64
"""A list is cleaned when it has more entries than twice its holders and this number."""

_FEW: Final = 16
"""With at most one new holder for this many sorted ones, each is inserted; else the list is sorted."""


class _HoldersInOrder(Generic[H]):
    """Sorted holders, and new ones that the next read sorts."""

    __slots__ = ("ordered", "recent", "size")

    def __init__(self) -> None:
        self.ordered: list[_Place[H]] = []
        self.recent: list[_Place[H]] = []
        self.size = 0

    def leave(self, place: _Place[H]) -> None:
        place.holder = None
        self.size -= 1
        if len(self.ordered) + len(self.recent) > 2 * self.size + _SLACK:
            self.ordered = [place for place in self.ordered if place.holder is not None]
            self.recent = [place for place in self.recent if place.holder is not None]

    def in_order(self, since: PreemptionOrder | None) -> Iterator[tuple[PreemptionOrder, H]]:
        if self.recent:
            self._sort_in()
        ordered = self.ordered
        start = 0 if since is None else bisect_left(ordered, since, key=_ORDER)
        for index in range(start, len(ordered)):
            place = ordered[index]
            if place.holder is not None:
                yield place.order, place.holder

    def _sort_in(self) -> None:
        newcomers: list[_Place[H]] = []
        for place in self.recent:
            if place.holder is not None:
                place.order = preemption_order(place.holder)
                newcomers.append(place)
        self.recent.clear()
        if len(newcomers) * _FEW <= len(self.ordered):
            for place in newcomers:
                insort(self.ordered, place, key=_ORDER)
        else:
            self.ordered.extend(newcomers)
            self.ordered.sort(key=_ORDER)


class QuotaHolders(Generic[H]):
    """The holders of all ClusterQueues, also of ClusterQueues that do not exist."""

    def __init__(self) -> None:
        self._places: dict[ObjectKey, _Place[H]] = {}
        self._staying: dict[str, _HoldersInOrder[H]] = {}
        self._leaving: dict[str, _HoldersInOrder[H]] = {}

    def __len__(self) -> int:
        """Return the number of holders."""
        return len(self._places)

    @property
    def traces(self) -> int:
        """The number of entries of removed holders in all lists."""
        return sum(
            len(line.ordered) + len(line.recent) - line.size
            for lines in (self._staying, self._leaving)
            for line in lines.values()
        )

    def put(self, holder: H) -> None:
        """Move a workload to the place that its present state gives it; remove it if it holds no quota."""
        workload = holder.workload
        held = holder.held
        if held is None:
            self.remove(workload.key)
            return
        lines = self._leaving if holder.is_leaving else self._staying
        line = lines.get(held.cluster_queue)
        if line is None:
            line = lines[held.cluster_queue] = _HoldersInOrder()
        place = self._places.get(workload.key)
        if place is not None:
            stays = place.holder is holder and place.line is line
            if stays and (place.order is _UNSORTED or place.order == preemption_order(holder)):
                return
            place.line.leave(place)
        place = self._places[workload.key] = _Place(holder, line)
        line.recent.append(place)
        line.size += 1

    def remove(self, key: ObjectKey) -> None:
        """Remove a workload, if it is a holder."""
        place = self._places.pop(key, None)
        if place is not None:
            place.line.leave(place)

    def staying(
        self, cluster_queue: str, since: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Yield the holders in a ClusterQueue that are not leaving, in preemption order.

        ``since`` is the place in the order to begin at; None begins at the first holder.
        """
        line = self._staying.get(cluster_queue)
        return iter(()) if line is None else line.in_order(since)

    def leaving(
        self, cluster_queue: str, since: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Yield the holders in a ClusterQueue that are leaving; otherwise as ``staying``."""
        line = self._leaving.get(cluster_queue)
        return iter(()) if line is None else line.in_order(since)
