"""Where things are kept: the repository, the cache of built binaries, the state of running clusters."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """The folder of what is built once and shared by every checkout.

    `ADMITQ_CACHE` names it; otherwise it is `admitq` in the user's cache folder.
    """
    if named := os.environ.get("ADMITQ_CACHE"):
        return Path(named).resolve()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).resolve() / "admitq"
    return Path.home() / ".cache" / "admitq"


def state_folder() -> Path:
    """The folder of everything that belongs to running clusters; `ADMITQ_STATE` names another one."""
    if named := os.environ.get("ADMITQ_STATE"):
        return Path(named).resolve()
    return REPOSITORY / ".state"
