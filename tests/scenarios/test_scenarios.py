"""Play every scenario of this folder. A file contains several scenarios, each with its own world."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from admitq.core.state import AdmissionState
from admitq_api.json_objects import JsonObject
from tests.scenarios.expectations import expect
from tests.scenarios.objects import Keys, StoryError, settings
from tests.scenarios.story import Story, make_world

FOLDER = Path(__file__).parent


def scenarios() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for scenario in yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            if scenario is not None:
                yield pytest.param(scenario, id=f"{path.stem}: {scenario['title']}")


def play(scenario: JsonObject, *, disturbed: bool = False) -> None:
    """Play one scenario.

    Args:
        scenario: a document of a file.
        disturbed: whether to restart from a dump and to repeat all observations before every step. This must
            not change the result.

    Raises:
        StoryError: the scenario is not valid.
        AssertionError: an expectation is not met.
    """
    keys = Keys(scenario, "scenario")
    keys.take("title")
    story = Story(AdmissionState(settings(keys.take("settings", {}))))
    make_world(story, keys.take("world", {}))
    steps = keys.take("story")
    keys.end()
    for number, step in enumerate(steps, 1):
        if disturbed:
            story.restart()
            story.observe_again()
        try:
            ((name, value),) = cast("JsonObject", {step: None} if isinstance(step, str) else step).items()
            if name == "expect":
                expect(story, value)
            else:
                story.step(name, value)
        except AssertionError as error:
            error.add_note(f"in step {number}: {step}")
            raise
        except (KeyError, ValueError, TypeError) as error:
            raise StoryError(f"step {number}: {step}: {error!r}") from error


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_scenario_has_expected_decisions(scenario: Mapping[str, Any]) -> None:
    play(scenario)


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_restarts_and_repeated_observations_do_not_change_decisions(scenario: Mapping[str, Any]) -> None:
    play(scenario, disturbed=True)
