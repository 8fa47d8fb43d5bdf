"""Jobs that name a Workload which was created before them."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Create, Patch
from tests.unit.controllers.builders import (
    ADMISSION,
    FINISHED,
    NAMES,
    OWNER,
    RESERVED,
    TEMPLATE,
    condition_of,
    job,
    workload,
)
from tests.unit.controllers.job.decisions import RUNNING, actions_of, apply_plan, events_of, plan_for

PREBUILT = {NAMES.queue_name: "lq", NAMES.prebuilt_workload_name: "prebuilt"}


def test_prebuilt_workload_without_owner_is_adopted_by_job_that_names_it() -> None:
    prebuilt = workload(name="prebuilt", owner=None)
    adopted = apply_plan(prebuilt, plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": prebuilt}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]
    assert adopted["metadata"]["labels"] == {NAMES.job_uid: "uid-j"}


def test_prebuilt_workload_that_the_job_owns_without_control_is_adopted_with_one_reference() -> None:
    plain_reference = {key: value for key, value in OWNER.items() if key != "controller"}
    prebuilt = workload(name="prebuilt", metadata={"ownerReferences": [plain_reference]})
    adopted = apply_plan(prebuilt, plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": prebuilt}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]


FOREIGN_OWNER: Any = {"apiVersion": "v1", "kind": "Pod", "name": "foreign-0", "uid": "other"}

FOREIGN_WORKLOAD = ("ErrWorkloadCompose", "Workload prebuilt exists already and belongs to something else")

WITH_NINE_PODS: Any = {"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]}


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": [{**OWNER, "uid": "other"}]},
        {"ownerReferences": [FOREIGN_OWNER]},
        {"ownerReferences": [FOREIGN_OWNER, {**OWNER, "controller": False}]},
        {"labels": {NAMES.job_uid: "former"}},
        {"annotations": {NAMES.is_group_workload: "true"}},
        {"annotations": {NAMES.job_owner_name: "db"}},
    ],
)
def test_prebuilt_workload_that_belongs_to_another_object_is_reported_and_not_adopted(metadata: Any) -> None:
    foreign = workload(RESERVED, name="prebuilt", owner=None, metadata=metadata, admission=ADMISSION)
    plan = plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": foreign}})
    assert (actions_of(plan), events_of(plan)) == ([], [FOREIGN_WORKLOAD])


def test_finished_prebuilt_workload_of_another_job_keeps_its_finalizer() -> None:
    foreign = workload(FINISHED, name="prebuilt", owner=None, metadata={"ownerReferences": [FOREIGN_OWNER]})
    plan = plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": foreign}})
    assert (actions_of(plan), events_of(plan)) == ([], [FOREIGN_WORKLOAD])


@pytest.mark.parametrize("spec", [WITH_NINE_PODS, {"maximumExecutionTimeSeconds": 5}])
def test_prebuilt_workload_without_owner_that_differs_from_job_is_reported_and_not_adopted(
    spec: Any,
) -> None:
    unowned = workload(name="prebuilt", owner=None, spec=spec)
    plan = plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": unowned}})
    note = "The prebuilt workload is out of sync with its user job"
    assert (actions_of(plan), events_of(plan)) == ([], [("ErrWorkloadCompose", note)])


def test_running_job_that_names_workload_of_another_job_is_stopped() -> None:
    foreign = workload(RESERVED, name="prebuilt", owner={**OWNER, "uid": "other"}, admission=ADMISSION)
    plan = plan_for(job(RUNNING, labels=PREBUILT), known={"workload": {"prebuilt": foreign}})
    assert (actions_of(plan), events_of(plan)) == (["patch Job"], [("Stopped", "missing workload")])


def test_prebuilt_workload_that_lost_its_references_is_adopted_by_the_job_of_its_label() -> None:
    prebuilt = workload(
        name="prebuilt", owner=None, spec=WITH_NINE_PODS, metadata={"labels": {NAMES.job_uid: "uid-j"}}
    )
    adopted = apply_plan(prebuilt, plan_for(job(labels=PREBUILT), known={"workload": {"prebuilt": prebuilt}}))
    assert adopted["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize("labels", [{}, {NAMES.job_uid: "former"}])
def test_prebuilt_workload_that_another_program_gave_to_the_job_gets_the_uid_of_the_job(
    labels: dict[str, str],
) -> None:
    prebuilt = workload(name="prebuilt", metadata={"labels": {"a": "b", **labels}})
    plan = plan_for(job(labels=PREBUILT), prebuilt, known={"workload": {"prebuilt": prebuilt}})
    adopted = apply_plan(prebuilt, plan)
    assert adopted["metadata"]["labels"] == {"a": "b", NAMES.job_uid: "uid-j"}
    assert adopted["metadata"]["ownerReferences"] == prebuilt["metadata"]["ownerReferences"]


@pytest.mark.parametrize(("by_annotation", "name"), [(True, "annotated"), (False, "prebuilt")])
def test_feature_gate_decides_whether_annotation_or_label_names_workload(
    by_annotation: bool, name: str
) -> None:
    known = {"workload": {name_: workload(name=name_, owner=None) for name_ in ("annotated", "prebuilt")}}
    annotations = {NAMES.prebuilt_workload_name: "annotated"}
    settings = {"names_by_annotation": by_annotation}
    (patch,) = plan_for(job(labels=PREBUILT, annotations=annotations), known=known, settings=settings).actions
    assert isinstance(patch, Patch)
    assert patch.obj["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("by_annotation", "name", "adopted"),
    [(True, "prebuilt", True), (False, "prebuilt", False), (False, "w" * 64, True)],
)
def test_b11_prebuilt_annotation_is_ignored_where_labels_identify_workloads(
    by_annotation: bool, name: str, adopted: bool
) -> None:
    known = {"workload": {name: workload(name=name, owner=None)}}
    annotations = {NAMES.prebuilt_workload_name: name}
    plan = plan_for(
        job(annotations=annotations), known=known, settings={"names_by_annotation": by_annotation}
    )
    patched = [action.obj["metadata"]["name"] for action in plan.actions if isinstance(action, Patch)]
    created = [action for action in plan.actions if isinstance(action, Create)]
    assert (patched, bool(created)) == (([name], False) if adopted else ([], True))


def test_running_job_without_its_prebuilt_workload_is_stopped() -> None:
    plan = plan_for(job(RUNNING, labels=PREBUILT))
    assert events_of(plan) == [("Stopped", "missing workload")]
    assert plan_for(job(labels=PREBUILT)) == ActionPlan()


def test_adopted_prebuilt_workload_that_differs_from_job_is_finished() -> None:
    prebuilt = workload(
        name="prebuilt",
        metadata={"labels": {NAMES.job_uid: "uid-j"}},
        spec={"podSets": [{"name": "main", "count": 9, "template": TEMPLATE}]},
    )
    plan = plan_for(job(labels=PREBUILT), prebuilt, known={"workload": {"prebuilt": prebuilt}})
    assert condition_of(apply_plan(prebuilt, plan), "Finished") == (
        "True",
        "OutOfSync",
        "The prebuilt workload is out of sync with its user job",
    )
