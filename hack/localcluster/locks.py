"""Locks between processes. The kernel releases a lock when its holder dies."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock on `path` during the block.

    Args:
        path: the lock file. It is created when missing, and deleted when no process holds or wants the lock.
        waiting: called once before waiting, if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(path, waiting or _no_notice)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    notified = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not notified:
                notified = True
                waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The last holder may have deleted the file during the wait. The lock is then on a deleted file.
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _no_notice() -> None:
    """Print nothing."""
