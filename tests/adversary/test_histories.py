"""Random histories of a tenant: never more runs than is reserved, and all quota is released at the end."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.adversary.arena import Arena
from tests.adversary.conftest import OpenArena
from tests.adversary.histories import History, histories, viewed
from tests.adversary.moves import SUBJECTS, Move, acts_of, owner_of

EXAMPLES: Final = int(os.environ.get("ADMITQ_EXAMPLES", "1"))
"""How many sets of random histories are played. HYPOTHESIS_PROFILE=explore draws others in each run."""
HISTORIES_OF_AN_EXAMPLE: Final = 8
"""The number of concurrent histories of an example: histories mostly wait."""

FOUND: Final[Sequence[tuple[Move, ...]]] = ()
"""Histories that broke the law before, as a failing test prints them."""

SETS_OF_HISTORIES: Final = st.lists(
    histories(least=10, most=14), min_size=HISTORIES_OF_AN_EXAMPLE, max_size=HISTORIES_OF_AN_EXAMPLE
).filter(lambda drawn: len(set(drawn)) == len(drawn))
"""Different histories: the first example of Hypothesis, the simplest one many times over, does not count."""


async def play_all(open_arena: OpenArena, drawn: Sequence[Sequence[Move]]) -> None:
    """Play histories concurrently in an arena.

    Raises:
        AssertionError: quota was not released, or the law was broken; the message has the moves.
    """
    played: list[History] = []
    problems: list[str] = []
    try:
        async with open_arena() as arena:
            problems = await _play_in(arena, drawn, played)
    except AssertionError as error:
        problems = [
            *problems,
            str(error),
            *(str(one) for one in played if f"queue {one.queue}:" in str(error)),
        ]
    assert not problems, "\n".join(problems)


async def _play_in(arena: Arena, drawn: Sequence[Sequence[Move]], played: list[History]) -> list[str]:
    """Play histories, append them to ``played``, and return the problems."""
    async with viewed(arena) as view:
        played += [History(arena, view, f"h{number:02}") for number in range(len(drawn))]
        calls = (one.play(moves) for one, moves in zip(played, drawn, strict=True))
        ends = await asyncio.gather(*calls, return_exceptions=True)
    return [f"{end!r} in {one}" for one, end in zip(played, ends, strict=True) if end is not None]


def drawn_sets() -> list[Sequence[Sequence[Move]]]:
    """Sets of histories that Hypothesis draws. It does not play them: it would repeat failing ones."""
    drawn: list[Sequence[Sequence[Move]]] = []

    @settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    @given(SETS_OF_HISTORIES)
    def collect(one: Sequence[Sequence[Move]]) -> None:
        drawn.append(one)

    collect()
    return drawn


@pytest.mark.slow
@pytest.mark.timeout(300 * EXAMPLES)
async def test_random_histories_of_tenants_keep_the_law(open_arena: OpenArena) -> None:
    for drawn in drawn_sets():
        await play_all(open_arena, (*FOUND, *drawn))


def test_every_subject_has_either_a_create_act_or_an_owner() -> None:
    for subject in SUBJECTS:
        creatable = any(act.startswith("create") for act in acts_of(subject))
        assert creatable is (owner_of(subject) is None)


@settings(max_examples=20)
@given(moves=histories(least=10, most=14))
def test_printed_moves_evaluate_to_the_same_moves(moves: tuple[Move, ...]) -> None:
    assert all(eval(repr(one), {"Move": Move}) == one for one in moves)  # noqa: S307 our own text
