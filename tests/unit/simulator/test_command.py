"""The command `admitq simulate`: its output, its files and its exit codes."""

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from admitq.cli.commands import application
from admitq.cli.output import OutputFormat
from admitq.cli.simulate import complete_file
from admitq.cli.simulate import simulate as run
from admitq.simulator import shipped_scenarios
from tests.unit.simulator.stage import write

Command = Callable[..., Result]

THREE_WORKLOADS = """
    workloads:
      - {name: w, queue: team/main, requests: {cpu: 2}, runTime: 1m, arrivals: {fixed: {count: 3}}}
    """


@pytest.fixture
def simulate() -> Command:
    runner = CliRunner()

    def invoke(*arguments: object) -> Result:
        return runner.invoke(application, ["simulate", *map(str, arguments)])

    return invoke


def test_tables_show_waits_use_and_makespan(simulate: Command, tmp_path: Path) -> None:
    result = simulate(write(tmp_path, THREE_WORKLOADS))
    assert result.exit_code == 0
    for text in (
        "scenario  seed 1  2m simulated: all workloads have ended",
        "team/main",
        "utilisation",
        "75.0%",
    ):
        assert text in result.stdout
    assert "makespan   2m, bound 1m 30s, ratio 1.333" in result.stdout


def test_json_output_is_one_reproducible_document(simulate: Command, tmp_path: Path) -> None:
    result = simulate(write(tmp_path, THREE_WORKLOADS), "-o", "json")
    document = json.loads(result.stdout)
    assert (document["seed"], document["ending"], document["makespan"]) == (1, "Finished", 120.0)
    assert document["localQueues"][0]["waits"] == {
        "mean": 20.0,
        "p50": 0.0,
        "p90": 60.0,
        "p99": 60.0,
        "max": 60.0,
    }
    assert simulate(write(tmp_path, THREE_WORKLOADS), "-o", "json").stdout == result.stdout


def test_json_option_is_a_hidden_alias_of_output(simulate: Command, tmp_path: Path) -> None:
    path = write(tmp_path, THREE_WORKLOADS)
    assert simulate(path, "--json").stdout == simulate(path, "--output", "json").stdout
    assert "--json" not in simulate("--help").stdout


def test_json_option_with_other_output_is_refused(simulate: Command, tmp_path: Path) -> None:
    result = simulate(write(tmp_path, THREE_WORKLOADS), "--json", "-o", "yaml")
    assert result.exit_code == 2
    assert "--json contradicts --output yaml" in result.stderr


def test_yaml_is_the_json_document_in_yaml(simulate: Command, tmp_path: Path) -> None:
    path = write(tmp_path, THREE_WORKLOADS)
    assert yaml.safe_load(simulate(path, "-o", "yaml").stdout) == json.loads(
        simulate(path, "-o", "json").stdout
    )


def test_list_prints_name_and_description_of_each_shipped_scenario(simulate: Command) -> None:
    listed = json.loads(simulate("--list", "-o", "json").stdout)
    assert [scenario["name"] for scenario in listed] == list(shipped_scenarios())
    assert all(scenario["description"] for scenario in listed)
    table = simulate("--list").stdout
    assert all(name in table for name in shipped_scenarios())


def test_command_without_files_is_refused(simulate: Command) -> None:
    result = simulate()
    assert result.exit_code == 2
    assert "give a file or a shipped scenario, or --list" in result.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("bo", ["borrowing"]),
        ("", ["baseline", "borrowing", "bold.yaml", "folder/"]),
        ("folder/", ["folder/inner.yml"]),
        ("nowhere/", []),
    ],
)
def test_shell_completes_shipped_scenarios_and_yaml_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, completed: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("bold.yaml", "notes.txt", ".hidden.yaml", "folder/inner.yml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    completions = list(complete_file(typed))
    assert set(completed) <= set(completions)
    assert not {"notes.txt", ".hidden.yaml"} & set(completions)
    environment = {
        "_ADMITQ_COMPLETE": "complete_bash", "COMP_WORDS": f"admitq simulate {typed}", "COMP_CWORD": "2",
    }  # fmt: skip
    shell = CliRunner().invoke(application, [], prog_name="admitq", env=environment)
    commands = ["compare", "racks"] if typed == "" else []
    assert shell.stdout.split() == [*commands, *completions]


def test_options_override_settings_of_scenario(simulate: Command, tmp_path: Path) -> None:
    document = json.loads(
        simulate(write(tmp_path, THREE_WORKLOADS), "-o", "json", "--until", "30s", "--seed", 9).stdout
    )
    assert (document["seed"], document["ending"], document["seconds"]) == (9, "Until", 30.0)
    assert document["workloads"] == {
        "submitted": 3, "admitted": 2, "finished": 0, "failed": 0, "running": 2, "waiting": 1,
    }  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_timeline_is_written_as_csv_or_json(simulate: Command, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"timeline.{suffix}"
    assert simulate(write(tmp_path, THREE_WORKLOADS), "--timeline", path).exit_code == 0
    rows: list[dict[str, Any]] = (
        json.loads(path.read_text())
        if suffix == "json"
        else list(csv.DictReader(path.read_text().splitlines()))
    )
    assert [row["event"] for row in rows].count("Finished") == 3
    last = rows[-1]
    assert (float(last["time"]), last["workload"], last["localQueue"]) == (120, "team/w-3", "team/main")
    assert (last["class"], last["clusterQueue"], last["flavors"]) == ("w", "queue", "default")


def test_plots_are_written(simulate: Command, tmp_path: Path) -> None:
    assert simulate(write(tmp_path, THREE_WORKLOADS), "--plots", tmp_path / "plots").exit_code == 0
    assert (tmp_path / "plots" / "waits.svg").read_text().startswith("<svg")


def test_plots_without_their_package_name_the_extra_to_install(
    simulate: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.delitem(sys.modules, "admitq.simulator.plots", raising=False)
    result = simulate(write(tmp_path, THREE_WORKLOADS), "--plots", tmp_path / "plots")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--plots: needs an optional package: run pip install 'admitq[plots]'" in result.stderr
    assert not (tmp_path / "plots").exists()


def test_run_on_terminal_shows_progress_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, terminal = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    text = THREE_WORKLOADS.replace("count: 3", "count: 600")
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        run([str(write(tmp_path, text))], output=OutputFormat.JSON)
        stderr.flush()
        assert b"of 600 ended" in os.read(output, 65536)
    os.close(output)


def test_command_with_inadmissible_workloads_exits_with_1(simulate: Command, tmp_path: Path) -> None:
    result = simulate(write(tmp_path, THREE_WORKLOADS.replace("cpu: 2", "cpu: 5")))
    assert result.exit_code == 1
    assert "ExceedsMaxQuota" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["missing.yaml"],
            "missing.yaml: no such file and no such shipped scenario: the shipped ones are baseline,",
        ),
        (["borowing"], "borowing: no such file and no such shipped scenario: did you mean borrowing?"),
        (["Fair-Sharing.yaml"], "did you mean fair-sharing?"),
        (
            ["borrowing", "--timeline", "events.txt"],
            "--timeline: events.txt: unknown suffix .txt: use one of .csv, .json",
        ),
        (["borrowing", "--timeline", "events"], "--timeline: events: no suffix: use one of .csv, .json"),
        (["borrowing", "--until", "soon"], "--until: 'soon' is not a duration"),
        (
            ["borrowing", "--until", "1m", "--timeline", "/nowhere/at/all.csv"],
            "--timeline: /nowhere/at/all.csv: No",
        ),
        (["borrowing", "--until", "1m", "--plots", "/proc/none"], "--plots: /proc/none: No such file"),
        (["preemption", "borrowing"], "kind: there is a Scenario already, at "),
    ],
)
def test_command_with_invalid_input_exits_with_2(
    simulate: Command, arguments: list[str], message: str
) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert result.stdout == ""


@pytest.mark.parametrize("name", ["borrowing", "preemption", "fair-sharing"])
def test_shipped_scenario_runs_to_its_end(simulate: Command, name: str) -> None:
    document = json.loads(simulate(name, "-o", "json").stdout)
    assert document["scenario"] == name
    assert document["ending"] == "Finished"
    assert document["workloads"]["failed"] == 0


SMALLER_COUNTS = {
    "count: 1000}": "count: 120}",
    "count: 350": "count: 3",
    "count: 35}": "count: 1}",
    "count: 100}": "count: 2}",
    "count: 11}": "count: 1}",
    "count: 50}": "count: 1}",
    "queue: 100}": "queue: 5}",
}
"""Replacements that make a long scenario short: smaller counts of workloads and queues."""


@pytest.mark.parametrize("name", ["baseline", "large", "seed-literal", "seed-ten-minute"])
def test_long_shipped_scenario_with_smaller_counts_runs_to_its_end(
    simulate: Command, tmp_path: Path, name: str
) -> None:
    text = shipped_scenarios()[name].read_text()
    for large, small in SMALLER_COUNTS.items():
        text = text.replace(large, small)
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    document = json.loads(simulate(path, "-o", "json").stdout)
    assert (document["scenario"], document["ending"]) == (name, "Finished")
    assert document["workloads"]["finished"] == document["workloads"]["submitted"] > 100


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("admitq simu", ["simulate"]),
        ("admitq simulate comp", ["compare"]),
        ("admitq simulate compare preem", ["preemption"]),
        ("admitq simulate compare preemption preem", ["preemption"]),
        ("admitq simulate compare preemption --se", ["--seed"]),
    ],
)
def test_shell_completes_both_words_of_compare_and_its_files(line: str, completions: list[str]) -> None:
    env = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
        "_ADMITQ_COMPLETE": "complete_bash",
    }
    result = CliRunner().invoke(application, [], prog_name="admitq", env=env)
    assert result.stdout.split() == completions
