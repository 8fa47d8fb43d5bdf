"""Pods, single or in a group, as a job: podsets, state, and which pods are started, stopped or released."""

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


def pod(name: str = "p", state: str = "gated", *, age: int = 0, **parts: Any) -> dict[str, Any]:
    """Return a pod in a state: gated, pending, running, terminating, expired, succeeded or failed.

    An expired pod is a deleted pod after its grace period. Parts: group, total, role, and further
    annotations, labels or fields of the spec.
    """
    annotations = {NAMES.role_hash: parts.pop("role", "r1"), **parts.pop("annotations", {})}
    labels = {NAMES.managed: "true", NAMES.queue_name: "lq", **parts.pop("labels", {})}
    group = parts.pop("group", "g")
    if group:
        labels[NAMES.pod_group_name] = group
        annotations[NAMES.pod_group_total_count] = str(parts.pop("total", 2))
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": format_time(NOW - (100 - age) * SECOND),
        "labels": labels,
        "annotations": annotations,
        "finalizers": parts.pop("finalizers", [NAMES.managed_finalizer]),
    }
    if state in {"expired", "terminating"}:
        metadata["deletionTimestamp"] = format_time(NOW + (20 if state == "terminating" else -20) * SECOND)
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], **parts.pop("spec", {})}
    if state == "gated":
        spec["schedulingGates"] = [GATE]
    if state in {"running", "terminating", "expired"}:
        spec["nodeName"] = "n"
    phase = {"running": "Running", "terminating": "Running", "expired": "Running"}.get(state, state.title())
    status: dict[str, Any] = {"phase": "Pending" if phase == "Gated" else phase, **parts.pop("status", {})}
    assert not parts, parts
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def group(*states: str, fast_release: bool = False, **parts: Any) -> Any:
    """Return a group of pods ``p0``, ``p1``, … in these states; each pod is older than the next."""
    members = [pod(f"p{number}", state, age=number, **parts) for number, state in enumerate(states)]
    return compose_job(*members, fast_release=fast_release)


def compose_job(*members: dict[str, Any], fast_release: bool = False) -> Any:
    return compose(
        list(members)[::-1], NAMES, CompositionOptions(NOW, deleted_pods_release_quota=fast_release)
    )


def names_of(members: Any) -> list[str]:
    return [member["metadata"]["name"] for member in members]


# --- podsets and problems ---------------------------------------------------------------------------


def test_single_pod_is_one_podset_without_gates_of_admitq() -> None:
    own_gate = {"name": "example.com/mine"}
    single = compose_job(
        pod("p", "pending", group=None, spec={"schedulingGates": [own_gate, GATE, TOPOLOGY]})
    )
    (pod_set,) = list_pod_sets(single, NAMES)
    assert (pod_set.name, pod_set.count) == ("main", 1)
    assert pod_set.get_template(single)["spec"]["schedulingGates"] == [own_gate]


def test_group_has_one_podset_for_each_role_of_its_active_pods() -> None:
    job = compose_job(
        pod("a", role="r2"),
        pod("b", role="r1"),
        pod("c", role="r1"),
        pod("d", "failed", role="r3"),
        pod("e", "expired"),
    )
    pod_sets = list_pod_sets(job, NAMES)
    assert [(pod_set.name, pod_set.count) for pod_set in pod_sets] == [("r1", 2), ("r2", 1)]
    assert "schedulingGates" not in list_pod_sets(job, NAMES)[0].get_template(job)["spec"]


def test_b7_role_of_pod_without_role_hash_is_hash_of_its_shape() -> None:
    large = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]}
    members = [pod("a", role=""), pod("b", "running", role=""), pod("c", role="", spec=large)]
    job = compose_job(*members)
    shape = compute_role_hash(members[0]["spec"])
    assert [get_pod_set(job, member) for member in members] == [shape, shape, compute_role_hash(large)]
    assert shape != compute_role_hash(large)


def test_b7_role_of_cached_running_pod_is_that_of_the_full_pod() -> None:
    requests = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 80}]}
    containers = [{"name": "c", "image": "i", "command": ["x"], **requests}]
    spec = {"containers": containers, "tolerations": [{"operator": "Exists"}], "dnsPolicy": "Default"}
    whole = pod("a", "running", role="", spec=spec)
    cached = {**trim_pod(whole, NAMES)}
    assert cached["spec"] != whole["spec"]
    assert get_pod_set(compose_job(cached), cached) == compute_role_hash(whole["spec"])


def test_b7_role_of_started_pod_without_role_hash_is_its_podset() -> None:
    started = pod("a", "running", role="", labels={NAMES.podset: "r9"})
    assert get_pod_set(compose_job(started), started) == "r9"


def test_b10_pod_without_label_to_copy_is_no_conflict() -> None:
    group_pods = pod("a"), pod("b", labels={"team": "x"})
    assert find_problem(compose_job(*group_pods), NAMES, ["team"]) is None


def test_b10_empty_value_of_label_to_copy_conflicts_with_other_value() -> None:
    group_pods = pod("a", labels={"team": ""}), pod("b", labels={"team": "x"})
    problem = find_problem(compose_job(*group_pods), NAMES, ["team"])
    assert problem == "pods of group 'g' have different values of team"


def test_fast_admitted_group_is_one_podset_of_total_count() -> None:
    job = group("gated", total=5, annotations={NAMES.pod_group_fast_admission: "true"})
    assert [(pod_set.name, pod_set.count) for pod_set in list_pod_sets(job, NAMES)] == [("r1", 5)]


@pytest.mark.parametrize(("parts", "count"), [({"group": None}, 1), ({"total": 7}, 7), ({"total": "x"}, 1)])
def test_group_pod_in_webhook_is_one_podset_of_total_count(parts: Any, count: int) -> None:
    (pod_set,) = list_pod_sets(pod(**parts), NAMES)
    assert (pod_set.count, pod_set.template_path) == (count, ())


FAST = {NAMES.pod_group_fast_admission: "true"}


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([pod(group=None)], None),
        ([pod("a"), pod("b")], None),
        ([pod("a"), pod("b", "succeeded")], None),
        ([pod("a")], "'g' group has fewer runnable pods than expected"),
        ([pod("a"), pod("b", "failed")], "'g' group has fewer runnable pods than expected"),
        ([pod("a"), pod("b", "expired")], "'g' group has fewer runnable pods than expected"),
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
            f"pods of group 'g' do not state how many they are: set {NAMES.pod_group_total_count}",
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
def test_incomplete_or_inconsistent_group_has_a_problem(members: Any, problem: str | None) -> None:
    assert find_problem(compose_job(*members), NAMES, ["team"]) == problem


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
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
def test_workload_is_equivalent_to_group_if_it_has_pods_for_each_role(
    members: Any, counts: dict[str, int], expected: bool | None
) -> None:
    listed = [{"name": name, "count": count} for name, count in counts.items()]
    assert is_equivalent(compose_job(*members), listed) is expected


# --- state ------------------------------------------------------------------------------------------

NOT_RETRIABLE = {NAMES.retriable_in_group: "false"}


@pytest.mark.parametrize(
    ("states", "parts", "outcome"),
    [
        (["succeeded"], {"group": None, "status": {"message": "done"}}, (True, "done")),
        (["failed"], {"group": None}, (False, "")),
        (["running"], {"group": None}, None),
        (["succeeded", "succeeded"], {}, (True, "Pods succeeded: 2/2.")),
        (["succeeded", "failed"], {}, None),
        (["succeeded", "failed"], {"annotations": NOT_RETRIABLE}, (False, "Pods succeeded: 1/2.")),
        (["running", "failed"], {"annotations": NOT_RETRIABLE}, None),
        (["gated", "failed"], {"annotations": NOT_RETRIABLE}, None),
        (["terminating", "failed"], {"annotations": NOT_RETRIABLE}, None),
        (["expired", "failed"], {"annotations": NOT_RETRIABLE}, (False, "Pods succeeded: 0/2.")),
        (["succeeded", "succeeded"], {"annotations": {NAMES.pod_group_serving: "true"}}, None),
        (["succeeded"], {"total": "x"}, None),
    ],
)
def test_outcome_of_pods_follows_their_phases(states: list[str], parts: Any, outcome: Any) -> None:
    assert find_outcome(group(*states, **parts)) == outcome


@pytest.mark.parametrize(
    ("states", "parts", "active", "suspended"),
    [
        (["gated", "gated"], {}, False, True),
        (["gated", "running"], {}, True, False),
        (["pending", "gated"], {}, False, False),
        (["succeeded", "gated"], {}, False, True),
        (["terminating", "failed"], {}, True, False),
        (["terminating"], {"fast_release": True}, False, True),
        (["expired", "failed"], {}, False, True),
        (["running"], {"group": None}, True, False),
        (["terminating"], {"group": None}, True, False),
        (["terminating"], {"group": None, "fast_release": True}, False, True),
        (["expired"], {"group": None}, False, True),
        (["gated"], {"group": None}, False, True),
        (["failed"], {"group": None}, False, True),
    ],
)
def test_pods_are_active_from_start_to_end_of_grace_period(
    states: list[str], parts: Any, active: bool, suspended: bool
) -> None:
    job = group(*states, **parts)
    assert (is_active(job), is_suspended(job, NAMES)) == (active, suspended)


def test_pod_in_webhook_is_suspended_if_gated_or_ended() -> None:
    suspended = [is_suspended(pod("p", state), NAMES) for state in ("gated", "running", "failed")]
    assert suspended == [True, False, True]


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
def test_group_is_ready_when_total_count_of_pods_is_ready_or_succeeded(members: Any, ready: bool) -> None:
    assert are_pods_ready(compose_job(*members)) is ready


def test_succeeded_pods_of_group_are_reclaimable_by_role() -> None:
    members = (
        pod("a", "succeeded"),
        pod("b", "succeeded", role="r2"),
        pod("c", "failed"),
        pod("d", "running"),
    )
    assert count_reclaimable_pods(compose_job(*members)) == {"r1": 1, "r2": 1}
    assert count_reclaimable_pods(compose_job(pod("a", "succeeded", group=None))) is None
    serving = {NAMES.pod_group_serving: "true"}
    assert count_reclaimable_pods(compose_job(pod("a", "succeeded", annotations=serving))) is None


@pytest.mark.parametrize(
    ("members", "is_deleted"),
    [
        ([pod("a", "terminating", group=None)], False),
        ([pod("a", "expired", group=None)], True),
        ([pod("a", "running", group=None)], False),
        ([pod("a", "terminating"), pod("b", "expired")], True),
        ([pod("a", "terminating"), pod("b", "running")], False),
        ([mark_for_termination(pod("a", "terminating"), "R", "m", NOW), pod("b", "expired")], False),
        ([mark_for_termination(pod("a", "terminating", group=None), "R", "m", NOW)], False),
        ([mark_for_termination(pod("a", "expired", group=None), "R", "m", NOW)], True),
    ],
)
def test_group_is_deleted_when_other_programs_deleted_all_pods(members: Any, is_deleted: bool) -> None:
    assert ("deletionTimestamp" in compose_job(*members)["metadata"]) is is_deleted


def test_pod_that_ended_before_its_deletion_is_not_deleted_as_job() -> None:
    deleted = pod("a", "terminating", group=None)
    deleted["status"]["phase"] = "Succeeded"
    assert "deletionTimestamp" not in compose_job(deleted)["metadata"]


def test_group_changes_at_end_of_grace_period_of_terminating_pod() -> None:
    assert group("terminating", "running")["changes"] == NOW + 20 * SECOND
    assert group("expired", "running")["changes"] is None


# --- members ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "counts", "started"),
    [
        ([pod("a"), pod("b", age=1)], {"r1": 2}, ["a", "b"]),
        ([pod("a"), pod("b", age=1)], {"r1": 1}, ["a"]),
        ([pod("a"), pod("b", age=1)], None, ["a", "b"]),
        ([pod("a", "terminating"), pod("b", age=1)], {"r1": 1}, []),
        ([pod("a", "expired"), pod("b", age=1)], {"r1": 1}, ["b"]),
        ([pod("a", "succeeded"), pod("b", age=1)], {"r1": 1}, []),
        ([pod("a", "failed"), pod("b", age=1)], {"r1": 1}, ["b"]),
        ([pod("a"), pod("b", role="r2")], {"r1": 1}, ["a"]),
        ([pod(group=None)], {"main": 1}, ["p"]),
    ],
)
def test_gated_pods_are_started_up_to_count_of_their_role(
    members: Any, counts: Any, started: list[str]
) -> None:
    assert names_of(list_startable(compose_job(*members), counts, NAMES)) == started


def test_deleted_pod_is_not_started() -> None:
    deleted = pod("a")
    deleted["metadata"]["deletionTimestamp"] = format_time(NOW)
    assert list_startable(compose_job(deleted, pod("b")), None, NAMES) == [pod("b")]


def test_topology_gate_of_started_pod_is_kept_only_if_pods_are_placed() -> None:
    gated = pod(spec={})
    gated["spec"]["schedulingGates"] = [{"name": "example.com/mine"}, GATE, TOPOLOGY]
    gates = [without_gates(gated, is_placed, NAMES)["spec"]["schedulingGates"] for is_placed in (True, False)]
    assert gates == [[{"name": "example.com/mine"}, TOPOLOGY], [{"name": "example.com/mine"}]]


def test_stop_ends_started_pods_and_all_pods_if_workload_is_deleted() -> None:
    job = group("gated", "running", "succeeded", "terminating", "pending")
    assert names_of(list_stoppable(job, False, NAMES)) == ["p1", "p4"]
    assert names_of(list_stoppable(job, True, NAMES)) == ["p0", "p1", "p2", "p4"]


def test_pod_is_marked_for_termination_only_once() -> None:
    marked = mark_for_termination(pod(), "NotAdmitted", "why", NOW)
    assert is_marked_for_termination(marked)
    assert mark_for_termination(marked, "Other", "again", NOW + 5) is marked
    (condition,) = marked["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "TerminationTarget",
        "NotAdmitted",
        "why",
    )


@pytest.mark.parametrize(
    ("members", "counts", "excess"),
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
def test_newest_pods_beyond_count_are_excess(members: Any, counts: Any, excess: list[str]) -> None:
    assert names_of(list_excess(compose_job(*members), counts, NAMES)) == excess


def ended_at(name: str, second: int) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(NOW + second * SECOND)}
    return pod(name, "failed", status={"conditions": [condition]})


@pytest.mark.parametrize(
    ("members", "counts", "released"),
    [
        ([pod("a"), ended_at("b", 1)], {"r1": 2}, []),
        ([pod("a"), pod("c"), ended_at("b", 1)], {"r1": 2}, ["b"]),
        ([pod("a"), pod("c"), ended_at("x", 9), ended_at("b", 1)], {"r1": 3}, ["b"]),
        ([pod("a"), pod("c", finalizers=[]), pod("b", "failed", finalizers=[])], {"r1": 2}, []),
        ([pod("a"), pod("b", "expired", role="r2")], {"r1": 1}, ["b"]),
        ([pod("a"), pod("b", "failed")], {}, ["b"]),
        ([pod("a"), pod("b", "succeeded")], {}, []),
    ],
)
def test_replaced_failed_pods_are_released_longest_ended_first(
    members: Any, counts: Any, released: list[str]
) -> None:
    assert names_of(list_replaced(compose_job(*members), counts, NAMES)) == released


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        ([pod("a"), pod("b")], {"r1": 2}, False),
        ([pod("a"), pod("b", "failed")], {"r1": 2}, True),
        ([pod("a"), pod("b", "expired")], {"r1": 2}, True),
        ([pod("a"), pod("b", "succeeded")], {"r1": 2}, False),
        ([pod("a", annotations=FAST)], {"r1": 2}, False),
        ([pod("a", "failed", annotations=FAST)], {"r1": 2}, True),
        ([pod("a", "failed", group=None)], {"main": 1}, False),
    ],
)
def test_group_needs_more_members_if_failed_or_deleted_pods_lack_replacements(
    members: Any, counts: Any, expected: bool
) -> None:
    assert needs_more_members(compose_job(*members), counts) is expected


# --- cache ------------------------------------------------------------------------------------------


def test_only_shape_of_running_pod_is_cached() -> None:
    rich = {
        "volumes": [{"name": "v"}],
        "containers": [
            {"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {"requests": {"cpu": 1}}}
        ],
    }
    waiting, running = pod(spec=rich), pod("p", "running", spec=rich)
    waiting["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    waiting["status"]["podIP"] = "1.2.3.4"
    cached = trim_pod(waiting, NAMES)
    assert cached["spec"] == waiting["spec"]
    assert "kubectl.kubernetes.io/last-applied-configuration" not in cached["metadata"]["annotations"]
    assert cached["status"] == {"phase": "Pending"}
    assert trim_pod(running, NAMES)["spec"] == {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}],
        "nodeName": "n",
    }


@pytest.mark.parametrize("value", [None, 1, "x", [], [None], {}, {"x": None}])
@pytest.mark.parametrize("path", ["metadata", "spec", "status"])
def test_malformed_pod_does_not_raise(path: str, value: Any) -> None:
    in_group = {**pod(), path: value}
    single = {**pod(group=None), "spec": {"schedulingGates": value, "containers": value}}
    for malformed in (in_group, single):
        POD.list_pod_sets(malformed, NAMES)
        POD.is_suspended(malformed, NAMES)
        POD.find_outcome(malformed)
        POD.are_pods_ready(malformed)
        POD.is_active(malformed)
        POD.scaling.count_reclaimable_pods(malformed)
        if isinstance(malformed.get("metadata"), dict):
            trim_pod(malformed, NAMES)
