"""A manager that is killed, at whatever await, leaves nothing that the next does not bring to the same end.

A few kills of each history are played here, drawn from a seed; ``hack/kills`` plays all of them.
"""

import gc
import random
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from localcluster.installation import Installation
from tests.kills import place
from tests.kills.histories import HISTORIES
from tests.kills.mortal import Death
from tests.kills.plays import End, History, Theatre, kills_of

SEED = 20261122
SWITCHES = 2
"""How many kills between requests are played."""
LATE = 1
"""How many kills of each history are played of which a write arrives late."""


@pytest.fixture(autouse=True)
def bury() -> Generator[None]:
    """Close the connections of killed processes, so that no later test reports them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def installation(installation_of_file: Callable[..., Installation]) -> Installation:
    made = installation_of_file("kills", place.CONFIG)
    place.take_over(made)
    return made


@pytest.mark.parametrize("history", HISTORIES, ids=str)
async def test_history_ends_alike_when_the_manager_is_killed_at_any_await(
    history: History, installation: Installation, api_group: str, tmp_path: Path
) -> None:
    async with place.theatre(installation, api_group, tmp_path) as theatre:
        like = await theatre.undisturbed(history)
        assert like.broken == []
        found = await problems(theatre, history, like, Death.AT_REQUEST, history.sample)
        found += await problems(theatre, history, like, Death.WITH_LATE_WRITE, LATE)
    assert found == []


async def test_history_ends_alike_when_the_manager_is_killed_between_two_requests(
    installation: Installation, api_group: str, tmp_path: Path
) -> None:
    async with place.theatre(installation, api_group, tmp_path) as theatre:
        like = await theatre.undisturbed(HISTORIES[0], Death.AT_SWITCH)
        assert await problems(theatre, HISTORIES[0], like, Death.AT_SWITCH, SWITCHES) == []


async def problems(theatre: Theatre, history: History, like: End, death: Death, sample: int) -> list[str]:
    """What went otherwise in some plays with a kill than in the one without."""
    chance = random.Random(f"{SEED} {history} {death}")  # noqa: S311 a seeded choice of awaits, no secret
    numbers = sorted(chance.sample(kills_of(like, death), sample))
    return [text for one in numbers for text in (await theatre.killed(history, one, like, death)).problems]
