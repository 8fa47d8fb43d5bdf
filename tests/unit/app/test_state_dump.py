"""Dumps of the state: complete, in log lines, without a delay of cycles."""

import json
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from admitq.app import state_dump
from admitq.app.state_dump import StateDumper
from admitq.core.state import AdmissionState
from tests.unit.app.dumped_lines import assembled
from tests.unit.core.small_cluster import SmallCluster, queue


def state_with_pending_workloads() -> AdmissionState:
    cluster = SmallCluster()
    cluster.put_flavors("default")
    cluster.put(queue("q", 4))
    for name in ("a", "b", "c", "d", "e"):
        cluster.submit(name, "q", cpu=3)
    cluster.decide()
    return cluster.state


def test_dump_lines_contain_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dump, "PER_LINE", 2)
    state = state_with_pending_workloads()
    dumper = StateDumper(state, lambda: {"workloads": 5})
    with capture_logs() as lines:
        dumper.begin()
        dumper.wait()
    first, *part_lines, last = lines
    assert (first["event"], first["objects"]) == ("state dump: cached objects", {"workloads": 5})
    assert last["event"] == "state dump: finished"
    whole = assembled(part_lines)
    assert all(
        len(values) <= 2 for line in part_lines if isinstance(values := json.loads(line["values"]), list)
    )
    assert len([line for line in part_lines if line["part"] == "objects.workloads"]) == 3
    assert whole == json.loads(json.dumps(state.to_dict()))
    assert AdmissionState.from_dict(whole).to_dict() == state.to_dict()


def test_dumps_are_written_in_background_and_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, writing, released = state_with_pending_workloads(), threading.Event(), threading.Event()
    before = state.to_dict()
    dumps: list[Any] = []

    def write_slowly(dump: Any, _: Any) -> None:
        writing.set()
        assert released.wait(60)
        dumps.append(dump)

    monkeypatch.setattr(state_dump, "_write", write_slowly)
    dumper = StateDumper(state, dict)
    dumper.begin()
    assert writing.wait(60), "the dump is not written in the background"
    with capture_logs() as lines:
        dumper.begin()
    assert [line["event"] for line in lines] == ["state dump already running"]
    released.set()
    dumper.wait()
    assert len(dumps) == 1
    assert state_dump.dump.encode(dumps[0]) == before
    dumper.begin()
    dumper.wait()
    assert len(dumps) == 2
