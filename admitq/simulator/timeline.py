"""The timeline of a run, as CSV or JSON: one row for each event of a workload."""

import csv
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, TextIO

import orjson

from admitq.simulator.schema import Nanoseconds
from admitq.simulator.simulated_workload import SimulatedWorkload

COLUMNS: Final = (
    "time",
    "event",
    "workload",
    "class",
    "localQueue",
    "clusterQueue",
    "flavors",
    "priority",
    "pods",
    "detail",
)
"""The columns of the CSV, and the fields of the JSON objects. Times are in seconds from the start."""


class TimelineEvent(StrEnum):
    """An event of a workload."""

    SUBMITTED = "Submitted"
    ADMITTED = "Admitted"
    PREEMPTED = "Preempted"
    """Preempted by another workload. It holds its quota until its pods have stopped."""
    STOPPED = "Stopped"
    """Its pods have stopped after a preemption or an eviction; it is pending again."""
    PODS_STOPPED = "PodsStopped"
    """Its pods on a failed host have stopped."""
    REPLACED = "Replaced"
    """Its pods of a failed host have other hosts."""
    EVICTED = "Evicted"
    """Evicted for failed nodes. It holds its quota until its pods have stopped."""
    KILLED = "Killed"
    FINISHED = "Finished"
    FAILED = "Failed"


class Timeline(Protocol):
    """The destination of the events of a run."""

    def write(
        self, now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
    ) -> None:
        """Write an event of a workload."""
        ...

    def close(self) -> None:
        """Write the end of the timeline."""
        ...


def _row(
    now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
) -> tuple[str | float | int, ...]:
    workload, admission = simulated.workload, simulated.workload.admission
    flavors = (
        {flavor: None for assignment in admission.pod_set_assignments for _, flavor in assignment.flavors}
        if admission is not None
        else {}
    )
    return (
        now / 1_000_000_000,
        event.value,
        str(workload.key),
        simulated.source.name,
        str(simulated.local_queue),
        "" if admission is None else admission.cluster_queue,
        " ".join(flavors),
        workload.priority,
        simulated.template.pods if admission is None else simulated.count,
        detail,
    )


class CsvTimeline:
    """A timeline as CSV with a header.

    Args:
        file: the open file.
    """

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def write(
        self, now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
    ) -> None:
        """Write a row."""
        self._writer.writerow(_row(now, event, simulated, detail))

    def close(self) -> None:
        """Do nothing: a CSV has no end."""


class JsonTimeline:
    """A timeline as JSON array with one object on each line.

    Args:
        file: the open file.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lead = "[\n"

    def write(
        self, now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
    ) -> None:
        """Write an object."""
        values = dict(zip(COLUMNS, _row(now, event, simulated, detail), strict=True))
        self._file.write(self._lead + orjson.dumps(values).decode())
        self._lead = ",\n"

    def close(self) -> None:
        """End the array."""
        self._file.write("\n]\n" if self._lead != "[\n" else "[]\n")


TimelineType = Callable[[TextIO], Timeline]

_TYPES: Final[Mapping[str, TimelineType]] = {".csv": CsvTimeline, ".json": JsonTimeline}


def timeline_type(path: Path) -> TimelineType:
    """Return the type of timeline for the suffix of a file.

    Raises:
        ValueError: the suffix names no format.
    """
    timeline = _TYPES.get(path.suffix.lower())
    if timeline is None:
        problem = f"unknown suffix {path.suffix}" if path.suffix else "no suffix"
        raise ValueError(f"{problem}: use one of {', '.join(_TYPES)}")
    return timeline
