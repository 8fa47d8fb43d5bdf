"""Kinds that the configuration file defines: what they read of a job, and invalid definitions."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.app.settings import load_settings
from admitq.integrations.base import Integration
from admitq.integrations.capabilities import describe_kind
from admitq_api.configuration import ConfigurationError
from admitq_api.field_errors import MapKey
from admitq_api.json_objects import value_at, with_value
from admitq_api.labels import names_for
from admitq_api.path_notation import EACH_ELEMENT, POD_SET_NAME, parse_path

NAMES = names_for()
HEAD = {"apiVersion": NAMES.config_api_version, "kind": "Configuration"}

PLAIN: dict[str, Any] = {
    "group": "example.com",
    "version": "v1",
    "kind": "Training",
    "plural": "trainings",
    "podSets": [
        {"name": "leader", "template": "spec.leader.template"},
        {
            "name": "workers",
            "template": "spec.workers.template",
            "count": "spec.workers.replicas",
            "defaultCount": 2,
            "reclaimable": "status.done",
        },
    ],
    "finished": [
        {"condition": "Succeeded", "success": True},
        {"condition": "Failed", "success": False, "message": "status.why"},
        {"field": "status.phase", "values": ["Aborted"], "success": False},
    ],
    "active": [{"field": "status.active"}],
    "ready": [{"condition": "Ready", "values": ["True", "Unknown"]}],
    "onHold": [{"field": "spec.draft"}],
    "priorityClass": "spec.priority[example.com/class]",
    "managedBy": "spec.managedBy",
    "controller": "example.com/controller",
    "creates": ["Pod", "Job.batch"],
}
TASKS: dict[str, Any] = {
    "group": "tasks.example.com",
    "version": "v1alpha1",
    "kind": "Job",
    "plural": "jobs",
    "suspend": "spec.paused",
    "podSets": [
        {
            "namePath": "spec.tasks[].name",
            "template": "spec.tasks[].template",
            "count": "spec.tasks[].replicas",
            "minCount": "spec.tasks[].minAvailable",
            "reclaimable": "status.tasks.{name}.done",
        },
    ],
    "finished": [
        {"field": "status.phase", "values": ["Completed"], "success": True, "message": "status.why"}
    ],
    "active": [{"field": "status.tasks[].active"}],
    "ready": [{"field": "status.running", "atLeast": "spec.minAvailable"}],
}


def load_kinds(folder: Path, *kinds: Any, **integrations: Any) -> tuple[Integration, ...]:
    """Return the kinds that a configuration file with these definitions enables."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**HEAD, "integrations": {"custom": list(kinds), **integrations}}))
    return load_settings(file).integrations


@pytest.fixture
def plain(tmp_path: Path) -> Integration:
    return load_kinds(tmp_path, PLAIN)[-1]


@pytest.fixture
def tasks(tmp_path: Path) -> Integration:
    return load_kinds(tmp_path, TASKS)[-1]


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, "message": f"it is {kind}"}]}}


# --- definition -------------------------------------------------------------------------------------


def test_custom_kind_is_enabled_by_its_definition(tmp_path: Path) -> None:
    kinds = load_kinds(tmp_path, PLAIN, TASKS)
    assert [kind.framework for kind in kinds] == [
        "batch/job",
        "example.com/training",
        "tasks.example.com/job",
    ]
    assert [kind.gvk for kind in kinds[1:]] == [
        ("example.com", "v1", "Training"),
        ("tasks.example.com", "v1alpha1", "Job"),
    ]


def test_custom_kind_capabilities_follow_from_its_definition(plain: Integration, tasks: Integration) -> None:
    keys = ("partialAdmission", "reclaimablePods", "otherClusters", "ownPriorityClass")
    assert [describe_kind(plain)[key] for key in keys] == [False, True, False, True]
    assert [describe_kind(tasks)[key] for key in keys] == [True, True, False, False]
    assert (plain.delegation.managed_by_path, plain.delegation.own_controller) == (
        ("spec", "managedBy"),
        "example.com/controller",
    )


def test_custom_kind_may_create_only_listed_kinds_if_it_lists_any(
    plain: Integration, tasks: Integration
) -> None:
    job, deployment = (
        {"apiVersion": api_version, "kind": kind}
        for api_version, kind in (("batch/v1", "Job"), ("apps/v1", "Deployment"))
    )
    assert [plain.may_create_kind_of(obj) for obj in (job, deployment)] == [True, False]
    assert [tasks.may_create_kind_of(obj) for obj in (job, deployment)] == [True, True]


def test_custom_kind_is_suspended_at_its_suspend_path(tasks: Integration) -> None:
    suspended = tasks.with_suspend({"spec": {"a": 1}}, True)
    assert suspended == {"spec": {"a": 1, "paused": True}}
    assert tasks.is_suspended(suspended, NAMES)
    assert not tasks.is_suspended({"spec": {"suspend": True}}, NAMES)


# --- pods -------------------------------------------------------------------------------------------

PODS: dict[str, tuple[Any, Any]] = {
    "all podsets": ({"leader": {}, "workers": {"replicas": 3}}, [("leader", 1), ("workers", 3)]),
    "default count": ({"leader": {}, "workers": {}}, [("leader", 1), ("workers", 2)]),
    "malformed count": ({"workers": {"replicas": "3"}}, [("workers", 2)]),
    "negative count": ({"workers": {"replicas": -3}}, [("workers", 0)]),
    "count zero": ({"workers": {"replicas": 0}}, [("workers", 0)]),
    "no parents of templates": ({"leader": None, "workers": []}, []),
    "no spec": (None, []),
}


@pytest.mark.parametrize(("spec", "expected"), PODS.values(), ids=PODS)
def test_custom_podset_exists_if_parent_of_its_template_exists(
    plain: Integration, spec: Any, expected: Any
) -> None:
    pod_sets = plain.list_pod_sets({"spec": spec}, NAMES)
    assert [(pod_set.name, pod_set.count) for pod_set in pod_sets] == expected


TASK_LISTS: dict[str, tuple[Any, Any]] = {
    "one podset for each element": (
        [{"name": "a"}, {"name": "b", "replicas": 2}],
        [("a", 1, None), ("b", 2, None)],
    ),
    "only the last minimum is used": (
        [{"name": "a", "replicas": 3, "minAvailable": 1}, {"name": "b", "replicas": 5, "minAvailable": 2}],
        [("a", 3, None), ("b", 5, 2)],
    ),
    "minimum limited to count": ([{"name": "a", "replicas": 3, "minAvailable": 9}], [("a", 3, 3)]),
    "minimum with count zero": ([{"name": "a", "replicas": 0, "minAvailable": 1}], [("a", 0, None)]),
    "minimum zero": ([{"name": "a", "replicas": 3, "minAvailable": 0}], [("a", 3, None)]),
    "elements that are no objects": ([None, "x", {"name": 1}], [("", 1, None)]),
    "no list": ({"name": "a"}, []),
}


@pytest.mark.parametrize(("listed", "expected"), TASK_LISTS.values(), ids=TASK_LISTS)
def test_custom_podsets_are_elements_of_the_list(tasks: Integration, listed: Any, expected: Any) -> None:
    pod_sets = tasks.list_pod_sets({"spec": {"tasks": listed}}, NAMES)
    assert [(pod_set.name, pod_set.count, pod_set.min_count) for pod_set in pod_sets] == expected


def test_custom_template_is_read_and_written_in_its_list_element(tasks: Integration) -> None:
    job = {"spec": {"tasks": [{"name": "a"}, {"name": "b", "template": {"spec": {"x": 1}}}]}}
    _, second = tasks.list_pod_sets(job, NAMES)
    assert second.get_template(job) == {"spec": {"x": 1}}
    changed = tasks.templates.with_template(job, second, {"spec": {"x": 2}}, NAMES)
    assert changed == with_value(job, ("spec", "tasks", 1, "template", "spec", "x"), 2)


def test_custom_pod_counts_are_written_to_their_count_path(tasks: Integration) -> None:
    assert tasks.scaling.with_pod_counts is not None
    job = {"spec": {"tasks": [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 5}]}}
    changed = tasks.scaling.with_pod_counts(job, {"b": 2, "c": 1}, NAMES)
    assert changed == with_value(job, ("spec", "tasks", 1, "replicas"), 2)


def test_custom_podset_name_is_name_in_the_job_in_lower_case(tasks: Integration) -> None:
    listed = [{"name": "Worker", "replicas": 3, "minAvailable": 1}]
    job = {"spec": {"tasks": listed}, "status": {"tasks": {"Worker": {"done": 2}}}}
    assert [pod_set.name for pod_set in tasks.list_pod_sets(job, NAMES)] == ["worker"]
    assert tasks.scaling.count_reclaimable_pods(job) == {"worker": 2}
    assert tasks.scaling.with_pod_counts is not None
    assert (
        value_at(tasks.scaling.with_pod_counts(job, {"worker": 1}, NAMES), ("spec", "tasks", 0, "replicas"))
        == 1
    )


def test_custom_min_count_is_kept_after_partial_admission(tasks: Integration) -> None:
    job = {"spec": {"tasks": [{"name": "b", "replicas": 5, "minAvailable": 2}]}}
    assert tasks.scaling.with_pod_counts is not None
    (reduced,) = tasks.list_pod_sets(tasks.scaling.with_pod_counts(job, {"b": 2}, NAMES), NAMES)
    assert (reduced.count, reduced.min_count) == (2, 2)


def test_custom_reclaimable_pods_are_limited_to_count_of_podset(
    plain: Integration, tasks: Integration
) -> None:
    workers = {"spec": {"workers": {"replicas": 3}}}
    assert [
        plain.scaling.count_reclaimable_pods({**workers, "status": {"done": done}}) for done in (0, 2, 7, "2")
    ] == [
        {},
        {"workers": 2},
        {"workers": 3},
        {},
    ]
    listed = {"spec": {"tasks": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}]}}
    assert tasks.scaling.count_reclaimable_pods({**listed, "status": {"tasks": {"b": {"done": 1}}}}) == {
        "b": 1
    }


# --- state ------------------------------------------------------------------------------------------

OUTCOMES: dict[str, tuple[Any, Any]] = {
    "no status": ({}, None),
    "condition": (condition("Succeeded"), (True, "it is Succeeded")),
    "false condition": (condition("Succeeded", "False"), None),
    "message at another path": (
        {"status": {**condition("Failed")["status"], "why": "no memory"}},
        (False, "no memory"),
    ),
    "field": ({"status": {"phase": "Aborted"}}, (False, "")),
    "other value of the field": ({"status": {"phase": "Running"}}, None),
    "first match": (
        {"status": {**condition("Succeeded")["status"], "phase": "Aborted"}},
        (True, "it is Succeeded"),
    ),
    "malformed status": ({"status": {"conditions": {"type": "Succeeded"}, "phase": ["Aborted"]}}, None),
}


@pytest.mark.parametrize(("job", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_custom_outcome_is_that_of_the_first_matching_entry(
    plain: Integration, job: Any, expected: Any
) -> None:
    assert plain.find_outcome(job) == expected


FIELD_VALUES: tuple[tuple[Any, bool], ...] = (
    (1, True), (0, False), (-1, False), (True, True), (False, False), ("x", True), ("", False),
    (None, False), ([1], False), ({"a": 1}, False), (1.5, False),
)  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), FIELD_VALUES)
def test_custom_field_without_values_matches_positive_true_or_text(
    plain: Integration, value: Any, expected: bool
) -> None:
    assert plain.is_active({"status": {"active": value}}) is expected
    assert plain.lifecycle.is_on_hold({"spec": {"draft": value}}) is expected


def test_custom_list_field_matches_if_one_element_matches(tasks: Integration) -> None:
    assert tasks.is_active({"status": {"tasks": [{"active": 0}, None, {"active": 1}]}})
    assert not tasks.is_active({"status": {"tasks": [{"active": 0}]}})
    assert not tasks.is_active({"status": {"tasks": {"active": 1}}})


@pytest.mark.parametrize(
    ("running", "least", "expected"),
    [
        (3, 3, True),
        (4, 3, True),
        (2, 3, False),
        (3, None, False),
        (None, 3, False),
        ("3", 3, False),
        (1, True, False),
    ],
)
def test_custom_at_least_compares_two_whole_numbers(
    tasks: Integration, running: Any, least: Any, expected: bool
) -> None:
    job = {"status": {"running": running}, "spec": {"minAvailable": least}}
    assert tasks.are_pods_ready(job) is expected


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("Unknown", True), ("False", False)])
def test_custom_condition_may_match_several_values(plain: Integration, status: str, expected: bool) -> None:
    assert plain.are_pods_ready(condition("Ready", status)) is expected


def test_custom_value_one_does_not_match_true_or_text(tmp_path: Path) -> None:
    kind = load_kinds(tmp_path, {**PLAIN, "active": [{"field": "status.active", "values": [1]}]})[-1]
    assert [kind.is_active({"status": {"active": value}}) for value in (1, True, "1")] == [True, False, False]


def test_custom_priority_class_is_read_from_map_key(plain: Integration) -> None:
    assert (
        plain.templates.find_priority_class({"spec": {"priority": {"example.com/class": "high"}}}) == "high"
    )
    assert plain.templates.find_priority_class({"spec": {"priority": {"example.com/class": 1}}}) is None


# --- invalid definitions ----------------------------------------------------------------------------

PATHS: dict[str, tuple[str, ...]] = {
    "spec": ("spec",),
    "spec.a-b.c_d": ("spec", "a-b", "c_d"),
    "metadata.annotations[example.com/a.b]": ("metadata", "annotations", MapKey("example.com/a.b")),
    "spec.tasks[].template": ("spec", "tasks", EACH_ELEMENT, "template"),
    "status.{name}.done": ("status", POD_SET_NAME, "done"),
}


@pytest.mark.parametrize(("text", "expected"), PATHS.items())
def test_custom_path_is_parsed_to_steps(text: str, expected: tuple[str, ...]) -> None:
    assert parse_path(text) == expected


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "[]", "[].a", "a[", "a]", "a[b c]", "{a}", "[a]", "$.a"]
)
def test_malformed_custom_path_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path: write one like"):
        parse_path(text)


def pods(**fields: Any) -> dict[str, Any]:
    return {"podSets": [{"name": "main", "template": "spec.template", **fields}]}


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "malformed path": ({"suspend": "spec."}, r"custom\[0\]\.suspend: 'spec\.' is not a path: write"),
    "suspend field in a list": (
        {"suspend": "spec.a[].b"},
        r"custom\[0\]\.suspend: .* leads to more than one place",
    ),
    "two lists": (pods(template="a[].b[].c"), r"podSets\[0\]\.template: .* write \[\] once at most"),
    "no name": (pods(name=None), r"podSets\[0\]: set exactly one of name and namePath"),
    "two names": (pods(namePath="spec.name"), r"podSets\[0\]: set exactly one of name and namePath"),
    "one name for a list": (pods(template="spec.tasks[].template"), r"set namePath instead"),
    "count in another list": (
        pods(name=None, namePath="spec.a[].name", template="spec.a[].template", count="spec.b[].n"),
        r"count: 'spec.b\[\].n' must have \[\] where template has: spec.a\[\].template",
    ),
    "minimum without count": (pods(minCount="spec.least"), r"minCount needs count"),
    "reclaimable in a list": (pods(reclaimable="a[].b"), r"reclaimable: .* write \{name\}"),
    "no podsets": ({"podSets": []}, r"custom\[0\]\.podSets"),
    "duplicate podset": (
        {"podSets": [{"name": "a", "template": "spec.a"}, {"name": "a", "template": "spec.b"}]},
        r"podSets: 'a' is listed twice: remove one",
    ),
    "no finished entries": ({"finished": []}, r"custom\[0\]\.finished"),
    "neither condition nor field": ({"active": [{}]}, r"active\[0\]: set exactly one of condition and field"),
    "condition and field": (
        {"active": [{"condition": "A", "field": "status.a"}]},
        r"active\[0\]: set exactly one of condition and field",
    ),
    "values and atLeast": (
        {"ready": [{"field": "status.a", "values": [1], "atLeast": "spec.a"}]},
        r"ready\[0\]: atLeast goes with field and without values",
    ),
    "no controller": ({"controller": None}, r"managedBy and controller go together"),
    "invalid kind in creates": (
        {"creates": ["jobs.batch"]},
        r"creates\[0\]: 'jobs.batch' is not a kind: write",
    ),
    "invalid group": ({"group": "Example"}, r"custom\[0\]\.group: 'Example'"),
    "invalid kind": ({"kind": "training"}, r"custom\[0\]\.kind: \"training\""),
    "unknown field": ({"podSet": []}, r"podSet: unknown field: did you mean podSets\?"),
    "group of admitq": ({"group": "admitq.dev"}, r"custom\[0\]\.group: 'admitq.dev' has no jobs: write"),
    "built-in kind": (
        {"group": "batch", "kind": "Job"},
        r"custom\[0\]: is Job of batch, which admitq knows: remove it, and name batch/job in integrations",
    ),
    "another version of a built-in kind": (
        {"group": "jobset.x-k8s.io", "kind": "JobSet"},
        r"which admitq knows",
    ),
    "resource of a built-in kind": (
        {"group": "batch", "plural": "jobs"},
        r"is Job of batch, which admitq knows",
    ),
}


@pytest.mark.parametrize(("fields", "message"), INVALID.values(), ids=INVALID)
def test_invalid_custom_kind_is_rejected_with_field_and_remedy(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    kind = {key: value for key, value in {**PLAIN, **fields}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=message):
        load_kinds(tmp_path, kind)


@pytest.mark.parametrize(
    "second",
    [
        PLAIN,
        {**PLAIN, "version": "v2"},
        {**PLAIN, "kind": "Course"},
        {**PLAIN, "kind": "Training", "plural": "courses"},
    ],
)
def test_duplicate_custom_kind_is_rejected(tmp_path: Path, second: Any) -> None:
    message = r"custom\[1\]: is Training of example.com, like integrations.custom\[0\]: remove one"
    with pytest.raises(ConfigurationError, match=message):
        load_kinds(tmp_path, PLAIN, second)


def test_custom_kinds_with_same_webhook_path_are_rejected(tmp_path: Path) -> None:
    alike = {**PLAIN, "group": "example-com", "plural": "others"}
    with pytest.raises(ConfigurationError, match=r"custom\[1\]: is Training of example.com"):
        load_kinds(tmp_path, PLAIN, alike)


def test_custom_kind_that_is_external_framework_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"integrations.externalFrameworks lists: remove one"):
        load_kinds(tmp_path, PLAIN, externalFrameworks=["Training.v1.example.com"])


def test_errors_of_all_custom_kinds_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_kinds(tmp_path, {**PLAIN, "group": "kueue.x-k8s.io"}, {**TASKS, "group": "batch"})
    assert len(caught.value.problems) == 2


def test_malformed_custom_template_has_no_containers(plain: Integration) -> None:
    job = {"spec": {"workers": {"template": {"spec": {"containers": "none"}}}}}
    (workers,) = plain.list_pod_sets(job, NAMES)
    assert value_at(workers.get_template(job), ("spec", "containers")) is None
