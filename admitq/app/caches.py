"""Waiting for the first lists of watches, and the readiness check of them."""

import asyncio
from collections.abc import Sequence

from admitq.runtime.watcher import Watcher
from admitq.serving.health import Check


async def wait_for_first_parts(watchers: Sequence[Watcher], seconds: float) -> None:
    """Wait until every watcher's first list is complete, or the first part of it if the list has two parts.

    Raises:
        TimeoutError: a list is not complete after this many seconds.
    """
    async with asyncio.timeout(seconds):
        await asyncio.gather(*(watcher.first_part_synced.wait() for watcher in watchers))


async def wait_until_synced(watchers: Sequence[Watcher], seconds: float) -> None:
    """Wait until every watcher's first list is complete.

    Raises:
        TimeoutError: a list is not complete after this many seconds.
    """
    async with asyncio.timeout(seconds):
        await asyncio.gather(*(watcher.synced.wait() for watcher in watchers))


def check_caches(watchers: Sequence[Watcher]) -> Check:
    """Return the readiness check that names the resources without a complete list."""

    async def check() -> str | None:
        waiting = [str(watcher.resource) for watcher in watchers if not watcher.synced.is_set()]
        return f"not read yet: {', '.join(waiting)}" if waiting else None

    return check
