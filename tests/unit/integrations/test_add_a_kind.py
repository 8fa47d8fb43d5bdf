"""The kind of docs/guides/add-a-kind.md can be installed, enabled and simulated like every other kind."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.app.settings import load_settings
from admitq.integrations import registry
from admitq.simulator import Simulation, read
from admitq_api.entry_points import ENTRY_POINT_GROUP
from admitq_api.labels import names_for
from tests.unit.integrations.test_every_kind import call_every_function, paths_of, with_value
from tests.unit.simulator.stage import WORLD, RecordedTimeline

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "add-a-kind.md").read_text()
MAX_LINES = 60
"""Maximum number of lines of the kind in the guide."""

SWEEP: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Sweep",
    "metadata": {"name": "sweep", "namespace": "team", "labels": {names_for().queue_name: "main"}},
    "spec": {
        "trials": 2,
        "podsPerTrial": 2,
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}},
    },
    "status": {
        "pods": 2,
        "finishedTrials": 1,
        "conditions": [{"type": "Succeeded", "status": "True", "message": "found it"}],
    },
}
"""A job that needs the whole quota of the simulated cluster."""


def list_code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package of the guide for one test."""
    (code,), (text,) = list_code_blocks("python"), list_code_blocks("toml")
    project = tomllib.loads(text)["project"]
    entries = project["entry-points"][ENTRY_POINT_GROUP]
    module = next(iter(entries.values())).partition(":")[0]
    (tmp_path / f"{module}.py").write_text(code)
    metadata_folder = tmp_path / f"{module}-{project['version']}.dist-info"
    metadata_folder.mkdir()
    (metadata_folder / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}\n" for name, value in entries.items()]
    (metadata_folder / "entry_points.txt").write_text("".join([f"[{ENTRY_POINT_GROUP}]\n", *lines]))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.load_integrations.cache_clear()
    yield
    registry.load_integrations.cache_clear()
    sys.modules.pop(module, None)


def test_guide_kind_has_few_lines() -> None:
    (code,) = list_code_blocks("python")
    assert len(code.splitlines()) < MAX_LINES


@pytest.mark.usefixtures("installed")
def test_guide_kind_accepts_jobs_of_any_shape() -> None:
    kind = registry.load_integrations()[-1]
    assert kind.gvk == ("example.com", "v1", "Sweep")
    assert [(pod_set.name, pod_set.count) for pod_set in kind.list_pod_sets(SWEEP, names_for())] == [
        ("trials", 4)
    ]
    assert kind.find_outcome(SWEEP) == (True, "found it")
    assert kind.is_active(SWEEP)
    assert kind.scaling.count_reclaimable_pods(SWEEP) == {"trials": 2}
    for path in paths_of(SWEEP):
        for damage in (None, -1, 2**70, "x", [], [None], {}, {"x": None}):
            call_every_function(kind, SWEEP, with_value(SWEEP, path, damage))


@pytest.mark.usefixtures("installed")
def test_guide_kind_is_enabled_by_configuration(tmp_path: Path) -> None:
    (values, _) = list_code_blocks("yaml")
    head = {"apiVersion": names_for().config_api_version, "kind": "Configuration"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**head, **yaml.safe_load(values)["config"]}))
    integrations = load_settings(file).integrations
    assert [kind.framework for kind in integrations] == ["batch/job", "example.com/sweep"]
    fields = ("group", "version", "kind", "plural")
    assert yaml.safe_load(values)["extraKinds"] == [
        {name: getattr(integrations[-1], name) for name in fields}
    ]


@pytest.mark.usefixtures("installed")
def test_jobs_of_guide_kind_are_admitted_one_after_the_other(tmp_path: Path) -> None:
    (_, scenario) = list_code_blocks("yaml")
    (tmp_path / "queues-and-sweep.yaml").write_text(f"{WORLD}---\n{yaml.safe_dump(SWEEP)}")
    (tmp_path / "scenario.yaml").write_text(scenario)
    story = RecordedTimeline()
    simulation = Simulation(read([tmp_path / "scenario.yaml"]), story)
    simulation.run()
    assert [line.rpartition(" ")[0] for line in story.lines] == [
        "0 Submitted",
        "0 Admitted",
        "60 Submitted",
        "600 Finished",
        "600 Admitted",
        "1200 Finished",
    ]
