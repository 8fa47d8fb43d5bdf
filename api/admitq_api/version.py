"""The version of admitq, from the installed distribution."""

import os
import sys
from collections.abc import Iterable
from typing import Final

_PREFIX: Final = "admitq-"
_SUFFIX: Final = ".dist-info"


def find_version(folders: Iterable[str]) -> str | None:
    """Return the version of the first admitq that is installed in these folders; None if there is none.

    The folder with the metadata of a distribution is named after its version. `importlib.metadata` finds it
    by the same name. Importing that module takes longer than all other imports of a short command.
    """
    for folder in folders:
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208 - pathlib is imported slowly, too
        except OSError:
            continue
        for name in names:
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                return name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return None


def _read_metadata() -> str:
    """Return the version of an admitq that is installed in another way, such as in an archive."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    try:
        return version("admitq")
    except PackageNotFoundError:
        return "0.0.0+unknown"


VERSION: Final = find_version(sys.path) or _read_metadata()
"""The version of the running admitq."""
