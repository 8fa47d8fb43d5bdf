"""The version of admitq, from the installed distribution."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("admitq")
    except PackageNotFoundError:
        return "0.0.0+unknown"


VERSION: Final = _installed()
"""The version of the running admitq."""
