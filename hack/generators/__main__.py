"""`hack/generate [--check]`: write every generated file, or report files that are not up to date."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from generators.table import GENERATORS
from localcluster.folders import REPOSITORY

DIFF_LINES = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if `--check` finds a file that is not up to date."""
    parser = argparse.ArgumentParser(prog="hack/generate", description="Write every generated file.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not up to date"
    )
    check = parser.parse_args(arguments).check
    stale = 0
    # Later generators can read files of earlier ones, so the files of each are written before the next runs.
    for generator in GENERATORS:
        for path, text in generator().items():
            old = _read(REPOSITORY / path)
            if old == text:
                continue
            stale += 1
            if check:
                _show(path, old, text)
            else:
                (REPOSITORY / path).parent.mkdir(parents=True, exist_ok=True)
                (REPOSITORY / path).write_text(text, encoding="utf-8")
                print(f"wrote {path}")
    if check and stale:
        print(f"{stale} generated files are not up to date: run hack/generate and commit", file=sys.stderr)
    return int(check and stale > 0)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _show(path: Path, old: str, new: str) -> None:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), "as generated", lineterm="")
    for number, line in enumerate(lines):
        if number == DIFF_LINES:
            print("  …")
            break
        print(line[:200])


if __name__ == "__main__":
    sys.exit(main())
