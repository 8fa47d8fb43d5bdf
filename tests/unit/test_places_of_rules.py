"""The functions that ARCHITECTURE.md names exist: in the table of rules, and in the steps of a Job."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (REPOSITORY / "ARCHITECTURE.md").read_text()
RULES: Final = re.findall(r"^\| [^|]+ \| `(\S+)\.py: (\S+)` \|$", TEXT, re.MULTILINE)
"""Paths without suffix, and names in these modules."""

STEPS_OF_A_JOB: Final = re.findall(
    r"^\d+\. `(\S+)\.py: (\S+)`", TEXT.partition("\n## From apply to admission\n")[2], re.MULTILINE
)
ROOTS: Final = ("api/", "webhooks/")
"""Folders of the repository that packages are in."""


def test_table_of_rules_is_not_empty() -> None:
    assert len(RULES) >= 15


@pytest.mark.parametrize(("path", "name"), RULES)
def test_function_in_table_of_rules_exists(path: str, name: str) -> None:
    assert_exists(path, name)


def test_job_has_at_most_twelve_steps() -> None:
    assert 8 <= len(STEPS_OF_A_JOB) <= 12


@pytest.mark.parametrize(("path", "name"), STEPS_OF_A_JOB)
def test_function_in_steps_of_job_exists(path: str, name: str) -> None:
    assert_exists(path, name)


def assert_exists(path: str, name: str) -> None:
    root = next((root for root in ROOTS if path.startswith(root)), "")
    module = import_module(path.removeprefix(root).removesuffix("/__init__").replace("/", "."))
    assert module.__file__ == str(REPOSITORY / f"{path}.py")
    assert reduce(getattr, name.split("."), module)
