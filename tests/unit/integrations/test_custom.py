"""Kinds that the configuration tells of: what they read of a job, and what cannot be told."""

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


def told(folder: Path, *kinds: Any, **integrations: Any) -> tuple[Integration, ...]:
    """The kinds that are switched on by a file that tells of these."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**HEAD, "integrations": {"custom": list(kinds), **integrations}}))
    return load_settings(file).integrations


@pytest.fixture
def plain(tmp_path: Path) -> Integration:
    return told(tmp_path, PLAIN)[-1]


@pytest.fixture
def tasks(tmp_path: Path) -> Integration:
    return told(tmp_path, TASKS)[-1]


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, "message": f"it is {kind}"}]}}


# --- the record -------------------------------------------------------------------------------------


def test_kind_is_enabled_by_its_definition(tmp_path: Path) -> None:
    on = told(tmp_path, PLAIN, TASKS)
    assert [one.framework for one in on] == ["batch/job", "example.com/training", "tasks.example.com/job"]
    assert [one.gvk for one in on[1:]] == [
        ("example.com", "v1", "Training"),
        ("tasks.example.com", "v1alpha1", "Job"),
    ]


def test_abilities_follow_from_the_definition(plain: Integration, tasks: Integration) -> None:
    keys = ("partialAdmission", "reclaimablePods", "otherClusters", "ownPriorityClass")
    assert [describe_kind(plain)[key] for key in keys] == [False, True, False, True]
    assert [describe_kind(tasks)[key] for key in keys] == [True, True, False, False]
    assert (plain.delegation.managed_by_path, plain.delegation.own_controller) == (
        ("spec", "managedBy"),
        "example.com/controller",
    )


def test_it_creates_the_requested_objects(plain: Integration, tasks: Integration) -> None:
    job, deployment = (
        {"apiVersion": v, "kind": k} for v, k in (("batch/v1", "Job"), ("apps/v1", "Deployment"))
    )
    assert [plain.may_create_kind_of(one) for one in (job, deployment)] == [True, False]
    assert [tasks.may_create_kind_of(one) for one in (job, deployment)] == [True, True]


def test_it_is_suspended_where_the_path_leads(tasks: Integration) -> None:
    held = tasks.with_suspend({"spec": {"a": 1}}, True)
    assert held == {"spec": {"a": 1, "paused": True}}
    assert tasks.is_suspended(held, NAMES)
    assert not tasks.is_suspended({"spec": {"suspend": True}}, NAMES)


# --- pods -------------------------------------------------------------------------------------------

PODS: dict[str, tuple[Any, Any]] = {
    "all there": ({"leader": {}, "workers": {"replicas": 3}}, [("leader", 1), ("workers", 3)]),
    "the default count": ({"leader": {}, "workers": {}}, [("leader", 1), ("workers", 2)]),
    "a count that is none": ({"workers": {"replicas": "3"}}, [("workers", 2)]),
    "a negative count": ({"workers": {"replicas": -3}}, [("workers", 0)]),
    "a count of none": ({"workers": {"replicas": 0}}, [("workers", 0)]),
    "nowhere for templates": ({"leader": None, "workers": []}, []),
    "no spec": (None, []),
}


@pytest.mark.parametrize(("spec", "expected"), PODS.values(), ids=PODS)
def test_podsets_are_where_their_templates_can_be(plain: Integration, spec: Any, expected: Any) -> None:
    assert [(one.name, one.count) for one in plain.list_pod_sets({"spec": spec}, NAMES)] == expected


TASK_LISTS: dict[str, tuple[Any, Any]] = {
    "a podset for each": ([{"name": "a"}, {"name": "b", "replicas": 2}], [("a", 1, None), ("b", 2, None)]),
    "the last minimum holds": (
        [{"name": "a", "replicas": 3, "minAvailable": 1}, {"name": "b", "replicas": 5, "minAvailable": 2}],
        [("a", 3, None), ("b", 5, 2)],
    ),
    "no more than there are": ([{"name": "a", "replicas": 3, "minAvailable": 9}], [("a", 3, 3)]),
    "no minimum of none": ([{"name": "a", "replicas": 0, "minAvailable": 1}], [("a", 0, None)]),
    "a minimum that is none": ([{"name": "a", "replicas": 3, "minAvailable": 0}], [("a", 3, None)]),
    "what is no object": ([None, "x", {"name": 1}], [("", 1, None)]),
    "no list": ({"name": "a"}, []),
}


@pytest.mark.parametrize(("listed", "expected"), TASK_LISTS.values(), ids=TASK_LISTS)
def test_every_element_of_a_list_is_a_podset(tasks: Integration, listed: Any, expected: Any) -> None:
    found = tasks.list_pod_sets({"spec": {"tasks": listed}}, NAMES)
    assert [(one.name, one.count, one.min_count) for one in found] == expected


def test_a_template_is_read_and_written_in_its_element(tasks: Integration) -> None:
    job = {"spec": {"tasks": [{"name": "a"}, {"name": "b", "template": {"spec": {"x": 1}}}]}}
    _, second = tasks.list_pod_sets(job, NAMES)
    assert second.get_template(job) == {"spec": {"x": 1}}
    changed = tasks.templates.with_template(job, second, {"spec": {"x": 2}}, NAMES)
    assert changed == with_value(job, ("spec", "tasks", 1, "template", "spec", "x"), 2)


def test_counts_are_written_where_they_were_read(tasks: Integration) -> None:
    assert tasks.scaling.with_pod_counts is not None
    job = {"spec": {"tasks": [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 5}]}}
    changed = tasks.scaling.with_pod_counts(job, {"b": 2, "c": 1}, NAMES)
    assert changed == with_value(job, ("spec", "tasks", 1, "replicas"), 2)


def test_a_podset_has_the_name_that_the_job_writes_in_lower_case(tasks: Integration) -> None:
    listed = [{"name": "Worker", "replicas": 3, "minAvailable": 1}]
    job = {"spec": {"tasks": listed}, "status": {"tasks": {"Worker": {"done": 2}}}}
    assert [one.name for one in tasks.list_pod_sets(job, NAMES)] == ["worker"]
    assert tasks.scaling.count_reclaimable_pods(job) == {"worker": 2}
    assert tasks.scaling.with_pod_counts is not None
    assert (
        value_at(tasks.scaling.with_pod_counts(job, {"worker": 1}, NAMES), ("spec", "tasks", 0, "replicas"))
        == 1
    )


def test_minimum_stays_when_fewer_pods_were_admitted(tasks: Integration) -> None:
    job = {"spec": {"tasks": [{"name": "b", "replicas": 5, "minAvailable": 2}]}}
    assert tasks.scaling.with_pod_counts is not None
    (reduced,) = tasks.list_pod_sets(tasks.scaling.with_pod_counts(job, {"b": 2}, NAMES), NAMES)
    assert (reduced.count, reduced.min_count) == (2, 2)


def test_pods_are_reclaimed_by_podset_and_never_more_than_there_are(
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


# --- signs ------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[Any, Any]] = {
    "nothing yet": ({}, None),
    "a condition": (condition("Succeeded"), (True, "it is Succeeded")),
    "a condition that is false": (condition("Succeeded", "False"), None),
    "a message elsewhere": (
        {"status": {**condition("Failed")["status"], "why": "no memory"}},
        (False, "no memory"),
    ),
    "a field": ({"status": {"phase": "Aborted"}}, (False, "")),
    "another value": ({"status": {"phase": "Running"}}, None),
    "the first that holds": (
        {"status": {**condition("Succeeded")["status"], "phase": "Aborted"}},
        (True, "it is Succeeded"),
    ),
    "garbage": ({"status": {"conditions": {"type": "Succeeded"}, "phase": ["Aborted"]}}, None),
}


@pytest.mark.parametrize(("job", "expected"), ENDS.values(), ids=ENDS)
def test_first_ending_condition_gives_the_end(plain: Integration, job: Any, expected: Any) -> None:
    assert plain.find_outcome(job) == expected


SOMETHING: tuple[tuple[Any, bool], ...] = (
    (1, True), (0, False), (-1, False), (True, True), (False, False), ("x", True), ("", False),
    (None, False), ([1], False), ({"a": 1}, False), (1.5, False),
)  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), SOMETHING)
def test_a_field_without_values_says_something_or_nothing(
    plain: Integration, value: Any, expected: bool
) -> None:
    assert plain.is_active({"status": {"active": value}}) is expected
    assert plain.lifecycle.is_on_hold({"spec": {"draft": value}}) is expected


def test_one_element_of_a_list_suffices(tasks: Integration) -> None:
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
def test_a_number_reaches_another(tasks: Integration, running: Any, least: Any, expected: bool) -> None:
    job = {"status": {"running": running}, "spec": {"minAvailable": least}}
    assert tasks.are_pods_ready(job) is expected


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("Unknown", True), ("False", False)])
def test_a_condition_may_have_several_values(plain: Integration, status: str, expected: bool) -> None:
    assert plain.are_pods_ready(condition("Ready", status)) is expected


def test_true_is_not_one(tmp_path: Path) -> None:
    kind = told(tmp_path, {**PLAIN, "active": [{"field": "status.active", "values": [1]}]})[-1]
    assert [kind.is_active({"status": {"active": value}}) for value in (1, True, "1")] == [True, False, False]


def test_a_priority_class_may_stand_under_any_key(plain: Integration) -> None:
    assert (
        plain.templates.find_priority_class({"spec": {"priority": {"example.com/class": "high"}}}) == "high"
    )
    assert plain.templates.find_priority_class({"spec": {"priority": {"example.com/class": 1}}}) is None


# --- what cannot be ---------------------------------------------------------------------------------

PATHS: dict[str, tuple[str, ...]] = {
    "spec": ("spec",),
    "spec.a-b.c_d": ("spec", "a-b", "c_d"),
    "metadata.annotations[example.com/a.b]": ("metadata", "annotations", MapKey("example.com/a.b")),
    "spec.tasks[].template": ("spec", "tasks", EACH_ELEMENT, "template"),
    "status.{name}.done": ("status", POD_SET_NAME, "done"),
}


@pytest.mark.parametrize(("text", "expected"), PATHS.items())
def test_a_path_is_read_step_by_step(text: str, expected: tuple[str, ...]) -> None:
    assert parse_path(text) == expected


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "[]", "[].a", "a[", "a]", "a[b c]", "{a}", "[a]", "$.a"]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no path: write one like"):
        parse_path(text)


def pods(**fields: Any) -> dict[str, Any]:
    return {"podSets": [{"name": "main", "template": "spec.template", **fields}]}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a broken path": ({"suspend": "spec."}, r"custom\[0\]\.suspend: 'spec\.' is no path: write"),
    "suspended in a list": (
        {"suspend": "spec.a[].b"},
        r"custom\[0\]\.suspend: .* leads to more than one place",
    ),
    "two lists": (pods(template="a[].b[].c"), r"podSets\[0\]\.template: .* write \[\] once at most"),
    "no name": (pods(name=None), r"podSets\[0\]: set exactly one of name and namePath"),
    "two names": (pods(namePath="spec.name"), r"podSets\[0\]: set exactly one of name and namePath"),
    "one name for many": (pods(template="spec.tasks[].template"), r"set namePath instead"),
    "a count of another list": (
        pods(name=None, namePath="spec.a[].name", template="spec.a[].template", count="spec.b[].n"),
        r"count: 'spec.b\[\].n' must have \[\] where template has: spec.a\[\].template",
    ),
    "a minimum without a count": (pods(minCount="spec.least"), r"minCount needs count"),
    "reclaimable of a list": (pods(reclaimable="a[].b"), r"reclaimable: .* write \{name\}"),
    "no podsets": ({"podSets": []}, r"custom\[0\]\.podSets"),
    "a podset twice": (
        {"podSets": [{"name": "a", "template": "spec.a"}, {"name": "a", "template": "spec.b"}]},
        r"podSets: 'a' is listed twice: remove one",
    ),
    "never finished": ({"finished": []}, r"custom\[0\]\.finished"),
    "a sign of nothing": ({"active": [{}]}, r"active\[0\]: set exactly one of condition and field"),
    "a sign of two things": (
        {"active": [{"condition": "A", "field": "status.a"}]},
        r"active\[0\]: set exactly one of condition and field",
    ),
    "values and a number": (
        {"ready": [{"field": "status.a", "values": [1], "atLeast": "spec.a"}]},
        r"ready\[0\]: atLeast goes with field and without values",
    ),
    "no controller": ({"controller": None}, r"managedBy and controller go together"),
    "a creation that is no kind": (
        {"creates": ["jobs.batch"]},
        r"creates\[0\]: 'jobs.batch' is no kind: write",
    ),
    "a group that is none": ({"group": "Example"}, r"custom\[0\]\.group: 'Example'"),
    "a kind that is none": ({"kind": "training"}, r"custom\[0\]\.kind: \"training\""),
    "an unknown field": ({"podSet": []}, r"podSet: unknown field: did you mean podSets\?"),
    "a group of ours": ({"group": "admitq.dev"}, r"custom\[0\]\.group: 'admitq.dev' has no jobs: write"),
    "a kind that is known": (
        {"group": "batch", "kind": "Job"},
        r"custom\[0\]: is Job of batch, which admitq knows: remove it, and name batch/job in integrations",
    ),
    "another version of a known kind": (
        {"group": "jobset.x-k8s.io", "kind": "JobSet"},
        r"which admitq knows",
    ),
    "a resource that is known": (
        {"group": "batch", "plural": "jobs"},
        r"is Job of batch, which admitq knows",
    ),
}


@pytest.mark.parametrize(("fields", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_field_and_remedy(
    tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    kind = {key: value for key, value in {**PLAIN, **fields}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=says):
        told(tmp_path, kind)


@pytest.mark.parametrize(
    "second",
    [
        PLAIN,
        {**PLAIN, "version": "v2"},
        {**PLAIN, "kind": "Course"},
        {**PLAIN, "kind": "Training", "plural": "courses"},
    ],
)
def test_kind_is_reported_once(tmp_path: Path, second: Any) -> None:
    says = r"custom\[1\]: is Training of example.com, like integrations.custom\[0\]: remove one"
    with pytest.raises(ConfigurationError, match=says):
        told(tmp_path, PLAIN, second)


def test_webhooks_of_two_kinds_have_two_paths(tmp_path: Path) -> None:
    alike = {**PLAIN, "group": "example-com", "plural": "others"}
    with pytest.raises(ConfigurationError, match=r"custom\[1\]: is Training of example.com"):
        told(tmp_path, PLAIN, alike)


def test_a_kind_is_queued_by_us_or_by_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"integrations.externalFrameworks lists: remove one"):
        told(tmp_path, PLAIN, externalFrameworks=["Training.v1.example.com"])


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        told(tmp_path, {**PLAIN, "group": "kueue.x-k8s.io"}, {**TASKS, "group": "batch"})
    assert len(caught.value.problems) == 2


def test_a_template_that_is_none_does_no_harm(plain: Integration) -> None:
    job = {"spec": {"workers": {"template": {"spec": {"containers": "none"}}}}}
    (workers,) = plain.list_pod_sets(job, NAMES)
    assert value_at(workers.get_template(job), ("spec", "containers")) is None
