"""`admitq simulate compare` of two runs with nodes: the figures and charts of topologies."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.simulator import Simulation, read
from admitq.simulator.comparison_charts import comparison_charts
from tests.unit.simulator.stage import scenario, write
from tests.unit.simulator.test_topology import NODES, WORLD, job, workloads

SPEC = NODES + workloads(job("wide", 6, "preferred: rack"))
WIDER = SPEC.replace("hosts: 2", "hosts: 4")
FAILS = SPEC.replace("workloads:", "changes: [{at: 10s, delete: {kind: Node, name: a-1-0}}]\nworkloads:")


def lines_of_table(folder: Path, first: str, second: str) -> list[str]:
    """Return the lines of the comparison, with single spaces."""
    a = write(folder, first, WORLD)
    b = folder / "second.yaml"
    b.write_text(f"{scenario(second)}---\n{WORLD}")
    result = CliRunner().invoke(application, ["simulate", "compare", str(a), str(b)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.stderr
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "line",
    [
        "default nodes 4 8 +4 +100.0%",
        "racks 2 2 0 0%",
        "racks used 75.0% 37.5% -37.5% -50.0%",
        "placements 1 1 0 0%",
        "in several racks 100.0% 0.0% -100.0% -100.0%",
        "fit in all 2 10 +8 +400.0%",
        "largest job in one rack 2 8 +6 +300.0%",
        "largest job in one kubernetes.io/hostname 2 2 0 0%",
    ],
)
def test_table_shows_topologies_of_both_runs(tmp_path: Path, line: str) -> None:
    assert line in lines_of_table(tmp_path, SPEC, WIDER)


def test_flavor_of_one_run_has_no_figures_of_the_other(tmp_path: Path) -> None:
    without_nodes = workloads(job("wide", 6, "preferred: rack"))
    lines = lines_of_table(tmp_path, without_nodes, SPEC)
    assert "default nodes - 4 - -" in lines


def test_table_shows_failures_of_nodes_only_if_there_are_any(tmp_path: Path) -> None:
    lines = lines_of_table(tmp_path, SPEC, FAILS)
    assert "pods stopped with nodes 0 2 +2 -" in lines
    assert "evictions from nodes 0 0 0 -" in lines
    assert not any(line.startswith("pods stopped") for line in lines_of_table(tmp_path, SPEC, WIDER))


def test_chart_shows_room_of_both_runs(tmp_path: Path) -> None:
    runs: list[Simulation] = []
    for spec in (SPEC, WIDER):
        runs.append(Simulation(read([write(tmp_path, spec, WORLD)])))
        runs[-1].run()
    rows = comparison_charts(*runs)["compare-room-default"]["data"]["values"]
    assert {(row["run"], row["solid"], row["dashed"]) for row in rows} == {("A", 2, 2), ("B", 8, 10)}
