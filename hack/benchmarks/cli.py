"""The command line of `hack/bench`."""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.commands import BENCHMARKS, FAILURES, SHAPES, BenchmarkCommand
from benchmarks.core_speed import reference_cpu_s
from localcluster.cluster import to_stderr

_THROUGHPUT: Final = "throughput"
_DEFAULT_SHAPE: Final = "baseline"
_FILE_OPTION: Final = "--json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark. Return 1 if a figure misses its bound, 2 for wrong use."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(_shape_of(given)).parse_args(given)
    speed = {"before": reference_cpu_s()}
    try:
        result, passed = _run(options)
    except FAILURES as error:
        to_stderr(f"hack/bench {options.benchmark}: {error}")
        return 1
    except KeyboardInterrupt:
        to_stderr("interrupted")
        return 130
    speed["after"] = reference_cpu_s()
    line = json.dumps({"command": command_of(given), "reference_cpu_s": speed, **result})
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(line + "\n")
    print(line)
    return 0 if passed else 1


def command_of(arguments: Sequence[str]) -> str:
    """Return the command with these arguments, without the file for the result."""
    kept: list[str] = []
    is_file = False
    for argument in arguments:
        if not (is_file or argument == _FILE_OPTION or argument.startswith(f"{_FILE_OPTION}=")):
            kept.append(argument)
        is_file = argument == _FILE_OPTION
    return shlex.join(["hack/bench", *kept])


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    if options.benchmark != _THROUGHPUT:
        return BENCHMARKS[options.benchmark].run(options)
    figures, passed = SHAPES[options.shape].run(options)
    head = {"benchmark": _THROUGHPUT, "shape": options.shape}
    # The figures of a shape that is also a benchmark have the name of the benchmark.
    return {**head, **figures, **head}, passed


def _shape_of(arguments: Sequence[str]) -> str:
    """Return the shape in the arguments, or the default. The complete parser reports wrong values."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--shape", nargs="?")
    shape = parser.parse_known_args(arguments)[0].shape
    return shape if shape in SHAPES else _DEFAULT_SHAPE


def _parser(shape: str) -> argparse.ArgumentParser:
    """Return the parser of all benchmarks; `throughput` has the options of one shape."""
    parser = argparse.ArgumentParser(
        prog="hack/bench", description="Benchmarks on a control plane of their own."
    )
    benchmarks = parser.add_subparsers(dest="benchmark", required=True)
    for name, command in BENCHMARKS.items():
        _add_options(benchmarks.add_parser(name, help=command.help), command)
    shapes = benchmarks.add_parser(
        _THROUGHPUT,
        help="run a load as fast as possible; each shape of the load has its own options",
        description=f"--shape {shape}: {SHAPES[shape].help}.",
        # The shape must be known before the other options.
        allow_abbrev=False,
    )
    shapes.add_argument(
        "--shape",
        choices=tuple(SHAPES),
        default=_DEFAULT_SHAPE,
        help=f"the load (default {_DEFAULT_SHAPE}). The other options belong to it: see "
        "`hack/bench throughput --shape NAME --help`",
    )
    _add_options(shapes, SHAPES[shape])
    return parser


def _add_options(parser: argparse.ArgumentParser, command: BenchmarkCommand) -> None:
    parser.add_argument(_FILE_OPTION, type=Path, metavar="FILE", help="also write the result to this file")
    command.add_options(parser)


if __name__ == "__main__":
    # Also `timeout` and a stopped CI job leave no cluster behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
