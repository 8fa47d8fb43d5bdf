"""The samples of `hack/up`: folders with manifests, and with what the tour needs to know about them."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import yaml
from pydantic import TypeAdapter

from admitq_api.labels import DEFAULT_GROUP
from localcluster.folders import REPOSITORY
from localcluster.nodes import NodePool
from showcase.progress import JobStage

FOLDER = REPOSITORY / "hack" / "samples"
DEFAULT_SAMPLE = "teams"

_DESCRIPTION = "sample.yaml"
# The group as a whole word, not as a part of another name.
_GROUP = re.compile(rf"(?<![\w.-]){re.escape(DEFAULT_GROUP)}(?=/)")


@dataclass(frozen=True)
class Sample:
    """The file ``sample.yaml`` of a sample.

    Attributes:
        summary: what the sample creates.
        nodes: the simulated nodes that it needs.
        commands: commands for a shell that show the result. ``${samples}`` is the folder of its manifests.
        last_stages: the last stage of Jobs that do not finish, by namespace and name.
    """

    summary: str
    nodes: tuple[NodePool, ...]
    commands: tuple[str, ...]
    last_stages: Mapping[str, JobStage] = field(default_factory=dict)

    def last_stage(self, job: str) -> JobStage:
        """Return the stage in which a Job stays."""
        return self.last_stages.get(job, JobStage.FINISHED)

    def commands_in(self, folder: Path) -> list[str]:
        """Return the commands for manifests in a folder."""
        return [Template(command).substitute(samples=shlex.quote(str(folder))) for command in self.commands]


def names() -> list[str]:
    """Return the names of all samples."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{_DESCRIPTION}"))


def load(name: str) -> Sample:
    """Return a sample.

    Raises:
        ValueError: its description does not have the fields of a sample.
    """
    return TypeAdapter(Sample).validate_python(yaml.safe_load((FOLDER / name / _DESCRIPTION).read_text()))


def write(name: str, group: str, target: Path) -> dict[str, Path]:
    """Write the manifests of a sample for an API group into a folder.

    Returns:
        Their paths by file name.
    """
    target.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for source in sorted((FOLDER / name).glob("*.yaml")):
        if source.name == _DESCRIPTION:
            continue
        path = target / source.name
        path.write_text(_GROUP.sub(group, source.read_text()))
        written[source.name] = path
    return written


def objects(manifest: Path) -> list[dict[str, Any]]:
    """Return the objects of a manifest, in their order."""
    return list(yaml.safe_load_all(manifest.read_text()))
