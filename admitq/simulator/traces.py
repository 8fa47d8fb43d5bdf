"""Traces: recorded workloads from a CSV or from the Standard Workload Format.

The Parallel Workloads Archive uses the Standard Workload Format: 18 columns of numbers separated by blanks,
-1 for unknown values, and comments that begin with a semicolon. Jobs that never ran (without run time or
processors) are skipped and counted.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from admitq.manifests.documents import InputError, Place, Problem
from admitq.simulator.schema import Nanoseconds, QueueMapping, Trace, nanoseconds

SECOND: Final = 1_000_000_000

REQUESTS: Final = "requests."
"""The prefix of the columns with requests in a CSV."""

_COLUMNS: Final = ("submit_time", "queue", "priority", "pods", "run_time")
_ASKING: Final = ("queue", "priority", "pods")
_OPTIONAL: Final = frozenset({"priority", "pods"})


class Shape(NamedTuple):
    """The request of a workload of a trace. ``priority`` is a number, the name of a class, or empty."""

    queue: str
    priority: str
    pods: int
    requests: tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """A workload of a trace."""

    submitted: Nanoseconds
    shape: Shape
    run_time: Nanoseconds
    line: int


class RecordedTrace(NamedTuple):
    """The rows of a trace in the order of submission, and the number of jobs that never ran."""

    rows: list[Row]
    left_out: int


class _Unusable(ValueError):
    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(remedy)
        self.field = field


def read_trace(trace: Trace, path: Path, shown: str) -> RecordedTrace:
    """Read a trace.

    Raises:
        InputError: the file cannot be read, or a line is invalid; with file, line and column.
    """
    form = trace.format or ("swf" if ".swf" in path.name.lower() else "csv")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows, left_out = (_swf if form == "swf" else _csv)(trace, file, shown)
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InputError([Problem(Place(shown), "", f"cannot be read: {detail}")]) from None
    rows.sort(key=lambda row: row.submitted)
    return RecordedTrace(_moved(rows[: trace.limit], trace), left_out)


def _moved(rows: list[Row], trace: Trace) -> list[Row]:
    """Return the rows with their submission times in the run."""
    origin = rows[0].submitted if rows and trace.from_first else 0
    many, few = Fraction(trace.speed).as_integer_ratio()
    if not origin and not trace.start and many == few:
        return rows
    return [row._replace(submitted=trace.start + (row.submitted - origin) * few // many) for row in rows]


# --- CSV ------------------------------------------------------------------------------------------


def _csv(trace: Trace, lines: Iterable[str], shown: str) -> tuple[list[Row], int]:
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    columns = _columns(header, trace, shown)
    read = _csv_reader(header, columns, trace.queues)
    rows: list[Row] = []
    for values in reader:
        if not values:
            continue
        try:
            rows.append(read(values, reader.line_num))
        except _Unusable as error:
            place = Place(shown, reader.line_num)
            raise InputError([Problem(place, error.field, str(error))]) from None
    return rows, 0


def _requests_of(header: Sequence[str]) -> list[str]:
    return sorted(name.removeprefix(REQUESTS) for name in header if name.startswith(REQUESTS))


def _columns(header: Sequence[str], trace: Trace, shown: str) -> Mapping[str, int]:
    """Return the index of each standard column."""
    place = Place(shown, 1)
    problems = [
        Problem(place, column, f"is not a known column: {', '.join(_COLUMNS)}")
        for column in trace.columns
        if column not in _COLUMNS
    ]
    indexes: dict[str, int] = {}
    for column in _COLUMNS:
        name = trace.columns.get(column, column)
        if name in header:
            indexes[column] = header.index(name)
        elif column not in _OPTIONAL or column in trace.columns:
            problems.append(Problem(place, name, "this column is missing in the header"))
    if not _requests_of(header):
        problems.append(Problem(place, f"{REQUESTS}cpu", "no column has the requests of a pod"))
    if problems:
        raise InputError(problems)
    return indexes


def _csv_reader(
    header: Sequence[str], columns: Mapping[str, int], queues: QueueMapping
) -> Callable[[list[str], int], Row]:
    """Return a function that parses a line."""
    requests = [(header.index(REQUESTS + name), name) for name in _requests_of(header)]
    submit_time, run_time = columns["submit_time"], columns["run_time"]
    request_columns = [columns[column] for column in _ASKING if column in columns] + [
        index for index, _ in requests
    ]
    request_of = itemgetter(*request_columns)
    # Rows with equal requests share one object.
    shapes: dict[object, Shape] = {}

    def shape(values: Sequence[str]) -> Shape:
        def text(column: str) -> str:
            index = columns.get(column)
            return "" if index is None else values[index].strip()

        pods = text("pods") or "1"
        if not pods.isdecimal() or not int(pods):
            raise _Unusable("pods", f"{pods!r} is not a whole number of pods")
        queue = text("queue")
        return Shape(
            queue if "/" in queue and queue not in queues.map else _queue(queues, queue, "queue"),
            text("priority"),
            int(pods),
            tuple((name, values[index].strip()) for index, name in requests if values[index].strip()),
        )

    def read(values: list[str], line: int) -> Row:
        if len(values) != len(header):
            raise _Unusable("", f"has {len(values)} columns and the header {len(header)}")
        asks = request_of(values)
        known_shape = shapes.get(asks)
        if known_shape is None:
            known_shape = shapes[asks] = shape(values)
        submitted = _time("submit_time", values[submit_time].strip())
        return Row(submitted, known_shape, _time("run_time", values[run_time].strip()), line)

    return read


def _time(column: str, text: str) -> Nanoseconds:
    """Parse seconds as a number, or a duration with units."""
    if text.isdecimal():
        return int(text) * SECOND
    try:
        if text and text[-1].isdigit():
            seconds = Fraction(text)
            if seconds < 0:
                raise _Unusable(column, f"{text!r} is negative")
            return int(seconds * SECOND)
        return nanoseconds(text)
    except ValueError as error:
        if isinstance(error, _Unusable):
            raise
        raise _Unusable(column, f"{text!r} is neither a number of seconds nor a duration like 90s") from None


def _queue(queues: QueueMapping, value: str, column: str) -> str:
    queue = queues.map.get(value, queues.default)
    if queue is None:
        raise _Unusable(
            column, f"{value!r} has no LocalQueue: add it to queues.map of the trace, or set queues.default"
        )
    return queue


# --- Standard Workload Format ---------------------------------------------------------------------

_WIDTH: Final = 18
_SUBMIT, _RUN, _ALLOCATED, _USED_MEMORY, _REQUESTED, _REQUESTED_MEMORY = 1, 3, 4, 6, 7, 9
_DECIDING: Final = {"user": 11, "group": 12, "queue": 14, "partition": 15}


def _swf(trace: Trace, lines: Iterable[str], shown: str) -> tuple[list[Row], int]:
    rows: list[Row] = []
    left_out = 0
    read = _swf_reader(trace)
    for line, fields in _records(lines):
        try:
            row = read(fields, line)
        except _Unusable as error:
            raise InputError([Problem(Place(shown, line), error.field, str(error))]) from None
        if row is None:
            left_out += 1
        else:
            rows.append(row)
    return rows, left_out


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    for line, text in enumerate(lines, start=1):
        fields = text.split(";", 1)[0].split()
        if fields:
            yield line, fields


def _swf_reader(trace: Trace) -> Callable[[list[str], int], Row | None]:
    """Return a function that parses a record; it returns None for a job that never ran."""
    mapping, deciding = trace.queues, _DECIDING[trace.queues.by]
    per_pod = tuple(sorted((name, str(value)) for name, value in trace.requests.items()))
    size, with_memory = trace.processors_per_pod, trace.memory

    def read(fields: list[str], line: int) -> Row | None:
        if len(fields) != _WIDTH:
            raise _Unusable("", f"has {len(fields)} columns; the Standard Workload Format has {_WIDTH}")
        run, requested = _number(fields, _RUN), _number(fields, _REQUESTED)
        processors = requested if requested > 0 else _number(fields, _ALLOCATED)
        if run < 0 or processors <= 0:
            return None
        requests = per_pod
        if with_memory:
            memory = _number(fields, _REQUESTED_MEMORY)
            kibibytes = memory if memory > 0 else _number(fields, _USED_MEMORY)
            if kibibytes > 0:
                requests = (*per_pod, ("memory", f"{kibibytes * size}Ki"))
        queue = _queue(mapping, fields[deciding], f"column {deciding + 1} ({mapping.by})")
        shape = Shape(queue, "", -(-processors // size), requests)
        return Row(max(0, _number(fields, _SUBMIT)) * SECOND, shape, run * SECOND, line)

    return read


def _number(fields: list[str], index: int) -> int:
    """Parse a whole number; fractions of a second are cut off."""
    text = fields[index]
    try:
        return int(text)
    except ValueError:
        try:
            return int(Fraction(text))
        except ValueError:
            raise _Unusable(f"column {index + 1}", f"{text!r} is not a number") from None
