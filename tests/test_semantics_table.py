"""semantics.yaml, the index of the specified behaviour, names tests that exist and run."""

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
_INDEX: Final[dict[str, Any]] = yaml.load((FOLDER / "semantics.yaml").read_text(), Loader=yaml.CSafeLoader)
RULES: Final[dict[str, str]] = _INDEX["rules"]
TABLE: Final[dict[str, dict[Any, dict[str, Any]]]] = {
    name: rows for name, rows in _INDEX.items() if name != "rules"
}
TEST_OF_RULE: Final = re.compile(r"^\s*(?:async )?def test_([a-e]\d+|e)_", re.MULTILINE)
STORIES: Final = ("waking", "nominate", "flavors", "preemption", "fair", "settings")
NEVER_RUN: Final = {"skip", "skipif", "xfail"}


class NamedTest(NamedTuple):
    """A test that the table names."""

    file: str
    name: str


def named_tests() -> Iterator[NamedTest]:
    for rows in TABLE.values():
        for row in rows.values():
            for file, names in row.get("shown by", {}).items():
                yield from (NamedTest(file, name) for name in names)


def collected(file: str) -> set[str]:
    """Return what pytest runs of a file: titles of scenarios, names of stories, or unskipped tests."""
    path = FOLDER / file
    if path.parent == SCENARIOS:
        return {story["title"] for story in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if story}
    if path.suffix == ".yaml":
        assert path.stem in STORIES, f"no test plays {file}"
        return {case.name for case in cases(path.name)}
    module = importlib.import_module(f"tests.{file.removesuffix('.py').replace('/', '.')}")
    return {
        name for name in vars(module) if name.startswith("test_") and not _is_skipped(getattr(module, name))
    }


def _is_skipped(test: Any) -> bool:
    return bool(NEVER_RUN & {mark.name for mark in getattr(test, "pytestmark", [])})


def test_table_has_a_row_for_every_story_and_pitfall() -> None:
    assert list(TABLE["stories"]) == [f"C{number}" for number in range(1, 9)]
    assert list(TABLE["pitfalls"]) == list(range(1, 36))


def test_rows_without_tests_name_their_missing_feature() -> None:
    rows = {name: row for rows in TABLE.values() for name, row in rows.items()}
    missing_features = {name: row.get("comes with") for name, row in rows.items() if not row.get("shown by")}
    topology = dict.fromkeys(("places of pods", "topologyAssignment", 32), "topology")
    assert missing_features == {**topology, 33: "MultiKueue"}


@pytest.mark.parametrize("file", sorted({test.file for test in named_tests()}))
def test_tests_named_in_table_exist_and_run(file: str) -> None:
    expected = {test.name for test in named_tests() if test.file == file}
    assert sorted(expected - collected(file)) == []


def rules_with_tests() -> set[str]:
    """Return the identifiers of rules that names of test functions begin with."""
    return {rule for path in FOLDER.rglob("test_*.py") for rule in TEST_OF_RULE.findall(path.read_text())}


def test_every_rule_has_a_test_with_its_identifier_as_prefix() -> None:
    assert sorted(RULES.keys() - rules_with_tests()) == []


def test_rule_identifiers_in_test_names_are_in_table() -> None:
    assert sorted(rules_with_tests() - RULES.keys()) == []


def test_rules_are_sorted_by_identifier_and_end_with_full_stop() -> None:
    sections = {"a": range(1, 7), "b": range(7, 13), "c": range(13, 18), "d": range(18, 25)}
    assert list(RULES) == [f"{letter}{number}" for letter in sections for number in sections[letter]] + ["e"]
    assert all(text.endswith(".") for text in RULES.values())
