"""Compare two runs: the differences of their reports, and of the jobs that they ran.

The difference of two reports has the fields of a report. So a figure has one name and one definition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import orjson

from admitq.simulator.files import has_scenario
from admitq.simulator.plan import SimulationPlan, read
from admitq.simulator.present import PresentCluster
from admitq.simulator.report import Report, report
from admitq.simulator.run import Simulation
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.templates import Template
from admitq.simulator.timeline import TimelineEvent

_IDENTITY: Final = ("name", "flavor", "resource")
"""The fields that identify an item of a list of a report."""

_COUNTED: Final = frozenset({"preemptions", "kills", "nodeFailures", "leftOut"})
"""Parts of a report without rows for zero: a figure that one run does not have is 0."""

_LISTED: Final = frozenset({"leftWaiting"})
"""Lists of examples, which have no figures to compare."""


def read_both(
    first: Sequence[Path],
    second: Sequence[Path],
    *,
    seed: int | None = None,
    until: Nanoseconds | None = None,
    present: PresentCluster | None = None,
) -> tuple[SimulationPlan, SimulationPlan]:
    """Return the plans of two runs with the same random seed.

    Args:
        first: the files of the first run; one of them contains the scenario, unless both begin with a
            cluster.
        second: the files of the second run. Without a scenario, the second run has all files of the first
            one, and the objects of these files replace those of the same name.
        seed: the random seed, instead of the seed of the first scenario.
        until: the end of both runs, instead of the ends in the scenarios.
        present: the cluster with which both runs begin. Objects of the files replace its objects of the same
            name.

    Raises:
        InputError: a file is invalid; the problems have file, line and field.
    """
    plan = read(first, seed=seed, until=until, present=present)
    if any(map(has_scenario, second)):
        return plan, read(second, seed=plan.seed, until=until, present=present)
    return plan, read(first, changed=second, seed=plan.seed, until=until, present=present)


# --- the jobs of a run ------------------------------------------------------------------------------


class SubmittedJob(NamedTuple):
    """A job that a run submitted. Equal jobs request the same at the same time, and run equally long."""

    at: Nanoseconds
    request: bytes
    work: tuple[tuple[Nanoseconds, int], ...]


@dataclass(slots=True, eq=False)
class JobRecord:
    """Records the jobs of a run and their first admissions, as timeline of the run."""

    submitted: dict[str, SubmittedJob] = field(default_factory=dict[str, SubmittedJob])
    waits: dict[str, Nanoseconds] = field(default_factory=dict[str, Nanoseconds])
    """The wait until the first admission, of admitted jobs."""
    _requests: dict[Template, bytes] = field(default_factory=dict[Template, bytes])

    def write(
        self, now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
    ) -> None:
        """Record a submission or the first admission; ignore other events."""
        del detail
        name = str(simulated.workload.key)
        if event is TimelineEvent.SUBMITTED:
            request = self._request(simulated.template)
            self.submitted[name] = SubmittedJob(now, request, tuple(simulated.work.waiting))
        elif event is TimelineEvent.ADMITTED:
            self.waits.setdefault(name, now - simulated.submitted)

    def close(self) -> None:
        """Do nothing: the record is always complete."""

    def _request(self, template: Template) -> bytes:
        """Return what the job requests, without what depends on settings, such as its priority."""
        request = self._requests.get(template)
        if request is None:
            request = self._requests[template] = _request_of(template)
        return request


def _request_of(template: Template) -> bytes:
    if template.job is not None:
        return orjson.dumps(template.job, option=orjson.OPT_SORT_KEYS)
    workload = template.workload
    return repr((workload.key, workload.queue_name, workload.pod_sets)).encode()


@dataclass(frozen=True, slots=True)
class JobDifferences:
    """The numbers of equal and different jobs of two runs, and what the change did to equal jobs."""

    same: int
    differ: int
    """Jobs with the same name, but another submission, request or run time."""
    only_a: int
    only_b: int
    earlier: int
    """Of the equal jobs: those that run B admits after a shorter wait, or that only run B admits."""
    later: int
    """Of the equal jobs: those that run B admits after a longer wait, or that only run A admits."""

    @property
    def different(self) -> int:
        """The number of jobs that only one of the runs has, or that differ."""
        return self.differ + self.only_a + self.only_b

    def to_dict(self) -> dict[str, int]:
        """Return the fields of the JSON document."""
        return {
            "same": self.same,
            "differ": self.differ,
            "onlyA": self.only_a,
            "onlyB": self.only_b,
            "earlier": self.earlier,
            "later": self.later,
        }


def compare_jobs(a: JobRecord, b: JobRecord) -> JobDifferences:
    """Return the differences between the jobs of two runs."""
    common = a.submitted.keys() & b.submitted.keys()
    same = [name for name in common if a.submitted[name] == b.submitted[name]]
    changes = [_compare_waits(a.waits.get(name), b.waits.get(name)) for name in same]
    return JobDifferences(
        same=len(same),
        differ=len(common) - len(same),
        only_a=len(a.submitted) - len(common),
        only_b=len(b.submitted) - len(common),
        earlier=sum(change < 0 for change in changes),
        later=sum(change > 0 for change in changes),
    )


def _compare_waits(a: Nanoseconds | None, b: Nanoseconds | None) -> int:
    """Return a negative number if the wait in run B is shorter, 0 if it is equal, else a positive number."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    return b - a


# --- the figures of two reports ---------------------------------------------------------------------


class Figure(NamedTuple):
    """A figure of two runs. It is None in a run that it does not apply to."""

    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """The figure of run B minus that of run A."""
        return None if self.a is None or self.b is None else round(self.b - self.a, 6)

    @property
    def relative(self) -> float | None:
        """The difference as a part of the figure of run A; None if that is 0."""
        return None if self.difference is None or not self.a else round(self.difference / self.a, 6)

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields of the JSON document."""
        return {"a": self.a, "b": self.b, "difference": self.difference, "relative": self.relative}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The reports of two runs side by side."""

    a: Report
    b: Report
    jobs: JobDifferences

    def to_json(self) -> bytes:
        """Return one JSON document, with a newline at its end."""
        return orjson.dumps(self.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON document: those of a report, with the figures of both runs."""
        return {"jobs": self.jobs.to_dict(), **_compare_objects(self.a.to_dict(), self.b.to_dict(), None)}


def compare(a: Simulation, b: Simulation, jobs: JobDifferences) -> Comparison:
    """Return the comparison of two runs that have ended."""
    return Comparison(report(a), report(b), jobs)


def _compare_objects(a: Mapping[str, Any], b: Mapping[str, Any], absent: float | None) -> dict[str, Any]:
    compared: dict[str, Any] = {}
    for name in {**a, **b}:
        if name in _IDENTITY:
            compared[name] = a.get(name, b.get(name))
        elif name in _LISTED:
            compared[name] = {"a": a[name], "b": b[name]}
        else:
            compared[name] = _compare_values(
                a.get(name, absent), b.get(name, absent), 0 if name in _COUNTED else absent
            )
    return compared


def _compare_values(a: Any, b: Any, absent: float | None) -> Any:
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        return _compare_objects(a or {}, b or {}, absent)
    if isinstance(a, list) or isinstance(b, list):
        items_a, items_b = _by_identity(a), _by_identity(b)
        return [
            _compare_objects(items_a.get(identity, {}), items_b.get(identity, {}), absent)
            for identity in {**items_a, **items_b}
        ]
    if isinstance(a, str) or isinstance(b, str):
        return {"a": a, "b": b}
    return Figure(a, b).to_dict()


def _by_identity(items: object) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    listed = cast("list[Mapping[str, Any]]", items) if isinstance(items, list) else []
    return {tuple(item.get(name) for name in _IDENTITY): item for item in listed}
