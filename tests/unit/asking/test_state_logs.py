"""States from the logs of processes that dumped them."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from admitq.app import state_dump
from admitq.app.state_dump import StateDumper
from admitq.asking.object_files import read_object_files
from admitq.asking.sources import observe_files
from admitq.asking.state_logs import find_state
from admitq.asking.stored_objects import SourceError
from admitq.core.state import AdmissionState
from admitq_api.conditions import parse_time
from tests.unit.core.small_cluster import SmallCluster, queue

TIME = "2030-01-01T00:00:00.5Z"


def waiting(names: str) -> AdmissionState:
    cluster = SmallCluster()
    cluster.put_flavors("default")
    cluster.put(queue("q", 4))
    for name in names:
        cluster.submit(name, "q", cpu=3)
    cluster.decide()
    return cluster.state


def logged(state: AdmissionState) -> list[dict[str, Any]]:
    dumper = StateDumper(state, lambda: {"workloads": 5})
    with capture_logs() as lines:
        dumper.begin()
        dumper.wait()
    return [{**line, "time": TIME} for line in lines]


def text_of(lines: list[dict[str, Any]], prefix: str = "") -> str:
    return "".join(f"{prefix}{json.dumps(line)}\n" for line in lines)


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dump, "PER_LINE", 2)


@pytest.mark.parametrize("prefix", ["", "[pod/manager-1/manager] "], ids=["plain", "with prefix"])
def test_state_of_a_log_is_the_dumped_state(prefix: str) -> None:
    state = waiting("abcde")
    text = "no JSON\n" + text_of([{"event": "process started"}, *logged(state)], prefix)
    found = find_state(text, "manager.log")
    assert found is not None
    assert found.state.to_dict() == state.to_dict()
    assert found.dumped_at == parse_time(TIME)


def test_last_finished_dump_counts() -> None:
    first, second = waiting("ab"), waiting("abc")
    found = find_state(text_of([*logged(first), *logged(second), *logged(first)[:-1]]), "manager.log")
    assert found is not None
    assert found.state.to_dict() == second.to_dict()


def test_text_without_a_dump_is_no_log() -> None:
    assert find_state("kind: List", "objects.yaml") is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines[:-1], "no finished state dump"),
        (lambda lines: [line for line in lines if line.get("first_index") != 2], "workloads .* are missing"),
        (
            lambda lines: [
                {**line, "values": line["values"][:-1]} if "values" in line else line for line in lines
            ],
            "is cut off",
        ),
        (
            lambda lines: [lines[0], *(line for line in lines if line.get("part") == "cycle"), lines[-1]],
            "cannot be read",
        ),
    ],
    ids=["not finished", "a line is missing", "a line is cut off", "a part is missing"],
)
def test_incomplete_dump_is_refused(change: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=f"^manager.log: .*{problem}"):
        find_state(text_of(change(logged(waiting("abcde")))), "manager.log")


def test_log_is_the_whole_cluster(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    log.write_text(text_of(logged(waiting("abcde"))))
    cluster = observe_files(read_object_files([log]))
    assert cluster.now == parse_time(TIME)
    assert cluster.state.to_dict() == waiting("abcde").to_dict()
    (tmp_path / "flavor.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: n, uid: u}}")
    with pytest.raises(SourceError, match="give no other file"):
        read_object_files([tmp_path])
