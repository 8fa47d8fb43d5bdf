"""How fast the decision core decides, alone and in one process.

Two settings, each with every workload queued at the start and finishing the moment it was admitted, finish
events included in the time: ClusterQueues in cohorts of equals, classes of workloads by size and priority.
"""

import resource
import time
from collections import deque
from dataclasses import replace

from admitq.core.events import (
    ClusterQueueChanged,
    CyclesRequested,
    Event,
    LocalQueueChanged,
    NamespaceChanged,
    ResourceFlavorChanged,
    WorkloadChanged,
)
from admitq.core.instructions import ReserveQuota
from admitq.core.model import (
    ClusterQueue,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    ObjectKey,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from admitq.core.state import AdmissionState
from localcluster.cluster import to_stderr

CPU = 1000
CLASSES = ((1, 50), (5, 100), (20, 200))
"""Size in CPU and priority of each class."""


def world(queues: int, per_cohort: int) -> AdmissionState:
    """Queues with 20 CPU each, of which they may borrow 100 within their cohort."""
    state = AdmissionState()
    quota = ResourceQuota(20 * CPU, borrowing_limit=100 * CPU)
    groups = (ResourceGroup(("cpu",), (FlavorQuotas("default", (("cpu", quota),)),)),)
    events: list[Event] = [NamespaceChanged("bench", ()), ResourceFlavorChanged(ResourceFlavor("default"))]
    for number in range(queues):
        name = f"queue-{number:04}"
        cohort = f"cohort-{number // per_cohort:03}"
        spec = ClusterQueue(name, "", cohort, groups, namespace_selector=LabelSelector())
        events.append(ClusterQueueChanged(spec))
        events.append(LocalQueueChanged(LocalQueue(ObjectKey("bench", name), name)))
    for event in events:
        state.handle(event, now=0)
    return state


def workloads(queues: int, counts: tuple[int, ...]) -> list[Workload]:
    """So many workloads of each class for every queue, in a mixed order of arrival."""
    result: list[Workload] = []
    for (size, priority), count in zip(CLASSES, counts, strict=True):
        pod_sets = (PodSet("main", 1, (("cpu", size * CPU),)),)
        for number in range(count):
            for queue in range(queues):
                name = f"w-{queue:04}-{size}-{number:05}"
                result.append(
                    Workload(ObjectKey("bench", name), name, f"queue-{queue:04}", number, pod_sets, priority)
                )
    return result


def run(queues: int, per_cohort: int, counts: tuple[int, ...]) -> tuple[float, float, int]:
    """Seconds to take everything in, seconds to admit and finish everything, and how many there were."""
    state = world(queues, per_cohort)
    pending = {workload.key: workload for workload in workloads(queues, counts)}
    started = time.perf_counter()
    for workload in pending.values():
        state.handle(WorkloadChanged(workload), now=0)
    taken_in = time.perf_counter() - started
    running: deque[Workload] = deque()
    admitted = 0
    now = 1
    started = time.perf_counter()
    while True:
        for instruction in state.handle(CyclesRequested(), now=now):
            if isinstance(instruction, ReserveQuota):
                admitted += 1
                workload = pending[instruction.key]
                running.append(replace(workload, admission=instruction.admission, admitted=True))
        if not running:
            break
        now += 1
        workload = running.popleft()
        state.handle(WorkloadChanged(workload), now=now)
        state.handle(WorkloadChanged(replace(workload, finished=True)), now=now)
    return taken_in, time.perf_counter() - started, admitted


def measure(scale: float) -> dict[str, float]:
    """Run both settings.

    Args:
        scale: share of the workloads to run.
    """
    report: dict[str, float] = {"scale": scale}
    for name, queues, per_cohort, counts in (
        ("30_queues", 30, 6, (350, 100, 50)),
        ("1000_queues", 1000, 100, (7, 2, 1)),
    ):
        scaled = tuple(max(1, round(count * scale)) for count in counts)
        taken_in, decided, admitted = run(queues, per_cohort, scaled)
        to_stderr(
            f"{name}: {admitted} taken in within {taken_in:.2f} s, admitted and finished in {decided:.2f} s"
        )
        report[f"taken_in_per_s_{name}"] = round(admitted / taken_in)
        report[f"admissions_per_s_{name}"] = round(admitted / decided)
    report["peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return report
