"""Findings as fields of log lines. Explanations are worded like the conditions of workloads."""

from collections.abc import Iterable, Mapping
from typing import Final

from admitq.core.lifecycle import MEANINGS as PHASES
from admitq.core.lifecycle import Phase
from admitq.core.model import SECOND, Admission, ObjectKey
from admitq.shadow.findings import Disagreement, Obstacle, Opinion, Preempted, Reserved, StillWaiting
from admitq.translate.messages import pending_condition

OBSTACLES: Final[Mapping[Obstacle, str]] = {
    Obstacle.NO_LOCAL_QUEUE: "its LocalQueue does not exist",
    Obstacle.LOCAL_QUEUE_STOPPED: "its LocalQueue is stopped",
    Obstacle.NO_CLUSTER_QUEUE: "its ClusterQueue does not exist",
    Obstacle.BACKOFF: "its backoff has not ended",
    Obstacle.TURN: "it is not its turn",
}
"""The texts of obstacles."""


def make_log_fields(disagreement: Disagreement) -> dict[str, str]:
    """Return the fields of the log line for a disagreement."""
    return {
        "kind": disagreement.kind,
        "workload": str(disagreement.workload),
        "cluster_queue": disagreement.cluster_queue,
        "in_charge": _in_charge(disagreement),
        "admitq": _ours(disagreement),
        "explanation": explain(disagreement.opinion),
    }


def format_assignment(admission: Admission) -> str:
    """Return the flavors of a reservation for each podset: ``main: 3 pods, cpu of default``."""
    parts: list[str] = []
    for part in admission.pod_set_assignments:
        flavors = ", ".join(f"{resource} of {flavor}" for resource, flavor in part.flavors)
        pods = "1 pod" if part.count == 1 else f"{part.count} pods"
        parts.append(f"{part.name}: {pods}, {flavors}" if flavors else f"{part.name}: {pods}")
    return "; ".join(parts)


def explain(opinion: Opinion) -> str:
    """Return why the core would decide so."""
    others = f"; {_listed(opinion.instead)} would come first" if opinion.instead else ""
    if opinion.admission is not None:
        return "it fits"
    if opinion.phase is not None and opinion.phase is not Phase.PENDING:
        return PHASES[opinion.phase]
    behind = f"; {opinion.behind} blocks the queue" if opinion.behind is not None else ""
    if opinion.refusal is not None:
        return f"{pending_condition(opinion.refusal).message}{behind}{others}"
    return f"{OBSTACLES[opinion.obstacle or Obstacle.TURN]}{behind}{others}"


def _in_charge(disagreement: Disagreement) -> str:
    match disagreement.in_charge:
        case Reserved(admission):
            return f"reserved quota ({format_assignment(admission)})"
        case Preempted(_, message):
            return f"preempted it ({message})" if message else "preempted it"
        case StillWaiting(nanoseconds):
            return f"has left it waiting for {nanoseconds / SECOND:g}s"


def _ours(disagreement: Disagreement) -> str:
    opinion = disagreement.opinion
    what = _would(opinion)
    if not isinstance(disagreement.in_charge, Preempted):
        return what
    if opinion.workload == disagreement.workload:
        return "would not preempt it"
    return f"would not preempt it; of {opinion.workload}, for which it was preempted: {what}"


def _would(opinion: Opinion) -> str:
    if opinion.admission is not None:
        return f"would reserve quota ({format_assignment(opinion.admission)})"
    if opinion.victims:
        return f"would preempt {_listed(opinion.victims)} for it"
    return "would let it wait" if opinion.phase in {Phase.PENDING, None} else "would leave it as it is"


def _listed(keys: Iterable[ObjectKey]) -> str:
    return ", ".join(map(str, keys))
