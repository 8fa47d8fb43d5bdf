import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from admitq.integrations.registry import BUILT_IN_KINDS
from localcluster import binaries, crds, toolchain

BUILT_IN = {"", "apps", "batch"}
"""Groups of kinds that every API server knows."""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """A `go` that answers as told; the answer lists its calls."""
    monkeypatch.setenv("ADMITQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "go", lambda _say: Path("go"))
    calls: list[Any] = []

    def answering(modules: list[dict[str, Any]], returncode: int = 0) -> list[Any]:
        def run(argv: Any, **options: Any) -> Any:
            calls.append((argv[1:], options["cwd"]))
            # As Go writes them: one object after the other.
            text = "\n".join(json.dumps(module, indent=2) for module in modules)
            return SimpleNamespace(stdout=text, stderr="go: cannot", returncode=returncode)

        monkeypatch.setattr(crds.subprocess, "run", run)
        return calls

    return answering


def published(folder: Path) -> list[dict[str, Any]]:
    """Modules that hold a definition in each of the files, as `go mod download -json` tells of them."""
    modules: list[dict[str, Any]] = []
    for project in crds.PROJECTS:
        root = folder / project.module
        for file in project.files:
            path = root / project.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            version = {"name": "v1beta1", "served": True, "storage": True}
            path.write_text(
                yaml.safe_dump({"metadata": {"name": crds.name_of(file)}, "spec": {"versions": [version]}})
            )
        modules.append({"Path": project.module, "Version": "v1.0.0", "Dir": str(root)})
    return modules


def test_every_project_is_pinned_and_every_pin_is_of_a_project() -> None:
    pinned = binaries.module_versions((crds.MODULE / "go.mod").read_text())
    assert sorted(pinned) == sorted(project.module for project in crds.PROJECTS)
    sums = (crds.MODULE / "go.sum").read_text()
    assert [module for module, version in pinned.items() if f"{module} {version} h1:" not in sums] == []


def test_every_kind_of_another_project_has_its_definition() -> None:
    wanted = {f"{one.plural}.{one.group}" for one in BUILT_IN_KINDS if one.group not in BUILT_IN}
    assert wanted <= set(crds.NAMES)


def test_definitions_are_downloaded_once(fake_go: Any, tmp_path: Path) -> None:
    calls = fake_go(published(tmp_path / "modules"))
    (one,) = crds.definitions(["jobsets.jobset.x-k8s.io"])
    assert one["metadata"]["name"] == "jobsets.jobset.x-k8s.io"
    assert [one["metadata"]["name"] for one in crds.definitions()] == list(crds.NAMES)
    assert calls == [(["mod", "download", "-json"], crds.MODULE)]


def test_provisioning_requests_are_served_as_v1_too(fake_go: Any, tmp_path: Path) -> None:
    fake_go(published(tmp_path / "modules"))
    (one,) = crds.definitions([crds.PROVISIONING_REQUESTS])
    versions = [(each["name"], each["served"], each["storage"]) for each in one["spec"]["versions"]]
    assert versions == [("v1beta1", True, True), ("v1", True, False)]


def test_a_module_that_cannot_be_had_is_named(fake_go: Any) -> None:
    fake_go([{"Path": "m", "Error": "m@v1: not found"}], returncode=1)
    with pytest.raises(crds.DefinitionsError, match="m@v1: not found"):
        crds.definitions()


def test_a_go_that_fails_as_a_whole_is_quoted(fake_go: Any) -> None:
    fake_go([], returncode=1)
    with pytest.raises(crds.DefinitionsError, match="go: cannot"):
        crds.definitions()


def test_unpublished_definition_is_refused_with_the_published_ones() -> None:
    with pytest.raises(crds.DefinitionsError, match=r"nothings\.example\.com; there are: appwrappers"):
        crds.definitions(["nothings.example.com"])
