"""The state on demand: complete, in lines of the log, without delaying cycles."""

import json
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from admitq.app import state_dump
from admitq.app.state_dump import StateDumper
from admitq.core.state import AdmissionState
from tests.unit.app.dumped_lines import assembled
from tests.unit.core.play import Play, queue


def a_state() -> AdmissionState:
    play = Play()
    play.put_flavors("default")
    play.put(queue("q", 4))
    for name in ("a", "b", "c", "d", "e"):
        play.submit(name, "q", cpu=3)
    play.decide()
    return play.state


def test_the_lines_of_a_dump_make_the_whole_state_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dump, "PER_LINE", 2)
    state = a_state()
    dumped = StateDumper(state, lambda: {"workloads": 5})
    with capture_logs() as lines:
        dumped.begin()
        dumped.wait()
    first, *parts, last = lines
    assert (first["event"], first["objects"]) == ("state dump: cached objects", {"workloads": 5})
    assert last["event"] == "state dump: finished"
    whole = assembled(parts)
    assert all(len(values) <= 2 for line in parts if isinstance(values := json.loads(line["values"]), list))
    assert len([line for line in parts if line["part"] == "objects.workloads"]) == 3
    assert whole == json.loads(json.dumps(state.to_dict()))
    assert AdmissionState.from_dict(whole).to_dict() == state.to_dict()


def test_dumps_are_written_beside_cycles_and_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, written, go_on = a_state(), threading.Event(), threading.Event()
    before = state.to_dict()
    seen: list[Any] = []

    def slowly(taken: Any, _: Any) -> None:
        written.set()
        assert go_on.wait(60)
        seen.append(taken)

    monkeypatch.setattr(state_dump, "_write", slowly)
    dumped = StateDumper(state, dict)
    dumped.begin()
    assert written.wait(60), "begin returned while it is being written"
    with capture_logs() as lines:
        dumped.begin()
    assert [line["event"] for line in lines] == ["state dump already running"]
    go_on.set()
    dumped.wait()
    assert len(seen) == 1
    assert state_dump.dump.encode(seen[0]) == before
    dumped.begin()
    dumped.wait()
    assert len(seen) == 2
