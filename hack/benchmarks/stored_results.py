"""The results of benchmarks from which `hack/generate` makes the tables and plots of docs/performance.md.

A file has the JSON lines that `hack/bench` printed. Each result has a name, such as ``throughput-baseline``.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.published_figures import PUBLISHED_RUNS

FOLDER: Final = Path("docs/performance/results")
"""The place of the results in the repository."""

OWN_MANAGER: Final = "admitq"

_NAMING_KEYS: Final = ("setting", "scale", "nodes", "node_cpu", "queue")
"""The keys of a result that its name contains, unless they have their usual values."""
_USUAL_VALUES: Final[Mapping[str, object]] = {"scale": 1, "nodes": 100, "node_cpu": 10, "queue": True}
_SHAPE: Final = "shape"
_UNSCALED_SHAPES: Final = frozenset(PUBLISHED_RUNS)
"""The shapes that are only shown in full: their names state the load."""
_SHAPES_WITH_LOAD: Final = frozenset({"pods"})
"""The shapes for which the page shows the number of Jobs and pods, so that their names need no scale."""


class StoredResultError(Exception):
    """A stored result cannot be used. The message names the file and the remedy."""


@dataclass(frozen=True)
class StoredResult:
    """One line that `hack/bench` printed.

    Attributes:
        name: the load shape, or the benchmark if it has none, and settings that are not the usual ones.
        command: the command that printed the line.
        figures: the parsed line.
    """

    name: str
    command: str
    figures: Mapping[str, Any]


StoredResults = Mapping[str, StoredResult]
"""Results by name."""


def read_results(folder: Path) -> StoredResults:
    """Return all results of a folder; none if it does not exist.

    Raises:
        StoredResultError: a line is no result, a result has another scale than 1, or two have one name.
    """
    results: dict[str, StoredResult] = {}
    for file in sorted(folder.glob("*.json*")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{file.name}, line {number}"
            result = parse_result(line, place)
            if result.name in results:
                raise StoredResultError(
                    f"{place}: there are two results {result.name}: keep the one that docs shall show"
                )
            results[result.name] = result
    return results


def parse_result(line: str, place: str) -> StoredResult:
    """Return the result of a line.

    Args:
        line: a line that `hack/bench` printed.
        place: where the line is, for messages.

    Raises:
        StoredResultError: see `read_results`.
    """
    try:
        figures = json.loads(line)
        name = str(figures.get(_SHAPE) or figures["benchmark"])
    except (ValueError, AttributeError, KeyError) as error:
        raise StoredResultError(f"{place}: not a line that hack/bench printed: {error!r}") from error
    if figures.get("manager", OWN_MANAGER) != OWN_MANAGER:
        raise StoredResultError(f"{place}: the result of another program: store only results of admitq")
    if name in _UNSCALED_SHAPES and figures.get("scale", 1) != 1:
        raise StoredResultError(f"{place}: the scale is not 1: run the benchmark without --scale")
    unusual = {} if name in _SHAPES_WITH_LOAD else _unusual(figures)
    parts = (f"{key}-{_text(value)}" for key, value in unusual.items())
    return StoredResult("-".join([name, *parts]), _command(figures), figures)


def seed_results(results: StoredResults) -> list[StoredResult]:
    """Return the results of the benchmark `seed`, with all its settings."""
    return [result for name, result in results.items() if name.split("-")[0] == "seed"]


def commands(results: Iterable[StoredResult]) -> str:
    """Return the commands that made some results, with the machine's speed, as a code block in Markdown."""
    return "\n".join(["```bash", *dict.fromkeys(map(_command_and_speed, results)), "```"])


def _command_and_speed(result: StoredResult) -> str:
    """Return the command. If the machine's speed before and after it is known, add both as a comment."""
    speed = result.figures.get("reference_cpu_s")
    if speed is None:
        return result.command
    return f"{result.command}  # reference_cpu_s: {speed['before']:.3f}, {speed['after']:.3f}"


def _unusual(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the naming keys that do not have their usual values."""
    present = {key: figures[key] for key in _NAMING_KEYS if key in figures}
    return {key: value for key, value in present.items() if value != _USUAL_VALUES.get(key)}


def _text(value: object) -> str:
    """Return a value as in a command: 10 and not 10.0, false and not False."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _command(figures: Mapping[str, Any]) -> str:
    """Return the command of a result. If the result does not contain it, derive it from the figures."""
    if "command" in figures:
        return str(figures["command"])
    shape = [f"--shape {figures[_SHAPE]}"] if _SHAPE in figures else []
    options = [
        "--no-queue" if key == "queue" else f"--{key.replace('_', '-')} {_text(value)}"
        for key, value in _unusual(figures).items()
    ]
    return " ".join(["hack/bench", str(figures["benchmark"]), *shape, *options])
