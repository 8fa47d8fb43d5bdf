"""Every row of the table of attempts ends as expected, while the law is sampled."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.runtime.errors import ApiError
from admitq_api.labels import DEFAULT_GROUP
from localcluster.waiting import eventually
from tests.adversary.arena import Arena
from tests.adversary.calls import (
    Allowed,
    Attempt,
    NoEffect,
    Path,
    Refused,
    Target,
    Undone,
    make,
    read,
    with_names,
)
from tests.adversary.conftest import OpenArena
from tests.adversary.scenes import OF_OTHER_PROJECTS, SCENES
from tests.adversary.table import CHAPTERS, TABLE
from tests.controlplane.kind_cases import load

CONCURRENT_SCENES = 6


@pytest.mark.parametrize("chapter", CHAPTERS)
async def test_attempts_of_a_chapter_end_as_the_table_expects(
    open_arena: OpenArena, definitions: Callable[[Iterable[str]], None], chapter: str
) -> None:
    if chapter == "kinds":
        kinds = (*OF_OTHER_PROJECTS, LEADER_WORKER_SET)
        definitions(name for one in kinds for name in load(one, DEFAULT_GROUP).definitions)

    def scene_of(row: Attempt) -> str:
        return row.scene

    by_scene = itertools.groupby(sorted(CHAPTERS[chapter], key=scene_of), scene_of)
    slots = asyncio.Semaphore(CONCURRENT_SCENES)

    async def play(scene: str, rows: Sequence[Attempt]) -> list[str]:
        async with slots:
            return await _play(arena, scene, rows)

    async with open_arena() as arena:
        results = await asyncio.gather(*(play(scene, list(rows)) for scene, rows in by_scene))
    problems = [line for lines in results for line in lines]
    assert not problems, f"{len(problems)} rows:\n" + "\n".join(problems)


def test_attempt_table_has_at_least_200_rows_with_unique_names() -> None:
    assert len(TABLE) >= 200
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert {row.scene for row in TABLE} <= set(SCENES)


async def _play(arena: Arena, scene: str, rows: Sequence[Attempt]) -> list[str]:
    """Try the rows of a scene one after the other, and return the problems."""
    problems: list[str] = []
    targets = None
    for number, row in enumerate(rows):
        if targets is None:
            targets = await SCENES[scene](arena, f"{scene}{number}")
        try:
            await _try(arena, row, targets[row.target])
        except (AssertionError, ApiError) as error:
            problems.append(f"- {row.name}: {error}")
            targets = None
    return problems


async def _try(arena: Arena, row: Attempt, target: Target) -> None:
    field = with_names(row.field, arena.admin.names)
    before = await _value(arena, target, field)
    refusal: ApiError | None = None
    try:
        await make(arena.tenant.client, arena.admin.client, target, row, field)
    except ApiError as error:
        refusal = error
    match row.end:
        case Refused(code, texts):
            assert refusal is not None, "the call was not refused"
            assert refusal.status == code, f"{refusal.status}, not {code}: {refusal.message}"
            missing = [text for text in texts if text not in refusal.message]
            assert not missing, f"{missing} not in {refusal.message!r}"
            assert await _value(arena, target, field) == before, "the refused call has changed the field"
        case NoEffect():
            assert refusal is None, refusal
            assert await _value(arena, target, field) == before
        case Allowed():
            assert refusal is None, refusal
            assert await _value(arena, target, field) == row.value
        case Undone():

            async def is_undone() -> bool:
                return await _value(arena, target, field) == before

            await eventually(is_undone, timeout=20, interval=0.05, what=f"{field} is {before!r} again")


async def _value(arena: Arena, target: Target, field: Path) -> Any:
    return read(await arena.admin.client.request_json("GET", target.path()), field)
