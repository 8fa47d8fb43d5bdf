"""What happens to objects that serve on their way in: their pods held, their changes checked."""

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
from tests.unit.webhooks.support import NAMES, PRIORITY, QUEUE, FakeLookups, ask, policy

POLICY = policy(integrations=(POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET))
PARENT = NAMES.pod_suspending_parent
APPS = (DEPLOYMENT, STATEFUL_SET)


def template(cpu: Any = "1", image: str = "i", **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def served(
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


async def mutated(obj: Any, kind: Integration, lookups: FakeLookups | None = None, before: Any = None) -> Any:
    return await mutate_job(obj, "team", kind, POLICY, lookups or FakeLookups(), before)


def errors(kind: Integration, old: Any, new: Any, workload: Any = None) -> list[str]:
    found = validate_update(old, new, "team", kind, POLICY, FakeLookups(), workload)
    return [str(error) for error in found]


# --- held -----------------------------------------------------------------------------------------


async def test_pods_of_a_deployment_are_held_each_in_its_queue() -> None:
    marks = {QUEUE: "q", PRIORITY: "high"}
    held = (await mutated(served(DEPLOYMENT, marks), DEPLOYMENT))["spec"]["template"]["metadata"]
    assert held == {"labels": {NAMES.managed: "true", **marks}, "annotations": {PARENT: "deployment"}}


async def test_pods_of_a_stateful_set_are_held_unless_a_larger_whole_has_them_held() -> None:
    held = await mutated(served(STATEFUL_SET, {QUEUE: "q"}), STATEFUL_SET)
    assert held["spec"]["template"]["metadata"] == {"annotations": {PARENT: "statefulset"}}
    assert await mutated(held, STATEFUL_SET) == held
    inner = served(STATEFUL_SET, {QUEUE: "q"}, template=template(**{PARENT: "leaderworkerset"}))
    assert await mutated(inner, STATEFUL_SET) == inner


async def test_pods_of_leader_worker_sets_are_held_and_workers_counted_from_one() -> None:
    notes = {PARENT: "leaderworkerset", NAMES.pod_group_serving: "true"}
    held = await mutated(served(LEADER_WORKER_SET, {QUEUE: "q"}), LEADER_WORKER_SET)
    group = held["spec"]["leaderWorkerTemplate"]
    assert group["leaderTemplate"]["metadata"] == {"annotations": notes, "labels": {QUEUE: "q"}}
    assert group["workerTemplate"]["metadata"] == {
        "annotations": {**notes, NAMES.pod_index_offset: "1"},
        "labels": {QUEUE: "q"},
    }


@pytest.mark.parametrize(
    "spec",
    [{"leaderTemplate": None}, {"workerTemplate": template(**{NAMES.podset_group_name: "together"})}],
)
async def test_workers_are_counted_from_zero_without_a_leader_before_them(spec: Any) -> None:
    held = await mutated(served(LEADER_WORKER_SET, {QUEUE: "q"}, **spec), LEADER_WORKER_SET)
    path = ("spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations")
    assert NAMES.pod_index_offset not in value_at(held, path)


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_what_names_no_queue_is_left_alone(kind: Integration) -> None:
    given = served(kind)
    assert await mutated(given, kind) is given


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_no_object_that_serves_is_suspended(kind: Integration) -> None:
    held = await mutated(served(kind, {QUEUE: "q"}), kind)
    assert "suspend" not in held["spec"]


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
@pytest.mark.parametrize(("ready", "marks"), [(0, {QUEUE: "default", PRIORITY: "default"}), (1, {})])
async def test_only_what_is_not_up_gets_defaults_and_every_change_is_accepted(
    kind: Integration, ready: int, marks: Any
) -> None:
    lookups = FakeLookups(local_queues={("team", "default")}, priority_classes={"default"})
    before = served(kind, status={"readyReplicas": ready})
    # A client that replaces an object need not send its status.
    after = await mutated(served(kind), kind, lookups, before)
    assert after["metadata"]["labels"] == marks
    stored = {**after, "status": before["status"]}
    assert validate_update(before, stored, "team", kind, POLICY, lookups) == []
    queued = served(kind, {QUEUE: "q"}, status={"readyReplicas": ready})
    assert (await mutated(queued, kind, lookups, queued))["metadata"]["labels"].get(PRIORITY) == marks.get(
        PRIORITY
    )


@pytest.mark.parametrize("labels", [{}, {QUEUE: "q"}])
@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
async def test_what_is_up_and_replaced_keeps_the_default_priority_class(
    kind: Integration, labels: dict[str, str]
) -> None:
    lookups = FakeLookups(priority_classes={"default"})
    stored = served(kind, {**labels, PRIORITY: "default"}, status={"readyReplicas": 1})
    replacing = await mutated(served(kind, labels), kind, lookups, stored)
    assert replacing["metadata"]["labels"] == {**labels, PRIORITY: "default"}
    assert (
        validate_update(stored, {**replacing, "status": stored["status"]}, "team", kind, POLICY, lookups)
        == []
    )


GATED = NAMES.admission_gated_by


@pytest.mark.parametrize(
    ("before", "own", "of_pods", "becomes"),
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
async def test_gates_of_a_deployment_are_those_of_its_pods(
    before: str | None, own: str | None, of_pods: str | None, becomes: str | None
) -> None:
    def deployment(gates: str | None, **annotations: str) -> dict[str, Any]:
        found = served(DEPLOYMENT, {QUEUE: "q"}, template=template(**annotations))
        found["metadata"]["annotations"] = {} if gates is None else {GATED: gates}
        return found

    given = deployment(own, **({} if of_pods is None else {GATED: of_pods}))
    old = None if before is None else deployment(before)
    held = await mutated(given, DEPLOYMENT, before=old)
    assert held["spec"]["template"]["metadata"]["annotations"].get(GATED) == becomes
    closed = policy(integrations=POLICY.integrations, gates={"AdmissionGatedBy": False})
    untouched = await mutate_job(given, "team", DEPLOYMENT, closed, FakeLookups(), old)
    assert untouched["spec"]["template"]["metadata"]["annotations"].get(GATED) == of_pods


# --- checked --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*APPS, LEADER_WORKER_SET])
@pytest.mark.parametrize(
    ("after", "ready", "refused"),
    [("other", 0, False), ("other", 1, True), ("", 0, True), ("", 1, True)],
)
def test_the_queue_can_change_while_nothing_is_ready_and_stays_named(
    kind: Integration, after: str, ready: int, refused: bool
) -> None:
    status = {"readyReplicas": ready}
    old = served(kind, {QUEUE: "q"}, status=status)
    new = served(kind, {QUEUE: after} if after else {}, status=status)
    found = errors(kind, old, new)
    assert len(found) == refused
    assert all("queue-name" in one and "field is immutable" in one for one in found)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"template": template(image="other", **{PARENT: "statefulset"})}, []),
        ({"template": template(cpu="2", **{PARENT: "statefulset"})}, ["spec.template.spec.containers"]),
        ({"replicas": 3}, ["spec.replicas"]),
        ({"replicas": 0}, []),
    ],
)
def test_a_stateful_set_keeps_the_shape_and_number_of_its_pods(change: Any, fields: list[str]) -> None:
    held: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = served(STATEFUL_SET, {QUEUE: "q"}, **held)
    new = served(STATEFUL_SET, {QUEUE: "q"}, **{**held, **change})
    found = errors(STATEFUL_SET, old, new)
    assert [one.split(": ")[0] for one in found] == fields
    assert all("field is immutable" in one for one in found)
    assert errors(STATEFUL_SET, served(STATEFUL_SET), served(STATEFUL_SET, **change)) == []


@pytest.mark.parametrize(
    ("before", "after", "labels", "refused"),
    [
        (2, 3, {QUEUE: "q"}, True),
        (2, None, {QUEUE: "q"}, False),
        (2, 3, {}, False),
        (2, 3, None, False),
    ],
)
async def test_a_stateful_set_is_scaled_by_the_same_rules(
    before: int, after: int | None, labels: Any, refused: bool
) -> None:
    found = served(STATEFUL_SET, labels, template=template(**{PARENT: "statefulset"}), replicas=7)
    lookups = FakeLookups(owners={} if labels is None else {"s": found})
    old, new = (
        {"metadata": {"name": "s"}, "spec": {} if number is None else {"replicas": number}}
        for number in (before, after)
    )
    kinds = POLICY.integrations

    async def asked(path: str, **scale: str) -> Any:
        gvk = ("autoscaling", "v1", "Scale")
        fields: dict[str, Any] = {"integrations": kinds, "registered": kinds, "request": scale}
        return await ask(path, new, old, lookups=lookups, gvk=gvk, **fields)

    answer = await asked("/validate-apps-v1-statefulset", subResource="scale")
    assert answer.allowed is not refused
    if refused:
        assert answer.message.startswith("spec.replicas: Invalid value: 3: field is immutable")
    # It is asked about nothing else of that kind, and no other webhook is.
    assert "this webhook is for" in (await asked("/validate-apps-v1-statefulset")).message
    assert "this webhook is for" in (await asked("/validate-apps-v1-deployment", subResource="scale")).message


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
def test_a_stateful_set_comes_back_when_it_has_gone(pods: int, workload: Any, message: str | None) -> None:
    held: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = served(STATEFUL_SET, {QUEUE: "q"}, replicas=0, status={"replicas": pods}, **held)
    new = served(STATEFUL_SET, {QUEUE: "q"}, replicas=5, status={"replicas": pods}, **held)
    found = errors(STATEFUL_SET, old, new, workload)
    assert len(found) == (message is not None)
    assert all(message in one for one in found if message)
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
def test_groups_keep_the_shape_and_number_of_their_pods(change: Any, field: str) -> None:
    kind = LEADER_WORKER_SET
    old, new = served(kind, {QUEUE: "q"}), served(kind, {QUEUE: "q"}, **change)
    (found,) = errors(kind, old, new)
    assert found.startswith(f"{field}: ")
    assert errors(kind, served(kind), served(kind, **change)) == []
    ours = policy(integrations=POLICY.integrations, gates={"LWSImmutableGroupSize": False})
    without_gate = validate_update(old, new, "team", kind, ours, FakeLookups())
    assert [one.path for one in without_gate] == ([] if "size" in change else [field])


def test_shape_of_a_group_is_compared_by_meaning() -> None:
    kind = LEADER_WORKER_SET
    stored = served(kind, {QUEUE: "q"}, workerTemplate=template(cpu="2"))
    written = served(kind, {QUEUE: "q"}, workerTemplate=template(cpu="2000m"))
    worker = written["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    worker["spec"] = {**worker["spec"], "tolerations": [], "overhead": {}}
    assert errors(kind, stored, written) == []


@pytest.mark.parametrize(("replicas", "refused"), [(0, False), (10**6, False), (10**6 + 1, True), (-1, True)])
def test_there_are_not_too_many_groups(replicas: int, refused: bool) -> None:
    given = served(LEADER_WORKER_SET, {QUEUE: "q"}, replicas=replicas)
    found = validate_create(given, LEADER_WORKER_SET, POLICY)
    assert [one.path for one in found] == (["spec.replicas"] if refused else [])


# --- pods for the sake of others ------------------------------------------------------------------


@pytest.mark.parametrize("parent", ["deployment", ""])
async def test_pods_that_are_switched_on_for_others_are_held_for_them_alone(parent: str) -> None:
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
    answer = await ask("/mutate--v1-pod", pod, gvk=("", "v1", "Pod"), registered=(POD,), integrations=implied)
    assert answer.allowed
    assert (answer.patch is not None) == bool(parent)


@pytest.mark.parametrize("uids", [["u"], ["u", ""]])
@pytest.mark.parametrize(("reason", "allowed"), [("OnHold", True), ("Pending", False)])
async def test_the_workload_of_a_stateful_set_that_comes_back_is_looked_up(
    uids: list[str], reason: str, allowed: bool
) -> None:
    names = [create_workload_name("StatefulSet", "apps", "s", uid) for uid in uids]
    lookups = FakeLookups(owners={names[-1]: on_hold(reason)})
    held: dict[str, Any] = {"template": template(**{PARENT: "statefulset"})}
    old = served(STATEFUL_SET, {QUEUE: "q"}, replicas=0, **held)
    new = served(STATEFUL_SET, {QUEUE: "q"}, replicas=2, **held)
    answer = await ask(
        "/validate-apps-v1-statefulset",
        new,
        old,
        gvk=STATEFUL_SET.gvk,
        lookups=lookups,
        registered=(STATEFUL_SET,),
        integrations=(STATEFUL_SET,),
    )
    assert answer.allowed is allowed
    assert lookups.asked == [f"{NAMES.group}/v1beta2 Workload team/{name}" for name in names]
