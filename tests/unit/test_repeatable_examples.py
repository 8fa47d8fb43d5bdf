"""Hypothesis draws the same examples in each worker of a run, whatever modules the worker has imported."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAW = """
import hypothesis
import tests.conftest
from hypothesis import strategies as st

drawn = []

@hypothesis.settings(max_examples=300)
@hypothesis.given(st.integers(0, 2**20), st.text())
def draw(number, text):
    drawn.append((number, text))

draw()
print(ascii(drawn))
"""


def drawn_after(imports: str, profile: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", imports + DRAW],
        cwd=ROOT,
        env={"HYPOTHESIS_PROFILE": profile, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_examples_are_the_same_whatever_modules_were_imported() -> None:
    without, with_core = (drawn_after(each, "repeatable") for each in ("", "import admitq.core.state"))
    assert without == with_core


@pytest.mark.parametrize("imports", ["", "import admitq.core.state"])
def test_profile_explore_draws_other_examples(imports: str) -> None:
    assert drawn_after(imports, "explore") != drawn_after(imports, "repeatable")
