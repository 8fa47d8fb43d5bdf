"""Every line and every branch of the core is taken by some unit test of it or by a story.

They are run once more, in one process and in one order, and have to suffice without chance: histories that
are drawn, by hypothesis or from a seed, are left out, because no name tells what they reach. So are stories
played again from dumps, and the one of a thousand workloads, which are slow and take no way of their own.
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
NOT_NEEDED = ("-m", "not hypothesis and not drawn", "-k", "not restarts_and_repeated and not thousand")
ALONE = (
    "--noconftest",
    *(word for name in ("cacheprovider", "randomly", "xdist") for word in ("-p", f"no:{name}")),
)


def _run(data: Path) -> None:
    command = ["coverage", "run", f"--rcfile={SETTINGS}", f"--data-file={data}", "-m", "pytest", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *ALONE, *NOT_NEEDED, *TESTS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _files(data: Path) -> dict[str, Any]:
    """What is told of each file."""
    report = data.with_suffix(".json")
    coverage = Coverage(data_file=str(data), config_file=str(SETTINGS))
    coverage.load()
    coverage.json_report(outfile=str(report))
    return orjson.loads(report.read_bytes())["files"]


def _not_taken(files: dict[str, Any]) -> list[str]:
    """Lines and branches as ``file:line`` and ``file:line->line``; a negative line is the way out."""
    lines = (f"{name}:{line}" for name, of in files.items() for line in of["missing_lines"])
    branches = (
        f"{name}:{line}->{to if to > 0 else 'exit'}"
        for name, of in files.items()
        for line, to in of["missing_branches"]
    )
    return [*lines, *branches]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_line_and_branch_of_the_core_is_taken(tmp_path: Path) -> None:
    data = tmp_path / "coverage"
    _run(data)
    files = _files(data)
    core = REPOSITORY / "admitq" / "core"
    assert set(files) == {str(path.relative_to(REPOSITORY)) for path in core.rglob("*.py")}
    not_taken = _not_taken(files)
    assert not not_taken, "\n".join(["no test takes", *not_taken])
