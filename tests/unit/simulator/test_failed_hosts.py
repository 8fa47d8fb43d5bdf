"""Nodes that fail or come back during a run: what happens to the pods on them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.core.events import NodeChanged, NodeDeleted
from admitq.core.model import SECOND, Taint, Toleration
from admitq.core.topology.domains import HOST_NAME, Node
from admitq.simulator import report
from admitq.simulator.run import Ending
from admitq.simulator.simulated_nodes import SimulatedNodes
from admitq.simulator.timeline import TimelineEvent
from tests.unit.simulator.stage import run_scenario, write
from tests.unit.simulator.test_topology import NODES, WORLD, job, workloads

ACTED = (
    TimelineEvent.ADMITTED,
    TimelineEvent.PODS_STOPPED,
    TimelineEvent.REPLACED,
    TimelineEvent.EVICTED,
    TimelineEvent.STOPPED,
    TimelineEvent.FINISHED,
    TimelineEvent.FAILED,
)
WIDE = job("one", 6, "preferred: rack")
"""Pods on hosts a-0-0, a-0-1 and a-1-0; host a-1-1 is free."""


def deleted(node: str, at: str = "10s") -> str:
    return f"{{at: {at}, delete: {{kind: Node, name: {node}}}}}"


def patched(node: str, patch: dict[str, Any], at: str = "10s") -> str:
    return f"{{at: {at}, patch: {{kind: Node, name: {node}, patch: {json.dumps(patch)}}}}}"


def not_ready(node: str, at: str = "10s") -> str:
    return patched(node, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, at)


def ready(node: str, at: str) -> str:
    return patched(node, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, at)


def tainted(node: str, effect: str, at: str = "10s") -> str:
    return patched(node, {"spec": {"taints": [{"key": "broken", "effect": effect}]}}, at)


def course(folder: Path, *changes: str, jobs: str = WIDE, more: str = "", world: str = WORLD) -> list[str]:
    """Return what happened to the workloads."""
    spec = f"{NODES}{more}changes: [{', '.join(changes)}]\n{workloads(jobs)}"
    _, timeline = run_scenario(folder, spec, world)
    return [line.replace("one-1", "").strip() for line in timeline.lines_of(*ACTED)]


def cordoned(node: str, at: str = "10s") -> str:
    return patched(node, {"spec": {"unschedulable": True}}, at)


def new_node(name: str, cpu: int, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    status = {"allocatable": {"cpu": cpu, "pods": 10}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


GATES = "---\napiVersion: config.admitq.dev/v1beta2\nkind: Configuration\nfeatureGates: {%s: false}\n"


@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        pytest.param(
            [deleted("a-1-0")],
            {},
            # The second pass follows after a second. The pods of other hosts end first.
            ["0 Admitted", "10 PodsStopped", "11 Replaced", "71 Finished"],
            id="pods of a deleted node start again on another node",
        ),
        pytest.param(
            [deleted("a-1-0")],
            {"more": "podsReadyAfter: 5s\nevictions: {checkpoints: 2s}\n"},
            # The pods started at 5 s, and keep 4 s of their work.
            ["0 Admitted", "10 PodsStopped", "11 Replaced", "72 Finished"],
            id="pods become ready and keep work of checkpoints",
        ),
        pytest.param(
            [not_ready("a-1-0")],
            {},
            # Kubernetes deletes the pods after 5 minutes. New ones take slots of pods that have ended.
            ["0 Admitted", "10 PodsStopped", "311 Replaced", "370 Finished"],
            id="pods of a node that is not ready start elsewhere once they are deleted",
        ),
        pytest.param(
            [not_ready("a-1-0"), ready("a-1-0", "40s")],
            {},
            ["0 Admitted", "10 PodsStopped", "100 Finished"],
            id="pods start again on a node that is back in time",
        ),
        pytest.param(
            [deleted("a-1-0"), deleted("a-1-1", "20s")],
            {},
            # Required to stay in the cluster, and no host is left for the two pods.
            ["0 Admitted", "10 PodsStopped", "11 Replaced", "20 PodsStopped", "21 Evicted", "21 Stopped"],
            id="workload without another place is evicted",
        ),
        pytest.param(
            [deleted("a-1-0"), deleted("a-0-0")],
            {"jobs": job("one", 5, "preferred: rack")},
            ["0 Admitted", "10 PodsStopped", "10 PodsStopped", "10 Evicted", "10 Stopped"],
            id="second failed host evicts",
        ),
        pytest.param(
            [tainted("a-1-0", "NoExecute")],
            {},
            ["0 Admitted", "10 PodsStopped", "11 Replaced", "71 Finished"],
            id="taint NoExecute deletes pods at once",
        ),
        pytest.param(
            [tainted("a-1-0", "NoSchedule")],
            {},
            ["0 Admitted", "60 Finished"],
            id="taint NoSchedule lets pods run",
        ),
        pytest.param([cordoned("a-1-0")], {}, ["0 Admitted", "60 Finished"], id="cordoned node"),
        pytest.param([deleted("a-1-1")], {}, ["0 Admitted", "60 Finished"], id="node without pods"),
        pytest.param(
            [deleted("a-0-0")],
            {"world": WORLD + GATES % "TASFailedNodeReplacement", "jobs": job("one", 2)},
            ["0 Admitted", "10 PodsStopped"],
            id="without replacement the pods wait for their node",
        ),
    ],
)
def test_pods_follow_their_node(
    tmp_path: Path, changes: list[str], options: dict[str, str], expected: list[str]
) -> None:
    assert course(tmp_path, *changes, **options) == expected


def test_next_pods_of_a_cordoned_node_run_on_another_node(tmp_path: Path) -> None:
    """Host a-1-0 runs two of twelve pods, six at a time; the next two run where the node is not cordoned."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "t", "namespace": "team", "labels": {"admitq.dev/queue-name": "main"}},
        "spec": {
            "parallelism": 6,
            "completions": 12,
            "template": {
                "metadata": {"annotations": {"admitq.dev/podset-preferred-topology": "rack"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}}],
                },
            },
        },
    }
    jobs = "  - {name: one, template: {namespace: team, name: t}, runTime: 1m}\n"
    events = course(tmp_path, cordoned("a-1-0"), jobs=jobs, world=f"{WORLD}---\n{json.dumps(manifest)}\n")
    assert events == ["0 Admitted", "61 Replaced", "121 Finished"]


def test_node_that_comes_back_has_room(tmp_path: Path) -> None:
    """The first job moves from a-1-0 to a-1-1. The second one gets the node that is back."""
    labels = {"pool": "a", "rack": "a-1", HOST_NAME: "a-1-0"}
    again = new_node("a-1-0", 4, labels)
    events = course(
        tmp_path,
        deleted("a-1-0"),
        f"{{at: 20s, apply: {json.dumps(again)}}}",
        jobs=WIDE + job("two", 2, "required: rack", arrivals="{at: [15s]}"),
    )
    assert "11 Replaced" in events
    assert "20 Admitted two-1" in events


def test_workload_with_several_podsets_stops_as_a_whole(tmp_path: Path) -> None:
    def pod_set(name: str, count: int) -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"cpu": 2}}}
        request = {"topologyRequest": {"preferred": "rack"}}
        return {
            "name": name,
            "count": count,
            **request,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }

    workload = {
        "apiVersion": "admitq.dev/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "t", "namespace": "team"},
        "spec": {"queueName": "main", "podSets": [pod_set("a", 2), pod_set("b", 3)]},
    }
    jobs = "  - {name: one, template: {kind: Workload, namespace: team, name: t}, runTime: 1m}\n"
    events = course(tmp_path, deleted("a-0-0"), jobs=jobs, world=f"{WORLD}---\n{json.dumps(workload)}\n")
    assert events == ["0 Admitted", "10 PodsStopped", "11 Replaced", "71 Finished"]


def test_report_counts_failures_and_their_lost_work(tmp_path: Path) -> None:
    spec = f"{NODES}changes: [{deleted('a-1-0')}]\n{workloads(WIDE)}"
    simulation, _ = run_scenario(tmp_path, spec, WORLD)
    assert report(simulation).to_dict()["nodeFailures"] == {
        "pods": 2,
        "replaced": 1,
        "evicted": 0,
        "lost": {"cpu": 40.0},  # Two pods with 2 CPUs for 10 s.
    }
    result = CliRunner().invoke(
        application, ["simulate", str(write(tmp_path, spec, WORLD))], env={"COLUMNS": "160"}
    )
    assert "2 pods stopped, 1 times on other nodes, 0 evictions" in result.stdout


def test_evicted_workload_loses_the_work_of_all_pods_and_waits(tmp_path: Path) -> None:
    changes = f"{deleted('a-1-0')}, {deleted('a-1-1')}"
    spec = f"{NODES}changes: [{changes}]\n{workloads(WIDE)}"
    simulation, _ = run_scenario(tmp_path, spec, WORLD)
    result = report(simulation)
    assert (result.ending, result.waiting, result.node_failures.evicted) == (Ending.STUCK, 1, 1)
    assert result.node_failures.lost == {"cpu": 128.0}  # Two pods for 10 s, and four for 11 s.


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 300),
        ((Toleration("node.kubernetes.io/not-ready", "Exists", toleration_seconds=20),), 20),
        ((Toleration("node.kubernetes.io/not-ready", "Exists", toleration_seconds=-1),), 0),
        ((Toleration("node.kubernetes.io/not-ready", "Exists"),), None),
        ((Toleration(operator="Exists", effect="NoSchedule"),), 300),
    ],
)
def test_pods_on_a_node_that_is_not_ready_are_deleted_when_they_tolerate_it_no_longer(
    tolerations: tuple[Toleration, ...], seconds: int | None
) -> None:
    nodes = SimulatedNodes()
    labels = ((HOST_NAME, "h"),)
    assert nodes.observe(NodeChanged(Node("n", labels)), SECOND) == ("h",)
    nodes.observe(NodeChanged(Node("n", labels, ready=False)), 2 * SECOND)
    nodes.observe(NodeChanged(Node("n", labels, (Taint("a", "", "NoSchedule"),), ready=False)), 3 * SECOND)
    (node,) = nodes.of_host("h")
    expected = None if seconds is None else (2 + seconds) * SECOND
    assert node.find_deletion(tolerations) == expected
    assert node.health.since == 2 * SECOND


def test_node_with_another_host_name_leaves_its_host() -> None:
    nodes = SimulatedNodes()
    nodes.observe(NodeChanged(Node("n", ((HOST_NAME, "h"),))), 0)
    assert nodes.observe(NodeChanged(Node("n", ((HOST_NAME, "other"),))), 0) == ("h", "other")
    assert [*nodes.of_host("h")] == []
    assert nodes.observe(NodeDeleted("n"), 0) == ("other",)
    assert nodes.observe(NodeDeleted("n"), 0) == ()


def test_workload_of_a_single_pod_fails_with_its_node(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "one",
            "namespace": "team",
            "labels": {"admitq.dev/queue-name": "main"},
            "annotations": {"admitq.dev/podset-required-topology": "rack"},
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}}]},
    }
    spec = f"{NODES}runTime: 1m\nchanges: [{deleted('a-0-0')}]\n"
    _, timeline = run_scenario(tmp_path, spec, f"{WORLD}---\n{json.dumps(pod)}\n")
    assert [line.split()[:2] for line in timeline.lines_of(*ACTED)] == [["0", "Admitted"], ["10", "Failed"]]


def test_tolerations_of_flavors_count(tmp_path: Path) -> None:
    flavor = "spec:\n  nodeLabels: {pool: a}\n"
    tolerated = WORLD.replace(
        flavor,
        f"{flavor}  tolerations: [{{key: broken, operator: Exists, effect: NoExecute}}]\n",
    )
    events = course(tmp_path, tainted("a-1-0", "NoExecute"), world=tolerated)
    assert events == ["0 Admitted", "60 Finished"]


def test_deadline_of_a_job_counts_from_its_start_when_pods_restart(tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "t", "namespace": "team", "labels": {"admitq.dev/queue-name": "main"}},
        "spec": {
            "activeDeadlineSeconds": 70,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}],
                }
            },
        },
    }
    jobs = "  - {name: one, template: {namespace: team, name: t}, runTime: 1m}\n"
    spec = f"kills: [{{at: 30s}}]\n{workloads(jobs)}"
    _, timeline = run_scenario(tmp_path, spec, f"{WORLD}---\n{json.dumps(manifest)}\n")
    assert [line.split()[:2] for line in timeline.lines_of(*ACTED)] == [["0", "Admitted"], ["70", "Failed"]]


# --- second passes --------------------------------------------------------------------------------

PROVISIONED = (
    WORLD.replace(
        "  namespaceSelector: {}\n",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: nodes}]}\n",
    )
    + "---\napiVersion: admitq.dev/v1beta2\nkind: AdmissionCheck\nmetadata: {name: nodes}\n"
    "spec: {controllerName: admitq.dev/provisioning-request}\n"
)
"""Workloads get their places after a ProvisioningRequest."""


def test_workload_gets_its_places_in_a_second_pass_after_its_checks(tmp_path: Path) -> None:
    spec = f"{NODES}admissionChecks: 30s\n{workloads(job('one', 4, 'required: rack'), job('two', 2))}"
    simulation, timeline = run_scenario(tmp_path, spec, PROVISIONED)
    admitted = timeline.lines_of(TimelineEvent.ADMITTED)
    assert admitted == ["31 Admitted one-1", "31 Admitted two-1"]
    (figures,) = report(simulation).topologies
    assert (figures.placed_workloads, figures.placed_pods) == (2, 6)
    assert figures.occupancy == pytest.approx(0.75 * 60 / 91, abs=0.001)


def test_second_pass_is_repeated_until_nodes_exist(tmp_path: Path) -> None:
    node = new_node("new", 20, {"pool": "a", "rack": "r9"})
    change = f"changes: [{{at: 10s, apply: {json.dumps(node)}}}]\n"
    spec = f"{NODES}{change}{workloads(job('one', 9, 'required: rack'))}"
    _, timeline = run_scenario(tmp_path, spec, PROVISIONED)
    # Attempts follow after 1, 2, 4 and 8 seconds.
    assert timeline.lines_of(TimelineEvent.ADMITTED) == ["15 Admitted one-1"]


def test_workload_without_place_at_the_end_is_pending_with_the_refusal_of_its_second_pass(
    tmp_path: Path,
) -> None:
    spec = f"{NODES}{workloads(job('one', 9, 'required: rack'))}"
    simulation, _ = run_scenario(tmp_path, spec, PROVISIONED)
    result = report(simulation)
    assert (result.ending, result.waiting, result.running) == (Ending.STUCK, 1, 0)
    (left,) = result.left_waiting
    assert 'topology "racks" allows to fit only' in left.message


def test_checks_of_workloads_without_topology_admit_at_once(tmp_path: Path) -> None:
    spec = f"admissionChecks: 30s\n{workloads(job('one', 4, 'required: rack'))}"
    _, timeline = run_scenario(tmp_path, spec, PROVISIONED)
    assert timeline.lines_of(TimelineEvent.ADMITTED) == ["30 Admitted one-1"]


def test_node_that_fails_during_checks_is_replaced_after_the_admission(tmp_path: Path) -> None:
    checked = PROVISIONED.replace("admitq.dev/provisioning-request", "example.com/check")
    spec = f"{NODES}admissionChecks: 30s\nchanges: [{deleted('a-1-0')}]\n{workloads(WIDE)}"
    _, timeline = run_scenario(tmp_path, spec, checked)
    assert timeline.lines_of(*ACTED) == ["30 Admitted one-1", "31 Replaced one-1", "91 Finished one-1"]
