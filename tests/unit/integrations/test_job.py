from typing import Any

import pytest

from admitq.integrations.base import JobOutcome, PatchStep, RuleContext
from admitq.integrations.kinds.job import JOB
from admitq_api.labels import names_for

NAMES = names_for()


def job(spec: Any = None, status: Any = None, annotations: Any = None) -> Any:
    return {
        "metadata": {"name": "j", "annotations": annotations or {}},
        "spec": spec or {},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 5}, 5),
        ({"parallelism": 5, "completions": 3}, 3),
        ({"parallelism": 3, "completions": 10}, 3),
        ({"parallelism": 0}, 0),
    ],
)
def test_job_podset_count_is_number_of_pods_that_run_at_a_time(spec: Any, count: Any) -> None:
    [pod_set] = JOB.list_pod_sets(job(spec), NAMES)
    assert (pod_set.name, pod_set.count, pod_set.template_path) == ("main", count, ("spec", "template"))


@pytest.mark.parametrize(
    ("text", "min_count"),
    [("3", 3), ("9" * 5000, None), ("0", None), ("-1", None), ("x", None), ("٣", None), ("", None)],
)
def test_job_min_count_comes_from_annotation(text: Any, min_count: Any) -> None:
    [pod_set] = JOB.list_pod_sets(
        job({"parallelism": 5}, annotations={NAMES.job_min_parallelism: text}), NAMES
    )
    assert pod_set.min_count == min_count


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([{"type": "Complete", "status": "True", "message": "done"}], JobOutcome(True, "done")),
        ([{"type": "Failed", "status": "True", "message": "no"}], JobOutcome(False, "no")),
        ([{"type": "Complete", "status": "False"}], None),
        ([{"type": "SuccessCriteriaMet", "status": "True"}], None),
    ],
)
def test_job_outcome_follows_only_terminal_conditions(conditions: Any, outcome: Any) -> None:
    assert JOB.find_outcome(job(status={"conditions": conditions})) == outcome


@pytest.mark.parametrize(
    ("status", "active"),
    [
        ({}, False),
        ({"active": 0}, False),
        ({"active": 1}, True),
        ({"active": 0, "terminating": 1}, True),
        ({"active": 0, "terminating": 0}, False),
    ],
)
def test_job_is_active_until_its_last_pod_has_terminated(status: Any, active: Any) -> None:
    assert JOB.is_active(job(status=status)) is active


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"ready": 2}, False),
        ({"ready": 3}, True),
        ({"ready": 1, "succeeded": 2}, True),
        ({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}}, True),
    ],
)
def test_job_is_ready_when_each_pod_is_ready_or_has_succeeded(status: Any, ready: Any) -> None:
    assert JOB.are_pods_ready(job({"parallelism": 3}, status)) is ready


@pytest.mark.parametrize(
    ("spec", "status", "reclaimable"),
    [
        ({"parallelism": 3, "completions": 5}, {"succeeded": 0}, None),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 2}, 0),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 4}, 2),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 5}, 3),
        ({"parallelism": 1, "completions": 5}, {"succeeded": 5}, None),
        ({"parallelism": 5, "completions": 3}, {"succeeded": 1}, 1),
        ({"parallelism": 3}, {"succeeded": 1}, 1),
        (
            {"parallelism": 3, "completions": 5, "completionMode": "Indexed"},
            {"completedIndexes": "0,2-3", "failedIndexes": "4", "succeeded": 3},
            2,
        ),
        (
            {"parallelism": 3, "completions": 5, "completionMode": "Indexed"},
            {"completedIndexes": "0-3,7-9", "succeeded": 7},
            2,
        ),
        (
            {"parallelism": 3, "completions": 5, "completionMode": "Indexed"},
            {"completedIndexes": "nonsense,-,1-x," + "9" * 5000},
            None,
        ),
    ],
)
def test_job_pods_without_successor_are_reclaimable(spec: Any, status: Any, reclaimable: Any) -> None:
    counts = JOB.scaling.count_reclaimable_pods(job(spec, status))
    assert counts == (None if reclaimable is None else {"main": reclaimable})


@pytest.mark.parametrize(
    ("spec", "status", "reclaimable"),
    [
        pytest.param(
            {"parallelism": 6, "completions": 6, "completionMode": "Indexed"},
            {"completedIndexes": "1,6-7", "succeeded": 3},
            1,
            id="completed indexes below the new size only",
        ),
        pytest.param(
            {"parallelism": 6, "completions": 6, "completionMode": "Indexed"},
            {"completedIndexes": "1", "failedIndexes": "6-7", "succeeded": 1},
            1,
            id="no failed indexes beyond the new size",
        ),
        pytest.param(
            {"parallelism": 6, "completions": 8}, {"succeeded": 4, "active": 4}, 2, id="with completions"
        ),
        pytest.param({"parallelism": 6}, {"succeeded": 3, "active": 5}, 1, id="without completions"),
        pytest.param({"parallelism": 6}, {"succeeded": 3, "active": 2}, 3, id="with failed pods"),
    ],
)
def test_c15_reclaimable_pods_of_a_scaled_down_job_are_those_that_no_longer_run(
    spec: Any, status: Any, reclaimable: int
) -> None:
    assert JOB.scaling.count_reclaimable_pods(job(spec, status)) == {"main": reclaimable}


def test_huge_range_of_completed_indexes_is_counted() -> None:
    spec = {"parallelism": 2, "completions": 3, "completionMode": "Indexed"}
    assert JOB.scaling.count_reclaimable_pods(job(spec, {"completedIndexes": "0-99999999999999"})) == {
        "main": 2
    }


def test_job_that_is_stopping_is_not_suspended() -> None:
    marked = job({"suspend": True}, annotations={NAMES.stopping: "true"})
    assert not JOB.is_suspended(marked, NAMES)
    assert JOB.is_suspended(job({"suspend": True}), NAMES)


def test_job_stop_suspends_then_clears_start_time_then_restores() -> None:
    running = job({"suspend": False, "template": {"spec": {"nodeSelector": {"a": "b"}}}}, {"startTime": "t"})
    stopped = job({"suspend": True, "template": {"spec": {}}}, {"startTime": "t"})
    assert list(JOB.lifecycle.plan_stop(running, stopped, NAMES)) == [
        PatchStep({"spec": {"suspend": True}, "metadata": {"annotations": {NAMES.stopping: "true"}}}),
        PatchStep({"status": {"startTime": None}}, "status"),
        PatchStep(
            {
                "spec": {"template": {"spec": {"nodeSelector": None}}},
                "metadata": {"annotations": {NAMES.stopping: None}},
            }
        ),
    ]


def test_job_stop_waits_for_pods_before_it_restores() -> None:
    stopped = job({"suspend": True, "template": {"spec": {}}})
    running = job({"suspend": False, "template": {"spec": {"nodeSelector": {"a": "b"}}}}, {"active": 1})
    [step] = JOB.lifecycle.plan_stop(running, stopped, NAMES)
    assert step.patch["spec"] == {"suspend": True}
    assert step.required_unchanged == (("metadata", "generation"), ("status", "conditions"))
    waiting = job({**running["spec"], "suspend": True}, {"active": 1}, {NAMES.stopping: "true"})
    assert JOB.lifecycle.plan_stop(waiting, stopped, NAMES) == ()


def test_interrupted_job_stop_is_resumed() -> None:
    stopping = job({"suspend": True, "template": {"spec": {"nodeSelector": {"a": "b"}}}}, {"startTime": "t"})
    stopping["metadata"]["annotations"] = {NAMES.stopping: "true"}
    stopped = job({"suspend": True, "template": {"spec": {}}})
    assert [step.subresource for step in JOB.lifecycle.plan_stop(stopping, stopped, NAMES)] == [
        "status",
        None,
    ]


def test_partial_admission_writes_parallelism_and_keeps_completions() -> None:
    assert JOB.scaling.with_pod_counts is not None
    changed = JOB.scaling.with_pod_counts(job({"parallelism": 5, "completions": 10}), {"main": 3}, NAMES)
    assert (changed["spec"]["parallelism"], changed["spec"]["completions"]) == (3, 10)


def test_partial_admission_writes_completions_if_annotated() -> None:
    assert JOB.scaling.with_pod_counts is not None
    equal = {NAMES.job_completions_equal_parallelism: "true"}
    changed = JOB.scaling.with_pod_counts(
        job({"parallelism": 5, "completions": 5}, annotations=equal), {"main": 3}, NAMES
    )
    assert (changed["spec"]["parallelism"], changed["spec"]["completions"]) == (3, 3)


INDEXED = {"suspend": True, "parallelism": 5, "completions": 5, "completionMode": "Indexed"}
MIN = NAMES.job_min_parallelism
SYNC = NAMES.job_completions_equal_parallelism


@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        (INDEXED, {}, None),
        (INDEXED, {MIN: "4"}, None),
        (INDEXED, {MIN: "5"}, "should be between 0 and 4"),
        (INDEXED, {MIN: "0"}, "should be between 0 and 4"),
        (INDEXED, {MIN: "-1"}, "should be between 0 and 4"),
        (INDEXED, {MIN: "two"}, "must be a whole number"),
        (INDEXED, {MIN: "9" * 5000}, "must be a whole number"),
        (INDEXED, {MIN: "2", NAMES.elastic_job: "true"}, "cannot be used together"),
        (INDEXED, {SYNC: "true"}, None),
        (INDEXED, {SYNC: "yes"}, 'must be "true" or "false"'),
        ({**INDEXED, "completionMode": "NonIndexed"}, {SYNC: "true"}, "NonIndexed"),
        ({**INDEXED, "completions": 7}, {SYNC: "true"}, "completions should be equal to parallelism"),
    ],
)
def test_partial_admission_annotations_are_validated_on_create(
    spec: Any, annotations: Any, message: Any
) -> None:
    errors = JOB.webhook.validate_create(job(spec, annotations=annotations), RuleContext(NAMES))
    assert (message is None) == (not errors)
    for error in errors:
        assert message in str(error)
        assert str(error).startswith("metadata.annotations[")


RUNNING = {**INDEXED, "suspend": False}


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (job(RUNNING, annotations={MIN: "2"}), job({**RUNNING, "parallelism": 3}, annotations={MIN: "2"}), 1),
        (job(INDEXED, annotations={MIN: "2"}), job({**RUNNING, "parallelism": 3}, annotations={MIN: "2"}), 0),
        (job(RUNNING), job({**RUNNING, "parallelism": 3}), 0),
        (job(RUNNING, annotations={SYNC: "true"}), job(RUNNING), 1),
        (job(INDEXED, annotations={SYNC: "true"}), job(INDEXED), 0),
        (job(INDEXED), job(INDEXED, annotations={MIN: "9"}), 1),
    ],
)
def test_size_of_partially_admitted_job_is_immutable_while_it_runs(old: Any, new: Any, fields: Any) -> None:
    assert len(JOB.webhook.validate_update(old, new, RuleContext(NAMES))) == fields


@pytest.mark.parametrize(
    "malformed",
    [
        {},
        {"spec": None, "status": None, "metadata": None},
        {"spec": {"parallelism": "x", "completions": True}, "status": {"conditions": [{}], "active": "1"}},
    ],
)
def test_malformed_job_does_not_raise(malformed: Any) -> None:
    assert JOB.list_pod_sets(malformed, NAMES)[0].count == 1
    assert JOB.find_outcome(malformed) is None
    assert JOB.is_active(malformed) is False
    assert JOB.are_pods_ready(malformed) is False
    assert JOB.scaling.count_reclaimable_pods(malformed) is None
    assert JOB.is_suspended(malformed, NAMES) is False
