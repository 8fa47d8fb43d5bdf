"""Plays every scenario of this folder. A file holds several, each with its own world."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scenarios.story import play

FOLDER = Path(__file__).parent


def scenarios() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for scenario in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if scenario is not None:
                yield pytest.param(scenario, id=f"{path.stem}: {scenario['title']}")


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_scenario(scenario: Mapping[str, Any]) -> None:
    play(scenario)
