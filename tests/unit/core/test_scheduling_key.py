"""What of a workload decides whether and how it fits."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core.model import Admission
from admitq.core.replacing import Original
from admitq.core.waiting.scheduling_key import KeyRules
from tests.unit.core.pending_stage import LARGE, name_of, workload

ONE = workload("a", 1)


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"key": name_of("b")}, True),
        ({"queued_at": 9}, True),
        ({"queue_name": "other"}, True),
        ({"priority": 1}, False),
        ({"pod_sets": LARGE}, False),
        ({"reclaimable_pods": (("main", 1),)}, False),
        ({"has_closed_preemption_gate": True}, False),
    ],
)
def test_scheduling_key_differs_by_what_decides_over_a_workload(
    change: dict[str, Any], *, is_same: bool
) -> None:
    rules = KeyRules()
    keys = [rules.key_of(each, by_local_queue=False) for each in (ONE, replace(ONE, **change))]
    assert (keys[0] == keys[1]) is is_same


def test_scheduling_key_names_the_local_queue_where_local_queues_take_turns() -> None:
    assert KeyRules().key_of(ONE, by_local_queue=True).local_queue == name_of("main")


def test_scheduling_key_names_the_workload_where_lanes_are_not_shared() -> None:
    assert KeyRules(shares_lanes=False).key_of(ONE, by_local_queue=False).alone == ONE.key


def test_scheduling_key_of_a_replacement_names_its_original_where_the_rules_find_one() -> None:
    original = Original(name_of("first"), Admission("q", ()), ())
    replacement = replace(ONE, replaces=name_of("first"))
    assert KeyRules().key_of(replacement, by_local_queue=False).original is None
    rules = KeyRules(original_of=lambda _workload: original)
    assert rules.key_of(replacement, by_local_queue=False).original == original
    assert rules.key_of(ONE, by_local_queue=False).original is None


def test_equivalence_class_is_of_requests_and_priority_alone() -> None:
    rules = KeyRules(shares_lanes=False)
    keys = [rules.key_of(workload(name), by_local_queue=False) for name in ("a", "b")]
    assert keys[0] != keys[1]
    assert keys[0].equivalence == keys[1].equivalence
