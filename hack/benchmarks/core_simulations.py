"""Measure `admitq simulate` with the seed test at full time, and with a month of a trace of 100,000 jobs.

This module creates the trace, always the same: 20 ClusterQueues in four cohorts, three priorities, and jobs
of one to 32 pods that run for minutes to many hours. More jobs are submitted by day than by night. They need
about nine tenths of the quota.
"""

import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.core_worlds import MeasurementFailed

JOBS: Final = 100_000
_MONTH_S: Final = 30 * 86_400
_COHORTS: Final = 4
_QUEUES_PER_COHORT: Final = 5
_NAMESPACE: Final = "bench"
_LOAD: Final = 0.9
_PRIORITIES: Final = (0, 0, 0, 100, 1000)
_SHORT: Final = ("preemption", "--until", "1s")
_PODS: Final = (1, 1, 1, 2, 4, 8, 16, 32)


class Job(NamedTuple):
    """A line of the trace."""

    submit_time: int
    queue: str
    priority: int
    pods: int
    run_time: int


def _queues() -> list[str]:
    return [f"team-{cohort}-{queue}" for cohort in range(_COHORTS) for queue in range(_QUEUES_PER_COHORT)]


def jobs(count: int) -> list[Job]:
    """Yield the jobs of the trace. With fewer jobs, the trace has proportionally fewer days."""
    chance = random.Random(1)  # noqa: S311 the same trace in every run
    length = _MONTH_S * count / JOBS
    queues = _queues()
    result: list[Job] = []
    while len(result) < count:
        at = chance.random() * length
        by_day = 0.5 + 0.5 * math.sin(2 * math.pi * (at / 86_400 - 0.3))
        if chance.random() > 0.2 + 0.8 * by_day:
            continue
        run_time = min(2 * 86_400, max(30, round(chance.lognormvariate(math.log(1800), 1.5))))
        pods = chance.choice(_PODS)
        result.append(Job(int(at), chance.choice(queues), chance.choice(_PRIORITIES), pods, run_time))
    return sorted(result)


def _quota(trace: list[Job]) -> int:
    """Return the CPUs of each ClusterQueue, so that the trace needs nine tenths of all."""
    work = sum(job.pods * job.run_time for job in trace)
    length = trace[-1].submit_time - trace[0].submit_time
    return max(*_PODS, math.ceil(work / length / _LOAD / len(_queues())))


def _objects(quota: int) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        {"apiVersion": "admitq.dev/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}},
    ]
    cpu = {"name": "cpu", "nominalQuota": quota}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [cpu]}]}
    for name in _queues():
        cohort = name.rpartition("-")[0]
        objects += (
            {
                "apiVersion": "admitq.dev/v1beta2",
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group]},
            },
            {
                "apiVersion": "admitq.dev/v1beta2",
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": _NAMESPACE},
                "spec": {"clusterQueue": name},
            },
        )
    return objects


def write_trace(folder: Path, count: int) -> Path:
    """Write trace and scenario into a folder, and return the path of the scenario."""
    trace = jobs(count)
    lines = ["submit_time,queue,priority,pods,requests.cpu,run_time"]
    lines += (
        f"{job.submit_time},{_NAMESPACE}/{job.queue},{job.priority},{job.pods},1,{job.run_time}"
        for job in trace
    )
    (folder / "month.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scenario = {
        "apiVersion": "simulation.admitq.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "month"},
        "spec": {"seed": 1, "traces": [{"name": "month", "file": "month.csv"}]},
    }
    path = folder / "month.yaml"
    documents = [scenario, *_objects(_quota(trace))]
    # JSON is YAML, and has the same separator of documents.
    path.write_text("\n---\n".join(map(json.dumps, documents)) + "\n", encoding="utf-8")
    return path


def seconds(scenario: str) -> tuple[float, float]:
    """Return wall time and CPU time of the command for a scenario, including start and imports.

    Modules are compiled before the measurement, as in an image or after the first start of an installation.
    This holds also if the environment prevents Python from writing compiled files.
    """
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _simulate(_SHORT, environment)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        _simulate((scenario,), environment)
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _simulate(arguments: Iterable[str], environment: Mapping[str, str]) -> None:
    command = [Path(sys.executable).with_name("admitq"), "simulate", *arguments, "--output=json"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise MeasurementFailed(f"admitq simulate {' '.join(arguments)}: {process.stderr or process.stdout}")


def trace_seconds(count: int) -> tuple[float, float]:
    """Return the same for a trace with a number of jobs, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds(str(write_trace(Path(folder), count)))
