"""Waiting for a condition: the deadline, and what the error says."""

import asyncio

import pytest

from localcluster.waiting import eventually


async def test_error_describes_how_the_last_values_differ() -> None:
    def same() -> bool:
        assert {"w1", "w2"} == {"w1", "w3"}
        return True

    with pytest.raises(AssertionError, match="not within 0 s: equal names; last failure") as raised:
        await eventually(same, timeout=0, what="equal names")
    assert "Extra items in the left set" in str(raised.value)


async def test_failures_before_the_deadline_do_not_describe_differences() -> None:
    messages: list[str] = []

    def same() -> bool:
        try:
            assert {"w1", "w2"} == {"w1", "w3"}
        except AssertionError as error:
            messages.append(str(error))
        return len(messages) >= 3

    await asyncio.gather(*(eventually(same, interval=0.001) for _ in range(2)))
    assert not any("Extra items" in message for message in messages)
    with pytest.raises(AssertionError, match="Extra items"):
        assert {"w1"} == {"w2"}
