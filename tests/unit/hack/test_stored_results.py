"""Results of benchmarks that docs/performance.md shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stored_results import StoredResultError, commands, parse_result, read_results


def line(**figures: Any) -> str:
    return json.dumps({"benchmark": "throughput", "shape": "baseline", "scale": 1.0, **figures})


@pytest.mark.parametrize(
    ("figures", "name", "command"),
    [
        pytest.param({}, "baseline", "hack/bench throughput --shape baseline", id="shape"),
        pytest.param({"command": "hack/bench x"}, "baseline", "hack/bench x", id="with its command"),
        pytest.param(
            {"manager": "admitq"}, "baseline", "hack/bench throughput --shape baseline", id="admitq"
        ),
        pytest.param(
            {"benchmark": "webhook", "shape": None}, "webhook", "hack/bench webhook", id="without shape"
        ),
        pytest.param(
            {
                "benchmark": "seed",
                "shape": None,
                "setting": "literal",
                "scale": 10.0,
                "nodes": 100,
                "queue": True,
            },
            "seed-setting-literal-scale-10",
            "hack/bench seed --setting literal --scale 10",
            id="other scale",
        ),
        pytest.param(
            {"benchmark": "throughput", "shape": "seed", "setting": "literal", "node_cpu": 250},
            "seed-setting-literal-node_cpu-250",
            "hack/bench throughput --shape seed --setting literal --node-cpu 250",
            id="other nodes",
        ),
        pytest.param(
            {"shape": "pods", "scale": 0.2},
            "pods",
            "hack/bench throughput --shape pods --scale 0.2",
            id="figures contain the load",
        ),
        pytest.param(
            {"benchmark": "seed", "shape": None, "setting": "literal", "nodes": 7, "queue": False},
            "seed-setting-literal-nodes-7-queue-false",
            "hack/bench seed --setting literal --nodes 7 --no-queue",
            id="without queue manager",
        ),
    ],
)
def test_result_has_name_and_command_of_its_figures(figures: dict[str, Any], name: str, command: str) -> None:
    given = {key: value for key, value in json.loads(line(**figures)).items() if value is not None}
    result = parse_result(json.dumps(given), "file")
    assert (result.name, result.command) == (name, command)
    assert result.figures == given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a line that hack/bench printed"),
        ("[1]", "not a line that hack/bench printed"),
        ("{}", "not a line that hack/bench printed"),
        (line(scale=0.1), "the scale is not 1"),
        (line(manager="/path/to/manager"), "another program"),
    ],
)
def test_line_that_docs_must_not_show_is_refused(text: str, message: str) -> None:
    with pytest.raises(StoredResultError, match=f"here: .*{message}"):
        parse_result(text, "here")


def test_results_are_read_from_all_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(line() + "\n")
    (tmp_path / "b.jsonl").write_text(line(shape="large") + "\n" + line(shape="depth") + "\n")
    assert [*read_results(tmp_path)] == ["baseline", "large", "depth"]
    assert read_results(tmp_path / "missing") == {}


def test_second_result_of_one_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(line(wall_s=1) + "\n" + line(wall_s=2) + "\n")
    with pytest.raises(StoredResultError, match=r"a\.json, line 2: there are two results baseline"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        pytest.param({}, "hack/bench x", id="unknown"),
        pytest.param(
            {"reference_cpu_s": {"before": 0.0425, "after": 0.11}},
            "hack/bench x  # reference_cpu_s: 0.043, 0.110",
            id="known",
        ),
    ],
)
def test_command_of_several_results_is_listed_once_with_the_speed_of_the_machine(
    speeds: dict[str, Any], expected: str
) -> None:
    results = [
        parse_result(line(shape=shape, command="hack/bench x", **speeds), "file")
        for shape in ("depth", "large")
    ]
    assert commands(results) == f"```bash\n{expected}\n```"
