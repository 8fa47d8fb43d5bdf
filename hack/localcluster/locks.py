"""Locks between processes that the kernel lets go of when their holder dies."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Holds the lock on `path` for the length of the block.

    Args:
        path: the lock file; it is made when missing, and gone when nobody holds or wants the lock.
        waiting: called once, if somebody else holds the lock, before waiting for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(path, waiting or _no_notice)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                told = True
                waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The holder before may have removed the file while this one waited: then the lock is on nothing.
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _no_notice() -> None:
    """Says nothing."""
