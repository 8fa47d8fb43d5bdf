"""Measure the speed and the memory of the decision core, alone and in one process.

Each figure is measured in its own process, so that memory of other figures does not count. Seconds are wall
time, which other processes of the machine lengthen. ``cpu`` figures count only CPU time of the process
itself.
"""

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from admitq.core.events import CyclesRequested, WorkloadChanged
from admitq.core.instructions import ReserveQuota
from admitq.core.model import Workload
from admitq.core.settings import CoreSettings
from admitq.process.garbage_collection import exclude_current_objects, reduce_collections
from benchmarks import core_crowds, core_rationed, core_simulations, core_stretches
from benchmarks.core_driver import Driver
from benchmarks.core_preemption import searches
from benchmarks.core_worlds import (
    BASELINE,
    LARGE,
    MILLISECOND,
    Class,
    MeasurementFailed,
    Setting,
    new_state,
    pod_sets,
    workload,
    workloads,
)
from benchmarks.measures import percentile_of_unsorted
from localcluster.cluster import to_stderr

__all__ = ["FIGURES", "Effort", "MeasurementFailed", "measure"]

Report = dict[str, float | int | None]

SHAPES: Final = 20
DEPTHS: Final = (100, 10_000, 1_000_000)


@dataclass(slots=True)
class Spent:
    """Wall time and CPU time of this process, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def measured(self) -> Generator[None]:
        """Add the time of the block."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


@dataclass(frozen=True, slots=True)
class Effort:
    """The share of a figure's full measurement to run."""

    scale: float = 1.0
    repeats: int = 3


# --- throughput -----------------------------------------------------------------------------------------


def _scaled(setting: Setting, scale: float) -> Setting:
    classes = tuple(replace(kind, count=max(1, round(kind.count * scale))) for kind in setting.classes)
    return replace(setting, classes=classes)


def _throughput(setting: Setting, suffix: str, effort: Effort) -> Report:
    """Queue all workloads, admit and finish them, and return admissions per second of the second part."""
    runs = [_run(_scaled(setting, effort.scale), suffix) for _ in range(effort.repeats)]
    # A tenth of the workloads is enough when the core decides after each finished workload, not after each
    # instant.
    alone = _run(_scaled(setting, effort.scale / 10), f"{suffix}_one_by_one", alone=True)
    walls = [run.admitted / run.deciding.wall for run in runs]
    return {
        f"admissions_per_s_{suffix}": round(statistics.median(walls)),
        f"admissions_per_s_{suffix}_best": round(max(walls)),
        f"admissions_per_cpu_s_{suffix}": round(max(run.admitted / run.deciding.cpu for run in runs)),
        f"admissions_per_cpu_s_{suffix}_one_by_one": round(alone.admitted / alone.deciding.cpu),
        f"taken_in_per_cpu_s_{suffix}": round(max(run.admitted / run.taking_in.cpu for run in runs)),
    }


@dataclass(frozen=True, slots=True)
class _Run:
    """The time to queue all workloads, and the time to admit and finish them."""

    admitted: int
    taking_in: Spent
    deciding: Spent


def _run(setting: Setting, name: str, *, alone: bool = False) -> _Run:
    driver = Driver(new_state(setting))
    arrivals = [(each, kind.run_time_ms * MILLISECOND) for each, kind in workloads(setting)]
    for each, run_time in arrivals:
        driver.prepare(each, run_time)
    # Garbage collections during the measurement skip the objects that the driver has prepared.
    reduce_collections()
    exclude_current_objects()
    run = _Run(len(arrivals), Spent(), Spent())
    with run.taking_in.measured():
        for each, _ in arrivals:
            driver.arrive(each)
    with run.deciding.measured():
        driver.run(alone=alone)
    gc.unfreeze()
    if driver.admitted != run.admitted:
        raise MeasurementFailed(f"{driver.admitted} of {run.admitted} workloads were admitted")
    to_stderr(
        f"  {name}: {run.admitted} admitted in {run.deciding.wall:.2f} s, {run.deciding.cpu:.2f} s of CPU"
    )
    return run


def _baseline(effort: Effort) -> Report:
    return _throughput(BASELINE, "30_queues", effort)


def _large(effort: Effort) -> Report:
    return _throughput(LARGE, "1000_queues", effort)


# --- depth and memory -----------------------------------------------------------------------------------


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


_DEEP: Final = Setting(
    cohorts=1,
    queues_per_cohort=1,
    classes=tuple(Class(cpus=1 + number, priority=0, run_time_ms=0, count=0) for number in range(SHAPES)),
    nominal=1000,
)


class _Deep:
    """One ClusterQueue in which a given number of workloads of 20 kinds always waits."""

    def __init__(self, depth: int) -> None:
        self.state = new_state(_DEEP)
        self.shapes = [pod_sets(kind.cpus) for kind in _DEEP.classes]
        self.arrived = 0
        self.now = 1
        self.running: list[Workload] = []
        self.spent = Spent()
        before = _resident_bytes()
        for _ in range(depth):
            self._arrive()
        self.bytes_per_pending = (_resident_bytes() - before) / depth
        self._settle([])

    def _arrive(self) -> Workload:
        number = self.arrived
        self.arrived += 1
        shape = self.shapes[number % SHAPES]
        new = workload(f"w-{number:08}", 0, shape, 0, number)
        self.state.handle(WorkloadChanged(new), now=self.now)
        return new

    def _settle(self, ended: list[Workload]) -> int:
        """Finish workloads, admit others, submit as many new ones, and return how many were admitted."""
        observed = [WorkloadChanged(replace(workload, finished=True)) for workload in ended]
        with self.spent.measured():
            for event in observed:
                self.state.handle(event, now=self.now)
            decided = self.state.handle(CyclesRequested(), now=self.now)
        reserved = [
            replace(self._waiting(reservation), admission=reservation.admission, admitted=True)
            for reservation in decided
            if isinstance(reservation, ReserveQuota)
        ]
        observed = [WorkloadChanged(workload) for workload in reserved]
        with self.spent.measured():
            for event in observed:
                self.state.handle(event, now=self.now)
        self.running += reserved
        for _ in reserved:
            self._arrive()
        return len(reserved)

    def _waiting(self, decided: ReserveQuota) -> Workload:
        number = int(decided.key.name.removeprefix("w-"))
        return workload(decided.key.name, 0, self.shapes[number % SHAPES], 0, number)

    def microseconds_per_admission(self, admissions: int) -> float:
        """Return the CPU time to finish a workload and to admit another one in its place."""
        self.spent = Spent()
        admitted = 0
        while admitted < admissions:
            self.now += MILLISECOND
            admitted += self._settle([self.running.pop(0)])
        return self.spent.cpu / admitted * 1e6


def _depth(effort: Effort) -> Report:
    report: Report = {}
    first = 0.0
    for depth, name in zip(DEPTHS, ("100", "10k", "1m"), strict=True):
        scaled = max(SHAPES, round(depth * effort.scale))
        deep = _Deep(scaled)
        cost = min(deep.microseconds_per_admission(1000) for _ in range(effort.repeats))
        to_stderr(f"  {scaled} pending: {cost:.1f} µs an admission")
        report[f"admission_us_{name}"] = round(cost, 1)
        if not first:
            first = cost
        else:
            report[f"depth_ratio_{name}"] = round(cost / first, 2)
        report["bytes_per_pending"] = round(deep.bytes_per_pending)
        del deep
    return report


# --- preemption -----------------------------------------------------------------------------------------


def _preemption(effort: Effort) -> Report:
    """Return the lowest value of the repeats at each percentile: interruptions only lengthen times."""
    count = max(1, round(500 * effort.scale))
    at: dict[int, list[float]] = {50: [], 99: [], 100: []}
    found_targets = 0
    for _ in range(effort.repeats):
        seconds, found_targets = searches(count)
        for percent, values in at.items():
            values.append(percentile_of_unsorted(seconds, percent) or 0.0)
    if not found_targets:
        raise MeasurementFailed("no search has found targets")
    return {
        "preempt_p50_ms": round(min(at[50]) * 1000, 2),
        "preempt_p99_ms": round(min(at[99]) * 1000, 2),
        "preempt_max_ms": round(min(at[100]) * 1000, 2),
        "preempt_searches": count,
        "preempt_searches_that_found": found_targets,
    }


def _crowds(effort: Effort) -> Report:
    """Return the lowest value of the repeats for each figure."""
    report: Report = {}
    reduce_collections()  # As in the manager.
    for queues in (250, 1000):
        count = max(4, round(queues * effort.scale))
        runs = [core_crowds.reclaim(count) for _ in range(effort.repeats)]
        report[f"reclaim_ms_{queues}"] = round(min(first for first, _ in runs), 1)
        report[f"newcomer_ms_{queues}"] = round(min(newcomer for _, newcomer in runs), 1)
        fair = [core_crowds.reclaim(count, core_crowds.FAIR) for _ in range(effort.repeats)]
        report[f"reclaim_fair_ms_{queues}"] = round(min(first for first, _ in fair), 1)
    waiting = max(4, round(20_000 * effort.scale))
    released = min(core_crowds.release(waiting) for _ in range(effort.repeats))
    return {**report, "release_ms_20000": round(released, 1)}


def _stretches(effort: Effort) -> Report:
    """Return the longest time for which any case blocks the event loop: the lowest value of the repeats."""
    queues, pending = max(4, round(1000 * effort.scale)), round(50_000 * effort.scale)
    waiting = max(4, round(20_000 * effort.scale))
    cases = {
        "reclaim": lambda: core_stretches.longest_stretch(queues, pending, CoreSettings()),
        "reclaim_fair": lambda: core_stretches.longest_stretch(queues, pending, core_crowds.FAIR),
        "release": lambda: core_stretches.longest_stretch_of_release(waiting),
    }
    longest = {
        f"longest_stretch_ms_{name}": round(min(case() for _ in range(effort.repeats)), 1)
        for name, case in cases.items()
    }
    return {"longest_stretch_ms": max(longest.values()), **longest}


def _rationed(effort: Effort) -> Report:
    """Return the figures of one run for each number of writes after which a cycle may run."""
    report: Report = {}
    reduce_collections()  # As in the manager.
    for writes_per_cycle in (1, 4, 16):
        shape = core_rationed.one_cohort(effort.scale)
        run = core_rationed.RationedApiServer(shape, writes_per_cycle).run()
        report |= {
            f"rationed_cycle_cpu_s_{writes_per_cycle}": round(run.cycle_cpu_s, 2),
            f"rationed_cycles_{writes_per_cycle}": run.cycles,
            f"rationed_preemptions_{writes_per_cycle}": run.preemptions,
            f"rationed_virtual_s_{writes_per_cycle}": round(run.virtual_s, 1),
        }
    return report


# --- the simulator --------------------------------------------------------------------------------------


def _simulate_seed(effort: Effort) -> Report:
    runs = [core_simulations.seconds("seed-literal") for _ in range(effort.repeats)]
    return {
        "simulate_seed_s": round(statistics.median(wall for wall, _ in runs), 2),
        "simulate_seed_cpu_s": round(min(cpu for _, cpu in runs), 2),
    }


def _simulate_trace(effort: Effort) -> Report:
    wall, cpu = core_simulations.trace_seconds(max(100, round(core_simulations.JOBS * effort.scale)))
    return {"simulate_trace_100k_s": round(wall, 2), "simulate_trace_100k_cpu_s": round(cpu, 2)}


# --- all of them ----------------------------------------------------------------------------------------

FIGURES: Final[Mapping[str, Callable[[Effort], Report]]] = {
    "30-queues": _baseline,
    "1000-queues": _large,
    "depth": _depth,
    "preemption": _preemption,
    "crowds": _crowds,
    "stretches": _stretches,
    "rationed": _rationed,
    "simulate-seed": _simulate_seed,
    "simulate-trace": _simulate_trace,
}
"""The functions that measure figures, by the name of the figure on the command line."""


def measure(names: Collection[str], effort: Effort) -> Report:
    """Measure figures, each in its own process.

    Args:
        names: keys of ``FIGURES``; empty means all.
        effort: the share of each figure's full measurement.
    """
    report: Report = {}
    context = multiprocessing.get_context("spawn")
    for name in FIGURES:
        if names and name not in names:
            continue
        with context.Pool(1) as pool:
            figures = pool.apply(_figure, (name, effort))
        to_stderr(f"{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))
        report |= figures
    return report


def _figure(name: str, effort: Effort) -> Report:
    return FIGURES[name](effort)
