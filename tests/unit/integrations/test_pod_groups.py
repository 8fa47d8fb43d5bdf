"""What pods, alone and in groups, amount to as a job, and which of them are started, ended and let go."""

from typing import Any

import pytest

from admitq.integrations.base import CompositionOptions
from admitq.integrations.families.pod_cache import trim_pod
from admitq.integrations.families.pod_groups import (
    are_pods_ready,
    compose,
    count_reclaimable_pods,
    find_outcome,
    find_problem,
    get_pod_set,
    is_active,
    is_equivalent,
    is_suspended,
    list_excess,
    list_pod_sets,
    list_replaced,
    list_startable,
    list_stoppable,
    needs_more_members,
    without_gates,
)
from admitq.integrations.families.pods import is_marked_for_termination, mark_for_termination
from admitq.integrations.kinds.pod import POD
from admitq.integrations.pod_shape import compute_role_hash
from admitq_api.conditions import SECOND, format_time
from admitq_api.labels import names_for

NAMES = names_for()
NOW = 1_800_000_000 * SECOND
GATE = {"name": NAMES.admission_gate}
TOPOLOGY = {"name": NAMES.topology_gate}


def pod(name: str = "p", state: str = "held", *, age: int = 0, **parts: Any) -> dict[str, Any]:
    """A pod in a state: held, pending, running, going (past its grace), terminating, succeeded or failed.

    Parts: group, total, role, and further annotations, labels or fields of the spec.
    """
    notes = {NAMES.role_hash: parts.pop("role", "r1"), **parts.pop("annotations", {})}
    labels = {NAMES.managed: "true", NAMES.queue_name: "lq", **parts.pop("labels", {})}
    group = parts.pop("group", "g")
    if group:
        labels[NAMES.pod_group_name] = group
        notes[NAMES.pod_group_total_count] = str(parts.pop("total", 2))
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": format_time(NOW - (100 - age) * SECOND),
        "labels": labels,
        "annotations": notes,
        "finalizers": parts.pop("finalizers", [NAMES.managed_finalizer]),
    }
    if state in {"going", "terminating"}:
        metadata["deletionTimestamp"] = format_time(NOW + (20 if state == "terminating" else -20) * SECOND)
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], **parts.pop("spec", {})}
    if state == "held":
        spec["schedulingGates"] = [GATE]
    if state in {"running", "terminating", "going"}:
        spec["nodeName"] = "n"
    phase = {"running": "Running", "terminating": "Running", "going": "Running"}.get(state, state.title())
    status: dict[str, Any] = {"phase": "Pending" if phase == "Held" else phase, **parts.pop("status", {})}
    assert not parts, parts
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def group(*states: str, fast_release: bool = False, **parts: Any) -> Any:
    """A group of pods ``p0``, ``p1``, each older than the next, in these states."""
    members = [pod(f"p{number}", state, age=number, **parts) for number, state in enumerate(states)]
    return of(*members, fast_release=fast_release)


def of(*members: dict[str, Any], fast_release: bool = False) -> Any:
    return compose(
        list(members)[::-1], NAMES, CompositionOptions(NOW, deleted_pods_release_quota=fast_release)
    )


def named(members: Any) -> list[str]:
    return [one["metadata"]["name"] for one in members]


# --- what it asks for -------------------------------------------------------------------------------


def test_a_pod_alone_is_one_podset_without_our_gates() -> None:
    foreign = {"name": "example.com/mine"}
    alone = of(pod("p", "pending", group=None, spec={"schedulingGates": [foreign, GATE, TOPOLOGY]}))
    (only,) = list_pod_sets(alone, NAMES)
    assert (only.name, only.count) == ("main", 1)
    assert only.get_template(alone)["spec"]["schedulingGates"] == [foreign]


def test_a_group_is_a_podset_for_each_role_by_name_of_its_active_pods() -> None:
    job = of(
        pod("a", role="r2"),
        pod("b", role="r1"),
        pod("c", role="r1"),
        pod("d", "failed", role="r3"),
        pod("e", "going"),
    )
    assert [(one.name, one.count) for one in list_pod_sets(job, NAMES)] == [("r1", 2), ("r2", 1)]
    assert "schedulingGates" not in list_pod_sets(job, NAMES)[0].get_template(job)["spec"]


def test_b7_role_of_a_pod_without_role_hash_is_that_of_its_shape() -> None:
    large = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]}
    members = [pod("a", role=""), pod("b", "running", role=""), pod("c", role="", spec=large)]
    job = of(*members)
    shape = compute_role_hash(members[0]["spec"])
    assert [get_pod_set(job, one) for one in members] == [shape, shape, compute_role_hash(large)]
    assert shape != compute_role_hash(large)


def test_b7_role_is_the_same_for_what_is_kept_of_a_running_pod() -> None:
    requests = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 80}]}
    containers = [{"name": "c", "image": "i", "command": ["x"], **requests}]
    spec = {"containers": containers, "tolerations": [{"operator": "Exists"}], "dnsPolicy": "Default"}
    whole = pod("a", "running", role="", spec=spec)
    kept = {**trim_pod(whole, NAMES)}
    assert kept["spec"] != whole["spec"]
    assert get_pod_set(of(kept), kept) == compute_role_hash(whole["spec"])


def test_b7_role_of_a_started_pod_without_role_hash_is_its_podset() -> None:
    started = pod("a", "running", role="", labels={NAMES.podset: "r9"})
    assert get_pod_set(of(started), started) == "r9"


def test_b10_pod_without_the_label_to_copy_is_no_dispute() -> None:
    one, other = pod("a"), pod("b", labels={"team": "x"})
    assert find_problem(of(one, other), NAMES, ["team"]) is None


def test_b10_empty_value_of_the_label_to_copy_is_a_value() -> None:
    one, other = pod("a", labels={"team": ""}), pod("b", labels={"team": "x"})
    assert find_problem(of(one, other), NAMES, ["team"]) == "pods of group 'g' have different values of team"


def test_a_group_admitted_fast_is_one_podset_of_its_whole_size() -> None:
    job = group("held", total=5, annotations={NAMES.pod_group_fast_admission: "true"})
    assert [(one.name, one.count) for one in list_pod_sets(job, NAMES)] == [("r1", 5)]


@pytest.mark.parametrize(("marks", "count"), [({"group": None}, 1), ({"total": 7}, 7), ({"total": "x"}, 1)])
def test_a_pod_as_webhooks_see_it_stands_for_its_group(marks: Any, count: int) -> None:
    (only,) = list_pod_sets(pod(**marks), NAMES)
    assert (only.count, only.template_path) == (count, ())


FAST = {NAMES.pod_group_fast_admission: "true"}


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ([pod(group=None)], None),
        ([pod("a"), pod("b")], None),
        ([pod("a"), pod("b", "succeeded")], None),
        ([pod("a")], "'g' group has fewer runnable pods than expected"),
        ([pod("a"), pod("b", "failed")], "'g' group has fewer runnable pods than expected"),
        ([pod("a"), pod("b", "going")], "'g' group has fewer runnable pods than expected"),
        ([pod("a", annotations=FAST)], None),
        ([pod("a", "failed", annotations=FAST)], "'g' group has fewer runnable pods than expected"),
        (
            [pod("a", annotations=FAST), pod("b", role="r2", annotations=FAST)],
            "group 'g' is admitted fast, so that its pods must have the same shape",
        ),
        (
            [pod("a"), pod("b", labels={NAMES.queue_name: "other"})],
            "pods of group 'g' name different queues: 'lq', 'other'",
        ),
        ([pod("a"), pod("b", total=3)], "pods of group 'g' have different total counts"),
        (
            [pod("a", total="many")],
            f"pods of group 'g' do not tell how many they are: set {NAMES.pod_group_total_count}",
        ),
        (
            [pod("a", labels={"team": "y"}), pod("b", labels={"team": "x"})],
            "pods of group 'g' have different values of team",
        ),
        (
            [pod("a"), pod("b", annotations={f"{NAMES.provisioning_annotation_prefix}x": "1"})],
            f"pods of group 'g' have different values of {NAMES.provisioning_annotation_prefix}x",
        ),
        ([pod(f"p{n}", role=f"r{n}", total=19) for n in range(19)], "group 'g' has 19 roles, more than 18"),
    ],
)
def test_a_group_gets_a_workload_once_it_is_complete_and_of_one_mind(members: Any, wrong: str | None) -> None:
    assert find_problem(of(*members), NAMES, ["team"]) == wrong


@pytest.mark.parametrize(
    ("members", "counts", "stands"),
    [
        ([pod("a"), pod("b")], {"r1": 2}, True),
        ([pod("a")], {"r1": 2}, True),
        ([pod("a"), pod("b"), pod("c")], {"r1": 2}, False),
        ([pod("a"), pod("b"), pod("c", "failed")], {"r1": 2}, True),
        ([pod("a"), pod("b", role="r2")], {"r1": 2}, False),
        ([pod("a")], {"r1": 1, "r2": 1}, True),
        ([pod(group=None)], {"main": 1}, None),
        ([pod("p", "running", group=None)], {"main": 1}, True),
    ],
)
def test_a_workload_stands_for_a_group_if_it_has_room_for_each_role(
    members: Any, counts: dict[str, int], stands: bool | None
) -> None:
    listed = [{"name": name, "count": count} for name, count in counts.items()]
    assert is_equivalent(of(*members), listed) is stands


# --- how it stands ----------------------------------------------------------------------------------

FINAL = {NAMES.retriable_in_group: "false"}


@pytest.mark.parametrize(
    ("states", "parts", "ended"),
    [
        (["succeeded"], {"group": None, "status": {"message": "done"}}, (True, "done")),
        (["failed"], {"group": None}, (False, "")),
        (["running"], {"group": None}, None),
        (["succeeded", "succeeded"], {}, (True, "Pods succeeded: 2/2.")),
        (["succeeded", "failed"], {}, None),
        (["succeeded", "failed"], {"annotations": FINAL}, (False, "Pods succeeded: 1/2.")),
        (["running", "failed"], {"annotations": FINAL}, None),
        (["held", "failed"], {"annotations": FINAL}, None),
        (["terminating", "failed"], {"annotations": FINAL}, None),
        (["going", "failed"], {"annotations": FINAL}, (False, "Pods succeeded: 0/2.")),
        (["succeeded", "succeeded"], {"annotations": {NAMES.pod_group_serving: "true"}}, None),
        (["succeeded"], {"total": "x"}, None),
    ],
)
def test_a_job_of_pods_ends(states: list[str], parts: Any, ended: Any) -> None:
    assert find_outcome(group(*states, **parts)) == ended


@pytest.mark.parametrize(
    ("states", "parts", "active", "suspended"),
    [
        (["held", "held"], {}, False, True),
        (["held", "running"], {}, True, False),
        (["pending", "held"], {}, False, False),
        (["succeeded", "held"], {}, False, True),
        (["terminating", "failed"], {}, True, False),
        (["terminating"], {"fast_release": True}, False, True),
        (["going", "failed"], {}, False, True),
        (["running"], {"group": None}, True, False),
        (["terminating"], {"group": None}, True, False),
        (["terminating"], {"group": None, "fast_release": True}, False, True),
        (["going"], {"group": None}, False, True),
        (["held"], {"group": None}, False, True),
        (["failed"], {"group": None}, False, True),
    ],
)
def test_pods_hold_resources_from_their_start_to_the_end_of_their_grace(
    states: list[str], parts: Any, active: bool, suspended: bool
) -> None:
    job = group(*states, **parts)
    assert (is_active(job), is_suspended(job, NAMES)) == (active, suspended)


def test_a_pod_as_webhooks_see_it_is_suspended_at_its_gate_and_when_it_has_ended() -> None:
    seen = [is_suspended(pod("p", state), NAMES) for state in ("held", "running", "failed")]
    assert seen == [True, False, True]


READY: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize(
    ("members", "ready"),
    [
        ([pod("a", "running", **READY), pod("b", "running", **READY)], True),
        ([pod("a", "running", **READY), pod("b", "succeeded")], True),
        ([pod("a", "running", **READY), pod("b", "running")], False),
        ([pod("a", "running", **READY)], False),
        ([pod("a", "running", group=None, **READY)], True),
    ],
)
def test_pods_are_ready_when_as_many_as_there_should_be_are(members: Any, ready: bool) -> None:
    assert are_pods_ready(of(*members)) is ready


def test_pods_that_succeeded_give_their_quota_back_by_role() -> None:
    done = pod("a", "succeeded"), pod("b", "succeeded", role="r2"), pod("c", "failed"), pod("d", "running")
    assert count_reclaimable_pods(of(*done)) == {"r1": 1, "r2": 1}
    assert count_reclaimable_pods(of(pod("a", "succeeded", group=None))) is None
    serving = {NAMES.pod_group_serving: "true"}
    assert count_reclaimable_pods(of(pod("a", "succeeded", annotations=serving))) is None


@pytest.mark.parametrize(
    ("members", "goes"),
    [
        ([pod("a", "terminating", group=None)], False),
        ([pod("a", "going", group=None)], True),
        ([pod("a", "running", group=None)], False),
        ([pod("a", "terminating"), pod("b", "going")], True),
        ([pod("a", "terminating"), pod("b", "running")], False),
        ([mark_for_termination(pod("a", "terminating"), "R", "m", NOW), pod("b", "going")], False),
        ([mark_for_termination(pod("a", "terminating", group=None), "R", "m", NOW)], False),
        ([mark_for_termination(pod("a", "going", group=None), "R", "m", NOW)], True),
    ],
)
def test_a_group_is_deleted_when_others_than_we_deleted_all_of_it(members: Any, goes: bool) -> None:
    assert ("deletionTimestamp" in of(*members)["metadata"]) is goes


def test_a_pod_that_ended_before_it_was_deleted_is_accounted_for_first() -> None:
    gone = pod("a", "terminating", group=None)
    gone["status"]["phase"] = "Succeeded"
    assert "deletionTimestamp" not in of(gone)["metadata"]


def test_released_deleted_pod_is_reported() -> None:
    assert group("terminating", "running")["changes"] == NOW + 20 * SECOND
    assert group("going", "running")["changes"] is None


# --- its members ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "counts", "started"),
    [
        ([pod("a"), pod("b", age=1)], {"r1": 2}, ["a", "b"]),
        ([pod("a"), pod("b", age=1)], {"r1": 1}, ["a"]),
        ([pod("a"), pod("b", age=1)], None, ["a", "b"]),
        ([pod("a", "terminating"), pod("b", age=1)], {"r1": 1}, []),
        ([pod("a", "going"), pod("b", age=1)], {"r1": 1}, ["b"]),
        ([pod("a", "succeeded"), pod("b", age=1)], {"r1": 1}, []),
        ([pod("a", "failed"), pod("b", age=1)], {"r1": 1}, ["b"]),
        ([pod("a"), pod("b", role="r2")], {"r1": 1}, ["a"]),
        ([pod(group=None)], {"main": 1}, ["p"]),
    ],
)
def test_pods_are_started_where_there_is_room(members: Any, counts: Any, started: list[str]) -> None:
    assert named(list_startable(of(*members), counts, NAMES)) == started


def test_a_deleted_pod_is_not_started() -> None:
    waiting = pod("a")
    waiting["metadata"]["deletionTimestamp"] = format_time(NOW)
    assert list_startable(of(waiting, pod("b")), None, NAMES) == [pod("b")]


def test_a_pod_waits_for_its_place_only_where_there_is_a_topology() -> None:
    waiting = pod(spec={})
    waiting["spec"]["schedulingGates"] = [{"name": "example.com/mine"}, GATE, TOPOLOGY]
    left = [without_gates(waiting, placed, NAMES)["spec"]["schedulingGates"] for placed in (True, False)]
    assert left == [[{"name": "example.com/mine"}, TOPOLOGY], [{"name": "example.com/mine"}]]


def test_a_stop_ends_what_runs_and_all_if_the_workload_is_deleted() -> None:
    job = group("held", "running", "succeeded", "terminating", "pending")
    assert named(list_stoppable(job, False, NAMES)) == ["p1", "p4"]
    assert named(list_stoppable(job, True, NAMES)) == ["p0", "p1", "p2", "p4"]


def test_pod_reports_once_why_it_ends() -> None:
    told = mark_for_termination(pod(), "NotAdmitted", "why", NOW)
    assert is_marked_for_termination(told)
    assert mark_for_termination(told, "Other", "again", NOW + 5) is told
    (condition,) = told["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "TerminationTarget",
        "NotAdmitted",
        "why",
    )


@pytest.mark.parametrize(
    ("members", "counts", "beyond"),
    [
        ([pod("a"), pod("b", age=1), pod("c", age=2)], None, ["c"]),
        ([pod("a"), pod("b", "running", age=1), pod("c", "running", age=2)], None, ["a"]),
        ([pod("a", finalizers=[]), pod("b", age=1), pod("c", age=2)], None, ["a"]),
        ([pod("a"), pod("b", age=1), pod("c", "failed", age=2)], None, []),
        ([pod("a"), pod("b", role="r2"), pod("c", role="r2", age=3)], {"r1": 1, "r2": 1}, ["c"]),
        ([pod("a"), pod("b", role="new")], {"r1": 2}, ["b"]),
        ([pod("a", total="x")], None, []),
        ([pod(group=None)], {"main": 0}, []),
    ],
)
def test_newest_unrequested_pods_are_excess(members: Any, counts: Any, beyond: list[str]) -> None:
    assert named(list_excess(of(*members), counts, NAMES)) == beyond


def ended_at(name: str, second: int) -> dict[str, Any]:
    changed = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(NOW + second * SECOND)}
    return pod(name, "failed", status={"conditions": [changed]})


@pytest.mark.parametrize(
    ("members", "counts", "freed"),
    [
        ([pod("a"), ended_at("b", 1)], {"r1": 2}, []),
        ([pod("a"), pod("c"), ended_at("b", 1)], {"r1": 2}, ["b"]),
        ([pod("a"), pod("c"), ended_at("x", 9), ended_at("b", 1)], {"r1": 3}, ["b"]),
        ([pod("a"), pod("c", finalizers=[]), pod("b", "failed", finalizers=[])], {"r1": 2}, []),
        ([pod("a"), pod("b", "going", role="r2")], {"r1": 1}, ["b"]),
        ([pod("a"), pod("b", "failed")], {}, ["b"]),
        ([pod("a"), pod("b", "succeeded")], {}, []),
    ],
)
def test_pods_that_failed_are_let_go_once_replaced_the_longest_ended_first(
    members: Any, counts: Any, freed: list[str]
) -> None:
    assert named(list_replaced(of(*members), counts, NAMES)) == freed


@pytest.mark.parametrize(
    ("members", "counts", "waits"),
    [
        ([pod("a"), pod("b")], {"r1": 2}, False),
        ([pod("a"), pod("b", "failed")], {"r1": 2}, True),
        ([pod("a"), pod("b", "going")], {"r1": 2}, True),
        ([pod("a"), pod("b", "succeeded")], {"r1": 2}, False),
        ([pod("a", annotations=FAST)], {"r1": 2}, False),
        ([pod("a", "failed", annotations=FAST)], {"r1": 2}, True),
        ([pod("a", "failed", group=None)], {"main": 1}, False),
    ],
)
def test_others_must_come_for_pods_that_are_gone(members: Any, counts: Any, waits: bool) -> None:
    assert needs_more_members(of(*members), counts) is waits


# --- in memory --------------------------------------------------------------------------------------


def test_of_pods_that_run_only_their_shape_is_kept() -> None:
    rich = {
        "volumes": [{"name": "v"}],
        "containers": [
            {"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {"requests": {"cpu": 1}}}
        ],
    }
    waiting, running = pod(spec=rich), pod("p", "running", spec=rich)
    waiting["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    waiting["status"]["podIP"] = "1.2.3.4"
    kept = trim_pod(waiting, NAMES)
    assert kept["spec"] == waiting["spec"]
    assert "kubectl.kubernetes.io/last-applied-configuration" not in kept["metadata"]["annotations"]
    assert kept["status"] == {"phase": "Pending"}
    assert trim_pod(running, NAMES)["spec"] == {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}],
        "nodeName": "n",
    }


@pytest.mark.parametrize("value", [None, 1, "x", [], [None], {}, {"x": None}])
@pytest.mark.parametrize("path", ["metadata", "spec", "status"])
def test_pods_of_any_shape_are_read(path: str, value: Any) -> None:
    odd = {**pod(), path: value}
    raw = (odd, {**pod(group=None), "spec": {"schedulingGates": value, "containers": value}})
    for one in raw:
        POD.list_pod_sets(one, NAMES)
        POD.is_suspended(one, NAMES)
        POD.find_outcome(one)
        POD.are_pods_ready(one)
        POD.is_active(one)
        POD.scaling.count_reclaimable_pods(one)
        if isinstance(one.get("metadata"), dict):
            trim_pod(one, NAMES)
