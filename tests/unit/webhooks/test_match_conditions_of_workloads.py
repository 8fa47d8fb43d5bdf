"""The API server calls the webhooks of Workloads if they may change or reject an object."""

from typing import Any

import pytest
from cel import evaluate
from hypothesis import event, given, settings
from hypothesis import strategies as st

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_webhooks.match_conditions import has_field_to_change, may_break_rule_of_workloads
from admitq_webhooks.mutate.kinds import mutate_workload
from admitq_webhooks.validate.workload import validate_update
from tests.unit.webhooks.support import NAMES
from tests.unit.webhooks.test_workloads import a_workload, assignment, pod_set, reserved_status

GATES = FeatureGates({})
GATES_WITHOUT_PARTIAL_ADMISSION = FeatureGates({Gate.PARTIAL_ADMISSION: False})


def is_reviewed(old: Any, new: Any, operation: str = "UPDATE", **request: Any) -> bool:
    """Whether the API server calls the webhook."""
    context = {"object": new, "oldObject": old, "request": {"operation": operation, **request}}
    result = evaluate(may_break_rule_of_workloads(), context)
    assert isinstance(result, bool)
    return result


def condition(kind: str, status: str = "True", reason: str = "r") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason}


PENDING = {"conditions": [condition("QuotaReserved", "False")]}
CHECK = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}


@pytest.mark.parametrize(
    ("old", "new", "reviewed"),
    [
        pytest.param(None, PENDING, False, id="first reason"),
        pytest.param(PENDING, {"conditions": []}, False, id="conditions removed"),
        pytest.param(PENDING, None, False, id="status removed"),
        pytest.param(PENDING, reserved_status(), True, id="reservation"),
        pytest.param(PENDING, {"conditions": [condition("QuotaReserved")]}, True, id="without admission"),
        pytest.param(
            reserved_status(),
            {**reserved_status(), "conditions": [condition("QuotaReserved"), condition("Finished")]},
            False,
            id="end",
        ),
        pytest.param(
            reserved_status(),
            {**reserved_status(), "conditions": [condition("QuotaReserved"), condition("Evicted")]},
            False,
            id="eviction",
        ),
        pytest.param(reserved_status(), PENDING, True, id="release"),
        pytest.param(reserved_status(), reserved_status(assignment(2)), True, id="changed admission"),
        pytest.param(PENDING, {**PENDING, "admissionChecks": [CHECK]}, True, id="admission checks"),
        pytest.param(PENDING, {**PENDING, "clusterName": "west"}, True, id="cluster"),
        pytest.param(
            PENDING, {**PENDING, "reclaimablePods": [{"name": "main", "count": 1}]}, True, id="reclaimable"
        ),
    ],
)
def test_update_of_status_is_reviewed_if_a_rule_restricts_it(old: Any, new: Any, reviewed: bool) -> None:
    before, after = a_workload(status=old), a_workload(status=new)
    assert is_reviewed(before, after, subResource="status") is reviewed


def test_other_requests_are_reviewed() -> None:
    workload = a_workload(status=PENDING)
    assert is_reviewed(None, workload, "CREATE")
    assert is_reviewed(workload, workload)
    assert is_reviewed(workload, workload, subResource="")


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict(fields))


names = st.sampled_from(["main", "other"])
counts = st.integers(0, 5)
conditions = st.lists(
    st.builds(condition, st.sampled_from(["QuotaReserved", "Finished"]), st.sampled_from(["True", "False"])),
    max_size=2,
    unique_by=lambda each: each["type"],
)
assignments = st.builds(assignment, counts, st.just({"cpu": "4"}), names)
statuses = st.none() | optional(
    conditions=conditions,
    admission=st.fixed_dictionaries(
        {"clusterQueue": names, "podSetAssignments": st.lists(assignments, max_size=2)}
    ),
    admissionChecks=st.lists(
        st.fixed_dictionaries(
            {"name": st.just("c"), "state": st.sampled_from(["Ready", "Pending"])},
            optional={"podSetUpdates": st.just([{"name": "main", "labels": {"a": "b"}}])},
        ),
        max_size=1,
    ),
    reclaimablePods=st.lists(st.fixed_dictionaries({"name": names, "count": counts}), max_size=2),
    clusterName=names,
    nominatedClusterNames=st.lists(names, max_size=2),
)


@settings(max_examples=1000)
@given(statuses, statuses, st.data())
def test_update_that_a_rule_rejects_is_reviewed(old: Any, drawn: Any, data: st.DataObject) -> None:
    new = drawn
    if old and drawn is not None:  # Most updates change one field.
        kept = data.draw(st.sets(st.sampled_from(sorted(old))))
        new = {**drawn, **{field: old[field] for field in kept}}
    before, after = a_workload(status=old), a_workload(status=new)
    errors = validate_update(before, after, NAMES, GATES)
    event("rejected" if errors else "allowed")
    assert not errors or is_reviewed(before, after, subResource="status")


def labelled(key: str) -> dict[str, Any]:
    """A new Workload with a label."""
    return {**a_workload(), "metadata": {"labels": {key: "true"}}}


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(a_workload(), id="no minimum"),
        pytest.param(a_workload(pod_set(minCount=2)), id="minimum"),
        pytest.param(a_workload(pod_set(), pod_set("other", minCount=1)), id="minimum of the second podset"),
        pytest.param(labelled(NAMES.finished), id="label of finished workloads"),
        pytest.param(labelled("team"), id="other label"),
        pytest.param({"metadata": {}}, id="no spec"),
        pytest.param({"metadata": {}, "spec": {"podSets": "text"}}, id="podsets of another type"),
        pytest.param({"metadata": {}, "spec": {"podSets": ["text"]}}, id="podset of another type"),
    ],
)
def test_new_workload_is_reviewed_if_it_may_be_changed(workload: Any) -> None:
    is_changed = mutate_workload(workload, NAMES, GATES_WITHOUT_PARTIAL_ADMISSION) != workload
    assert evaluate(has_field_to_change(NAMES), {"object": workload}) is is_changed
