"""Arenas beside the admitq that all tests of a run share."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from localcluster.installation import Installation
from tests.adversary.arena import Arena, arena
from tests.controlplane.conftest import FreshStage, fresh_stage

__all__ = ["fresh_stage"]

OpenArena = Callable[[], AbstractAsyncContextManager[Arena]]


@pytest.fixture
def open_arena(fresh_stage: FreshStage, admitq_running: Installation) -> OpenArena:
    """A function that opens a fresh arena in which the law is sampled."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Arena]:
        async with (
            fresh_stage() as stage,
            fresh_stage() as other,
            arena(stage, other, admitq_running) as made,
        ):
            yield made

    return opened
