"""Every story of a tenant ends as its docstring says, while the law is sampled."""

from collections.abc import Callable, Iterable

import pytest

from tests.adversary.conftest import OpenArena
from tests.adversary.stories import DEFINITIONS, STORIES
from tests.controlplane.stage import run_concurrently


@pytest.mark.parametrize("chapter", STORIES)
async def test_stories_of_a_chapter_end_as_described(
    open_arena: OpenArena, definitions: Callable[[Iterable[str]], None], chapter: str
) -> None:
    definitions(DEFINITIONS.get(chapter, ()))
    async with open_arena() as arena:
        stories = {one.__name__: one(arena, f"s{number:02}") for number, one in enumerate(STORIES[chapter])}
        await run_concurrently(**stories)
