"""A bounded cache of answers that expire."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class ExpiringAnswers(Generic[_Value]):
    """Answers by key with expiry. The least recently used answer is dropped first.

    Args:
        clock: monotonic, in seconds.
        size: the maximum number of answers.
    """

    def __init__(self, clock: Callable[[], float], size: int) -> None:
        self._clock = clock
        self._size = size
        self._entries: OrderedDict[bytes, tuple[float, _Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def recall(self, key: bytes) -> tuple[bool, _Value | None]:
        """Return whether the answer is known, and the answer."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock():
            return False, None
        self._entries.move_to_end(key)
        return True, entry[1]

    def remember(self, key: bytes, value: _Value, seconds: float) -> None:
        """Cache an answer for this long."""
        self._entries[key] = (self._clock() + seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
