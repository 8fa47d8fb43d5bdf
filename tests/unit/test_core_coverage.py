"""The unit tests of the core and the scenarios reach every line and branch of the core.

They run once more, in one process and in a fixed order. Tests with drawn inputs (Hypothesis, seeds) do not
count, because their names do not state what they reach. Scenarios with restarts before every step are left
out: they are slow and reach nothing else.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from coverage import Coverage

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = REPOSITORY / "pyproject.toml"
TESTS = ("tests/unit/core", "tests/scenarios")
EXCLUDED = ("-m", "not hypothesis and not drawn", "-k", "not restarts_and_repeated")
PLUGINS_OFF = (
    "--noconftest",
    *(word for name in ("cacheprovider", "randomly", "xdist") for word in ("-p", f"no:{name}")),
)


def _run(data: Path) -> None:
    command = ["coverage", "run", f"--rcfile={SETTINGS}", f"--data-file={data}", "-m", "pytest", "-q"]
    result = subprocess.run(
        [sys.executable, "-m", *command, *PLUGINS_OFF, *EXCLUDED, *TESTS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _files(data: Path) -> dict[str, Any]:
    """Return the coverage report of each file."""
    report = data.with_suffix(".json")
    coverage = Coverage(data_file=str(data), config_file=str(SETTINGS))
    coverage.load()
    coverage.json_report(outfile=str(report))
    return orjson.loads(report.read_bytes())["files"]


def _not_reached(files: dict[str, Any]) -> list[str]:
    """Return lines and branches that no test reaches, as ``file:line`` and ``file:line->line``.

    A negative line stands for the end of the function.
    """
    lines = (f"{name}:{line}" for name, report in files.items() for line in report["missing_lines"])
    branches = (
        f"{name}:{line}->{to if to > 0 else 'exit'}"
        for name, report in files.items()
        for line, to in report["missing_branches"]
    )
    return [*lines, *branches]


@pytest.mark.release
@pytest.mark.timeout(900)
def test_unit_tests_and_scenarios_reach_every_line_and_branch_of_core(tmp_path: Path) -> None:
    data = tmp_path / "coverage"
    _run(data)
    files = _files(data)
    core = REPOSITORY / "admitq" / "core"
    assert set(files) == {str(path.relative_to(REPOSITORY)) for path in core.rglob("*.py")}
    not_reached = _not_reached(files)
    assert not not_reached, "\n".join(["no test reaches", *not_reached])
