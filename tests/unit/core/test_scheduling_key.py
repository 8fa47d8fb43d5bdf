"""Which fields of a workload its scheduling key contains."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.core.model import Admission
from admitq.core.replacing import Original
from admitq.core.waiting.scheduling_key import KeyRules
from tests.unit.core.pending_workloads import LARGE, name_of, workload

WORKLOAD = workload("a", 1)


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
def test_scheduling_key_differs_only_by_fields_that_decide_whether_workload_fits(
    change: dict[str, Any], *, is_same: bool
) -> None:
    rules = KeyRules()
    keys = [rules.key_of(each, by_local_queue=False) for each in (WORKLOAD, replace(WORKLOAD, **change))]
    assert (keys[0] == keys[1]) is is_same


def test_scheduling_key_contains_local_queue_with_usage_based_admission() -> None:
    assert KeyRules().key_of(WORKLOAD, by_local_queue=True).local_queue == name_of("main")


def test_scheduling_key_contains_workload_when_lanes_are_not_shared() -> None:
    assert KeyRules(shares_lanes=False).key_of(WORKLOAD, by_local_queue=False).alone == WORKLOAD.key


def test_scheduling_key_of_replacement_contains_its_original() -> None:
    original = Original(name_of("first"), Admission("q", ()), ())
    replacement = replace(WORKLOAD, replaces=name_of("first"))
    assert KeyRules().key_of(replacement, by_local_queue=False).original is None
    rules = KeyRules(original_of=lambda _workload: original)
    assert rules.key_of(replacement, by_local_queue=False).original == original
    assert rules.key_of(WORKLOAD, by_local_queue=False).original is None


def test_equivalence_class_is_the_same_for_equal_requests_and_priority() -> None:
    rules = KeyRules(shares_lanes=False)
    keys = [rules.key_of(workload(name), by_local_queue=False) for name in ("a", "b")]
    assert keys[0] != keys[1]
    assert keys[0].equivalence == keys[1].equivalence
