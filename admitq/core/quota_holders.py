"""Who holds quota in each ClusterQueue, in the order in which they would be preempted.

Rules of this file
- Everybody who holds quota is in one *line*: that of the ClusterQueue, and in it of those who leave already
  (evicted, or told to be preempted) or of those who stay.
- A line is sorted by lower priority, then more recently reserved, then uid (semantics, Preemption). Whoever
  changes is put again.
- Putting and removing must cost next to nothing, because every admission and every finish does it, while
  few look. So a newcomer is appended unsorted and a leaver only marked; keys and order are made when somebody
  looks, at the price of what is new since the last look. From then on a holder's key is frozen.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from admitq.core.ledger import Reservation
from admitq.core.model import Instant, ObjectKey, Workload


class PreemptionOrder(NamedTuple):
    """Place of a holder among those who may be preempted in its ClusterQueue."""

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
        """What is on the books for it."""
        ...

    @property
    def reserved_at(self) -> Instant:
        """Since when it holds."""
        ...

    @property
    def is_leaving(self) -> bool:
        """Whether it is evicted or told to be preempted, so that preempting it costs nothing."""
        ...


def preemption_order(holder: QuotaHolder) -> PreemptionOrder:
    """The key by which a holder is sorted in its ClusterQueue."""
    workload = holder.workload
    return PreemptionOrder(workload.priority, -holder.reserved_at, workload.uid)


H = TypeVar("H", bound=QuotaHolder)


class _Place(Generic[H]):
    """A holder's entry in a line; its key is ``_UNSORTED`` until it is sorted in.

    Without holder it is a trace of one that has left the line; nobody comes across these.
    """

    __slots__ = ("holder", "line", "order")

    def __init__(self, holder: H, line: "_HoldersInOrder[H]") -> None:
        self.holder: H | None = holder
        self.order = _UNSORTED
        self.line = line


_UNSORTED: Final = PreemptionOrder(0, 0, "")
_ORDER: Final = attrgetter("order")

_SLACK: Final = 64
"""How many traces of leavers a line may keep beyond its living ones before it is cleaned."""

_FEW: Final = 16
"""Up to one newcomer for so many who stand in order, each is inserted; if more, the line is sorted anew."""


class _HoldersInOrder(Generic[H]):
    """Holders in order, newcomers aside until somebody looks."""

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
    """The lines of all ClusterQueues, existing or not."""

    def __init__(self) -> None:
        self._places: dict[ObjectKey, _Place[H]] = {}
        self._staying: dict[str, _HoldersInOrder[H]] = {}
        self._leaving: dict[str, _HoldersInOrder[H]] = {}

    def __len__(self) -> int:
        """How many hold quota."""
        return len(self._places)

    @property
    def traces(self) -> int:
        """How many who have left are still in the lines."""
        return sum(
            len(line.ordered) + len(line.recent) - line.size
            for lines in (self._staying, self._leaving)
            for line in lines.values()
        )

    def put(self, holder: H) -> None:
        """Give a workload the place that follows from what it is now; none if it holds nothing."""
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
        """Take a workload out, if it is in."""
        place = self._places.pop(key, None)
        if place is not None:
            place.line.leave(place)

    def staying(
        self, cluster_queue: str, since: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Holders of quota in a ClusterQueue that are not leaving, the first to preempt first.

        With ``since``, only those from this place in the order on.
        """
        line = self._staying.get(cluster_queue)
        return iter(()) if line is None else line.in_order(since)

    def leaving(
        self, cluster_queue: str, since: PreemptionOrder | None = None
    ) -> Iterator[tuple[PreemptionOrder, H]]:
        """Holders of quota in a ClusterQueue that are leaving already, in the same order."""
        line = self._leaving.get(cluster_queue)
        return iter(()) if line is None else line.in_order(since)
