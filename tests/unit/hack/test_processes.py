"""Processes that outlive their starter, and the sessions that they lead."""

import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from localcluster import processes, sessions
from localcluster.processes import Process

Start = Callable[[str], Process]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Start a shell command; all processes of its session are killed at the end."""
    started: list[Process] = []

    def spawned(command: str) -> Process:
        process = processes.spawn(["/bin/sh", "-c", command], log=tmp_path / "log")
        started.append(process)
        return process

    yield spawned
    for process in started:
        process.signal(signal.SIGKILL)
        sessions.stop(process)


def until_children_write(file: Path, count: int) -> list[Process]:
    """Wait until child processes have written their ids to a file."""
    assert processes.wait(lambda: file.exists() and len(file.read_text().split()) == count, timeout_s=30.0)
    return [processes.current(int(number)) for number in file.read_text().split()]


def test_spawned_program_inherits_no_open_files(start: Start, tmp_path: Path):
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        ids = tmp_path / "ids"
        start(f"echo $$ > {ids}; exec sleep 60")
        [process] = until_children_write(ids, 1)
        files = [link.readlink() for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        assert sorted(files) == sorted([Path("/dev/null"), *[tmp_path / "log"] * 2])
        assert os.get_inheritable(lock.fileno())


def test_usage_of_a_session_includes_running_and_ended_children(start: Start, tmp_path: Path):
    ids = tmp_path / "ids"
    python = sys.executable
    report = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    leader = start(f"{python} -c 'sum(range(10**7))'; {python} -c '{report}' > {ids}")
    [child] = until_children_write(ids, 1)
    own, of_child, of_all = leader.usage(), child.usage(), sessions.usage(leader)
    assert own is not None
    assert of_child is not None
    assert of_all is not None
    assert of_all.rss_mib >= of_child.rss_mib
    # The ended child has used far more than the shell.
    assert of_all.cpu_seconds > own.cpu_seconds + of_child.cpu_seconds


def test_stopped_session_has_no_processes_and_no_usage(start: Start, tmp_path: Path):
    ids = tmp_path / "ids"
    leader = start(f"for n in 1 2; do sh -c 'echo $$ >> {ids}; exec sleep 60' & done; wait")
    children = until_children_write(ids, 2)
    sessions.stop(leader)
    assert not leader.alive()
    assert processes.wait(lambda: not any(child.alive() for child in children), timeout_s=30.0)
    assert sessions.usage(leader) is None
