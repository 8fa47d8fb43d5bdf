"""Scenarios with nodes: pods are placed in topologies as on a cluster."""

import json
from pathlib import Path

import pytest
import yaml

from admitq.core.settings import Placement
from admitq.simulator import InputError, read, report
from admitq.simulator.timeline import TimelineEvent
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
