"""Simulations that begin with the stored objects of a cluster."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.cli.present_cluster import ClusterSource, read_cluster
from admitq.simulator import InputError, Simulation, read
from admitq.simulator.clock import START
from admitq.simulator.present import RUNNING, WAITING
from tests.unit.controllers.builders import NAMES, admitted, condition, instant, local_queue, workload
from tests.unit.simulator.stage import RecordedTimeline, scenario

MINUTE = 60 * 10**9
ASSIGNED = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}
BIGGER = """\
apiVersion: admitq.dev/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: f, resources: [{name: cpu, nominalQuota: 8}]}]
"""


def stored(kind: str, obj: dict[str, Any], name: str, api_version: str = NAMES.api_version) -> dict[str, Any]:
    metadata = {
        "creationTimestamp": "2027-01-15T08:00:00Z",
        **obj.get("metadata", {}),
        "name": name,
        "uid": f"uid-{name}",
    }
    return {"spec": {}, **obj, "apiVersion": api_version, "kind": kind, "metadata": metadata}


def workloads() -> list[dict[str, Any]]:
    """Return a workload that runs with 3 of 4 CPUs, and one that waits for 3."""
    limited = {"maximumExecutionTimeSeconds": 600}
    return [
        stored("Workload", admitted(admission=ADMISSION, spec=limited), "running"),
        stored("Workload", workload(), "waiting"),
        stored("Workload", workload(condition("Finished", True, "Succeeded")), "finished"),
    ]


def write(folder: Path, items: list[dict[str, Any]]) -> Path:
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 4}]}],
        }
    ]
    objects = [
        stored("ResourceFlavor", {}, "f"),
        stored("ClusterQueue", {"spec": {"namespaceSelector": {}, "resourceGroups": groups}}, "cq"),
        stored("Namespace", {}, "ns", "v1"),
        stored("LocalQueue", local_queue(), "lq"),
        *items,
    ]
    path = folder / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def run(dump: Path, *files: Path, run_time: int = 30 * MINUTE) -> tuple[Simulation, RecordedTimeline]:
    present = read_cluster(ClusterSource((dump,)), run_time)
    timeline = RecordedTimeline()
    simulation = Simulation(read([*files], seed=1, present=present), timeline)
    simulation.run()
    return simulation, timeline


def test_workload_waits_until_the_one_with_quota_ends(tmp_path: Path) -> None:
    simulation, timeline = run(write(tmp_path, workloads()))
    events = [line.split()[1:] for line in timeline.lines]
    assert events == [
        ["Submitted", "running"],
        ["Admitted", "running"],
        ["Submitted", "waiting"],
        ["Finished", "running"],
        ["Admitted", "waiting"],
        ["Finished", "waiting"],
    ]
    end, admission, last = (float(line.split()[0]) for line in timeline.lines[3:])
    assert 0 < end == admission <= 600
    assert last == pytest.approx(admission + 1800, abs=0.1)
    assert [source.name for source in simulation.plan.sources] == [RUNNING, WAITING]


def test_workload_with_quota_has_no_wait_in_the_report(tmp_path: Path) -> None:
    simulation, _ = run(write(tmp_path, workloads()))
    waits = {name: [*counts.waits] for name, counts in simulation.measures.by_class.items()}
    assert waits[RUNNING] == []
    assert len(waits[WAITING]) == 1


def test_manifest_replaces_an_object_of_the_cluster(tmp_path: Path) -> None:
    bigger = tmp_path / "bigger.yaml"
    bigger.write_text(BIGGER)
    _, timeline = run(write(tmp_path, workloads()), bigger)
    assert timeline.lines[3] == "0 Admitted waiting"


def test_scenario_adds_workloads_to_those_of_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        scenario(
            "workloads:\n"
            "  - {name: later, queue: ns/lq, requests: {cpu: 1}, runTime: 1m, arrivals: {at: [10s]}}"
        )
    )
    simulation, timeline = run(write(tmp_path, workloads()), path)
    assert "10 Admitted later-1" in timeline.lines
    assert simulation.workloads.submitted == 3


def test_evicted_workload_releases_its_quota(tmp_path: Path) -> None:
    evicted = condition("Evicted", True, "Preempted")
    items = [stored("Workload", admitted(evicted, admission=ADMISSION), "leaving")]
    _, timeline = run(write(tmp_path, items))
    assert [line.split()[1] for line in timeline.lines] == ["Submitted", "Stopped", "Admitted", "Finished"]


def topology_objects(*, free: str) -> list[dict[str, Any]]:
    """Return a flavor with a topology, one node of 4 CPU, and a pod that leaves only some CPU free."""
    levels = {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}
    node = {
        "metadata": {"labels": {"kubernetes.io/hostname": "n1", "pool": "a"}},
        "status": {
            "allocatable": {"cpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    requests = {"cpu": f"{4 - int(free)}"}
    pod = {
        "metadata": {"namespace": "kube-system"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return [
        stored("ResourceFlavor", {"spec": {"nodeLabels": {"pool": "a"}, "topologyName": "hosts"}}, "f"),
        stored("Topology", levels, "hosts"),
        stored("Node", node, "n1", "v1"),
        stored("Pod", pod, "agent", "v1"),
    ]


@pytest.mark.parametrize(("free", "is_admitted"), [("3", True), ("2", False)])
def test_nodes_and_other_pods_of_the_cluster_decide_where_pods_have_room(
    tmp_path: Path, free: str, is_admitted: bool
) -> None:
    waiting = stored("Workload", workload(), "waiting")
    _, timeline = run(write(tmp_path, [waiting, *topology_objects(free=free)]))
    assert ("0 Admitted waiting" in timeline.lines) is is_admitted


def test_flavor_with_topology_counts_by_quota_when_nodes_are_not_known(tmp_path: Path) -> None:
    flavor, topology, *_ = topology_objects(free="0")
    dump = write(tmp_path, [stored("Workload", workload(), "waiting"), flavor, topology])
    _, timeline = run(dump)
    assert "0 Admitted waiting" in timeline.lines


def test_unknown_run_times_are_a_note(tmp_path: Path) -> None:
    present = read_cluster(ClusterSource((write(tmp_path, workloads()),)), MINUTE)
    assert present.notes == ("the run times of 1 workloads are not known: --run-time sets them",)
    known, unknown = present.workloads
    assert (known.has_estimate, unknown.has_estimate) == (True, False)


def test_times_are_moved_to_the_virtual_clock(tmp_path: Path) -> None:
    dump = write(tmp_path, workloads())
    os.utime(dump, ns=(instant(60), instant(60)))
    present = read_cluster(ClusterSource((dump,)), MINUTE)
    running = present.workloads[0]
    assert running.elapsed == MINUTE
    assert running.workload.reserved_at == START - MINUTE


@pytest.mark.parametrize(
    ("path", "message"),
    [("missing.json", "--from: missing.json: cannot be read"), ("empty.yaml", "--from: no objects in")],
)
def test_objects_that_cannot_be_read_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.yaml").write_text("")
    with pytest.raises(InputError) as error:
        read_cluster(ClusterSource((Path(path),)), MINUTE)
    assert str(error.value).startswith(message)


def test_cluster_without_kubeconfig_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--from-cluster: "):
        read_cluster(ClusterSource(kubeconfig=tmp_path / "missing"), MINUTE)


def compared(*words: str) -> dict[str, Any]:
    outcome = CliRunner().invoke(application, ["simulate", "compare", *words, "--output", "json"])
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_two_settings_are_compared_with_the_workloads_of_a_cluster(tmp_path: Path) -> None:
    dump = write(tmp_path, workloads())
    same, bigger = tmp_path / "same.yaml", tmp_path / "bigger.yaml"
    same.write_text(BIGGER.replace("nominalQuota: 8", "nominalQuota: 4"))
    bigger.write_text(BIGGER)
    with_cluster = compared(str(bigger), "--from", str(dump), "--seed", "1")
    assert (with_cluster["jobs"]["same"], with_cluster["jobs"]["earlier"]) == (2, 1)
    assert (
        compared(str(same), str(bigger), "--from", str(dump), "--seed", "1")["jobs"] == (with_cluster["jobs"])
    )
    reverse = compared(str(bigger), str(same), "--from", str(dump), "--seed", "1")["jobs"]
    assert (reverse["same"], reverse["later"]) == (2, 1)


def test_single_file_is_compared_only_with_a_cluster(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(application, ["simulate", "compare", "preemption"])
    assert outcome.exit_code == 2
    assert "give two files or shipped scenarios" in outcome.output
