"""The folders of the repository, of the cache of built programs, and of the state of running clusters."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """Return the folder of built programs, which all checkouts share.

    `ADMITQ_CACHE` names it. By default it is `admitq` in the user's cache folder.
    """
    if named := os.environ.get("ADMITQ_CACHE"):
        return Path(named).resolve()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).resolve() / "admitq"
    return Path.home() / ".cache" / "admitq"


def state_folder() -> Path:
    """Return the folder of all files of running clusters. `ADMITQ_STATE` names another one."""
    if named := os.environ.get("ADMITQ_STATE"):
        return Path(named).resolve()
    return REPOSITORY / ".state"
