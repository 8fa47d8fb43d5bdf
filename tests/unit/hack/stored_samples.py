"""Results of small loads, with which tests fill the generated parts of docs/performance.md."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.stored_results import StoredResults, parse_result

FOLDER = Path(__file__).with_name("results")


@cache
def sample_results() -> StoredResults:
    """One result of each benchmark. They count as results of full loads."""
    lines = [line for file in sorted(FOLDER.glob("*.json")) for line in file.read_text().splitlines()]
    results = [parse_result(_as_full_load(line), "sample") for line in lines]
    # Two loads of one form: a run of the second takes too long for a sample.
    baseline = next(result for result in results if result.name == "baseline")
    large = parse_result(json.dumps({**baseline.figures, "shape": "large"}), "sample")
    return {result.name: result for result in [*results, large]}


def _as_full_load(line: str) -> str:
    figures: dict[str, Any] = json.loads(line)
    return json.dumps({**figures, "scale": 1} if "scale" in figures else figures)
