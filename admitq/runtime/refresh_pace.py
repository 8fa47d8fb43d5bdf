"""Limits how often keys are reconciled because numbers that they report have changed."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class RefreshPace(Generic[KeyT]):
    """Remembers which keys were reconciled within the last ``interval`` seconds.

    ``clock`` gives monotonic seconds.
    """

    def __init__(self, interval: float, clock: Callable[[], float]) -> None:
        self._interval = interval
        self._clock = clock
        self._began: OrderedDict[KeyT, float] = OrderedDict()
        """When the last reconcile of each key began, in the order of time."""

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._began)

    def record(self, key: KeyT) -> None:
        """Record that a reconcile of the key begins now."""
        if self._interval <= 0:
            return
        now = self._clock()
        self._began[key] = now
        self._began.move_to_end(key)
        while self._began[first := next(iter(self._began))] <= now - self._interval:
            del self._began[first]

    def seconds_left(self, key: KeyT) -> float:
        """Return the seconds until the key may be reconciled again; 0 if it may be now."""
        began = self._began.get(key)
        return 0.0 if began is None else max(0.0, began + self._interval - self._clock())
