"""A manager that is killed, at whatever await, leaves nothing that the next does not bring to the same end.

A few kills of each history are played here, drawn from a seed; ``hack/kills`` plays all of them.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.installation import Installation
from tests.kills import place
from tests.kills.histories import HISTORIES
from tests.kills.plays import History

pytestmark = pytest.mark.xdist_group("kills")
"""One worker plays all of them: two managers of one cluster would see each other's queues."""

SEED = 20261122
SWITCHES = 3
"""How many kills between requests are played."""


@pytest.fixture(scope="module")
def installation(installation_with: Callable[..., Installation]) -> Installation:
    made = installation_with("kills", place.CONFIG)
    place.take_over(made)
    return made


async def problems(
    history: History, installation: Installation, api_group: str, folder: Path, *, sample: int, switches: bool
) -> list[str]:
    """What went otherwise in some plays with a kill than in the one without."""
    chance = random.Random(f"{SEED} {history}")  # noqa: S311 a seeded choice of awaits, no secret
    found: list[str] = []
    async with place.theatre(installation, api_group, folder) as theatre:
        like = await theatre.undisturbed(history, switches=switches)
        assert like.broken == []
        for number in sorted(chance.sample(range(1, len(like.awaits) + 1), sample)):
            found += (await theatre.killed(history, number, like, switches=switches)).problems
    return found


@pytest.mark.parametrize("history", HISTORIES, ids=str)
async def test_a_manager_may_die_at_any_await(
    history: History, installation: Installation, api_group: str, tmp_path: Path
) -> None:
    sample = history.sample
    assert await problems(history, installation, api_group, tmp_path, sample=sample, switches=False) == []


async def test_a_manager_may_die_between_two_requests(
    installation: Installation, api_group: str, tmp_path: Path
) -> None:
    first = HISTORIES[0]
    assert await problems(first, installation, api_group, tmp_path, sample=SWITCHES, switches=True) == []
