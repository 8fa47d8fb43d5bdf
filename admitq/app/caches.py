"""Waiting for the first lists of watches, and the readiness check of them."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from admitq.runtime.watcher import Watcher
from admitq.serving.health import Check


async def wait_for_first_parts(watchers: Sequence[Watcher], seconds: float) -> None:
    """Wait until every watcher's first list is complete, or the first part of it if the list has two parts.

    Raises:
        TimeoutError: no object of an incomplete list came for this many seconds.
    """
    await _wait_while_objects_come([one.first_part_synced.wait() for one in watchers], watchers, seconds)


async def wait_until_synced(watchers: Sequence[Watcher], seconds: float) -> None:
    """Wait until every watcher's first list is complete.

    Raises:
        TimeoutError: no object of an incomplete list came for this many seconds.
    """
    await _wait_while_objects_come([one.synced.wait() for one in watchers], watchers, seconds)


async def _wait_while_objects_come(
    events: Sequence[Coroutine[Any, Any, object]], watchers: Sequence[Watcher], seconds: float
) -> None:
    """A list takes as long as it has objects. A process that gave up would have to read all of them again."""
    complete = asyncio.gather(*events)
    try:
        while not complete.done():
            patience = seconds - max(watcher.stalled_for() for watcher in watchers)
            if patience <= 0:
                raise TimeoutError(f"no objects came for {seconds:g} s: {', '.join(_unread(watchers))}")
            await asyncio.wait([complete], timeout=patience)
    finally:
        complete.cancel()


def _unread(watchers: Sequence[Watcher]) -> list[str]:
    return [str(watcher.resource) for watcher in watchers if not watcher.synced.is_set()]


def check_caches(watchers: Sequence[Watcher]) -> Check:
    """Return the readiness check that names the resources without a complete list."""

    async def check() -> str | None:
        waiting = _unread(watchers)
        return f"not read yet: {', '.join(waiting)}" if waiting else None

    return check
