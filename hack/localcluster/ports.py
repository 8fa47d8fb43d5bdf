"""Ports on loopback for processes that are about to start.

Between the choice of a port and the start of its process, no other process may choose the port. A chosen port
is therefore claimed, by a lock on one byte of a file that all starters of clusters on a machine share. The
claim ends with the process that made it.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from localcluster import components

PORTS = range(20_000, 32_700)
"""Ports below the range from which the kernel chooses ports of connections."""


def free_ports(names: Sequence[str], among: range = PORTS) -> dict[str, int]:
    """Return a port for each name. No process listens on it, and no other process has claimed it."""
    ports: dict[str, int] = {}
    # In random order, so that processes that start at the same time try different ports.
    candidates = random.sample(among, k=len(among))
    for name in names:
        ports[name] = next(port for port in iter(candidates.pop, None) if _claim(port) and _is_free(port))
    return ports


@cache
def _claims() -> int:
    """Return the shared file. It stays open, because closing it would end the claims."""
    path = Path(tempfile.gettempdir()) / f"admitq-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_CLAIMED: set[int] = set()
"""Ports that this process has claimed. Locks do not exclude their own process."""


def _claim(port: int) -> bool:
    if port in _CLAIMED:
        return False
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _CLAIMED.add(port)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((components.LOOPBACK, port))
        except OSError:
            return False
    return True
