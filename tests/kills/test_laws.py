"""The laws and the comparison find the effects that a crash might have."""

from collections import Counter
from typing import Any

import pytest

from admitq.core.topology.domains import HOST_NAME
from admitq_api.json_objects import JsonObject
from admitq_api.labels import names_for
from admitq_api.topology_assignments import Domain, encode
from tests.kills.chronicle import Place, Step
from tests.kills.laws import count_transitions, find_violations
from tests.kills.likeness import comparable_events, differences, likeness, placeholders

NAMES = names_for()
WORKLOAD = "job-j-1a2b3"
HELD = ("QuotaReserved", "Admitted")


def condition(type_: str, status: str = "True") -> JsonObject:
    return {"type": type_, "status": status}


def queue(cpu: str) -> JsonObject:
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
    return {"spec": {"resourceGroups": [{"flavors": flavors}]}}


def job(*, suspend: bool, **status: Any) -> JsonObject:
    return {"spec": {"suspend": suspend}, "status": status}


def pod(*gates: str) -> JsonObject:
    gated = [{"name": gate} for gate in gates]
    return {"metadata": {"labels": {NAMES.pod_group_name: "g"}}, "spec": {"schedulingGates": gated}}


def workload(*conditions: str, cpu: str = "1", active: bool = True, owner: str = "uid-j") -> JsonObject:
    reference = {"kind": "Job", "name": "j", "uid": owner, "controller": True}
    assigned = {"name": "main", "count": 1, "resourceUsage": {"cpu": cpu}}
    return {
        "metadata": {"ownerReferences": [reference]},
        "spec": {"active": active},
        "status": {
            "conditions": [condition(type_) for type_ in conditions],
            "admission": {"podSetAssignments": [assigned]},
        },
    }


def placed_workload(*hosts: str) -> JsonObject:
    """An admitted Workload of podset ``main`` with a pod of one CPU on each host."""
    domains: list[Domain] = [((host,), count) for host, count in sorted(Counter(hosts).items())]
    assigned = {
        "name": "main",
        "count": len(hosts),
        "resourceUsage": {"cpu": len(hosts)},
        "topologyAssignment": encode([HOST_NAME], domains),
    }
    obj = workload(*HELD)
    return {**obj, "status": {**obj["status"], "admission": {"podSetAssignments": [assigned]}}}


def placed_pod(host: str = "", phase: str = "Pending") -> JsonObject:
    """A pod of ``w`` on a host; without one, it has its topology gate."""
    annotations, labels = {NAMES.workload: "w"}, {NAMES.podset: "main"}
    gates = [] if host else [{"name": NAMES.topology_gate}]
    spec = {"schedulingGates": gates, "nodeSelector": {HOST_NAME: host} if host else {}}
    metadata = {"annotations": annotations, "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def node(cpu: str) -> JsonObject:
    return {"spec": {}, "status": {"allocatable": {"cpu": cpu}}}


def steps(*written: tuple[str, str, JsonObject | None]) -> list[Step]:
    """Steps of objects ``uid-<name>``."""
    made: list[Step] = []
    for version, (kind, name, obj) in enumerate(written, start=1):
        uid = f"uid-{name}"
        metadata = {"name": name, "uid": uid, "resourceVersion": str(version)}
        whole = None if obj is None else {**obj, "metadata": {**obj.get("metadata", {}), **metadata}}
        made.append(Step(version, (kind, name), uid, whole))
    return made


@pytest.mark.parametrize(
    ("written", "law"),
    [
        (
            [
                ("Workload", "w", workload(*HELD)),
                ("Job", "j", job(suspend=True)),
                ("Job", "j", job(suspend=False)),
            ],
            "",
        ),
        (
            [
                ("Workload", "w", workload()),
                ("Job", "j", job(suspend=True)),
                ("Job", "j", job(suspend=False)),
            ],
            "started without being admitted",
        ),
        ([("Workload", "w", workload("Admitted"))], "is admitted without quota"),
        ([("Workload", "w", workload(*HELD, active=False))], "is admitted while inactive"),
        ([("Workload", "w", workload("Finished")), ("Workload", "w", workload())], "is finished no longer"),
        (
            [("Workload", "w", workload(*HELD)), ("Workload", "v", workload(*HELD, cpu="4", owner="uid-k"))],
            "5000m CPU are held of 4000m",
        ),
        ([("Workload", "w", workload()), ("Workload", "v", workload())], "Job j has 2 Workloads"),
        (
            [
                ("Workload", "w", workload(*HELD)),
                ("Job", "j", job(suspend=False)),
                ("Workload", "w", workload()),
            ],
            "gave back quota while Job j runs",
        ),
        (
            [
                ("Job", "j", job(suspend=True, active=1)),
                ("Workload", "w", workload(*HELD)),
                ("Workload", "w", workload()),
            ],
            "gave back quota while Job j runs",
        ),
        ([("Pod", "p", pod(NAMES.admission_gate)), ("Pod", "p", pod())], "let go without being admitted"),
        (
            [
                ("Workload", "g", workload(*HELD)),
                ("Pod", "p", pod(NAMES.admission_gate)),
                ("Pod", "p", pod()),
            ],
            "",
        ),
        ([("Node", "a", node("2")), ("Workload", "w", placed_workload("a", "a"))], ""),
        (
            [("Node", "a", node("1")), ("Workload", "w", placed_workload("a", "a", "b"))],
            "2000m CPU are assigned to a, which has 1000m",
        ),
        (
            [
                ("Workload", "w", placed_workload("a", "b")),
                ("Pod", "p", placed_pod("a", "Failed")),
                ("Pod", "q", placed_pod()),
                ("Pod", "q", placed_pod("a")),
            ],
            "",
        ),
        (
            [
                ("Workload", "w", placed_workload("a", "b")),
                ("Pod", "p", placed_pod("a")),
                ("Pod", "q", placed_pod()),
                ("Pod", "q", placed_pod("a")),
            ],
            "is pod 2 of 1 that are assigned to a",
        ),
        (
            [("Pod", "p", placed_pod()), ("Pod", "p", placed_pod("c"))],
            "is pod 1 of 0 that are assigned to c",
        ),
        (
            [
                ("Workload", "g", workload(*HELD)),
                ("Pod", "p", pod(NAMES.topology_gate)),
                ("Pod", "p", pod()),
            ],
            "",
        ),
    ],
)
def test_broken_law_is_reported(written: list[tuple[str, str, JsonObject]], law: str) -> None:
    before = [("ClusterQueue", "cq", queue("4")), ("Job", "j", job(suspend=True))]
    found = {one.partition(": ")[2] for one in find_violations(steps(*before, *written), NAMES)}
    assert found == ({law} if law else set())


def test_condition_is_counted_each_time_it_becomes_true() -> None:
    taken = [workload(), workload("Evicted"), workload("Evicted"), workload(), workload("Evicted")]
    made = steps(*(("Workload", WORKLOAD, one) for one in taken))
    assert count_transitions(made, placeholders("ns", made)) == {"WORKLOAD 1 OF Job j Evicted": 2}


def play(namespace: str, name: str, **changes: Any) -> dict[str, Any]:
    """The likeness of one Workload in a namespace, with some changes."""
    obj = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "namespace": namespace,
            "resourceVersion": name,
            "ownerReferences": [{"kind": "Job", "name": "j"}],
        },
        "status": {
            "conditions": [condition("Admitted"), condition("Evicted", "False")],
            "since": _TIME,
            **changes,
        },
    }
    place: Place = ("Workload", name)
    names = placeholders(namespace, [Step(1, place, f"uid-{name}", obj)])
    return likeness({place: obj}, names)


_TIME = "2026-11-22T15:16:17.5Z"


def test_likeness_ignores_times_versions_and_generated_names() -> None:
    reference = play("kills-1", "job-j-1a2b3")
    assert differences(reference, play("kills-2", "job-j-4c5d6", since="2027-01-01T00:00:00Z")) == []
    reversed_conditions = [condition("Evicted", "False"), condition("Admitted")]
    assert differences(reference, play("kills-2", "job-j-4c5d6", conditions=reversed_conditions)) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"conditions": [condition("Admitted")]}, '[] and not [{"status":"False","type":"Evicted"}]'),
        ({"conditions": [condition("Admitted"), *2 * [condition("Evicted", "False")]]}, ""),
        ({"admission": {"clusterQueue": "cq"}}, '{"clusterQueue":"cq"} and not null'),
    ],
)
def test_difference_is_reported_with_its_path(change: JsonObject, text: str) -> None:
    [difference] = differences(play("kills-1", "job-j-1a2b3", **change), play("kills-1", "job-j-1a2b3"))
    assert difference.startswith(f"/Workload WORKLOAD 1 OF Job j/status/{next(iter(change))}: {text}")


def event(reason: str, note: str) -> JsonObject:
    regarding = {"kind": "Workload", "name": WORKLOAD}
    return {"regarding": regarding, "type": "Normal", "reason": reason, "note": note}


def test_likeness_of_events_ignores_seconds_and_waiting_reasons() -> None:
    names = {WORKLOAD: "WORKLOAD 1 OF Job j"}
    waits = event("WaitingForQuota", "2 more needed")
    reference = comparable_events(
        [event("Admitted", "after 1s"), waits, event("Admitted", "after 3s")], names
    )
    assert reference == {"Workload WORKLOAD 1 OF Job j Normal Admitted after SECONDS"}
    assert comparable_events([event("Preempted", "after 1s")], names) - reference
