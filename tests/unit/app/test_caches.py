"""Waiting for the first lists of watches."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from admitq.app.caches import wait_for_first_parts, wait_until_synced
from admitq.runtime.resources import JOBS, Resource
from admitq.runtime.watcher import Watcher

SECONDS = 1.0
Wait = Callable[[Sequence[Watcher], float], Awaitable[None]]


@dataclass
class Listing:
    """A watcher with given seconds since the last object; the list is complete when they are used up."""

    stalled: list[float]
    resource: Resource = JOBS
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def first_part_synced(self) -> asyncio.Event:
        """A list of one part."""
        return self.synced

    def stalled_for(self) -> float:
        """The next of the given times."""
        if not self.stalled:
            self.synced.set()
            return 0.0
        return self.stalled.pop(0)


def watchers(*listings: Listing) -> Sequence[Watcher]:
    return cast("list[Watcher]", [*listings])


@pytest.mark.parametrize("wait", [wait_for_first_parts, wait_until_synced])
async def test_list_may_take_long_while_objects_come(wait: Wait) -> None:
    listing = Listing([SECONDS - 0.001] * 3)
    await wait(watchers(listing), SECONDS)
    assert listing.synced.is_set()


@pytest.mark.parametrize("wait", [wait_for_first_parts, wait_until_synced])
async def test_list_without_objects_ends_the_wait_and_is_named(wait: Wait) -> None:
    complete = Listing([])
    complete.stalled_for()
    with pytest.raises(TimeoutError, match=r"no objects came for 1 s: jobs\.batch$"):
        await wait(watchers(complete, Listing([SECONDS - 0.001, SECONDS])), SECONDS)
