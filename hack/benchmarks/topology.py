"""Measure placement in topologies, alone and in one process: speed, memory, and quality.

Times are CPU time of this process, so that other processes of the machine do not count.
"""

import gc
import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import orjson

from admitq.core import cycle
from admitq.core.cycle.nominate import nominate
from admitq.core.events import CyclesRequested, NodeChanged, PodOfOthersChanged, WorkloadChanged
from admitq.core.instructions import ReserveQuota
from admitq.core.model import SECOND, ObjectKey, Workload
from admitq.core.state import AdmissionState
from admitq.core.topology.domains import DomainTree, Node
from admitq.core.topology.flavor_topology import FlavorTopology, PodsToPlace
from admitq.core.topology.request import TopologyRequest
from admitq.process.garbage_collection import reduce_collections
from admitq.runtime.kinds import TOPOLOGY_NODES, TOPOLOGY_PODS
from admitq.runtime.store import Store
from admitq.translate.nodes import read_node, trim_node
from admitq.translate.pods_of_others import read_pod_of_others, trim_pod
from admitq_api.labels import DEFAULT_GROUP, Names
from benchmarks.core_worlds import MeasurementFailed
from benchmarks.measures import percentile_of_unsorted
from benchmarks.topology_objects import node_object, pod_object
from benchmarks.topology_worlds import (
    CPU_OF_POD,
    LEVELS,
    PODS_OF_HOST,
    TopologySize,
    configuration,
    new_state,
    node_events,
    running,
    workload,
)
from localcluster.cluster import to_stderr

BOUNDS: Final[Mapping[str, float]] = {
    "placement_p50_ms": 2.0,
    "placement_p99_ms": 10.0,
    "placement_1000_pods_ms": 10.0,
    "node_event_us": 50.0,
    "start_s": 5.0,
    "memory_mb": 250.0,
}
"""The highest accepted values at full scale."""

_RUN: Final = CyclesRequested()
_REQUESTS: Final = (
    TopologyRequest(required="rack"),
    TopologyRequest(preferred="rack"),
    TopologyRequest(preferred="block"),
    TopologyRequest(unconstrained=True),
)
_SIZES: Final = (1, 2, 4, 8, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class TopologyLoad:
    """The share of all numbers of nodes, workloads, pods and cases."""

    scale: float = 1.0

    def of(self, number: int, least: int = 1) -> int:
        """Return the scaled number."""
        return max(least, round(number * self.scale))

    @property
    def size(self) -> TopologySize:
        """The nodes: 10,000 at full scale."""
        return TopologySize(self.of(100))


Figures = dict[str, Any]


def _cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


# --- one placement --------------------------------------------------------------------------------------


def _placement(load: TopologyLoad) -> Figures:
    """Place podsets one after another. Those of long ago leave, so that most of the capacity stays in use."""
    topology = FlavorTopology("racks", LEVELS)
    for node in load.size.nodes():
        topology.tree.set_node(node)
    chance = random.Random(1)  # noqa: S311 a load, not a secret
    kinds = [(request, count, cpu) for request in _REQUESTS for count in _SIZES for cpu in (1, 2)]
    seconds: list[float] = []
    placed: list[tuple[Any, Any]] = []
    first_of_shape: list[float] = []
    seen: set[object] = set()
    for _ in range(load.of(4000, 200)):
        request, count, cpu = chance.choice(kinds)
        pods = PodsToPlace("main", count, (("cpu", cpu * CPU_OF_POD),), request)
        found: list[Any] = []
        spent = _cpu_seconds(lambda pods=pods, found=found: found.append(topology.place([pods])))
        (first_of_shape if (request, cpu) not in seen else seconds).append(spent)
        seen.add((request, cpu))
        if isinstance(found[0], dict):
            placed.append((found[0]["main"], pods.amounts_of_pod))
            topology.add_usage(*placed[-1])
        while len(placed) > load.of(700, 5):
            topology.add_usage(*placed.pop(0), times=-1)
    large = PodsToPlace("main", 1000, (("cpu", CPU_OF_POD // 4),), TopologyRequest(preferred="rack"))
    of_large: list[float] = []
    for assignment, of_pod in placed[:40]:
        topology.add_usage(assignment, of_pod, times=-1)
        found = []
        of_large.append(_cpu_seconds(lambda found=found: found.append(topology.place([large]))))
        if not isinstance(found[0], dict):
            raise MeasurementFailed("1,000 pods have no place")
    return {
        "nodes": topology.tree.node_count,
        "placement_p50_ms": _ms(percentile_of_unsorted(seconds, 50)),
        "placement_p99_ms": _ms(percentile_of_unsorted(seconds, 99)),
        "placement_new_shape_ms": _ms(max(first_of_shape)),
        "placement_1000_pods_ms": _ms(percentile_of_unsorted(of_large, 50)),
    }


def _ms(seconds: float | None) -> float:
    return round((seconds or 0.0) * 1000, 3)


def _node_event(load: TopologyLoad) -> Figures:
    """Send changes of nodes: one becomes unready and ready again, and its capacity changes."""
    size = load.size
    state = new_state(node_events(size))
    nodes = list(size.nodes())
    random.Random(2).shuffle(nodes)  # noqa: S311 a load, not a secret
    events = [NodeChanged(changed) for node in nodes[: load.of(2000, 50)] for changed in _changes_of(node)]

    def send() -> None:
        for event in events:
            state.observe(event, now=SECOND)

    return {"node_event_us": round(_cpu_seconds(send) / len(events) * 1e6, 1)}


def _changes_of(node: Node) -> tuple[Node, ...]:
    amounts = tuple((name, amount - 1) for name, amount in node.allocatable)
    return replace(node, ready=False), node, replace(node, allocatable=amounts)


# --- start and release ----------------------------------------------------------------------------------


def _start(load: TopologyLoad) -> Figures:
    """Observe all nodes and running workloads, as after a start, and decide over one new workload."""
    size, count = load.size, load.of(5000, 10)
    nodes = list(map(NodeChanged, size.nodes()))
    workloads = [
        WorkloadChanged(running(workload(f"running-{number}", 4, number), size.host(number % size.hosts)))
        for number in range(count)
    ]
    decided: list[Any] = []

    def start() -> None:
        state = new_state(configuration())
        for event in (*nodes, *workloads):
            state.observe(event, now=SECOND)
        state.observe(WorkloadChanged(workload("new", 2, count)), now=SECOND)
        decided.extend(state.handle(_RUN, now=SECOND))

    seconds = _cpu_seconds(start)
    if not any(isinstance(each, ReserveQuota) for each in decided):
        raise MeasurementFailed("the new workload was not admitted")
    return {"running": count, "start_s": round(seconds, 2)}


def _release(load: TopologyLoad) -> Figures:
    """Release a part of a host, and later a whole host, while workloads of many shapes wait.

    Each waiting workload needs room for pods of one of four sizes in one rack. A part of a host has room for
    pods of two of these sizes.
    """
    size = load.size
    counts, waiting = max(1, load.of(200, 4) // len(_WAITING_CPU)), load.of(5000, 40)
    state = new_state(node_events(size))
    holders = [
        (
            running(workload(f"large-{number}", PODS_OF_HOST - 2, number), size.host(number)),
            running(workload(f"small-{number}", 2, number), size.host(number)),
        )
        for number in range(size.hosts)
    ]
    for each in itertools.chain.from_iterable(holders):
        state.observe(WorkloadChanged(each), now=SECOND)
    for number in range(waiting):
        count, cpu = 1 + number // len(_WAITING_CPU) % counts, _WAITING_CPU[number % len(_WAITING_CPU)]
        state.observe(WorkloadChanged(workload(f"waiting-{number}", count, number, cpu=cpu)), now=SECOND)
    state.handle(_RUN, now=2 * SECOND)
    return {
        "waiting": waiting,
        "waiting_shapes": counts * len(_WAITING_CPU),
        **_released(state, "part_release", holders[0][1:]),
        **_released(state, "release", holders[1]),
    }


_WAITING_CPU: Final = (CPU_OF_POD, 2 * CPU_OF_POD, 4 * CPU_OF_POD, 8 * CPU_OF_POD)


def _released(state: AdmissionState, name: str, finished: Iterable[Workload]) -> Figures:
    """Let workloads finish, and return how many others were tried until one was admitted, and the time."""
    tried: list[object] = []

    def count_tries(*arguments: Any) -> Any:
        tried.append(arguments)
        return nominate(*arguments)

    decided: list[Any] = []

    def release() -> None:
        for each in finished:
            state.observe(WorkloadChanged(replace(each, finished=True)), now=3 * SECOND)
        decided.extend(state.handle(_RUN, now=3 * SECOND))

    with mock.patch.object(cycle, "nominate", count_tries):
        seconds = _cpu_seconds(release)
    if not any(isinstance(each, ReserveQuota) for each in decided):
        raise MeasurementFailed("the free room was not used")
    return {f"{name}_tries": len(tried), f"{name}_ms": _ms(seconds)}


# --- memory ---------------------------------------------------------------------------------------------


def _memory(load: TopologyLoad) -> Figures:
    """Keep nodes and pods in the stores of watches, and let the core observe them."""
    size, count = load.size, load.of(100_000, 100)
    names = Names(DEFAULT_GROUP)
    state = new_state(configuration())
    pods = Store(TOPOLOGY_PODS, transform=partial(trim_pod, names=names))
    nodes = Store(TOPOLOGY_NODES, transform=trim_node)
    gc.collect()
    before = _resident_bytes()
    for number in range(count):
        change = pods.upsert(_parsed(pod_object(number, size)))
        pod = None if change is None else read_pod_of_others(change.object, names)
        if change is None or pod is None:
            raise MeasurementFailed("a pod is not counted")
        state.observe(PodOfOthersChanged(ObjectKey(*change.key), pod), now=0)
    for number in range(size.hosts):
        change = nodes.upsert(_parsed(node_object(number, size)))
        if change is None:
            raise MeasurementFailed("a node is not stored")
        state.observe(NodeChanged(read_node(change.object)), now=0)
    used = _resident_bytes() - before
    return {"pods": len(pods), "memory_mb": round(used / 1e6, 1)}


def _parsed(sent: dict[str, Any]) -> dict[str, Any]:
    """Return an object as a client reads it: no two objects share strings."""
    return orjson.loads(orjson.dumps(sent))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- quality --------------------------------------------------------------------------------------------


def _quality(load: TopologyLoad) -> Figures:
    """Place jobs that prefer one rack, and compare with the most of them that can be in one rack each.

    The optimum knows all jobs before it places the first. Each case has four racks and at most six jobs.
    """
    chance = random.Random(3)  # noqa: S311 a load, not a secret
    jobs = together = most = 0
    for _ in range(load.of(400, 20)):
        racks = [[chance.randint(1, 8) for _ in range(chance.randint(1, 3))] for _ in range(4)]
        free = sum(map(sum, racks))
        counts: list[int] = []
        for _ in range(6):
            count = chance.randint(1, 12)
            if sum(counts) + count <= free:
                counts.append(count)
        jobs += len(counts)
        together += _placed_in_one_rack(racks, counts)
        most += most_in_one_rack([sum(hosts) for hosts in racks], counts)
    return {
        "jobs": jobs,
        "one_rack_share": round(together / jobs, 3),
        "one_rack_share_optimum": round(most / jobs, 3),
    }


def _placed_in_one_rack(racks: list[list[int]], counts: list[int]) -> int:
    topology = FlavorTopology("racks", LEVELS[1:])
    _add_hosts(topology.tree, racks)
    together = 0
    for count in counts:
        pods = PodsToPlace("main", count, (("cpu", 1),), TopologyRequest(preferred="rack"))
        found = topology.place([pods])
        if not isinstance(found, dict):
            raise MeasurementFailed("a job has no place although there is room")
        topology.add_usage(found["main"], pods.amounts_of_pod)
        together += len({name.partition("-")[0] for (name,), _ in found["main"].domains}) == 1
    return together


def _add_hosts(tree: DomainTree, racks: list[list[int]]) -> None:
    for rack, hosts in enumerate(racks):
        for number, cpus in enumerate(hosts):
            name = f"r{rack}-{number}"
            labels = tuple(zip(tree.levels, (f"r{rack}", name), strict=True))
            tree.set_node(Node(name, labels, (), (("cpu", cpus), ("pods", 99))))


def most_in_one_rack(free: list[int], counts: list[int]) -> int:
    """Return how many jobs can be in one rack each at most, of jobs that fit into all racks together.

    Pods have one CPU, so that the other jobs fit into what is left.
    """
    best = 0
    for racks in itertools.product(range(-1, len(free)), repeat=len(counts)):
        used = [0] * len(free)
        for rack, count in zip(racks, counts, strict=True):
            if rack >= 0:
                used[rack] += count
        if all(amount <= room for amount, room in zip(used, free, strict=True)):
            best = max(best, sum(rack >= 0 for rack in racks))
    return best


# --- all of them ----------------------------------------------------------------------------------------

PARTS: Final[Mapping[str, Callable[[TopologyLoad], Figures]]] = {
    "placement": _placement,
    "node-event": _node_event,
    "start": _start,
    "release": _release,
    "memory": _memory,
    "quality": _quality,
}
"""The functions that measure figures, by the name of the part on the command line."""


def run(load: TopologyLoad, parts: tuple[str, ...] = ()) -> tuple[Figures, bool]:
    """Measure figures, each part in its own process.

    Args:
        load: the share of the full load.
        parts: keys of ``PARTS``; empty means all.

    Returns:
        The figures, and whether all are within their bounds.
    """
    figures: Figures = {"benchmark": "topology", "scale": load.scale}
    context = multiprocessing.get_context("spawn")
    for name in parts or PARTS:
        with context.Pool(1) as pool:
            found = pool.apply(_measure, (name, load))
        to_stderr(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
        figures |= found
    passed = all(figures[name] <= bound for name, bound in BOUNDS.items() if name in figures)
    return figures, passed


def _measure(part: str, load: TopologyLoad) -> Figures:
    reduce_collections()  # As in the manager.
    return PARTS[part](load)
