"""What a cycle of the core decides, compared with the reference model."""

from admitq.core.instructions import (
    Instruction,
    Preempt,
    ReportPending,
    ReportSecondPass,
    ReserveQuota,
)
from admitq.core.model import ObjectKey
from tests.laws.law import law
from tests.laws.reference.assignment import Assignment
from tests.laws.reference.cycle import Outcome, Preemption
from tests.laws.reference.observed import Observed
from tests.laws.reference.second_pass import Turn
from tests.laws.reference.tree import Node, queue_node


def check_second_passes(expected: list[tuple[Turn, str]], instructions: list[Instruction]) -> None:
    """Those are tried once more whose turn it is, and keep what they have."""
    foreseen = [(turn.key, turn.uid, refusal) for turn, refusal in expected]
    told = [
        (each.key, each.uid, type(each.refusal).__name__)
        for each in instructions
        if isinstance(each, ReportSecondPass)
    ]
    law(told == foreseen, "model: other second passes", f"core  {told}", f"model {foreseen}")


def compare(observed: Observed, outcome: Outcome, instructions: list[Instruction]) -> None:
    """The cycle did what the model says; what happens in one tree is nothing to another."""
    tree = observed.tree()

    def root(key: ObjectKey) -> Node:
        return tree.root(queue_node(observed.waits_in(key) or ""))

    expected = [(key, admission_parts(assignment)) for key, assignment in outcome.reservations]
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
    law(decided == expected, "model: other reservations", f"core  {decided}", f"model {expected}")
    preempted = [
        Preemption(each.key, each.preemptor, each.reason)
        for each in instructions
        if isinstance(each, Preempt)
    ]
    foreseen = sorted(outcome.preemptions, key=lambda each: root(each.preemptor))
    preempted.sort(key=lambda each: root(each.preemptor))
    law(preempted == foreseen, "model: other preemptions", f"core  {preempted}", f"model {foreseen}")
    for each in instructions:
        if isinstance(each, ReportPending) and each.key in outcome.refusals:
            told = type(each.refusal).__name__
            law(told == outcome.refusals[each.key], "model: another refusal", each, outcome.refusals)


def admission_parts(assignment: Assignment) -> dict[str, tuple[int, dict[str, str], dict[str, int]]]:
    """An assignment as an admission tells it."""
    return {
        name: (count, assignment.flavors[name], assignment.amounts[name])
        for name, count in assignment.counts.items()
    }
