"""The Workload of a job: created, compared, replaced."""

from dataclasses import replace
from typing import Any, cast

import pytest

from admitq.controllers.job.matching import match_workload
from admitq.controllers.plan import ActionPlan, Delete, RecordMetric
from admitq.integrations.kinds.job import JOB
from admitq.metrics.custom_labels import MetadataKey
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.metrics.registry import Metrics
from tests.unit.controllers.builders import (
    NAMES,
    OWNER,
    TEMPLATE,
    admitted,
    condition,
    job,
    reserved,
    workload,
)
from tests.unit.controllers.job.decisions import (
    ADMISSION_OF_NINE_PODS,
    NINE_PODS,
    RUNNING,
    actions_of,
    apply_plan,
    case_of,
    created_workload,
    events_of,
    plan_for,
)

WITH_TOLERATION = {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "tolerations": [{"key": "a"}]}}}

TOPOLOGY_REQUEST = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}


def test_suspended_job_gets_workload_with_its_podsets_and_queue() -> None:
    plan = plan_for(job())
    obj = created_workload(plan)
    name = obj["metadata"]["name"]
    assert name.startswith("job-j-")
    assert obj["metadata"]["finalizers"] == [NAMES.finalizer]
    assert obj["metadata"]["ownerReferences"] == [OWNER]
    assert obj["metadata"]["labels"] == {NAMES.job_uid: "uid-j"}
    assert obj["spec"] == {
        "podSets": [{"name": "main", "count": 3, "template": TEMPLATE, "topologyRequest": TOPOLOGY_REQUEST}],
        "queueName": "lq",
        "priority": 0,
    }
    assert events_of(plan) == [("CreatedWorkload", f"Created Workload: ns/{name}")]


@pytest.mark.parametrize("is_on", [True, False])
def test_workload_creation_latency_is_reported_only_with_feature_gate(is_on: bool) -> None:
    plan = plan_for(job(), settings={"creation_latency": is_on})
    records = [action for action in plan.actions if isinstance(action, RecordMetric)]
    assert len(records) == (1 if is_on else 0)
    for record in records:
        metrics = Metrics()
        record.what(cast("Any", WorkloadMeasures(MeasureScope(metrics, lambda _: "cq"))), {})
        assert b'admitq_workload_creation_latency_seconds_count{job_kind="Job.batch"' in metrics.exposition()


def test_workload_copies_annotations_labels_and_limits_of_its_job() -> None:
    annotations = {
        NAMES.admission_gated_by: "a.example/g",
        f"{NAMES.provisioning_annotation_prefix}x": "y",
        NAMES.job_min_parallelism: "2",
        "other": "left out",
    }
    labels = {NAMES.queue_name: "lq", NAMES.max_exec_time: "60", "team": "a", "else": "left out"}
    obj = created_workload(
        plan_for(job(labels=labels, annotations=annotations), settings={"label_keys_to_copy": ("team",)})
    )
    assert obj["metadata"]["annotations"] == {
        NAMES.admission_gated_by: "a.example/g",
        f"{NAMES.provisioning_annotation_prefix}x": "y",
    }
    assert obj["metadata"]["labels"] == {"team": "a", NAMES.job_uid: "uid-j"}
    assert obj["spec"]["maximumExecutionTimeSeconds"] == 60
    assert obj["spec"]["podSets"][0]["minCount"] == 2


METRIC_VALUES = (MetadataKey("labels", "size"), MetadataKey("annotations", "a.example/cost"))


def test_b10_workload_copies_values_of_metric_labels_from_its_job() -> None:
    labels = {NAMES.queue_name: "lq", "size": "large", "a.example/cost": "left out"}
    annotations = {"a.example/cost": "c7", "size": "left out"}
    settings = {"metric_values_to_copy": METRIC_VALUES}
    metadata = created_workload(plan_for(job(labels=labels, annotations=annotations), settings=settings))[
        "metadata"
    ]
    assert metadata["labels"] == {"size": "large", NAMES.job_uid: "uid-j"}
    assert metadata["annotations"] == {"a.example/cost": "c7"}
    metadata = created_workload(plan_for(job(), settings=settings))["metadata"]
    assert metadata["labels"] == {NAMES.job_uid: "uid-j"}
    assert "annotations" not in metadata


def test_workload_has_no_min_count_without_partial_admission() -> None:
    annotations = {NAMES.job_min_parallelism: "2"}
    obj = created_workload(plan_for(job(annotations=annotations), settings={"partial_admission": False}))
    assert "minCount" not in obj["spec"]["podSets"][0]


@pytest.mark.parametrize("text", ["0", "-5", "x", "1.5", "9" * 5000, "99999999999"])
def test_unparsable_maximum_execution_time_is_ignored(text: str) -> None:
    obj = created_workload(plan_for(job(labels={NAMES.queue_name: "lq", NAMES.max_exec_time: text})))
    assert "maximumExecutionTimeSeconds" not in obj["spec"]


def test_workload_template_omits_platform_labels() -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"app": "x", "controller-uid": "u", "job-name": "j"}}}
    assert (
        created_workload(plan_for(job({"template": template})))["spec"]["podSets"][0]["template"] == TEMPLATE
    )


def test_no_workload_is_created_while_pods_of_job_run() -> None:
    assert plan_for(job(status={"active": 1})) == ActionPlan()


def test_no_workload_is_created_for_finished_job() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert plan_for(job({"suspend": False}, done)) == ActionPlan()


def test_no_workload_is_created_in_terminating_namespace() -> None:
    assert plan_for(job(), is_namespace_terminating=True) == ActionPlan()


def test_running_job_without_workload_is_stopped() -> None:
    plan = plan_for(job({"suspend": False}))
    assert actions_of(plan) == ["patch Job"]
    assert events_of(plan) == [("Stopped", "Missing Workload; unable to restore pod templates")]


def test_running_job_that_does_not_match_its_workload_is_stopped_and_restored() -> None:
    obj = admitted(spec=NINE_PODS, admission=ADMISSION_OF_NINE_PODS)
    plan = plan_for(job(RUNNING), obj)
    message = "No matching Workload; restoring pod templates according to existent Workload"
    assert events_of(plan) == [("Stopped", message)]
    stopped = apply_plan(job(RUNNING), plan)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"] == TEMPLATE["spec"]


def test_pending_workload_that_does_not_match_its_job_is_updated() -> None:
    obj = workload(spec={"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]})
    plan = plan_for(job(), obj)
    assert apply_plan(obj, plan)["spec"]["podSets"][0]["count"] == 3
    note = "Updated not matching Workload for suspended job: ns/job-j-1"
    assert events_of(plan) == [("UpdatedWorkload", note)]


def test_pending_workload_loses_execution_limit_that_its_job_no_longer_has() -> None:
    labels = {NAMES.queue_name: "lq"}
    obj = workload(spec={"maximumExecutionTimeSeconds": 5})
    assert "maximumExecutionTimeSeconds" not in apply_plan(obj, plan_for(job(labels=labels), obj))["spec"]


def test_reserved_workload_that_does_not_match_its_job_is_deleted() -> None:
    obj = reserved(spec=NINE_PODS, admission=ADMISSION_OF_NINE_PODS)
    plan = plan_for(job(), obj)
    assert actions_of(plan) == ["delete Workload", "free Workload"]
    assert events_of(plan) == [("DeletedWorkload", "Deleted not matching Workload: ns/job-j-1")]
    assert plan_for(job(status={"active": 1}), obj) == ActionPlan()


def test_second_workload_of_job_is_deleted() -> None:
    plan = plan_for(job(), workload(name="a"), workload(name="b"))
    assert [action.obj["metadata"]["name"] for action in plan.actions if isinstance(action, Delete)] == ["b"]


@pytest.mark.parametrize(
    ("spec", "obj", "matches"),
    [
        ({}, workload(), True),
        ({"parallelism": 4, "completions": 4}, workload(), False),
        ({"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}, workload(), False),
        ({"template": {**TEMPLATE, "metadata": {"labels": {"other": "y"}}}}, workload(), True),
        (WITH_TOLERATION, workload(), False),
        (WITH_TOLERATION, reserved(), False),
        (
            WITH_TOLERATION,
            reserved(
                spec={"podSets": [{"name": "main", "count": 3, "template": WITH_TOLERATION["template"]}]}
            ),
            True,
        ),
        ({**WITH_TOLERATION, "suspend": False}, reserved(), True),
        (WITH_TOLERATION, admitted(), True),
        (RUNNING, admitted(condition("PodsReady", False, "WaitForStart")), True),
        ({**RUNNING, "parallelism": 2}, admitted(), False),
        (
            {**RUNNING, "parallelism": 2},
            admitted(
                admission={
                    "clusterQueue": "cq",
                    "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "f"}}],
                }
            ),
            True,
        ),
    ],
)
def test_workload_matches_job_with_same_podsets(spec: Any, obj: dict[str, Any], matches: bool) -> None:
    assert (match_workload(case_of(job(spec), obj)).workload is not None) is matches


WITHOUT_PODS = replace(
    JOB,
    list_pod_sets=lambda _job, _names: (),
    templates=replace(JOB.templates, pod_sets_field="spec.roles"),
)

NO_PODS = "spec.roles: Required value: describes no pods; a Workload needs at least one podset"


def test_d24_job_without_podsets_is_refused_with_a_reason_that_names_the_field() -> None:
    plan = plan_for(job(), integration=WITHOUT_PODS)
    assert (actions_of(plan), events_of(plan), plan.quarantine_reason) == (
        [],
        [("ErrWorkloadCompose", NO_PODS)],
        NO_PODS,
    )


def test_d24_pending_workload_of_a_job_that_lost_its_podsets_is_deleted() -> None:
    plan = plan_for(job(), workload(), integration=WITHOUT_PODS)
    assert actions_of(plan) == ["delete Workload", "free Workload"]
    assert ("ErrWorkloadCompose", NO_PODS) in events_of(plan)
    assert plan.quarantine_reason == NO_PODS


IN_LARGE_SLICES = {NAMES.podset_slice_required_topology: "rack", NAMES.podset_slice_size: "4"}
TOO_LARGE = (
    f"spec.template.metadata.annotations[{NAMES.podset_slice_size}]: "
    'Invalid value: "4": must not be greater than pod set count 3'
)


def test_job_with_invalid_topology_annotation_is_reported_and_quarantined() -> None:
    plan = plan_for(job({"template": {**TEMPLATE, "metadata": {"annotations": IN_LARGE_SLICES}}}))
    assert (actions_of(plan), events_of(plan), plan.quarantine_reason) == (
        [],
        [("ErrWorkloadCompose", TOO_LARGE)],
        TOO_LARGE,
    )
