"""The programs of the control plane, built from pinned Go modules into a cache.

The hash of go.sum names the cache folder. Changed pins cause a new build, and all checkouts with the same
pins share one build.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localcluster import project_modules, toolchain
from localcluster.folders import REPOSITORY, cache_folder
from localcluster.locks import exclusive

MODULE = REPOSITORY / "hack" / "controlplane"
_GIB = 1024**3
# Measured with empty caches: build cache 3.1, modules 1.0 (twice as much during unpacking), programs 0.5.
# Rounded up for the next minor version.
_NEEDED = {"build cache": 5 * _GIB, "modules": int(2.2 * _GIB), "programs": int(0.8 * _GIB)}
_REPORT_EVERY_S = 15.0


class BuildError(Exception):
    """The programs cannot be built. The message has the program and the cause."""


@dataclass(frozen=True)
class Program:
    """One program to build.

    Attributes:
        name: its file name.
        package: the Go package of its main function.
        stamps: the variables that contain its version, in the form of Go's linker; `{v}` is the version of
            `module` in go.mod.
        module: the Go module that defines the version.
        asset: whether a KUBEBUILDER_ASSETS folder can contain it.
    """

    name: str
    package: str
    module: str
    stamps: tuple[str, ...] = ()
    asset: bool = False


_KUBERNETES_STAMPS = (
    "k8s.io/component-base/version.gitVersion={v}",
    "k8s.io/component-base/version.gitMajor={major}",
    "k8s.io/component-base/version.gitMinor={minor}",
    "k8s.io/component-base/version.gitTreeState=clean",
    "k8s.io/client-go/pkg/version.gitVersion={v}",
    "k8s.io/client-go/pkg/version.gitMajor={major}",
    "k8s.io/client-go/pkg/version.gitMinor={minor}",
    "k8s.io/client-go/pkg/version.gitTreeState=clean",
)


def _kubernetes(name: str, *, asset: bool = False) -> Program:
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", _KUBERNETES_STAMPS, asset)


PROGRAMS = (
    Program("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", asset=True),
    _kubernetes("kube-apiserver", asset=True),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubectl", asset=True),
    Program(
        "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", ("sigs.k8s.io/kwok/pkg/consts.Version={v}",)
    ),
    Program(
        "helm",
        "helm.sh/helm/v3/cmd/helm",
        "helm.sh/helm/v3",
        (
            "helm.sh/helm/v3/internal/version.version={v}",
            "helm.sh/helm/v3/internal/version.gitTreeState=clean",
        ),
    ),
)


def folder() -> Path:
    """Return the cache folder of the programs that this checkout pins."""
    digest = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()
    return cache_folder() / "controlplane" / digest[:16]


def located() -> dict[str, Path]:
    """Return the programs that exist, by name. Those in KUBEBUILDER_ASSETS take precedence over the cache."""
    paths: dict[str, Path] = {}
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for program in PROGRAMS:
        places = [Path(assets)] if assets and program.asset else []
        for place in (*places, folder()):
            path = place / program.name
            if path.is_file() and os.access(path, os.X_OK):
                paths[program.name] = path
                break
    return paths


def missing() -> list[Program]:
    """Return the programs that must be built."""
    existing = located()
    return [program for program in PROGRAMS if program.name not in existing]


def build(say: Callable[[str], None] | None = None) -> dict[str, Path]:
    """Build missing programs and return every program's path by name. Only one process builds at a time.

    Args:
        say: receives progress messages; by default they go to standard error.

    Raises:
        BuildError: the disk is too full, there is no Go, or a program does not build.
    """
    tell = say or _to_stderr
    if not missing():
        return located()
    with exclusive(
        folder().with_suffix(".lock"),
        waiting=lambda: tell("another process builds the control plane, waiting for it"),
    ):
        todo = missing()
        if todo:
            _build_all(todo, tell)
    return located()


def _build_all(todo: list[Program], say: Callable[[str], None]) -> None:
    try:
        go = toolchain.go(say)
    except toolchain.ToolchainError as error:
        raise BuildError(str(error)) from error
    _check_disk(go)
    versions = project_modules.versions((MODULE / "go.mod").read_text())
    say(f"building {', '.join(program.name for program in todo)} into {folder()}")
    if len(todo) == len(PROGRAMS):
        say("with empty caches this takes about 8 minutes on two cores, once for each set of pinned versions")
    begin = time.monotonic()
    for number, program in enumerate(todo, start=1):
        _build_one(go, program, versions[program.module], f"{program.name} ({number} of {len(todo)})", say)
    say(f"built in {time.monotonic() - begin:.0f} s")


def _build_one(go: Path, program: Program, version: str, title: str, say: Callable[[str], None]) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    target = folder() / program.name
    partial = target.with_name(f".{program.name}.{os.getpid()}")
    argv = [
        str(go),
        "build",
        "-trimpath",
        "-ldflags",
        linker_flags(program, version),
        "-o",
        str(partial),
        program.package,
    ]
    begin = time.monotonic()
    say(f"  {title} …")
    try:
        output, status = _run(argv, lambda: say(f"  {title} … {time.monotonic() - begin:.0f} s"))
        if status != 0:
            raise BuildError(f"{program.name} does not build:\n{_tail(output)}")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    say(f"  {title} done in {time.monotonic() - begin:.0f} s")


def _run(argv: list[str], report: Callable[[], None]) -> tuple[str, int]:
    """Run a Go command, call `report` every few seconds, and return output and exit status."""
    with subprocess.Popen(
        argv,
        cwd=MODULE,
        env=toolchain.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        while True:
            try:
                output, _ = process.communicate(timeout=_REPORT_EVERY_S)
            except subprocess.TimeoutExpired:
                report()
            else:
                return output, process.returncode


def linker_flags(program: Program, version: str) -> str:
    """Return the flags of Go's linker: omit symbols, and write the version into the program."""
    major, minor, *_ = version.removeprefix("v").split(".")
    stamps = (stamp.format(v=version, major=major, minor=minor) for stamp in program.stamps)
    return " ".join(["-s -w", *(f"-X {stamp}" for stamp in stamps)])


def _check_disk(go: Path) -> None:
    folders = subprocess.run(
        [str(go), "env", "GOCACHE", "GOMODCACHE"],
        env=toolchain.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    build_cache, modules = folders.stdout.split("\n")[:2]
    needs: dict[int, tuple[Path, int, list[str]]] = {}
    for what, path in (
        ("build cache", Path(build_cache)),
        ("modules", Path(modules)),
        ("programs", folder()),
    ):
        existing = next(place for place in (path, *path.parents) if place.exists())
        device = existing.stat().st_dev
        _, needed, names = needs.get(device, (existing, 0, []))
        needs[device] = (existing, needed + _NEEDED[what], [*names, f"{what} in {path}"])
    for place, needed, names in needs.values():
        free = shutil.disk_usage(place).free
        if free < needed:
            raise BuildError(
                f"building the control plane needs {needed / _GIB:.1f} GiB free for {', '.join(names)}, "
                f"but {place} has {free / _GIB:.1f} GiB. Free some space, or point ADMITQ_CACHE, GOCACHE and "
                "GOMODCACHE to a larger disk."
            )


def _tail(output: str, lines: int = 30) -> str:
    return "\n".join(output.splitlines()[-lines:])


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
