"""Creation and deletion of ProvisioningRequests and pod templates."""

from typing import Any

import pytest

from admitq.controllers.plan import ActionPlan, Create, Delete, Patch
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS, request_name, template_name
from admitq.controllers.provisioning.steps import decide_provisioning
from admitq.runtime.resources import POD_TEMPLATES
from tests.unit.controllers.builders import FINISHED, NAMES, admitted, reserved, timestamp, workload
from tests.unit.controllers.provisioning.cases import (
    DELETED,
    EVICTED,
    MINE,
    NAME,
    actions_of,
    assigned,
    case,
    check,
    check_after,
    config,
    container,
    events_of,
    pod_set,
    request,
    request_condition,
)


def template(name: str = template_name(NAME, "main"), owner: Any = MINE, **metadata: Any) -> dict[str, Any]:
    labels = {NAMES.managed: "true"}
    identity = {"namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return {"metadata": {"name": name, "ownerReferences": [owner], **identity, **metadata}}


def test_templates_are_created_before_request_which_then_owns_them() -> None:
    annotations = {f"{NAMES.provisioning_annotation_prefix}size": "big", "other": "x"}
    obj = reserved(admissionChecks=[check()], metadata={"annotations": annotations})
    config_ = config(parameters={"a": "1"})
    [created] = decide_provisioning(case(obj, config=config_)).actions
    assert isinstance(created, Create)
    assert created.resource == POD_TEMPLATES
    owner = {**MINE, "apiVersion": NAMES.api_version}
    assert created.obj["metadata"] == {
        "name": f"ppt-{NAME}-main",
        "namespace": "ns",
        "labels": {NAMES.managed: "true"},
        "ownerReferences": [owner],
    }
    plan = decide_provisioning(case(obj, config=config_, templates=(template(),)))
    [created] = actions_of(plan, Create)
    assert created.resource == PROVISIONING_REQUESTS
    assert created.obj == {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": NAME,
            "namespace": "ns",
            "labels": {NAMES.managed: "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            "provisioningClassName": "class",
            "parameters": {"a": "1", "size": "big"},
            "podSets": [{"podTemplateRef": {"name": f"ppt-{NAME}-main"}, "count": 3}],
        },
    }
    assert events_of(plan) == [
        ("Normal", "ProvisioningRequestCreated", f'Created ProvisioningRequest: "{NAME}"'),
    ]
    existing = request(spec={"parameters": {"a": "1", "size": "big"}})
    [patch] = decide_provisioning(case(obj, existing, config=config_, templates=(template(),))).actions
    assert isinstance(patch, Patch)
    [reference] = patch.steps[0].patch["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("ProvisioningRequest", f"uid-{NAME}")
    assert decide_provisioning(case(obj, existing, config=config_)) == ActionPlan()


def reset(state: str, since: float) -> dict[str, Any]:
    """Return the check as an eviction resets it."""
    message = f"Reset to Pending after eviction. Previously: {state}"
    return check(message=message, lastTransitionTime=timestamp(since))


@pytest.mark.parametrize(
    ("listed", "request_", "attempt"),
    [
        (check(), None, 1),
        (check(retryCount=2), None, 3),
        (check(retryCount=1), request(request_condition("Failed")), 2),
        (check(retryCount=1), request(request_condition("BookingExpired")), 2),
        # A check that was listed again, or was reset by other means, has lost its retry count.
        (check(lastTransitionTime=timestamp(61)), request(request_condition("Failed")), 2),
        (check(lastTransitionTime=timestamp(61)), request(request_condition("Failed"), attempt=4), 5),
        (reset("Rejected", since=50), request(request_condition("Failed"), attempt=4), 5),
        (reset("Ready", since=45), request(request_condition("BookingExpired")), 2),
    ],
)
def test_request_name_counts_attempts_of_check(
    listed: dict[str, Any], request_: dict[str, Any] | None, attempt: int
) -> None:
    requests = () if request_ is None else (request_,)
    [created] = actions_of(decide_provisioning(case(reserved(admissionChecks=[listed]), *requests)), Create)
    assert created.obj["metadata"]["name"] == f"ppt-job-j-1-c-{attempt}-main"


def test_pending_request_is_not_created_twice() -> None:
    assert decide_provisioning(case(reserved(admissionChecks=[check()]), request())) == ActionPlan()


@pytest.mark.parametrize("owner", [MINE, {**MINE, "uid": "uid-former"}])
def test_request_is_recreated_only_after_former_request_is_gone(owner: dict[str, Any]) -> None:
    deleted = request(metadata={**DELETED, "ownerReferences": [owner]})
    mine = (deleted,) if owner is MINE else ()
    assert (
        decide_provisioning(case(reserved(admissionChecks=[check()]), *mine, foreign=(deleted,)))
        == ActionPlan()
    )


OTHER_OWNER = {"kind": "Thing", "name": "t", "uid": "uid-t", "controller": True}


@pytest.mark.parametrize(
    ("foreign", "error"),
    [
        (
            request(metadata={"ownerReferences": [OTHER_OWNER]}),
            (
                f'Error creating ProvisioningRequest "{NAME}":'
                f' provisioningrequests.autoscaling.x-k8s.io "{NAME}" already exists'
            ),
        ),
        (
            template(owner=OTHER_OWNER, labels={}),
            f'Error creating PodTemplate "ppt-{NAME}-main": podtemplates "ppt-{NAME}-main" already exists',
        ),
    ],
)
def test_name_taken_by_foreign_object_is_reported_and_retried(foreign: dict[str, Any], error: str) -> None:
    obj = reserved(admissionChecks=[check()])
    plan = decide_provisioning(case(obj, foreign=(foreign,)))
    assert events_of(plan) == [("Warning", "FailedCreate", error)]
    assert check_after(case(obj, foreign=(foreign,)))[0] == check(message=error)
    assert plan.requeue_after


def test_template_owned_by_former_request_is_deleted_before_recreation() -> None:
    former = template(owner={**MINE, "kind": "ProvisioningRequest", "uid": "uid-former"})
    plan = decide_provisioning(case(reserved(admissionChecks=[check()]), foreign=(former,)))
    assert plan.actions == (Delete(POD_TEMPLATES, former),)


def test_request_is_retried_while_foreign_template_is_being_deleted() -> None:
    deleted = template(owner=OTHER_OWNER, **DELETED)
    plan = decide_provisioning(case(reserved(admissionChecks=[check()]), foreign=(deleted,)))
    assert plan == ActionPlan(requeue_after=1.0)


def test_deleted_flavor_is_reported_and_retried() -> None:
    obj = reserved(admissionChecks=[check()], admission=assigned(("main", 3), flavor="gone"))
    plan = decide_provisioning(case(obj))
    error = f'Error creating ProvisioningRequest "{NAME}": ResourceFlavor gone not found'
    assert events_of(plan) == [("Warning", "FailedCreate", error)]
    assert check_after(case(obj))[0] == check(message=error)
    assert plan.requeue_after == 10.0


def test_podset_that_conflicts_with_its_flavor_is_reported() -> None:
    spec = {"podSets": [pod_set("main", container(), nodeSelector={"pool": "mine"}, count=3)]}
    plan = decide_provisioning(case(reserved(admissionChecks=[check()], spec=spec)))
    [(kind, reason, note)] = events_of(plan)
    assert (kind, reason) == ("Warning", "FailedCreate")
    assert note.startswith(f'Error creating ProvisioningRequest "{NAME}": nodeSelector of main: pool')


@pytest.mark.parametrize(
    ("obj", "cleans_up", "deleted"),
    [
        (admitted(FINISHED, admissionChecks=[check("Ready")]), False, [NAME, f"ppt-{NAME}-main"]),
        (reserved(EVICTED, admissionChecks=[check()]), True, [NAME, f"ppt-{NAME}-main"]),
        (workload(EVICTED, admissionChecks=[check()]), True, [NAME, f"ppt-{NAME}-main"]),
        (reserved(EVICTED, admissionChecks=[check()]), False, [f"ppt-{NAME}-main"]),
    ],
    ids=["finished", "evicted", "evicted-and-pending", "evicted-without-cleanup"],
)
def test_request_is_deleted_when_workload_needs_no_nodes(
    obj: dict[str, Any], cleans_up: bool, deleted: list[str]
) -> None:
    plan = decide_provisioning(case(obj, request(), templates=(template(),), cleans_up=cleans_up))
    assert [deletion.obj["metadata"]["name"] for deletion in actions_of(plan, Delete)] == deleted
    already_deleted = case(
        obj, request(metadata=DELETED), templates=(template(**DELETED),), cleans_up=cleans_up
    )
    assert decide_provisioning(already_deleted) == ActionPlan()


@pytest.mark.parametrize(
    ("config_", "requests", "deleted"),
    [
        (config(), [request(), request(attempt=2)], [request_name("job-j-1", "c", 1)]),
        (config(provisioningClassName="new"), [request()], [NAME]),
        (config(parameters={"a": "1"}), [request(spec={"parameters": {"a": "2"}})], [NAME]),
        (config(managedResources=["example.com/gpu"]), [request()], [NAME]),
        (config(), [request(metadata={"name": "job-j-1-other-1"})], ["job-j-1-other-1"]),
    ],
    ids=["older", "of-another-class", "of-other-parameters", "not-needed", "of-a-removed-check"],
)
def test_only_the_latest_request_in_sync_is_kept(
    config_: dict[str, Any], requests: Any, deleted: list[str]
) -> None:
    plan = decide_provisioning(case(reserved(admissionChecks=[check("Ready")]), *requests, config=config_))
    assert [deletion.obj["metadata"]["name"] for deletion in actions_of(plan, Delete)] == deleted


def test_request_with_parameter_overridden_by_annotation_is_in_sync() -> None:
    annotations = {f"{NAMES.provisioning_annotation_prefix}a": "mine"}
    obj = reserved(admissionChecks=[check()], metadata={"annotations": annotations})
    request_ = request(spec={"parameters": {"a": "mine", "more": "x"}})
    assert decide_provisioning(case(obj, request_, config=config(parameters={"a": "1"}))) == ActionPlan()
