"""Loads with a timeout, and tasks that run beside a load."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from localcluster.cluster import to_stderr


@asynccontextmanager
async def tasks_beside(*endless: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run tasks beside the block, and cancel them at its end.

    Raises:
        Exception: the first error of a task or of the block, which is not an exception group. A task that
            fails ends the block.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in endless]
            yield
            for task in tasks:
                task.cancel()
    except ExceptionGroup as errors:
        raise _first_error(errors) from None


@asynccontextmanager
async def stopped_after(seconds: float) -> AsyncGenerator[None]:
    """Cancel the block after a time, and report that on standard error. Code after the block then runs."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        to_stderr(f"stopped without success after {seconds:.0f} s")


def _first_error(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group of tasks, which may contain groups."""
    first = errors.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first
