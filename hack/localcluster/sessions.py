"""All processes of a command line: the started process, its children, and their children.

A started process leads a session, to which its children belong.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from localcluster import processes
from localcluster.processes import Process, Usage

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command: the session, and the ticks of a process and its ended children.
_SESSION, _FIRST_TICKS, _LAST_TICKS = 3, 11, 14


def usage(leader: Process) -> Usage | None:
    """Return the resource usage of all processes of a session, or None if its leader has ended.

    Memory is the sum over the processes. The peak is the sum of their peaks, which can be at different times.
    """
    if not leader.alive():
        return None
    ticks, rss, peak = 0, 0.0, 0.0
    for member, fields in _members(leader):
        ticks += sum(map(int, fields[_FIRST_TICKS : _LAST_TICKS + 1]))
        if (used := member.usage()) is not None:
            rss += used.rss_mib
            peak += used.peak_rss_mib
    return Usage(ticks / _TICKS_PER_SECOND, rss, peak)


def stop(leader: Process, *, patience_s: float = 10.0) -> None:
    """Terminate all processes of a session, and kill those that have not ended after `patience_s` seconds."""
    members = [member for member, _ in _members(leader)]
    processes.stop(members, patience_s=patience_s)
    # A process can have started others while it ended.
    for member, _ in _members(leader):
        member.signal(signal.SIGKILL)


def _members(leader: Process) -> Iterator[tuple[Process, list[str]]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[_SESSION]) == leader.pid:
                yield processes.current(int(folder.name)), fields
        except (OSError, IndexError):
            # The process has ended meanwhile.
            continue
