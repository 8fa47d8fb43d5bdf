"""The chart, rendered and installed by the real helm."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import LocalCluster, binaries

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "admitq"
KUBERNETES = "1.36.0"


@dataclass(frozen=True)
class Rendered:
    """The objects that helm template printed, by kind and name."""

    objects: Mapping[str, dict[str, Any]]

    @property
    def kinds(self) -> set[str]:
        """The kinds that were rendered."""
        return {key.partition("/")[0] for key in self.objects}


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs helm, on a cluster if one is given."""
    program = binaries.build()["helm"]

    def run(
        *arguments: str, cluster: LocalCluster | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        environment = None if cluster is None else {**os.environ, **cluster.environment()}
        answer = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, env=environment
        )
        assert not check or answer.returncode == 0, answer.stderr
        return answer

    return run


@pytest.fixture
def template(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that renders the chart for a release."""

    def run(
        values: Mapping[str, Any] | None = None,
        *,
        values_file: str | None = None,
        release: str = "admitq",
        namespace: str = "admitq-system",
        api_versions: tuple[str, ...] = (),
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.dump(dict(values or {})))
        arguments = ["template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES]
        if values_file is not None:
            arguments += ["--values", str(CHART / "ci" / f"{values_file}-values.yaml")]
        for version in api_versions:
            arguments += ["--api-versions", version]
        return helm(*arguments, "--values", str(file), check=check)

    return run


@pytest.fixture
def render(template: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Rendered]:
    """Render the chart and parse the output."""

    def run(values: Mapping[str, Any] | None = None, **options: Any) -> Rendered:
        documents = yaml.load_all(template(values, **options).stdout, Loader=yaml.CSafeLoader)
        objects = [document for document in documents if document]
        keyed = {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}
        assert len(keyed) == len(objects), "two objects of one kind and name"
        return Rendered(keyed)

    return run
