"""`admitq simulate racks --from`: how many racks the workloads of a cluster need."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from admitq.cli.commands import application
from admitq.cli.present_cluster import ClusterSource, read_cluster
from admitq.core.topology.domains import HOST_NAME
from admitq.simulator.cluster_racks import find_cluster_racks
from admitq.simulator.rack_sizes import SizeSearch
from tests.unit.controllers.builders import admitted, workload
from tests.unit.simulator.stage import scenario
from tests.unit.simulator.test_present import stored, write

MINUTE = 60 * 10**9
LEVELS = ("block", "rack", HOST_NAME)
PLACED = {
    "name": "main",
    "count": 3,
    "flavors": {"cpu": "f"},
    "resourceUsage": {"cpu": "3"},
    "topologyAssignment": {
        "levels": [HOST_NAME],
        "slices": [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": "x"}],
                "podCounts": {"universal": 3},
            }
        ],
    },
}


def node(name: str, rack: str, cpu: str = "2", **labels: str) -> dict[str, Any]:
    placed = {"block": rack[0], "rack": rack, HOST_NAME: name, "pool": "a", "zone": "z", **labels}
    taint = {"key": "gpu", "effect": "NoSchedule"}
    parts = {"spec": {"taints": [taint]}, "status": {"allocatable": {"cpu": cpu, "pods": "9"}}}
    return stored("Node", {"metadata": {"labels": placed}, **parts}, name, "v1")


def cluster(folder: Path, *more: dict[str, Any], topology: str = "t") -> Path:
    """Write a cluster with three racks in two blocks, in which 3 CPUs of 4 are used and 3 are waited for."""
    levels = [{"nodeLabel": label} for label in LEVELS]
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    flavor = {"nodeLabels": {"pool": "a"}, "topologyName": topology, "tolerations": tolerations}
    admission = {"clusterQueue": "cq", "podSetAssignments": [PLACED]}
    return write(
        folder,
        [
            stored("Topology", {"spec": {"levels": levels}}, "t"),
            stored("ResourceFlavor", {"spec": flavor}, "f"),
            node("a", "1-1"),
            node("b", "1-1"),
            node("c", "1-2", cpu="1"),
            node("d", "2-1"),
            node("other", "2-2", pool="b"),
            stored("Workload", admitted(admission=admission), "running"),
            stored("Workload", workload(), "waiting"),
            *more,
        ],
    )


def search(dump: Path, *files: Path, **options: Any) -> SizeSearch:
    present = read_cluster(ClusterSource((dump,)), 30 * MINUTE)
    return SizeSearch([*files], present=present, seed=1, **options)


def test_group_has_the_frequent_shape_and_average_domains(tmp_path: Path) -> None:
    present = read_cluster(ClusterSource((cluster(tmp_path),)), MINUTE)
    racks = find_cluster_racks(present, None)
    group = racks.group
    assert group.name == "f"
    # Two blocks with three racks, and four hosts in these.
    assert [(level.label, level.count) for level in group.domains] == [("block", 2), ("rack", 2)]
    assert group.hosts == 2
    assert group.allocatable == {"cpu": "2", "pods": "9"}
    assert group.labels == {"pool": "a", "zone": "z"}
    assert group.taints == ({"key": "gpu", "effect": "NoSchedule"},)
    kept = [each.value for each in racks.present.files.manifests if each.value["kind"] == "Node"]
    assert [each["metadata"]["name"] for each in kept] == ["other"]
    assert all(each.workload.admission is None for each in racks.present.workloads)


def test_workloads_of_the_cluster_run_in_other_racks(tmp_path: Path) -> None:
    """Four hosts have the quota of the cluster, for one of the workloads at a time; eight for both."""
    result = search(cluster(tmp_path)).find([1, 2], [2])
    assert [(each.size, each.nodes) for each in result.sizes] == [((1, 2), 4), ((2, 2), 8)]
    fewer, more = (each.wait for each in result.sizes)
    assert fewer is not None
    assert fewer > 0
    assert more == 0
    (kept,) = search(cluster(tmp_path), scales_quota=False).find([2], [2]).sizes
    assert kept.wait == fewer


def test_scenario_adds_workloads(tmp_path: Path) -> None:
    later = tmp_path / "later.yaml"
    more = "workloads: [{name: more, queue: ns/lq, requests: {cpu: 1}, runTime: 1m}]"
    later.write_text(scenario(more))
    result = search(cluster(tmp_path), later).find([2], [2])
    assert [each.nodes for each in result.sizes] == [8]


def test_nodes_of_a_scenario_are_resized_instead(tmp_path: Path) -> None:
    later = tmp_path / "later.yaml"
    nodes = "nodes: [{name: n, domains: [{label: block, count: 1}, {label: rack, count: 1}], hosts: 1, "
    later.write_text(scenario(f"{nodes}allocatable: {{cpu: 4}}, labels: {{pool: a}}}}]"))
    result = search(cluster(tmp_path), later).find([3], [1])
    assert [each.nodes for each in result.sizes] == [4 + 3]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application, ["simulate", "racks", *map(str, arguments)])


def test_command_begins_with_a_dump(tmp_path: Path) -> None:
    result = run("--from", cluster(tmp_path), "--racks", "2", "--hosts", "2", "--output", "json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert [each["nodes"] for each in document["sizes"]] == [8]


@pytest.mark.parametrize(
    ("second", "arguments", "message"),
    [
        pytest.param({}, ["--nodes", "g"], "--nodes: no flavor g has racks: choose one of f", id="unknown"),
        pytest.param(
            {"nodeLabels": {"pool": "b"}, "topologyName": "t"},
            [],
            "--nodes: several flavors have racks: choose one of f, g",
            id="several",
        ),
    ],
)
def test_flavor_without_racks_or_several_are_reported(
    tmp_path: Path, second: dict[str, Any], arguments: list[str], message: str
) -> None:
    dump = cluster(tmp_path, *([stored("ResourceFlavor", {"spec": second}, "g")] if second else []))
    result = run("--from", dump, "--racks", "2", "--hosts", "2", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_cluster_without_racks_is_reported(tmp_path: Path) -> None:
    result = run("--from", cluster(tmp_path, topology="missing"), "--racks", "2", "--hosts", "2")
    assert result.exit_code == 2
    assert "the cluster has no flavor with nodes and a topology with racks and hosts" in result.stderr


def test_command_without_files_and_cluster_is_reported() -> None:
    result = run("--racks", "2", "--hosts", "2")
    assert result.exit_code == 2
