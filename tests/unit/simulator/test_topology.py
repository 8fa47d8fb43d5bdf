"""Scenarios with nodes: pods are placed in topologies as on a cluster."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.core.settings import Placement
from admitq.simulator import InputError, Simulation, read, report, shipped_scenarios
from admitq.simulator.plots import plots
from admitq.simulator.run import Ending
from admitq.simulator.run_charts import charts
from admitq.simulator.series import Grid, Level
from admitq.simulator.timeline import TimelineEvent
from admitq.simulator.topology_measures import FlavorMeter, TopologyMeasures
from admitq.translate.settings import configured_core_settings
from admitq_api.configuration import load_configuration
from tests.unit.simulator.stage import plan, run_scenario, write

WORLD = """\
apiVersion: admitq.dev/v1beta2
kind: Topology
metadata: {name: racks}
spec:
  levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]
---
apiVersion: admitq.dev/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec:
  nodeLabels: {pool: a}
  topologyName: racks
---
apiVersion: admitq.dev/v1beta2
kind: ClusterQueue
metadata: {name: queue}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: default, resources: [{name: cpu, nominalQuota: 100}]}]
---
apiVersion: admitq.dev/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team}
spec: {clusterQueue: queue}
"""

NODES = (
    "nodes: [{name: a, domains: [{label: rack, count: 2}], hosts: 2, allocatable: {cpu: 4}, "
    "labels: {pool: a}}]\n"
)
"""Two racks with two hosts of 4 CPU each."""

NODE = """\
---
apiVersion: v1
kind: Node
metadata: {name: extra, labels: {pool: a, rack: r9}}
status: {allocatable: {cpu: 8, pods: 10}}
"""


def job(name: str, pods: int, request: str = "", **more: str) -> str:
    """Return a class with one workload of pods with 2 CPU, which runs for a minute."""
    topology = f", topologyRequest: {{{request}}}" if request else ""
    others = "".join(f", {key}: {value}" for key, value in more.items())
    fixed = f"name: {name}, queue: team/main, pods: {pods}, requests: {{cpu: 2}}, runTime: 1m"
    return f"  - {{{fixed}{topology}{others}}}\n"


def workloads(*classes: str) -> str:
    return f"workloads:\n{''.join(classes)}"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        pytest.param(
            [job("big", 4, "required: rack"), job("next", 2, "required: rack")],
            {"big-1": 0, "next-1": 0},
            id="each job gets a rack",
        ),
        pytest.param(
            [
                job("one", 3, "required: rack"),
                job("two", 3, "required: rack"),
                job("wide", 2, "required: rack"),
            ],
            {"one-1": 0, "two-1": 0, "wide-1": 60},
            id="job without room in one rack waits despite quota",
        ),
        pytest.param(
            [
                job("one", 3, "required: rack"),
                job("two", 3, "required: rack"),
                job("wide", 2, "preferred: rack"),
            ],
            {"one-1": 0, "two-1": 0, "wide-1": 0},
            id="preferred rack is not needed",
        ),
        pytest.param(
            [job("all", 8, "podSetSliceRequiredTopology: rack, podSetSliceSize: 4")],
            {"all-1": 0},
            id="slices are in one rack each",
        ),
        pytest.param(
            [
                job(
                    "all",
                    8,
                    "podsetSliceRequiredTopologyConstraints: [{topology: rack, size: 4}, "
                    "{topology: kubernetes.io/hostname, size: 2}]",
                )
            ],
            {"all-1": 0},
            id="slices have smaller slices",
        ),
        pytest.param([job("none", 9)], {}, id="job without request is placed too"),
    ],
)
def test_workloads_are_admitted_when_topology_has_room(
    tmp_path: Path, classes: list[str], expected: dict[str, int]
) -> None:
    _, timeline = run_scenario(tmp_path, NODES + workloads(*classes), WORLD)
    lines = timeline.lines_of(TimelineEvent.ADMITTED)
    assert {line.split()[2]: int(line.split()[0]) for line in lines} == expected


def admissions(folder: Path, spec: str, world: str = WORLD) -> list[str]:
    _, timeline = run_scenario(folder, spec, world)
    return timeline.lines_of(TimelineEvent.ADMITTED)


def message_at_end(folder: Path, spec: str, world: str = WORLD) -> str:
    simulation, _ = run_scenario(folder, spec, world)
    (left,) = report(simulation).left_waiting
    return left.message


def test_workload_with_unknown_level_waits_with_message_of_cluster(tmp_path: Path) -> None:
    message = message_at_end(tmp_path, NODES + workloads(job("one", 2, "required: row")))
    assert message.endswith('Flavor "default" does not contain the requested level')


def test_nodes_without_label_of_level_do_not_belong_to_topology(tmp_path: Path) -> None:
    bare = "nodes: [{name: a, hosts: 4, allocatable: {cpu: 4}, labels: {pool: a}}]\n"
    message = message_at_end(tmp_path, bare + workloads(job("one", 2, "required: rack")))
    assert 'topology "racks"' in message
    assert "Total nodes: 0" in message


def test_flavor_with_topology_counts_by_quota_without_nodes(tmp_path: Path) -> None:
    assert admissions(tmp_path, workloads(job("one", 40, "required: rack")), WORLD) == ["0 Admitted one-1"]


def test_manifest_of_node_adds_room(tmp_path: Path) -> None:
    spec = workloads(job("one", 4, "required: rack"))
    assert admissions(tmp_path, spec, WORLD + NODE) == ["0 Admitted one-1"]


@pytest.mark.parametrize(
    ("status", "is_admitted"),
    [
        ("{}", True),
        ("{conditions: [{type: Ready, status: 'False'}]}", False),
        ("{conditions: []}", False),
    ],
)
def test_manifest_of_node_is_ready_unless_it_states_conditions(
    tmp_path: Path, status: str, is_admitted: bool
) -> None:
    stated = yaml.safe_load(status)
    node = yaml.safe_load(NODE.removeprefix("---\n"))
    node["status"] |= stated
    world = f"{WORLD}---\n{yaml.safe_dump(node)}"
    assert bool(admissions(tmp_path, workloads(job("one", 4, "required: rack")), world)) is is_admitted


@pytest.mark.parametrize(
    ("change", "at"),
    [
        pytest.param(
            "{at: 10s, apply: {apiVersion: v1, kind: Node, metadata: {name: new, "
            "labels: {pool: a, rack: r9}}, status: {allocatable: {cpu: 20, pods: 10}}}}",
            10,
            id="created",
        ),
        pytest.param(
            "{at: 10s, patch: {kind: Node, name: a-0-0, patch: {status: {allocatable: {cpu: 20}}}}}",
            10,
            id="grows",
        ),
    ],
)
def test_waiting_workload_is_placed_when_node_changes(tmp_path: Path, change: str, at: int) -> None:
    spec = f"{NODES}changes: [{change}]\n{workloads(job('one', 10, 'required: rack'))}"
    assert admissions(tmp_path, spec) == [f"{at} Admitted one-1"]


def test_node_can_come_first_by_a_change(tmp_path: Path) -> None:
    node = json.dumps(yaml.safe_load(NODE.removeprefix("---\n")))
    spec = f"changes: [{{at: 10s, apply: {node}}}]\n{workloads(job('one', 4, 'required: rack'))}"
    assert admissions(tmp_path, spec) == ["10 Admitted one-1"]


def test_deleted_node_has_no_room(tmp_path: Path) -> None:
    changes = "changes: [{at: 10s, delete: {kind: Node, name: a-0-0}}]\n"
    late = job("late", 4, "required: rack", arrivals="{at: [20s, 20s]}")
    spec = f"{NODES}{changes}{workloads(late)}"
    assert admissions(tmp_path, spec) == ["20 Admitted late-1", "80 Admitted late-2"]


def test_jobs_of_trace_request_topology(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "submit_time,queue,pods,requests.cpu,run_time\n0,team/main,3,2,60\n0,team/main,3,2,60\n0,team/main,2,2,60\n"
    )
    spec = f"{NODES}traces: [{{name: t, file: jobs.csv, topologyRequest: {{required: rack}}}}]\n"
    assert admissions(tmp_path, spec) == ["0 Admitted t-1", "0 Admitted t-2", "60 Admitted t-3"]


def test_placement_settings_are_those_of_default_gates(tmp_path: Path) -> None:
    configuration = load_configuration("{}")
    defaults = configured_core_settings(configuration, configuration.create_feature_gates())
    settings = plan(tmp_path, NODES + workloads(job("one", 1)), WORLD).settings
    assert settings.placement == defaults.placement == Placement()


def test_configuration_without_gate_places_no_pods(tmp_path: Path) -> None:
    gate = (
        "---\napiVersion: config.admitq.dev/v1beta2\nkind: Configuration\n"
        "featureGates: {TopologyAwareScheduling: false}\n"
    )
    spec = NODES + workloads(job("one", 40))
    assert plan(tmp_path, spec, WORLD + gate).settings.placement is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(NODES.replace("cpu: 4", "cpu: many"), "spec.nodes[0].allocatable.cpu: ", id="quantity"),
        pytest.param(
            NODES.replace("hosts: 2", "hosts: 0"),
            "spec.nodes[0].hosts: 0: must be greater than or equal to 1",
            id="no hosts",
        ),
        pytest.param(
            NODES.replace("pool: a", "rack: a"),
            "spec.nodes[0]: the nodes have the label rack twice: remove one of the two",
            id="label of a level",
        ),
        pytest.param(
            NODES.replace("hosts: 2", "hosts: 2, taints: [{key: 3}]"), "spec.nodes[0].taints", id="taint"
        ),
        pytest.param(
            NODES.replace("hosts: 2", "racks: 2"), "spec.nodes[0].racks: unknown field", id="unknown field"
        ),
        pytest.param(
            "nodes: [{name: a, hosts: 1, allocatable: {}}, {name: a, hosts: 1, allocatable: {}}]\n",
            "spec: several groups of nodes have the name a",
            id="two groups with one name",
        ),
    ],
)
def test_invalid_nodes_are_reported_with_field(tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, spec + workloads(job("one", 1)), WORLD)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("request_of_class", "message"),
    [
        (
            "required: rack, preferred: rack",
            "topologyRequest: set at most one of required, preferred, unconstrained",
        ),
        ("podSetSliceRequiredTopology: rack", "podset-slice-size"),
        ("podSetSliceRequiredTopology: rack, podSetSliceSize: 9", "must not be greater than pod set count 2"),
        ("required: 'a b'", "spec.workloads[0]"),
    ],
)
def test_invalid_topology_request_is_reported(tmp_path: Path, request_of_class: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, NODES + workloads(job("one", 2, request_of_class)), WORLD)
    assert message in str(error.value)


def test_explicit_node_with_name_of_group_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Node a-0-0 exists already"):
        read([write(tmp_path, NODES + workloads(job("one", 1)), WORLD + NODE.replace("extra", "a-0-0"))])


# --- measurements ---------------------------------------------------------------------------------


def figures_of(folder: Path, spec: str) -> dict[str, Any]:
    simulation, _ = run_scenario(folder, spec, WORLD)
    (figures,) = report(simulation).to_dict()["topologies"]
    return figures


def test_occupancy_of_racks_is_what_workloads_use_over_time(tmp_path: Path) -> None:
    """One rack is full during the whole run, the other one is empty."""
    spec = f"{NODES}{workloads(job('one', 4, 'required: rack'))}"
    occupancy = figures_of(tmp_path, spec)["occupancy"]
    assert occupancy == {
        "level": "rack",
        "ofResource": "cpu",
        "mean": 0.5,
        "racks": [{"name": "a-0", "mean": 1.0, "peak": 1.0}, {"name": "a-1", "mean": 0.0, "peak": 0.0}],
    }


def test_share_across_racks_counts_workloads_with_several_pods(tmp_path: Path) -> None:
    spec = NODES + workloads(
        job("single", 1, arrivals="{at: [5m]}"),
        job("near", 2, "required: rack"),
        job("wide", 6, "preferred: rack", arrivals="{at: [2m]}"),
    )
    assert figures_of(tmp_path, spec)["placed"] == {
        "workloads": 2,
        "pods": 8,
        "workloadsAcrossRacks": 0.5,
        "podsAcrossRacks": 0.75,
    }


def test_room_is_the_largest_job_of_the_common_shape_in_one_domain(tmp_path: Path) -> None:
    """Of the 8 pods that fit, the job takes 3 in one rack during the whole run."""
    room = figures_of(tmp_path, NODES + workloads(job("one", 3, "required: rack")))["room"]
    assert room["podRequests"] == {"cpu": 2.0}
    assert room["free"] == 5.0
    assert [(each["name"], each["largestMean"], each["shareOfFree"]) for each in room["levels"]] == [
        ("rack", 4.0, 0.8),
        ("kubernetes.io/hostname", 2.0, 0.4),
    ]


def test_report_without_nodes_has_no_topologies(tmp_path: Path) -> None:
    simulation, _ = run_scenario(tmp_path, workloads(job("one", 3)), WORLD)
    assert "topologies" not in report(simulation).to_dict()
    assert not any(name.startswith(("racks", "room")) for name in charts(simulation))


def test_measurements_equal_a_new_computation_when_nodes_and_topology_change(tmp_path: Path) -> None:
    changes = (
        "changes:\n"
        "  - {at: 10s, delete: {kind: Node, name: a-0-0}}\n"
        "  - {at: 20s, patch: {kind: Node, name: a-1-0, patch: {spec: {unschedulable: true}}}}\n"
        "  - {at: 30s, patch: {kind: Node, name: a-1-0, patch: {spec: {unschedulable: false}}}}\n"
        "  - {at: 70s, delete: {kind: Topology, name: racks}}\n"
        f"  - {{at: 80s, apply: {json.dumps(next(yaml.safe_load_all(WORLD)))}}}\n"
    )
    arrivals = "{fixed: {count: 6, every: 15s}}"
    spec = f"{NODES}{changes}{workloads(job('one', 2, 'preferred: rack', arrivals=arrivals))}"
    simulation = Simulation(plan(tmp_path, spec, WORLD))

    def check(running: Simulation) -> None:
        measures = running.topologies
        fresh = TopologyMeasures(running.state.queries.world, Grid(), measures.pods)
        fresh.settle(running.now)
        for flavor, expected in fresh.flavors.items():
            assert levels_of(measures.flavors[flavor]) == levels_of(expected)
            for values, rack in expected.racks.items():
                known = measures.flavors[flavor].racks[values]
                assert amounts_of(known.used) == amounts_of(rack.used)
                assert amounts_of(known.offered) == amounts_of(rack.offered)

    simulation.run(check, every=1)
    assert simulation.measures.all.finished == 6


def levels_of(meter: FlavorMeter) -> list[tuple[int, int]]:
    return [(level.largest.value, level.total.value) for level in meter.levels]


def amounts_of(levels: Mapping[str, Level]) -> dict[str, int]:
    return {resource: level.value for resource, level in levels.items() if level.value}


def test_pods_of_the_most_frequent_kind_of_jobs_with_several_pods_are_measured(tmp_path: Path) -> None:
    spec = "until: 1h\n" + workloads(
        job("single", 1, arrivals="{fixed: {count: 500}}"),
        job("few", 3, arrivals="{at: [1s, 2s]}"),
        job("many", 5, arrivals="{poisson: {every: 1m}}"),
        job("late", 7, arrivals="{poisson: {every: 10s, start: 59m}}"),
    )
    pods = plan(tmp_path, NODES + spec, WORLD).common_pods
    assert pods is not None
    assert pods.count == 5


def test_charts_show_racks_and_room_over_time(tmp_path: Path) -> None:
    arrivals = "{at: [0s, 2m]}"
    spec = f"{NODES}{workloads(job('one', 4, 'required: rack', arrivals=arrivals))}"
    simulation, _ = run_scenario(tmp_path, spec, WORLD)
    shown = charts(simulation)
    cells = shown["racks-default"]["data"]["values"]
    by_rack = {rack: [cell for cell in cells if cell["rack"] == rack] for rack in ("a-0", "a-1")}
    assert [cell["occupancy"] for cell in by_rack["a-1"]] == [0.0]
    empty = sum(cell["end"] - cell["time"] for cell in by_rack["a-0"] if cell["occupancy"] == 0)
    assert empty == pytest.approx(1, abs=0.05)
    for row in by_rack.values():
        assert [cell["end"] for cell in row[:-1]] == [cell["time"] for cell in row[1:]]
        assert (row[0]["time"], row[-1]["end"]) == (0, 3)
    lines = {row["line"] for row in shown["room-default"]["data"]["values"]}
    assert lines == {
        "all nodes together",
        "one domain of rack",
        "one domain of kubernetes.io/hostname",
    }
    assert all("svg" in svg for svg in plots(simulation).values())


def test_tables_show_room_and_placements(tmp_path: Path) -> None:
    path = write(tmp_path, NODES + workloads(job("wide", 6, "preferred: rack")), WORLD)
    result = CliRunner().invoke(application, ["simulate", str(path)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "Level of racks" in result.stdout
    assert "1 placements of several pods, 100.0% in more than one domain of rack" in result.stdout
    assert "2 of these domains" in result.stdout


def test_shipped_topology_runs_with_fewer_jobs(tmp_path: Path) -> None:
    text = shipped_scenarios()["topology-640"].read_text()
    for large, small in (
        ("count: 70", "count: 4"),
        ("count: 20", "count: 2"),
        ("570s, count: 10", "570s, count: 2"),
    ):
        text = text.replace(large, small)
    path = tmp_path / "topology-640.yaml"
    path.write_text(text)
    simulation = Simulation(read([path]))
    simulation.run()
    result = report(simulation)
    (figures,) = result.topologies
    assert (result.ending, result.all.finished) == (Ending.FINISHED, 240)
    assert (figures.nodes, len(figures.racks), figures.placed_workloads) == (640, 10, 240)
