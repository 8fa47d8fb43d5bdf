from typing import Any, cast

import pytest

from admitq.runtime.client import Client
from admitq.runtime.events import EventRecorder, cut
from admitq.runtime.rate_limit import CallPriority, current_priority


@pytest.mark.parametrize(
    ("text", "size", "result"),
    [
        ("short", 10, "short"),
        ("exactly-10", 10, "exactly-10"),
        ("more than 10", 10, "more th…"),
        ("ääääää", 10, "äää…"),
        ("a€€€€", 10, "a€€…"),
        ("😀😀😀", 11, "😀😀…"),
        ("\ud800 lone surrogate", 8, "? lon…"),
        ("", 10, ""),
    ],
)
def test_a_note_is_cut_at_the_end_of_a_character(text: str, size: int, result: str):
    assert cut(text, size) == result
    assert len(cut(text, size).encode()) <= size


class Priorities:
    """A client that keeps the priorities of its calls."""

    def __init__(self) -> None:
        self.seen: list[CallPriority] = []

    async def create(self, *_: Any) -> None:
        self.seen.append(current_priority(CallPriority.STATUS))

    merge_patch = create


async def test_events_and_their_series_are_written_with_the_lowest_priority() -> None:
    client = Priorities()
    recorder = EventRecorder(cast("Client", client), "example.com/tests", "here")
    for _ in range(2):
        recorder.event({"metadata": {"name": "a"}}, "Normal", "Kept", "kept")
        await recorder.flush()
    assert client.seen == [CallPriority.EVENT] * 2
    assert current_priority(CallPriority.STATUS) is CallPriority.STATUS
