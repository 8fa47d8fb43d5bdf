"""Reviews of Deployments, StatefulSets and LeaderWorkerSets: marks of their pods, and changes."""

from typing import Any

import pytest

from admitq.integrations.base import Integration
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.registry import select_enabled
from admitq.integrations.workload_names import create_workload_name
from admitq_api.feature_gates import FeatureGates
from admitq_api.json_objects import value_at
from admitq_webhooks.mutate.jobs import mutate_job
from admitq_webhooks.validate.jobs import validate_create, validate_update
from tests.unit.webhooks.support import NAMES, PRIORITY, QUEUE, FakeLookups, call_webhook, policy

POLICY = policy(integrations=(POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET))
PARENT = NAMES.pod_suspending_parent
APPS = (DEPLOYMENT, STATEFUL_SET)


def template(cpu: Any = "1", image: str = "i", **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def serving_object(
    kind: Integration, labels: Any = None, *, replicas: int = 2, status: Any = None, **spec: Any
) -> dict[str, Any]:
    given: dict[str, Any] = {"replicas": replicas, "template": template(), **spec}
    if kind is LEADER_WORKER_SET:
        group = {"size": 3, "leaderTemplate": template(), "workerTemplate": template(), **spec}
        given = {"replicas": replicas, "leaderWorkerTemplate": group}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "s", "namespace": "team", "uid": "u", "labels": labels or {}},
        "spec": given,
        "status": status or {},
    }


async def mutate(obj: Any, kind: Integration, lookups: FakeLookups | None = None, before: Any = None) -> Any:
    return await mutate_job(obj, "team", kind, POLICY, lookups or FakeLookups(), before)


def list_errors(kind: Integration, old: Any, new: Any, workload: Any = None) -> list[str]:
    errors = validate_update(old, new, "team", kind, POLICY, FakeLookups(), workload)
    return [str(error) for error in errors]


# --- mutation -------------------------------------------------------------------------------------


async def test_deployment_template_gets_queue_priority_and_marks() -> None:
    marks = {QUEUE: "q", PRIORITY: "high"}
    marked = (await mutate(serving_object(DEPLOYMENT, marks), DEPLOYMENT))["spec"]["template"]["metadata"]
    assert marked == {"labels": {NAMES.managed: "true", **marks}, "annotations": {PARENT: "deployment"}}


async def test_stateful_set_template_is_marked_unless_leader_worker_set_marked_it() -> None:
    marked = await mutate(serving_object(STATEFUL_SET, {QUEUE: "q"}), STATEFUL_SET)
    assert marked["spec"]["template"]["metadata"] == {"annotations": {PARENT: "statefulset"}}
    assert await mutate(marked, STATEFUL_SET) == marked
    inner = serving_object(STATEFUL_SET, {QUEUE: "q"}, template=template(**{PARENT: "leaderworkerset"}))
    assert await mutate(inner, STATEFUL_SET) == inner


async def test_leader_worker_set_templates_are_marked_and_workers_indexed_from_one() -> None:
    annotations = {PARENT: "leaderworkerset", NAMES.pod_group_serving: "true"}
    marked = await mutate(serving_object(LEADER_WORKER_SET, {QUEUE: "q"}), LEADER_WORKER_SET)
    group = marked["spec"]["leaderWorkerTemplate"]
    assert group["leaderTemplate"]["metadata"] == {"annotations": annotations, "labels": {QUEUE: "q"}}
    assert group["workerTemplate"]["metadata"] == {
        "annotations": {**annotations, NAMES.pod_index_offset: "1"},
        "labels": {QUEUE: "q"},
    }


@pytest.mark.parametrize(
    "spec",
    [{"leaderTemplate": None}, {"workerTemplate": template(**{NAMES.podset_group_name: "together"})}],
)
async def test_workers_are_indexed_from_zero_without_separate_leader(spec: Any) -> None:
    marked = await mutate(serving_object(LEADER_WORKER_SET, {QUEUE: "q"}, **spec), LEADER_WORKER_SET)
    path = ("spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations")
    assert NAMES.pod_index_offset not in value_at(marked, path)


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_serving_object_without_queue_is_unchanged(kind: Integration) -> None:
    given = serving_object(kind)
    assert await mutate(given, kind) is given


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_serving_object_is_never_suspended(kind: Integration) -> None:
    marked = await mutate(serving_object(kind, {QUEUE: "q"}), kind)
    assert "suspend" not in marked["spec"]


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
@pytest.mark.parametrize(("ready", "marks"), [(0, {QUEUE: "default", PRIORITY: "default"}), (1, {})])
async def test_updated_serving_object_gets_defaults_only_while_no_pod_is_ready(
    kind: Integration, ready: int, marks: Any
) -> None:
    lookups = FakeLookups(local_queues={("team", "default")}, priority_classes={"default"})
    before = serving_object(kind, status={"readyReplicas": ready})
    # A client that replaces an object need not send its status.
    after = await mutate(serving_object(kind), kind, lookups, before)
    assert after["metadata"]["labels"] == marks
    stored = {**after, "status": before["status"]}
    assert validate_update(before, stored, "team", kind, POLICY, lookups) == []
    queued = serving_object(kind, {QUEUE: "q"}, status={"readyReplicas": ready})
    assert (await mutate(queued, kind, lookups, queued))["metadata"]["labels"].get(PRIORITY) == marks.get(
        PRIORITY
    )


@pytest.mark.parametrize("labels", [{}, {QUEUE: "q"}])
@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_replaced_ready_serving_object_keeps_default_priority_class(
    kind: Integration, labels: dict[str, str]
) -> None:
    lookups = FakeLookups(priority_classes={"default"})
    stored = serving_object(kind, {**labels, PRIORITY: "default"}, status={"readyReplicas": 1})
    replacing = await mutate(serving_object(kind, labels), kind, lookups, stored)
    assert replacing["metadata"]["labels"] == {**labels, PRIORITY: "default"}
    assert (
        validate_update(stored, {**replacing, "status": stored["status"]}, "team", kind, POLICY, lookups)
        == []
    )


GATED = NAMES.admission_gated_by


@pytest.mark.parametrize(
    ("before", "own", "in_template", "expected"),
    [
        (None, "a.b/c", None, "a.b/c"),
        (None, None, "a.b/d", "a.b/d"),
        (None, "a.b/c,a.b/d", "a.b/d", "a.b/d,a.b/c"),
        ("a.b/c,a.b/d", "a.b/d", "a.b/c, a.b/d", "a.b/d"),
        ("a.b/c", None, "a.b/c", None),
        ("a.b/c", "", "a.b/c,a.b/d", "a.b/d"),
        ("a.b/c", "a.b/c", None, "a.b/c"),
        ("a.b/c", "a.b/c", "a.b/c", "a.b/c"),
    ],
)
async def test_admission_gates_of_deployment_are_copied_to_its_template(
    before: str | None, own: str | None, in_template: str | None, expected: str | None
) -> None:
    def deployment(gates: str | None, **annotations: str) -> dict[str, Any]:
        obj = serving_object(DEPLOYMENT, {QUEUE: "q"}, template=template(**annotations))
        obj["metadata"]["annotations"] = {} if gates is None else {GATED: gates}
        return obj

    given = deployment(own, **({} if in_template is None else {GATED: in_template}))
    old = None if before is None else deployment(before)
    marked = await mutate(given, DEPLOYMENT, before=old)
    assert marked["spec"]["template"]["metadata"]["annotations"].get(GATED) == expected
    without_gate = policy(integrations=POLICY.integrations, gates={"AdmissionGatedBy": False})
    unchanged = await mutate_job(given, "team", DEPLOYMENT, without_gate, FakeLookups(), old)
    assert unchanged["spec"]["template"]["metadata"]["annotations"].get(GATED) == in_template


# --- validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
@pytest.mark.parametrize(
    ("after", "ready", "is_rejected"),
    [("other", 0, False), ("other", 1, True), ("", 0, True), ("", 1, True)],
)
def test_queue_of_serving_object_can_change_only_while_no_pod_is_ready(
    kind: Integration, after: str, ready: int, is_rejected: bool
) -> None:
    status = {"readyReplicas": ready}
    old = serving_object(kind, {QUEUE: "q"}, status=status)
    new = serving_object(kind, {QUEUE: after} if after else {}, status=status)
    errors = list_errors(kind, old, new)
    assert len(errors) == is_rejected
    assert all("queue-name" in error and "field is immutable" in error for error in errors)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"template": template(image="other", **{PARENT: "statefulset"})}, []),
        ({"template": template(cpu="2", **{PARENT: "statefulset"})}, ["spec.template.spec.containers"]),
        ({"replicas": 3}, ["spec.replicas"]),
        ({"replicas": 0}, []),
    ],
)
def test_requests_and_replicas_of_queued_stateful_set_are_immutable(change: Any, fields: list[str]) -> None:
    marked: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = serving_object(STATEFUL_SET, {QUEUE: "q"}, **marked)
    new = serving_object(STATEFUL_SET, {QUEUE: "q"}, **{**marked, **change})
    errors = list_errors(STATEFUL_SET, old, new)
    assert [error.split(": ")[0] for error in errors] == fields
    assert all("field is immutable" in error for error in errors)
    assert (
        list_errors(STATEFUL_SET, serving_object(STATEFUL_SET), serving_object(STATEFUL_SET, **change)) == []
    )


@pytest.mark.parametrize(
    ("before", "after", "labels", "is_rejected"),
    [
        (2, 3, {QUEUE: "q"}, True),
        (2, None, {QUEUE: "q"}, False),
        (2, 3, {}, False),
        (2, 3, None, False),
    ],
)
async def test_scale_subresource_of_stateful_set_follows_rules_of_replicas(
    before: int, after: int | None, labels: Any, is_rejected: bool
) -> None:
    stored = serving_object(STATEFUL_SET, labels, template=template(**{PARENT: "statefulset"}), replicas=7)
    lookups = FakeLookups(objects={} if labels is None else {"s": stored})
    old, new = (
        {"metadata": {"name": "s"}, "spec": {} if number is None else {"replicas": number}}
        for number in (before, after)
    )
    kinds = POLICY.integrations

    async def send_scale(path: str, **scale: str) -> Any:
        gvk = ("autoscaling", "v1", "Scale")
        fields: dict[str, Any] = {"integrations": kinds, "registered": kinds, "request": scale}
        return await call_webhook(path, new, old, lookups=lookups, gvk=gvk, **fields)

    answer = await send_scale("/validate-apps-v1-statefulset", subResource="scale")
    assert answer.allowed is not is_rejected
    if is_rejected:
        assert answer.message.startswith("spec.replicas: Invalid value: 3: field is immutable")
    # The webhook accepts the kind Scale only in the subresource; other webhooks do not accept it.
    assert "this webhook is for" in (await send_scale("/validate-apps-v1-statefulset")).message
    of_deployment = await send_scale("/validate-apps-v1-deployment", subResource="scale")
    assert "this webhook is for" in of_deployment.message


def on_hold(reason: str, status: str = "False") -> Any:
    return {"status": {"conditions": [{"type": "QuotaReserved", "status": status, "reason": reason}]}}


@pytest.mark.parametrize(
    ("pods", "workload", "message"),
    [
        (0, None, None),
        (0, on_hold("OnHold"), None),
        (0, on_hold("Deactivated"), None),
        (1, on_hold("OnHold"), "scaling down is still in progress"),
        (0, on_hold("Pending"), "workload from previous scale-down is still being deleted"),
        (0, on_hold("QuotaReserved", "True"), "workload from previous scale-down is still being deleted"),
    ],
)
def test_stateful_set_scales_up_only_after_scale_down_is_complete(
    pods: int, workload: Any, message: str | None
) -> None:
    marked: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=0, status={"replicas": pods}, **marked)
    new = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=5, status={"replicas": pods}, **marked)
    errors = list_errors(STATEFUL_SET, old, new, workload)
    assert len(errors) == (message is not None)
    assert all(message in error for error in errors if message)


@pytest.mark.parametrize("pods", [0, 1])
def test_only_scale_up_of_stateful_set_from_zero_needs_its_workloads(pods: int) -> None:
    marked: dict[str, Any] = {"template": template(**{PARENT: "statefulset"}), "status": {"replicas": pods}}
    old = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=0, **marked)
    new = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=5, **marked)
    assert STATEFUL_SET.webhook.list_deciding_workloads is not None
    names = tuple(create_workload_name("StatefulSet", "apps", "s", uid) for uid in ("u", ""))
    assert STATEFUL_SET.webhook.list_deciding_workloads(old, new, POLICY.kind_rules(new)) == names
    assert STATEFUL_SET.webhook.list_deciding_workloads(new, old, POLICY.kind_rules(old)) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workerTemplate": template(cpu="2")}, "spec.leaderWorkerTemplate.workerTemplate.spec.containers"),
        ({"leaderTemplate": template(cpu="2")}, "spec.leaderWorkerTemplate.leaderTemplate.spec.containers"),
        ({"size": 4}, "spec.leaderWorkerTemplate.size"),
    ],
)
def test_requests_and_size_of_leader_worker_groups_are_immutable(change: Any, field: str) -> None:
    kind = LEADER_WORKER_SET
    old, new = serving_object(kind, {QUEUE: "q"}), serving_object(kind, {QUEUE: "q"}, **change)
    (error,) = list_errors(kind, old, new)
    assert error.startswith(f"{field}: ")
    assert list_errors(kind, serving_object(kind), serving_object(kind, **change)) == []
    without_gate = policy(integrations=POLICY.integrations, gates={"LWSImmutableGroupSize": False})
    errors = validate_update(old, new, "team", kind, without_gate, FakeLookups())
    assert [error.path for error in errors] == ([] if "size" in change else [field])


def test_template_of_leader_worker_set_is_compared_by_meaning() -> None:
    kind = LEADER_WORKER_SET
    stored = serving_object(kind, {QUEUE: "q"}, workerTemplate=template(cpu="2"))
    written = serving_object(kind, {QUEUE: "q"}, workerTemplate=template(cpu="2000m"))
    worker = written["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    worker["spec"] = {**worker["spec"], "tolerations": [], "overhead": {}}
    assert list_errors(kind, stored, written) == []


@pytest.mark.parametrize(
    ("replicas", "is_rejected"), [(0, False), (10**6, False), (10**6 + 1, True), (-1, True)]
)
def test_replicas_of_leader_worker_set_are_limited(replicas: int, is_rejected: bool) -> None:
    given = serving_object(LEADER_WORKER_SET, {QUEUE: "q"}, replicas=replicas)
    errors = validate_create(given, LEADER_WORKER_SET, POLICY)
    assert [error.path for error in errors] == (["spec.replicas"] if is_rejected else [])


# --- implied pod kind, lookup of workloads --------------------------------------------------------


@pytest.mark.parametrize("parent", ["deployment", ""])
async def test_implied_pod_kind_gates_only_pods_with_suspending_parent(parent: str) -> None:
    implied = select_enabled(["deployment"], FeatureGates())
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "team",
            "labels": {QUEUE: "q"},
            "annotations": {PARENT: parent} if parent else {},
        },
        "spec": template()["spec"],
    }
    answer = await call_webhook(
        "/mutate--v1-pod", pod, gvk=("", "v1", "Pod"), registered=(POD,), integrations=implied
    )
    assert answer.allowed
    assert (answer.patch is not None) == bool(parent)


@pytest.mark.parametrize("uids", [["u"], ["u", ""]])
@pytest.mark.parametrize(("reason", "allowed"), [("OnHold", True), ("Pending", False)])
async def test_workload_is_read_on_scale_up_of_stateful_set(
    uids: list[str], reason: str, allowed: bool
) -> None:
    names = [create_workload_name("StatefulSet", "apps", "s", uid) for uid in uids]
    lookups = FakeLookups(objects={names[-1]: on_hold(reason)})
    marked: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=0, **marked)
    new = serving_object(STATEFUL_SET, {QUEUE: "q"}, replicas=2, **marked)
    answer = await call_webhook(
        "/validate-apps-v1-statefulset",
        new,
        old,
        gvk=STATEFUL_SET.gvk,
        lookups=lookups,
        registered=(STATEFUL_SET,),
        integrations=(STATEFUL_SET,),
    )
    assert answer.allowed is allowed
    assert lookups.object_requests == [f"{NAMES.group}/v1beta2 Workload team/{name}" for name in names]
