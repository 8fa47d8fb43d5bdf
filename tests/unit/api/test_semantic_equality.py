"""Webhooks compare immutable parts of Workloads by meaning: 1 and 1000m are equal."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.semantic_equality import are_equivalent
from admitq_webhooks.validate.workload import validate_update
from tests.unit.webhooks.support import NAMES

EMPTY_VALUES = (None, {}, [])


@pytest.mark.parametrize("empty", EMPTY_VALUES, ids=["null", "map", "list"])
def test_a6_absent_field_equals_empty_value(empty: Any) -> None:
    assert are_equivalent({"name": "main", "flavors": empty}, {"name": "main"})
    assert are_equivalent([{"template": {"metadata": {"labels": empty}}}], [{}])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param({"labels": {"a": ""}}, {}, id="empty text of a label"),
        pytest.param({"count": 0}, {}, id="zero"),
        pytest.param({"hostNetwork": False}, {}, id="false"),
        pytest.param({"tolerations": [{}]}, {}, id="item of a list"),
        pytest.param({"labelSelector": {}}, {}, id="selector of everything"),
        pytest.param({"volumes": [{"name": "v", "emptyDir": {}}]}, {"volumes": [{"name": "v"}]}, id="volume"),
        pytest.param(
            {"labels": {"a": "1"}}, {"labels": {"a": "1000m"}}, id="label that looks like a quantity"
        ),
        pytest.param(
            {"nodeSelector": {"limits": "1"}}, {"nodeSelector": {"limits": "1000m"}}, id="label key"
        ),
        pytest.param([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], id="order"),
    ],
)
def test_a6_real_difference_is_not_equivalent(left: Any, right: Any) -> None:
    assert not are_equivalent(left, right)


@pytest.mark.parametrize(
    ("left", "right"), [("1", "1000m"), ("1", 1), ("1Gi", "1073741824"), ("0.5", "500m")]
)
@pytest.mark.parametrize("path", ["requests", "limits", "overhead", "resourceUsage"])
def test_a6_quantities_are_compared_by_value(path: str, left: Any, right: Any) -> None:
    assert are_equivalent({path: {"cpu": left}}, {path: {"cpu": right}})
    assert not are_equivalent({path: {"cpu": left}}, {path: {"cpu": "7"}})


def test_a6_single_quantity_fields_are_compared_by_value() -> None:
    assert are_equivalent({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1024Mi"}})
    assert are_equivalent({"resourceFieldRef": {"divisor": "1"}}, {"resourceFieldRef": {"divisor": "1000m"}})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"tolerations": [{"key": "", "operator": "Exists"}]}, {"tolerations": [{"operator": "Exists"}]}),
        ({"tolerations": [{"key": "k", "value": ""}]}, {"tolerations": [{"key": "k"}]}),
    ],
    ids=["variable", "key of a toleration", "value of a toleration"],
)
def test_a6_empty_string_that_typed_clients_drop_equals_absent_field(left: Any, right: Any) -> None:
    assert are_equivalent(left, right)


def test_a6_malformed_quantity_is_compared_as_text() -> None:
    assert are_equivalent({"requests": {"cpu": "much"}}, {"requests": {"cpu": "much"}})
    assert not are_equivalent({"requests": {"cpu": "much"}}, {"requests": {"cpu": "more"}})


def test_a6_absent_field_equals_its_default() -> None:
    defaults = {"name": "main", "count": 1}
    assert are_equivalent([{"name": "main", "count": 1}], [{}], defaults)
    assert are_equivalent([{"name": None, "count": 1}], [{"name": "main"}], defaults)
    assert not are_equivalent([{"count": 2}], [{}], defaults)


# --- validation of Workload updates -----------------------------------------------------------------


def stored_workload() -> dict[str, Any]:
    """Return a Workload with all three immutable parts; each has empty values and quantities."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m"}}
    pod_spec = {
        "containers": [{"name": "c", "env": [], "resources": resources}],
        "nodeSelector": {},
        "overhead": {"cpu": "100m"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }
    pod_set = {
        "name": "main",
        "count": 1,
        "template": {"metadata": {"labels": {"app": "x"}, "annotations": {}}, "spec": pod_spec},
    }
    assignment = {"name": "main", "count": 1, "flavors": {}, "resourceUsage": {"cpu": "1", "memory": "1Gi"}}
    update = {"name": "main", "labels": {"a": "b"}, "annotations": {}, "nodeSelector": {}, "tolerations": []}
    check = {"name": "check", "state": "Ready", "podSetUpdates": [update]}
    return {
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"podSets": [pod_set]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
            "admissionChecks": [check],
        },
    }


Change = Callable[[dict[str, Any]], None]


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values below a value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [
        nested_path for key, item in items for nested_path in ((*path, key), *list_paths(item, (*path, key)))
    ]


def get_value(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


IMMUTABLE = {
    "spec.podSets": ("spec", "podSets"),
    "status.admission": ("status", "admission"),
    "status.admissionChecks[0].podSetUpdates": ("status", "admissionChecks", 0, "podSetUpdates"),
}
PATHS_BY_FIELD = {
    field: list_paths(get_value(stored_workload(), path), path) for field, path in IMMUTABLE.items()
}
EMPTY_PATHS = [
    path
    for paths in PATHS_BY_FIELD.values()
    for path in paths
    if get_value(stored_workload(), path) in ({}, [])
]
QUANTITIES_BY_PATH = {
    path: get_value(stored_workload(), path)
    for paths in PATHS_BY_FIELD.values()
    for path in paths
    if len(path) > 1 and path[-2] in {"requests", "limits", "overhead", "resourceUsage"}
}
EQUAL_QUANTITIES = {
    "1": ("1", "1000m", 1, "1.0"),
    "1Gi": ("1Gi", "1024Mi", "1073741824", 1073741824),
    "1500m": ("1500m", "1.5"),
    "100m": ("100m", "0.1"),
}
MAP_PATHS = [
    path
    for paths in PATHS_BY_FIELD.values()
    for path in paths
    if isinstance(get_value(stored_workload(), path), dict) and path not in EMPTY_PATHS
]


def list_immutability_errors(new: dict[str, Any]) -> list[str]:
    gates = FeatureGates({Gate.ELASTIC_JOBS: False})  # the gate allows updates that reduce pod counts
    errors = validate_update(stored_workload(), new, NAMES, gates)
    return [str(error) for error in errors if "immutable" in str(error)]


@given(st.data())
def test_a6_update_with_dropped_empty_values_and_rewritten_quantities_is_accepted(
    data: st.DataObject,
) -> None:
    new = stored_workload()
    for path in data.draw(st.sets(st.sampled_from(EMPTY_PATHS))):
        parent = get_value(new, path[:-1])
        del parent[path[-1]]
        if data.draw(st.booleans()):
            parent[path[-1]] = None
    for path in data.draw(st.sets(st.sampled_from(sorted(QUANTITIES_BY_PATH, key=str)))):
        get_value(new, path[:-1])[path[-1]] = data.draw(
            st.sampled_from(EQUAL_QUANTITIES[QUANTITIES_BY_PATH[path]])
        )
    for path in data.draw(st.sets(st.sampled_from(MAP_PATHS))):
        get_value(new, path)["added"] = data.draw(st.sampled_from(copy.deepcopy(EMPTY_VALUES)))
    assert list_immutability_errors(new) == []


LEAF_PATHS = [
    (field, path)
    for field, paths in PATHS_BY_FIELD.items()
    for path in paths
    if not isinstance(get_value(stored_workload(), path), dict | list)
]


@given(st.sampled_from(LEAF_PATHS), st.sampled_from(["another", "7", 7]))
def test_a6_update_that_changes_immutable_value_is_rejected(
    leaf: tuple[str, tuple[Any, ...]], value: object
) -> None:
    field, path = leaf
    new = stored_workload()
    get_value(new, path[:-1])[path[-1]] = value
    assert any(field in error for error in list_immutability_errors(new))


@given(st.sampled_from(LEAF_PATHS))
def test_a6_update_that_removes_immutable_value_is_rejected_unless_default(
    leaf: tuple[str, tuple[Any, ...]],
) -> None:
    field, path = leaf
    new = stored_workload()
    del get_value(new, path[:-1])[path[-1]]
    is_default = path in {
        ("spec", "podSets", 0, "name"),
        ("spec", "podSets", 0, "count"),
        ("status", "admission", "podSetAssignments", 0, "name"),
    }
    assert any(field in error for error in list_immutability_errors(new)) is not is_default


def test_a2_reservation_may_replace_leftover_admission_of_another_program() -> None:
    old, new = stored_workload(), stored_workload()
    old["status"]["conditions"] = [{"type": "QuotaReserved", "status": "False"}]
    new["status"]["admission"]["clusterQueue"] = "other"
    assert validate_update(old, new, NAMES, FeatureGates()) == []


def test_a2_admission_is_immutable_while_quota_stays_unreserved() -> None:
    old, new = stored_workload(), stored_workload()
    for workload in (old, new):
        workload["status"]["conditions"] = [{"type": "QuotaReserved", "status": "False"}]
    new["status"]["admission"]["clusterQueue"] = "other"
    errors = [str(error) for error in validate_update(old, new, NAMES, FeatureGates())]
    assert any("status.admission" in error for error in errors)
