"""Loads of benchmarks with a timeout, and tasks beside them."""

import asyncio

import pytest

from benchmarks.bounded_tasks import stopped_after, tasks_beside


class LoadError(Exception):
    """An error of a test."""


async def fail(text: str) -> None:
    raise LoadError(text)


async def wait_for_ever(ends: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ends.append(name)


async def test_tasks_run_until_the_end_of_the_block() -> None:
    ends: list[str] = []
    async with tasks_beside(wait_for_ever(ends, "a"), wait_for_ever(ends, "b")):
        await asyncio.sleep(0)
        assert ends == []
    assert sorted(ends) == ["a", "b"]


async def test_failed_task_ends_the_block_and_is_raised_without_its_group() -> None:
    ends: list[str] = []
    with pytest.raises(LoadError, match="beside"):
        async with tasks_beside(fail("beside"), wait_for_ever(ends, "task")):
            await wait_for_ever(ends, "block")
    assert sorted(ends) == ["block", "task"]


async def test_error_of_group_in_the_block_is_raised_without_its_groups() -> None:
    ends: list[str] = []

    async def run_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("inside"))
            await wait_for_ever(ends, "block")

    with pytest.raises(LoadError, match="inside"):
        async with tasks_beside(wait_for_ever(ends, "task")):
            await run_group()
    assert sorted(ends) == ["block", "task"]


async def test_block_is_stopped_after_its_time_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    ends: list[str] = []
    async with stopped_after(0):
        await wait_for_ever(ends, "block")
    assert ends == ["block"]
    assert capsys.readouterr().err == "stopped without success after 0 s\n"


async def test_block_that_ends_in_time_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    async with stopped_after(600):
        await asyncio.sleep(0)
    assert capsys.readouterr().err == ""


async def test_other_timeouts_in_the_block_are_raised() -> None:
    with pytest.raises(TimeoutError, match="another"):
        async with stopped_after(600):
            raise TimeoutError("another")
