"""What is asked of an autoscaler for a Workload, and what its answer makes of the check."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from admitq.controllers.plan import Create, Delete, Patch, Plan, Tell
from admitq.controllers.provisioning.controller import activity
from admitq.controllers.provisioning.decide import Case, decide
from admitq.controllers.provisioning.requests import (
    PROVISIONING_REQUESTS,
    asked_pod_sets,
    attempt_of,
    pod_set_updates,
    request_name,
    template_name,
)
from admitq.controllers.provisioning.verdicts import retry_after_seconds
from admitq.integrations.paths import without_value
from admitq.runtime.resources import POD_TEMPLATES
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    Object,
    admitted,
    after,
    at,
    condition,
    reserved,
    time,
    workload,
)

NAME = "job-j-1-c-1"
FLAVOR: Object = {
    "spec": {"nodeLabels": {"pool": "f"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
}
FLAVORS = {"f": FLAVOR, "g": {"spec": {"nodeLabels": {"pool": "g"}}}}
EVICTED = condition("Evicted", True, "Preempted")
MINE = {"kind": "Workload", "name": "job-j-1", "uid": "uid-w", "controller": True}


def check(state: str = "Pending", **fields: Any) -> Object:
    return {"name": "c", "state": state, "lastTransitionTime": time(0), "message": "", **fields}


def config(**spec: Any) -> Object:
    return {"spec": {"provisioningClassName": "class", **spec}}


def request(*conditions: Object, attempt: int = 1, **fields: Any) -> Object:
    """A ProvisioningRequest of the Workload for the check ``c``."""
    name = request_name("job-j-1", "c", attempt)
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [MINE]}
    spec = {
        "provisioningClassName": "class",
        "parameters": {},
        "podSets": [{"podTemplateRef": {"name": template_name(name, "main")}, "count": 3}],
        **fields.pop("spec", {}),
    }
    metadata |= fields.pop("metadata", {})
    return {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **fields}}


def test_e_nodes_are_asked_for_all_pods_of_an_assignment_without_count() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    counted = reserved()
    [asked] = asked_pod_sets(without_value(counted, path), config(), FLAVORS.get)
    assert asked.count == counted["spec"]["podSets"][0]["count"]


def template(name: str = template_name(NAME, "main"), owner: Any = MINE, **metadata: Any) -> Object:
    labels = {NAMES.managed: "true"}
    identity = {"namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return {"metadata": {"name": name, "ownerReferences": [owner], **identity, **metadata}}


def case(
    obj: Object,
    *requests: Object,
    templates: tuple[Object, ...] = (),
    taken: tuple[Object, ...] = (),
    config: Object | None = config(),  # noqa: B008 never changed
    **fields: Any,
) -> Case:
    """A case; ``taken`` are requests and templates that others control."""
    everybody = {one["metadata"]["name"]: one for one in (*requests, *templates, *taken)}
    made = Case(
        workload=obj,
        configs={"c": config},
        requests=requests,
        templates=templates,
        names=NAMES,
        kinds=KINDS,
        request_named=everybody.get,
        template_named=everybody.get,
        flavors=FLAVORS.get,
        cleans_up=True,
        now=at(100),
    )
    return replace(made, **fields)


def of(plan: Plan, kind: type[Any]) -> list[Any]:
    return [action for action in plan.actions if isinstance(action, kind)]


def told(plan: Plan) -> list[tuple[str, str, str]]:
    return [(one.type, one.reason, one.note) for one in of(plan, Tell)]


def state_after(case: Case) -> tuple[Object, list[str]]:
    """What a decision says of the check, and the notes that tell of it."""
    plan = decide(case)
    result = case.workload
    for patch in of(plan, Patch):
        for step in patch.steps:
            assert step.subresource == "status"
            result = after(result, {"status": step.patch["status"]})
    [found] = result["status"]["admissionChecks"]
    return found, [one.note for one in of(plan, Tell)]


# --- the table ------------------------------------------------------------------------------------


def says(type_: str, status: bool = True, message: str = "m", since: float = 50) -> Object:
    return condition(type_, status, "R", message, since)


RETRY_60 = {"requeueAfterSeconds": 60}


@pytest.mark.parametrize(
    ("obj", "asked", "expected"),
    [
        pytest.param(
            reserved(admissionChecks=[check()]),
            request(says("Failed"), says("Provisioned")),
            check("Retry", message="Retrying after failure: m", **RETRY_60),
            id="failed",
        ),
        pytest.param(
            reserved(admissionChecks=[check(lastTransitionTime=time(60))]),
            request(says("Failed")),
            check(
                "Retry",
                message="Retrying after failure: m",
                lastTransitionTime=time(60),
                **RETRY_60,
            ),
            id="failed-by-a-clock-that-is-late",
        ),
        pytest.param(
            reserved(admissionChecks=[check(lastTransitionTime=time(99))]),
            request({**says("Failed"), "lastTransitionTime": "soon"}),
            check(
                "Retry",
                message="Retrying after failure: m",
                lastTransitionTime=time(99),
                **RETRY_60,
            ),
            id="failed-at-a-time-that-cannot-be-read",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=1)]),
            request(says("Failed"), attempt=2),
            check("Retry", message="Retrying after failure: m", retryCount=1, requeueAfterSeconds=120),
            id="failed-again",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=3)]),
            request(says("Failed"), attempt=4),
            check("Rejected", message="m", retryCount=3),
            id="failed-too-often",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready")]),
            request(says("Failed")),
            check("Retry", message="Retrying after failure: m", **RETRY_60),
            id="failed-after-all",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")]),
            request(says("CapacityRevoked"), says("Provisioned")),
            check("Rejected", message="m"),
            id="revoked-while-it-runs",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")], spec={"active": False}),
            request(says("CapacityRevoked"), says("Provisioned")),
            check("Ready"),
            id="revoked-when-it-is-deactivated-anyway",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Rejected", message="m")], spec={"active": False}),
            request(says("CapacityRevoked"), says("Provisioned")),
            check("Rejected", message="m"),
            id="revoked-and-deactivated-for-that",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready")]),
            request(says("BookingExpired"), says("Provisioned")),
            check("Retry", message="Retrying after booking expired: m", **RETRY_60),
            id="expired-before-it-was-used",
        ),
        pytest.param(
            reserved(admissionChecks=[check(retryCount=3)]),
            request(says("BookingExpired"), attempt=4),
            check("Rejected", message="m", retryCount=3),
            id="expired-too-often",
        ),
        pytest.param(
            admitted(admissionChecks=[check("Ready")]),
            request(says("BookingExpired"), says("Provisioned")),
            check("Ready"),
            id="expired-while-it-runs",
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready", message="kept")]),
            request(says("Provisioned", message="another")),
            check("Ready", message="kept"),
            id="provisioned-said-before",
        ),
        pytest.param(
            reserved(admissionChecks=[check()]),
            request(says("Accepted"), says("Provisioned", False, "in 5 minutes")),
            check(message="in 5 minutes"),
            id="accepted",
        ),
        pytest.param(
            reserved(admissionChecks=[check(message="Reset to Pending after eviction.")]),
            request(says("Accepted")),
            check(),
            id="accepted-without-a-word-when",
        ),
        pytest.param(
            reserved(admissionChecks=[check(message="old")]), request(), check(), id="nothing-said-yet"
        ),
        pytest.param(
            reserved(admissionChecks=[check("Ready", message="kept")]),
            request(),
            check("Ready", message="kept"),
            id="ready-is-sticky",
        ),
    ],
)
def test_the_state_of_a_check_follows_its_request(obj: Object, asked: Object, expected: Object) -> None:
    state, notes = state_after(case(obj, asked))
    assert state == expected
    before = obj["status"]["admissionChecks"][0]["state"]
    message = f" with message: {expected['message']}" if expected["message"] else ""
    change = f"Admission check c updated state from {before} to {expected['state']}{message}"
    assert notes == ([change] if before != expected["state"] else [])


def test_provisioned_nodes_make_the_check_ready_and_pods_run_on_them() -> None:
    wanted = config(
        podSetUpdates={
            "nodeSelector": [
                {"key": "pool", "valueFromProvisioningClassDetail": "Pool"},
                {"key": "zone", "valueFromProvisioningClassDetail": "Missing"},
            ]
        }
    )
    answered = request(says("Provisioned", message="there"), provisioningClassDetails={"Pool": "p-1"})
    obj = reserved(admissionChecks=[check(retryCount=1)])
    state, notes = state_after(case(obj, answered, config=wanted))
    assert state == check(
        "Ready",
        message="there",
        retryCount=1,
        podSetUpdates=[
            {
                "name": "main",
                "annotations": {
                    "autoscaling.x-k8s.io/consume-provisioning-request": NAME,
                    "autoscaling.x-k8s.io/provisioning-class-name": "class",
                },
                "nodeSelector": {"pool": "p-1"},
            }
        ],
    )
    assert notes == ["Admission check c updated state from Pending to Ready with message: there"]


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("zone", "projects/p/zones/z", "a valid label must"),
        ("zone", "z" * 64, "must be no more than 63 characters"),
        (f"{'k' * 64}", "z", "name part must be no more than 63 characters"),
    ],
)
def test_check_waits_while_a_detail_of_the_answer_cannot_be_a_node_selector(
    key: str, value: str, wrong: str
) -> None:
    rule = {"key": key, "valueFromProvisioningClassDetail": "Zone"}
    wanted = config(podSetUpdates={"nodeSelector": [rule]})
    answered = request(says("Provisioned", message="there"), provisioningClassDetails={"Zone": value})
    obj = reserved(admissionChecks=[check()])
    state, notes = state_after(case(obj, answered, config=wanted))
    assert (state["state"], notes) == ("Pending", [])
    assert state["message"].startswith(f"provisioningClassDetails[Zone] cannot be the node selector {key}: ")
    assert wrong in state["message"]
    assert "podSetUpdates" not in state
    told = reserved(admissionChecks=[state])
    assert decide(case(told, answered, config=wanted)).actions == ()
    corrected, _ = state_after(case(told, answered, config=config()))
    assert corrected["state"] == "Ready"


@pytest.mark.parametrize("state", ["Pending", "Ready", "Retry", "Rejected"])
def test_c17_check_without_its_config_deletes_its_requests(state: str) -> None:
    obj = reserved(admissionChecks=[check(state)])
    plan = decide(case(obj, request(), request(attempt=2), config=None))
    assert [one.obj["metadata"]["name"] for one in of(plan, Delete)] == [
        request_name("job-j-1", "c", attempt) for attempt in (1, 2)
    ]
    assert decide(case(obj, request(metadata=GOING), config=None)) == decide(case(obj, config=None))


def test_c17_check_without_its_config_is_pending_with_a_message_once_its_requests_are_gone() -> None:
    obj = reserved(admissionChecks=[check()])
    assert state_after(case(obj, config=None))[0] == check(message="the check is not active")


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_a_check_without_its_config_is_pending(state: str) -> None:
    found, notes = state_after(case(reserved(admissionChecks=[check(state)]), config=None))
    assert (found["state"], notes) == (
        "Pending",
        [f"Admission check c updated state from {state} to Pending with message: the check is not active"],
    )


@pytest.mark.parametrize(
    "obj",
    [
        reserved(admissionChecks=[check("Ready", message="kept")]),
        workload(admissionChecks=[check()]),
        reserved(admissionChecks=[check("Retry")]),
        reserved(admissionChecks=[check("Rejected")]),
        reserved(EVICTED, admissionChecks=[check()]),
    ],
    ids=["ready", "without-quota", "to-be-retried", "rejected", "evicted"],
)
def test_nothing_is_asked_for_now(obj: Object) -> None:
    assert decide(case(obj)) == Plan()


# --- what is needed -------------------------------------------------------------------------------


def container(requests: Any = None, limits: Any = None, **fields: Any) -> Object:
    resources = {"requests": requests, "limits": limits}
    return {"name": "c", "resources": {key: value for key, value in resources.items() if value}, **fields}


def pod_set(name: str, *containers: Object, count: int = 1, **spec: Any) -> Object:
    return {"name": name, "count": count, "template": {"spec": {"containers": list(containers), **spec}}}


def assigned(*counts: tuple[str, int], flavor: str = "f", **parts: Any) -> Object:
    """The admission that assigns a flavor and so many pods to podsets."""
    assignments = [{"name": name, "count": count, "flavors": {"cpu": flavor}} for name, count in counts]
    return {"clusterQueue": "cq", "podSetAssignments": assignments, **parts}


GPU = {"example.com/gpu": "1"}


@pytest.mark.parametrize(
    ("pod_sets", "counts", "managed", "asked"),
    [
        ([pod_set("a", container({"cpu": "1"}))], [("a", 1)], [], ["a"]),
        ([pod_set("a", container({"cpu": "1"}))], [("a", 1)], ["example.com/gpu"], []),
        ([pod_set("a", container({"cpu": "1"}, GPU))], [("a", 1)], ["example.com/gpu"], ["a"]),
        ([pod_set("a", container(GPU)), pod_set("b", container())], [("a", 1), ("b", 1)], [*GPU], ["a"]),
        ([pod_set("a", initContainers=[container(GPU)])], [("a", 1)], ["example.com/gpu"], ["a"]),
        ([pod_set("a", container(), count=0)], [("a", 0)], [], []),
        ([pod_set("a", container(), count=2)], [("a", 0)], [], []),
    ],
)
def test_only_podsets_that_need_nodes_are_asked_for(
    pod_sets: Any, counts: Any, managed: Any, asked: list[str]
) -> None:
    obj = reserved(
        admissionChecks=[check("Rejected")], admission=assigned(*counts), spec={"podSets": pod_sets}
    )
    wanted = config(managedResources=managed)
    assert [one.name for one in asked_pod_sets(obj, wanted, FLAVORS.get)] == asked
    if not asked:
        state, notes = state_after(case(obj, config=wanted))
        assert (state["state"], state["message"]) == ("Ready", "the provisioning request is not needed")
        assert "podSetUpdates" not in state
        assert notes == [
            (
                "Admission check c updated state from Rejected to Ready"
                " with message: the provisioning request is not needed"
            )
        ]


def test_a_template_asks_for_what_will_run() -> None:
    limited = container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})
    obj = reserved(
        admission=assigned(("main", 2)),
        spec={"podSets": [pod_set("main", limited, initContainers=[container(limits=GPU)], count=3)]},
    )
    [asked] = asked_pod_sets(obj, config(), FLAVORS.get)
    spec = asked.template["spec"]
    assert asked.count == 2
    assert spec["containers"] == [
        container({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
    ]
    assert spec["initContainers"] == [container(GPU, GPU)]
    assert spec["nodeSelector"] == {"pool": "f"}
    assert spec["tolerations"] == [{"key": "pool", "operator": "Exists"}]


SAME = pod_set("a", container({"cpu": "1"}, image="one"))
OTHER_IMAGE = pod_set("b", container({"cpu": "1000m"}, image="other"))
OTHER_SIZE = pod_set("c", container({"cpu": "2"}, image="one"))
TOLERANT = pod_set("d", container({"cpu": "1"}, image="one"), tolerations=[{"key": "x"}])


@pytest.mark.parametrize(
    ("policy", "pod_sets", "asked"),
    [
        (None, [SAME, {**SAME, "name": "b"}], [("a", 1), ("b", 1)]),
        ("IdenticalPodTemplates", [SAME, {**SAME, "name": "b", "count": 1}], [("a", 2)]),
        ("IdenticalPodTemplates", [SAME, OTHER_IMAGE], [("a", 1), ("b", 1)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, OTHER_IMAGE], [("a", 2)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, OTHER_SIZE], [("a", 1), ("c", 1)]),
        ("IdenticalWorkloadSchedulingRequirements", [SAME, TOLERANT], [("a", 1), ("d", 1)]),
        (
            "IdenticalWorkloadSchedulingRequirements",
            [SAME, OTHER_SIZE, OTHER_IMAGE],
            [("a", 2), ("c", 1)],
        ),
    ],
)
def test_podsets_are_merged_as_the_policy_has_it(policy: str | None, pod_sets: Any, asked: Any) -> None:
    obj = reserved(
        admission=assigned(*((one["name"], one["count"]) for one in pod_sets)), spec={"podSets": pod_sets}
    )
    found = asked_pod_sets(obj, config(podSetMergePolicy=policy), FLAVORS.get)
    assert [(one.name, one.count) for one in found] == asked


def test_podsets_on_different_flavors_are_not_merged() -> None:
    admission = assigned(("a", 1))
    admission["podSetAssignments"] += assigned(("b", 1), flavor="g")["podSetAssignments"]
    obj = reserved(admission=admission, spec={"podSets": [SAME, {**SAME, "name": "b"}]})
    for policy in ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"):
        assert len(asked_pod_sets(obj, config(podSetMergePolicy=policy), FLAVORS.get)) == 2


def test_updates_are_made_for_the_podsets_of_the_request() -> None:
    obj = reserved(spec={"podSets": [SAME, OTHER_IMAGE]})
    listed = [{"podTemplateRef": {"name": template_name(NAME, "b")}, "count": 1}]
    listed.append({"podTemplateRef": {"name": "a-stranger"}, "count": 1})
    updates = pod_set_updates(obj, request(spec={"podSets": listed}), config())
    assert [(one["name"], "nodeSelector" in one) for one in updates] == [("b", False)]


# --- creation -------------------------------------------------------------------------------------


def test_templates_come_first_then_the_request_then_the_templates_are_handed_over() -> None:
    annotations = {f"{NAMES.provisioning_annotation_prefix}size": "big", "other": "x"}
    obj = reserved(admissionChecks=[check()], metadata={"annotations": annotations})
    wanted = config(parameters={"a": "1"})
    [created] = decide(case(obj, config=wanted)).actions
    assert isinstance(created, Create)
    assert created.resource == POD_TEMPLATES
    owner = {**MINE, "apiVersion": NAMES.api_version}
    assert created.obj["metadata"] == {
        "name": f"ppt-{NAME}-main",
        "namespace": "ns",
        "labels": {NAMES.managed: "true"},
        "ownerReferences": [owner],
    }
    plan = decide(case(obj, config=wanted, templates=(template(),)))
    [created] = of(plan, Create)
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
    assert told(plan) == [
        ("Normal", "ProvisioningRequestCreated", f'Created ProvisioningRequest: "{NAME}"'),
    ]
    made = request(spec={"parameters": {"a": "1", "size": "big"}})
    [patch] = decide(case(obj, made, config=wanted, templates=(template(),))).actions
    assert isinstance(patch, Patch)
    [reference] = patch.steps[0].patch["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("ProvisioningRequest", f"uid-{NAME}")
    assert decide(case(obj, made, config=wanted)) == Plan()


def reset(state: str, since: float) -> Object:
    """The check as an eviction leaves it."""
    message = f"Reset to Pending after eviction. Previously: {state}"
    return check(message=message, lastTransitionTime=time(since))


@pytest.mark.parametrize(
    ("listed", "asked", "attempt"),
    [
        (check(), None, 1),
        (check(retryCount=2), None, 3),
        (check(retryCount=1), request(says("Failed")), 2),
        (check(retryCount=1), request(says("BookingExpired")), 2),
        # A check that was listed anew, or was reset otherwise, has forgotten its retries.
        (check(lastTransitionTime=time(61)), request(says("Failed")), 2),
        (check(lastTransitionTime=time(61)), request(says("Failed"), attempt=4), 5),
        (reset("Rejected", since=50), request(says("Failed"), attempt=4), 5),
        (reset("Ready", since=45), request(says("BookingExpired")), 2),
    ],
)
def test_attempts_are_counted(listed: Object, asked: Object | None, attempt: int) -> None:
    requests = () if asked is None else (asked,)
    [created] = of(decide(case(reserved(admissionChecks=[listed]), *requests)), Create)
    assert created.obj["metadata"]["name"] == f"ppt-job-j-1-c-{attempt}-main"


def test_a_request_that_waits_is_not_made_twice() -> None:
    assert decide(case(reserved(admissionChecks=[check()]), request())) == Plan()


GOING = {"deletionTimestamp": time(90)}


@pytest.mark.parametrize("owner", [MINE, {**MINE, "uid": "uid-former"}])
def test_a_request_is_made_anew_only_when_the_former_one_is_gone(owner: Object) -> None:
    going = request(metadata={**GOING, "ownerReferences": [owner]})
    mine = (going,) if owner is MINE else ()
    made = case(reserved(admissionChecks=[check()]), *mine, taken=(going,))
    assert decide(made) == Plan()


STRANGER = {"kind": "Thing", "name": "t", "uid": "uid-t", "controller": True}


@pytest.mark.parametrize(
    ("taken", "error"),
    [
        (
            request(metadata={"ownerReferences": [STRANGER]}),
            (
                f'Error creating ProvisioningRequest "{NAME}":'
                f' provisioningrequests.autoscaling.x-k8s.io "{NAME}" already exists'
            ),
        ),
        (
            template(owner=STRANGER, labels={}),
            f'Error creating PodTemplate "ppt-{NAME}-main": podtemplates "ppt-{NAME}-main" already exists',
        ),
    ],
)
def test_a_name_that_a_stranger_has_is_told_and_tried_again(taken: Object, error: str) -> None:
    obj = reserved(admissionChecks=[check()])
    plan = decide(case(obj, taken=(taken,)))
    assert told(plan) == [("Warning", "FailedCreate", error)]
    assert state_after(case(obj, taken=(taken,)))[0] == check(message=error)
    assert plan.again


def test_a_template_that_would_go_with_a_former_request_is_deleted_and_made_anew() -> None:
    former = template(owner={**MINE, "kind": "ProvisioningRequest", "uid": "uid-former"})
    made = case(reserved(admissionChecks=[check()]), taken=(former,))
    assert decide(made).actions == (Delete(POD_TEMPLATES, former),)
    gone = case(reserved(admissionChecks=[check()]), taken=(template(owner=STRANGER, **GOING),))
    assert decide(gone) == Plan(again=1.0)


def test_a_flavor_that_is_gone_is_told_of_and_waited_for() -> None:
    obj = reserved(admissionChecks=[check()], admission=assigned(("main", 3), flavor="gone"))
    plan = decide(case(obj))
    error = f'Error creating ProvisioningRequest "{NAME}": ResourceFlavor gone not found'
    assert told(plan) == [("Warning", "FailedCreate", error)]
    assert state_after(case(obj))[0] == check(message=error)
    assert plan.again == 10.0


def test_a_template_that_contradicts_its_flavor_is_told() -> None:
    spec = {"podSets": [pod_set("main", container(), nodeSelector={"pool": "mine"}, count=3)]}
    plan = decide(case(reserved(admissionChecks=[check()], spec=spec)))
    [(kind, reason, note)] = told(plan)
    assert (kind, reason) == ("Warning", "FailedCreate")
    assert note.startswith(f'Error creating ProvisioningRequest "{NAME}": nodeSelector of main: pool')


# --- what goes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "cleans_up", "deleted"),
    [
        (admitted(FINISHED, admissionChecks=[check("Ready")]), False, [NAME, f"ppt-{NAME}-main"]),
        (reserved(EVICTED, admissionChecks=[check()]), True, [NAME, f"ppt-{NAME}-main"]),
        (workload(EVICTED, admissionChecks=[check()]), True, [NAME, f"ppt-{NAME}-main"]),
        (reserved(EVICTED, admissionChecks=[check()]), False, [f"ppt-{NAME}-main"]),
    ],
    ids=["finished", "evicted", "evicted-and-waiting", "evicted-without-cleaning-up"],
)
def test_who_needs_no_nodes_any_more_lets_go(obj: Object, cleans_up: bool, deleted: list[str]) -> None:
    plan = decide(case(obj, request(), templates=(template(),), cleans_up=cleans_up))
    assert [one.obj["metadata"]["name"] for one in of(plan, Delete)] == deleted
    going = case(obj, request(metadata=GOING), templates=(template(**GOING),), cleans_up=cleans_up)
    assert decide(going) == Plan()


@pytest.mark.parametrize(
    ("wanted", "requests", "deleted"),
    [
        (config(), [request(), request(attempt=2)], [request_name("job-j-1", "c", 1)]),
        (config(provisioningClassName="new"), [request()], [NAME]),
        (config(parameters={"a": "1"}), [request(spec={"parameters": {"a": "2"}})], [NAME]),
        (config(managedResources=["example.com/gpu"]), [request()], [NAME]),
        (config(), [request(metadata={"name": "job-j-1-other-1"})], ["job-j-1-other-1"]),
    ],
    ids=["older", "of-another-class", "of-other-parameters", "not-needed", "of-a-check-that-is-gone"],
)
def test_only_the_latest_request_in_sync_is_kept(wanted: Object, requests: Any, deleted: list[str]) -> None:
    plan = decide(case(reserved(admissionChecks=[check("Ready")]), *requests, config=wanted))
    assert [one.obj["metadata"]["name"] for one in of(plan, Delete)] == deleted


def test_an_annotation_over_a_parameter_of_the_config_is_in_sync() -> None:
    annotations = {f"{NAMES.provisioning_annotation_prefix}a": "mine"}
    obj = reserved(admissionChecks=[check()], metadata={"annotations": annotations})
    asked = request(spec={"parameters": {"a": "mine", "more": "x"}})
    assert decide(case(obj, asked, config=config(parameters={"a": "1"}))) == Plan()


# --- names and waits ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 120, 240, 253])
@pytest.mark.parametrize("attempt", [1, 12])
def test_names_are_bounded_and_tell_their_attempt(length: int, attempt: int) -> None:
    owner = "w" * length
    name = request_name(owner, "check", attempt)
    assert len(name) <= 253
    assert attempt_of(name, owner, "check") == attempt
    assert attempt_of(name, owner, "chec") is None
    assert len(template_name(name, "main")) <= 253
    if length > 250:
        assert name[:248] == f"{owner[:247]}-"
        assert len(name) == 253


def test_names_of_other_checks_are_told_apart() -> None:
    assert attempt_of("w-a-1-2", "w", "a") is None
    assert attempt_of("w-a-1-2", "w", "a-1") == 2
    assert attempt_of("w-a-x", "w", "a") is None


def test_a_name_is_not_cut_behind_a_dot() -> None:
    assert ".-" not in request_name(f"{'w' * 246}.{'x' * 20}", "c", 1)


@pytest.mark.parametrize(("retries", "seconds"), [(0, 60), (1, 120), (4, 960), (5, 1800), (10**6, 1800)])
def test_waits_double_up_to_the_longest(retries: int, seconds: int) -> None:
    assert retry_after_seconds(config(), retries) == seconds
    strategy = {"backoffBaseSeconds": 1, "backoffMaxSeconds": 3}
    assert retry_after_seconds(config(retryStrategy=strategy), retries) == min(3, 2 ** min(retries, 5))


# --- the check itself -----------------------------------------------------------------------------

PARAMETERS = {"apiGroup": NAMES.group, "kind": "ProvisioningRequestConfig", "name": "p"}


@pytest.mark.parametrize(
    ("parameters", "found", "expected"),
    [
        (PARAMETERS, config(), ("True", "Active", "The admission check is active")),
        (
            PARAMETERS,
            None,
            ("False", "BadParametersRef", f'provisioningrequestconfigs.{NAMES.group} "p" not found'),
        ),
        (
            None,
            None,
            (
                "False",
                "BadParametersRef",
                f"spec.parameters: name a ProvisioningRequestConfig of the API group {NAMES.group}",
            ),
        ),
        (
            {**PARAMETERS, "kind": "Other"},
            None,
            (
                "False",
                "BadParametersRef",
                f"spec.parameters: name a ProvisioningRequestConfig of the API group {NAMES.group}",
            ),
        ),
    ],
)
def test_a_check_says_whether_it_can_be_worked_on(
    parameters: Any, found: Object | None, expected: tuple[str, str, str]
) -> None:
    obj: Mapping[str, Any] = {
        "metadata": {"name": "c", "resourceVersion": "1", "generation": 1},
        "spec": {"parameters": parameters},
    }
    [patch] = activity(obj, found, NAMES, KINDS, at(0)).actions
    assert isinstance(patch, Patch)
    [active] = patch.steps[0].patch["status"]["conditions"]
    assert (active["status"], active["reason"], active["message"]) == expected
    settled = {**obj, "status": {"conditions": [active]}}
    assert activity(settled, found, NAMES, KINDS, at(9)) == Plan()
