"""The command `admitq simulate compare`: figures side by side, differences, and jobs that differ."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from admitq.cli.commands import application
from admitq.simulator.comparison import Figure
from tests.unit.simulator.stage import WORLD, scenario, write

Command = Callable[..., Result]

THREE_WORKLOADS = """
    workloads:
      - {name: w, queue: team/main, requests: {cpu: 2}, runTime: 1m, arrivals: {fixed: {count: 3}}}
    """
CLUSTER_QUEUE = WORLD.split("---\n")[1]
LOCAL_QUEUE = WORLD.split("---\n")[2]


@pytest.fixture
def compare() -> Command:
    runner = CliRunner()

    def invoke(*arguments: object) -> Result:
        return runner.invoke(application, ["simulate", "compare", *map(str, arguments)])

    return invoke


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Three workloads of 2 CPU in a queue with 4 CPU: the last one waits for a minute."""
    return write(tmp_path, THREE_WORKLOADS)


def changed(folder: Path, text: str) -> Path:
    path = folder / "changed.yaml"
    path.write_text(text)
    return path


def second_scenario(folder: Path, spec: str) -> Path:
    return changed(folder, f"{scenario(spec)}---\n{WORLD}")


def document_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("a", "b", "difference", "relative"),
    [
        (10.0, 15.0, 5.0, 0.5),
        (10.0, 0.0, -10.0, -1.0),
        (3, 3, 0, 0.0),
        (0.0, 4.0, 4.0, None),
        (None, 4.0, None, None),
        (4.0, None, None, None),
    ],
)
def test_figure_has_absolute_and_relative_difference(
    a: float | None, b: float | None, difference: float | None, relative: float | None
) -> None:
    assert Figure(a, b).to_dict() == {"a": a, "b": b, "difference": difference, "relative": relative}


def test_changed_queue_replaces_that_of_the_scenario(compare: Command, base: Path, tmp_path: Path) -> None:
    more = changed(tmp_path, CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: 6"))
    document = document_of(compare(base, more, "-o", "json"))
    assert document["jobs"] == {
        "same": 3, "differ": 0, "onlyA": 0, "onlyB": 0, "earlier": 1, "later": 0,
    }  # fmt: skip
    assert document["waits"]["max"] == {"a": 60.0, "b": 0.0, "difference": -60.0, "relative": -1.0}
    assert document["makespan"] == {"a": 120.0, "b": 60.0, "difference": -60.0, "relative": -0.5}
    assert document["clusterQueues"][0]["name"] == "queue"
    assert document["clusterQueues"][0]["quota"] == {
        "a": 4.0, "b": 6.0, "difference": 2.0, "relative": 0.5,
    }  # fmt: skip
    assert document["localQueues"][0]["waits"]["p90"]["difference"] == -60.0


def test_less_quota_makes_equal_jobs_start_later(compare: Command, base: Path, tmp_path: Path) -> None:
    less = changed(tmp_path, CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: 2"))
    jobs = document_of(compare(base, less, "-o", "json"))["jobs"]
    assert (jobs["same"], jobs["earlier"], jobs["later"]) == (3, 0, 2)


def test_comparison_with_itself_has_no_difference(compare: Command, base: Path) -> None:
    def differences(value: Any) -> list[Any]:
        if isinstance(value, dict):
            if "difference" in value:
                return [value["difference"]]
            return [one for inner in value.values() for one in differences(inner)]
        return [one for inner in value for one in differences(inner)] if isinstance(value, list) else []

    document = document_of(compare(base, base, "-o", "json"))
    assert set(differences(document)) <= {0, None}
    assert document["jobs"]["same"] == 3


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (THREE_WORKLOADS.replace("runTime: 1m", "runTime: 2m"), (0, 3, 0, 0)),
        (THREE_WORKLOADS.replace("cpu: 2", "cpu: 1"), (0, 3, 0, 0)),
        (THREE_WORKLOADS.replace("count: 3", "count: 5"), (3, 0, 0, 2)),
        (THREE_WORKLOADS.replace("count: 3", "count: 1"), (1, 0, 2, 0)),
        (THREE_WORKLOADS.replace("count: 3", "count: 3, every: 1s"), (1, 2, 0, 0)),
        (THREE_WORKLOADS.replace("name: w,", "name: v,"), (0, 0, 3, 3)),
    ],
)
def test_jobs_that_differ_are_counted(
    compare: Command, base: Path, tmp_path: Path, spec: str, expected: tuple[int, ...]
) -> None:
    other = second_scenario(tmp_path, spec)
    jobs = document_of(compare(base, other, "-o", "json"))["jobs"]
    assert (jobs["same"], jobs["differ"], jobs["onlyA"], jobs["onlyB"]) == expected
    table = compare(base, other).stdout.replace("\n", " ")
    assert f"{sum(expected[1:])} jobs differ" in table


def test_priority_class_with_another_value_is_a_setting_of_equal_jobs(
    compare: Command, base: Path, tmp_path: Path
) -> None:
    spec = THREE_WORKLOADS.replace("requests", "priorityClass: high, requests")
    first = write(tmp_path, spec)
    other = changed(tmp_path, WORLD.split("---\n")[3].replace("value: 100", "value: 7"))
    assert document_of(compare(first, other, "-o", "json"))["jobs"]["same"] == 3


def test_both_runs_have_the_seed_of_the_first(compare: Command, base: Path, tmp_path: Path) -> None:
    other = second_scenario(tmp_path, THREE_WORKLOADS)
    other.write_text(other.read_text().replace("seed: 1", "seed: 2"))
    assert document_of(compare(base, other, "-o", "json"))["seed"]["b"] == 1
    assert document_of(compare(base, other, "--seed", 9, "-o", "json"))["seed"] == {
        "a": 9, "b": 9, "difference": 0, "relative": 0.0,
    }  # fmt: skip


def test_queue_of_one_run_has_no_figures_in_the_other(compare: Command, base: Path, tmp_path: Path) -> None:
    spec = THREE_WORKLOADS.replace("team/main", "team/*")
    added = LOCAL_QUEUE.replace("name: main", "name: second")
    other = changed(tmp_path, f"{scenario(spec)}---\n{WORLD}---\n{added}")
    queues = document_of(compare(base, other, "-o", "json"))["localQueues"]
    assert [queue["name"] for queue in queues] == ["team/main", "team/second"]
    assert queues[1]["submitted"] == {"a": None, "b": 3, "difference": None, "relative": None}


def test_table_shows_both_runs_and_differences(compare: Command, base: Path, tmp_path: Path) -> None:
    more = changed(tmp_path, CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: 6"))
    lines = [" ".join(line.split()) for line in compare(base, more).stdout.splitlines()]
    for line in (
        "3 equal jobs: 1 start earlier in B, 0 later",
        "All workloads A B difference relative",
        "wait max 1m 0s -1m -100.0%",
        "makespan 2m 1m -1m -50.0%",
        "team/main p50 0s 0s 0s -",
        "queue default cpu quota 4 6 +2 +50.0%",
    ):
        assert line in lines


def test_yaml_is_the_json_document_in_yaml(compare: Command, base: Path) -> None:
    assert yaml.safe_load(compare(base, base, "-o", "yaml").stdout) == json.loads(
        compare(base, base, "-o", "json").stdout
    )


def test_plots_show_both_runs(compare: Command, tmp_path: Path) -> None:
    assert compare("preemption", "borrowing", "--plots", tmp_path / "plots").exit_code == 0
    plots = {path.stem: path.read_text() for path in (tmp_path / "plots").iterdir()}
    assert set(plots) == {
        "compare-waits", "compare-waits-by-queue", "compare-queue-depth", "compare-preemptions",
        "compare-use-default-cpu",
    }  # fmt: skip
    for svg in plots.values():
        assert "preemption and borrowing: " in svg
        assert ">A</text>" in svg
        assert ">B</text>" in svg


def test_stuck_run_exits_with_1(compare: Command, base: Path, tmp_path: Path) -> None:
    less = changed(tmp_path, CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: 1"))
    result = compare(base, less)
    assert result.exit_code == 1
    assert "pending at the end" in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: -1"), "nominalQuota"),
        (
            CLUSTER_QUEUE.replace("namespaceSelector", "namespaceSelectors"),
            "namespaceSelectors: unknown field",
        ),
        (CLUSTER_QUEUE.replace("name: queue", "name: ''"), "metadata.name: is required"),
    ],
)
def test_invalid_change_is_refused_with_file_and_field(
    compare: Command, base: Path, tmp_path: Path, text: str, message: str
) -> None:
    result = compare(base, changed(tmp_path, text))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "admitq simulate compare: " in result.stderr
    assert "changed.yaml:" in result.stderr
    assert message in result.stderr


def test_missing_second_argument_is_refused(compare: Command, base: Path) -> None:
    assert compare(base).exit_code == 2


def test_missing_scenario_in_first_file_is_refused(compare: Command, tmp_path: Path) -> None:
    result = compare(changed(tmp_path, WORLD), "borrowing")
    assert result.exit_code == 2
    assert "no document of kind Scenario" in result.stderr
