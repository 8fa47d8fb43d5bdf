"""Processes of admitq that start by a fork."""

import os
import sys
from pathlib import Path

from localcluster import preloaded, processes


def test_forked_process_has_its_arguments_and_log(tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "missing.yaml"
    command = [str(Path(sys.executable).with_name("admitq")), "manager", f"--config={config}"]
    with preloaded.preloading():
        process = preloaded.spawn(command, log=log, environment={})
        assert processes.wait(lambda: not process.alive(), timeout_s=60.0)
    assert str(config) in processes.last_lines(log)


def test_forked_process_outlives_its_server(tmp_path: Path) -> None:
    os.mkfifo(config := tmp_path / "config.yaml")
    command = [str(Path(sys.executable).with_name("admitq")), "manager", f"--config={config}"]
    with preloaded.preloading():
        process = preloaded.spawn(command, log=tmp_path / "log")
    # It waits for its configuration.
    assert process.alive()
    assert processes.wait(lambda: os.getsid(process.pid) == process.pid, timeout_s=10.0)
    processes.stop([process])
    assert not process.alive()
