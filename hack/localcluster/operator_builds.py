"""Builds operators from the pinned modules of their projects, into the cache folder.

Each is built in a copy of its module. So the go.mod and go.sum of the project apply, and the program consists
of what the project released, except for the few edits of its table entry.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import binaries, project_modules, toolchain
from localcluster.folders import cache_folder
from localcluster.locks import exclusive
from localcluster.operators import Edit, Operator, Source
from localcluster.project_modules import ModuleError

_PORT_FILE = "zz_webhook_port.go"
_PORT_SOURCE = """package main

import (
	"os"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Several operators share one machine, so each needs a port of its own.
var webhookPort, _ = strconv.Atoi(os.Getenv("WEBHOOK_PORT"))

var webhooksOnLoopback = webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: webhookPort})
"""


class OperatorBuildError(Exception):
    """An operator cannot be built. The message has its name and the cause."""


@dataclass(frozen=True)
class Build:
    """What was built of an operator.

    Attributes:
        folder: the folder of the build in the cache.
    """

    folder: Path

    @property
    def program(self) -> Path:
        """The operator."""
        return self.folder / "operator"

    @property
    def samples(self) -> Path:
        """The folder of the project's manifests for users, as in the module."""
        return self.folder / "samples"

    def manifests(self) -> list[dict[str, Any]]:
        """Return the manifests of the operator, as its project publishes them."""
        return json.loads((self.folder / "manifests.json").read_text())


def build(operators: Iterable[Operator], say: Callable[[str], None]) -> dict[str, Build]:
    """Build operators unless the cache has them. Return the builds by name.

    Raises:
        OperatorBuildError: a module is not available, or a program does not build.
    """
    return {operator.name: _built(operator.source, say) for operator in operators}


def is_built(operator: Operator) -> bool:
    """Whether the cache has this version of the operator."""
    return _folder(operator.source).exists()


def _folder(source: Source) -> Path:
    """Return the folder of a build. Operators with the same source share it."""
    added = _PORT_SOURCE if source.has_port_file else ""
    key = f"{project_modules.checksum(source.module)} {dataclasses.astuple(source)!r} {added}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_folder() / "operators" / f"{_project(source)}-{digest}"


def _project(source: Source) -> str:
    """Return the last part of the path of a module that is not its major version."""
    return re.sub(r"/v[0-9]+$", "", source.module).rpartition("/")[2]


def _built(source: Source, say: Callable[[str], None]) -> Build:
    folder = _folder(source)
    if not folder.exists():
        with exclusive(
            folder.with_suffix(".lock"),
            waiting=lambda: say(f"another process builds {_project(source)}, waiting for it"),
        ):
            if not folder.exists():
                _build(source, folder, say)
    return Build(folder)


def _build(given: Source, folder: Path, say: Callable[[str], None]) -> None:
    name = _project(given)
    say(f"building {name} into {folder}")
    begin = time.monotonic()
    try:
        module = project_modules.download([given.module], say)[given.module]
    except ModuleError as error:
        raise OperatorBuildError(f"{name}: {error}") from error
    # Only a complete build gets its final name.
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    source = unfinished / "source"
    try:
        shutil.copytree(module, source)
        _make_writable(source)
        _write_manifests(given, source, unfinished / "manifests.json")
        for samples in given.samples:
            shutil.copytree(source / samples, unfinished / "samples" / samples)
        _compile(given, source, unfinished / "operator")
        shutil.rmtree(source)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    say(f"built {name} in {time.monotonic() - begin:.0f} s")


def _make_writable(source: Path) -> None:
    """Make a copy of a module writable. The module cache is read-only."""
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def _write_manifests(given: Source, source: Path, target: Path) -> None:
    programs = binaries.located()
    folders = [source / name for name in given.kustomizations]
    if given.bases:
        folders.append(_kustomization_in_namespace(given, source))
    commands = [[str(programs["kubectl"]), "kustomize", str(folder)] for folder in folders]
    if given.chart:
        values = source / "values.json"
        values.write_text(json.dumps(given.chart_values))
        options = ["--include-crds", f"--namespace={given.namespace}", f"--values={values}"]
        chart = str(source / given.chart)
        commands.append([str(programs["helm"]), "template", _project(given), chart, *options])
    rendered = [_run(given, command, source) for command in commands]
    objects = [obj for text in rendered for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]
    target.write_text(json.dumps(objects))


def _kustomization_in_namespace(given: Source, source: Path) -> Path:
    """Write a kustomization that puts the bases of an operator into its namespace."""
    folder = source / "in-namespace"
    folder.mkdir()
    content = {"namespace": given.namespace, "resources": [f"../{name}" for name in given.bases]}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


def _compile(given: Source, source: Path, target: Path) -> None:
    for edit in given.edits:
        apply_edit(_project(given), source, edit)
    package = given.package
    if given.has_port_file:
        (source / package / _PORT_FILE).write_text(_PORT_SOURCE)
    go = toolchain.go(lambda _: None)
    command = [str(go), "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(target)]
    _run(given, [*command, f"./{package}"], source)


def apply_edit(name: str, source: Path, edit: Edit) -> None:
    """Apply a change to the source of an operator.

    Raises:
        OperatorBuildError: the file does not contain the old text exactly once.
    """
    path = source / edit.file
    text = path.read_text()
    if text.count(edit.old) != 1:
        raise OperatorBuildError(
            f"{name}: {edit.file} has {text.count(edit.old)} times {edit.old!r}, not once"
        )
    path.write_text(text.replace(edit.old, edit.new))


def _run(given: Source, argv: list[str], folder: Path) -> str:
    process = subprocess.run(
        argv, cwd=folder, env=toolchain.environment(), capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        last_lines = "\n".join(process.stderr.splitlines()[-30:])
        raise OperatorBuildError(f"{_project(given)}: {' '.join(argv[:2])} failed:\n{last_lines}")
    return process.stdout
