"""What is decided about a job, situation by situation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from admitq.controllers.job.case import Ancestor, JobCase, Lookups
from admitq.controllers.job.matching import match_of
from admitq.controllers.job.slices import lets_run
from admitq.controllers.job.steps import decide
from admitq.controllers.plan import Count, Create, Delete, Patch, Plan, RemoveFinalizer, Tell
from admitq.custom_labels import Location
from admitq.integrations.kinds.job import JOB
from admitq.measures.scope import MeasureScope
from admitq.measures.workloads import WorkloadMeasures
from admitq.metrics import Metrics
from admitq.podsets import Marks
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    ADMISSION,
    ADMITTED,
    FINISHED,
    KINDS,
    NAMES,
    OWNER,
    RESERVED,
    TEMPLATE,
    Object,
    admitted,
    after,
    at,
    condition,
    condition_of,
    job,
    reserved,
    settings_with,
    time,
    workload,
)

FLAVOR: Object = {
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
}
RUNNING_TEMPLATE: Object = {
    "metadata": {
        "labels": {
            "app": "x",
            NAMES.podset: "main",
            NAMES.local_queue_name: "lq",
            NAMES.cluster_queue_name: "cq",
            "controller-uid": "uid-j",
        },
        "annotations": {NAMES.workload: "job-j-1"},
    },
    "spec": {
        **TEMPLATE["spec"],
        "nodeSelector": {"pool": "spot"},
        "tolerations": FLAVOR["spec"]["tolerations"],
    },
}
RUNNING = {"suspend": False, "template": RUNNING_TEMPLATE}
TOLERANT = {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "tolerations": [{"key": "a"}]}}}
INDEXES = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
NINE_PODS = {"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]}
FOR_NINE = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 9, "flavors": {}}]}
EVICTED = condition("Evicted", True, "ClusterQueueStopped", "The ClusterQueue is stopped", since=5)


def lookups(**known: Any) -> Lookups:
    """What is known besides the job: mappings by name, of flavors, classes and Workloads."""

    def of(kind: str) -> Callable[[str], Object | None]:
        return known.get(kind, {}).get

    return Lookups(
        flavor={"f": FLAVOR, **known.get("flavor", {})}.get,
        workload_priority_class=of("workload_priority_class"),
        priority_class=of("priority_class"),
        priority_classes=lambda: known.get("priority_class", {}).values(),
        workload=of("workload"),
    )


def case_of(job_: Object | None, *workloads: Object, now: float = 10, **parts: Any) -> JobCase:
    settings = settings_with(**parts.pop("settings", {}))
    known = parts.pop("known", {})
    return JobCase(
        integration=parts.pop("integration", JOB),
        names=NAMES,
        kinds=KINDS,
        settings=settings,
        now=at(now),
        job=job_,
        workloads=workloads,
        lookups=lookups(**known),
        **parts,
    )


def decided(job_: Object | None, *workloads: Object, **parts: Any) -> Plan:
    return decide(case_of(job_, *workloads, **parts))


def kinds(plan: Plan) -> list[str]:
    """What a plan does, in words: verbs with what they are done to."""
    words: dict[type, str] = {Create: "create", Delete: "delete", RemoveFinalizer: "free", Patch: "patch"}
    return [
        f"{words[type(action)]} {action.resource.kind}"
        for action in plan.actions
        if isinstance(action, Create | Delete | RemoveFinalizer | Patch)
    ]


def told(plan: Plan) -> list[tuple[str, str]]:
    return [(one.reason, one.note) for one in reports(plan) if isinstance(one, Tell)]


def reports(plan: Plan) -> list[Tell | Count]:
    """What a plan reports, in order: with its patches, or after them."""
    of_patches = ((one.reports if isinstance(one, Patch) else (one,)) for one in plan.actions)
    return [one for found in of_patches for one in found if isinstance(one, Tell | Count)]


def written(obj: Object, plan: Plan) -> Object:
    result = obj
    for action in plan.actions:
        if isinstance(action, Patch) and action.obj["metadata"]["name"] == obj["metadata"]["name"]:
            for step in action.steps:
                result = after(result, step.patch)
    return result


# --- whose job it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"namespace_matches": False},
        {"ancestor": Ancestor(job(), admitted=True)},
        {"job_": job(labels={})},
    ],
)
def test_jobs_that_are_not_ours_are_left_alone(parts: Any) -> None:
    parts = {"job_": job({"suspend": False}), **parts}
    assert decided(parts.pop("job_"), **parts) == Plan()


def test_what_has_quota_in_a_namespace_that_is_no_longer_selected_still_ends() -> None:
    ended = job(RUNNING, COMPLETE)
    assert kinds(decided(ended, admitted(), namespace_matches=False)) == ["patch Workload"]
    assert kinds(decided(job(RUNNING), admitted(EVICTED), namespace_matches=False)) == ["patch Job"]
    assert decided(job(RUNNING), workload(), namespace_matches=False) == Plan()


def test_a_job_without_queue_waits_where_all_jobs_are_managed() -> None:
    plan = decided(job(labels={}), settings={"without_queue_name": True})
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    assert "queueName" not in create.obj["spec"]


def test_a_running_job_inside_one_that_is_not_admitted_is_stopped() -> None:
    ancestor = Ancestor(job(), admitted=False)
    plan = decided(job({"suspend": False}, labels={}), ancestor=ancestor)
    assert kinds(plan) == ["patch Job"]
    assert told(plan) == [("Suspended", "admitq managed child job suspended")]
    [stop] = plan.actions
    assert isinstance(stop, Patch)
    assert isinstance(stop.reports[0], Tell), "a conflict of a later step must not lose the event"
    assert decided(job(labels={}), ancestor=ancestor) == Plan()


def test_a_job_that_ended_inside_one_that_is_not_admitted_any_more_is_left_as_it_is() -> None:
    ended = job({"suspend": False}, labels={}, status=COMPLETE)
    assert decided(ended, ancestor=Ancestor(job(), admitted=False)) == Plan()


@pytest.mark.parametrize("admitted_above", [True, False])
@pytest.mark.parametrize("obj", [workload(), admitted()])
def test_what_was_queued_before_it_came_to_be_inside_a_queued_job_holds_no_quota(
    obj: Object, admitted_above: bool
) -> None:
    plan = decided(job(), obj, ancestor=Ancestor(job(), admitted=admitted_above))
    assert set(kinds(plan)) == {"free Workload", "delete Workload"}


def test_a_waiting_workload_of_a_job_that_left_its_queue_goes() -> None:
    plan = decided(job(labels={}), workload())
    assert kinds(plan) == ["delete Workload", "free Workload"]


def test_a_running_job_cannot_shake_off_its_workload_by_leaving_its_queue() -> None:
    running = job(RUNNING, {"ready": 3, "active": 3}, labels={})
    assert kinds(decided(running, admitted(EVICTED))) == ["patch Job"]


# --- a Workload for each job ----------------------------------------------------------------------


def made(plan: Plan) -> Any:
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    return create.obj


def test_a_suspended_job_gets_a_workload() -> None:
    plan = decided(job())
    obj = made(plan)
    name = obj["metadata"]["name"]
    assert name.startswith("job-j-")
    assert obj["metadata"]["finalizers"] == [NAMES.finalizer]
    assert obj["metadata"]["ownerReferences"] == [OWNER]
    assert obj["metadata"]["labels"] == {NAMES.job_uid: "uid-j"}
    assert obj["spec"] == {
        "podSets": [{"name": "main", "count": 3, "template": TEMPLATE, "topologyRequest": INDEXES}],
        "queueName": "lq",
        "priority": 0,
    }
    assert told(plan) == [("CreatedWorkload", f"Created Workload: ns/{name}")]


@pytest.mark.parametrize("tells", [True, False])
def test_how_long_a_workload_took_to_come_is_told_behind_a_gate(tells: bool) -> None:
    plan = decided(job(), settings={"creation_latency": tells})
    counts = [one for one in plan.actions if isinstance(one, Count)]
    assert len(counts) == (1 if tells else 0)
    for one in counts:
        metrics = Metrics()
        one.what(cast("Any", WorkloadMeasures(MeasureScope(metrics, lambda _: "cq"))), {})
        assert b'admitq_workload_creation_latency_seconds_count{job_kind="Job.batch"' in metrics.exposition()


def test_a_workload_takes_over_what_its_job_says_of_limits_gates_and_checks() -> None:
    annotations = {
        NAMES.admission_gated_by: "a.example/g",
        f"{NAMES.provisioning_annotation_prefix}x": "y",
        NAMES.job_min_parallelism: "2",
        "other": "left out",
    }
    labels = {NAMES.queue_name: "lq", NAMES.max_exec_time: "60", "team": "a", "else": "left out"}
    obj = made(
        decided(job(labels=labels, annotations=annotations), settings={"label_keys_to_copy": ("team",)})
    )
    assert obj["metadata"]["annotations"] == {
        NAMES.admission_gated_by: "a.example/g",
        f"{NAMES.provisioning_annotation_prefix}x": "y",
    }
    assert obj["metadata"]["labels"] == {"team": "a", NAMES.job_uid: "uid-j"}
    assert obj["spec"]["maximumExecutionTimeSeconds"] == 60
    assert obj["spec"]["podSets"][0]["minCount"] == 2


METRIC_VALUES = (Location("labels", "size"), Location("annotations", "a.example/cost"))


def test_b10_workload_gets_what_metrics_take_from_it_of_its_job() -> None:
    labels = {NAMES.queue_name: "lq", "size": "large", "a.example/cost": "left out"}
    annotations = {"a.example/cost": "c7", "size": "left out"}
    settings = {"metric_values_to_copy": METRIC_VALUES}
    metadata = made(decided(job(labels=labels, annotations=annotations), settings=settings))["metadata"]
    assert metadata["labels"] == {"size": "large", NAMES.job_uid: "uid-j"}
    assert metadata["annotations"] == {"a.example/cost": "c7"}
    metadata = made(decided(job(), settings=settings))["metadata"]
    assert metadata["labels"] == {NAMES.job_uid: "uid-j"}
    assert "annotations" not in metadata


def test_without_partial_admission_no_fewer_pods_are_offered() -> None:
    annotations = {NAMES.job_min_parallelism: "2"}
    obj = made(decided(job(annotations=annotations), settings={"partial_admission": False}))
    assert "minCount" not in obj["spec"]["podSets"][0]


@pytest.mark.parametrize("text", ["0", "-5", "x", "1.5", "9" * 5000, "99999999999"])
def test_a_limit_of_time_that_cannot_be_read_does_not_limit(text: str) -> None:
    obj = made(decided(job(labels={NAMES.queue_name: "lq", NAMES.max_exec_time: text})))
    assert "maximumExecutionTimeSeconds" not in obj["spec"]


def test_labels_of_the_platform_are_no_part_of_a_workload() -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"app": "x", "controller-uid": "u", "job-name": "j"}}}
    assert made(decided(job({"template": template})))["spec"]["podSets"][0]["template"] == TEMPLATE


def test_no_workload_is_made_while_pods_of_the_job_are_left() -> None:
    assert decided(job(status={"active": 1})) == Plan()


def test_no_workload_is_made_for_a_finished_job() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert decided(job({"suspend": False}, done)) == Plan()


def test_no_workload_is_made_in_a_namespace_that_ends() -> None:
    assert decided(job(), namespace_ends=True) == Plan()


def test_a_running_job_without_workload_is_stopped() -> None:
    plan = decided(job({"suspend": False}))
    assert kinds(plan) == ["patch Job"]
    assert told(plan) == [("Stopped", "Missing Workload; unable to restore pod templates")]


def test_a_running_job_that_its_workload_does_not_match_is_stopped_and_restored() -> None:
    obj = admitted(spec=NINE_PODS, admission=FOR_NINE)
    plan = decided(job(RUNNING), obj)
    message = "No matching Workload; restoring pod templates according to existent Workload"
    assert told(plan) == [("Stopped", message)]
    stopped = written(job(RUNNING), plan)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"] == TEMPLATE["spec"]


def test_a_waiting_workload_is_made_to_match() -> None:
    obj = workload(spec={"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]})
    plan = decided(job(), obj)
    assert written(obj, plan)["spec"]["podSets"][0]["count"] == 3
    note = "Updated not matching Workload for suspended job: ns/job-j-1"
    assert told(plan) == [("UpdatedWorkload", note)]


def test_an_update_takes_away_what_the_job_no_longer_says() -> None:
    labels = {NAMES.queue_name: "lq"}
    obj = workload(spec={"maximumExecutionTimeSeconds": 5})
    assert "maximumExecutionTimeSeconds" not in written(obj, decided(job(labels=labels), obj))["spec"]


def test_a_reserved_workload_that_does_not_match_goes_with_its_quota() -> None:
    obj = reserved(spec=NINE_PODS, admission=FOR_NINE)
    plan = decided(job(), obj)
    assert kinds(plan) == ["delete Workload", "free Workload"]
    assert told(plan) == [("DeletedWorkload", "Deleted not matching Workload: ns/job-j-1")]
    assert decided(job(status={"active": 1}), obj) == Plan()


def test_of_two_workloads_one_stays() -> None:
    plan = decided(job(), workload(name="a"), workload(name="b"))
    assert [action.obj["metadata"]["name"] for action in plan.actions if isinstance(action, Delete)] == ["b"]


@pytest.mark.parametrize(
    ("spec", "obj", "same"),
    [
        ({}, workload(), True),
        ({"parallelism": 4, "completions": 4}, workload(), False),
        ({"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}, workload(), False),
        ({"template": {**TEMPLATE, "metadata": {"labels": {"other": "y"}}}}, workload(), True),
        (TOLERANT, workload(), False),
        (TOLERANT, reserved(), False),
        (
            TOLERANT,
            reserved(spec={"podSets": [{"name": "main", "count": 3, "template": TOLERANT["template"]}]}),
            True,
        ),
        ({**TOLERANT, "suspend": False}, reserved(), True),
        (TOLERANT, admitted(), True),
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
def test_a_workload_matches_what_asks_for_the_same(spec: Any, obj: Object, same: bool) -> None:
    assert (match_of(case_of(job(spec), obj)).workload is not None) is same


# --- priority -------------------------------------------------------------------------------------

HIGH = {"metadata": {"name": "high"}, "value": 100}
LOW = {"metadata": {"name": "low"}, "value": 1, "globalDefault": True}
LOWER = {"metadata": {"name": "lower"}, "value": 0, "globalDefault": True}
BY_LABEL = {NAMES.queue_name: "lq", NAMES.priority_class: "high"}
PODS_CLASS = {"template": {"spec": {"priorityClassName": "low", "containers": []}}}


def reference(group: str, kind: str, name: str) -> Object:
    return {"group": group, "kind": kind, "name": name}


@pytest.mark.parametrize(
    ("obj", "known", "priority", "ref"),
    [
        (job(), {}, 0, None),
        (
            job(),
            {"priority_class": {"low": LOW, "lower": LOWER}},
            0,
            reference("scheduling.k8s.io", "PriorityClass", "lower"),
        ),
        (
            job(PODS_CLASS),
            {"priority_class": {"low": LOW, "lower": LOWER}},
            1,
            reference("scheduling.k8s.io", "PriorityClass", "low"),
        ),
        (
            job(PODS_CLASS, labels=BY_LABEL),
            {"priority_class": {"low": LOW}, "workload_priority_class": {"high": HIGH}},
            100,
            reference(NAMES.group, "WorkloadPriorityClass", "high"),
        ),
    ],
)
def test_a_priority_comes_from_the_nearest_class(obj: Object, known: Any, priority: int, ref: Any) -> None:
    spec = made(decided(obj, known=known))["spec"]
    assert (spec["priority"], spec.get("priorityClassRef")) == (priority, ref)


@pytest.mark.parametrize(
    ("obj", "reason", "note"),
    [
        (job(labels=BY_LABEL), "WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "high" not found'),
        (job(PODS_CLASS), "PriorityClassNotFound", 'PriorityClass "low" not found'),
    ],
)
def test_without_its_class_a_job_gets_no_workload_and_is_told(obj: Object, reason: str, note: str) -> None:
    plan = decided(obj)
    assert (kinds(plan), told(plan)) == ([], [(reason, note)])


@pytest.mark.parametrize(
    ("obj", "follows"),
    [
        (workload(), True),
        (workload(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "old")}), True),
        (admitted(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "old")}), True),
        (admitted(), False),
        (workload(spec={"priorityClassRef": reference("scheduling.k8s.io", "PriorityClass", "p")}), False),
        (workload(spec={"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", "high")}), False),
    ],
)
def test_a_workload_follows_the_class_of_its_job_where_it_may(obj: Object, follows: bool) -> None:
    known = {"workload_priority_class": {"high": HIGH}}
    plan = decided(job(labels=BY_LABEL), obj, known=known)
    assert (("UpdatedWorkload", "Updated workload priority class: ns/job-j-1") in told(plan)) is follows
    if follows:
        assert written(obj, plan)["spec"]["priority"] == 100


def of_class(name: str) -> Object:
    return {"priorityClassRef": reference(NAMES.group, "WorkloadPriorityClass", name)}


@pytest.mark.parametrize(
    ("obj", "done"),
    [
        (admitted(EVICTED, spec=of_class("old")), ["patch Job"]),
        (workload(), ["patch Job"]),
        (admitted(metadata={"deletionTimestamp": time(5)}, spec=of_class("old")), ["patch Job"]),
        (admitted(spec=of_class("old")), []),
    ],
)
def test_nobody_escapes_a_stop_by_naming_a_class_that_is_not_there(obj: Object, done: Any) -> None:
    plan = decided(job(RUNNING, labels=BY_LABEL), obj, settings={"pods_ready": None})
    assert kinds(plan) == done
    note = 'WorkloadPriorityClass "high" not found'
    assert (("WorkloadPriorityClassNotFound", note) in told(plan)) is not bool(done)


def test_of_a_class_that_is_not_there_nobody_hears_whose_job_has_ended() -> None:
    assert (
        decided(job(status=COMPLETE, labels=BY_LABEL), workload(FINISHED, metadata={"finalizers": []}))
        == Plan()
    )


# --- admission gates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_job", "of_workload", "left"),
    [
        ("a.example/x", "a.example/x,b.example/y", "a.example/x"),
        (None, "a.example/x", None),
        ("b.example/y", "a.example/x", None),
        ("b.example/y", "a.example/x, b.example/y", "b.example/y"),
    ],
)
def test_a_gate_that_is_taken_off_the_job_is_taken_off_its_workload(
    of_job: str | None, of_workload: str, left: str | None
) -> None:
    obj = workload(metadata={"annotations": {NAMES.admission_gated_by: of_workload}})
    plan = decided(job(annotations={NAMES.admission_gated_by: of_job} if of_job else {}), obj)
    assert written(obj, plan)["metadata"]["annotations"].get(NAMES.admission_gated_by) == left


@pytest.mark.parametrize(
    ("of_job", "of_workload", "labels"),
    [
        ("a.example/x", "a.example/x", {}),
        ("a.example/x", None, {}),
        (None, "a.example/x", {NAMES.prebuilt_workload_name: "job-j-1"}),
    ],
)
def test_gates_that_the_workload_has_of_its_own_or_no_more_are_left_alone(
    of_job: str | None, of_workload: str | None, labels: Any
) -> None:
    key = NAMES.admission_gated_by
    annotations = {key: of_workload} if of_workload else {}
    obj = workload(metadata={"annotations": annotations, "labels": {NAMES.job_uid: "uid-j"}})
    gated = job(annotations={key: of_job} if of_job else {}, labels={NAMES.queue_name: "lq", **labels})
    assert kinds(decided(gated, obj, known={"workload": {"job-j-1": obj}})) == []


# --- starting -------------------------------------------------------------------------------------


def test_an_admitted_job_is_started_with_what_its_flavors_give() -> None:
    plan = decided(job(), admitted())
    assert told(plan) == [("Started", "Admitted by clusterQueue cq")]
    started = written(job(), plan)["spec"]
    assert started["suspend"] is False
    labels = {
        key: value for key, value in RUNNING_TEMPLATE["metadata"]["labels"].items() if key != "controller-uid"
    }
    assert started["template"]["metadata"]["labels"] == labels
    assert started["template"]["spec"] == RUNNING_TEMPLATE["spec"]


def test_job_that_its_user_unsuspended_when_quota_was_reserved_is_started_anew() -> None:
    plan = decided(job({"suspend": False}), admitted())
    assert told(plan) == [("Stopped", "Started before it was admitted")]
    assert written(job({"suspend": False}), plan)["spec"]["suspend"] is True


def test_job_that_an_importer_admitted_while_it_ran_runs_on() -> None:
    imported = [condition(one, True, "Imported", "Imported") for one in ("QuotaReserved", "Admitted")]
    assert decided(job({"suspend": False}), workload(*imported, admission=ADMISSION)).actions == ()


def test_the_start_is_one_patch_that_says_only_what_changes() -> None:
    [patch, _] = decided(job(), admitted(), settings={"marks": Marks(False, False)}).actions
    assert isinstance(patch, Patch)
    assert [step.patch for step in patch.steps] == [
        {
            "spec": {
                "suspend": False,
                "template": {
                    "metadata": {"labels": {NAMES.podset: "main"}},
                    "spec": {
                        "nodeSelector": {"pool": "spot"},
                        "tolerations": FLAVOR["spec"]["tolerations"],
                    },
                },
            }
        }
    ]


def test_a_partial_admission_sets_the_count() -> None:
    fewer = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2, "flavors": {}}]}
    annotations = {NAMES.job_min_parallelism: "1"}
    obj = admitted(
        admission=fewer, spec={"podSets": [{"name": "main", "count": 3, "minCount": 1, "template": TEMPLATE}]}
    )
    started = written(job(annotations=annotations), decided(job(annotations=annotations), obj))
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 3)


def test_a_conflict_fails_for_good() -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"pool": "mine"}}}
    obj = admitted()
    failed = written(obj, decided(job({"template": template}), obj))
    status, reason, message = condition_of(failed, "Finished")
    assert (status, reason) == ("True", "FailedToStart")
    assert "pool" in message


def test_a_flavor_that_is_gone_is_told_of_and_waited_for() -> None:
    obj = admitted(admission={"clusterQueue": "cq", "podSetAssignments": [{"flavors": {"cpu": "gone"}}]})
    obj["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    plan = decided(job(), obj)
    remedy = "create it, or set spec.active of Workload ns/job-j-1 to false"
    assert told(plan) == [("ErrWorkloadCompose", f"ResourceFlavor gone not found: {remedy}")]
    assert (kinds(plan), plan.again) == ([], 1.0)


@pytest.mark.parametrize(
    ("obj", "status"),
    [
        (workload(), {}),
        (reserved(), {}),
        (admitted(spec={"active": False}), {}),
        (admitted(), {"active": 1}),
    ],
)
def test_what_may_not_run_is_not_started(obj: Object, status: Object) -> None:
    assert kinds(decided(job(status=status), obj)) == []


ADMITTED_ALONE = {
    "without a condition of quota": workload(ADMITTED),
    "without a reservation": workload(
        condition("QuotaReserved", False, "Pending"), ADMITTED, admission=ADMISSION
    ),
    "without an admission": workload(RESERVED, ADMITTED),
}
"""Workloads that another program states to be admitted, though no quota is reserved for them."""


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_job_is_not_started_when_admitted_is_stated_without_quota(obj: Object) -> None:
    assert "patch Job" not in kinds(decided(job(), obj))


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_running_job_is_stopped_when_admitted_is_stated_without_quota(obj: Object) -> None:
    plan = decided(job({"suspend": False}, {"ready": 3}), obj)
    assert (kinds(plan), plan.unless_admitted) == (["patch Job"], True)
    assert told(plan) == [("Stopped", "Not admitted by cluster queue")]


@pytest.mark.parametrize("obj", ADMITTED_ALONE.values(), ids=ADMITTED_ALONE.keys())
def test_e_child_of_a_job_does_not_run_when_admitted_is_stated_without_quota(obj: Object) -> None:
    assert not lets_run([obj], elastic=False)
    assert lets_run([admitted()], elastic=False)


def test_messages_of_pending_checks_are_told() -> None:
    checks = [
        {"name": "a", "state": "Pending", "message": "waits for nodes"},
        {"name": "b", "state": "Ready", "message": "done"},
        {"name": "c", "state": "Pending", "message": ""},
        {"name": "d", "state": "Pending", "message": "soon"},
    ]
    plan = decided(job(), reserved(admissionChecks=checks))
    assert told(plan) == [("UpdatedAdmissionCheck", "a: waits for nodes; d: soon")]


def test_a_waiting_workload_follows_its_jobs_queue() -> None:
    labels = {NAMES.queue_name: "other"}
    obj = workload()
    assert written(obj, decided(job(labels=labels), obj))["spec"]["queueName"] == "other"
    assert decided(job(labels=labels), reserved()) == Plan()


def test_where_all_jobs_are_managed_a_waiting_workload_follows_its_job_out_of_its_queue() -> None:
    settings = {"without_queue_name": True}
    obj = workload()
    assert "queueName" not in written(obj, decided(job(labels={}), obj, settings=settings))["spec"]
    labels = {NAMES.prebuilt_workload_name: "job-j-1"}
    adopted = workload(metadata={"labels": {NAMES.job_uid: "uid-j"}})
    known = {"workload": {"job-j-1": adopted}}
    assert decided(job(labels=labels), adopted, settings=settings, known=known) == Plan()


# --- while it runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "status", "after_"),
    [
        ([], {"ready": 1}, None),
        ([], {"ready": 3}, ("True", "Started")),
        ([condition("PodsReady", False, "WaitForStart")], {"ready": 3}, ("True", "Started")),
        ([condition("PodsReady", True, "Started")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", False, "WaitForRecovery")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", False, "WaitForRecovery")], {"ready": 3}, ("True", "Recovered")),
        ([condition("PodsReady", True, "Recovered")], {"ready": 2}, ("False", "WaitForRecovery")),
        ([condition("PodsReady", True, "Started")], {"ready": 1, "succeeded": 2}, ("True", "Started")),
    ],
)
def test_readiness_of_pods_is_followed(before: Any, status: Object, after_: Any) -> None:
    obj = admitted(*before)
    found = condition_of(written(obj, decided(job(RUNNING, {"active": 3, **status}), obj)), "PodsReady")
    assert (found and found[:2]) == after_


def test_nobody_looks_at_readiness_where_that_is_switched_off() -> None:
    plan = decided(job(RUNNING, {"ready": 3}), admitted(), settings={"pods_ready": None})
    assert plan == Plan()


def test_pods_of_an_eviction_are_not_reported() -> None:
    obj = admitted(condition("PodsReady", True, "Started"), EVICTED)
    stopping = job({**RUNNING, "suspend": True}, {"active": 1}, annotations={NAMES.stopping: "true"})
    assert decided(stopping, obj) == Plan()


@pytest.mark.parametrize(
    ("status", "before", "after_"),
    [
        ({"succeeded": 1}, None, 1),
        ({"succeeded": 2}, [{"name": "main", "count": 1}], 2),
        ({"succeeded": 1}, [{"name": "main", "count": 2}], 2),
        ({}, None, None),
    ],
)
def test_reclaimable_pods_only_grow_while_quota_is_reserved(status: Object, before: Any, after_: Any) -> None:
    obj = admitted(condition("PodsReady", True, "Started"), **({"reclaimablePods": before} if before else {}))
    final = written(obj, decided(job(RUNNING, {"ready": 3, **status}), obj))
    expected = None if after_ is None else [{"name": "main", "count": after_}]
    assert final["status"].get("reclaimablePods") == expected


def test_reclaimable_pods_have_a_field_manager_of_their_own() -> None:
    obj = admitted(condition("PodsReady", True, "Started"))
    [patch] = decided(job(RUNNING, {"ready": 3, "succeeded": 1}), obj).actions
    assert isinstance(patch, Patch)
    assert patch.concern == "reclaimable-pods"


# --- jobs without podsets -------------------------------------------------------------------------

WITHOUT_PODS = replace(
    JOB, pod_sets=lambda _job, _names: (), templates=replace(JOB.templates, pod_sets_field="spec.roles")
)
NO_PODS = "spec.roles: Required value: describes no pods; a Workload needs at least one podset"


def test_d24_job_without_podsets_is_refused_with_a_reason_that_names_the_field() -> None:
    plan = decided(job(), integration=WITHOUT_PODS)
    assert (kinds(plan), told(plan), plan.refusal) == ([], [("ErrWorkloadCompose", NO_PODS)], NO_PODS)


def test_d24_waiting_workload_of_a_job_that_lost_its_podsets_is_deleted() -> None:
    plan = decided(job(), workload(), integration=WITHOUT_PODS)
    assert kinds(plan) == ["delete Workload", "free Workload"]
    assert ("ErrWorkloadCompose", NO_PODS) in told(plan)
    assert plan.refusal == NO_PODS


# --- stopping -------------------------------------------------------------------------------------


def test_an_eviction_stops_and_restores() -> None:
    running = job(RUNNING, {"startTime": time(1)})
    plan = decided(running, admitted(EVICTED))
    assert told(plan) == [("Stopped", "The ClusterQueue is stopped")]
    stopped = written(running, plan)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"] == TEMPLATE["spec"]
    assert stopped["spec"]["template"]["metadata"] == {"labels": {"app": "x", "controller-uid": "uid-j"}}
    assert "startTime" not in stopped["status"]
    assert NAMES.stopping not in stopped["metadata"]["annotations"]


def test_a_stop_keeps_the_name_that_a_workload_made_before_its_job_lacks() -> None:
    metadata = RUNNING_TEMPLATE["metadata"]
    labels = {**metadata["labels"], "batch.kubernetes.io/job-name": "j"}
    running = job({**RUNNING, "template": {**RUNNING_TEMPLATE, "metadata": {**metadata, "labels": labels}}})
    bare = {"podSets": [{"name": "main", "count": 3, "template": {"spec": TEMPLATE["spec"]}}]}
    stopped = written(running, decided(running, admitted(EVICTED, spec=bare)))
    kept = {"batch.kubernetes.io/job-name": "j", "controller-uid": "uid-j"}
    assert stopped["spec"]["template"]["metadata"]["labels"] == kept


def test_a_stop_in_two_parts_is_told_once() -> None:
    running = job(RUNNING, {"active": 3})
    first = decided(running, admitted(EVICTED))
    assert told(first) == [("Stopped", "The ClusterQueue is stopped")]
    half = written(running, first)
    assert decided(half, admitted(EVICTED)) == Plan()
    half["status"] = {}
    second = decided(half, admitted(EVICTED))
    assert (kinds(second), told(second)) == (["patch Job"], [])


def test_quota_is_released_when_nothing_runs_any_more() -> None:
    obj = admitted(condition("PodsReady", True, "Started"), EVICTED, since=2)
    assert decided(job(status={"active": 1}), obj) == Plan()
    released = written(obj, decided(job(), obj, now=12))
    message = "The ClusterQueue is stopped"
    assert condition_of(released, "Requeued") == ("False", "ClusterQueueStopped", message)
    assert condition_of(released, "QuotaReserved") == ("False", "PendingEvaluation", message)
    assert condition_of(released, "Admitted")[1] == "NoReservation"
    assert condition_of(released, "PodsReady")[:2] == ("False", "WaitForStart")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]
    assert released["status"]["accumulatedPastExecutionTimeSeconds"] == 10


def test_e_eviction_goes_on_when_another_program_reserves_and_leaves_evicted_true() -> None:
    later = {"lastTransitionTime": time(8)}
    obj = workload({**RESERVED, **later}, {**ADMITTED, **later}, EVICTED, admission=ADMISSION)
    plan = decided(job(), obj)
    assert kinds(plan) == ["patch Workload"]
    released = written(obj, plan)
    assert condition_of(released, "QuotaReserved")[:2] == ("False", "PendingEvaluation")
    assert condition_of(released, "Evicted")[0] == "True"
    assert "admission" not in released["status"]


def test_without_detailed_reasons_who_was_evicted_is_pending() -> None:
    obj = admitted(EVICTED)
    released = written(obj, decided(job(), obj, settings={"detailed_reasons": False}))
    message = "The ClusterQueue is stopped"
    assert condition_of(released, "QuotaReserved") == ("False", "Pending", message)


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", "True"),
        ("NodeFailures", "True"),
        ("PodsReadyTimeout", "False"),
        ("Deactivated", "False"),
    ],
)
def test_who_may_come_back_at_once(reason: str, requeued: str) -> None:
    obj = admitted(condition("Evicted", True, reason, "m"))
    assert condition_of(written(obj, decided(job(), obj)), "Requeued") == (requeued, reason, "m")


def test_a_suspended_job_that_still_carries_an_admission_is_restored() -> None:
    without = {key: value for key, value in RUNNING_TEMPLATE["spec"].items() if key != "tolerations"}
    suspended = job({"suspend": True, "template": {**RUNNING_TEMPLATE, "spec": without}})
    obj = workload(condition("QuotaReserved", False, "WaitingForQuota"))
    assert written(suspended, decided(suspended, obj))["spec"]["template"]["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize(
    "obj",
    [workload(condition("QuotaReserved", False, "Pending")), admitted(spec=NINE_PODS, admission=FOR_NINE)],
    ids=["released", "admitted for other pods"],
)
def test_e_suspended_job_with_marks_of_an_admission_is_restored_before_its_workload_follows_it(
    obj: Object,
) -> None:
    suspended = job({"suspend": True, "template": RUNNING_TEMPLATE})
    plan = decided(suspended, obj)
    assert (kinds(plan), told(plan)) == (["patch Job"], [])
    restored = written(suspended, plan)["spec"]
    assert (restored["suspend"], restored["template"]["spec"]) == (True, TEMPLATE["spec"])


def test_a_job_made_from_the_copy_of_a_running_one_is_left_as_it_is() -> None:
    copied = job({"suspend": True, "template": RUNNING_TEMPLATE})
    kept = {
        "metadata": {
            "labels": {
                key: value
                for key, value in RUNNING_TEMPLATE["metadata"]["labels"].items()
                if key != "controller-uid"
            },
            "annotations": RUNNING_TEMPLATE["metadata"]["annotations"],
        },
        "spec": RUNNING_TEMPLATE["spec"],
    }
    obj = workload(spec={"podSets": [{"name": "main", "count": 3, "template": kept}]})
    assert decided(copied, obj) == Plan()


def test_what_is_not_admitted_does_not_run() -> None:
    plan = decided(job({"suspend": False}), workload(condition("QuotaReserved", False, "Pending")))
    assert told(plan) == [("Stopped", "Not admitted by cluster queue")]


def test_a_stop_that_was_begun_is_ended_even_if_the_job_was_admitted_meanwhile() -> None:
    half = job({**RUNNING, "suspend": True}, annotations={NAMES.stopping: "true"})
    stopped = written(half, decided(half, admitted()))
    assert NAMES.stopping not in stopped["metadata"]["annotations"]
    assert stopped["spec"]["suspend"] is True


# --- on hold --------------------------------------------------------------------------------------


def test_a_job_on_hold_keeps_its_workload_and_no_quota() -> None:
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    obj = reserved()
    held = written(obj, decided(job(), obj, integration=holding))
    assert condition_of(held, "QuotaReserved") == ("False", "OnHold", "Job is on hold")
    assert kinds(decided(job(), held, integration=holding)) == []
    freed = written(held, decided(job(), held))
    assert condition_of(freed, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload no longer on hold; waiting for quota reservation",
    )


@pytest.mark.parametrize("on_hold", [True, False])
def test_e_reservation_whose_reason_another_program_left_is_a_reservation(on_hold: bool) -> None:
    obj = admitted(condition("PodsReady", True, "Started"))
    obj["status"]["conditions"][0] = condition("QuotaReserved", True, "OnHold", "Job is on hold")
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: on_hold))
    final = written(obj, decided(job(RUNNING, {"ready": 3}), obj, integration=holding))
    assert condition_of(final, "QuotaReserved") == (str(not on_hold), "OnHold", "Job is on hold")


def test_that_a_workload_is_deactivated_goes_before_that_its_job_is_on_hold() -> None:
    """Two controllers that each tell their own would do so for ever."""
    holding = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: True))
    for reason in ("Deactivated", "OnHold"):
        obj = workload(condition("QuotaReserved", False, reason, "m"), spec={"active": False})
        assert decided(job(), obj, integration=holding) == Plan()
    leaving = reserved(condition("Evicted", True, "Deactivated", "m"), spec={"active": False})
    released = written(leaving, decided(job(), leaving, integration=holding))
    assert condition_of(released, "Requeued") == ("False", "Deactivated", "m")


# --- ends -----------------------------------------------------------------------------------------

COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "no"}]}


@pytest.mark.parametrize(
    ("status", "finished"),
    [(COMPLETE, ("True", "Succeeded", "done")), (FAILED, ("True", "Failed", "no"))],
)
def test_a_workload_ends_as_its_job_does(status: Object, finished: Any) -> None:
    obj = admitted()
    assert condition_of(written(obj, decided(job(RUNNING, status), obj)), "Finished") == finished


def test_a_job_that_ended_is_not_compared_any_more() -> None:
    obj = admitted(spec=NINE_PODS, admission=FOR_NINE)
    assert condition_of(written(obj, decided(job(RUNNING, COMPLETE), obj)), "Finished")[1] == "Succeeded"


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("make", [admitted, reserved, workload])
def test_an_evicted_workload_ends_with_its_job(make: Any, *, is_gone: bool) -> None:
    evicted = make(condition("Evicted", True, "Preempted", since=5))
    plan = decided(None if is_gone else job(RUNNING, COMPLETE), evicted)
    assert condition_of(written(evicted, plan), "Finished") is not None


def test_an_evicted_workload_that_is_deleted_is_freed_when_its_job_has_stopped() -> None:
    evicted = admitted(condition("Evicted", True, "Preempted"), metadata={"deletionTimestamp": time(9)})
    assert kinds(decided(job(), evicted)) == ["free Workload"]


def test_a_finished_workload_is_freed_and_told_of_once() -> None:
    obj = admitted(FINISHED)
    plan = decided(job(RUNNING, COMPLETE), obj)
    assert kinds(plan) == ["free Workload"]
    assert told(plan) == [("FinishedWorkload", "Workload 'ns/job-j-1' is declared finished")]
    assert decided(job(RUNNING, COMPLETE), admitted(FINISHED, metadata={"finalizers": []})) == Plan()


def test_nothing_runs_behind_a_finished_workload() -> None:
    obj = admitted(condition("Finished", True, "FailedToStart"), metadata={"finalizers": []})
    assert kinds(decided(job(RUNNING), obj)) == ["patch Job"]


def test_a_deleted_workload_stops_its_job_and_goes_when_it_has_stopped() -> None:
    going = admitted(metadata={"deletionTimestamp": time(9)})
    plan = decided(job(RUNNING, {"active": 3}), going)
    assert told(plan) == [("Stopped", "Workload is deleted")]
    assert decided(job(status={"active": 1}), going) == Plan()
    assert kinds(decided(job(), going)) == ["free Workload"]


@pytest.mark.parametrize("gone", [None, job(deletionTimestamp=time(9))])
def test_workloads_of_a_job_that_is_gone_are_finished_and_freed(gone: Object | None) -> None:
    obj = admitted()
    finished = written(obj, decided(gone, obj))
    assert condition_of(finished, "Finished")[1] == "OwnerNotFound"
    assert kinds(decided(gone, finished)) == ["free Workload"]
    assert decided(gone, workload(FINISHED, metadata={"finalizers": []})) == Plan()


def test_workloads_of_an_earlier_job_of_the_name_are_freed_first() -> None:
    old = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"})
    plan = decided(job(), old)
    assert plan.actions == (RemoveFinalizer(KINDS.workloads, old),)
    freed = workload(FINISHED, name="old", owner={**OWNER, "uid": "uid-old"}, metadata={"finalizers": []})
    assert kinds(decided(job(), freed)) == ["create Workload"]


def test_a_job_deactivated_for_a_cause_is_deleted_after_its_retention() -> None:
    settings = {"after_deactivated": 60 * SECOND}
    caused = condition("Evicted", True, "DeactivatedDueToAdmissionCheck", since=10)
    obj = workload(caused, condition("QuotaReserved", False, "Deactivated"), spec={"active": False})
    assert decided(job(), obj, now=30, settings=settings) == Plan(again=40.0)
    plan = decided(job(), obj, now=70, settings=settings)
    assert kinds(plan) == ["delete Job"]
    assert told(plan) == [("Deleted", "Deleted job: deactivation retention period expired")]
    by_hand = workload(condition("Evicted", True, "Deactivated", since=10), spec={"active": False})
    assert kinds(decided(job(), by_hand, now=10**6, settings=settings)) == []
    reactivated = condition("Requeued", True, "Reactivated")
    anew = workload(
        caused, condition("QuotaReserved", False, "Deactivated"), reactivated, spec={"active": False}
    )
    assert kinds(decided(job(), anew, now=10**6, settings=settings)) == [], "the second time it was by hand"
    returned = condition("Requeued", True, "BackoffFinished", since=11)
    by_another = workload(
        caused, condition("QuotaReserved", False, "Deactivated"), returned, spec={"active": False}
    )
    assert kinds(decided(job(), by_another, now=10**6, settings=settings)) == [], "it was requeued since"
    # Pods of what serves would be made again.
    served = workload(
        caused,
        condition("QuotaReserved", False, "Deactivated"),
        spec={"active": False},
        metadata={"annotations": {NAMES.job_owner_name: "s"}},
    )
    assert kinds(decided(job(), served, now=10**6, settings=settings)) == []


# --- prebuilt -------------------------------------------------------------------------------------

PREBUILT = {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "mine"}


def test_a_prebuilt_workload_is_adopted() -> None:
    mine = workload(name="mine", owner=None)
    adopted = written(mine, decided(job(labels=PREBUILT), known={"workload": {"mine": mine}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]
    assert adopted["metadata"]["labels"] == {NAMES.job_uid: "uid-j"}


def test_prebuilt_workload_that_the_job_owns_without_control_is_adopted_with_one_reference() -> None:
    plain = {key: value for key, value in OWNER.items() if key != "controller"}
    mine = workload(name="mine", metadata={"ownerReferences": [plain]})
    adopted = written(mine, decided(job(labels=PREBUILT), known={"workload": {"mine": mine}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]


STRANGER: Any = {"apiVersion": "v1", "kind": "Pod", "name": "theirs-0", "uid": "other"}
FOREIGN = ("ErrWorkloadCompose", "Workload mine exists already and belongs to something else")
OF_NINE_PODS: Any = {"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]}


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": [{**OWNER, "uid": "other"}]},
        {"ownerReferences": [STRANGER]},
        {"ownerReferences": [STRANGER, {**OWNER, "controller": False}]},
        {"labels": {NAMES.job_uid: "former"}},
        {"annotations": {NAMES.is_group_workload: "true"}},
        {"annotations": {NAMES.job_owner_name: "db"}},
    ],
)
def test_prebuilt_workload_that_belongs_to_another_object_is_left_alone_and_reported(metadata: Any) -> None:
    theirs = workload(RESERVED, name="mine", owner=None, metadata=metadata, admission=ADMISSION)
    plan = decided(job(labels=PREBUILT), known={"workload": {"mine": theirs}})
    assert (kinds(plan), told(plan)) == ([], [FOREIGN])


def test_finished_prebuilt_workload_of_another_job_keeps_its_finalizer() -> None:
    theirs = workload(FINISHED, name="mine", owner=None, metadata={"ownerReferences": [STRANGER]})
    plan = decided(job(labels=PREBUILT), known={"workload": {"mine": theirs}})
    assert (kinds(plan), told(plan)) == ([], [FOREIGN])


@pytest.mark.parametrize("spec", [OF_NINE_PODS, {"maximumExecutionTimeSeconds": 5}])
def test_prebuilt_workload_without_owner_that_differs_from_the_job_is_left_alone_and_reported(
    spec: Any,
) -> None:
    free = workload(name="mine", owner=None, spec=spec)
    plan = decided(job(labels=PREBUILT), known={"workload": {"mine": free}})
    note = "The prebuilt workload is out of sync with its user job"
    assert (kinds(plan), told(plan)) == ([], [("ErrWorkloadCompose", note)])


def test_running_job_that_names_the_workload_of_another_is_stopped() -> None:
    theirs = workload(RESERVED, name="mine", owner={**OWNER, "uid": "other"}, admission=ADMISSION)
    plan = decided(job(RUNNING, labels=PREBUILT), known={"workload": {"mine": theirs}})
    assert (kinds(plan), told(plan)) == (["patch Job"], [("Stopped", "missing workload")])


def test_prebuilt_workload_that_lost_its_references_is_adopted_by_the_job_of_its_label() -> None:
    mine = workload(name="mine", owner=None, spec=OF_NINE_PODS, metadata={"labels": {NAMES.job_uid: "uid-j"}})
    adopted = written(mine, decided(job(labels=PREBUILT), known={"workload": {"mine": mine}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize("labels", [{}, {NAMES.job_uid: "former"}])
def test_prebuilt_workload_that_another_program_gave_to_the_job_gets_the_uid_of_the_job(
    labels: dict[str, str],
) -> None:
    mine = workload(name="mine", metadata={"labels": {"a": "b", **labels}})
    plan = decided(job(labels=PREBUILT), mine, known={"workload": {"mine": mine}})
    adopted = written(mine, plan)
    assert adopted["metadata"]["labels"] == {"a": "b", NAMES.job_uid: "uid-j"}
    assert adopted["metadata"]["ownerReferences"] == mine["metadata"]["ownerReferences"]


@pytest.mark.parametrize(("by_annotation", "name"), [(True, "annotated"), (False, "mine")])
def test_the_gate_says_whether_the_annotation_or_the_label_names_the_workload(
    by_annotation: bool, name: str
) -> None:
    known = {"workload": {one: workload(name=one, owner=None) for one in ("annotated", "mine")}}
    annotations = {NAMES.prebuilt_workload_name: "annotated"}
    settings = {"names_by_annotation": by_annotation}
    (patch,) = decided(job(labels=PREBUILT, annotations=annotations), known=known, settings=settings).actions
    assert isinstance(patch, Patch)
    assert patch.obj["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("by_annotation", "name", "adopted"),
    [(True, "mine", True), (False, "mine", False), (False, "w" * 64, True)],
)
def test_b11_prebuilt_annotation_is_ignored_where_labels_identify_workloads(
    by_annotation: bool, name: str, adopted: bool
) -> None:
    known = {"workload": {name: workload(name=name, owner=None)}}
    annotations = {NAMES.prebuilt_workload_name: name}
    plan = decided(job(annotations=annotations), known=known, settings={"names_by_annotation": by_annotation})
    patched = [one.obj["metadata"]["name"] for one in plan.actions if isinstance(one, Patch)]
    created = [one for one in plan.actions if isinstance(one, Create)]
    assert (patched, bool(created)) == (([name], False) if adopted else ([], True))


def test_a_running_job_without_its_prebuilt_workload_is_stopped_and_waits() -> None:
    plan = decided(job(RUNNING, labels=PREBUILT))
    assert told(plan) == [("Stopped", "missing workload")]
    assert decided(job(labels=PREBUILT)) == Plan()


def test_a_prebuilt_workload_that_asks_for_something_else_ends() -> None:
    mine = workload(
        name="mine",
        metadata={"labels": {NAMES.job_uid: "uid-j"}},
        spec={"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]},
    )
    plan = decided(job(labels=PREBUILT), mine, known={"workload": {"mine": mine}})
    assert condition_of(written(mine, plan), "Finished") == (
        "True",
        "OutOfSync",
        "The prebuilt workload is out of sync with its user job",
    )
