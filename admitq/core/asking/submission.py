"""Would it run? What becomes of workloads that are submitted now: admitted, waiting, or never admitted.

The events of the submission and the cycles that follow are those of the manager. Decisions are carried out at
once (``execution``). So an admitted workload gets its quota in the next cycles, if its admission checks
succeed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from admitq.core.asking.branch import Branch
from admitq.core.asking.cheapest_changes import CheapestChanges, find_cheapest_changes
from admitq.core.asking.execution import Execution
from admitq.core.asking.explain import explain
from admitq.core.asking.explanations import (
    WaitingForChange,
    WaitingForClusterQueue,
    WaitingForLocalQueue,
    WaitingForOtherHeads,
    WaitingForUnusedQuota,
    WorkloadExplanation,
)
from admitq.core.events import Event
from admitq.core.instructions import Preempt
from admitq.core.model import Admission, Instant, ObjectKey, Workload
from admitq.core.refusals import NoFitReason, NoFlavorFits
from admitq.core.state import AdmissionState


class SubmissionVerdict(StrEnum):
    """What becomes of a submitted workload, from the best case to the worst."""

    ADMITTED = "Admitted"
    """It gets quota at once."""
    WAITS = "Waits"
    """It waits for something that ends with time."""
    NEVER = "Never"
    """It waits until it, its queue or a quota is changed."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What becomes of a submitted workload.

    Attributes:
        workload: the workload.
        verdict: what becomes of it.
        local_queue: its LocalQueue.
        admission: its quota; None if it gets none.
        checks: the admission checks that must succeed before it starts.
        preempted: the workloads that lose their quota to it.
        explanation: why it waits; None if it gets quota.
        changes: the cheapest changes that admit it; None if it gets quota.
    """

    workload: ObjectKey
    verdict: SubmissionVerdict
    local_queue: ObjectKey
    admission: Admission | None = None
    checks: tuple[str, ...] = ()
    preempted: tuple[ObjectKey, ...] = ()
    explanation: WorkloadExplanation | None = None
    changes: CheapestChanges | None = None


def try_submission(
    state: AdmissionState,
    events: Iterable[Event],
    submitted: Iterable[ObjectKey],
    *,
    now: Instant,
    branch_from: Callable[[AdmissionState], Branch],
    has_time: Callable[[], bool],
) -> tuple[Submission, ...]:
    """Return what becomes of workloads. Those that the events do not create or keep are left out.

    Args:
        state: a disposable state.
        events: the events of the submission, in the order in which the state observes them.
        submitted: the workloads in question.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch_from: returns a function that asks questions about a state.
        has_time: returns whether there is time to search for changes.

    Raises:
        EndlessDecisionsError: the core decides endlessly.
    """
    preempted: dict[ObjectKey, list[ObjectKey]] = {}

    def stopped(workload: Workload, preemption: Preempt | None) -> None:
        if preemption is not None:
            preempted.setdefault(preemption.preemptor, []).append(workload.key)

    execution = Execution(state, now, on_stopped=stopped)
    execution.begin()
    for event in events:
        execution.observe(event)
    execution.settle()
    branch = branch_from(state)
    found = (_describe(state, key, now, preempted, branch, has_time) for key in submitted)
    return tuple(submission for submission in found if submission is not None)


def _describe(
    state: AdmissionState,
    key: ObjectKey,
    now: Instant,
    preempted: Mapping[ObjectKey, list[ObjectKey]],
    branch: Branch,
    has_time: Callable[[], bool],
) -> Submission | None:
    entry, explanation = state.queries.world.workloads.get(key), explain(state, key, now)
    if entry is None or explanation is None:
        return None
    local_queue = ObjectKey(key.namespace, entry.workload.queue_name)
    if entry.held is not None and entry.admission is not None:
        return Submission(
            key,
            SubmissionVerdict.ADMITTED,
            local_queue,
            admission=entry.admission,
            checks=tuple(name for name, _ in entry.workload.admission_checks),
            preempted=tuple(preempted.get(key, ())),
        )
    changes = find_cheapest_changes(state, key, now, branch, has_time=has_time)
    verdict = SubmissionVerdict.NEVER if _needs_change(explanation) else SubmissionVerdict.WAITS
    return Submission(key, verdict, local_queue, explanation=explanation, changes=changes)


def _needs_change(explanation: WorkloadExplanation) -> bool:
    """Whether a workload can be admitted only after a change of itself, its queue or a quota."""
    refusal = explanation.refusal
    match explanation.waits_for:
        case WaitingForLocalQueue(exists=False) | WaitingForClusterQueue(exists=False) | WaitingForChange():
            return True
        case WaitingForUnusedQuota(refusal=of_lane) | WaitingForOtherHeads(refusal=of_lane):
            refusal = refusal or of_lane
        case _:
            pass
    return isinstance(refusal, NoFlavorFits) and refusal.reason is not NoFitReason.WAITING_FOR_QUOTA
