"""`admitq simulate racks`: how many racks of what size a scenario needs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from admitq.cli.commands import application
from admitq.core.events import ClusterQueueChanged
from admitq.simulator import Simulation
from admitq.simulator.rack_sizes import RackSize, RackSizing, SizeSearch, SizeTarget
from tests.unit.simulator.stage import write
from tests.unit.simulator.test_topology import NODES, WORLD, job, workloads

MINUTE = 60 * 10**9

SPEC = NODES + workloads(job("wide", 4, "required: rack", arrivals="{fixed: {count: 6}}"))
"""Six jobs of a minute, which fill a rack of 8 CPU each."""

Search = Callable[..., RackSizing]
Command = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, SPEC, WORLD)


def waits_of(result: RackSizing) -> dict[RackSize, float | None]:
    return {each.size: each.wait for each in result.sizes}


def test_all_sizes_are_simulated_without_target(path: Path) -> None:
    result = SizeSearch([path]).find([1, 2, 3, 6], [2])
    assert waits_of(result) == {(1, 2): 300.0, (2, 2): 120.0, (3, 2): 60.0, (6, 2): 0.0}
    assert [each.nodes for each in result.sizes] == [2, 4, 6, 12]
    assert [each.utilisation for each in result.sizes] == [1.0, 1.0, 1.0, 1.0]
    assert (result.smallest, result.is_bisected) == (None, False)


def test_racks_are_bisected_with_target(path: Path) -> None:
    result = SizeSearch([path], target=SizeTarget(wait=MINUTE)).find(range(1, 9), [2])
    assert [each.size.racks for each in result.sizes] == [2, 3, 4, 8]
    assert [each.meets_target for each in result.sizes] == [False, True, True, True]
    assert result.is_bisected
    assert result.smallest is not None
    assert result.smallest.size == (3, 2)


@pytest.mark.parametrize("minutes", range(6))
def test_bisection_finds_the_smallest_of_all_sizes(path: Path, minutes: int) -> None:
    target = SizeTarget(wait=minutes * MINUTE)
    found = SizeSearch([path], target=target).find(range(1, 8), [2, 4])
    every = SizeSearch([path]).find(range(1, 8), [2, 4])
    met = [each for each in every.sizes if each.wait is not None and each.wait <= minutes * 60]
    smallest = min(met, key=lambda each: (each.nodes, each.size))
    assert found.smallest is not None
    assert found.smallest.size == smallest.size


def test_size_without_room_for_jobs_misses_target(path: Path) -> None:
    """A job needs two hosts in one rack."""
    result = SizeSearch([path], target=SizeTarget(wait=60 * MINUTE)).find([1, 9], [1])
    (largest,) = result.sizes
    assert (largest.size, largest.wait, largest.waiting, largest.meets_target) == ((9, 1), None, 6, False)
    assert result.smallest is None


def test_share_in_one_rack_is_a_target(tmp_path: Path) -> None:
    """Two racks of three hosts hold one job each. The third job is in both, unless racks have four hosts."""
    spec = NODES + workloads(job("wide", 4, "preferred: rack", arrivals="{fixed: {count: 3}}"))
    path = write(tmp_path, spec, WORLD)
    result = SizeSearch([path], target=SizeTarget(in_one_rack=1.0)).find([2], [3, 4])
    assert [each.in_one_rack for each in result.sizes] == [pytest.approx(2 / 3), 1.0]
    assert result.smallest is not None
    assert result.smallest.size == (2, 4)


@pytest.mark.parametrize(("scales_quota", "waits"), [(True, [0.0]), (False, [60.0])])
def test_quota_follows_nodes_unless_it_is_kept(
    tmp_path: Path, scales_quota: bool, waits: list[float]
) -> None:
    """Quota is that of two racks. Six jobs fit into six racks only if it grows."""
    world = WORLD.replace("nominalQuota: 100", "nominalQuota: 24")
    path = write(tmp_path, SPEC, world)
    result = SizeSearch([path], scales_quota=scales_quota).find([6], [2])
    assert [each.wait for each in result.sizes] == waits


def test_scaled_quota_keeps_limits_in_proportion_and_later_changes(tmp_path: Path) -> None:
    patch = (
        "changes: [{at: 1s, patch: {kind: ClusterQueue, name: queue, patch: {spec: {cohortName: c, "
        "resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: "
        "[{name: cpu, nominalQuota: 10, borrowingLimit: 4, lendingLimit: 2}]}]}]}}}}]\n"
    )
    quotas: list[tuple[int, int | None, int | None]] = []

    def run(simulation: Simulation) -> None:
        for event in (*simulation.plan.start, *(event for _, event in simulation.plan.changes)):
            if isinstance(event, ClusterQueueChanged):
                ((_, quota),) = event.cluster_queue.resource_groups[0].flavors[0].resources
                quotas.append((quota.nominal, quota.borrowing_limit, quota.lending_limit))
        simulation.run()

    SizeSearch([write(tmp_path, SPEC + patch, WORLD)], run=run).find([3], [2])
    assert quotas == [(150_000, None, None), (15_000, 6_000, 3_000)]


@pytest.fixture
def simulate_racks(path: Path) -> Command:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(
            application, ["simulate", "racks", str(path), *arguments], env={"COLUMNS": "120"}
        )

    return invoke


def test_table_shows_sizes_and_the_smallest(simulate_racks: Command) -> None:
    result = simulate_racks("--racks", "1..4", "--hosts", "2", "--max-wait", "1m")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["3", "2", "6", "1m", "100.0%", "100.0%", "0", "met"] in lines
    assert "wait p95 at most 1m: the smallest size is 3 racks of 2 hosts, 6 nodes" in result.stdout
    assert "More racks are assumed to meet each target that fewer meet." in result.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_document_has_sizes_target_and_smallest(simulate_racks: Command, form: str) -> None:
    result = simulate_racks("--racks", "2,3", "--hosts", "2", "--max-wait", "1m", "--output", form)
    document = json.loads(result.stdout) if form == "json" else yaml.safe_load(result.stdout)
    size = {
        "racks": 3,
        "hosts": 2,
        "nodes": 6,
        "waitP95": 60.0,
        "utilisation": 1.0,
        "inOneRack": 1.0,
        "waiting": 0,
        "meetsTarget": True,
    }
    assert document == {
        "scenario": "scenario",
        "seed": 1,
        "target": {"maxWait": 60.0, "minInOneRack": None},
        "bisected": False,
        "quotaScaled": True,
        "sizes": [{**size, "racks": 2, "nodes": 4, "waitP95": 120.0, "meetsTarget": False}, size],
        "smallest": size,
    }


def test_exit_status_is_1_when_no_size_meets_the_target(simulate_racks: Command) -> None:
    result = simulate_racks("--racks", "1", "--hosts", "2", "--max-wait", "1m", "--min-in-one-rack", "0.5")
    assert result.exit_code == 1
    assert "wait p95 at most 1m, at least 50.0% in one rack: no size meets the target" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--racks", "4..", "--hosts", "2"],
            "--racks: '4..': write numbers and ranges, such as 4,8 or 4..20",
        ),
        (["--racks", "4..2", "--hosts", "2"], "--racks: '4..2': write numbers and ranges"),
        (["--racks", "0", "--hosts", "2"], "--racks: '0': write numbers"),
        (["--racks", "1..2000", "--hosts", "2"], "--racks: '1..2000': give at most 1000 numbers"),
        (["--racks", "1", "--hosts", "x"], "--hosts: 'x': write numbers"),
        (["--racks", "1", "--hosts", "2", "--max-wait", "soon"], "--max-wait: "),
        (
            ["--racks", "1", "--hosts", "2", "--nodes", "b"],
            "--nodes: there is no group of nodes b: choose one of a",
        ),
    ],
)
def test_invalid_options_are_reported(simulate_racks: Command, arguments: list[str], message: str) -> None:
    result = simulate_racks(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", "spec.nodes: is required: write the nodes in compact form"),
        (
            "nodes: [{name: a, hosts: 1, allocatable: {cpu: 1}}]\n",
            "spec.nodes[0].domains: is required: the last level is that of racks",
        ),
        (
            "nodes: [{name: a, hosts: 1, allocatable: {}}, {name: b, hosts: 1, allocatable: {}}]\n",
            "--nodes: there are several groups of nodes: choose one of a, b",
        ),
    ],
)
def test_scenario_without_racks_is_reported(
    simulate_racks: Command, path: Path, nodes: str, message: str
) -> None:
    write(path.parent, SPEC.replace(NODES, nodes), WORLD)
    result = simulate_racks("--racks", "1", "--hosts", "2")
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
