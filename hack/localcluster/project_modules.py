"""The Go modules of the projects with kinds that admitq works with.

hack/controlplane/operators pins each project's module. CRDs, manifests and operators come from these modules.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from localcluster import toolchain
from localcluster.folders import REPOSITORY

PINS = REPOSITORY / "hack" / "controlplane" / "operators"


class ModuleError(Exception):
    """Go or a module is not available. The message has the cause."""


def versions(go_mod: str | None = None) -> Mapping[str, str]:
    """Return the version of every module that a go.mod requires; by default the pinned modules."""
    text = (PINS / "go.mod").read_text() if go_mod is None else go_mod
    return dict(re.findall(r"^\s*(?:require\s+)?([\w.\-/]+\.[\w.\-/]+) (v\S+)", text, flags=re.MULTILINE))


def checksum(module: str) -> str:
    """Return the checksum of a pinned module's content.

    The content includes go.mod and go.sum of the project, so the checksum determines all that its programs
    are built from.
    """
    for line in (PINS / "go.sum").read_text().splitlines():
        path, version, value = line.split()
        if path == module and not version.endswith("/go.mod"):
            return value
    raise ModuleError(f"go.sum of {PINS} has no module {module}")


def download(modules: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Download pinned modules, compare them with go.sum, and return their folders.

    Args:
        modules: paths of modules.
        say: receives a message before a long step.

    Raises:
        ModuleError: Go or a module is not available.
    """
    try:
        go = toolchain.go(say)
    except toolchain.ToolchainError as error:
        raise ModuleError(str(error)) from error
    process = subprocess.run(
        [str(go), "mod", "download", "-json", *modules],
        cwd=PINS,
        env=toolchain.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(_objects(process.stdout))
    problems = [module["Error"] for module in found if "Error" in module]
    if problems or process.returncode != 0:
        raise ModuleError("\n".join(problems) or process.stderr.strip())
    return {module["Path"]: Path(module["Dir"]) for module in found}


def _objects(text: str) -> Iterable[dict[str, Any]]:
    """Yield the JSON objects that follow one another in a text."""
    decoder, remaining = json.JSONDecoder(), text.lstrip()
    while remaining:
        obj, end = decoder.raw_decode(remaining)
        yield obj
        remaining = remaining[end:].lstrip()
