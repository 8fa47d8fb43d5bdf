"""Processes that outlive their starter and cannot be mistaken for others.

The system reuses process ids. A record therefore also contains the boot id and the start time. Only a process
that matches all three is signalled.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/PID/stat, counted from the state, which follows the command in parentheses.
_STATE, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 0, 11, 12, 19


@dataclass(frozen=True)
class Process:
    """One process: its id, boot id and start time."""

    pid: int
    start_ticks: int
    boot: str

    def alive(self) -> bool:
        """Whether this process still runs. A zombie does not."""
        fields = _stat(self.pid)
        return (
            fields is not None
            and int(fields[_START_TICKS]) == self.start_ticks
            and _boot_id() == self.boot
            and (fields[_STATE] not in {"Z", "X"} or _has_threads(self.pid))
        )

    def age(self) -> float:
        """Return the seconds since the start of this process."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_ticks / _TICKS_PER_SECOND

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if this process still runs."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def usage(self) -> "Usage | None":
        """Return the resource usage of the process so far, or None if it has ended."""
        fields = _stat(self.pid)
        if fields is None or not self.alive():
            return None
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        memory = dict(
            line.split(":", 1) for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))
        )
        return Usage(
            cpu_seconds=(int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_SECOND,
            rss_mib=_kib(memory.get("VmRSS")) / 1024,
            peak_rss_mib=_kib(memory.get("VmHWM")) / 1024,
        )

    def write(self, path: Path) -> None:
        """Write the record to a file."""
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Usage:
    """CPU time since the start (user and system, seconds) and resident memory (MiB)."""

    cpu_seconds: float
    rss_mib: float
    peak_rss_mib: float


def current(pid: int | None = None) -> Process:
    """Return the record of a running process, by default of this one.

    Raises:
        ProcessLookupError: no process has this id.
    """
    number = os.getpid() if pid is None else pid
    fields = _stat(number)
    if fields is None:
        raise ProcessLookupError(number)
    return Process(pid=number, start_ticks=int(fields[_START_TICKS]), boot=_boot_id())


def read(path: Path) -> Process | None:
    """Return the record in a file, or None if the file is missing or invalid."""
    try:
        return Process(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def spawn(argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a program in its own session, and append its output to a log.

    The program continues to run when the caller exits. So it inherits no open files of the caller: one of
    them can carry a lock.

    Raises:
        OSError: the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # posix_spawn, not subprocess: a Popen object would warn about every program that still runs.
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(os.environ if environment is None else environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, number) for number in _inheritable_files()),
        ],
        setsid=True,
    )
    return current(pid)


def stop(processes: Sequence[Process], *, patience_s: float = 10.0) -> None:
    """Terminate processes, and kill those that have not ended after `patience_s` seconds."""
    for process in processes:
        process.signal(signal.SIGTERM)
    if not wait(lambda: not _living(processes), timeout_s=patience_s):
        for process in _living(processes):
            process.signal(signal.SIGKILL)
        wait(lambda: not _living(processes), timeout_s=5.0)
    for process in processes:
        reap(process)


def reap(process: Process) -> None:
    """Read the exit status of a dead child, so that it does not remain a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def wait(condition: Callable[[], bool], *, timeout_s: float, interval_s: float = 0.02) -> bool:
    """Wait until a condition holds. Return False if it does not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_s)
    return True


def last_lines(log: Path, count: int = 15) -> str:
    """Return the end of a log, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-count:]) or "(the log is empty)"


def _inheritable_files() -> list[int]:
    """Return the open files, except the standard ones, that programs would inherit."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only the numbers are needed
        # The file of this listing is closed by now.
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _living(processes: Sequence[Process]) -> list[Process]:
    return [process for process in processes if process.alive()]


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command is in parentheses, and can contain spaces and parentheses itself.
    return text.rpartition(")")[2].split()


def _has_threads(pid: int) -> bool:
    # The first thread of a killed process becomes a zombie before its other threads end, which still hold its
    # ports.
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - only the number of names is needed
    except OSError:
        return False


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _kib(line: str | None) -> int:
    return int(line.split()[0]) if line else 0
