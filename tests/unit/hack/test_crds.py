import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from admitq.integrations.registry import BUILT_IN_KINDS
from localcluster import crds, project_modules, toolchain
from localcluster.operator_table import OPERATORS

BUILT_IN = {"", "apps", "batch"}
"""Groups of kinds that every API server serves."""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Replace `go`. The returned function sets what `go` prints, and returns the list of calls."""
    monkeypatch.setenv("ADMITQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "go", lambda _say: Path("go"))
    calls: list[Any] = []

    def print_modules(modules: list[dict[str, Any]], returncode: int = 0) -> list[Any]:
        def run(argv: Any, **options: Any) -> Any:
            calls.append((argv[1:], options["cwd"]))
            # Go prints one JSON object after the other, not a list.
            text = "\n".join(json.dumps(module, indent=2) for module in modules)
            return SimpleNamespace(stdout=text, stderr="go: cannot", returncode=returncode)

        monkeypatch.setattr(project_modules.subprocess, "run", run)
        return calls

    return print_modules


def create_modules(folder: Path) -> list[dict[str, Any]]:
    """Create modules with a CRD in each file; return them as `go mod download -json` prints them."""
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


def test_pinned_modules_are_those_of_the_projects_and_have_checksums() -> None:
    pinned = project_modules.versions()
    assert sorted(pinned) == sorted(project.module for project in crds.PROJECTS)
    sums = (project_modules.PINS / "go.sum").read_text()
    assert [module for module, version in pinned.items() if f"{module} {version} h1:" not in sums] == []
    assert {operator.source.module for operator in OPERATORS} <= set(pinned)


def test_every_job_kind_of_other_projects_has_a_crd() -> None:
    names = {f"{kind.plural}.{kind.group}" for kind in BUILT_IN_KINDS if kind.group not in BUILT_IN}
    assert names <= set(crds.NAMES)


def test_crds_are_downloaded_once(fake_go: Any, tmp_path: Path) -> None:
    calls = fake_go(create_modules(tmp_path / "modules"))
    (jobset,) = crds.definitions(["jobsets.jobset.x-k8s.io"])
    assert jobset["metadata"]["name"] == "jobsets.jobset.x-k8s.io"
    assert [crd["metadata"]["name"] for crd in crds.definitions()] == list(crds.NAMES)
    modules = [project.module for project in crds.PROJECTS]
    assert calls == [(["mod", "download", "-json", *modules], project_modules.PINS)]


def test_provisioning_request_crd_also_serves_v1(fake_go: Any, tmp_path: Path) -> None:
    fake_go(create_modules(tmp_path / "modules"))
    (crd,) = crds.definitions([crds.PROVISIONING_REQUESTS])
    versions = [
        (version["name"], version["served"], version["storage"]) for version in crd["spec"]["versions"]
    ]
    assert versions == [("v1beta1", True, True), ("v1", True, False)]


def test_failed_download_of_module_is_reported_with_module(fake_go: Any) -> None:
    fake_go([{"Path": "m", "Error": "m@v1: not found"}], returncode=1)
    with pytest.raises(crds.DefinitionsError, match="m@v1: not found"):
        crds.definitions()


def test_failure_of_go_is_reported_with_its_output(fake_go: Any) -> None:
    fake_go([], returncode=1)
    with pytest.raises(crds.DefinitionsError, match="go: cannot"):
        crds.definitions()


def test_unknown_crd_is_rejected_with_known_crds() -> None:
    with pytest.raises(crds.DefinitionsError, match=r"nothings\.example\.com; available are: appwrappers"):
        crds.definitions(["nothings.example.com"])
