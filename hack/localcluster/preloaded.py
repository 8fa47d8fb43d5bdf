"""Start processes of admitq by forks of a server process that has imported admitq.

The imports take two seconds of CPU time, nine tenths of the start of a process, and a test run starts many
processes. Only test runs use a server; other callers start the command in the usual way.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcluster import processes
from localcluster.processes import Process

_running: "list[_Server]" = []


def spawn(argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a command of admitq in its own session, and append its output to a log.

    Args:
        argv: the path of the command ``admitq``, and its arguments.
        log: the log file.
        environment: all environment variables; by default those of this process.

    Raises:
        OSError: the process cannot be started.
    """
    if not _running:
        return processes.spawn(argv, log=log, environment=environment)
    log.parent.mkdir(parents=True, exist_ok=True)
    return _running[-1].spawn(argv, log, dict(os.environ if environment is None else environment))


@contextmanager
def preloading() -> Generator[None]:
    """Let ``spawn`` use a server process, which starts with the first use and ends with the block."""
    server = _Server()
    _running.append(server)
    try:
        yield
    finally:
        _running.remove(server)
        server.stop()


class _Server:
    """The server process, as its client sees it. It ends when its client closes its standard input."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def spawn(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
        with self._lock:
            return self._spawn(argv, log, environment)

    def _spawn(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "localcluster.preloaded"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"},
                start_new_session=True,
            )
        requests, answers = self._process.stdin, self._process.stdout
        if requests is not None and answers is not None:
            requests.write(json.dumps([list(argv), str(log), dict(environment)]) + "\n")
            requests.flush()
            if answer := answers.readline():
                return processes.current(int(answer))
        raise OSError("the server process has ended; its error is in the output of the tests")

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()


def _import_admitq() -> None:
    from admitq.process.garbage_collection import reduce_collections  # noqa: PLC0415

    reduce_collections()
    from admitq.app import manager, visibility, webhook  # noqa: F401, PLC0415 # pyright: ignore[reportUnusedImport]

    # Forks share the memory of objects that no collection visits.
    gc.collect()
    gc.freeze()


def _serve() -> list[str] | None:
    """Fork for each request, and answer with the process id.

    Returns:
        The command line, in a forked process; None in the server when its client has ended.
    """
    # No code waits for a child, so the kernel must remove it when it has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        argv, log, environment = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _enter(Path(log), environment)
            return argv
        print(pid, flush=True)
    return None


def _enter(log: Path, environment: Mapping[str, str]) -> None:
    """Give a forked process its session, files and environment variables."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    appended = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((os.open(os.devnull, os.O_RDONLY), 0), (appended, 1), (appended, 2)):
        os.dup2(number, target)
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    _import_admitq()
    if (command := _serve()) is not None:
        from admitq.cli import main

        sys.argv = command
        main()
