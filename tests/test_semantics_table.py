"""The index of the specified behaviour, semantics.yaml: the tests that it names exist and run."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.controlplane.play import cases
from tests.scenarios.test_scenarios import FOLDER as SCENARIOS

FOLDER: Final = Path(__file__).parent
_INDEX: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "semantics.yaml").read_text())
RULES: Final[dict[str, str]] = _INDEX["rules"]
TABLE: Final[dict[str, dict[Any, dict[str, Any]]]] = {
    name: rows for name, rows in _INDEX.items() if name != "rules"
}
TEST_OF_RULE: Final = re.compile(r"^\s*(?:async )?def test_([a-e]\d+|e)_", re.MULTILINE)
STORIES: Final = ("waking", "nominate", "flavors", "preemption", "fair", "settings")
NEVER_RUN: Final = {"skip", "skipif", "xfail"}


class Shown(NamedTuple):
    """A test that the table names."""

    file: str
    name: str


def shown() -> Iterator[Shown]:
    for rows in TABLE.values():
        for row in rows.values():
            for file, names in row.get("shown by", {}).items():
                yield from (Shown(file, name) for name in names)


def collected(file: str) -> set[str]:
    """What pytest runs of a file: titles of scenarios, names of stories, tests that are not left out."""
    path = FOLDER / file
    if path.parent == SCENARIOS:
        return {one["title"] for one in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if one}
    if path.suffix == ".yaml":
        assert path.stem in STORIES, f"no test plays {file}"
        return {case.name for case in cases(path.name)}
    module = importlib.import_module(f"tests.{file.removesuffix('.py').replace('/', '.')}")
    return {
        name for name in vars(module) if name.startswith("test_") and not _is_left_out(getattr(module, name))
    }


def _is_left_out(test: Any) -> bool:
    return bool(NEVER_RUN & {mark.name for mark in getattr(test, "pytestmark", [])})


def test_every_story_and_every_pitfall_has_its_row() -> None:
    assert list(TABLE["stories"]) == [f"C{number}" for number in range(1, 9)]
    assert list(TABLE["pitfalls"]) == list(range(1, 36))


def test_what_no_test_shows_comes_with_its_feature() -> None:
    rows = {row: of for rows in TABLE.values() for row, of in rows.items()}
    without = {row: of.get("comes with") for row, of in rows.items() if not of.get("shown by")}
    topology = dict.fromkeys(("places of pods", "topologyAssignment", 32), "topology")
    assert without == {**topology, 33: "MultiKueue"}


@pytest.mark.parametrize("file", sorted({one.file for one in shown()}))
def test_every_test_of_the_table_runs(file: str) -> None:
    named = {one.name for one in shown() if one.file == file}
    assert sorted(named - collected(file)) == []


def rules_with_tests() -> set[str]:
    """The identifiers of rules with which names of test functions begin."""
    return {found for path in FOLDER.rglob("test_*.py") for found in TEST_OF_RULE.findall(path.read_text())}


def test_every_rule_has_a_test_that_begins_with_its_identifier() -> None:
    assert sorted(RULES.keys() - rules_with_tests()) == []


def test_every_identifier_of_a_rule_in_a_test_name_is_in_the_table() -> None:
    assert sorted(rules_with_tests() - RULES.keys()) == []


def test_rules_are_one_for_each_identifier_in_order() -> None:
    sections = {"a": range(1, 7), "b": range(7, 13), "c": range(13, 18), "d": range(18, 25)}
    assert list(RULES) == [f"{letter}{number}" for letter in sections for number in sections[letter]] + ["e"]
    assert all(text.endswith(".") for text in RULES.values())
