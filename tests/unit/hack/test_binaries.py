import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from localcluster import binaries, project_modules, toolchain

VERSIONS = project_modules.versions((binaries.MODULE / "go.mod").read_text())


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADMITQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


def test_every_program_is_missing_from_empty_cache(empty_cache: Path):
    assert binaries.missing() == list(binaries.PROGRAMS)


def test_programs_in_kubebuilder_assets_are_located_and_others_are_missing(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    names = ("etcd", "kube-apiserver", "kubectl")
    assets = {name: executable(tmp_path / "assets" / name) for name in names}
    executable(tmp_path / "assets" / "helm")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert binaries.located() == assets
    missing = {program.name for program in binaries.missing()}
    assert missing == {"kube-controller-manager", "kube-scheduler", "kwok", "helm"}


def test_cache_folder_is_named_by_hash_of_pinned_versions(empty_cache: Path):
    assert binaries.folder().parent == empty_cache / "controlplane"
    assert len(binaries.folder().name) == 16


@pytest.mark.parametrize("program", binaries.PROGRAMS, ids=lambda program: program.name)
def test_linker_flags_contain_version_pinned_in_go_mod(program: binaries.Program):
    version = VERSIONS[program.module]
    flags = binaries.linker_flags(program, version)
    assert "{" not in flags
    if program.stamps:
        assert f"={version}" in flags


def test_full_disk_is_reported_before_the_build(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go = executable(tmp_path / "go", f'echo "{tmp_path}/build"; echo "{tmp_path}/modules"')
    monkeypatch.setattr(toolchain, "go", lambda _say: go)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1))
    messages: list[str] = []
    with pytest.raises(binaries.BuildError, match=r"needs 8\.0 GiB free .* has 0\.0 GiB.*ADMITQ_CACHE"):
        binaries.build(messages.append)
    assert messages == []


def test_failed_build_is_reported_with_program_and_leaves_no_files(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    print_folders = f'echo "{tmp_path}"; echo "{tmp_path}"'
    go = executable(
        tmp_path / "go", f'if [ "$1" = env ]; then {print_folders}; else echo "no such package"; exit 1; fi'
    )
    monkeypatch.setattr(toolchain, "go", lambda _say: go)
    with pytest.raises(binaries.BuildError, match=r"(?s)etcd does not build.*no such package"):
        binaries.build(lambda _: None)
    assert list(binaries.folder().iterdir()) == []


def test_go_of_other_version_on_path_is_ignored(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    executable(tmp_path / "bin" / "go", "echo go1.25.3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    pinned = toolchain.pinned_command()
    executable(pinned, "echo go1.26.6")
    assert toolchain.go(lambda _: None) == pinned


def test_go_of_pinned_minor_version_on_path_is_used(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go_on_path = executable(tmp_path / "bin" / "go", "echo go1.26.99")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    assert toolchain.go(lambda _: None) == go_on_path
