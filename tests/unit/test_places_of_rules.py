"""ARCHITECTURE.md says where each rule is: each of these functions exists."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PLACES: Final = re.findall(
    r"^\| [^|]+ \| `(\S+)\.py: (\S+)` \|$", (REPOSITORY / "ARCHITECTURE.md").read_text(), re.MULTILINE
)
"""Paths without suffix, and names in these modules."""


def test_table_of_rules_is_found() -> None:
    assert len(PLACES) >= 15


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_function_that_the_table_of_rules_names_exists(path: str, name: str) -> None:
    module = import_module(path.removesuffix("/__init__").replace("/", "."))
    assert module.__file__ == str(REPOSITORY / f"{path}.py")
    assert reduce(getattr, name.split("."), module)
