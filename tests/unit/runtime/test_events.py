"""Events are cut to their maximum size, and written with the lowest priority."""

import asyncio
from typing import Any, cast

import pytest

from admitq.runtime.client import Client
from admitq.runtime.events import EventLimits, EventRecorder, cut
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
def test_long_note_is_cut_at_character_boundary(text: str, size: int, result: str):
    assert cut(text, size) == result
    assert len(cut(text, size).encode()) <= size


class FakeClient:
    """Keeps the priorities of its calls."""

    def __init__(self) -> None:
        self.priorities: list[CallPriority] = []

    async def create(self, *_: Any) -> None:
        self.priorities.append(current_priority(CallPriority.STATUS))

    merge_patch = create


async def test_events_and_event_series_are_written_with_lowest_priority() -> None:
    client = FakeClient()
    recorder = EventRecorder(cast("Client", client), "example.com/tests", "here")
    for _ in range(2):
        recorder.event({"metadata": {"name": "a"}}, "Normal", "Kept", "kept")
        await recorder.flush()
    assert client.priorities == [CallPriority.EVENT] * 2
    assert current_priority(CallPriority.STATUS) is CallPriority.STATUS


class NotesClient:
    """Keeps the notes of created events, and counts patches."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.patches = 0

    async def create(self, _: Any, event: dict[str, Any]) -> None:
        self.notes.append(event["note"])

    async def merge_patch(self, *_: Any) -> None:
        self.patches += 1


async def test_event_with_interval_is_dropped_if_repeated_within_interval() -> None:
    client, now = NotesClient(), 0.0
    limits = EventLimits(burst=1)
    recorder = EventRecorder(
        cast("Client", client), "example.com/tests", "here", limits=limits, clock=lambda: now
    )

    def record(reason: str, version: str) -> None:
        regarding = {"metadata": {"name": "a", "resourceVersion": version}}
        recorder.event(regarding, "Normal", reason, f"{reason} at {now:.0f}", at_most_every=300.0)

    for now, reason in ((0.0, "A"), (100.0, "B"), (200.0, "A"), (299.0, "A"), (300.0, "A"), (399.0, "B")):
        record(reason, str(now))
    await recorder.flush()
    assert client.notes == ["A at 0", "B at 100", "A at 300"]
    assert client.patches == 0


async def test_event_with_interval_does_not_use_allowance_of_its_object() -> None:
    client = NotesClient()
    recorder = EventRecorder(
        cast("Client", client), "example.com/tests", "here", limits=EventLimits(burst=1, refill=1e9)
    )
    regarded = {"metadata": {"name": "a"}}
    recorder.event(regarded, "Normal", "A", "with interval", at_most_every=300.0)
    recorder.event(regarded, "Normal", "B", "without interval")
    recorder.event(regarded, "Normal", "C", "with interval too", at_most_every=300.0)
    await recorder.flush()
    assert client.notes == ["with interval", "without interval", "with interval too"]
    assert recorder.dropped == {}


async def test_events_that_take_too_long_are_dropped_at_the_end_of_the_process() -> None:
    client = NotesClient()

    async def create_first(_: Any, event: dict[str, Any]) -> None:
        client.notes.append(event["note"])
        if len(client.notes) > 1:
            await asyncio.Event().wait()

    client.create = create_first
    recorder = EventRecorder(
        cast("Client", client), "example.com/tests", "here", limits=EventLimits(flush=0.01)
    )
    for reason in ("A", "B", "C"):
        recorder.event({"metadata": {"name": "a"}}, "Normal", reason, reason)
    await recorder.flush()
    assert client.notes == ["A", "B"]
    assert recorder.dropped == {"process ended": 1}
