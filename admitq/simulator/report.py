"""The report of a run: the measurements as one value, and as JSON.

Times are in seconds, amounts in the resource's own unit (cores, bytes, pieces), shares between 0 and 1.
The report does not depend on the machine: the same files and seed give the same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Final

import orjson

from admitq.core.amounts import FlavorResource
from admitq.core.model import SECOND, ClusterQueue, ObjectKey
from admitq.core.percentiles import percentile
from admitq.core.refusals import Refusal
from admitq.simulator.measures import Measures, QueueMeter, WorkloadCounts
from admitq.simulator.run import Ending, Simulation
from admitq.simulator.series import Level
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.topology_figures import TopologyFigures, topology_figures
from admitq.simulator.units import natural
from admitq.translate import messages

_WAITING_SHOWN: Final = 20
"""The maximum number of listed workloads that are pending at the end."""

PERCENTILES: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of workloads until the first admission, in seconds; None without admitted workloads."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class WorkloadFigures:
    """The figures of the workloads of a class or LocalQueue."""

    name: str
    submitted: int
    admitted: int
    finished: int
    failed: int
    waits: Waits


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one resource of one flavor: means over the run, in the resource's own unit."""

    flavor: str
    resource: str
    quota: float
    mean: float
    peak: float
    utilisation: float | None
    """Mean use divided by mean quota."""


@dataclass(frozen=True, slots=True)
class QueueUse:
    """The use of one resource of one flavor by one ClusterQueue."""

    cluster_queue: str
    cohort: str
    use: Use
    borrowed_mean: float
    borrowed_peak: float
    borrowed_share: float
    """The borrowed share of its use."""


@dataclass(frozen=True, slots=True)
class QueuePreemptions:
    """The preemptions of and for workloads of a ClusterQueue. Lost work in unit-seconds by resource."""

    cluster_queue: str
    preempted: int
    preempting: int
    lost: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Preemptions:
    """The preemptions of a run, and the work that they lost, in unit-seconds by resource."""

    by_reason: Mapping[str, int]
    cluster_queues: tuple[QueuePreemptions, ...]
    lost: Mapping[str, float]
    lost_share: float | None
    """Lost work divided by all work, for the resource with the largest share."""


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """What failures of nodes did to workloads, and the work that they lost, in unit-seconds by resource."""

    pods: int
    """The number of pods that stopped with their host."""
    replaced: int
    """How often the pods of a failed host got other hosts."""
    evicted: int
    """How often a workload was evicted."""
    lost: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Kills:
    """The number of killed workloads, and their lost work in unit-seconds by resource.

    ``of_nodes`` has what failures of nodes did.
    """

    total: int
    lost: Mapping[str, float]
    of_nodes: NodeFailures


@dataclass(frozen=True, slots=True)
class Fairness:
    """Jain's index: 1 if all are equal, 1/n if one has everything; None for fewer than two."""

    use: float | None
    """The index of the use of ClusterQueues while they have pending workloads."""
    waits: float | None
    """The index of the mean waits of LocalQueues."""


@dataclass(frozen=True, slots=True)
class WaitingAtEnd:
    """A workload that is pending at the end, and the reason of its last refusal."""

    workload: str
    local_queue: str
    cluster_queue: str
    since: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run."""

    scenario: str
    description: str
    seed: int
    ending: Ending
    seconds: float
    all: WorkloadFigures
    running: int
    waiting: int
    makespan: float | None
    """The time from the first submission to the last end; None unless all workloads have ended."""
    bound: float | None
    """The lower bound of the makespan."""
    jain: Fairness
    queues: tuple[WorkloadFigures, ...]
    classes: tuple[WorkloadFigures, ...]
    flavors: tuple[Use, ...]
    cluster_queues: tuple[QueueUse, ...]
    preemptions: Preemptions
    kills: Kills
    left_waiting: tuple[WaitingAtEnd, ...]
    left_out: Mapping[str, int]
    topologies: tuple[TopologyFigures, ...] = ()
    """The flavors with a topology, if the run has nodes."""

    @property
    def node_failures(self) -> NodeFailures:
        """What failures of nodes did to workloads."""
        return self.kills.of_nodes

    @property
    def ratio(self) -> float | None:
        """Makespan divided by bound."""
        return None if self.makespan is None or not self.bound else _rounded(self.makespan / self.bound)

    def to_json(self) -> bytes:
        """Return one JSON document, with a newline at its end."""
        return orjson.dumps(self.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON document; docs/reference/simulation-report.md describes them."""
        # Runs without nodes have no such fields, so that their documents stay the same.
        topologies = [figures.to_dict() for figures in self.topologies]
        failures = self.node_failures
        of_nodes = {
            "nodeFailures": {
                "pods": failures.pods,
                "replaced": failures.replaced,
                "evicted": failures.evicted,
                "lost": dict(failures.lost),
            },
            "topologies": topologies,
        }
        return {
            "scenario": self.scenario,
            "description": self.description,
            "seed": self.seed,
            "ending": self.ending.value,
            "seconds": self.seconds,
            "workloads": {
                "submitted": self.all.submitted,
                "admitted": self.all.admitted,
                "finished": self.all.finished,
                "failed": self.all.failed,
                "running": self.running,
                "waiting": self.waiting,
            },
            "makespan": self.makespan,
            "bound": self.bound,
            "makespanToBound": self.ratio,
            "jain": {"use": self.jain.use, "waits": self.jain.waits},
            "waits": _waits_dict(self.all.waits),
            "localQueues": [_fared_dict(figures) for figures in self.queues],
            "classes": [_fared_dict(figures) for figures in self.classes],
            "flavors": [_use_dict(use) for use in self.flavors],
            "clusterQueues": [
                {
                    "name": use.cluster_queue,
                    "cohort": use.cohort,
                    **_use_dict(use.use),
                    "borrowedMean": use.borrowed_mean,
                    "borrowedPeak": use.borrowed_peak,
                    "borrowedShare": use.borrowed_share,
                }
                for use in self.cluster_queues
            ],
            "preemptions": {
                "total": sum(self.preemptions.by_reason.values()),
                "byReason": dict(self.preemptions.by_reason),
                "clusterQueues": [
                    {
                        "name": counts.cluster_queue,
                        "preempted": counts.preempted,
                        "preempting": counts.preempting,
                        "lost": dict(counts.lost),
                    }
                    for counts in self.preemptions.cluster_queues
                ],
                "lost": dict(self.preemptions.lost),
                "lostShare": self.preemptions.lost_share,
            },
            "kills": {"total": self.kills.total, "lost": dict(self.kills.lost)},
            "leftWaiting": [
                {
                    "workload": workload.workload,
                    "localQueue": workload.local_queue,
                    "clusterQueue": workload.cluster_queue,
                    "since": workload.since,
                    "reason": workload.reason,
                    "message": workload.message,
                }
                for workload in self.left_waiting
            ],
            "leftOut": dict(self.left_out),
            **(of_nodes if topologies else {}),
        }


def _waits_dict(waits: Waits) -> dict[str, float | None]:
    return {"mean": waits.mean, "p50": waits.p50, "p90": waits.p90, "p99": waits.p99, "max": waits.most}


def _fared_dict(figures: WorkloadFigures) -> dict[str, Any]:
    return {
        "name": figures.name,
        "submitted": figures.submitted,
        "admitted": figures.admitted,
        "finished": figures.finished,
        "failed": figures.failed,
        "waits": _waits_dict(figures.waits),
    }


def _use_dict(use: Use) -> dict[str, Any]:
    return {
        "flavor": use.flavor,
        "resource": use.resource,
        "quota": use.quota,
        "mean": use.mean,
        "peak": use.peak,
        "utilisation": use.utilisation,
    }


# --- creation ------------------------------------------------------------------------------------


def report(simulation: Simulation) -> Report:
    """Return the report of a run that has ended."""
    plan, measures, now = simulation.plan, simulation.measures, simulation.now
    ending = simulation.ending or Ending.UNTIL
    unfinished = list(simulation.workloads.unfinished.values())
    waiting = [simulated for simulated in unfinished if _is_pending(simulated)]
    begin = measures.first_submission or 0
    # Unless the end was given, the run ends with its last workload, not with the last change of the scenario.
    end = max(measures.last_end, begin) if ending is Ending.FINISHED else now
    capacity = {resource: float(amount) for resource, amount in measures.capacity.items()}
    finished = ending is Ending.FINISHED and not measures.all.failed and measures.all.finished > 0
    return Report(
        scenario=plan.name,
        description=plan.description,
        seed=plan.seed,
        ending=ending,
        seconds=_seconds(end),
        all=_fared("all", measures.all),
        running=len(unfinished) - len(waiting),
        waiting=len(waiting),
        makespan=_seconds(measures.last_end - begin) if ending is Ending.FINISHED else None,
        bound=_seconds(measures.lower.bound(capacity) - begin)
        if finished and measures.all.finished
        else None,
        jain=Fairness(_jain_of_use(measures, end), _jain_of_waits(measures)),
        queues=tuple(_fared(str(key), measures.by_queue[key]) for key in sorted(measures.by_queue)),
        classes=tuple(_fared(name, counts) for name, counts in measures.by_class.items()),
        flavors=tuple(_flavor_use(measures, pair, end) for pair in sorted(measures.quotas)),
        cluster_queues=tuple(
            _queue_use(meter, pair, end)
            for _, meter in sorted(measures.queues.items())
            for pair in sorted({**meter.quotas, **meter.uses})
        ),
        preemptions=_preemptions(measures),
        kills=_kills(measures),
        left_waiting=tuple(_left(simulation, simulated) for simulated in islice(waiting, _WAITING_SHOWN)),
        left_out=dict(plan.left_out),
        topologies=topology_figures(simulation.topologies, end),
    )


def _rounded(value: float, digits: int = 6) -> float:
    return round(value, digits)


def _seconds(nanoseconds: float) -> float:
    return _rounded(nanoseconds / SECOND)


def _work(of: Mapping[str, int]) -> dict[str, float]:
    return {
        resource: _rounded(natural(resource, amount / SECOND), 3) for resource, amount in sorted(of.items())
    }


def _waits(of: Iterable[int]) -> Waits:
    ordered = sorted(of)
    if not ordered:
        return Waits(None, None, None, None, None)
    p50, p90, p99 = (_seconds(percentile(ordered, percent)) for percent in PERCENTILES)
    return Waits(_seconds(sum(ordered) / len(ordered)), p50, p90, p99, _seconds(ordered[-1]))


def _fared(name: str, of: WorkloadCounts) -> WorkloadFigures:
    return WorkloadFigures(name, of.submitted, len(of.waits), of.finished, of.failed, _waits(of.waits))


def _mean(level: Level | None, end: int) -> float:
    if level is None or not end:
        return 0.0
    level.settle(end)
    return level.integral / end


def _use(pair: FlavorResource, quota: float, mean: float, peak: float) -> Use:
    flavor, resource = pair
    return Use(
        flavor,
        resource,
        _rounded(natural(resource, quota)),
        _rounded(natural(resource, mean)),
        _rounded(natural(resource, peak)),
        _rounded(mean / quota) if quota else None,
    )


def _flavor_use(measures: Measures, pair: FlavorResource, end: int) -> Use:
    use = measures.uses.get(pair)
    return _use(pair, _mean(measures.quotas[pair], end), _mean(use, end), 0 if use is None else use.peak)


def _queue_use(meter: QueueMeter, pair: FlavorResource, end: int) -> QueueUse:
    use, borrows = meter.uses.get(pair), meter.borrows.get(pair)
    mean = _mean(use, end)
    borrowed = _mean(borrows, end)
    return QueueUse(
        meter.spec.name,
        meter.spec.cohort or "",
        _use(pair, _mean(meter.quotas.get(pair), end), mean, 0 if use is None else use.peak),
        _rounded(natural(pair.resource, borrowed)),
        _rounded(natural(pair.resource, 0 if borrows is None else borrows.peak)),
        _rounded(borrowed / mean) if mean else 0.0,
    )


def _preemptions(measures: Measures) -> Preemptions:
    return Preemptions(
        by_reason={str(reason): count for reason, count in sorted(measures.preemptions.items())},
        cluster_queues=tuple(
            QueuePreemptions(name, meter.preempted, meter.preempting, _work(meter.lost))
            for name, meter in sorted(measures.queues.items())
            if meter.preempted or meter.preempting
        ),
        lost=_work(_lost(measures)),
        lost_share=_lost_share(measures),
    )


def _kills(measures: Measures) -> Kills:
    of_nodes = measures.host_failures
    return Kills(
        measures.killed,
        _work(measures.lost),
        NodeFailures(of_nodes.pods, of_nodes.replaced, of_nodes.evicted, _work(of_nodes.lost)),
    )


def _lost(measures: Measures) -> dict[str, int]:
    total: dict[str, int] = {}
    for meter in measures.queues.values():
        for resource, amount in meter.lost.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _lost_share(measures: Measures) -> float | None:
    shares = [
        amount
        / (
            amount
            + measures.useful[resource]
            + measures.lost[resource]
            + measures.host_failures.lost[resource]
        )
        for resource, amount in _lost(measures).items()
        if amount
    ]
    return _rounded(max(shares)) if shares else (0.0 if measures.useful else None)


# --- fairness -------------------------------------------------------------------------------------


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's index: 1 if all are equal, 1/n if one has everything; None for fewer than two."""
    squares = sum(value * value for value in values)
    if len(values) < 2:
        return None
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def _weight(spec: ClusterQueue) -> Fraction:
    return spec.fair_weight


def _jain_of_use(measures: Measures, end: int) -> float | None:
    """Return the mean over the time in which at least two ClusterQueues have waiting workloads.

    The use of a ClusterQueue is the share of its dominant resource, divided by its weight. Only ClusterQueues
    with waiting workloads count, because others get all that they request.
    """
    capacity = measures.capacity
    queues: list[tuple[list[float], list[float]]] = []
    for meter in measures.queues.values():
        weight = float(_weight(meter.spec))
        if not weight or not meter.waiting.peak:
            continue
        shares: dict[str, list[float]] = {}
        for pair, level in meter.uses.items():
            there = capacity.get(pair.resource)
            if there:
                means = [value / there / weight for value in level.bucket_means(end)]
                known = shares.get(pair.resource)
                shares[pair.resource] = (
                    means if known is None else [a + b for a, b in zip(known, means, strict=True)]
                )
        waiting = meter.waiting.bucket_means(end)
        dominant = [max(values) for values in zip(*shares.values(), strict=True)] or [0.0] * len(waiting)
        queues.append((waiting, dominant))
    indexes: list[float] = []
    for bucket in range(len(queues[0][0]) if queues else 0):
        used = [dominant[bucket] for waiting, dominant in queues if waiting[bucket] >= 1]
        index = jain(used)
        if index is not None:
            indexes.append(index)
    return _rounded(sum(indexes) / len(indexes)) if indexes else None


def _jain_of_waits(measures: Measures) -> float | None:
    means = [sum(counts.waits) / len(counts.waits) for counts in measures.by_queue.values() if counts.waits]
    index = jain(means)
    return None if index is None else _rounded(index)


# --- pending workloads ------------------------------------------------------------------------------


def _is_pending(simulated: SimulatedWorkload) -> bool:
    """Whether a workload has no quota, or its quota and no place."""
    workload = simulated.workload
    return workload.admission is None or (not workload.admitted and simulated.second_pass_refusal is not None)


def _left(simulation: Simulation, simulated: SimulatedWorkload) -> WaitingAtEnd:
    state, key = simulation.state, simulated.workload.key
    refusal = (
        simulated.second_pass_refusal
        or state.queries.last_refusal(key)
        or state.queries.find_inadmissibility(key)
    )
    reason = _said(refusal, simulated.local_queue)
    return WaitingAtEnd(
        str(key),
        str(simulated.local_queue),
        simulation.measures.routes.get(simulated.local_queue, ""),
        _seconds(simulated.submitted),
        reason.reason,
        reason.message,
    )


def _said(refusal: Refusal | None, queue: ObjectKey) -> messages.Explanation:
    if refusal is None:
        return messages.Explanation("Pending", f"waits in LocalQueue {queue} and was not evaluated yet")
    return messages.pending_condition(refusal)
