"""The product's version, from the installed distribution."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("admitq")
    except PackageNotFoundError:
        return "0.0.0+unknown"


VERSION: Final = _installed()
"""Version of admitq that runs."""
