"""Workloads that a StatefulSet adopts, also under the older form of their name."""

from typing import Any

import orjson
import pytest

from admitq.controllers.plan import Create, RecordEvent
from admitq.controllers.serving.controller import ServingController
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import KINDS, NAMES, admitted, workload
from tests.unit.controllers.serving.objects import (
    NAME,
    SERVING,
    held_template,
    of_set,
    only_patch,
    plan_for,
    pod,
    stateful_set,
    without_uid,
)
from tests.unit.controllers.world import World


def older_workload(*owners: dict[str, Any], annotations: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return a Workload under the older name, as another release created it."""
    obj = without_uid(stateful_set())
    changes = {"annotations": annotations or {}, "ownerReferences": list(owners), **metadata}
    return {**obj, "metadata": {**obj["metadata"], **changes}}


OF_POD = {"apiVersion": "v1", "kind": "Pod", "name": "s-0", "uid": "uid-s-0"}

OF_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}


@pytest.mark.parametrize("owners", [[], [OF_POD]], ids=["no owner", "owned by pods"])
@pytest.mark.parametrize("has_annotation", [True, False])
def test_b11_workload_of_a_stateful_set_under_its_older_name_is_adopted(
    owners: Any, has_annotation: bool
) -> None:
    job = stateful_set()
    existing = older_workload(*owners, annotations={NAMES.job_owner_name: "s"} if has_annotation else {})
    assert only_patch(plan_for(job, existing, pods=[pod()]))["metadata"] == {
        "annotations": {
            NAMES.is_group_workload: "true",
            NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet",
            NAMES.job_owner_name: "s",
        },
        "labels": {NAMES.job_uid: "uid-s"},
        "ownerReferences": [*owners, OF_SET],
    }


@pytest.mark.parametrize(
    "existing",
    [
        older_workload({**OF_POD, "controller": True}),
        older_workload({**OF_SET, "uid": "former"}),
        older_workload({**OF_POD, "uid": "uid-of-another"}),
        older_workload(labels={NAMES.job_uid: "uid-of-another"}),
        older_workload(deletionTimestamp="2030-01-01T00:00:00Z"),
    ],
    ids=["controlled", "former StatefulSet", "pod of another", "job of another", "deleted"],
)
def test_b11_workload_under_the_older_name_that_belongs_elsewhere_is_not_adopted(
    existing: dict[str, Any],
) -> None:
    plan = plan_for(stateful_set(), existing)
    [created] = [action.obj for action in plan.actions if isinstance(action, Create)]
    assert created["metadata"]["name"] == NAME


def with_podset(existing: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the Workload with changed fields of its one podset."""
    [pod_set] = existing["spec"]["podSets"]
    return with_value(existing, ("spec", "podSets"), [{**pod_set, **changes}])


LARGER = with_value(
    held_template("statefulset"),
    ("spec", "containers"),
    [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "9"}}}],
)

DIFFERENT = {
    "more pods": {"count": 30},
    "fewer pods": {"count": 1},
    "larger pods": {"template": LARGER},
    "another role": {"name": "other"},
}

NOT_ADOPTED = "is not adopted: its podsets differ from those of the StatefulSet"


@pytest.mark.parametrize("has_annotation", [True, False], ids=["annotated", "without annotation"])
@pytest.mark.parametrize("changes", DIFFERENT.values(), ids=list(DIFFERENT))
def test_b11_workload_under_the_older_name_with_other_podsets_is_not_adopted(
    changes: Any, has_annotation: bool
) -> None:
    existing = with_podset(older_workload(OF_POD), **changes)
    plan = plan_for(stateful_set(), *([existing] if has_annotation else []), pods=[pod()], others=[existing])
    [refusal, event] = [action for action in plan.actions if isinstance(action, RecordEvent)]
    note = f"Workload {existing['metadata']['name']} {NOT_ADOPTED}"
    assert (refusal.reason, refusal.note) == ("ErrWorkloadCompose", note)
    assert event.reason == "CreatedWorkload"
    [created] = [action for action in plan.actions if not isinstance(action, RecordEvent)]
    assert isinstance(created, Create)
    assert created.obj["metadata"]["name"] == NAME


def test_workload_under_older_name_is_adopted_with_any_pod_count_when_set_is_on_hold() -> None:
    existing = older_workload(annotations={NAMES.job_owner_name: "s"})
    patch = only_patch(plan_for(stateful_set(0), existing))
    assert patch["metadata"]["ownerReferences"] == [OF_SET]


@pytest.mark.parametrize("has_annotation", [True, False], ids=["annotated", "without annotation"])
def test_unowned_workload_with_name_of_set_and_other_podsets_is_reported_and_unchanged(
    has_annotation: bool,
) -> None:
    existing = with_value(with_podset(older_workload(), count=30), ("metadata", "name"), NAME)
    plan = plan_for(stateful_set(), *([existing] if has_annotation else []), pods=[pod()], others=[existing])
    [event] = plan.actions
    assert isinstance(event, RecordEvent)
    assert (event.reason, event.note, plan.requeue_after) == (
        "ErrWorkloadCompose",
        f"Workload {NAME} {NOT_ADOPTED}",
        5.0,
    )


def test_workload_without_owner_but_with_uid_label_of_stateful_set_is_adopted_again() -> None:
    existing = with_podset(older_workload(labels={NAMES.job_uid: "uid-s"}), count=30)
    owners = only_patch(plan_for(stateful_set(), others=[existing]))["metadata"]["ownerReferences"]
    assert owners == [OF_SET]


@pytest.mark.parametrize("annotations", [{}, {NAMES.is_group_workload: "true"}])
def test_e_workload_of_stateful_set_gets_its_lost_annotations_again(annotations: Any) -> None:
    job = stateful_set()
    created = with_value(of_set(admitted(), job), ("metadata", "annotations"), annotations)
    metadata = only_patch(plan_for(job, others=[created], pods=[pod()]))["metadata"]
    assert metadata["annotations"] == {
        NAMES.is_group_workload: "true",
        NAMES.job_owner_gvk: "apps/v1, Kind=StatefulSet",
        NAMES.job_owner_name: "s",
    }
    assert metadata["ownerReferences"] == created["metadata"]["ownerReferences"]


def test_e_stateful_set_reports_and_retries_while_its_name_belongs_to_another_workload() -> None:
    job = stateful_set()
    foreign = with_value(workload(), ("metadata", "name"), NAME)
    plan = plan_for(job, others=[foreign], pods=[pod()])
    [event] = plan.actions
    assert isinstance(event, RecordEvent)
    note = f"Workload {NAME} exists already and belongs to something else"
    assert (event.reason, event.note, plan.requeue_after) == ("ErrWorkloadCompose", note, 5.0)


def test_e_stateful_set_is_reconciled_when_its_workload_loses_its_annotations() -> None:
    job = stateful_set()
    world = World(SERVING)
    assert STATEFUL_SET.serving is not None
    [watch] = (
        watch
        for watch in ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving)
        .when_served()
        .spec.watches
        if watch.resource == KINDS.workloads
    )
    created = of_set(workload(), job)
    without_annotations = with_value(created, ("metadata", "annotations"), {})
    change = ObjectChange("modified", Key("ns", NAME), without_annotations, orjson.dumps(created))
    assert set(watch.keys(change)) == {Key("ns", "s")}
