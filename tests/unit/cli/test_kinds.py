"""`admitq kinds` lists the job kinds of the registry and the configuration."""

import json
from dataclasses import replace
from pathlib import Path

import yaml
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.cli.processes import CONFIGURATION_ERROR
from admitq.integrations.capabilities import CAPABILITIES, describe_kind
from admitq.integrations.kinds.job import JOB
from admitq.integrations.registry import load_integrations
from localcluster.custom_kinds import configured


def run_kinds(*arguments: str) -> str:
    answer = CliRunner().invoke(application, ["kinds", *arguments], env={"COLUMNS": "80"})
    assert answer.exit_code == 0
    return answer.stdout


def test_json_lists_every_kind_with_every_capability() -> None:
    rows = json.loads(run_kinds("--output=json"))
    assert [row["framework"] for row in rows] == [kind.framework for kind in load_integrations()]
    assert rows[0] == {
        "framework": "batch/job",
        "apiVersion": "batch/v1",
        "kind": "Job",
        "gate": None,
        "partialAdmission": True,
        "elastic": True,
        "reclaimablePods": True,
        "prebuiltWorkload": True,
        "otherClusters": False,
        "ownPriorityClass": False,
    }


def test_table_has_a_line_for_every_kind() -> None:
    lines = run_kinds().splitlines()
    for kind in load_integrations():
        (line,) = [line for line in lines if line.split()[:1] == [kind.framework]]
        for capability in CAPABILITIES:
            assert (capability.title in line) == capability.is_supported_by(kind)


def test_unsupported_capability_of_kind_is_false() -> None:
    bare = replace(
        JOB,
        scaling=replace(JOB.scaling, with_pod_counts=None, can_be_elastic=False),
        delegation=replace(JOB.delegation, managed_by_path=None),
    )
    row = describe_kind(bare)
    assert [row[key] for key in ("partialAdmission", "elastic")] == [False, False]


def test_capability_without_controller_is_marked_as_not_yet() -> None:
    (line,) = [line for line in run_kinds().splitlines() if line.split()[:1] == [JOB.framework]]
    assert "other clusters (not yet)" in line
    assert describe_kind(JOB)["otherClusters"] is False


def test_custom_kinds_of_configuration_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = {"apiVersion": "config.admitq.dev/v1beta2", "kind": "Configuration"}
    file.write_text(yaml.safe_dump({**head, "integrations": {"custom": configured()}}))
    rows = json.loads(run_kinds("--output=json", "--config", str(file)))
    custom = [(row["framework"], row["partialAdmission"]) for row in rows[len(load_integrations()) :]]
    assert custom == [("example.com/training", False), ("tasks.example.com/job", True)]
    (line,) = [
        line for line in run_kinds("--config", str(file)).splitlines() if "tasks.example.com/job" in line
    ]
    assert "tasks.example.com/v1alpha1" in line


def test_kinds_command_with_invalid_configuration_fails(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.admitq.dev/v1beta2\nkind: Configuration\nintegrations: {custom: [{}]}\n"
    )
    answer = CliRunner().invoke(application, ["kinds", "--config", str(file)])
    assert answer.exit_code == CONFIGURATION_ERROR
    assert "integrations.custom[0].group: is required" in answer.stderr
