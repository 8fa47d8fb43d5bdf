"""A history ends alike when its manager is killed at any await and another manager continues.

This module plays a few kills of each history, drawn from a seed; ``hack/kills`` plays all of them.
"""

import gc
import random
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from localcluster.installation import Installation
from tests.kills import runner
from tests.kills.histories import HISTORIES
from tests.kills.killable_manager import KillPoint
from tests.kills.plays import End, History, HistoryRunner, kills_of

SEED = 20261122
SWITCHES = 2
"""The number of kills between requests."""
LATE = 1
"""The number of kills of each history after which a write is made late."""


@pytest.fixture(autouse=True)
def collect_connections() -> Generator[None]:
    """Close the connections of killed processes, so that no later test reports them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def installation(installation_of_file: Callable[..., Installation]) -> Installation:
    installed = installation_of_file("kills", runner.CONFIG)
    runner.stop_chart_manager(installed)
    return installed


@pytest.mark.parametrize("history", HISTORIES, ids=str)
async def test_history_ends_alike_when_the_manager_is_killed_at_any_await(
    history: History, installation: Installation, api_group: str, tmp_path: Path
) -> None:
    async with runner.history_runner(installation, api_group, tmp_path) as history_runner:
        reference = await history_runner.play_without_kill(history)
        assert reference.violations == []
        found = await problems(history_runner, history, reference, KillPoint.AT_REQUEST, history.sample)
        found += await problems(history_runner, history, reference, KillPoint.WITH_LATE_WRITE, LATE)
    assert found == []


async def test_history_ends_alike_when_the_manager_is_killed_between_two_requests(
    installation: Installation, api_group: str, tmp_path: Path
) -> None:
    async with runner.history_runner(installation, api_group, tmp_path) as history_runner:
        reference = await history_runner.play_without_kill(HISTORIES[0], KillPoint.AT_SWITCH)
        assert await problems(history_runner, HISTORIES[0], reference, KillPoint.AT_SWITCH, SWITCHES) == []


async def problems(
    history_runner: HistoryRunner, history: History, reference: End, kill_point: KillPoint, sample: int
) -> list[str]:
    """The differences of some plays with a kill from the play without."""
    chance = random.Random(f"{SEED} {history} {kill_point}")  # noqa: S311 a seeded choice, no secret
    numbers = sorted(chance.sample(kills_of(reference, kill_point), sample))
    return [
        text
        for number in numbers
        for text in (await history_runner.play_with_kill(history, number, reference, kill_point)).problems
    ]
