"""Compare the decisions of a cycle of the core with the reference model."""

from admitq.core.instructions import (
    Instruction,
    Preempt,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.model import ObjectKey
from tests.laws.law import check_law
from tests.laws.reference.assignment import Assignment
from tests.laws.reference.cycle import Outcome, Preemption
from tests.laws.reference.observed import Observed
from tests.laws.reference.second_pass import Turn
from tests.laws.reference.tree import Node, queue_node


def check_second_passes(expected: list[tuple[Turn, str]], instructions: list[Instruction]) -> None:
    """Check that the core makes the second passes that are due, with the expected refusals."""
    foreseen = [(turn.key, turn.uid, refusal) for turn, refusal in expected]
    decided = [
        (each.key, each.uid, type(each.refusal).__name__)
        for each in instructions
        if isinstance(each, ReportSecondPass)
    ]
    check_law(decided == foreseen, "model: other second passes", f"core  {decided}", f"model {foreseen}")


def compare_cycle(observed: Observed, outcome: Outcome, instructions: list[Instruction]) -> None:
    """Check that a cycle decided as the model says; the order between cohort trees does not matter."""
    tree = observed.tree()

    def root(key: ObjectKey) -> Node:
        return tree.root(queue_node(observed.waits_in(key) or ""))

    expected = [(key, assigned_podsets(assignment)) for key, assignment in outcome.reservations]
    decided = [
        (
            each.key,
            {
                part.name: (part.count, dict(part.flavors), dict(part.resource_usage))
                for part in each.admission.pod_set_assignments
            },
        )
        for each in instructions
        if isinstance(each, ReserveQuota)
    ]
    for some in (expected, decided):
        some.sort(key=lambda each: root(each[0]))
    check_law(decided == expected, "model: other reservations", f"core  {decided}", f"model {expected}")
    preempted = [
        Preemption(each.key, each.preemptor, each.reason)
        for each in instructions
        if isinstance(each, Preempt)
    ]
    foreseen = sorted(outcome.preemptions, key=lambda each: root(each.preemptor))
    preempted.sort(key=lambda each: root(each.preemptor))
    check_law(preempted == foreseen, "model: other preemptions", f"core  {preempted}", f"model {foreseen}")
    for each in instructions:
        if isinstance(each, ReportPending) and each.key in outcome.refusals:
            refusal = type(each.refusal).__name__
            check_law(refusal == outcome.refusals[each.key], "model: another refusal", each, outcome.refusals)


def assigned_podsets(assignment: Assignment) -> dict[str, tuple[int, dict[str, str], dict[str, int]]]:
    """Return an assignment in the form of an admission."""
    return {
        name: (count, assignment.flavors[name], assignment.amounts[name])
        for name, count in assignment.counts.items()
    }
