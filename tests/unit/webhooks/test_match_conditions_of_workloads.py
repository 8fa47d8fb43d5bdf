"""The API server calls the webhooks of Workloads if they may change or reject an object."""

import re
from typing import Any

import cel
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_webhooks.match_conditions.expressions import MOST_ENTRIES
from admitq_webhooks.match_conditions.workloads import has_field_to_change, may_break_rule
from admitq_webhooks.mutate.kinds import mutate_workload
from admitq_webhooks.validate.workload import validate_create, validate_update
from tests.unit.webhooks.support import NAMES
from tests.unit.webhooks.test_workloads import a_workload, assignment, pod_set, pod_spec, reserved_status

MAY_BREAK_RULE = cel.compile(may_break_rule(NAMES))
GATES = FeatureGates({})
GATES_WITHOUT_PARTIAL_ADMISSION = FeatureGates({Gate.PARTIAL_ADMISSION: False})


def find(text: str, pattern: str) -> str:
    """Kubernetes adds this function to CEL: the first match of a regular expression, or an empty text."""
    found = re.search(pattern, text)
    return found[0] if found else ""


def is_reviewed(old: Any, new: Any, operation: str = "UPDATE", **request: Any) -> bool:
    """Whether the API server calls the webhook."""
    variables = {"object": new, "oldObject": old, "request": {"operation": operation, **request}}
    context = cel.Context(variables, {"find": find})
    result = MAY_BREAK_RULE.execute(context)
    assert isinstance(result, bool)
    return result


def condition(kind: str, status: str = "True", reason: str = "r") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason}


def many(value: str) -> dict[str, str]:
    return {f"key-{number}": value for number in range(MOST_ENTRIES + 1)}


PENDING = {"conditions": [condition("QuotaReserved", "False")]}


def reclaimable(count: int, podset: str = "main") -> dict[str, Any]:
    """The status of a Workload that waits, with reclaimable pods."""
    return {**PENDING, "reclaimablePods": [{"name": podset, "count": count}]}


CHECK = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}


@pytest.mark.parametrize(
    ("old", "new", "reviewed"),
    [
        pytest.param(None, PENDING, False, id="first reason"),
        pytest.param(PENDING, {"conditions": []}, False, id="conditions removed"),
        pytest.param(PENDING, None, False, id="status removed"),
        pytest.param(PENDING, reserved_status(), False, id="reservation of four pods"),
        pytest.param(PENDING, reserved_status(assignment(1)), False, id="reservation of one pod"),
        pytest.param(PENDING, reserved_status(assignment(3)), True, id="four CPUs for three pods"),
        pytest.param(PENDING, reserved_status(assignment(0)), True, id="reservation of no pod"),
        pytest.param(PENDING, reserved_status(assignment(1, name="other")), True, id="other podset"),
        pytest.param(
            PENDING,
            reserved_status(assignment(1), assignment(3)),
            True,
            id="one and three pods",
        ),
        pytest.param(reserved_status(), reserved_status(assignment(1)), True, id="changed to one pod"),
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
        pytest.param(reserved_status(), PENDING, False, id="release"),
        pytest.param(
            reserved_status(), {**reserved_status(), **PENDING}, False, id="release, same admission"
        ),
        pytest.param(
            {**reserved_status(), **PENDING},
            {**reserved_status(assignment(1)), **PENDING},
            True,
            id="leftover",
        ),
        pytest.param(reserved_status(), reserved_status(assignment(2)), True, id="changed admission"),
        pytest.param(PENDING, {**PENDING, "admissionChecks": [CHECK]}, True, id="admission checks"),
        pytest.param(PENDING, {**PENDING, "clusterName": "west"}, True, id="cluster"),
        pytest.param(PENDING, reclaimable(1), False, id="reclaimable pods"),
        pytest.param(reclaimable(1), reclaimable(4), False, id="more reclaimable pods"),
        pytest.param(reclaimable(2), reclaimable(1), True, id="fewer reclaimable pods"),
        pytest.param(reclaimable(1), PENDING, True, id="no reclaimable pods any more"),
        pytest.param(reclaimable(1), reclaimable(5), True, id="more reclaimable pods than pods"),
        pytest.param(PENDING, reclaimable(1, "other"), True, id="reclaimable pods of another podset"),
    ],
)
def test_update_of_status_is_reviewed_if_a_rule_restricts_it(old: Any, new: Any, reviewed: bool) -> None:
    before, after = a_workload(status=old), a_workload(status=new)
    assert is_reviewed(before, after, subResource="status") is reviewed


@pytest.mark.parametrize(
    ("pods", "usage", "reviewed"),
    [
        pytest.param(4, {"cpu": "1", "memory": "1Gi", "a.b/c": "1k"}, False, id="units of many parts"),
        pytest.param(3, {"cpu": "600m", "memory": "30Gi", "a.b/c": 6}, False, id="multiples"),
        pytest.param(3, {"cpu": "700m"}, True, id="milli-CPU"),
        pytest.param(3, {"memory": "10Gi"}, True, id="memory"),
        pytest.param(3, {"a.b/c": 7}, True, id="number"),
        pytest.param(3, {"a.b/c": "3000m"}, True, id="thousandths of a device"),
        pytest.param(2, {"memory": "2.2Gi"}, True, id="fraction"),
        pytest.param(2, {"memory": "2e3"}, True, id="exponent"),
        pytest.param(2, {"memory": "2" + "0" * 15}, True, id="long number"),
        pytest.param(2, many("2"), True, id="many resources"),
    ],
)
def test_reservation_is_reviewed_unless_amounts_are_certain_multiples(
    pods: int, usage: Any, reviewed: bool
) -> None:
    before, after = (a_workload(status=one) for one in (PENDING, reserved_status(assignment(pods, usage))))
    assert is_reviewed(before, after, subResource="status") is reviewed


def test_other_requests_are_reviewed() -> None:
    workload = a_workload(status=PENDING)
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
usages = st.dictionaries(
    st.sampled_from(["cpu", "memory", "a.b/c"]),
    st.sampled_from(
        ["4", "6", 5, 6, "1k", "6k", "10m", "15m", "6u", "1Ki", "6Mi", "1.5Gi", "2e1", "9E", "16E"]
    ),
    max_size=2,
)
assignments = st.builds(assignment, counts, usages, names)
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
    reclaimablePods=st.lists(
        st.fixed_dictionaries({"name": names, "count": counts}),
        max_size=2,
        unique_by=lambda each: each["name"],
    ),
    clusterName=names,
    nominatedClusterNames=st.lists(names, max_size=2),
)


EXAMPLES = pytest.mark.parametrize("examples", [400, pytest.param(1000, marks=pytest.mark.release)])


@EXAMPLES
def test_update_that_a_rule_rejects_is_reviewed(examples: int) -> None:
    @settings(max_examples=examples)
    @given(statuses, statuses, st.data())
    def holds(old: Any, drawn: Any, data: st.DataObject) -> None:
        new = drawn
        if old and drawn is not None:  # Most updates change one field.
            kept = data.draw(st.sets(st.sampled_from(sorted(old))))
            new = {**drawn, **{field: old[field] for field in kept}}
        before, after = a_workload(status=old), a_workload(status=new)
        errors = validate_update(before, after, NAMES, GATES)
        event("rejected" if errors else "allowed")
        assert not errors or is_reviewed(before, after, subResource="status")

    holds()


def with_metadata(**metadata: Any) -> Any:
    """A podset with metadata of its template."""
    plain = pod_set()
    return {**plain, "template": {**plain["template"], "metadata": metadata}}


@pytest.mark.parametrize(
    ("workload", "reviewed"),
    [
        pytest.param(a_workload(), False, id="simple"),
        pytest.param(a_workload(pod_set(), pod_set("other")), False, id="two podsets"),
        pytest.param(
            a_workload(pod_set(spec=pod_spec(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": 2}))),
            False,
            id="requests",
        ),
        pytest.param(a_workload(with_metadata(labels={"a.b/c": "d", "e": ""})), False, id="labels"),
        pytest.param(a_workload(with_metadata(annotations={"a.b/c": "{}"})), False, id="annotations"),
        pytest.param(a_workload(annotations={"a.b/c": "{}"}), False, id="other annotation"),
        pytest.param(a_workload(annotations={NAMES.priority_boost: "1"}), True, id="boost"),
        pytest.param(a_workload(annotations={NAMES.admission_gated_by: "a.b/c"}), True, id="gate"),
        pytest.param(a_workload(pod_set(minCount=1)), True, id="minimum"),
        pytest.param(
            a_workload(pod_set(topologyRequest={"podIndexLabel": "a.b/c"})), False, id="label of the index"
        ),
        pytest.param(a_workload(pod_set(topologyRequest={"podSetSliceSize": 2})), True, id="slices"),
        pytest.param(a_workload(with_metadata(labels={"no key": "d"})), True, id="key of a label"),
        pytest.param(a_workload(with_metadata(labels={"a": "no value"})), True, id="value of a label"),
        pytest.param(a_workload(with_metadata(labels=many("a"))), True, id="many labels"),
        pytest.param(a_workload(with_metadata(annotations={"no key": "d"})), True, id="key of an annotation"),
        pytest.param(a_workload(with_metadata(annotations=many("a"))), True, id="many annotations"),
        pytest.param(
            a_workload(with_metadata(annotations={"a": "b" * 5000})), True, id="long value of an annotation"
        ),
        pytest.param(a_workload(pod_set(spec=pod_spec(requests={"pods": "1"}))), True, id="pods"),
        pytest.param(a_workload(pod_set(spec=pod_spec(limits={"cpu": "-1"}))), True, id="negative"),
        pytest.param(a_workload(pod_set(spec=pod_spec(limits={"cpu": -1}))), True, id="negative number"),
        pytest.param(a_workload(pod_set(spec=pod_spec(requests=many("1")))), True, id="many requests"),
        pytest.param(
            a_workload(pod_set(spec={"containers": [], "resources": {"requests": {"cpu": "1"}}})),
            True,
            id="requests of the pod",
        ),
        pytest.param(
            a_workload(pod_set(spec={"containers": [{"name": "c"}] * (MOST_ENTRIES + 1)})),
            True,
            id="many containers",
        ),
        pytest.param(
            a_workload(
                pod_set(
                    spec={"containers": [], "initContainers": pod_spec(requests={"pods": 1})["containers"]}
                )
            ),
            True,
            id="pods of an init container",
        ),
    ],
)
def test_new_workload_is_reviewed_unless_it_is_simple(workload: Any, reviewed: bool) -> None:
    assert is_reviewed(None, workload, "CREATE") is reviewed


keys = st.sampled_from(["a", "a.b/c", "A/b", "-a", "a b", "", "x" * 64, "A" * 63, "a/b/c", "é"])
values = st.sampled_from(["", "a", "A.b_c-1", "-a", "a b", "x" * 64, "1\n"])
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "a.b/c"]),
    st.sampled_from(["1", "-1", "0", "-0", "100m", 1, -1, 0, "1Gi", " -1"]),
    max_size=2,
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("c")}, optional={"resources": optional(requests=amounts, limits=amounts)}
    ),
    max_size=2,
)
pod_sets = st.builds(
    pod_set,
    spec=st.fixed_dictionaries(
        {"containers": containers},
        optional={"initContainers": containers, "resources": optional(requests=amounts)},
    ),
    topologyRequest=optional(
        podIndexLabel=st.just("a"),
        podSetSliceSize=st.integers(-1, 2),
        podSetSliceRequiredTopology=st.just("rack"),
        podsetSliceRequiredTopologyConstraints=st.just([{"topology": "rack", "size": 0}]),
    ),
)
metadata = optional(
    labels=st.dictionaries(keys, values, max_size=2), annotations=st.dictionaries(keys, values, max_size=2)
)


own_metadata = optional(
    labels=st.dictionaries(st.sampled_from(["a", NAMES.finished]), st.just("true"), max_size=1),
    annotations=st.dictionaries(
        st.sampled_from([row.key for row in NAMES.list_rows()]), st.sampled_from(["true", "1", "?"])
    ),
)


@EXAMPLES
def test_new_workload_that_a_rule_rejects_is_reviewed(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(pod_sets, min_size=1, max_size=2), metadata, st.booleans(), own_metadata)
    def holds(drawn: list[Any], of_template: Any, has_minimum: bool, of_workload: Any) -> None:
        first = {**drawn[0], "template": {**drawn[0]["template"], "metadata": of_template}}
        if has_minimum:
            first["minCount"] = 1
        workload = {**a_workload(first, *drawn[1:]), "metadata": of_workload}
        errors = validate_create(workload, NAMES, GATES)
        event("rejected" if errors else "allowed")
        assert not errors or is_reviewed(None, workload, "CREATE")

    holds()


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
    assert cel.evaluate(has_field_to_change(NAMES), {"object": workload}) is is_changed
